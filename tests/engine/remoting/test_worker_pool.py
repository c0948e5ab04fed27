"""A pool's queue is bounded by the memory of waiting requests, not only by their number."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from appliance.engine.remoting import dispatcher
from appliance.engine.remoting.dispatcher import FEW_WAITING_BYTES, LEAST_WAITING_BYTES, MAX_WAITING_BYTES, WorkerPool
from tests.support.waiting import wait_for


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool("test", capacity=4)
    pool.start()
    yield pool
    pool.stop(5.0)


def test_bytes_of_waiting_requests_are_bounded_and_come_free_again(pool: WorkerPool) -> None:
    go, done = threading.Event(), threading.Event()
    assert pool.submit(go.wait, MAX_WAITING_BYTES - 10)
    assert pool.submit(lambda: None, 10)
    assert not pool.submit(lambda: None, 1)
    assert pool.submit(done.set)  # it holds nothing
    go.set()
    assert done.wait(60)
    assert pool.submit(lambda: None, MAX_WAITING_BYTES)


def test_one_request_alone_may_be_larger(pool: WorkerPool) -> None:
    done = threading.Event()
    assert pool.submit(done.set, MAX_WAITING_BYTES + 1)
    assert done.wait(60)


def test_a_refused_job_holds_nothing_and_a_failed_one_gives_back(pool: WorkerPool) -> None:
    go, running = threading.Event(), threading.Event()

    def fail() -> None:
        running.set()
        go.wait()
        raise ValueError

    assert pool.submit(fail, 1)
    assert running.wait(60)
    assert [pool.submit(lambda: None, 1) for _ in range(5)] == [True] * 4 + [False]  # 4 may wait
    go.set()
    done = threading.Event()
    while not pool.submit(done.set, 1):
        pass
    assert done.wait(60)
    assert pool._held <= 1


class FullPeer:
    """Takes none of its answers until the test lets it."""

    remote_host = "1.2.3.4:5"

    def __init__(self, born_host: bytes = b"\1\2\3\4\0\0\0\5") -> None:
        self.born_host = born_host
        self.put_off: list[Callable[[], None]] = []
        self.places = 0
        self.pool_waits = 0
        self.closed = False

    def take_place(self, size: int) -> bool:
        self.places += 1
        return True

    def leave_place(self, size: int) -> None:
        self.places -= 1

    def must_wait(self) -> bool:
        self.pool_waits += 1
        return True

    def wait_for_room(self, resume: Callable[[], None]) -> None:
        self.put_off.append(resume)

    def resumed(self) -> None:
        self.pool_waits -= 1

    def close(self) -> None:
        self.closed = True


def test_jobs_that_wait_for_a_peer_take_no_place_from_others(pool: WorkerPool) -> None:
    peer, done = FullPeer(), []
    for number in range(20):  # five times what may wait
        wait_for(lambda: pool.waiting().number < 4, "no place came free")
        assert pool.submit(lambda: done.append(None), MAX_WAITING_BYTES // 4, peer)  # type: ignore[arg-type]
        wait_for(lambda number=number: len(peer.put_off) == number + 1, "it was not put off")
    for _ in range(4):
        assert pool.submit(lambda: None, 1), "another peer's request"
        wait_for(lambda: not pool.waiting().number, "it was not done")
    assert peer.closed, "it has more waiting than may"
    assert not done
    for resume in peer.put_off:
        resume()
    wait_for(lambda: len(done) == 20, "some were not done")
    wait_for(lambda: not peer.places and not peer.pool_waits, "the peer still has places")
    assert (pool.waiting().number, pool._held, pool._put_off.taken, pool._shares.taken) == (0, 0, 0, 0)


def test_a_peer_within_the_bound_is_not_closed_for_what_waits_for_it(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "MAX_PUT_OFF_BYTES", 10 * LEAST_WAITING_BYTES)
    monkeypatch.setattr(pool._put_off, "few", 0)
    peer = FullPeer()
    for number in range(3):
        assert not peer.closed
        assert pool.submit(lambda: None, 2000, peer)  # type: ignore[arg-type]
        wait_for(lambda number=number: len(peer.put_off) == number + 1, "it was not put off")
    assert peer.closed


class ReadyPeer(FullPeer):
    """Takes everything at once."""

    def must_wait(self) -> bool:
        return False


@pytest.mark.parametrize("answered", [True, False])
def test_a_job_that_fails_costs_the_connection_that_waits_for_its_answer(pool: WorkerPool, answered: bool) -> None:
    """A client without an answer would wait for a timeout, or for ever."""

    def fail() -> None:
        raise KeyError("planted")

    peer, done = ReadyPeer(), threading.Event()
    assert pool.submit(fail, 1, peer, answered)  # type: ignore[arg-type]
    assert pool.submit(done.set)
    assert done.wait(60)
    assert peer.closed is answered
    assert not peer.places


def test_connections_of_one_address_that_fill_a_pool_keep_nobody_out() -> None:
    pool = WorkerPool("test")
    for number in range(100):
        peer = ReadyPeer(b"\1\2\3\4" + number.to_bytes(4, "big"))
        while pool.submit(lambda: None, 1 << 20, peer):  # type: ignore[arg-type]
            pass
    assert pool._held > MAX_WAITING_BYTES // 4
    assert pool._held < MAX_WAITING_BYTES
    neighbour, stranger = ReadyPeer(b"\1\2\3\4\1\0\0\0"), ReadyPeer(b"\7\2\3\4\0\0\0\1")
    assert pool.submit(lambda: None, FEW_WAITING_BYTES, neighbour)  # type: ignore[arg-type]
    assert pool.submit(lambda: None, 1 << 20, stranger)  # type: ignore[arg-type]


def test_small_requests_of_one_connection_leave_places_for_others() -> None:
    pool = WorkerPool("test", capacity=100)
    hog, other = ReadyPeer(), ReadyPeer(b"\1\2\3\4\0\0\0\6")
    assert sum(pool.submit(lambda: None, 1, hog) for _ in range(1000)) == 100  # type: ignore[arg-type]
    assert pool.submit(lambda: None, 1, other)  # type: ignore[arg-type]


def test_an_idle_pool_keeps_nothing_of_its_last_job(pool: WorkerPool) -> None:
    class Request:
        def __call__(self) -> None:
            pass

    request = Request()
    gone = weakref.ref(request)
    assert pool.submit(request)
    del request
    wait_for(lambda: gone() is None, "the pool keeps it")


def test_who_asks_once_waits_for_one_request_of_who_asks_ten_times() -> None:
    """A query for a key may take seconds."""
    pool = WorkerPool("fair")
    hog, other, done = ReadyPeer(), ReadyPeer(b"\1\2\3\4\0\0\0\6"), []
    for number in range(10):
        assert pool.submit(lambda number=number: done.append(number), 1, hog)  # type: ignore[arg-type,misc]
    assert pool.submit(lambda: done.append("other"), 1, other)  # type: ignore[arg-type]
    assert pool.submit(lambda: done.append("own"), 1)
    pool.start()
    pool.stop(5.0)
    assert done == [0, "own", "other", *range(1, 10)]


def test_who_asks_once_waits_for_one_request_of_who_has_many_connections() -> None:
    """An expression may take a second to compile, and one program may have a thousand connections."""
    pool = WorkerPool("fair")
    done: list[object] = []
    for number in range(10):
        hog = ReadyPeer(b"\1\2\3\4\0\0\0" + bytes([number]))
        assert pool.submit(lambda number=number: done.append(number), 1, hog)  # type: ignore[arg-type,misc]
    other = ReadyPeer(b"\1\2\3\5\0\0\0\6")
    assert pool.submit(lambda: done.append("other"), 1, other)  # type: ignore[arg-type]
    pool.start()
    pool.stop(5.0)
    assert done == [0, "other", *range(1, 10)]


def test_a_stop_lets_go_of_the_requests_that_it_did_not_come_to() -> None:
    """They would work on a store that is closed next."""
    pool, peer = WorkerPool("test"), ReadyPeer()
    go, running = threading.Event(), threading.Event()

    def first() -> None:
        running.set()
        go.wait()

    done: list[str] = []
    assert pool.submit(first, 1, peer)  # type: ignore[arg-type]
    assert pool.submit(lambda: done.append("request"), 1, peer)  # type: ignore[arg-type]
    assert pool.submit(lambda: done.append("own"))
    pool.start()
    assert running.wait(60)
    assert not pool.stop(0.0)
    go.set()
    assert pool.stop(60.0)
    assert done == ["own"]
    assert pool._held == 0
