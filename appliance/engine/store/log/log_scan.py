"""The log as recovery reads it: record by record to its end, which is where it is cut.

The scan ends at the first bytes that are no record. When a valid record follows that was certainly durable, the range
between is damage: it is copied to quarantine and stepped over (D15). Otherwise it is a torn tail: copied aside, zeroed.

What was certainly durable: whatever a queue entry in a file names, and everything below the recovery position. In a
store that was never ours, or was left clean, also the first record of a later file.

Zeros in a record's properties may be a sector that was never written. No send is taken whose properties could be
mistaken for that; Apache takes it, and so did we once: there it is a record when something vouches for it.
"""

from __future__ import annotations

import logging
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...errors import CorruptFile
from ...protocol.record import (
    FIXED_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SECTOR_BYTES,
    SIZE_MAGIC,
    Record,
    decode_record,
)
from ..findings import Finding

if TYPE_CHECKING:
    from ..message_store import MessageStore
    from .commit_log import Segment

logger = logging.getLogger(__name__)

WINDOW_BYTES = 4 * 1024 * 1024
_ZEROS_BYTES = 1024 * 1024
#: What no topic's name holds, being a directory's. Apache once took more characters than it does now.
_NO_NAME = re.compile(r"[\x00-\x1f\x7f/]")
_MAGICS = (struct.pack(">I", MAGIC_V1), struct.pack(">I", MAGIC_V2))


