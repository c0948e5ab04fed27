"""Push consumption with every client: sharing, filters, order, broadcasting, where a group starts and goes on."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable

import pytest

from tests.clients.agents import Agent, Producer, PushConsumer
from tests.clients.conftest import EVERY, Target, eventually
from tests.clients.messages import (
    TAGS,
    Message,
    assert_delivered,
    assert_each_once,
    by_queue_and_offset,
    places,
    plain,
    rich,
)

pytestmark = pytest.mark.parametrize("agent", EVERY, indirect=True)

FIRST, LAST, AT = "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_TIMESTAMP"


def wait_for_both(one: PushConsumer, two: PushConsumer, count: int) -> None:
    """Until the two have `count` messages between them."""
    eventually(
        lambda: len(one.received) + len(two.received) >= count, f"{count} messages between two consumers", timeout_s=15
    )


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
            wait_for_both(stays, leaves, len(shared))
            assert {place[0] for place in places(stays.received)} <= mine
            assert {place[0] for place in places(leaves.received)} <= its
        stays.wait_for_queues(4)
        acks += producer.send(topic, later)
        wait_for_both(stays, leaves, len(shared) + len(later))
        stays.stop()
        assert_delivered(shared + later, acks, stays.received + leaves.received)
        assert min(len(stays.received), len(leaves.received)) > 0


def test_a_tag_subscription_gets_its_tags_and_nothing_else(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=2)
    messages = rich(30) + plain(5)
    wanted = [message for message in messages if message.tags in (TAGS[0], TAGS[2])]
    expression = f"{TAGS[0]} || {TAGS[2]}"
    with (
        agent.producer(target.namesrv) as producer,
        agent.push(target.namesrv, topic, group, expression=expression) as consumer,
    ):
        producer.send(topic, messages)
        consumer.wait_for(len(wanted))
        consumer.stop()
        assert_each_once(wanted, consumer.received)


def test_orderly_members_see_each_queue_in_order(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=4)
    orders = [f"order-{number}" for number in range(12)]
    messages = [Message(f"{order} step {step}".encode(), order=order) for step in range(10) for order in orders]
    with (
        agent.producer(target.namesrv, ordered=True) as producer,
        agent.push(target.namesrv, topic, group, orderly=True) as one,
        agent.push(target.namesrv, topic, group, orderly=True) as two,
    ):
        one.wait_for_queues(2)
        two.wait_for_queues(2)
        acks = producer.send(topic, messages, how="ordered")
        deadline = time.monotonic() + 30
        while len(one.received) + len(two.received) < len(messages):
            # A member that was refused a lock asks again with its next rebalance, after 20 s: now instead.
            assert time.monotonic() < deadline, f"{len(one.received)} + {len(two.received)} of {len(messages)} in 30 s"
            if agent.is_java:
                one.rebalance()
                two.rebalance()
            time.sleep(0.2)
        one.stop()
        two.stop()
        assert_delivered(messages, acks, one.received + two.received)
        for consumer in (one, two):
            offsets = defaultdict(list)
            for queue_id, offset in places(consumer.received):
                offsets[queue_id].append(offset)
            for queue_id, seen in offsets.items():
                assert seen == list(range(len(seen))), f"queue {queue_id} out of order: {seen}"
        assert min(len(one.received), len(two.received)) > 0


def test_broadcasting_gives_every_member_everything(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=4)
    messages = rich(20)
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
        eventually(lambda: time.time() > second + 0.05, "the second is over")
        producer.send(topic, middle)
        timestamp = time.strftime("%Y%m%d%H%M%S", time.localtime(second))
        starts = {FIRST: {}, AT: {"timestamp": timestamp}, LAST: {}}
        with contextlib.ExitStack() as stack:
            first, at, last = (
                stack.enter_context(agent.push(target.namesrv, topic, group, start, model="BROADCASTING", **more))
                for start, more in starts.items()
            )
            probes = send_until_one_comes(producer, topic, last)
            producer.send(topic, late)
            everything = early + middle + probes + late
            first.wait_for(len(everything))
            at.wait_for(len(everything) - len(early))
            eventually(lambda: places(last.received)[-1] == (0, len(everything) - 1), "the last message came")
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
    deadline = time.monotonic() + 15
    while not consumer.received:
        assert time.monotonic() < deadline, f"{len(sent)} messages sent in 15 s, none came"
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
        assert_delivered(before, acks, first.received)
        missed = producer.send(topic, between)
        with agent.push(target.namesrv, topic, group) as second:
            second.wait_for(len(between))
            acks = missed + producer.send(topic, after)
            second.wait_for(len(between) + len(after))
        assert_delivered(between + after, acks, second.received)
        assert not by_queue_and_offset(first.received).keys() & by_queue_and_offset(second.received).keys()
