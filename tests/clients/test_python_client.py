"""The Python client in one group with an official one: no queue is read twice, none is left out, and order is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from appliance.client import (
    Client,
    CloseReport,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Refused,
    Retry,
)
from tests.clients.agents import Agent, ClientFailed
from tests.clients.conftest import JAVA, Target, create_topic, newest_first
from tests.clients.messages import Message, places, plain
from tests.support.waiting import wait_for

beside_all = pytest.mark.parametrize("agent", newest_first(*JAVA, "go"), indirect=True)
#: Go's client keeps the lock of an ordered queue that it gives up ("TODO orderly"), so others wait until that ends.
beside_java = pytest.mark.parametrize("agent", newest_first(*JAVA), indirect=True)

#: A deadline long enough that only a hang misses it.
PATIENT = 60.0


def queues_of(consumer: PushConsumer, topic: str) -> set[int]:
    return {queue.queue_id for queue in consumer.assignment() if queue.topic == topic}


def places_of(messages: list[ReceivedMessage]) -> list[tuple[int, int]]:
    return [(message.queue.queue_id, message.queue_offset) for message in messages]


@beside_all
def test_members_of_two_languages_share_the_queues_and_hand_them_over(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    share_and_hand_over(agent, target, new_topic(queues=4), group, ordered=False)


@beside_java
def test_members_of_two_languages_hand_ordered_queues_over(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    share_and_hand_over(agent, target, new_topic(queues=4), group, ordered=True)


def share_and_hand_over(agent: Agent, target: Target, topic: str, group: str, *, ordered: bool) -> None:
    ours: list[ReceivedMessage] = []
    with (
        agent.producer(target.namesrv) as producer,
        agent.push(target.namesrv, topic, group, orderly=ordered) as theirs,
    ):
        theirs.wait_for_queues(4)
        with Client(target.namesrv, timeout=PATIENT) as client:
            consumer = client.push_consumer(group, start="first", ordered=ordered)
            consumer.subscribe(topic, handler=ours.append)
            consumer.start()
            its = theirs.wait_for_queues(2)
            wait_for(lambda: len(queues_of(consumer, topic)) == 2, "two queues for Python")
            assert queues_of(consumer, topic) | its == {0, 1, 2, 3}
            acks = producer.send(topic, plain(80))
            wait_for(lambda: len(ours) + len(theirs.received) >= 80, "all messages")
            assert consumer.close() == CloseReport()
        theirs.wait_for_queues(4)
        acks += producer.send(topic, plain(40, seed=1))
        wait_for(lambda: len(ours) + len(theirs.received) >= 120, "all messages for the one that stays")
        theirs.stop()
        assert sorted(places_of(ours) + places(theirs.received)) == sorted(places(acks))
        assert min(len(ours), len(theirs.received)) > 0


@beside_all
def test_what_python_sends_back_is_retried_by_whoever_has_the_retry_queue(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=1)
    attempts: list[int] = []
    with agent.producer(target.namesrv) as producer, Client(target.namesrv, timeout=PATIENT) as client:
        producer.send(topic, [Message(b"fails once")])
        consumer = client.push_consumer(group, start="first")

        @consumer.subscribe(topic)
        def handle(message: ReceivedMessage) -> None:
            attempts.append(message.attempt)
            raise Retry(level=1)

        consumer.start()
        wait_for(lambda: attempts, "the first attempt")
        assert consumer.close() == CloseReport()
        with agent.push(target.namesrv, topic, group) as theirs:
            (again,) = theirs.wait_for(1)
            assert again["reconsume_times"] == 1
            assert again["topic"] == topic


@beside_java
def test_requests_are_answered_across_languages(agent: Agent, target: Target, topic: str, group: str) -> None:
    topics = [create_topic(agent, target, f"{topic}_{whose}", queues=1) for whose in ("theirs", "ours")]
    names = [f"{group}-asks", f"{group}-replies"]
    for name in names:
        agent.do(
            "producer.start", name=name, group=f"pg-{name}", namesrv=target.namesrv, instance=name, timeout_ms=15_000
        )
    listener = f"{group}-listens"
    agent.do(
        "reply.start",
        name=listener,
        producer=names[1],
        namesrv=target.namesrv,
        topic=topics[0],
        group=f"{group}-theirs",
    )
    with Client(target.namesrv, timeout=PATIENT) as client:
        producer = client.producer(f"{group}-ours")
        assert producer.request(topics[0], "of Python").text == "reply to of Python"
        consumer = client.push_consumer(f"{group}-ours", start="first")
        consumer.subscribe(topics[1], handler=lambda message: answered(producer, message))
        consumer.start()

        def ours() -> str:
            found = agent.do(
                "request.ask", name=names[0], topic=topics[1], body="of Java", timeout_ms=5000, how="async"
            )
            return str(found["body"])

        # A producer of Java is known to the broker with its first heartbeat.
        assert wait_for(ours, "Python's reply", not_yet=(ClientFailed,)) == "Python's to of Java"
    agent.do("reply.stop", name=listener)
    for name in names:
        agent.do("producer.stop", name=name)


def answered(producer: Producer, message: ReceivedMessage) -> None:
    with contextlib.suppress(Refused):  # the requester is not known yet
        producer.reply(message, f"Python's to {message.text}")