class LogScan:
    """One pass over the log."""

    def __init__(
        self, store: MessageStore, durable: int | None, vouches: Callable[[Record], bool] = lambda record: False
    ) -> None:
        """durable: below it every byte was synced; None when that is true of all of it, as far as one knows.

        vouches: whether a record that lies above was synced whole, asked where it looks as if it had not been.
        """
        self._store = store
        self._log = store.log
        self._disk = store.disk
        self._directory = store.paths.quarantine
        self._durable = durable
        self._vouches = vouches
        #: Physical offsets that queue entries name; sorted before the scan.
        self.hints: list[int] = []

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of one file, whatever `written` says."""
        segment = self._log.segment_at(offset)
        if segment is None or size <= 0:
            return b""
        return self._disk.pread(segment.fd, min(size, segment.end - offset), offset - segment.start)

    def settle(self, start: int) -> None:
        """Make what lies behind `start` durable, and read from the disk only.

        A process that died may have left bytes in the page cache that a failed sync never stored.
        """
        for segment in self._log.segments:
            if segment.end > start:
                self._disk.fdatasync(segment.fd)
                self._disk.forget_cached(segment.fd)

    def records(self, offset: int) -> Iterator[tuple[int, Record | None]]:
        """(offset behind it, record) for each record from `offset`; None where only the place moves on."""
        base, data = offset, b""
        while (segment := self._log.segment_at(offset)) is not None:
            if not self._is_whole(data, offset - base):
                base, data = offset, self._window(offset, segment)
            at = offset - base
            if len(data) - at >= 8:
                size, magic = SIZE_MAGIC.unpack_from(data, at)
                if magic == MAGIC_BLANK and size == segment.end - offset:
                    offset = segment.end
                    base, data = offset, b""
                    yield offset, None
                    continue
            try:
                record = decode_record(data, at)
                self._check(record, offset)
            except CorruptFile as error:
                following = self._next_valid(offset)
                if following is None:
                    return
                self._quarantine(offset, following, "damage", str(error))
                offset = following
                base, data = offset, b""
                yield offset, None
                continue
            offset += record.size
            yield offset, record

    @staticmethod
    def _is_whole(data: bytes, at: int) -> bool:
        return len(data) - at >= 8 and len(data) - at >= SIZE_MAGIC.unpack_from(data, at)[0]

    def _window(self, offset: int, segment: Segment) -> bytes:
        """Bytes from `offset` on that hold at least the whole record there, whatever its size."""
        data = self.read(offset, WINDOW_BYTES)
        if len(data) >= 8 and not self._is_whole(data, 0) and data[4:8] in _MAGICS:
            size = SIZE_MAGIC.unpack_from(data)[0]
            if size <= segment.end - offset:
                data = self.read(offset, size)
        return data

    def _next_valid(self, offset: int) -> int | None:
        """Where the next valid record behind `offset` begins that was certainly durable."""
        durable = self._durable
        found = [
            segment.start
            for segment in self._log.segments
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
            for segment in self._log.segments:
                searched = self._search(max(offset + 1, segment.start), min(limit, segment.end))
                if searched is not None:
                    return searched
        return following

    def _search(self, offset: int, end: int) -> int | None:
        """The first valid record that begins in [offset, end) of one file, known by its magic and its own place."""
        while offset < end:
            data = self.read(offset, min(WINDOW_BYTES, end - offset) + 7)
            at = data.find(_MAGICS[0][:3], 4)
            while at >= 0:
                if offset + at - 4 < end and data[at : at + 4] in _MAGICS and self.is_record(offset + at - 4):
                    return offset + at - 4
                at = data.find(_MAGICS[0][:3], at + 1)
            offset += WINDOW_BYTES
        return None

    def is_record(self, offset: int) -> bool:
        """Whether a whole valid record lies at `offset`."""
        head = self.read(offset, 8)
        if len(head) < 8 or head[4:8] not in _MAGICS:
            return False
        size = SIZE_MAGIC.unpack(head)[0]
        if size < FIXED_BYTES:
            return False
        try:
            self._check(decode_record(self.read(offset, size)), offset)
        except CorruptFile:
            return False
        return True

    def _check(self, record: Record, offset: int) -> None:
        """CorruptFile when a record cannot be the one at `offset`, or may not have been written whole."""
        _check_place(record, offset)
        if "\0" in record.properties:
            end = offset + record.size
            if self._durable is None or end > self._durable:
                reason = _unwritten(record.properties.encode(), end)
                if reason is not None and not self._vouches(record):
                    raise CorruptFile(f"record at {offset}: {reason}")

    def _quarantine(self, begin: int, end: int, kind: str, reason: str) -> None:
        """Keep a copy of bytes that are stepped over or cut."""
        disk, directory = self._disk, self._directory
        disk.make_directory(directory)
        path = directory / f"commitlog-{begin:020d}-{end:020d}.{kind}"
        fd = disk.open(path, create=True)
        try:
            position = 0
            while begin + position < end:
                data = self.read(begin + position, min(WINDOW_BYTES, end - begin - position))
                if not data:
                    break
                disk.write_all(fd, data, position)
                position += len(data)
            disk.fsync(fd)
        finally:
            disk.close(fd)
        disk.sync_directory(directory)
        self._store.files.add_finding(
            Finding(self._store.scheduler.wall_ms, kind, self._log.directory.name, begin, end, str(path), reason)
        )
        level = logging.ERROR if kind == "damage" else logging.WARNING
        logger.log(level, "recovery: %s [%d, %d) kept as %s: %s", kind, begin, end, path.name, reason)

    def cut(self, end: int) -> None:
        """Zero what lies behind the end: a later record must never be followed by stale ones."""
        disk = self._disk
        for segment in self._log.segments:
            begin = max(end, segment.start)
            if begin >= segment.end:
                continue
            dirty_end = self._dirty_end(segment, begin)
            if dirty_end == begin:
                continue
            self._quarantine(begin, dirty_end, "torn", "behind the last whole record")
            if begin == segment.start:
                disk.truncate(segment.fd, 0)
                disk.allocate(segment.fd, self._log.segment_bytes)
            else:
                for offset in range(begin, dirty_end, _ZEROS_BYTES):
                    zeros = bytes(min(_ZEROS_BYTES, dirty_end - offset))
                    disk.write_all(segment.fd, zeros, offset - segment.start)
            disk.fdatasync(segment.fd)

    def _dirty_end(self, segment: Segment, begin: int) -> int:
        """Behind the last byte of a file from `begin` on that is not zero; `begin` when there is none."""
        # Reads end at whole pages and bring no more than they ask for: what is cached looks like data, and each read
        # would lead to the next, to the end of the file.
        self._disk.forget_cached(segment.fd)
        self._disk.read_ahead(segment.fd, False)
        dirty_end = offset = begin
        while (offset := segment.start + self._disk.next_data(segment.fd, offset - segment.start)) < segment.end:
            data = self.read(offset, _ZEROS_BYTES - (offset - segment.start) % _ZEROS_BYTES)
            if not data:
                break
            kept = len(data.rstrip(b"\0"))
            if kept:
                dirty_end = offset + kept
            offset += len(data)
        self._disk.read_ahead(segment.fd, True)
        return dirty_end


def _check_place(record: Record, offset: int) -> None:
    """CorruptFile when a record lies elsewhere, or says it belongs where no queue can be: the CRC is of the body only,
    and a torn record has zeros where its topic was."""
    topic = record.topic
    if record.physical_offset != offset:
        raise CorruptFile(f"record at {offset} says it lies at {record.physical_offset}")
    if record.queue_id < 0 or record.queue_offset < 0 or topic in ("", ".", "..") or _NO_NAME.search(topic):
        raise CorruptFile(f"record at {offset} belongs to no queue: {topic!r}-{record.queue_id} {record.queue_offset}")


def _unwritten(properties: bytes, end: int) -> str | None:
    """Why a record's properties, which end at the physical offset `end`, may not have been written: their last byte is
    zero, or all of a sector in them. None: they were."""
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
