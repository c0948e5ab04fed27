"""Scan of the log, record by record, to its end, which is where it is cut.

    record | record | damage | record | blank to the file's end || record | record | torn tail

The scan ends at the first bytes that are no record. If a valid record that was certainly durable follows, the range in
between is damage: the scan calls the reporter and steps over it (D15). Otherwise it is a torn tail, and the log ends.

Certainly durable are the records that a queue entry in a file names, and everything below the recovery position. In a
store that RocketBox never ran, or that was closed cleanly, the first record of a later file is, too.

Zeros in a record's properties may be a sector that was never written. The broker rejects sends whose properties could
be mistaken for that; Apache takes them, and so did older versions: such a record counts only if something vouches.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from zlib_ng.zlib_ng import crc32

from ...errors import CorruptFile
from ...hotpath import RecordWalk
from ...named_tuple import NamedTuple
from ...protocol.record import FIXED_BYTES, MAGIC_BLANK, SECTOR_BYTES, SIZE_MAGIC, Record, decode_record
from .raw_log import RECORD_MAGICS, WINDOW_BYTES, LogFile, RawLog, is_whole

#: Characters that no topic's name holds, since it is a directory's name. Apache once took more than it does now.
_NO_NAME = re.compile(r"[\x00-\x1f\x7f/]")


#: (topic, queue id, first queue offset, number of records, their entries): consecutive records of one queue.
Run = tuple[str, int, int, int, bytes]


class UsualRecords(NamedTuple):
    """Records that the compiled twin has checked, from data[begin] to data[end].

    number: how many. last: physical offset of the last one. store_ms: its store time; those before it are not later.
    A queue has one run at most.
    """

    data: bytes
    begin: int
    end: int
    number: int
    last: int
    store_ms: int
    runs: list[Run]

    def records(self) -> Iterator[Record]:
        return checked_records(self.data, self.begin, self.end)


def checked_records(data: bytes, at: int, end: int) -> Iterator[Record]:
    """Yield the records from data[at] to data[end], whose CRCs were checked before."""
    while at < end:
        record = decode_record(data, at, check_crc=False)
        yield record
        at += record.size


class Reporter(Protocol):
    """Receives each range that a scan steps over, beforehand. Recovery's keeps a copy, `store verify` lists it."""

    def damage(self, begin: int, end: int, reason: str) -> None: ...


def nothing_vouches(record: Record) -> bool:
    return False


