"""A group's offsets are moved while official clients consume, while they may not, and while there are none.

The broker tells with the next pull (21). Java 5.3.3 and C++ start over in a second; Java 4.9.8 and Go let go of the
queue for 10 s first, and are then told to rebalance.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.clients.agents import Agent, PushConsumer
from tests.clients.conftest import JAVA, Target, create_topic, newest_first, start, wait_for_clients
from tests.clients.messages import Message, assert_each_once, places
from tests.support.engine import Peer

pytestmark = pytest.mark.own  # Apache tells a 4.9 client, too, but leaves it alone then

every = pytest.mark.parametrize("agent", newest_first(*JAVA, "go", "cpp"), indirect=True)

RESET, SET_GROUP, SET_OPTIONS, ASK = 222, 200, 25, 14
#: Of C++, until it has its queues: it rebalances every 10 s.
START_S = 90
#: 10 s in which Java 4.9.8 and Go let go of a queue; without the nudge their rebalance may take 20 s more.
MOVED_S = 90


def numbered(count: int, first: int = 0) -> list[Message]:
    """Text, since the C++ client's bodies end at a NUL."""
    return [Message(b"message %d" % number) for number in range(first, first + count)]


@pytest.fixture(scope="module")
def java(request: pytest.FixtureRequest) -> Iterator[Agent]:
    """Makes the topics, and sends."""
    running = start("java-5.3.3", request)
    yield running
    running.close()


@pytest.fixture
def new_topic(java: Agent, target: Target, topic: str) -> Callable[..., str]:
    return lambda queues=2: create_topic(java, target, topic, queues=queues)


@pytest.fixture
def tool(target: Target) -> Iterator[Peer]:
    peer = Peer(target.broker)
    yield peer
    peer.close()


def reset(tool: Peer, group: str, topic: str, time_ms: int, **more: int) -> None:
    fields = {"group": group, "topic": topic, "timestamp": time_ms, "isForce": "true"}
    answer = tool.ask(RESET, fields | more)
    assert answer.code == 0, answer


def set_group(tool: Peer, group: str, **more: object) -> None:
    assert tool.ask(SET_GROUP, {}, json.dumps({"groupName": group, **more}).encode()).code == 0


def times(consumer: PushConsumer) -> Counter[str]:
    """How often each message came, by its body."""
    return Counter(message["body_sha256"] for message in consumer.received)


def wait_for_each(consumer: PushConsumer, messages: list[Message], count: int, seconds: float) -> None:
    wait_for_clients(
        lambda: all(times(consumer)[message.sha256] >= count for message in messages),
        f"{len(messages)} messages came {count} times",
        seconds,
    )


@every
def test_a_member_gets_everything_again_and_then_goes_on(
    agent: Agent, java: Agent, target: Target, new_topic: Callable[..., str], group: str, tool: Peer
) -> None:
    topic, old, new = new_topic(), numbered(20), numbered(5, first=20)
    with java.producer(target.namesrv) as producer, agent.push(target.namesrv, topic, group) as consumer:
        acknowledged = producer.send(topic, old)
        consumer.wait_for(len(old), START_S)
        reset(tool, group, topic, 0)
        wait_for_each(consumer, old, 2, MOVED_S)
        acknowledged += producer.send(topic, new)
        wait_for_each(consumer, new, 1, START_S)
        # To a place in the middle of one queue.
        [middle] = [ack for ack in acknowledged if ack["queue_id"] == 1 and ack["queue_offset"] == 5]
        reset(tool, group, topic, 0, queueId=1, offset=5)
        wait_for_clients(lambda: places(consumer.received).count((1, 5)) >= (3 if middle in acknowledged[:20] else 2),
                         "the middle of queue 1 came again", MOVED_S)  # fmt: skip
    counts = times(consumer)
    assert {counts[message.sha256] for message in old} <= {2, 3}
    assert {counts[message.sha256] for message in new} <= {1, 2}
    assert min(places(consumer.received).count(place) for place in {(0, 0), (1, 0)}) == 2


