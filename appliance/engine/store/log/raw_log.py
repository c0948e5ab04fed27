"""The log's files read as they are, whatever `written` and `published` say.

For code that has to find out what the log holds: recovery, the repair of queues, tools that inspect a store from
outside. All other code reads what is published, through `RecordReader`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ...disk import Disk
from ...errors import CorruptFile
from ...protocol.record import MAGIC_V1, MAGIC_V2, SIZE_MAGIC, Record, decode_record

WINDOW_BYTES = 4 * 1024 * 1024
ZEROS_BYTES = 1024 * 1024
RECORD_MAGICS = (struct.pack(">I", MAGIC_V1), struct.pack(">I", MAGIC_V2))


class LogFile(Protocol):
    """One open file of the log, with the physical offsets of its first byte and of the byte behind its last one."""

    @property
    def path(self) -> Path: ...
    @property
    def fd(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


class LogFiles(Protocol):
    """Source of the bytes: the running broker's log, or the files of a store that no broker runs."""

    @property
    def segments(self) -> Sequence[LogFile]: ...
    @property
    def min_offset(self) -> int: ...
    def segment_at(self, offset: int) -> LogFile | None: ...


class RawLog:
    """Reads the log's files, never ahead of a file's end. Threads may share it."""

    def __init__(self, files: LogFiles, disk: Disk) -> None:
        self.files = files
        self._disk = disk

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of one file: fewer where it ends, none if no file holds the offset."""
        segment = self.files.segment_at(offset)
        if segment is None or size <= 0:
            return b""
        return self._disk.pread(segment.fd, min(size, segment.end - offset), offset - segment.start)

    def record_at(self, physical: int, size: int) -> Record | None:
        """Return the record at `physical` if its own size and offset agree, else None; the CRC is not checked."""
        try:
            record = decode_record(self.read(physical, size), check_crc=False)
        except CorruptFile:
            return None
        return record if (record.physical_offset, record.size) == (physical, size) else None

    def window(self, offset: int, segment: LogFile) -> bytes:
        """Return bytes from `offset` on that hold at least the whole record there, whatever its size."""
        data = self.read(offset, WINDOW_BYTES)
        if len(data) >= 8 and not is_whole(data, 0) and data[4:8] in RECORD_MAGICS:
            size = SIZE_MAGIC.unpack_from(data)[0]
            if size <= segment.end - offset:
                data = self.read(offset, size)
        return data

    def data_end(self, segment: LogFile, begin: int) -> int:
        """Return the offset behind the last byte of a file from `begin` on that is not zero; `begin` if all are."""
        # Reads end at whole pages, without read-ahead: cached pages look like data to `next_data`, so each read would
        # lead to the next, to the end of the file.
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
    """True if `data` holds the record that begins at data[at] to its end."""
    return len(data) - at >= 8 and len(data) - at >= SIZE_MAGIC.unpack_from(data, at)[0]
