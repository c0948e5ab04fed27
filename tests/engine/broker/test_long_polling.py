"""Parked pulls in all their places: queue, bucket, connection and the counts of each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.broker.group_config import SubscriptionGroupConfig
from appliance.engine.broker.long_polling import BUCKET_MS, LongPolling
from appliance.engine.broker.pulling.request import PullRequest
from appliance.engine.broker.topic_config import TopicConfig
from appliance.engine.filter.message_filter import EVERYTHING, MessageFilter
from appliance.engine.remoting.connection import Connection
from appliance.engine.remoting.event_loop import EventLoop, Timer
from appliance.engine.store.queues.consume_queue import ConsumeQueue


class Clock:
    """The part of the loop that long polling uses; the test moves its time."""

    def __init__(self) -> None:
        self.monotonic = 100.0
        self.calls: list[Callable[[], None]] = []

    def call_later(self, seconds, callback) -> Timer:
        return Timer(callback, 0.0)

    def call_soon(self, callback) -> None:
        self.calls.append(callback)

    def tick(self) -> bool:
        """Run the calls that were handed in. Return False if there were none."""
        calls, self.calls = self.calls, []
        for call in calls:
            call()
        return bool(calls)


class Peers:
    """Connections without sockets."""

    def __init__(self, count: int) -> None:
        self.loop = Clock()
        self.all = [Connection(self, _Socket(), None, bytes(8)) for _ in range(count)]  # type: ignore[arg-type]


class _Socket:
    def fileno(self) -> int:
        return -1


def pull_at(queue: ConsumeQueue, conn: Connection, opaque: int, group: str = "g", wanted=EVERYTHING) -> PullRequest:
    """Return a pull of the queue's next message."""
    topic, asker = TopicConfig("T"), SubscriptionGroupConfig(group_name=group)
    request = PullRequest(None, conn, opaque, asker, topic, queue.queue_id, queue.max_offset, 32, wanted)  # type: ignore[arg-type]
    request.queue = queue
    return request


def polling_on(loop: Clock, resume: Callable[[PullRequest], None]) -> LongPolling:
    return LongPolling(loop, resume, lambda: None, lambda request, queue: True)  # type: ignore[arg-type]


def listed(polling: LongPolling, conn: Connection) -> list[PullRequest]:
    """Walk the connection's list of parked pulls."""
    found, one, before = [], conn.parked, None
    while one is not None:
        assert one.previous is before
        found.append(one)
        before, one = one, one.following
    return found


def test_the_loop_that_stands_in_speaks_as_the_real_one_does():
    import inspect

    for name in ("call_later", "call_soon"):
        mine, real = getattr(Clock, name), getattr(EventLoop, name)
        assert list(inspect.signature(mine).parameters) == list(inspect.signature(real).parameters)


STEPS = st.lists(
    st.tuples(st.sampled_from(["hold", "hold", "hold", "put", "wait", "close", "release"]), st.integers(0, 3)),
    max_size=60,
)


@given(STEPS)
def test_a_connections_count_is_always_the_number_of_its_parked_pulls(steps):
    """Whatever takes a pull out: a message, its deadline, a reset, the end of its connection or of the broker."""
    peers = Peers(4)
    queues = [ConsumeQueue("T", number) for number in range(3)]
    woken: list[PullRequest] = []
    polling = polling_on(peers.loop, woken.append)
    held = 0
    for what, which in steps:
        queue, conn = queues[which % 3], peers.all[which]
        if what == "hold":
            assert polling.hold(pull_at(queue, conn, held, f"g{held % 2}"), BUCKET_MS * (1 + held % 5))
            held += 1
        elif what == "put":
            queue.append(0, 100, 0)
            queue.max_offset = queue.next_offset
            polling.notify([queue])
        elif what == "wait":
            peers.loop.monotonic += 0.25
            polling._expire()
            while peers.loop.tick():
                pass
        elif what == "close":
            polling.forget(conn)
        else:
            polling.release(queue, "g0")
        parked = [one for bucket in polling._buckets.values() for one in bucket]
        counts = Counter(id(one.conn) for one in parked)
        assert [conn.parked_count for conn in peers.all] == [counts[id(conn)] for conn in peers.all]
        assert [len(listed(polling, conn)) for conn in peers.all] == [counts[id(conn)] for conn in peers.all]
        assert polling.count == len(parked) == sum(len(polling.held_at(queue)) for queue in queues)
    polling.release_all()
    assert [conn.parked_count for conn in peers.all] == [0] * 4
    assert polling.count == 0


