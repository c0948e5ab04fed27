"""One group with a member of each client: Java of both versions, Go and Python, on topics of two brokers.

Each member computes the shares of all for itself. So each one's is compared with what the Python client's rules say of
the ids that the broker answers.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator

import pytest

from appliance.client import MessageQueue, allocation
from tests.clients.agents import PushConsumer
from tests.clients.conftest import wait_for_clients
from tests.clients.messages import Message
from tests.clients.stage import JAVA, JAVA_GO_AND_PYTHON, READY_S, Stage
from tests.clients.test_coming_and_going import closing_what_was_killed
from tests.clients.test_ordered import LEASE_S, assert_order_kept
from tests.support.apache import ask
from tests.support.directories import shared_directory
from tests.support.server import Server
from tests.support.waiting import wait_for

#: Rules and the clients that have them: Go's hash is another.
RULES = {
    "average": JAVA_GO_AND_PYTHON,
    "in_turns": JAVA_GO_AND_PYTHON,
    "consistent_hash": (*JAVA, "python"),
}
#: Queues of a topic at either broker.
QUEUES = {"one": 4, "two": 3}
#: Rebalances of a member that no broker notified.
SETTLED_S = READY_S + 30


class TwoBrokers:
    """Two brokers with one name server."""

    def __init__(self, one: Server, two: Server) -> None:
        self.namesrv, self.broker = one.namesrv, one.broker
        self.brokers = {"one": one.broker, "two": two.broker}


@pytest.fixture(scope="module")
def quick(request: pytest.FixtureRequest) -> Iterator[TwoBrokers]:
    scratch = shared_directory(request, "two-brokers")

    def started(name: str, roles: str, *arguments: str) -> Server:
        config = scratch / f"{name}.conf"
        config.write_text(f"brokerName={name}\n")
        return Server(scratch / name, "-c", str(config), *arguments, roles=roles)

    with started("one", "broker,namesrv") as one, started("two", "broker", "--namesrv-addr", one.namesrv) as two:
        yield TwoBrokers(one, two)


def create_at_both(stage: Stage) -> list[MessageQueue]:
    """Create the stage's topic at both brokers; return its queues, sorted."""
    assert isinstance(stage.target, TwoBrokers)
    topic = stage.topic
    for name, broker in stage.target.brokers.items():
        fields = {"topic": topic, "defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG"}
        fields |= {"readQueueNums": QUEUES[name], "writeQueueNums": QUEUES[name], "topicSysFlag": 0, "order": "false"}
        header, _ = ask(broker, 17, {key: str(value) for key, value in fields.items()})
        assert header["code"] == 0, header

    def is_routed() -> bool:
        header, body = ask(stage.target.namesrv, 105, {"topic": topic})
        return header["code"] == 0 and all(f'"{name}"'.encode() in body for name in QUEUES)

    wait_for(is_routed, f"{topic} is routed at both brokers")
    return [MessageQueue(topic, name, number) for name, count in QUEUES.items() for number in range(count)]


def members_of(stage: Stage) -> list[str]:
    """Return the client ids of the group, sorted as the clients sort them."""
    header, body = ask(stage.target.broker, 38, {"consumerGroup": stage.group})
    found = json.loads(body)["consumerIdList"] if header["code"] == 0 else []
    return sorted(found, key=allocation.java_order)


def shares(stage: Stage, members: list[PushConsumer]) -> list[set[MessageQueue]]:
    """Return the queues that each was allocated last."""
    found = []
    for member in members:
        said = [one for one in member.allocations if one["topic"] == stage.topic]
        mine = said[-1]["queues"] if said else []
        found.append({MessageQueue(stage.topic, one["broker"], one["queue_id"]) for one in mine})
    return found


def wait_until_shared(stage: Stage, rule: str, queues: list[MessageQueue], members: list[PushConsumer]) -> None:
    """Until these are the group, and each has the queues that the rule gives it."""

    def predicted() -> list[set[MessageQueue]]:
        ids = members_of(stage)
        if len(ids) != len(members):
            return []
        own = {member.name: next(one for one in ids if one.endswith(f"@{member.name}")) for member in members}
        share = getattr(allocation, rule)
        return [set(share(queues, ids, own[member.name])) for member in members]

    wait_for_clients(lambda: shares(stage, members) == predicted(), f"the shares of {rule}", seconds=SETTLED_S)
    counted = Counter(itertools.chain.from_iterable(shares(stage, members)))
    assert counted == dict.fromkeys(queues, 1)