@every
def test_a_group_that_was_switched_off_skips_its_backlog_when_it_is_on_again(
    agent: Agent, java: Agent, target: Target, new_topic: Callable[..., str], group: str, tool: Peer
) -> None:
    topic, first, backlog, new = new_topic(), numbered(4), numbered(10, first=4), numbered(4, first=14)
    set_group(tool, group)
    with java.producer(target.namesrv) as producer, agent.push(target.namesrv, topic, group) as consumer:
        producer.send(topic, first)
        consumer.wait_for(len(first), START_S)
        set_group(tool, group, consumeEnable=False)
        producer.send(topic, backlog)
        reset(tool, group, topic, -1)
        set_group(tool, group, consumeEnable=True)
        producer.send(topic, new)
        wait_for_each(consumer, new, 1, MOVED_S)
        consumer.stop()
    assert_each_once(first + new, consumer.received)


@every
def test_without_members_the_next_one_begins_where_the_group_was_sent(
    agent: Agent, java: Agent, target: Target, new_topic: Callable[..., str], group: str, tool: Peer
) -> None:
    """Also a group that never consumed: it begins there, whatever it says of where to begin."""
    topic, old, new = new_topic(), numbered(10), numbered(4, first=10)
    with java.producer(target.namesrv) as producer:
        producer.send(topic, old)
        set_group(tool, group)
        reset(tool, group, topic, -1)
        producer.send(topic, new)
        with agent.push(target.namesrv, topic, group) as consumer:
            consumer.wait_for(len(new), START_S)
            consumer.stop()
        assert_each_once(new, consumer.received)
        reset(tool, group, topic, 0)
        with agent.push(target.namesrv, topic, group) as again:
            wait_for_each(again, old + new, 1, START_S)
            again.stop()
        assert_each_once(old + new, again.received)


@every
def test_a_member_that_is_asked_to_move_itself(
    agent: Agent, java: Agent, target: Target, new_topic: Callable[..., str], group: str, tool: Peer
) -> None:
    """useServerSideResetOffset off: 220 goes to each member, in its language, and it takes 10 s to come back."""
    topic, old = new_topic(), numbered(20)
    with java.producer(target.namesrv) as producer, agent.push(target.namesrv, topic, group) as consumer:
        producer.send(topic, old)
        consumer.wait_for(len(old), START_S)

        def committed() -> int:
            fields = {"consumerGroup": group, "topic": topic}
            answers = [tool.ask(ASK, fields | {"queueId": queue}) for queue in (0, 1)]
            return sum(int(answer.ext_fields["offset"]) for answer in answers if answer.code == 0)

        wait_for_clients(lambda: committed() == len(old), "all of it is committed", START_S)
        assert tool.ask(SET_OPTIONS, {}, b"useServerSideResetOffset=false").code == 0
        try:
            reset(tool, group, topic, 0)
        finally:
            assert tool.ask(SET_OPTIONS, {}, b"useServerSideResetOffset=true").code == 0
        wait_for_each(consumer, old, 2, MOVED_S)
        consumer.stop()
    assert set(times(consumer).values()) == {2}


@pytest.mark.parametrize("agent", newest_first(*JAVA), indirect=True)
def test_a_lite_pull_consumer_goes_on_where_it_was_sent(
    agent: Agent, java: Agent, target: Target, new_topic: Callable[..., str], group: str, tool: Peer
) -> None:
    topic, old = new_topic(queues=1), numbered(10)
    came: list[str] = []
    with (
        java.producer(target.namesrv) as producer,
        agent.client("lite", namesrv=target.namesrv, group=group, topic=topic) as lite,
    ):
        producer.send(topic, old)

        def have(count: int) -> bool:
            came.extend(message["body_sha256"] for message in lite("poll", timeout_ms=500))
            return len(came) >= count

        wait_for_clients(lambda: have(10), "all came", START_S)
        reset(tool, group, topic, 0, queueId=0, offset=4)
        wait_for_clients(lambda: have(16), "those from 4 on came again", MOVED_S)
    assert came == [message.sha256 for message in [*old, *old[4:]]]