class LogScan:
    """One pass over the log."""

    def __init__(
        self,
        raw: RawLog,
        reporter: Reporter,
        durable: int | None,
        vouches: Callable[[Record], bool] = nothing_vouches,
        next_durable: Callable[[int], int | None] | None = None,
    ) -> None:
        """durable: every byte below it was synced; None if that holds for the whole log, as far as is known.

        vouches: True if a record above `durable` was synced whole; called for one that looks as if it was not.
        next_durable: replaces the rule for where the next certainly durable record behind an offset begins; returns
        None if there is none.
        """
        self.raw = raw
        self._reporter = reporter
        self._durable = durable
        self._vouches = vouches
        self._next_durable = next_durable or self._next_valid
        #: Physical offsets that queue entries name; must be sorted before the scan.
        self.hints: list[int] = []

    def records(self, offset: int) -> Iterator[tuple[int, Record | None]]:
        """Yield (offset behind it, record) for each record from `offset`; None where only the offset moves."""
        return self._scanned(offset, False)

    def parts(self, offset: int) -> Iterator[tuple[int, UsualRecords | Record | None]]:
        """Yield what `records` yields, but usual records many at a time if there is a compiled twin."""
        return self._scanned(offset, RecordWalk is not None)

    def _scanned(self, offset: int, many: bool) -> Iterator[tuple[int, Any]]:
        walk = None
        base, data = offset, b""
        while (segment := self.raw.files.segment_at(offset)) is not None:
            if not is_whole(data, offset - base):
                base, data = offset, self.raw.window(offset, segment)
            at = offset - base
            if len(data) - at >= 8:
                size, magic = SIZE_MAGIC.unpack_from(data, at)
                if magic == MAGIC_BLANK and size == segment.end - offset:
                    offset = segment.end
                    base, data = offset, b""
                    yield offset, None
                    continue
            if many and is_whole(data, at):
                walk = walk or RecordWalk(crc32)
                usual = _usual(walk, data, at, base, segment)
                if usual is not None:
                    offset = base + usual.end
                    yield offset, usual
                    continue
            try:
                record = decode_record(data, at)
                self._check(record, offset)
            except CorruptFile as error:
                following = self._next_durable(offset)
                if following is None:
                    return
                self._reporter.damage(offset, following, str(error))
                offset = following
                base, data = offset, b""
                yield offset, None
                continue
            offset += record.size
            yield offset, record

    def _next_valid(self, offset: int) -> int | None:
        """Return the offset of the next valid record behind `offset` that was certainly durable, or None."""
        durable = self._durable
        found = [
            segment.start
            for segment in self.raw.files.segments
            if segment.start > offset and (durable is None or segment.start < durable)
        ]
        following = next((start for start in found if self.is_record(start)), None)
        for hint in self.hints[bisect_right(self.hints, offset) :]:
            if following is not None and hint >= following:
                break
            if self.is_record(hint):
                following = hint
                break
        if durable is not None and offset < durable:
            limit = durable + 1 if following is None else min(durable + 1, following)
            for segment in self.raw.files.segments:
                searched = self.search(max(offset + 1, segment.start), min(limit, segment.end))
                if searched is not None:
                    return searched
        return following

    def search(self, offset: int, end: int) -> int | None:
        """Return the first valid record's offset in [offset, end) of one file, found by its magic and own offset."""
        while offset < end:
            data = self.raw.read(offset, min(WINDOW_BYTES, end - offset) + 7)
            at = data.find(RECORD_MAGICS[0][:3], 4)
            while at >= 0:
                if offset + at - 4 < end and data[at : at + 4] in RECORD_MAGICS and self.is_record(offset + at - 4):
                    return offset + at - 4
                at = data.find(RECORD_MAGICS[0][:3], at + 1)
            offset += WINDOW_BYTES
        return None

    def is_record(self, offset: int) -> bool:
        """True if a whole valid record lies at `offset`."""
        head = self.raw.read(offset, 8)
        if len(head) < 8 or head[4:8] not in RECORD_MAGICS:
            return False
        size = SIZE_MAGIC.unpack(head)[0]
        if size < FIXED_BYTES:
            return False
        try:
            self._check(decode_record(self.raw.read(offset, size)), offset)
        except CorruptFile:
            return False
        return True

    def _check(self, record: Record, offset: int) -> None:
        """Raise CorruptFile when a record cannot be the one at `offset`, or may not have been written whole."""
        check_place(record, offset)
        if "\0" in record.properties:
            end = offset + record.size
            if self._durable is None or end > self._durable:
                reason = _unwritten(record.properties.encode(), end)
                if reason is not None and not self._vouches(record):
                    raise CorruptFile(f"record at {offset}: {reason}")


def _usual(walk: Any, data: bytes, at: int, base: int, segment: LogFile) -> UsualRecords | None:
    """Return the records from data[at] on, up to the first that is not usual; None if there are none. base: physical
    offset of data[0]."""
    size = segment.end - segment.start
    if segment.start % size:
        return None  # a file of another size than those before it
    before = walk.taken
    found = walk.walk(data, at, len(data), len(data), base, size, False)
    if found is None:
        return None
    end, last, store_ms, runs = found
    return UsualRecords(data, at, end, walk.taken - before, last, store_ms, runs)


def check_place(record: Record, offset: int) -> None:
    """Raise CorruptFile when a record says that it lies at another offset, or belongs to a queue that cannot exist. The
    CRC covers only the body, and a torn record has zeros in place of its topic."""
    topic = record.topic
    if record.physical_offset != offset:
        raise CorruptFile(f"record at {offset} says it lies at {record.physical_offset}")
    if record.queue_id < 0 or record.queue_offset < 0 or topic in ("", ".", "..") or _NO_NAME.search(topic):
        raise CorruptFile(f"record at {offset} belongs to no queue: {topic!r}-{record.queue_id} {record.queue_offset}")


def _unwritten(properties: bytes, end: int) -> str | None:
    """Return why properties that end at the physical offset `end` may not have been written: their last byte is zero,
    or a whole sector in them. None if they were written."""
    if properties[-1:] == b"\0":
        return "its properties were not written to their end"
    begin = position = end - len(properties)
    while position < end:
        following = min(end, (position // SECTOR_BYTES + 1) * SECTOR_BYTES)
        part = properties[position - begin : following - begin]
        if len(part) == SECTOR_BYTES and not part.strip(b"\0"):
            return "its properties were not written"
        position = following
    return None
