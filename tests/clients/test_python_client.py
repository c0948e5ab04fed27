"""The Python client in one group with an official one: no queue is read twice, none is left out, and order is kept."""

from __future__ import annotations

import contextlib
import hashlib
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Literal

import pytest

from appliance.client import (
    Client,
    ClientError,
    CloseReport,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Refused,
    Reject,
    Retry,
    SendError,
    SendResult,
)
from appliance.client import Message as SentMessage
from appliance.client.wire import compression_of
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


#: Sizes around the one from which bodies are compressed, and the largest that brokers take.
SIZES = (1, 4095, 4096, 4 << 20)


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def bodies() -> list[bytes]:
    """Of each size: random bytes, which do not become smaller, NULs, and text."""
    chance, text = random.Random(3), "A broker is a promise, 用户. ".encode() * 200_000
    return [made for size in SIZES for made in (chance.randbytes(size), b"\0" * size, text[:size])]


@pytest.mark.parametrize(
    ("agent", "compress"),
    [("java-4.9.8", "zlib"), ("java-5.3.3", "zlib"), ("java-5.3.3", "lz4"), ("java-5.3.3", "zstd"), ("go", "zlib")],
    indirect=["agent"],
)
def test_bodies_go_both_ways_byte_for_byte(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str, compress: Literal["zlib", "lz4", "zstd"]
) -> None:
    topic, sent = new_topic(queues=1), bodies()
    # Other clients send the compressed body though it is longer: brokers refuse that of the largest random one.
    theirs_sent = [body for body in sent if len(body) < SIZES[-1] or len(zlib.compress(body, 1)) < len(body)]
    more = {"compress": compress.upper()} if agent.is_java else {}
    with (
        Client(target.namesrv, timeout=PATIENT) as client,
        agent.push(target.namesrv, topic, group) as theirs,
        agent.producer(target.namesrv, **more) as producer,
    ):
        ours = client.producer(compress=compress)
        for body in sent:
            ours.send(topic, body, tags="ours")
        producer.send(topic, [Message(body, tags="theirs") for body in theirs_sent])
        came = theirs.wait_for(len(sent) + len(theirs_sent))
        assert sorted(one["body_sha256"] for one in came if one["tags"] == "ours") == sorted(map(digest, sent))
        consumer = client.pull_consumer(f"{group}-ours", start="first").subscribe(topic, "theirs")
        found: list[ReceivedMessage] = []
        wait_for(lambda: found.extend(consumer.poll(1.0)) or len(found) >= len(theirs_sent), "all bodies for Python")
    assert [digest(message.body) for message in found] == list(map(digest, theirs_sent))
    packed = {compression_of(message.record.sys_flag) for message in found} - {None}
    assert packed == {compress}


@beside_java
def test_a_shard_has_the_queue_that_javas_selector_takes(
    agent: Agent, target: Target, new_topic: Callable[..., str]
) -> None:
    chance = random.Random(5)
    letters = [*map(chr, range(33, 127)), *"用户订单客户", "é", "\uffff", "😀", "🚀", "𠀀"]
    shards = ["".join(chance.choices(letters, k=chance.randrange(1, 30))) for _ in range(1000)]
    topic = new_topic(queues=13)
    with agent.producer(target.namesrv) as producer, Client(target.namesrv, timeout=PATIENT) as client:
        acks = producer.send(topic, [Message(b"x", order=shard) for shard in shards], how="ordered")
        queues = client.reader().queues(topic)
        ours = [sent_to(one) for one in client.producer().send_many(sharded(topic, shards))]
    assert len(queues) == 13
    assert [ack["queue_id"] for ack in acks] == ours


def sent_to(outcome: SendResult | SendError) -> int:
    if isinstance(outcome, SendError):
        raise outcome
    return outcome.queue.queue_id


def sharded(topic: str, shards: list[str]) -> Iterator[SentMessage]:
    return (SentMessage(topic, b"x", shard=shard) for shard in shards)


@beside_all
def test_dead_letters_of_either_language_are_read_by_the_other(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=1)
    with agent.producer(target.namesrv) as producer, Client(target.namesrv, timeout=PATIENT) as client:
        producer.send(topic, [Message(b"never", tags="TagA", keys=("order-1",))])
        consumer = client.push_consumer(f"{group}-ours", start="first")

        @consumer.subscribe(topic)
        def handle(message: ReceivedMessage) -> None:
            raise Reject("as the test wants it")

        consumer.start()
        reader = client.reader()

        def dead(of: str) -> list[ReceivedMessage]:
            [queue] = reader.queues(f"%DLQ%{of}")
            return list(reader.pull(queue, 0).messages)

        with agent.push(target.namesrv, topic, f"{group}-theirs", fail=-1, next_level=-1) as theirs:
            [of_java] = wait_for(lambda: dead(f"{group}-theirs"), "their dead letter", not_yet=(ClientError,))
            [seen] = theirs.wait_for(1)
        [of_ours] = wait_for(lambda: dead(f"{group}-ours"), "our dead letter", not_yet=(ClientError,))
        with agent.push(target.namesrv, f"%DLQ%{group}-ours", f"{group}-letters") as letters:
            [read] = letters.wait_for(1)
    for message in (of_java, of_ours):
        assert (message.body, message.tags, message.keys) == (b"never", "TagA", ["order-1"])
        assert message.properties["RETRY_TOPIC"] == topic
    assert (read["tags"], read["keys"], read["properties"]["RETRY_TOPIC"]) == ("TagA", "order-1", topic)
    assert read["msg_id"] == seen["msg_id"] == of_java.message_id == of_ours.message_id
    assert read["body_sha256"] == seen["body_sha256"]


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
