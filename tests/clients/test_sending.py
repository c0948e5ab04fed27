"""Every way to send, with every client; what was acknowledged is what a consumer gets, byte for byte."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest

from tests.clients.agents import Agent
from tests.clients.conftest import EVERY_AND_PYTHON, Target
from tests.clients.messages import (
    Message,
    assert_delivered,
    assert_dense,
    assert_each_once,
    assert_same,
    by_queue_and_offset,
    java_hash,
    places,
    plain,
    rich,
)

pytestmark = pytest.mark.parametrize("agent", EVERY_AND_PYTHON, indirect=True)

# Sys-flag bits of a compressed body: 0x1, and 0x300 for ZLIB. A 5.x client leaves only the latter in what it inflated.
COMPRESSED = 0x301


def consume(agent: Agent, target: Target, topic: str, group: str, count: int) -> list[dict]:
    """All messages of the topic, through a push consumer that starts at the first."""
    with agent.push(target.namesrv, topic, group) as consumer:
        consumer.wait_for(count)
        consumer.stop()
        return consumer.received


def test_synchronous_sends_come_back_byte_for_byte(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=4)
    messages = rich(28, flags=agent.has_flags)
    with agent.producer(target.namesrv) as producer:
        acks = producer.send(topic, messages)
    assert_dense(places(acks))
    assert len({ack["queue_id"] for ack in acks}) == 4, "a producer goes round the queues"
    assert len({ack["msg_id"] for ack in acks}) == len({ack["offset_msg_id"] for ack in acks}) == len(messages)
    received = consume(agent, target, topic, group, len(messages))
    assert_delivered(messages, acks, received)
    for message in received:
        assert message["properties"]["UNIQ_KEY"] == message["msg_id"]
        assert message["reconsume_times"] == 0
        assert message["store_host"].endswith(target.broker)


def test_asynchronous_sends_come_back_byte_for_byte(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=4)
    messages = rich(60, seed=1, flags=agent.has_flags)
    with agent.producer(target.namesrv) as producer:
        acks = producer.send(topic, messages, how="async")
    assert_dense(places(acks))
    assert_delivered(messages, acks, consume(agent, target, topic, group, len(messages)))


def test_one_way_sends_all_arrive(agent: Agent, target: Target, new_topic: Callable[..., str], group: str) -> None:
    topic = new_topic(queues=4)
    messages = rich(30, seed=2, flags=agent.has_flags)
    with agent.push(target.namesrv, topic, group) as consumer:
        with agent.producer(target.namesrv) as producer:
            assert producer.send(topic, messages, how="oneway") == []
            consumer.wait_for(len(messages))
        consumer.stop()
        assert_each_once(messages, consumer.received)
        assert_dense(places(consumer.received))


def test_a_batch_takes_consecutive_places_in_one_queue(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=2)
    batches = [
        rich(32, seed=3, flags=agent.has_flags),
        rich(1, seed=4, flags=agent.has_flags),
        rich(7, seed=5, flags=agent.has_flags),
    ]
    with agent.producer(target.namesrv) as producer:
        acks = [producer.send(topic, batch, how="batch")[0] for batch in batches]
    received = by_queue_and_offset(consume(agent, target, topic, group, 40))
    assert_dense(received)
    for batch, ack in zip(batches, acks, strict=True):
        assert ack["status"] == "SEND_OK"
        first = ack["queue_offset"]
        came = [received.pop((ack["queue_id"], first + number)) for number in range(len(batch))]
        for message, member in zip(batch, came, strict=True):
            assert_same(message, member)
        assert [member["offset_msg_id"] for member in came] == ack["offset_msg_id"].split(",")
        if "4.9" in agent.name:
            # 5.x sends an id for the batch as well, which all members then show; Go sends none.
            assert [member["msg_id"] for member in came] == ack["msg_id"].split(",")
    assert not received


def test_a_selector_keeps_each_key_in_one_queue_in_order(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=8)
    orders = ["order-1001", "order-1002", "user-7", "用户42", "a"]
    messages = [Message(f"{order} step {step}".encode(), order=order) for step in range(6) for order in orders]
    with agent.producer(target.namesrv, ordered=True) as producer:
        acks = producer.send(topic, messages, how="ordered")
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for message, place in zip(messages, places(acks), strict=True):
        found[str(message.order)].append(place)
    assert set(found) == set(orders)
    for order, its in found.items():
        assert len({queue_id for queue_id, _ in its}) == 1, f"{order} is in several queues: {its}"
        assert its == sorted(its), f"{order} is out of order: {its}"
        if agent.is_java:
            # The client's own choice: a broker that says another queue broke the order.
            assert its[0][0] == abs(java_hash(order)) % 8, order
    assert_delivered(messages, acks, consume(agent, target, topic, group, len(messages)))


def test_a_queue_chosen_by_the_sender_is_kept(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=4)
    messages = plain(10, seed=6)
    with agent.producer(target.namesrv, manual=True) as producer:
        broker = broker_name(agent, target, topic)
        queue = {"topic": topic, "broker": broker, "queue_id": 3}
        acks = producer.send(topic, messages, how="queue", queue=queue)
    assert places(acks) == [(3, offset) for offset in range(10)]
    assert_delivered(messages, acks, consume(agent, target, topic, group, len(messages)))


def broker_name(agent: Agent, target: Target, topic: str) -> str:
    if agent.is_java:
        return str(agent.do("admin.route", namesrv=target.namesrv, topic=topic)["queues"][0]["broker"])
    return str(agent.do("admin.queues", namesrv=target.namesrv, topic=topic)[0]["broker"])


def test_large_bodies_are_stored_compressed_and_come_back_whole(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=1)
    text = ("A broker is a promise. " * 9000).encode()[: 200 * 1024]
    [noise] = plain(1, seed=7, size_bytes=1 << 20)
    messages = [Message(text, tags="text"), Message(noise.body, tags="noise")]
    with agent.producer(target.namesrv) as producer:
        acks = producer.send(topic, messages)
    received = consume(agent, target, topic, group, 2)
    assert_delivered(messages, acks, received)
    for message in received:
        # The Python client leaves a body as it is that would not become smaller.
        assert message["sys_flag"] & COMPRESSED or (agent.name == "python" and message["tags"] == "noise")
        if message["tags"] == "text":
            assert message["store_bytes"] < 20_000, "it was inflated on the way into the store"


def test_the_first_send_to_an_unknown_topic_creates_it(agent: Agent, target: Target, topic: str, group: str) -> None:
    messages = rich(8, seed=8, flags=agent.has_flags)
    with agent.producer(target.namesrv) as producer:
        acks = producer.send(topic, messages)
    assert_dense(places(acks))
    assert {ack["queue_id"] for ack in acks} == {0, 1, 2, 3}, "4 queues are the client's default"
    assert_delivered(messages, acks, consume(agent, target, topic, group, len(messages)))
    assert topic in agent.do("admin.topics", namesrv=target.namesrv)