def test_a_pull_that_waits_alone_takes_no_table():
    peers, queue, woken = Peers(3), ConsumeQueue("T", 0), []
    polling = polling_on(peers.loop, woken.append)
    first, second, third = (pull_at(queue, conn, number) for number, conn in enumerate(peers.all))
    assert polling.first_at(queue) is None  # type: ignore[arg-type]
    assert polling.hold(first, 1000)
    assert polling._waiting == {queue: first}
    assert (polling.held_at(queue), polling.count_at(queue), polling.first_at(queue)) == ([first], 1, first)  # type: ignore[arg-type]
    assert polling.hold(second, 1000)
    assert polling.hold(third, 1000)
    assert polling.held_at(queue) == [first, second, third], "in the order they came"
    polling.forget(first.conn)
    assert (polling.count_at(queue), polling.first_at(queue)) == (2, second)  # type: ignore[arg-type]
    publish(polling, queue, 0)
    while peers.loop.tick():
        pass
    assert woken == [second, third]
    assert not polling._waiting
    assert polling.hold(first, 1000)
    polling.wake(first)
    assert not polling._waiting
    assert woken == [second, third, first]


MANY = 20_000
EVIL = MessageFilter(frozenset((666,)))


def crowd(resume, wanted=EVIL, hold_ms=60_000):
    """Return (polling, its loop, a queue at which one connection has MANY pulls)."""
    peers = Peers(1)
    queue = ConsumeQueue("T", 0)
    polling = polling_on(peers.loop, resume)
    for number in range(MANY):
        assert polling.hold(pull_at(queue, peers.all[0], number, wanted=wanted), hold_ms)
    return polling, peers.loop, queue


def publish(polling, queue, code):
    queue.append(0, 100, code)
    queue.max_offset = queue.next_offset
    polling.notify([queue])


def ticks_of(loop, begin):
    """Count the ticks that `begin` and the work it leaves to the loop take; each ends when a millisecond is over."""
    begin()
    count = 1
    while loop.tick():
        count += 1
    return count


def test_a_crowd_that_wants_something_else_does_not_stop_the_thread_at_each_message():
    woken = []
    polling, loop, queue = crowd(woken.append)
    assert ticks_of(loop, lambda: publish(polling, queue, 1)) > 5  # all of it takes some 30 ms
    assert not woken
    assert {parked.offset for parked in polling.held_at(queue)} == {1}, "each was looked at"


def test_a_pull_behind_a_crowd_is_woken_all_the_same_by_whatever_came_meanwhile():
    woken = []
    polling, loop, queue = crowd(woken.append)
    other = Peers(1).all[0]
    assert polling.hold(pull_at(queue, other, 1, "h", MessageFilter(frozenset((7,)))), 60_000)
    publish(polling, queue, 1)
    loop.tick()
    publish(polling, queue, 7)  # in the middle of the round
    while loop.tick():
        pass
    assert [parked.conn for parked in woken] == [other]
    assert polling.count == MANY
    publish(polling, queue, 666)
    while loop.tick():
        pass
    assert (len(woken), polling.count, polling.held_at(queue)) == (MANY + 1, 0, [])


def test_pulls_a_round_has_passed_are_woken_by_what_came_meanwhile():
    woken = []
    polling, loop, queue = crowd(woken.append)
    publish(polling, queue, 1)
    loop.tick()  # the first of them were looked at: their filter does not match
    assert polling.held_at(queue)[0].offset == 1
    publish(polling, queue, 666)
    while loop.tick():
        pass
    assert (len(woken), polling.count) == (MANY, 0)


