"""The log's files and its durable position, with a disk that fails or takes its time."""

import errno
import random
import threading
import time

import pytest

from appliance.engine.disk import Disk
from appliance.engine.errors import StoreBroken
from appliance.engine.store.log import commit_log
from tests.support.store import FailingDisk, StoreUnderTest


class SlowPreparation(Disk):
    """A log whose preparation of the next file, in the background, lasts until `release` and then fails."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()

    def allocate(self, fd, size):
        if threading.current_thread().name == "allocate-commitlog" and not self.release.is_set():
            self.entered.set()
            self.release.wait(60)
            raise OSError(errno.ENOSPC, "No space left on device")
        super().allocate(fd, size)


def test_a_file_that_fails_to_be_prepared_takes_none_away_from_the_log(tmp_path):
    disk = SlowPreparation()
    store = StoreUnderTest(tmp_path, segment_bytes=4096, disk=disk).open()
    bodies = [bytes([i]) * 700 for i in range(4)]
    store.write("T", 0, *bodies)
    assert disk.entered.wait(60), "the next file was never asked for"
    threading.Timer(0.2, disk.release.set).start()
    more = [bytes([i]) * 700 for i in range(4, 8)]
    store.write("T", 0, *more)  # rolls while the other thread is about to fail
    disk.release.wait(60)
    time.sleep(0.05)
    store.die()
    store = StoreUnderTest(tmp_path, segment_bytes=4096).open()
    assert store.bodies("T", 0) == bodies + more
    store.stop()


def test_what_is_written_while_a_sync_prepares_is_not_durable_by_it(tmp_path):
    """The journal is synced before the log: a topic made in between is in neither, so neither are its messages."""
    store = StoreUnderTest(tmp_path, synchronous=True).open()
    store.store._flush.stop()
    log = store.store.log
    store.write("T", 0, b"before")
    target = log.written
    store.store.sync_first(lambda: store.write("T", 0, b"meanwhile") if log.written == target else None, lambda: True)
    assert log.sync() == target == log.durable
    assert log.written > target
    store.stop()


def test_a_stop_beside_a_sync_that_still_waits_for_the_disk_closes_the_store(tmp_path):
    """The thread's sync ends after the stop's: the durable position does not go back, and nothing raises."""
    disk = Disk()
    store = StoreUnderTest(tmp_path, synchronous=True, disk=disk).open()
    store.write("T", 0, b"first")
    store.wait_acked(1)
    log, real = store.store.log, disk.fdatasync
    waiting, released, returned = threading.Event(), threading.Event(), threading.Event()
    thread = store.store._flush

    def slow(fd: int) -> None:
        if threading.current_thread().name == thread.name:
            waiting.set()
            released.wait(60)
        real(fd)

    disk.fdatasync = slow  # type: ignore[method-assign]
    store.write("T", 0, b"waits")
    assert waiting.wait(60)
    store.write("T", 0, b"behind it")
    assert log.sync() == log.durable == log.written, "what a stop does while the thread waits"
    thread._on_progress = returned.set
    released.set()
    assert returned.wait(60), "the thread did not survive that another was first"
    assert log.durable == log.written
    store.stop()
    assert not (tmp_path / "store" / "abort").exists()


def test_a_broken_log_refuses_what_back_pressure_held_back(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    seen = []
    store.store.on_pressure = seen.append
    store.store._set_pressure(True)
    store.store.log.fail("the disk is gone")
    store.write("T", 0, b"a")
    assert seen == [True, False]
    assert [reason for _, reason in store.failed] == ["the disk is gone"]
    store.stop()


def test_a_log_is_refused_as_long_as_anybody_refuses_it(tmp_path):
    store = StoreUnderTest(tmp_path).open()
    log = store.store.log
    log.refuse("this is a slave", "role")
    log.refuse("the disk is full")
    log.refuse(None)
    assert (log.refused_by("disk"), log.refused_by("role")) == (None, "this is a slave")
    with pytest.raises(StoreBroken, match="this is a slave"):
        store.put("T", 0, b"x")
    log.refuse(None, "role")
    store.write("T", 0, b"y")
    assert store.bodies("T", 0) == [b"y"]
    store.stop()


def test_what_was_written_last_is_read_without_the_disk(tmp_path, monkeypatch):
    reads = []
    real = Disk.read_nowait
    monkeypatch.setattr(Disk, "read_nowait", lambda disk, *of: (reads.append(of), real(disk, *of))[1])
    store = StoreUnderTest(tmp_path).open()
    log = store.store.log
    first = log.written
    store.write("T", 0, b"first")
    last = log.written
    store.write("T", 0, b"second")
    buffer = bytearray(log.written - last)
    reads.clear()
    assert log.read_nowait(last, memoryview(buffer))
    assert b"second" in buffer
    assert not reads
    assert log.read_nowait(first, memoryview(buffer)[: last - first])
    assert b"first" in buffer
    assert len(reads) == 1
    store.stop()


@pytest.mark.parametrize("seed", range(3))
def test_no_read_sees_bytes_that_were_staged_and_not_written(tmp_path, monkeypatch, seed):
    """Records of all sizes, over many files and several stages, some of them taken back."""
    monkeypatch.setattr(commit_log, "STAGE_BYTES", 2000)
    chance = random.Random(seed)
    store = StoreUnderTest(tmp_path, segment_bytes=16_384).open()
    log = store.store.log
    written, staged = {}, {}
    for number in range(1, 1500):
        size = chance.choice((90, 90, 400, 1900, 5000))
        at = log.reserve(size)
        if log.stage_base > min(staged, default=log.stage_base):  # `reserve` has written the others
            written |= staged
            staged = {}
        data = number.to_bytes(4, "big") * (size // 4) + b"\xff" * (size % 4)
        log.stage[at : at + size] = data
        if chance.random() < 0.2:
            log.unstage(at)
        else:
            staged[log.stage_base + at] = data
        if chance.random() < 0.5:
            log.write()
            written |= staged
            staged = {}
        for offset in (*list(written)[-3:], *chance.choices(list(written), k=bool(written))):
            buffer = bytearray(len(written[offset]))
            assert log.read_nowait(offset, memoryview(buffer))
            assert buffer == written[offset], (number, offset)
    assert len(log.segments) > 20
    store.die()


def test_a_write_that_fails_leaves_nothing_to_be_read(tmp_path):
    disk = FailingDisk()
    store = StoreUnderTest(tmp_path, disk=disk).open()
    store.write("T", 0, b"written")
    log = store.store.log
    at = log.reserve(200)
    log.stage[at : at + 200] = bytes(200)
    disk.failing["pwrite"] = errno.EIO
    with pytest.raises(StoreBroken):
        log.write()
    buffer = bytearray(50)
    assert log.read_nowait(log.written - 50, memoryview(buffer))
    assert b"written" in buffer
    store.die()
