"""Reads one file of the log, record by record. Plain Python: the reference for the data source.

Bytes are a record if they contain their own physical offset and a valid queue; bodies are not compared with their CRC,
since they are not used. Other bytes are corrupt, up to the next record in the same file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from appliance.engine.errors import CorruptFile
from appliance.engine.protocol.record import FIXED_BYTES, MAGIC_BLANK, SIZE_MAGIC, Record, decode_record
from appliance.engine.store.log.raw_log import RECORD_MAGICS

from ..source import names

WINDOW_BYTES = 4 << 20


class Part(NamedTuple):
    """A file of the log, to be read from its `start` to `end`: the file's end, or the log's at T0. Physical offsets."""

    path: str
    start: int
    end: int
    file_end: int


class Range(NamedTuple):
    """Physical offsets [begin, end) that could not be read. kind: "gap" (deleted, or cut off) or "corrupt"."""

    kind: str
    begin: int
    end: int


class OneFile:
    """For one thread; `close()` when done."""

    def __init__(self, part: Part) -> None:
        """Open the file. Raises OSError."""
        self.part = part
        self._fd = os.open(part.path, os.O_RDONLY | os.O_CLOEXEC)
        self._base, self._data = part.start, b""

    def close(self) -> None:
        os.close(self._fd)

    def records(self, unread: list[Range]) -> Iterator[Record]:
        """Yield the records of the part. Ranges without records are added to `unread`. Raises OSError."""
        part = self.part
        offset = part.start
        while offset < part.end:
            record = self.record_at(offset)
            if record is not None:
                yield record
                offset += record.size
                continue
            size, magic = SIZE_MAGIC.unpack(self._bytes(offset, 8).ljust(8, b"\0"))
            if magic == MAGIC_BLANK and size == part.file_end - offset:
                return
            following = self._next_record(offset + 1)
            if following is None:
                is_cut_off = os.fstat(self._fd).st_size < part.end - part.start
                unread.append(Range("gap" if is_cut_off else "corrupt", offset, part.end))
                return
            unread.append(Range("corrupt", offset, following))
            offset = following

    def record_at(self, offset: int) -> Record | None:
        """Return the record that begins there and ends within the part, None if there is none."""
        at = offset - self._base
        data = self._data
        if not 0 <= at <= len(data) - 8 or SIZE_MAGIC.unpack_from(data, at)[0] > len(data) - at:
            head = self._bytes(offset, 8)
            if len(head) < 8 or head[4:] not in RECORD_MAGICS:
                return None
            size = SIZE_MAGIC.unpack(head)[0]
            if not FIXED_BYTES <= size <= self.part.end - offset:
                return None
            self._base, self._data = offset, self._bytes(offset, max(size, WINDOW_BYTES))
            at, data = 0, self._data
        try:
            record = decode_record(data, at, check_crc=False)
        except CorruptFile:
            return None
        return record if _is_at_home(record, offset) and offset + record.size <= self.part.end else None

    def _next_record(self, offset: int) -> int | None:
        """Return the physical offset, `offset` or later, of the next record; None if there is none in the part."""
        while offset < self.part.end:
            data = self._bytes(offset, WINDOW_BYTES + 7)
            if len(data) < FIXED_BYTES:
                return None
            at = data.find(RECORD_MAGICS[0][:3], 4)
            while at >= 0:
                if data[at : at + 4] in RECORD_MAGICS and self.record_at(offset + at - 4) is not None:
                    return offset + at - 4
                at = data.find(RECORD_MAGICS[0][:3], at + 1)
            offset += WINDOW_BYTES
        return None

    def _bytes(self, offset: int, size: int) -> bytes:
        """Read bytes; fewer if the part or the file ends."""
        return os.pread(self._fd, max(0, min(size, self.part.end - offset)), offset - self.part.start)


def _is_at_home(record: Record, offset: int) -> bool:
    """True if a record contains this physical offset, and a valid queue."""
    is_here = record.physical_offset == offset
    return is_here and record.queue_id >= 0 and record.queue_offset >= 0 and names.may_be(record.topic)
