"""How members of a group share queues, beside what Java's rules gave for the same queues and members."""

import json

import pytest

from appliance.client import allocation
from appliance.client.core.rebalance import share
from appliance.client.errors import InvalidOption
from appliance.client.message import MessageQueue
from tests.support.golden import GOLDEN

RECORDED = [json.loads(line) for line in (GOLDEN / "client-allocation-5.3.3.jsonl").read_text().splitlines()]
RULES = {
    "average": allocation.average,
    "in_turns": allocation.in_turns,
    "consistent_hash": allocation.consistent_hash,
    "rooms": allocation.rooms({"east", "west"}),
    "near": allocation.near(
        lambda broker: broker.partition("@")[0] if "@" in broker else "none", lambda member: member.partition("-")[0]
    ),
}
QUEUES = [MessageQueue("T", "b", number) for number in range(4)]


@pytest.mark.parametrize("rule", RULES)
def test_members_share_queues_as_javas_do(rule):
    for scene in RECORDED:
        queues = [MessageQueue(*one) for one in scene["queues"]]
        found = [share(RULES[rule], reversed(queues), reversed(scene["members"]), own) for own in scene["members"]]
        assert [[queues.index(one) for one in mine] for mine in found] == scene[rule]


def test_a_list_is_taken_as_far_as_its_queues_are_there():
    wanted = [QUEUES[3], QUEUES[1], MessageQueue("T", "b", 17), MessageQueue("other", "b", 0)]
    assert share(allocation.fixed(wanted), QUEUES, ["a", "me"], "me") == [QUEUES[1], QUEUES[3]]


def test_retries_are_read_by_somebody_although_no_list_names_them():
    retries = [MessageQueue("%RETRY%g", "b", 0), MessageQueue("%RETRY%g", "c", 0)]
    rule = allocation.fixed(QUEUES[:1])
    assert [share(rule, retries, ["a", "b"], own) for own in "ab"] == [retries[:1], retries[1:]]


@pytest.mark.parametrize("topic", ["T", "ns%T"])
def test_a_list_of_a_client_with_a_namespace_names_queues_with_or_without_it(topic):
    at_brokers = [MessageQueue("ns%T", "b", number) for number in range(4)]
    rule = allocation.fixed([MessageQueue(topic, "b", 3)])
    own = allocation.in_namespace(rule, "ns")
    assert share(own, at_brokers, ["a", "me"], "me") == at_brokers[3:]
    nearby = allocation.in_namespace(allocation.near(lambda _: "r", lambda _: "r", rule), "ns")
    assert share(nearby, at_brokers, ["a", "me"], "me") == at_brokers[3:]
    retries = [MessageQueue("%RETRY%ns%g", "b", 0)]
    assert share(own, retries, ["me"], "me") == retries


def test_rules_that_java_computes_from_names_at_brokers_stay():
    assert allocation.in_namespace(allocation.consistent_hash, "ns") is allocation.consistent_hash
    rule = allocation.fixed(QUEUES)
    assert allocation.in_namespace(rule, "") is rule


def fails(queues, members, own):
    raise KeyError(own)


@pytest.mark.parametrize(
    "rule", [fails, lambda *_: None, lambda *_: [MessageQueue("T", "b", 4)], lambda *_: [0]], ids=range(4)
)
def test_a_rule_that_fails_is_an_error_of_its_own(rule):
    with pytest.raises(InvalidOption, match="allocation"):
        share(rule, QUEUES, ["me"], "me")


class Counted(MessageQueue):
    """A queue that counts how often it is compared."""

    compared = 0

    def __eq__(self, other):
        Counted.compared += 1
        return MessageQueue.__eq__(self, other)

    __hash__ = MessageQueue.__hash__


def test_many_queues_are_not_compared_with_each_other():
    queues = [Counted("T", "b", number) for number in range(500)]
    assert len(share(allocation.in_turns, queues, ["a", "me"], "me")) == 250
    assert Counted.compared < 1000
