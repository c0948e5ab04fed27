"""A pool's queue is bounded by what waiting requests hold, not only by their number."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from appliance.engine.remoting.dispatcher import MAX_WAITING_BYTES, WorkerPool


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
    assert done.wait(5.0)
    assert pool.submit(lambda: None, MAX_WAITING_BYTES)


def test_one_request_alone_may_be_larger(pool: WorkerPool) -> None:
    done = threading.Event()
    assert pool.submit(done.set, MAX_WAITING_BYTES + 1)
    assert done.wait(5.0)


def test_a_refused_job_holds_nothing_and_a_failed_one_gives_back(pool: WorkerPool) -> None:
    go, running = threading.Event(), threading.Event()

    def fail() -> None:
        running.set()
        go.wait()
        raise ValueError

    assert pool.submit(fail, 1)
    assert running.wait(5.0)
    assert [pool.submit(lambda: None, 1) for _ in range(5)] == [True] * 4 + [False]  # 4 may wait
    go.set()
    done = threading.Event()
    while not pool.submit(done.set, 1):
        pass
    assert done.wait(5.0)
    assert pool._held <= 1
