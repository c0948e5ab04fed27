"""A heartbeat of which a part is not allowed: the rest is registered, and the answer names what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.engine.broker.heartbeat import MOST_OBJECTS
from appliance.engine.protocol.command import RemotingCommand
from tests.engine.access.test_enforced import ANN, BOB, CODE, ROOT, Site, site, start
from tests.support.engine import Peer
from tests.support.waiting import wait_for

__all__ = ["site", "start"]

NO_MATCH = "from 127.0.0.1, no matched policies."


def beat(
    peer: Peer, groups: dict[str, list[str]], producers: tuple[str, ...] = (), codec: int = 0, **more: Any
) -> RemotingCommand:
    """groups: consumer group -> its topics."""
    data = {
        "clientID": "c",
        "consumerDataSet": [
            {"groupName": group, "subscriptionDataSet": [{"topic": topic} for topic in topics]}
            for group, topics in groups.items()
        ],
        "producerDataSet": [{"groupName": group} for group in producers],
    }
    return peer.ask(CODE.HEART_BEAT, {}, json.dumps(data | more).encode(), codec=codec)


def registered(site: Site) -> dict[str, set[str]]:
    """Return consumer group -> its topics, as the broker has them."""
    return {info.group_name: set(info.subscriptions) for info in site.running.engine.broker.clients.consumer_groups()}


@pytest.mark.parametrize("port", [0, -2], ids=["broker", "vip"])
@pytest.mark.parametrize("codec", [0, 1])
def test_what_is_allowed_is_registered_and_the_answer_names_the_rest(site, codec, port):
    site.make(ANN, "Group:mine Sub", "Topic:Open Sub", "Topic:Shut Sub Deny")
    host, _, number = site.address.rpartition(":")
    ann = site.peer(ANN, f"{host}:{int(number) + port}")
    retry = "%RETRY%mine"
    answer = beat(ann, {"mine": ["Open", "Secret", retry], "other": ["Open"]}, ("P",), codec)
    told = f"User:ann has no permission to access Topic:Secret, Group:other {NO_MATCH}"
    assert (answer.code, answer.remark, answer.body) == (16, told, b"")
    assert registered(site) == {"mine": {"Open", retry}}
    assert json.loads(ann.ask(CODE.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "mine"}).body)["consumerIdList"] == [
        "c"
    ]
    assert site.root.ask(CODE.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "P", "topic": "Open"}).code == 0
    # The same again, when nothing is new to the broker, is not taken for one that was allowed.
    again = [beat(ann, {"mine": ["Open", "Secret", retry], "other": ["Open"]}, ("P",), codec) for _ in range(3)]
    assert {answer.remark for answer in again} == {told}
    why = "from 127.0.0.1, the decision is deny."
    assert beat(ann, {"mine": ["Open", "Shut"]}).remark == f"User:ann has no permission to access Topic:Shut {why}"
    assert beat(ann, {"mine": ["Open"]}).code == 0


def test_a_group_without_a_topic_that_is_left_takes_no_queues_from_others(site):
    ann = site.make(ANN, "Group:mine Sub", "Topic:Open Sub")
    site.make(BOB, "Group:mine Sub")
    assert beat(ann, {"mine": ["Open"]}).code == 0
    assert beat(site.peer(BOB), {"mine": ["Open", "%RETRY%mine"]}, clientID="bob").code == 16
    ids = ann.ask(CODE.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "mine"}).body
    assert json.loads(ids) == {"consumerIdList": ["c"]}


def test_a_topic_that_others_of_a_group_read_is_not_taken_from_them(site):
    """Each member divides a topic's queues among all of the group: the share of one who may not read it would wait."""
    ann = site.make(ANN, "Group:mine Sub", "Topic:Open Sub", "Topic:More Sub")
    bob = site.make(BOB, "Group:mine Sub", "Topic:Open Sub")
    both = {"mine": ["Open", "More"]}
    assert beat(ann, both).code == 0
    assert beat(bob, both, clientID="bob").code == 16
    assert registered(site) == {"mine": {"Open", "More"}}
    ids = ann.ask(CODE.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "mine"}).body
    assert json.loads(ids) == {"consumerIdList": ["c"]}
    ann.close()
    wait_for(lambda: registered(site) == {}, "the other one is gone")
    assert beat(bob, both, clientID="bob").code == 16
    assert registered(site) == {"mine": {"Open"}}


