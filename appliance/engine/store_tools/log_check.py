"""Reads every record of the log, in order, and checks what is between and behind them.

The log ends where a start of the broker would end it: at the first bytes that are not a record, unless a record that
was certainly durable follows. Such a record is one that a queue entry points to, the first one of a later file, or one
below the recovery position (D15).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from ..errors import CorruptFile
from ..protocol.record import Record, decode_record
from ..store.log.log_scan import LogScan
from ..store.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE
from .offline_store import OfflineStore
from .problems import Problems

#: Most damaged ranges that are remembered.
_RANGES = 100_000


class CheckingScan:
    """A LogScan that reports what it finds instead of repairing it."""

    def __init__(self, store: OfflineStore, problems: Problems, durable: int) -> None:
        """durable: the physical offset of the recovery position, -1 without one."""
        self._store = store
        self._problems = problems
        self._below = durable
        self._scan = LogScan(store.raw, self, None, self._is_durable, self._next_durable)
        # Begins and ends of damaged ranges, in order; up to _RANGES of them.
        self._begins: list[int] = []
        self._ends: list[int] = []
        #: Physical offset behind the last record; -1 until the scan is over.
        self.end = -1

    def place(self, offset: int) -> tuple[str, int]:
        """Return (file, position in it) of a physical offset."""
        segment = self._store.log.segment_at(offset)
        if segment is None:
            return "commitlog", -1
        return f"commitlog/{segment.path.name}", offset - segment.start

    def all_records(self, progress: Callable[[int], None]) -> Iterator[Record]:
        """Yield each record, in the order of the log; set `end`. progress: gets the physical offset, now and then."""
        log = self._store.log
        at = begin = log.min_offset
        reported = 0
        while True:
            for behind, record in self._scan.records(begin):
                at = behind
                if record is not None:
                    yield record
                if at - reported > 1 << 22:
                    reported = at
                    progress(at)
            following = next((segment.start for segment in log.segments if segment.start > at), None)
            if log.segment_at(at) is not None or following is None:
                break
            at = begin = following  # files are missing in between; reading the names has reported that
        self.end = at
        self._look_behind(at)

    def is_damaged(self, offset: int) -> bool:
        """True if a physical offset is in a damaged range; for offsets that the scan has passed."""
        index = bisect_right(self._begins, offset) - 1
        return index >= 0 and offset < self._ends[index]

    def _is_durable(self, record: Record) -> bool:
        """True if a record was written in full although it holds zeros that look like a sector that was not written."""
        if record.physical_offset + record.size <= self._below or not self._store.was_killed:
            return True
        return self._store.files.names(record)

    def _next_durable(self, offset: int) -> int | None:
        """Return the physical offset of the next record that was certainly durable."""
        log = self._store.log
        found = [
            start for segment in log.segments if (start := segment.start) > offset and self._scan.is_record(start)
        ][:1]
        found += [named for named in self._named_behind(offset) if self._scan.is_record(named)]
        limit = min(found, default=None)
        until = max(self._below + 1, limit or 0)
        for segment in log.segments:
            if segment.end > offset and segment.start < until:
                searched = self._scan.search(max(offset + 1, segment.start), min(until, segment.end))
                if searched is not None:
                    return searched
        return limit

    def _named_behind(self, offset: int) -> Iterator[int]:
        """Yield for each queue the first physical offset behind `offset` that an entry points to."""
        files = self._store.files
        per_file = files.entries_per_file
        for topic, queue_id in self._store.queues():
            for number in self._store.queue_numbers(topic, queue_id):
                low, high = number * per_file, (number + 1) * per_file
                while low < high:
                    middle = (low + high) // 2
                    entry = files.read(topic, queue_id, middle, 1)
                    physical, size, _ = ENTRY.unpack(entry) if len(entry) == ENTRY_BYTES else (0, 0, 0)
                    if size > 0 and (physical <= offset or size == HOLE_SIZE):
                        low = middle + 1
                    else:
                        high = middle
                entry = files.read(topic, queue_id, low, 1)
                physical, size, _ = ENTRY.unpack(entry) if len(entry) == ENTRY_BYTES else (0, 0, 0)
                if 0 < size < HOLE_SIZE and physical > offset:
                    yield physical

    def damage(self, begin: int, end: int, reason: str) -> None:
        """Report a range that the scan skips."""
        file, at = self.place(begin)
        if len(self._begins) < _RANGES:
            self._begins.append(begin)
            self._ends.append(end)
        segment = self._store.log.segment_at(begin)
        until = min(end, segment.end) if segment else end
        self._problems.damage("record", file, at, f"{until - begin} bytes are not a valid record: {reason}")

    def _look_behind(self, end: int) -> None:
        """Report bytes behind the last record that are not zeros: a torn tail."""
        for segment in self._store.log.segments:
            begin = max(end, segment.start)
            if begin >= segment.end:
                continue
            data_end = self._store.raw.data_end(segment, begin)
            if data_end == begin:
                continue
            file, at = self.place(begin)
            text = f"{data_end - begin} bytes behind the last whole record: {self._why(begin)}"
            if self._scan.search(begin, segment.end) is not None:
                text += "; there are records among them, but nothing shows that they were durable"
            if self._store.was_killed:
                self._problems.note("torn-tail", file, at, text)
            else:
                self._problems.damage("behind-the-end", file, at, text)

    def _why(self, offset: int) -> str:
        segment = self._store.log.segment_at(offset)
        try:
            decode_record(self._store.raw.window(offset, segment) if segment else b"")
        except CorruptFile as error:
            return str(error)
        return "its physical offset is another one"
