"""Consumers that poll while they share their group's queues: Java's lite pull consumer, and the Python client's."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.clients.agents import Agent, Client, ClientFailed
from tests.clients.conftest import JAVA, Target, wait_for_clients
from tests.clients.messages import TAGS, assert_delivered, assert_each_once, places, plain, rich


@pytest.mark.parametrize("agent", [*JAVA, "python"], indirect=True)
def test_a_lite_consumer_subscribes_polls_and_commits(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=4)
    first, second = rich(40, flags=agent.has_flags), plain(12)
    with agent.producer(target.namesrv) as producer:
        acks = producer.send(topic, first)
        with agent.client("lite", namesrv=target.namesrv, group=group, topic=topic) as lite:
            # Its first rebalance is started by the broker's notice to the newcomer; alone it would take 20 s.
            wait_for_clients(lambda: len(lite("assignment")) == 4, "4 queues are assigned")
            assert_delivered(first, acks, poll(lite, len(first)))
            lite("commit")
            committed = {queue["queue_id"]: lite("committed", queue=queue) for queue in lite("assignment")}
            assert sum(committed.values()) == len(first)
        acks = producer.send(topic, second)
        with agent.client("lite", namesrv=target.namesrv, group=group, topic=topic) as lite:
            assert_delivered(second, acks, poll(lite, len(second)))


@pytest.mark.parametrize("agent", [*JAVA, "python"], indirect=True)
def test_a_lite_consumer_filters_by_tag(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=2)
    messages = rich(30, flags=agent.has_flags)
    wanted = [message for message in messages if message.tags == TAGS[2]]
    with agent.producer(target.namesrv) as producer:
        producer.send(topic, messages)
    with agent.client("lite", namesrv=target.namesrv, group=group, topic=topic, expression=TAGS[2]) as lite:
        assert_each_once(wanted, poll(lite, len(wanted)))


@pytest.mark.parametrize("agent", JAVA, indirect=True)
def test_a_lite_consumer_with_assigned_queues_seeks(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=2)
    messages = plain(30)
    with agent.producer(target.namesrv) as producer:
        acks = producer.send(topic, messages)
        with agent.client("lite", namesrv=target.namesrv, group=group) as lite:
            mine = next(queue for queue in lite("queues", topic=topic) if queue["queue_id"] == 1)
            its = [(m, ack) for m, ack in zip(messages, acks, strict=True) if ack["queue_id"] == 1]
            lite("assign", queues=[mine])
            read = poll(lite, len(its))
            assert_delivered([m for m, _ in its], [ack for _, ack in its], read)
            lite("seek", queue=mine, offset=5)
            assert places(poll(lite, len(its) - 5)) == [(1, offset) for offset in range(5, len(its))]
            lite("seek", queue=mine, to="begin")
            assert places(poll(lite, len(its))) == [(1, offset) for offset in range(len(its))]
            lite("seek", queue=mine, to="end")
            with pytest.raises(ClientFailed):
                lite("seek", queue=mine, offset=len(its) + 1)
            producer.send(topic, plain(1, seed=9), how="queue", queue=mine)
            assert places(poll(lite, 1)) == [(1, len(its))]
            middle = read[len(its) // 2]["store_at_ms"]
            offset = lite("offset_for_timestamp", queue=mine, timestamp_ms=middle)
            assert read[offset]["store_at_ms"] == middle


def poll(lite: Client, count: int) -> list[dict]:
    """Poll until `count` messages came."""
    received: list[dict] = []
    deadline = time.monotonic() + 60
    while len(received) < count:
        assert time.monotonic() < deadline, f"{len(received)} of {count} messages in 60 s: {places(received)}"
        received += lite("poll", timeout_ms=500)
    return received
