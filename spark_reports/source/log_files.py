"""Files of the log, read as they are. Plain Python: neither numpy nor pyspark.

The driver reads a store's structure once and assigns ranges; an executor opens the one file that its range is in.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from appliance.engine.errors import CorruptFile, StartError
from appliance.engine.protocol.record import (
    FIXED_BYTES,
    MAGIC_V1,
    SIZE_MAGIC,
    Record,
    body_length_at,
    decode_record,
)
from appliance.engine.store.log.raw_log import RECORD_MAGICS
from appliance.engine.store_tools.offline_store import OfflineStore, find_store

from .names import topic_of
from .options import OptionError

#: Bytes read at a time in the search for the next record.
WINDOW_BYTES = 4 << 20


@dataclass(frozen=True)
class LogFile:
    """One file of the log. start, end: physical offsets of its first byte and of the byte behind its last."""

    path: str
    start: int
    end: int


class FileGone(Exception):
    """A log file has been deleted since the run was planned."""


class StoreMissing(Exception):
    """The directory of the log is not on this machine at all: the store is not mounted here."""


def open_store(directory: str) -> OfflineStore:
    """Open a data directory or Apache's storePathRootDir. Raises OptionError when there is no store."""
    for left in (2, 1, 0):
        try:
            return find_store(Path(directory))
        except (StartError, OSError) as error:
            # A broker may have deleted a file between its name and its size.
            if not left or not os.path.isdir(directory):
                raise OptionError(f"The option store: {error}") from None
    raise AssertionError


def files_of(store: OfflineStore) -> list[LogFile]:
    return [LogFile(str(one.path), one.start, one.end) for one in store.log.segments]


class LogReader:
    """Bytes and records of one log file. For one task; `close()` when done."""

    def __init__(self, file: LogFile) -> None:
        """Raises FileGone, StoreMissing, OSError."""
        self.file = file
        #: Bytes read so far.
        self.bytes_read = 0
        try:
            self._fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            place = os.path.dirname(file.path)
            if not os.path.isdir(place):
                raise StoreMissing(
                    f"{place} is not there on {socket.gethostname()}. Each executor opens the files of the store under "
                    "the same path."
                ) from None
            raise FileGone(f"{file.path} has been deleted") from None

    def close(self) -> None:
        os.close(self._fd)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes from a physical offset on; fewer if the file ends."""
        found = os.pread(self._fd, max(0, min(size, self.file.end - offset)), offset - self.file.start)
        self.bytes_read += len(found)
        return found

    def is_cut_off(self, end: int) -> bool:
        """True if the file ends before a physical offset."""
        return os.fstat(self._fd).st_size < end - self.file.start

    def record_at(self, offset: int, end: int) -> Record | None:
        """Return the record that begins there, contains that offset, and ends by `end`, None if there is none; its
        body's CRC is not checked."""
        size = self.size_at(offset, end)
        if size is None:
            return None
        try:
            record = decode_record(self.read(offset, size), check_crc=False)
        except CorruptFile:
            return None
        at_home = record.physical_offset == offset and record.queue_id >= 0 and record.queue_offset >= 0
        return record if at_home and topic_of(record.topic.encode()) is not None else None

    def size_at(self, offset: int, end: int) -> int | None:
        """Return the size of a record there, if its parts fill it exactly, else None. Read in small pieces, since a
        damaged size may be that of half a file."""
        head = self.read(offset, FIXED_BYTES + 24)
        if len(head) < FIXED_BYTES or head[4:8] not in RECORD_MAGICS:
            return None
        size, magic = SIZE_MAGIC.unpack_from(head)
        if not FIXED_BYTES <= size <= end - offset:
            return None
        at = body_length_at(head)
        at += 4 + int.from_bytes(head[at : at + 4], "big", signed=True)
        width = 1 if magic == MAGIC_V1 else 2
        if not FIXED_BYTES - 3 <= at < size:
            return None
        at += width + int.from_bytes(self.read(offset + at, width), "big")
        at += 2 + int.from_bytes(self.read(offset + at, 2), "big")
        return size if at == size else None

    def next_record(self, offset: int, end: int) -> int | None:
        """Return the begin of the first record from `offset` on that ends by `end`; None without one."""
        while offset < end:
            data = self.read(offset, min(WINDOW_BYTES, end - offset) + 7)
            if len(data) < FIXED_BYTES:
                return None
            at = data.find(RECORD_MAGICS[0][:3], 4)
            while at >= 0:
                found = offset + at - 4
                if data[at : at + 4] in RECORD_MAGICS and self.record_at(found, end) is not None:
                    return found
                at = data.find(RECORD_MAGICS[0][:3], at + 1)
            offset += WINDOW_BYTES
        return None
