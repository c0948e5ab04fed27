"""Features that only the Go client does its own way: pull consumer, admin, refusals; and Go together with Java."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.clients.agents import Agent
from tests.clients.conftest import Target, create_topic, start, wait_for_clients
from tests.clients.messages import (
    TAGS,
    assert_delivered,
    assert_each_once,
    places,
    plain,
    rich,
)
from tests.support.apache import ask

pytestmark = pytest.mark.parametrize("agent", ["go"], indirect=True)


@pytest.fixture(scope="module")
def java(request: pytest.FixtureRequest) -> Iterator[Agent]:
    """A Java client beside the Go one."""
    running = start("java-5.3.3", request)
    yield running
    running.close()


def test_the_go_pull_consumer_polls_and_commits(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=2)
    first, second = rich(20), plain(6)
    with agent.producer(target.namesrv) as producer:
        acks = producer.send(topic, first)
        assert_delivered(first, acks, poll(agent, target, topic, group, len(first)))
        acks = producer.send(topic, second)
        assert_delivered(second, acks, poll(agent, target, topic, group, len(second)))


def test_the_go_pull_consumer_filters_by_tag(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=2)
    messages = rich(20)
    wanted = [message for message in messages if message.tags == TAGS[1]]
    with agent.producer(target.namesrv) as producer:
        producer.send(topic, messages)
    assert_each_once(wanted, poll(agent, target, topic, group, len(wanted), expression=TAGS[1]))


def poll(agent: Agent, target: Target, topic: str, group: str, count: int, **arguments: str) -> list[dict]:
    """Return what a fresh pull consumer of the group gets until `count` messages came."""
    received: list[dict] = []
    with agent.client("pull", namesrv=target.namesrv, group=group, topic=topic, **arguments) as client:

        def enough() -> bool:
            received.extend(client("poll", timeout_ms=200))
            return len(received) >= count

        wait_for_clients(enough, f"{count} messages polled")
        # Its stop sends the offsets again, but closes the connection behind them: a broker may miss that.
        client("commit", topic=topic)
        wanted = {queue_id: offset + 1 for queue_id, offset in sorted(places(received))}
        for queue_id, offset in wanted.items():
            wait_for_clients(
                lambda q=queue_id, o=offset: committed(target, group, topic, q) >= o, "offsets are committed"
            )
    return received


def committed(target: Target, group: str, topic: str, queue_id: int) -> int:
    """Return the group's offset as the broker answers it (request 14); -1 when it has none."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
    header, _ = ask(target.broker, 14, fields)
    return int(header["extFields"]["offset"]) if header["code"] == 0 else -1


def test_the_go_pull_consumer_pulls_from_an_offset(
    agent: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=1)
    with agent.producer(target.namesrv) as producer:
        [ack, *_] = producer.send(topic, plain(20))
    queue = {"topic": topic, "broker": ack["broker"], "queue_id": 0}
    with agent.client("pull", namesrv=target.namesrv, group=group, topic=topic) as client:
        result = client("pull", queue=queue, offset=5, max=10)
        assert (result["status"], result["next"], result["max"]) == ("FOUND", 15, 20)
        assert places(result["messages"]) == [(0, offset) for offset in range(5, 15)]


def test_the_go_admin_creates_lists_and_deletes_a_topic(agent: Agent, target: Target, topic: str) -> None:
    create_topic(agent, target, topic, queues=3)
    queues = agent.do("admin.queues", namesrv=target.namesrv, topic=topic)
    assert sorted(queue["queue_id"] for queue in queues) == [0, 1, 2]
    assert agent.do("admin.groups", namesrv=target.namesrv, broker=target.broker)
    agent.do("admin.delete_topic", namesrv=target.namesrv, broker=target.broker, topic=topic)
    wait_for_clients(lambda: topic not in agent.do("admin.topics", namesrv=target.namesrv), f"{topic} is gone")


def test_go_and_java_understand_each_other(
    agent: Agent, java: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=4)
    from_go, from_java = rich(30, seed=1), rich(30, seed=2)
    with agent.producer(target.namesrv) as go_producer, java.producer(target.namesrv) as java_producer:
        acks = go_producer.send(topic, from_go) + java_producer.send(topic, from_java)
    for number, reader in enumerate((agent, java)):
        with reader.push(target.namesrv, topic, f"{group}_{number}") as consumer:
            consumer.wait_for(60)
            consumer.stop()
            assert_delivered(from_go + from_java, acks, consumer.received)


def test_go_and_java_share_one_group(
    agent: Agent, java: Agent, target: Target, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(queues=4)
    messages = rich(60)
    with (
        agent.producer(target.namesrv) as producer,
        agent.push(target.namesrv, topic, group) as ours,
        java.push(target.namesrv, topic, group) as theirs,
    ):
        assert ours.wait_for_queues(2) | theirs.wait_for_queues(2) == {0, 1, 2, 3}
        acks = producer.send(topic, messages)
        wait_for_clients(lambda: len(ours.received) + len(theirs.received) >= 60, "60 messages between Go and Java")
        ours.stop()
        theirs.stop()
        assert_delivered(messages, acks, ours.received + theirs.received)
        assert min(len(ours.received), len(theirs.received)) > 0
