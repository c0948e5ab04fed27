"""In sync flush, zeros are written ahead of the log's end where that makes syncs cheaper, and never over a record."""

from __future__ import annotations

import threading

import pytest

from appliance.engine.disk import Disk
from appliance.engine.store.log.commit_log import ZERO_BYTES, ZERO_MOST_BYTES
from tests.support.store import StoreUnderTest
from tests.support.waiting import wait_for

FILE_BYTES = 4 * 1024 * 1024


class Gaining(Disk):
    """A disk that gains by zeros. zeros: (position, size) of each write of nothing else; `before_zeros` comes first.
    limit: it takes so many of them at once."""

    gains = True
    limit = 1 << 30

    def __init__(self) -> None:
        self.zeros: list[tuple[int, int]] = []
        self.before_zeros = lambda: None

    def gains_by_zeros(self, path):
        return self.gains

    def pwrite(self, fd, data, position):
        if len(data) > 1 and not any(memoryview(data)):
            self.before_zeros()
            data = data[: self.limit]
            self.zeros.append((position, len(data)))
        return super().pwrite(fd, data, position)


@pytest.fixture
def disk():
    return Gaining()


@pytest.fixture
def store(tmp_path, disk):
    opened = StoreUnderTest(tmp_path, synchronous=True, segment_bytes=FILE_BYTES, disk=disk).open()
    yield opened
    opened.stop()


def test_zeros_stay_ahead_of_the_log(store, disk):
    log = store.store.log
    bodies = [b"%d" % i * 20_000 for i in range(60)]
    for acked, body in enumerate(bodies, 1):
        store.write("T", 0, body)
        store.wait_acked(acked)
        assert log.durable < disk.zeros[-1][0] + disk.zeros[-1][1] <= log.durable + ZERO_BYTES
    assert 3 < len(disk.zeros) < 10, "some syncs write them for many"
    assert all(left + size <= right for (left, size), (right, _) in zip(disk.zeros, disk.zeros[1:], strict=False))
    assert store.bodies("T", 0) == bodies


def test_zeros_end_with_the_file_and_go_on_in_the_next(store, disk):
    bodies = [b"%d" % i * 50_000 for i in range(60)]
    for acked, body in enumerate(bodies, 1):
        store.write("T", 0, body)
        store.wait_acked(acked)
    log = store.store.log
    assert len(log.segments) > 1
    assert all(position + size <= FILE_BYTES for position, size in disk.zeros)
    assert any(position + size == FILE_BYTES for position, size in disk.zeros)
    assert disk.zeros[-1][0] < FILE_BYTES // 2, "none were written in the second file"
    assert store.bodies("T", 0) == bodies


def test_a_record_that_comes_while_zeros_are_written_is_not_replaced_by_them(store, disk):
    """The loop waits for the zeros if its records reach beyond those written before."""
    under_way, go_on, passed = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        under_way.set()
        assert go_on.wait(60)

    class Watched:
        """A lock that counts the threads that come to it."""

        def __init__(self, lock) -> None:
            self.lock, self.comers = lock, 0

        def __enter__(self) -> None:
            self.comers += 1
            self.lock.acquire()

        def __exit__(self, *_) -> None:
            self.lock.release()

    log = store.store.log
    disk.before_zeros = hold
    store.write("T", 0, b"first")
    assert under_way.wait(60)
    watched = log._zeroing = Watched(log._zeroing)
    body = b"second" * 30_000

    def second() -> None:
        store.write("T", 0, body)
        passed.set()

    writer = threading.Thread(target=second)
    writer.start()
    try:
        wait_for(lambda: passed.is_set() or watched.comers, "the writer neither wrote nor waited")
        disk.before_zeros = lambda: None
    finally:
        go_on.set()
    writer.join(60)
    store.wait_acked(2)
    assert store.bodies("T", 0) == [b"first", body]
    assert log.read(log.written - 100, 100).strip(b"\0"), "the record's end"


def test_large_syncs_are_left_alone(store, disk):
    store.write("T", 0, b"x" * (ZERO_MOST_BYTES + 1))
    store.wait_acked(1)
    assert disk.zeros == []


def test_other_file_systems_and_async_flush_get_no_zeros(tmp_path, disk):
    disk.gains = False
    for synchronous in (True, False):
        store = StoreUnderTest(tmp_path / str(synchronous), synchronous=synchronous, disk=disk).open()
        store.write("T", 0, b"x" * 5000)
        store.wait_acked(1)
        store.stop()
        disk.gains = True
    assert disk.zeros == []


def test_zeros_that_cannot_be_written_cost_no_message(store, disk, caplog):
    def fail() -> None:
        raise OSError(5, "Input/output error")

    disk.before_zeros = fail
    bodies = [b"%d" % i * 20_000 for i in range(40)]
    for acked, body in enumerate(bodies, 1):
        store.write("T", 0, body)
        store.wait_acked(acked)
    assert caplog.text.count("zeros ahead of the end cannot be written") == 1
    assert store.bodies("T", 0) == bodies


def test_zeros_that_the_disk_takes_in_pieces_are_not_waited_for(store, disk):
    disk.limit = 7
    store.write("T", 0, b"first", b"x" * 20_000, b"last")
    store.wait_acked(3)
    assert [size for _, size in disk.zeros] == [7]
    assert store.bodies("T", 0) == [b"first", b"x" * 20_000, b"last"]