class Sender:
    """Sends numbered messages to all queues, and waits for them."""

    def __init__(self, stage: Stage, members: list[PushConsumer]) -> None:
        self._stage = stage
        self._members = members
        self._numbers = itertools.count()

    def send(self, count: int) -> list[Message]:
        messages = [Message(f"message {number}".encode()) for number in itertools.islice(self._numbers, count)]
        self._stage.send(messages)
        return messages

    def count(self, messages: list[Message]) -> Counter[str]:
        wanted = {message.sha256 for message in messages}
        came = (one["body_sha256"] for member in self._members for one in member.received)
        return Counter(body for body in came if body in wanted)

    def wait(self, messages: list[Message]) -> None:
        wait_for_clients(lambda: len(self.count(messages)) == len(messages), "all came", seconds=READY_S)

    def all_come_once(self) -> None:
        """Queues have changed hands when the first of these have come; then each comes once."""
        self.wait(self.send(28))
        settled = self.send(56)
        self.wait(settled)
        assert set(self.count(settled).values()) == {1}


@pytest.mark.own
@pytest.mark.at_once
@pytest.mark.parametrize(
    ("kind", "rule"),
    [("python", "average"), ("go", "average"), ("java-5.3.3", "in_turns"), ("python", "in_turns"),
     ("java-4.9.8", "consistent_hash"), ("python", "consistent_hash")],
)  # fmt: skip
def test_members_of_all_clients_share_the_queues_of_two_brokers(kind: str, rule: str, stage: Stage) -> None:
    """They come one after the other; the one of `kind` is killed, and another leaves."""
    queues = create_at_both(stage)
    everybody: list[PushConsumer] = []
    with contextlib.ExitStack() as stack:
        doomed = stack.enter_context(closing_what_was_killed(stage.another(kind)))
        members: dict[str, PushConsumer] = {}
        for each in RULES[rule]:
            agent = doomed if each == kind else stage.client(each)
            members[each] = stack.enter_context(stage.consumer(agent=agent, allocation=rule))
            everybody.append(members[each])
        sender = Sender(stage, everybody)
        wait_until_shared(stage, rule, queues, list(members.values()))
        sender.all_come_once()
        on_the_way = sender.send(56)
        doomed.kill()
        members.pop(kind).abandon()
        sender.wait(on_the_way)
        wait_until_shared(stage, rule, queues, list(members.values()))
        sender.all_come_once()
        _, leaves = members.popitem()
        on_the_way = sender.send(56)
        leaves.stop()
        sender.wait(on_the_way)
        wait_until_shared(stage, rule, queues, list(members.values()))
        sender.all_come_once()


@pytest.mark.own
@pytest.mark.at_once
@pytest.mark.parametrize("kind", JAVA_GO_AND_PYTHON)
def test_members_of_all_clients_keep_the_order(kind: str, stage: Stage) -> None:
    """The one of `kind` begins alone and is killed; the others come one after the other, and one of them leaves."""
    queues = 3
    stage.create_topic(queues=queues)
    numbers = itertools.count()
    sent: list[Message] = []
    members: list[PushConsumer] = []

    def send() -> None:
        more = [Message(f"{n}".encode(), order=f"order {n % 12}") for n in itertools.islice(numbers, 24)]
        stage.send(more, how="ordered", ordered=True)
        sent.extend(more)

    def missing() -> set[str]:
        came = {one["body_sha256"] for member in members for one in member.received}
        return {message.sha256 for message in sent} - came

    with contextlib.ExitStack() as stack:
        doomed = stack.enter_context(closing_what_was_killed(stage.another(kind)))
        for each in (kind, *(one for one in JAVA_GO_AND_PYTHON if one != kind)):
            agent = doomed if each == kind else stage.client(each)
            members.append(stack.enter_context(stage.consumer(agent=agent, orderly=True, hold_ms=5)))
            send()
        doomed.kill()
        members[0].abandon()
        send()
        members[1].stop()
        send()
        # Go keeps the lock of a queue that it gives up until it ends, and clients ask again after 20 s at the latest.
        wait_for_clients(lambda: not missing(), "all came", seconds=READY_S + 2 * LEASE_S)
    assert_order_kept(members, queues)