def test_the_next_look_at_deadlines_is_for_the_pull_that_asked_for_the_least():
    peers, queue = Peers(1), ConsumeQueue("T", 0)
    loop, looks = peers.loop, []
    loop.call_later = lambda seconds, callback: looks.append(seconds) or Timer(callback, 0.0)
    polling = polling_on(loop, lambda parked: None)
    for opaque, hold_ms in enumerate((30_000, 2000, 10_000)):
        assert polling.hold(pull_at(queue, peers.all[0], opaque), hold_ms)
    assert looks == [30.0, 2.0], "the third one is not due before the second"


def test_pulls_whose_time_is_over_at_once_are_answered_a_slice_a_tick():
    def answer(parked):
        """Take as long as a real answer."""
        ends = time.thread_time() + 10e-6
        while time.thread_time() < ends:
            pass
        answered.append(parked.opaque)

    answered = []
    polling, loop, _ = crowd(answer, hold_ms=500)
    loop.monotonic += 1.0
    assert ticks_of(loop, polling._expire) > 50  # all of it takes 0.2 s
    assert answered == list(range(MANY))
    assert polling.count == 0


def test_a_connection_that_closes_in_the_middle_of_a_round_is_left_out_of_it():
    woken = []
    polling, loop, queue = crowd(woken.append)
    conn = polling.held_at(queue)[0].conn
    publish(polling, queue, 666)
    loop.tick()
    before = len(woken)
    assert 0 < before < MANY
    polling.forget(conn)
    while loop.tick():
        pass
    assert len(woken) == before
    assert polling.count == 0


@pytest.mark.parametrize("what", ["message", "deadline", "reset", "stop"])
def test_a_connection_that_closes_as_one_of_its_pulls_is_answered_takes_the_others_along(what):
    """They were once taken out of their places twice: the counts went below zero."""
    peers = Peers(2)
    queue = ConsumeQueue("T", 0)
    answered = []

    def answer(request: PullRequest) -> None:
        answered.append(request.opaque)
        if request.conn is peers.all[0]:
            polling.forget(request.conn)

    polling = polling_on(peers.loop, answer)
    for number in range(6):
        assert polling.hold(pull_at(queue, peers.all[number % 2], number), 500)
    if what == "message":
        publish(polling, queue, 0)
    elif what == "deadline":
        peers.loop.monotonic += 1.0
        polling._expire()
    elif what == "reset":
        polling.release(queue, "g")
    else:
        polling.release_all()
    assert answered == [0, 1, 3, 5]
    assert polling.count == 0
    assert [conn.parked_count for conn in peers.all] == [0, 0]
    assert not polling.held_at(queue)


def test_senders_hear_before_many_are_woken_and_not_for_a_few():
    peers = Peers(1)
    queue, others = ConsumeQueue("T", 0), ConsumeQueue("T", 1)
    order: list[object] = []
    polling = LongPolling(
        peers.loop,  # type: ignore[arg-type]
        lambda request: order.append(request.opaque),
        lambda: order.append("sent"),
        lambda request, queue: True,
    )
    for number in range(33):
        polling.hold(pull_at(queue, peers.all[0], number), 500)
    polling.hold(pull_at(others, peers.all[0], 99), 500)
    publish(polling, others, 0)
    assert order == [99]
    publish(polling, queue, 0)
    assert order == [99, "sent", *range(33)]


def test_a_held_pull_is_small():
    """Ten thousand of them are common: 10k parked polls in bench/."""
    import sys

    request = pull_at(ConsumeQueue("T", 0), Peers(1).all[0], 1)
    assert sys.getsizeof(request) <= 128
    assert not hasattr(request, "__dict__")
    assert "following" not in repr(request), "a list of ten thousand is not printed through its links"