def test_another_user_of_a_connection_has_its_own_rights(site):
    ann = site.make(ANN, "Group:mine Sub", "Topic:Open Sub")
    site.make(BOB)
    assert [beat(ann, {"mine": ["Open"]}).code for _ in range(2)] == [0, 0]
    bob = site.peer(BOB)
    bob.sock.close()
    bob.sock, ann.sock = ann.sock, bob.sock
    assert beat(bob, {"mine": ["Open"]}).code == 16


def test_a_right_that_is_given_counts_for_the_next_one_like_it(site):
    ann = site.make(ANN, "Group:mine Sub")
    assert [beat(ann, {"mine": ["Open"]}).code for _ in range(2)] == [16, 16]
    assert registered(site) == {}
    assert site.allow("ann", "Topic:Open Sub").code == 0
    assert beat(ann, {"mine": ["Open"]}).code == 0
    assert registered(site) == {"mine": {"Open"}}


def test_many_groups_are_registered_in_slices_and_the_text_is_short(site):
    ann = site.make(ANN, "Group:g* Sub", "Topic:T* Sub")
    groups = {f"{kind}{number}": [f"T{number}"] for number in range(200) for kind in ("g", "x")}
    answer = beat(ann, groups)
    assert answer.code == 16
    assert answer.remark.count("Group:x") == 10
    assert "Group:x9, 190 more from" in answer.remark
    assert set(registered(site)) == {f"g{number}" for number in range(200)}


def test_an_expression_of_a_refused_topic_is_not_compiled(site, monkeypatch):
    made = []
    name = "appliance.engine.broker.processors.client.make_filter"
    monkeypatch.setattr(name, lambda kind, expression, host: made.append(expression))
    ann = site.make(ANN, "Group:mine Sub", "Topic:Open Sub")
    long = " OR ".join(f"a{number} = {number}" for number in range(2000))
    wanted = [{"topic": "Secret", "expressionType": "SQL92", "subString": long}, {"topic": "Open"}]
    consumers = [{"groupName": "mine", "subscriptionDataSet": wanted}]
    assert beat(ann, {}, consumerDataSet=consumers).code == 16
    assert made == []
    assert registered(site) == {"mine": {"Open"}}


def test_a_heartbeat_without_subscriptions_has_all_sent_before_it_is_refused(site):
    """Java clients of 5.x with useHeartbeatV2 send them again only if a heartbeat that was taken asks for them."""
    ann = site.make(ANN, "Group:mine Sub", "Topic:Open Sub")
    groups = {"mine": [], "other": []}
    answer = beat(ann, groups, heartbeatFingerprint=7, withoutSub=True)
    assert (answer.code, answer.ext_fields["IS_SUB_CHANGE"]) == (0, "true")
    whole = {"mine": ["Open"], "other": ["Open"]}
    assert beat(ann, whole, heartbeatFingerprint=7).code == 16
    assert registered(site) == {"mine": {"Open"}}
    assert beat(ann, groups, heartbeatFingerprint=7, withoutSub=True).code == 16
    assert registered(site) == {"mine": {"Open"}}


def test_a_heartbeat_without_subscriptions_stands_for_what_its_group_reads(site):
    """A client whose rights were taken away connects again, and sends its fingerprint only."""
    ann = site.make(ANN, "Group:mine Sub", "Group:own Sub", "Topic:Open Sub")
    bob = site.make(BOB, "Group:mine Sub", "Topic:* Sub")
    whole = {"mine": ["Open", "Secret"]}
    assert beat(bob, whole, heartbeatFingerprint=7, clientID="b").code == 0
    assert beat(ann, {"own": ["Open"]}, heartbeatFingerprint=7, clientID="a").code == 0
    answer = beat(ann, {"mine": [], "own": []}, heartbeatFingerprint=7, withoutSub=True, clientID="a")
    assert (answer.code, answer.remark) == (16, f"User:ann has no permission to access Topic:Secret {NO_MATCH}")
    members = {
        group: site.running.engine.broker.clients.consumer_group(group).client_ids() for group in ("mine", "own")
    }
    assert members == {"mine": ["b"], "own": ["a"]}
    assert beat(bob, {"mine": []}, heartbeatFingerprint=7, withoutSub=True, clientID="b").code == 0
    assert site.allow("ann", "Topic:Secret Sub").code == 0
    answer = beat(ann, {"mine": [], "own": []}, heartbeatFingerprint=7, withoutSub=True, clientID="a")
    assert (answer.code, answer.ext_fields["IS_SUB_CHANGE"]) == (0, "false")
    assert registered(site) == {"mine": {"Open", "Secret"}, "own": {"Open"}}


