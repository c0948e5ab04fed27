"""The pages behind the log's end: brought in while it grows fast, left alone otherwise."""

import errno
import itertools
import time

import pytest

from appliance.engine.store.log.segments import WARM_BYTES, Segment
from tests.support.store import StoreUnderTest, lies_in_memory

FILE_BYTES = 16 << 20


@pytest.fixture
def log(tmp_path):
    store = StoreUnderTest(tmp_path, segment_bytes=FILE_BYTES).open()
    store.write("T", 0, b"x" * 1000)
    allocator = store.store.log._allocator
    allocator.stop()  # the tests do its work
    allocator.stopped, allocator.warmed, allocator._cold = False, 0, False
    yield store.store.log
    store.stop()


@pytest.fixture
def touched(monkeypatch):
    """(begin, end) of each piece that is read ahead."""
    pieces = []
    monkeypatch.setattr(Segment, "touch", lambda self, offset, size: pieces.append((offset, offset + size)))
    return pieces


def warm(log, grown: int, seconds: float) -> None:
    """Run the thread's step for a log that grew by so many bytes in that time."""
    allocator = log._allocator
    allocator._looked_at, allocator._looked_from = time.monotonic() - seconds, log.written - grown
    allocator.warm()


def test_what_comes_next_is_read_once_while_the_log_grows_fast(log, touched):
    warm(log, 4 << 20, 0.01)
    assert touched[0][0] == log.written
    assert touched[-1][1] == log.written + WARM_BYTES
    assert all(before[1] == after[0] for before, after in itertools.pairwise(touched))
    count = len(touched)
    log.written += 1 << 20
    warm(log, 4 << 20, 0.01)
    assert touched[count][0] == touched[count - 1][1], "goes on where it was"
    assert touched[-1][1] == log.written + WARM_BYTES


def test_slow_growth_reads_nothing(log, touched):
    warm(log, 4 << 20, 1.0)
    assert touched == []
    assert log._allocator.warmed == log.written + WARM_BYTES, "and asks again when that is used up"


def test_it_ends_with_the_file(log, touched):
    log.written = FILE_BYTES - 100_000
    warm(log, 4 << 20, 0.01)
    assert touched[-1][1] == FILE_BYTES


def test_a_disk_that_refuses_is_no_error_here(log, monkeypatch):
    def refuse(self, offset, size):
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(Segment, "touch", refuse)
    warm(log, 4 << 20, 0.01)
    segment = log.segments[0]
    assert segment._holds == 1
    assert log.broken is None


def test_the_appender_asks_in_time(log, monkeypatch):
    asked = []
    monkeypatch.setattr(log._allocator, "keep_warm", lambda: asked.append(log.written))
    log._allocator.warmed = log.written + WARM_BYTES // 2 + 10
    log.after_write()
    assert asked == []
    log.written += 11
    log.after_write()
    assert asked == [log.written]


@pytest.mark.disk
def test_the_pages_are_really_there(log):
    """This needs a kernel that can say so."""
    segment = log.segments[0]
    if not log._disk.is_resident(segment.fd, 0, 100):
        pytest.skip("no cachestat(2)")
    position = log.written + (1 << 20)
    log._disk.forget_cached(segment.fd)
    assert log._disk.is_resident(segment.fd, position, 1 << 20) is lies_in_memory(log.directory)
    log._allocator.warmed = 0
    warm(log, 4 << 20, 0.01)
    assert log._disk.is_resident(segment.fd, position, 1 << 20)
    assert log.read(0, 8)[4:] == b"\xda\xa3\x20\xa7"
