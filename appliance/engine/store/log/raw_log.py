"""The log's files read as they are, whatever `written` and `published` say.

For those who have to find out what the log holds: recovery, the repair of queues, the tools that look at a store from
outside. Everybody else reads what is published, by way of `RecordReader`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ...errors import CorruptFile
from ...protocol.record import MAGIC_V1, MAGIC_V2, SIZE_MAGIC, Record, decode_record
from ..disk import Disk

WINDOW_BYTES = 4 * 1024 * 1024
ZEROS_BYTES = 1024 * 1024
RECORD_MAGICS = (struct.pack(">I", MAGIC_V1), struct.pack(">I", MAGIC_V2))


class LogFile(Protocol):
    """One file of the log, open; the physical offsets of its first byte and of the byte behind its last one."""

    @property
    def path(self) -> Path: ...
    @property
    def fd(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


class LogFiles(Protocol):
    """Where the bytes come from: the running broker's log, or the files of a store that nobody runs."""

    @property
    def segments(self) -> Sequence[LogFile]: ...
    @property
    def min_offset(self) -> int: ...
    def segment_at(self, offset: int) -> LogFile | None: ...


class RawLog:
    """Reads only, and never ahead of a file's end. May be shared by threads."""

    def __init__(self, files: LogFiles, disk: Disk) -> None:
        self.files = files
        self._disk = disk

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of one file; fewer where it ends, none where no file is."""
        segment = self.files.segment_at(offset)
        if segment is None or size <= 0:
            return b""
        return self._disk.pread(segment.fd, min(size, segment.end - offset), offset - segment.start)

    def record_at(self, physical: int, size: int) -> Record | None:
        """The record of `size` bytes that begins at `physical` and says so itself; its body's CRC is not looked at."""
        try:
            record = decode_record(self.read(physical, size), check_crc=False)
        except CorruptFile:
            return None
        return record if (record.physical_offset, record.size) == (physical, size) else None

    def window(self, offset: int, segment: LogFile) -> bytes:
        """Bytes from `offset` on that hold at least the whole record there, whatever its size."""
        data = self.read(offset, WINDOW_BYTES)
        if len(data) >= 8 and not is_whole(data, 0) and data[4:8] in RECORD_MAGICS:
            size = SIZE_MAGIC.unpack_from(data)[0]
            if size <= segment.end - offset:
                data = self.read(offset, size)
        return data

    def data_end(self, segment: LogFile, begin: int) -> int:
        """Behind the last byte of a file from `begin` on that is not zero; `begin` when there is none."""
        # Reads end at whole pages and bring no more than they ask for: what is cached looks like data, and each read
        # would lead to the next, to the end of the file.
        self._disk.forget_cached(segment.fd)
        self._disk.read_ahead(segment.fd, False)
        end = offset = begin
        while (offset := segment.start + self._disk.next_data(segment.fd, offset - segment.start)) < segment.end:
            data = self.read(offset, ZEROS_BYTES - (offset - segment.start) % ZEROS_BYTES)
            if not data:
                break
            kept = len(data.rstrip(b"\0"))
            if kept:
                end = offset + kept
            offset += len(data)
        self._disk.read_ahead(segment.fd, True)
        return end


def is_whole(data: bytes, at: int) -> bool:
    """Whether the record that begins at data[at], if one does, is all there."""
    return len(data) - at >= 8 and len(data) - at >= SIZE_MAGIC.unpack_from(data, at)[0]
