"""Java clients survive the death of the broker that leads a set of two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.clients.agents import Agent, ClientFailed, PushConsumer
from tests.clients.messages import Message, assert_delivered, assert_in_order
from tests.support.set_of_two import SetOfTwo
from tests.support.waiting import wait_for

pytestmark = pytest.mark.own

#: Clients ask for routes so often, by default each 30 s.
POLL_MS = 500
CREATE_TOPIC = 17


@pytest.fixture
def brokers(tmp_path) -> Iterator[SetOfTwo]:
    with SetOfTwo(tmp_path) as running:
        yield running


def make_topic(brokers: SetOfTwo, topic: str) -> None:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    assert brokers.peer(1).ask(CREATE_TOPIC, fields).code == 0


def sent_again(producer, topic: str, message: Message) -> dict:
    """Sent until it is acknowledged, by a client that does not know the new leader yet."""

    def once() -> list[dict]:
        return producer.send(topic, [message])

    return wait_for(once, "a send after the fail-over", every=0.1, not_yet=(ClientFailed,))[0]


def bodies_of(consumer: PushConsumer) -> int:
    return len({one["body_sha256"] for one in consumer.received})


# Not 4.9.8: it sends a killed broker no further request until its pull's 30 s are over.
@pytest.mark.parametrize("agent", ["java-5.3.3"], indirect=True)
def test_consumers_of_every_kind_go_on_where_the_next_leader_is(brokers: SetOfTwo, agent: Agent):
    """Concurrent with a batch and a compressed message, in order with locks of queues, broadcast, filtered by SQL92."""
    kinds = {
        "Many": {},
        "Ordered": {"orderly": True},
        "Broadcast": {"model": "BROADCASTING"},
        "Filtered": {"sql": "n > 4"},
    }
    for topic in kinds:
        make_topic(brokers, topic)
    names = ";".join(brokers.layout.address(number, 9876) for number in (2, 3))
    sent: dict[str, list[Message]] = {topic: [] for topic in kinds}
    acknowledged: dict[str, list[dict]] = {topic: [] for topic in kinds}
    with ExitStack() as stack:
        consumers = {
            topic: stack.enter_context(agent.push(names, topic, f"group-{topic}", poll_ms=POLL_MS, **how))
            for topic, how in kinds.items()
        }
        producer = stack.enter_context(agent.producer(names, "over-a-switch", poll_ms=POLL_MS))

        def send(part: int) -> None:
            for topic in kinds:
                some = [Message(b"%s %d %d" % (topic.encode(), part, n), properties={"n": str(n)}) for n in range(10)]
                first = sent_again(producer, topic, some[0])
                results = [first, *producer.send(topic, some[1:])]
                wanted = 5 if topic == "Filtered" else 0
                sent[topic] += some[wanted:]
                acknowledged[topic] += results[wanted:]
            producer.send("Many", [Message(b"in a batch %d %d" % (part, n)) for n in range(5)], "batch")
            producer.send("Many", [Message(b"large %d " % part * 3000)])

        def wait_for_all(parts: int) -> None:
            for topic, consumer in consumers.items():
                count = len(sent[topic]) + (6 * parts if topic == "Many" else 0)
                wait_for(lambda: bodies_of(consumer) >= count, f"{count} of {topic}")  # noqa: B023

        send(1)
        wait_for_all(1)
        brokers.brokers[1].kill()
        brokers.hang_up(1)
        assert brokers.wait_for_sends((2,)) == 2
        send(2)
        wait_for_all(2)
        for topic, consumer in consumers.items():
            received = [one for one in consumer.received if one["body_sha256"] in {m.sha256 for m in sent[topic]}]
            assert_delivered(sent[topic], acknowledged[topic], received)
        assert_in_order(consumers["Ordered"].received)