def test_a_heartbeat_with_another_fingerprint_joins_no_group_of_which_it_may_not_read_all(site):
    """What it reads is known with its full heartbeat, for which it is asked."""
    ann = site.make(ANN, "Group:mine Sub", "Topic:Open Sub")
    bob = site.make(BOB, "Group:mine Sub", "Topic:* Sub")
    assert beat(bob, {"mine": ["Open", "Secret"]}, heartbeatFingerprint=7, clientID="b").code == 0
    for codec in (0, 1):
        answer = beat(ann, {"mine": []}, codec=codec, heartbeatFingerprint=8, withoutSub=True, clientID="a")
        assert (answer.code, answer.ext_fields["IS_SUB_CHANGE"]) == (0, "true")
    members = site.running.engine.broker.clients.consumer_group("mine")
    assert (members.client_ids(), members.fingerprint) == (["b"], 7)
    assert beat(ann, {"mine": ["Open", "Secret"]}, heartbeatFingerprint=8, clientID="a").code == 16
    assert site.allow("ann", "Topic:Secret Sub").code == 0
    answer = beat(ann, {"mine": []}, heartbeatFingerprint=8, withoutSub=True, clientID="a")
    assert (answer.code, answer.ext_fields["IS_SUB_CHANGE"]) == (0, "true")
    assert members.client_ids() == ["b", "a"]


def test_a_heartbeat_without_subscriptions_hides_no_group_behind_one_that_it_names_often(site):
    ann = site.make(ANN, "Group:mine Sub", "Group:own Sub", "Topic:T* Sub")
    bob = site.make(BOB, "Group:mine Sub", "Topic:* Sub")
    assert beat(bob, {"mine": ["Secret"]}, heartbeatFingerprint=7, clientID="b").code == 0
    own = [f"T{number}" for number in range(MOST_OBJECTS // 2)]
    assert beat(ann, {"own": own}, heartbeatFingerprint=7, clientID="a").code == 0
    named = [{"groupName": group} for group in ("own", "own", "own", "mine")]
    answer = beat(ann, {}, consumerDataSet=named, heartbeatFingerprint=7, withoutSub=True, clientID="a")
    assert (answer.code, answer.remark) == (1, "its groups read more than the 4096 topics of a heartbeat")
    assert site.running.engine.broker.clients.consumer_group("mine").client_ids() == ["b"]
    answer = beat(ann, {"own": []}, heartbeatFingerprint=7, withoutSub=True, clientID="a")
    assert (answer.code, answer.ext_fields["IS_SUB_CHANGE"]) == (0, "false")


def test_in_report_mode_all_is_registered_and_each_heartbeat_is_counted(start):
    site = start(access_control="report")
    bob = site.make(BOB)
    for _ in range(3):
        assert beat(bob, {"mine": ["Open"]}).code == 0
    assert registered(site) == {"mine": {"Open"}}
    counts = {row.resource: row.count for row in site.running.window.users.refusals(page_size=500).rows}
    assert counts == {"Group:mine": 3, "Topic:Open": 3}
    site.running.window.option_commands.change({"accessControl": "enforce"})
    wait_for(lambda: registered(site) == {}, "the group that was never allowed to be gone")
    assert bob.is_closed()


def test_a_super_user_consumes_all(site):
    assert beat(site.peer(ROOT), {"any": ["Secret"]}).code == 0
    assert registered(site) == {"any": {"Secret"}}
