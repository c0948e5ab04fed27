"""Push consumption with every client: sharing, filters, order, broadcasting, where a group starts and goes on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from tests.clients.agents import Agent, Producer, PushConsumer
from tests.clients.conftest import BINARY, EVERY_AND_PYTHON, Target, wait_for_clients
from tests.clients.messages import (
    TAGS,
    Message,
    assert_delivered,
    assert_each_once,
    assert_handed_over,
    assert_in_order,
    places,
    plain,
    rich,
)

#: Of the binary codec one Java is enough by day: what a consumer waits for is alike.
KINDS = [pytest.param(kind, marks=pytest.mark.nightly) if kind == BINARY[-1] else kind for kind in EVERY_AND_PYTHON]
pytestmark = pytest.mark.parametrize("agent", KINDS, indirect=True)

FIRST, LAST, AT = "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_TIMESTAMP"


def wait_for_places(acknowledged: list[dict], *consumers: PushConsumer) -> None:
    """Until the consumers have, between them, what was acknowledged."""
    wanted = set(places(acknowledged))

    def all_came() -> bool:
        return wanted <= {place for consumer in consumers for place in places(consumer.received)}

    wait_for_clients(all_came, f"{len(wanted)} acknowledged messages came")


def test_two_members_share_the_queues_and_the_one_that_stays_takes_over(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=4)
    shared, later = plain(80), plain(40, seed=1)
    with agent.producer(target.namesrv) as producer, agent.push(target.namesrv, topic, group) as stays:
        stays.wait_for_queues(4)
        with agent.push(target.namesrv, topic, group) as leaves:
            mine, its = stays.wait_for_queues(2), leaves.wait_for_queues(2)
            assert mine | its == {0, 1, 2, 3}
            acks = producer.send(topic, shared)
            wait_for_places(acks, stays, leaves)
            assert {place[0] for place in places(stays.received)} <= mine
            assert {place[0] for place in places(leaves.received)} <= its
        stays.wait_for_queues(4)
        acks += producer.send(topic, later)
        wait_for_places(acks, stays, leaves)
        stays.stop()
        assert_handed_over(shared + later, acks, leaves.received, stays.received, repeats=4)
        assert min(len(stays.received), len(leaves.received)) > 0


def test_a_tag_subscription_gets_its_tags_and_nothing_else(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=2)
    messages = rich(30, flags=agent.has_flags) + plain(5)
    wanted = [message for message in messages if message.tags in (TAGS[0], TAGS[2])]
    expression = f"{TAGS[0]} || {TAGS[2]}"
    with (
        agent.producer(target.namesrv) as producer,
        agent.push(target.namesrv, topic, group, expression=expression) as consumer,
    ):
        producer.send(topic, messages[:15])
        producer.send(topic, messages[15:], how="batch")
        consumer.wait_for(len(wanted))
        consumer.stop()
        assert_each_once(wanted, consumer.received)


def test_orderly_consumption_is_handed_over_in_order(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=4)
    orders = [f"order-{number}" for number in range(12)]
    messages = [Message(f"{order} step {step}".encode(), order=order) for step in range(10) for order in orders]
    half = len(messages) // 2
    with agent.producer(target.namesrv, ordered=True) as producer:
        with agent.push(target.namesrv, topic, group, orderly=True) as first:
            acks = producer.send(topic, messages[:half], how="ordered")
            first.wait_for(half)
        acks += producer.send(topic, messages[half:], how="ordered")
        # The one that left unlocked its queues: the next need not wait for the locks to expire (60 s).
        with agent.push(target.namesrv, topic, group, orderly=True) as second:
            wait_for_places(acks[half:], second)
    assert_handed_over(messages, acks, first.received, second.received, repeats=1)
    for consumer in (first, second):
        assert_in_order(consumer.received)


def test_broadcasting_gives_every_member_everything(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=4)
    messages = rich(20, flags=agent.has_flags)
    with (
        agent.producer(target.namesrv) as producer,
        agent.push(target.namesrv, topic, group, model="BROADCASTING") as one,
        agent.push(target.namesrv, topic, group, model="BROADCASTING") as two,
    ):
        acks = producer.send(topic, messages)
        for consumer in (one, two):
            consumer.wait_for(len(messages))
            consumer.stop()
            assert_delivered(messages, acks, consumer.received)


def test_where_a_consumer_without_offsets_starts(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    """Broadcasting members ask the broker for the last offset, or for that of a time (requests 30 and 29)."""
    topic = new_topic(queues=1)
    early, middle, late = plain(5), plain(5, seed=1), plain(5, seed=2)
    with agent.producer(target.namesrv) as producer:
        producer.send(topic, early)
        # A start time has whole seconds: the next batch must lie behind the next full one.
        second = int(time.time()) + 1
        wait_for_clients(lambda: time.time() > second + 0.05, "the second is over")
        producer.send(topic, middle)
        timestamp = time.strftime("%Y%m%d%H%M%S", time.localtime(second))
        starts = {FIRST: {}, AT: {"timestamp": timestamp}, LAST: {}}
        with contextlib.ExitStack() as stack:
            first, at, last = (
                stack.enter_context(agent.push(target.namesrv, topic, group, start, model="BROADCASTING", **more))
                for start, more in starts.items()
            )
            probes = send_until_one_comes(producer, topic, last)
            acks = producer.send(topic, late)
            everything = early + middle + probes + late
            first.wait_for(len(everything))
            at.wait_for(len(everything) - len(early))
            wait_for_places(acks, last)
            for consumer in (first, at, last):
                consumer.stop()
            assert_each_once(everything, first.received)
            assert_each_once(everything[len(early) :], at.received)
            came = sorted(places(last.received))
            assert came[0] >= (0, 10), f"it began before its start: {came[0]}"
            assert_each_once(everything[came[0][1] :], last.received)


def send_until_one_comes(producer: Producer, topic: str, consumer: PushConsumer) -> list[Message]:
    """Send small messages one by one until the consumer has seen one: it has found its start then."""
    sent: list[Message] = []
    deadline = time.monotonic() + 60
    while not consumer.received:
        assert time.monotonic() < deadline, f"{len(sent)} messages sent in 60 s, none came"
        sent.append(Message(f"probe {len(sent)}".encode()))
        producer.send(topic, sent[-1:])
        time.sleep(0.02)
    return sent


def test_a_new_group_reads_a_young_topic_from_its_beginning_even_from_last(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    """The broker answers 0 for a group without offsets as long as offset 0 is there and in memory (request 14)."""
    topic = new_topic(queues=1)
    messages = plain(5)
    with agent.producer(target.namesrv) as producer:
        acks = producer.send(topic, messages)
    with agent.push(target.namesrv, topic, group, LAST) as consumer:
        consumer.wait_for(len(messages))
        consumer.stop()
        assert_delivered(messages, acks, consumer.received)


def test_a_group_goes_on_where_it_stopped(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=4)
    before, between, after = plain(20), plain(20, seed=1), plain(20, seed=2)
    with agent.producer(target.namesrv) as producer:
        with agent.push(target.namesrv, topic, group) as first:
            acks = producer.send(topic, before)
            first.wait_for(len(before))
        acks += producer.send(topic, between)
        with agent.push(target.namesrv, topic, group) as second:
            wait_for_places(acks[20:], second)
            acks += producer.send(topic, after)
            wait_for_places(acks[20:], second)
    assert_handed_over(before + between + after, acks, first.received, second.received, repeats=4)
