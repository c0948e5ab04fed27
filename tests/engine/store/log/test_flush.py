"""flush-commitlog beside a real loop: messages are acknowledged by its rounds, whichever twin does them."""

from __future__ import annotations

import errno
import os
import select
import threading

import pytest

from appliance.engine.hotpath import StageState, SyncRounds
from appliance.engine.loop_calls import run_on_loop
from appliance.engine.remoting.event_loop import EventLoop
from appliance.engine.store import message_store
from tests.support.store import StoreUnderTest
from tests.support.waiting import wait_for

compiled = pytest.mark.skipif(SyncRounds is None, reason="the pure twin runs")


@pytest.fixture
def loop():
    running = EventLoop()
    running.start()
    yield running
    assert running.stop()
    running.close()


@pytest.fixture
def store(tmp_path, loop):
    under_test = StoreUnderTest(tmp_path, synchronous=True)
    under_test.scheduler = loop
    under_test.open()
    loop.put_first(under_test.store.end_tick)
    yield under_test
    under_test.stop()


def on_loop(loop, job) -> None:
    assert run_on_loop(loop.call_soon, job, lambda: False)


def test_messages_are_acknowledged_in_order_across_files(loop, store):
    bodies = [b"%d" % i * 500 for i in range(300)]
    for body in bodies:
        on_loop(loop, lambda body=body: store.put("T", 0, body))
    store.wait_acked(300)
    assert [body for _, _, body in store.acked] == bodies
    assert len(store.store.log.segments) > 3
    assert store.store.log.durable == store.store.log.written
    count, seconds = store.store.sync_times
    assert 0 < count <= 300
    assert seconds > 0
    assert store.bodies("T", 0) == bodies


def test_what_is_owed_before_a_sync_comes_first(loop, store):
    """An entry of the configuration journal, for example: the topic of the message."""
    owed, paid, state = threading.Event(), [], []

    def pay() -> None:
        if owed.is_set():
            paid.append(len(store.acked))
            owed.clear()

    store.store.sync_first(pay, owed.is_set)
    for i in range(50):
        if i % 5 == 0:
            owed.set()
        on_loop(loop, lambda i=i: store.put("T", 0, b"%d" % i))
        store.wait_acked(i + 1)
        state.append(owed.is_set())
    assert paid == list(range(0, 50, 5)), "each before its message was acknowledged"
    assert not any(state)
    if SyncRounds is not None:
        assert store.store._flush._rounds.count > 30, "the usual rounds take no GIL"


def test_a_listener_to_the_log_hears_of_each_sync(loop, store):
    heard = []
    store.store.on_kept = lambda: heard.append(store.store.log.durable)
    on_loop(loop, lambda: store.put("T", 0, b"x"))
    store.wait_acked(1)
    wait_for(lambda: store.store.log.written in heard, "a slave would not be told")


@pytest.mark.parametrize("ticks", [1, 2])
def test_pressure_ends_with_a_sync_that_is_there_when_its_tick_ends(loop, store, monkeypatch, ticks):
    """Then nothing is left to publish at the next wake-up. Queue entries that left the tails would end it, too, but
    perhaps their disk fails."""
    under_test, log = store, store.store.log
    on_loop(loop, lambda: store.put("T", 0, b"first"))
    store.wait_acked(1)
    assert store.store._flush_queues.stop()
    monkeypatch.setattr(message_store, "UNSYNCED_HIGH_BYTES", 1000)
    monkeypatch.setattr(message_store, "UNSYNCED_LOW_BYTES", 500)
    before = store.store.publication.allows
    asked = []

    def allows(end: int) -> bool:
        asked.append(end)
        if len(asked) == ticks:
            wait_for(lambda: log.durable == end, "it was not synced")
        return False if len(asked) < ticks else before(end)

    class Late:
        """The publication, asked when the sync is through."""

        def __init__(self, real):
            self._real = real

        def __getattr__(self, name):
            return allows if name == "allows" else getattr(self._real, name)

    publication = store.store.publication
    store.store.publication = Late(publication)

    def put() -> None:
        under_test.put("T", 0, b"x" * 3000)
        for _ in range(ticks - 1):
            store.store.end_tick()
            under_test.put("T", 0, b"y")

    on_loop(loop, put)
    store.wait_acked(1 + ticks)
    wait_for(lambda: not store.store.under_pressure, "producers would not be read from again")
    store.store.publication = publication


def test_the_thread_ends_when_it_is_asked(store):
    assert store.store._flush.stop()
    assert not store.store._flush.alive


class Log(StageState):
    """Of the log, what the rounds see."""

    def __init__(self) -> None:
        self.durable = 10


@compiled
def test_rounds_end_where_python_has_to_look(tmp_path):
    fd = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    wake_fd = os.eventfd(0, os.EFD_NONBLOCK)
    log = Log()
    rounds = SyncRounds(log, wake_fd)
    ended: list[int] = []

    def run() -> None:
        ended.append(rounds.run(fd, 100))

    try:
        thread = threading.Thread(target=run)
        thread.start()
        rounds.written(50)
        assert select.select([wake_fd], [], [], 60)[0]
        assert (log.durable, rounds.count, rounds.since, ended) == (50, 1, 0.0, [])
        rounds.written(50)
        rounds.written(101)
        thread.join(60)
        assert (log.durable, rounds.count, ended) == (50, 1, [0]), "what is behind the file's end is left"
        rounds.ask()
        rounds.written(60)
        assert rounds.run(fd, 100) == 0
        assert (log.durable, rounds.count) == (50, 1), "it was asked before"
    finally:
        os.close(fd)
        os.close(wake_fd)


@compiled
def test_a_failed_sync_moves_nothing_and_wakes_nobody():
    wake_fd = os.eventfd(0, os.EFD_NONBLOCK)
    log = Log()
    rounds = SyncRounds(log, wake_fd)
    read_end, write_end = os.pipe()
    try:
        rounds.written(50)
        assert rounds.run(write_end, 100) == errno.EINVAL, "a pipe cannot be synced"
        assert (log.durable, rounds.count, rounds.since) == (10, 0, 0.0)
        with pytest.raises(BlockingIOError):
            os.read(wake_fd, 8)
    finally:
        for fd in (read_end, write_end, wake_fd):
            os.close(fd)


@compiled
def test_a_failed_sync_breaks_the_log(loop, store):
    """Nothing is acknowledged from then on."""
    on_loop(loop, lambda: store.put("T", 0, b"first"))
    store.wait_acked(1)
    log = store.store.log
    read_end, write_end = os.pipe()
    segment = log.segments[-1]
    spare = os.dup(segment.fd)
    try:
        wait_for(lambda: store.store._flush.syncing_since == 0.0, "the sync ended")
        # The number of the descriptor that the thread waits with now belongs to something that cannot be synced.
        before = log.durable

        def swap_and_put() -> None:
            store.put("T", 0, b"second")
            log.write()
            os.dup2(write_end, segment.fd)

        on_loop(loop, swap_and_put)
        wait_for(lambda: store.failed, "the message was not refused")
        assert [body for _, _, body in store.acked] == [b"first"]
        assert log.durable == before
        assert "syncing" in log.broken
        on_loop(loop, lambda: store.put("T", 0, b"third"))
        wait_for(lambda: len(store.failed) == 2, "the log takes nothing more")
    finally:
        os.dup2(spare, segment.fd)
        for fd in (read_end, write_end, spare):
            os.close(fd)
