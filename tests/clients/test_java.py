"""Features of the Java client only: pull consumers, offsets and times, the VIP port, refusals."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest

from tests.clients.agents import Agent, Client
from tests.clients.conftest import JAVA, Target, wait_for_clients
from tests.clients.messages import (
    TAGS,
    Message,
    assert_delivered,
    assert_each_once,
    assert_in_order,
    assert_same,
    places,
    plain,
    rich,
)
from tests.support.apache import ask

pytestmark = pytest.mark.parametrize("agent", JAVA, indirect=True)


@pytest.fixture
def pull(agent: Agent, target: Target, group: str) -> Iterator[Client]:
    """A started DefaultMQPullConsumer."""
    with agent.client("pull", namesrv=target.namesrv, group=group) as client:
        yield client


def test_explicit_pulls_read_a_queue_at_any_offset(
    agent: Agent, target: Target, new_topic: Callable[..., str], pull: Client
) -> None:
    topic = new_topic(queues=1)
    messages = rich(50)
    [queue] = pull("queues", topic=topic)
    empty = pull("pull", queue=queue, offset=0)
    # If a queue is empty, 5.x brokers answer "offset illegal, 0 is next" to offset 0, and 4.9 "no new message".
    assert empty["messages"] == []
    assert empty["next"] == empty["max"] == 0
    with agent.producer(target.namesrv) as producer:
        acks = producer.send(topic, messages)
    for how in ("sync", "async"):
        assert_delivered(messages, acks, read(pull, queue, 0, 50, how=how))
    [one] = pull("pull", queue=queue, offset=7, max=1)["messages"]
    assert_same(messages[7], one)


def read(pull: Client, queue: dict, start: int, end: int, **arguments: str) -> list[dict]:
    """Pull 20 at a time from `start` until `end` is reached; checks what each answer says of the queue.

    An answer may hold fewer than there are: brokers cut where their files and buffers end.
    """
    messages: list[dict] = []
    while start < end:
        result = pull("pull", queue=queue, offset=start, max=20, **arguments)
        assert (result["min"], result["max"]) == (0, end)
        assert result["status"] == ("FOUND" if result["messages"] else "NO_MATCHED_MSG")
        assert len(result["messages"]) <= 20
        assert all(start <= offset < result["next"] for _, offset in places(result["messages"]))
        assert start < result["next"] <= end
        messages += result["messages"]
        start = result["next"]
    return messages


def test_a_pull_beside_the_log_says_where_to_go_on(
    agent: Agent, target: Target, new_topic: Callable[..., str], pull: Client
) -> None:
    topic = new_topic(queues=1)
    with agent.producer(target.namesrv) as producer:
        producer.send(topic, plain(10))
    [queue] = pull("queues", topic=topic)
    at_the_end = pull("pull", queue=queue, offset=10)
    assert (at_the_end["status"], at_the_end["next"], at_the_end["max"]) == ("NO_NEW_MSG", 10, 10)
    behind = pull("pull", queue=queue, offset=1000)
    assert (behind["status"], behind["next"], behind["messages"]) == ("OFFSET_ILLEGAL", 10, [])


def test_a_pull_filters_by_tag_on_the_broker(
    agent: Agent, target: Target, new_topic: Callable[..., str], pull: Client
) -> None:
    topic = new_topic(queues=1)
    messages = rich(30)
    with agent.producer(target.namesrv) as producer:
        producer.send(topic, messages)
    [queue] = pull("queues", topic=topic)
    found = read(pull, queue, 0, 30, expression=f"{TAGS[1]} || nothing")
    assert_each_once([message for message in messages if message.tags == TAGS[1]], found)
    assert read(pull, queue, 0, 30, expression="nothing") == []


def test_a_blocking_pull_waits_for_the_next_message(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str, pull: Client
) -> None:
    topic = new_topic(queues=1)
    [queue] = pull("queues", topic=topic)
    with agent.producer(target.namesrv) as producer:
        producer.send(topic, plain(1))  # on a queue that was never written a pull does not wait
        waiting = agent.begin("pull.pull", name=pull.name, how="block", queue=queue, offset=1)
        time.sleep(0.5)
        assert not waiting.done(), "it did not wait"
        producer.send(topic, plain(1, seed=1))
        result = waiting.result(15)  # the client has the broker hold it for 20 s
    assert result["status"] == "FOUND"
    assert places(result["messages"]) == [(0, 1)]


def test_offsets_of_the_log_by_number_and_by_time(
    agent: Agent, target: Target, new_topic: Callable[..., str], pull: Client
) -> None:
    topic = new_topic(queues=1)
    [queue] = pull("queues", topic=topic)
    fresh = pull("offsets", queue=queue)
    assert (fresh["min"], fresh["max"], fresh["earliest_ms"]) == (0, 0, -1)
    with agent.producer(target.namesrv) as producer:
        for number in range(3):
            producer.send(topic, plain(4, seed=number))
            eventually_later = time.time() + 0.02  # store times have milliseconds: keep the batches apart
            wait_for_clients(lambda until=eventually_later: time.time() > until, "20 ms")
    stored = read(pull, queue, 0, 12)
    times = [message["store_at_ms"] for message in stored]
    offsets = pull("offsets", queue=queue)
    assert (offsets["min"], offsets["max"], offsets["earliest_ms"]) == (0, 12, times[0])
    for first in (0, 4, 8):
        assert pull("search", queue=queue, timestamp_ms=times[first]) == times.index(times[first])
    assert pull("search", queue=queue, timestamp_ms=times[4] - 1) == 4
    assert pull("search", queue=queue, timestamp_ms=0) == 0
    # Behind the last message: 5.x brokers answer the maximum, 4.9 the last message's offset.
    assert pull("search", queue=queue, timestamp_ms=times[-1] + 3_600_000) in (11, 12)


def test_a_group_offset_is_kept_by_the_broker(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str, pull: Client
) -> None:
    topic = new_topic(queues=2)
    # A broker accepts offsets of existing groups only; this client's first heartbeat comes only after a second.
    agent.do("admin.create_group", namesrv=target.namesrv, broker=target.broker, group=group)
    queues = pull("queues", topic=topic)
    with agent.producer(target.namesrv) as producer:
        producer.send(topic, plain(40))
    pull("commit", queue=queues[0], offset=7)
    wait_for_clients(lambda: pull("committed", queue=queues[0]) == 7, "the offset is read back")
    with agent.client("pull", namesrv=target.namesrv, group=group + "_other") as other:
        assert other("committed", queue=queues[0]) == 0, "another group has offsets of its own"


def test_orderly_members_lock_their_queues_and_see_each_in_order(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    # Java only: a Go member that loses a queue to a newcomer never unlocks it.
    topic = new_topic(queues=4)
    orders = [f"order-{number}" for number in range(12)]
    messages = [Message(f"{order} step {step}".encode(), order=order) for step in range(10) for order in orders]
    with (
        agent.producer(target.namesrv) as producer,
        agent.push(target.namesrv, topic, group, orderly=True) as one,
        agent.push(target.namesrv, topic, group, orderly=True) as two,
    ):
        one.wait_for_queues(2)
        two.wait_for_queues(2)
        acks = producer.send(topic, messages, how="ordered")

        def all_came() -> bool:
            # A member that was refused a lock asks again with its next rebalance, after 20 s: now instead.
            one.rebalance()
            two.rebalance()
            return len(one.received) + len(two.received) >= len(messages)

        wait_for_clients(all_came, f"{len(messages)} messages between two orderly members")
        queues = [{"topic": topic, "brokerName": acks[0]["broker"], "queueId": number} for number in range(4)]
        wanted = {"consumerGroup": group, "clientId": "a stranger", "mqSet": queues}
        header, body = ask(target.broker, 41, {}, json.dumps(wanted).encode())
        assert header["code"] == 0
        assert json.loads(body)["lockOKMQSet"] == [], "a queue that is locked was locked by another"
        one.stop()
        two.stop()
        assert_delivered(messages, acks, one.received + two.received)
        for consumer in (one, two):
            assert_in_order(consumer.received)
        assert min(len(one.received), len(two.received)) > 0


def test_the_vip_port_takes_sends_and_pulls(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=2)
    messages = rich(6)
    with agent.producer(target.namesrv, vip=True) as producer:
        acks = producer.send(topic, messages)
    with agent.push(target.namesrv, topic, group, vip=True) as consumer:
        consumer.wait_for(len(messages))
        consumer.stop()
        assert_delivered(messages, acks, consumer.received)
