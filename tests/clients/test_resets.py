"""A group's offsets are moved while official clients consume, while they may not, and while there are none.

The broker announces a reset with the next pull (21). Java 5.3.3 and C++ start over in a second. Java 4.9.8 and Go let
go of the queue for 10 s first, and are then asked to rebalance.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from typing import Any

import pytest

from appliance.engine.protocol.command import RemotingCommand
from tests.clients.agents import Json, PushConsumer
from tests.clients.conftest import newest_first, wait_for_clients
from tests.clients.messages import Message, assert_each_once, places
from tests.clients.stage import JAVA, KINDS_AND_PYTHON, Stage
from tests.support.engine import Peer

pytestmark = [
    pytest.mark.own,  # Apache tells a 4.9 client, too, but leaves it alone then
    pytest.mark.at_once,
]

every = pytest.mark.parametrize("kind", newest_first(*KINDS_AND_PYTHON))

RESET, SET_OPTIONS = 222, 25
#: Time for C++ to get its queues: it rebalances every 10 s.
START_S = 90
#: 10 s in which Java 4.9.8 and Go let go of a queue; without the nudge their rebalance may take 20 s more.
MOVED_S = 90


def numbered(count: int, first: int = 0) -> list[Message]:
    """Text, since the C++ client's bodies end at a NUL."""
    return [Message(b"message %d" % number) for number in range(first, first + count)]


def send(stage: Stage, messages: list[Message]) -> list[Json]:
    return stage.send(messages, kind="java-5.3.3")


def ask(stage: Stage, code: int, fields: dict[str, Any], body: bytes = b"") -> RemotingCommand:
    with closing(Peer(stage.target.broker)) as tool:
        return tool.ask(code, fields, body)


def reset(stage: Stage, time_ms: int, **more: int) -> None:
    fields = {"group": stage.group, "topic": stage.topic, "timestamp": time_ms, "isForce": "true"}
    answer = ask(stage, RESET, fields | more)
    assert answer.code == 0, answer


def times(consumer: PushConsumer) -> Counter[str]:
    """Return how often each message came, by its body."""
    return Counter(message["body_sha256"] for message in consumer.received)


def wait_for_each(consumer: PushConsumer, messages: list[Message], count: int, seconds: float) -> None:
    wait_for_clients(
        lambda: all(times(consumer)[message.sha256] >= count for message in messages),
        f"{len(messages)} messages came {count} times",
        seconds,
    )


@every
def test_a_member_gets_everything_again_and_then_goes_on(kind: str, stage: Stage) -> None:
    stage.create_topic(queues=2)
    old, new = numbered(20), numbered(5, first=20)
    with stage.consumer() as consumer:
        acknowledged = send(stage, old)
        consumer.wait_for(len(old), START_S)
        reset(stage, 0)
        wait_for_each(consumer, old, 2, MOVED_S)
        acknowledged += send(stage, new)
        wait_for_each(consumer, new, 1, START_S)
        # To a place in the middle of one queue.
        [middle] = [ack for ack in acknowledged if ack["queue_id"] == 1 and ack["queue_offset"] == 5]
        reset(stage, 0, queueId=1, offset=5)
        wait_for_clients(lambda: places(consumer.received).count((1, 5)) >= (3 if middle in acknowledged[:20] else 2),
                         "the middle of queue 1 came again", MOVED_S)  # fmt: skip
    counts = times(consumer)
    assert {counts[message.sha256] for message in old} <= {2, 3}
    assert {counts[message.sha256] for message in new} <= {1, 2}
    assert min(places(consumer.received).count(place) for place in {(0, 0), (1, 0)}) == 2


@every
def test_a_group_that_was_switched_off_skips_its_backlog_when_it_is_on_again(kind: str, stage: Stage) -> None:
    stage.create_topic(queues=2)
    first, backlog, new = numbered(4), numbered(10, first=4), numbered(4, first=14)
    stage.create_group()
    with stage.consumer() as consumer:
        send(stage, first)
        consumer.wait_for(len(first), START_S)
        stage.create_group(consumeEnable=False)
        send(stage, backlog)
        reset(stage, -1)
        stage.create_group(consumeEnable=True)
        send(stage, new)
        wait_for_each(consumer, new, 1, MOVED_S)
        consumer.stop()
    assert_each_once(first + new, consumer.received)


@every
def test_without_members_the_next_one_begins_where_the_group_was_sent(kind: str, stage: Stage) -> None:
    """Also a group that never consumed: it begins there, whatever it says of where to begin."""
    stage.create_topic(queues=2)
    old, new = numbered(10), numbered(4, first=10)
    send(stage, old)
    stage.create_group()
    reset(stage, -1)
    send(stage, new)
    with stage.consumer() as consumer:
        consumer.wait_for(len(new), START_S)
        consumer.stop()
    assert_each_once(new, consumer.received)
    reset(stage, 0)
    with stage.consumer() as again:
        wait_for_each(again, old + new, 1, START_S)
        again.stop()
    assert_each_once(old + new, again.received)


@every
def test_a_member_that_is_asked_to_move_itself(kind: str, stage: Stage) -> None:
    """useServerSideResetOffset off: 220 goes to each member, in its language, and it takes 10 s to come back."""
    old = numbered(20)
    with stage.on_own_server() as (stage, _):
        stage.create_topic(queues=2)
        with stage.consumer() as consumer:
            send(stage, old)
            consumer.wait_for(len(old), START_S)

            def committed() -> int:
                return sum(max(0, stage.committed(stage.topic, queue=queue)) for queue in (0, 1))

            wait_for_clients(lambda: committed() == len(old), "all of it is committed", START_S)
            assert ask(stage, SET_OPTIONS, {}, b"useServerSideResetOffset=false").code == 0
            reset(stage, 0)
            wait_for_each(consumer, old, 2, MOVED_S)
            consumer.stop()
    assert set(times(consumer).values()) == {2}


@pytest.mark.parametrize("kind", newest_first(*JAVA, "python"))
def test_a_lite_pull_consumer_goes_on_where_it_was_sent(kind: str, stage: Stage) -> None:
    stage.create_topic()
    old = numbered(10)
    came: list[str] = []
    with stage.agent.client("lite", namesrv=stage.target.namesrv, group=stage.group, topic=stage.topic) as lite:
        send(stage, old)

        def have(count: int) -> bool:
            came.extend(message["body_sha256"] for message in lite("poll", timeout_ms=500))
            return len(came) >= count

        wait_for_clients(lambda: have(10), "all came", START_S)
        reset(stage, 0, queueId=0, offset=4)
        wait_for_clients(lambda: have(16), "those from 4 on came again", MOVED_S)
    assert came == [message.sha256 for message in [*old, *old[4:]]]
