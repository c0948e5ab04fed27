"""The C++ client, as far as its C interface goes: a send tells no queue, takes no flag; there are no transactions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import pytest

from appliance.engine import fastjson
from appliance.engine.protocol.codes import version_name
from tests.clients.agents import Agent, Json
from tests.clients.conftest import Target, create_topic, start, wait_for_clients
from tests.clients.messages import TAGS, Message, assert_each_once, assert_in_order, places
from tests.support.engine import Peer

#: Its rebalance runs every 10 s, and a new member's first one only then.
REBALANCE_S = 90


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> Iterator[Agent]:
    """The C++ client, for each test in a process of its own: its library's threads outlive a client that was stopped,
    and may end the process when others come and go in it."""
    running = start("cpp", request)
    yield running
    running.close()


@pytest.fixture(scope="module")
def java(request: pytest.FixtureRequest) -> Iterator[Agent]:
    """A Java client beside it; it also makes the topics."""
    running = start("java-5.3.3", request)
    yield running
    running.close()


@pytest.fixture
def new_topic(java: Agent, target: Target, topic: str) -> Callable[..., str]:
    return lambda queues=4: create_topic(java, target, topic, queues=queues)


def texts(count: int, order: int = 1, size: int = 0) -> list[Message]:
    """Messages with tags, keys and properties; bodies are text, since the interface ends them at a NUL."""
    return [
        Message(
            body=f"text {number} ".encode() + b"x" * size,
            tags=TAGS[number % len(TAGS)],
            keys=(f"order-{number}",) + (("second",) if number % 2 else ()),
            properties={"number": str(number), "city": "Zürich 用户 🚀"},
            order=f"o{number % order}",
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("how", ["sync", "async", "oneway"])
def test_what_it_sends_java_and_it_receive(
    agent: Agent, java: Agent, target: Target, new_topic: Callable[..., str], group: str, how: str
) -> None:
    topic = new_topic(queues=2)
    messages = [*texts(20), Message(b"bare"), *texts(1, size=10_000)]
    with agent.producer(target.namesrv) as producer:
        results = producer.send(topic, messages, how=how)
    assert [result["status"] for result in results] == ([] if how == "oneway" else ["SEND_OK"] * len(messages))
    with java.push(target.namesrv, topic, f"{group}_java") as consumer:
        consumer.wait_for(len(messages))
        consumer.stop()
        assert_each_once(messages, consumer.received)
    if how == "sync":
        assert [result["msg_id"] for result in results] != []
        with agent.push(target.namesrv, topic, group) as consumer:
            consumer.wait_for(len(messages), REBALANCE_S)
            consumer.stop()
            assert_each_once(messages, consumer.received)
            assert {m["msg_id"] for m in consumer.received} == {result["msg_id"] for result in results}


def test_equal_orders_stay_in_one_queue_and_are_consumed_in_order(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=4)
    messages = texts(40, order=5)
    with agent.producer(target.namesrv) as producer:
        acks = producer.send(topic, messages, how="ordered")
        assert all(ack["status"] == "SEND_OK" for ack in acks)
        producer.send(topic, [Message(b"one-way", order="o1")], how="oneway ordered")
    with agent.push(target.namesrv, topic, group, orderly=True) as consumer:
        consumer.wait_for(len(messages) + 1, REBALANCE_S)
        consumer.stop()
        assert_in_order(consumer.received)
        assert_each_once([*messages, Message(b"one-way")], consumer.received)
        queue_of: dict[str | None, set[int]] = {}
        order_of = {message.sha256: message.order for message in messages}
        for came in consumer.received:
            if came["body_sha256"] in order_of:
                queue_of.setdefault(order_of[came["body_sha256"]], set()).add(came["queue_id"])
        assert [len(queues) for queues in queue_of.values()] == [1] * 5


@pytest.mark.own
def test_a_batch_is_stored_message_by_message(
    agent: Agent, java: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    """It comes with the code of a plain send and says `batch=1`, which Java does not take for true: Apache stores one
    message whose body is the encoded batch."""
    topic = new_topic(queues=1)
    with agent.producer(target.namesrv) as producer:
        [ack] = producer.send(topic, texts(3), how="batch")
    assert ack["status"] == "SEND_OK"
    with java.push(target.namesrv, topic, group) as consumer:
        consumer.wait_for(3)
        consumer.stop()
        assert_each_once(texts(3), consumer.received)


def test_a_tag_subscription_gets_its_tags_and_nothing_else(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=2)
    messages = texts(30)
    with agent.producer(target.namesrv) as producer:
        producer.send(topic, messages)
    wanted = [message for message in messages if message.tags in (TAGS[0], TAGS[2])]
    with agent.push(target.namesrv, topic, group, expression=f"{TAGS[0]} || {TAGS[2]}") as consumer:
        consumer.wait_for(len(wanted), REBALANCE_S)
        consumer.stop()
        assert_each_once(wanted, consumer.received)


def test_broadcasting_gives_every_member_everything(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    """Its broadcasting members begin at the end, so what counts is what comes once both are there."""
    topic = new_topic(queues=2)
    messages = texts(12)
    with (
        agent.producer(target.namesrv) as producer,
        agent.push(target.namesrv, topic, group, model="BROADCASTING") as one,
        agent.push(target.namesrv, topic, group, model="BROADCASTING") as two,
    ):

        def both_see() -> bool:
            producer.send(topic, [Message(b"probe")])
            return all({0, 1} <= {message["queue_id"] for message in consumer.received} for consumer in (one, two))

        wait_for_clients(both_see, "both members have both queues", seconds=REBALANCE_S)
        producer.send(topic, messages)
        wanted = {message.sha256 for message in messages}
        for consumer in (one, two):
            wait_for_clients(
                lambda c=consumer: wanted <= {m["body_sha256"] for m in c.received}, "all came", seconds=REBALANCE_S
            )
            consumer.stop()
            assert_each_once(messages, [m for m in consumer.received if m["body_sha256"] in wanted])


def test_the_pull_consumer_reads_every_queue_from_its_beginning(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=3)
    messages = texts(50)
    with agent.producer(target.namesrv) as producer:
        producer.send(topic, messages)
    with agent.client("pull", namesrv=target.namesrv, group=group) as client:
        assert_each_once(messages, client("pull", topic=topic))
    with agent.client("pull", namesrv=target.namesrv, group=f"{group}_2") as client:
        assert client("pull", topic=topic) == []  # the package keeps its offsets for the whole process


def test_a_group_goes_on_where_it_stopped(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=2)
    first, second = texts(20), texts(20, size=5)
    with agent.producer(target.namesrv) as producer:
        producer.send(topic, first)
        with agent.push(target.namesrv, topic, group) as consumer:
            consumer.wait_for(len(first), REBALANCE_S)
        before: Sequence[Json] = consumer.received
        producer.send(topic, second)
        with agent.push(target.namesrv, topic, group) as consumer:
            wanted = {message.sha256 for message in second}
            wait_for_clients(
                lambda: wanted <= {m["body_sha256"] for m in consumer.received}, "the rest came", seconds=REBALANCE_S
            )
    again = set(places(before)) & set(places(consumer.received))
    assert len(again) <= 4, f"came again: {again}"


def test_a_consumer_gives_its_own_account(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    """`mqadmin consumerStatus`: the broker passes the request on. The client reports version 3.1.8, which supports
    it."""
    topic = new_topic(queues=1)
    peer = Peer(target.broker)
    with contextlib.closing(peer), agent.push(target.namesrv, topic, group):
        wait_for_clients(lambda: peer.ask(203, {"consumerGroup": group}).code == 0, "it sends heartbeats")
        [member] = fastjson.loads(peer.ask(203, {"consumerGroup": group}).body)["connectionSet"]
        assert version_name(member["version"]) == "V3_1_8"
        answer = peer.ask(307, {"consumerGroup": group, "clientId": member["clientId"], "jstackEnable": "false"})
        assert answer.code == 0, answer.remark
        assert fastjson.loads(answer.body)["properties"]
