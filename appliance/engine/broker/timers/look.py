"""A frozen view of the messages that wait for a time of their own, read from the schedule index beside delivery.

A look takes what is in memory as it is, opens the run files itself (so that it can still read them after a merge) and
reads them in the caller's thread. Marks come with the messages they are for and take them out, as they do for delivery.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from ...disk import Disk
from ...errors import CorruptFile
from ...store.log.commit_log import CommitLog
from .marks import KeyMarks
from .records import cancel_key, read_stored, short_key, timed_of
from .runs import ENTRY_BYTES, TimerEntry, lane_of, unpack_entry
from .schedule import TimerIndex
from .waiting import Timed

#: Entries read at once: few for a page, more for a count.
_PAGE_BLOCK, _COUNT_BLOCK = 128, 4096
#: Marks are kept this long after their time, because Apache's times are rounded; RocketBox's are not.
MARK_SPAN_MS = 1000
_RAW = struct.Struct(">QQQII")
_MESSAGE = 1 << 62
#: Mask of the physical offset in the number that also holds an entry's lane.
_PHYSICAL = (1 << 56) - 1
_TRIES = 3

#: (TIMER_OUT_MS, key) -> its marks.
_Marks = dict[tuple[int, str], KeyMarks]


class _Source:
    """Sorted entries from `begin` to `count`, in memory or in a run file. lane: None if they are of several lanes."""

    def __init__(
        self, disk: Disk, lane: int | None, begin: int, count: int, entries: Sequence[bytes] | None, fd: int
    ) -> None:
        self._disk = disk
        self.lane = lane
        self.begin = begin
        self.count = count
        self._entries = entries
        self._fd = fd

    def read(self, begin: int, count: int) -> bytes:
        if self._entries is not None:
            return b"".join(self._entries[begin : begin + count])
        data = self._disk.pread(self._fd, count * ENTRY_BYTES, ENTRY_BYTES * (begin + 1))
        if len(data) < count * ENTRY_BYTES:
            raise CorruptFile("timers: a run ends early")
        return data

    def first(self, prefix: bytes) -> int:
        """Return the position of the first entry that is not below `prefix`."""
        low, high = self.begin, self.count
        while low < high:
            middle = (low + high) // 2
            if self.read(middle, 1) < prefix:
                low = middle + 1
            else:
                high = middle
        return low

    def walk(self, begin: int) -> Iterator[bytes]:
        while begin < self.count:
            data = self.read(begin, min(_PAGE_BLOCK, self.count - begin))
            for at in range(0, len(data), ENTRY_BYTES):
                yield data[at : at + ENTRY_BYTES]
            begin += len(data) // ENTRY_BYTES


class ScheduleLook:
    """One look; belongs to one thread. `with` opens and closes it. Raises OSError, CorruptFile."""

    def __init__(self, index: TimerIndex, disk: Disk, log: CommitLog, precision_ms: Callable[[], int]) -> None:
        self._index = index
        self._disk = disk
        self._log = log
        self._precision_ms = precision_ms
        self._sources: list[_Source] = []
        self._fds: dict[Path, int] = {}
        #: Number of entries that were looked at.
        self.scanned = 0
        #: (due time, queue offset) before which `walk` has looked at everything.
        self.reached = (0, 0)
        self._tidied = 0
        self._marks_at: tuple[int, int, dict[str, KeyMarks]] = (-1, -1, {})

    def __enter__(self) -> ScheduleLook:
        for tries in range(_TRIES):
            fresh, runs = self._index.sources()
            try:
                self._open(fresh, runs)
                return self
            except FileNotFoundError:  # merged meanwhile
                self._close()
                if tries == _TRIES - 1:
                    raise
        raise AssertionError

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._close()

    def _open(self, fresh: list[bytes], runs: Sequence[tuple[int, int, int, Sequence[bytes] | None, Path]]) -> None:
        self._sources = [_Source(self._disk, None, 0, len(fresh), fresh, -1)]
        for lane, begin, end, entries, path in runs:
            if entries is None and path not in self._fds:
                self._fds[path] = self._disk.open(path, read_only=True)
            self._sources.append(_Source(self._disk, lane, begin, end, entries, self._fds.get(path, -1)))

    def _close(self) -> None:
        for fd in self._fds.values():
            self._disk.close(fd)
        self._sources, self._fds = [], {}

    def _of_lane(self, lane: int) -> list[_Source]:
        """Return the sources in which entries of a lane may be; those of older versions are in lane 0."""
        return [source for source in self._sources if source.lane in (None, 0, lane)]

    # --- questions

    def has(self, entry: TimerEntry) -> bool:
        """True if this entry waits: it was neither taken nor dropped. Marks are not looked at."""
        order = entry.queue_offset if entry.is_mark else entry.queue_offset | _MESSAGE
        prefix = struct.pack(">QQ", entry.due_ms, order)
        for source in self._of_lane(entry.lane):
            at = source.first(prefix)
            if at < source.count and source.read(at, 1)[:16] == prefix:
                return True
        return False

    def walk(
        self, due_ms: int, is_over: Callable[[], bool] = lambda: False, queue_offset: int = 0
    ) -> Iterator[TimerEntry]:
        """Yield the messages that wait, in the order in which they are due, without those that a mark takes out: from a
        due time on, and within that time from a queue offset on.

        Raises TimeoutError when `is_over` returns True, but not before `reached` lies behind the beginning: a caller
        that goes on from there comes to the end, however many messages were taken out.
        """
        marks: _Marks = {}
        last = 0
        begin = (due_ms, queue_offset)
        self.reached = begin
        moved = False
        prefix = struct.pack(">QQ", max(0, due_ms - MARK_SPAN_MS), 0)
        sources = [source.walk(source.first(prefix)) for source in self._sources]
        for one in heapq.merge(*sources):
            entry = unpack_entry(one)
            self.scanned += 1
            # A walk that goes on among marks reads the second before again: only further than that is progress.
            moved = moved or entry.due_ms > due_ms + 2 * MARK_SPAN_MS
            if moved and is_over():
                self.reached = max(self.reached, (entry.due_ms, 0 if entry.is_mark else entry.queue_offset))
                raise TimeoutError
            if marks and entry.due_ms > last + 2 * MARK_SPAN_MS:
                marks.clear()
            if entry.is_mark:
                last = entry.due_ms
                self._note(entry, marks)
            elif (entry.due_ms, entry.queue_offset) >= begin:
                self.reached, moved = (entry.due_ms, entry.queue_offset + 1), True
                if not (marks and self._is_out(entry, marks)):
                    yield entry

    def _note(self, entry: TimerEntry, marks: _Marks) -> None:
        if len(marks) > self._tidied:
            for place in [place for place in marks if place[0] + MARK_SPAN_MS < entry.due_ms]:
                del marks[place]
            self._tidied = 2 * len(marks) + 64
        found = self._said(entry)
        if found is not None:
            properties, timed, _ = found
            key = short_key(timed.cancels if timed.cancels is not None else cancel_key(properties))
            marks.setdefault((timed.out_ms, key), KeyMarks()).note(timed, entry.queue_offset)

    def _said(self, entry: TimerEntry) -> tuple[str, Timed, int] | None:
        """Return (properties, their timer fields, store time) of an entry's record; None if it is gone."""
        found = read_stored(self._log, entry.physical_offset, entry.size)
        timed = None if found is None else timed_of(found[0], self._precision_ms())
        return None if found is None or timed is None else (found[0], timed, found[1])

    def _is_out(self, entry: TimerEntry, marks: _Marks) -> bool:
        found = self._said(entry)
        if found is None:
            return False
        properties, timed, stored_ms = found
        known = marks.get((timed.out_ms, short_key(cancel_key(properties))))
        return known is not None and (
            known.is_cancelled(timed, entry.queue_offset) or known.is_replaced(timed, entry.queue_offset, stored_ms)
        )

    def is_marked(self, timed: Timed, key: str, queue_offset: int) -> bool:
        """True if a mark cancels the message with this key (`topic+unique key`) whose record is at `queue_offset`."""
        known = self._marks_of(timed.out_ms, lane_of(key)).get(short_key(key))
        return known is not None and known.is_cancelled(timed, queue_offset)

    def _marks_of(self, out_ms: int, lane: int) -> dict[str, KeyMarks]:
        """Return the cancelling marks of a lane for messages with this TIMER_OUT_MS, by key. They may be many, so the
        last result is kept for the next call."""
        if self._marks_at[:2] == (out_ms, lane):
            return self._marks_at[2]
        found: dict[str, KeyMarks] = {}
        prefix, end = struct.pack(">QQ", out_ms + 1, 0), struct.pack(">QQ", out_ms + 1, _MESSAGE)
        for source in self._of_lane(lane):
            for one in source.walk(source.first(prefix)):
                if one[:16] >= end:
                    break
                entry = unpack_entry(one)
                said = self._said(entry)
                if said is not None and said[1].out_ms == out_ms and said[1].cancels is not None:
                    found.setdefault(short_key(said[1].cancels), KeyMarks()).note(said[1], entry.queue_offset)
        self._marks_at = (out_ms, lane, found)
        return found

    def waits(self, out_ms: int, key: str, span_ms: int) -> bool:
        """True if a message with this key (`topic+unique key`) and TIMER_OUT_MS waits. span_ms: no entry is due more
        than this after its TIMER_OUT_MS."""
        prefix, end = struct.pack(">QQ", out_ms + 1, _MESSAGE), struct.pack(">QQ", out_ms + span_ms + 1, 0)
        for source in self._of_lane(lane_of(key)):
            for one in source.walk(source.first(prefix)):
                if one[:16] >= end:
                    break
                said = None if (entry := unpack_entry(one)).is_mark else self._said(entry)
                if said is not None and said[1].out_ms == out_ms and cancel_key(said[0]) == key:
                    return True
        return False

    def units(self, is_over: Callable[[], bool]) -> Iterator[tuple[int, int, int]]:
        """Yield (due time, physical offset, size) of all messages that wait; those of one topic and due time in the
        order they were stored in. Raises TimeoutError when `is_over` returns True."""
        if any(order < _MESSAGE for block in self._blocks(is_over) for _, order, _, _, _ in block):
            for entry in self.walk(0, is_over):
                yield entry.due_ms, entry.physical_offset, entry.size
            return
        for block in self._blocks(is_over):
            for due_ms, _, physical, size, _ in block:
                yield due_ms, physical & _PHYSICAL, size

    def _blocks(self, is_over: Callable[[], bool]) -> Iterator[Iterator[tuple[int, int, int, int, int]]]:
        for source in self._sources:
            at = source.begin
            while at < source.count:
                if is_over():
                    raise TimeoutError
                data = source.read(at, min(_COUNT_BLOCK, source.count - at))
                at += len(data) // ENTRY_BYTES
                yield _RAW.iter_unpack(data)

    def count(self, edges: Sequence[int], is_over: Callable[[], bool]) -> tuple[list[int], bool]:
        """Return (counts of messages due before the first edge, between each two and behind the last; True if all were
        counted).

        A mark counts as -1, for the message that it takes out. Entries before and behind all edges are not read, and
        marks among them are counted as messages. is_over: called now and then.
        """
        counts = [0] * (len(edges) + 1)
        whole = True
        for source in self._sources:
            low, high = (source.first(struct.pack(">QQ", max(0, edge), 0)) for edge in (edges[0], edges[-1]))
            counts[0] += low - source.begin
            counts[-1] += source.count - high
            bucket = 0
            while low < high:
                if is_over():
                    whole = False
                    break
                data = source.read(low, min(_COUNT_BLOCK, high - low))
                low += len(data) // ENTRY_BYTES
                self.scanned += len(data) // ENTRY_BYTES
                for due_ms, order, _, _, _ in _RAW.iter_unpack(data):
                    while due_ms >= edges[bucket + 1]:
                        bucket += 1
                    counts[bucket + 1] += 1 if order >= _MESSAGE else -1
        return [max(0, one) for one in counts], whole
