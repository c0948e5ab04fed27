"""Verdicts of a filter that reads records: reads the records of queue entries, in few reads, and evaluates them.

The verdict replaces an entry's tag code: 1 for a match, 0 for the rest. `SETTLED` then selects the matches.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..filter.message_filter import MessageFilter
from ..filter.projection import properties_at
from ..protocol.record import body_length_at
from .queues.consume_queue import ENTRY, HOLE_SIZE
from .queues.queue_extension import is_address

#: Selects the entries whose verdict is a match.
SETTLED = MessageFilter(frozenset((1,)))
#: Scattered records are read in one piece as long as that copies at most this many bytes for each read it saves.
_BYTES_FOR_A_CALL = 12_000
#: Limits on the bytes of one read, and on its records; the time is checked after each read.
_SPAN_BYTES = 1024 * 1024
_SPAN_RECORDS = 100
#: Records between two checks of the time where they are read without the GIL.
_STEP_RECORDS = 256
#: Records between two checks of the time: for verdicts of microseconds, and for those that may take 0.1 s.
_QUICK_VERDICTS, _COSTLY_VERDICTS = 64, 1
#: A longer record is read without its body, only its head and its end.
_LONG_BYTES = 64 * 1024
#: Bytes up to and including the longest body's length; most bytes behind a body: topic, properties and their lengths.
_HEAD_BYTES = 84 + 2 * 12 + 4
_BEHIND_BODY_BYTES = 2 * (2 + 0xFFFF)
#: Time for one call, since other requests wait in the pool. The next pull continues.
_SLICE_S = 0.01


#: (entries, number of the first, how many at most, names) -> for each entry the values that the filter needs.
Values = Callable[[bytes, int, int, tuple[bytes, ...]], list[bytes | None]]


class Settling:
    """Filters records for one thread. read: returns bytes of the log at an offset, fewer where they end, None if it
    would have to wait. values: `CommitLog.property_values`, if it is available and the thread may wait for the disk.
    most_bytes: limit on the properties filtered in one call; beyond it `settle` returns None.

    scanned, matched: records filtered since the start, and those that matched.
    """

    def __init__(
        self, read: Callable[[int, int], bytes | None], values: Values | None = None, most_bytes: int | None = None
    ) -> None:
        self._read = read
        self._values = values
        self._most_bytes = most_bytes
        self._bytes = 0
        self.scanned = 0
        self.matched = 0

    def settle(self, entries: bytes, wanted: MessageFilter, most: int, slice_s: float = _SLICE_S) -> bytes | None:
        """Return entries with verdicts as tag codes: up to `most` matches or the end of the time, at least one entry.

        None if a record cannot be filtered now.
        """
        if self._values is not None and wanted.names is not None and wanted.codes is None:
            return self._settle_by_values(self._values, entries, wanted, wanted.names, most, slice_s)
        settled = bytearray(entries)
        ends = time.monotonic() + slice_s
        found = self._bytes = 0
        codes = wanted.codes
        span_records = _COSTLY_VERDICTS if wanted.costly else _SPAN_RECORDS
        span: list[tuple[int, int, int]] = []  # place in `settled`, physical offset, size
        begin = end = 0

        def judge() -> bool:
            nonlocal found
            verdicts = self._verdicts(span, begin, end, wanted)
            if verdicts is None:
                return False
            for (place, physical, size), verdict in zip(span, verdicts, strict=True):
                ENTRY.pack_into(settled, place, physical, size, verdict)
                found += verdict
            span.clear()
            return True

        for place in range(0, len(entries) - ENTRY.size + 1, ENTRY.size):
            physical, size, code = ENTRY.unpack_from(entries, place)
            if not 0 < size < HOLE_SIZE:  # an entry without record passes: the caller that picks entries recognizes it
                ENTRY.pack_into(settled, place, physical, size, 1)
                continue
            if codes is not None and code not in codes and not is_address(code):
                ENTRY.pack_into(settled, place, physical, size, 0)
                continue
            fits = (
                len(span) < span_records
                and end <= physical <= end + _BYTES_FOR_A_CALL
                and physical + size - begin <= _SPAN_BYTES
            )
            if span and not fits:
                if not judge():
                    return None
                if found >= most or time.monotonic() >= ends:
                    return bytes(settled[:place])
            if not span:
                begin = physical
            span.append((place, physical, size))
            end = physical + size
        if span and not judge():
            return None
        return bytes(settled)

    def _settle_by_values(
        self, values: Values, entries: bytes, wanted: MessageFilter, names: tuple[bytes, ...], most: int, slice_s: float
    ) -> bytes:
        """Like `settle`, where records are read and searched without the GIL."""
        count = len(entries) // ENTRY.size
        settled = bytearray(entries)
        for column in range(ENTRY.size - 8, ENTRY.size):  # set all codes to 0
            settled[column :: ENTRY.size] = bytes(count)
        ends = time.monotonic() + slice_s
        at = found = 0
        step = min(most, _STEP_RECORDS)
        at_once = _COSTLY_VERDICTS if wanted.costly else _QUICK_VERDICTS
        done = False
        while at < count and not done:
            keys = values(entries, at, step, names)
            if not keys:
                settled[at * ENTRY.size + ENTRY.size - 1] = 1
                found += 1
                at += 1
            for first in range(0, len(keys), at_once):
                some = keys[first : first + at_once]
                for number, verdict in enumerate(wanted.verdicts_of(some), at):
                    if verdict:
                        settled[number * ENTRY.size + ENTRY.size - 1] = 1
                        found += 1
                at += len(some)
                self.scanned += len(some)
                if done := time.monotonic() >= ends:
                    break
            done = done or found >= most or time.monotonic() >= ends
            step = min(2 * step, _STEP_RECORDS)
        self.matched += found
        return bytes(settled[: at * ENTRY.size])

    def _verdicts(
        self, span: list[tuple[int, int, int]], begin: int, end: int, wanted: MessageFilter
    ) -> list[bool] | None:
        """Return the verdicts on the records of a span between two offsets. A record that is gone passes."""
        found: list[bool] = []
        if end - begin > _LONG_BYTES and len(span) == 1:
            verdict = self._verdict_of_long(begin, end - begin, wanted)
            if verdict is None:
                return None
            found.append(verdict)
        while len(found) < len(span):  # repeats where a file of the log ends
            rest = span[len(found) :]
            begin = rest[0][1]
            data = self._read(begin, end - begin)
            if data is None:
                return None
            places = [(physical - begin, size) for _, physical, size in rest if physical - begin + size <= len(data)]
            if self._most_bytes is not None:
                for at, size in places:
                    self._bytes += at + size - (properties_at(data, at, at + size) or at + size)
                if self._bytes > self._most_bytes:
                    return None
            found += wanted.verdicts(data, places) if places else [True]
        self.scanned += len(span)
        self.matched += sum(found)
        return found

    def _verdict_of_long(self, physical: int, size: int, wanted: MessageFilter) -> bool | None:
        """Return the verdict on a record whose body is not read: the filter sees a record without body."""
        head = self._read(physical, _HEAD_BYTES)
        if head is None:
            return None
        if len(head) < _HEAD_BYTES or int.from_bytes(head[:4], "big") != size:
            return True
        fixed = body_length_at(head)
        body = int.from_bytes(head[fixed : fixed + 4], "big")
        behind = fixed + 4 + body
        if not 0 < size - behind <= _BEHIND_BODY_BYTES:
            return True
        tail = self._read(physical + behind, size - behind)
        if tail is None:
            return None
        record = (size - body).to_bytes(4, "big") + head[4:fixed] + bytes(4) + tail
        return wanted.verdicts(record, [(0, len(record))])[0]
