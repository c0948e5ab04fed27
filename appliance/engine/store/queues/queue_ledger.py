"""State of all queue files in one file of RocketBox, so that a start need not look into each of them.

DATA/rocketbox/queue-ledger-<generation>: a header, then a record for each queue whose offsets moved and for each
deleted topic. Every round of flush-consumequeue appends to it after syncing the queue files. The recovery position
names the generation, the length and the CRC of all bytes below it: bytes behind that length do not count, and none do
if the CRC differs. A file several times larger than needed is rewritten as the next generation; the old one is deleted
when a recovery position names the new one. docs/formats/queue-ledger.md has the layout.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from pathlib import Path

from zlib_ng.zlib_ng import crc32

from ...disk import Disk
from ...named_tuple import NamedTuple
from ..paths import StorePaths
from .consume_queue import ConsumeQueue
from .consume_queue_table import ConsumeQueueTable

logger = logging.getLogger(__name__)

MAGIC = b"RBQL"
VERSION = 1
HEADER = struct.Struct(">4sIq")  # magic, version, bytes of a queue file
#: kind, length of the topic, queue id, minimum offset, offset behind the last entry in the files; then the topic.
RECORD = struct.Struct(">BHIqq")
WHOLE, BROKEN, DELETED = 1, 2, 3
PREFIX = "queue-ledger-"

#: The file is rewritten when it exceeds this many bytes and this multiple of the bytes needed.
LARGE_BYTES = 4 * 1024 * 1024
LARGE_RATIO = 3
_PIECE_BYTES = 1024 * 1024
_JOINED = 5000  # records joined in one call, so that it does not hold the GIL long


class LedgerPlace(NamedTuple):
    """The part of a ledger that counts. generation 0: none."""

    generation: int
    length: int
    crc: int


NOWHERE = LedgerPlace(0, 0, 0)


class QueueLedger:
    """Owned by recovery, then by flush-consumequeue."""

    def __init__(self, paths: StorePaths, disk: Disk, file_bytes: int) -> None:
        self._directory = paths.own
        self._disk = disk
        self._file_bytes = file_bytes
        self._fd = -1
        self._place = NOWHERE
        self._pending: list[bytes] = []
        #: Sum of the recorded ends of all queues.
        self.entries = 0
        #: True if it has to be rewritten: there is none that can be trusted, or a write failed.
        self.void = True
        self._live_bytes = 0

    def _path(self, generation: int) -> Path:
        return self._directory / f"{PREFIX}{generation:08d}"

    # --- loading

    def load(self, place: LedgerPlace, queues: ConsumeQueueTable) -> bool:
        """Fill the table from the ledger at `place`; False, with nothing filled, if the ledger does not match it."""
        if place.generation <= 0 or place.length < HEADER.size:
            return False
        try:
            fd = self._disk.open(self._path(place.generation))
        except OSError as error:
            logger.warning("queue ledger: cannot be opened: %s", error)
            return False
        data = _read(self._disk, fd, place)
        if data is None or HEADER.unpack_from(data) != (MAGIC, VERSION, self._file_bytes):
            logger.warning("queue ledger: generation %d is not what it was", place.generation)
            self._disk.close(fd)
            return False
        self._fill(data, queues)
        self._fd, self._place, self.void = fd, place, False
        return True

    def _fill(self, data: bytes, queues: ConsumeQueueTable) -> None:
        at, end = HEADER.size, len(data)
        unpack, size = RECORD.unpack_from, RECORD.size
        topic, raw = "", b""
        while at < end:
            kind, length, queue_id, low, high = unpack(data, at)
            at += size + length
            if data[at - length : at] != raw:
                raw = data[at - length : at]
                topic = raw.decode()
            if kind == DELETED:
                self._forget(topic, queues.remove_topic(topic))
                continue
            queue = queues.find(topic, queue_id)
            if queue is None:
                queue = queues.get_or_create(topic, queue_id)
                self._live_bytes += size + length
            self.entries += high - max(queue.recorded, 0)
            queue.min_offset = low
            queue.max_offset = queue.next_offset = queue.tail_base = queue.recorded = high
            queue.broken = kind == BROKEN

    def _forget(self, topic: str, queues: list[ConsumeQueue]) -> None:
        for queue in queues:
            self.entries -= max(queue.recorded, 0)
            self._live_bytes -= RECORD.size + len(topic.encode()) if queue.recorded >= 0 else 0

    def reset(self) -> None:
        """Discard what was loaded."""
        self.close()
        self.entries = self._live_bytes = 0
        self._pending.clear()
        self.void = True

    # --- noting

    def note(self, queue: ConsumeQueue, end: int) -> None:
        """Note that the files hold, synced, all entries of a queue below `end`. Counts with the next `save`."""
        record = _pack(queue, end)
        if queue.recorded < 0:
            self._live_bytes += len(record)
        self.entries += end - max(queue.recorded, 0)
        queue.recorded = end
        self._pending.append(record)

    def drop(self, topic: str, queues: list[ConsumeQueue]) -> None:
        """Note that a topic's queues and their files were deleted."""
        self._forget(topic, queues)
        raw = topic.encode()
        self._pending.append(RECORD.pack(DELETED, len(raw), 0, 0, 0) + raw)

    @property
    def place(self) -> LedgerPlace:
        """Place of the last `save`."""
        return self._place

    # --- saving

    def save(self, queues: list[ConsumeQueue]) -> LedgerPlace:
        """Make the notes durable; return the place that a recovery position has to name.

        queues: all queues, in case the ledger is rewritten. After an OSError the next save writes a new file.
        """
        try:
            if self.void or self._place.length > max(LARGE_BYTES, LARGE_RATIO * self._live_bytes):
                self._place = self._rewrite(queues)
            elif self._pending:
                self._place = self._append()
        except OSError:
            self.void = True
            raise
        self.void = False
        return self._place

    def _append(self) -> LedgerPlace:
        generation, length, crc = self._place
        for piece in _pieces(iter(self._pending)):
            self._disk.write_all(self._fd, piece, length)
            length += len(piece)
            crc = crc32(piece, crc)
        self._disk.fdatasync(self._fd)
        self._pending.clear()
        return LedgerPlace(generation, length, crc)

    def _rewrite(self, queues: list[ConsumeQueue]) -> LedgerPlace:
        """Write the next generation, from the ends of all queues' files as they are now."""
        generation = max((self._place.generation, *self._generations())) + 1
        fd = self._disk.open(self._path(generation), create=True)
        try:
            self._disk.truncate(fd, 0)
            data = HEADER.pack(MAGIC, VERSION, self._file_bytes)
            self._disk.write_all(fd, data, 0)
            length, crc = len(data), crc32(data)
            filed = [queue for queue in queues if queue.tail_base > 0]
            for piece in _pieces(_pack(queue, queue.tail_base) for queue in filed):
                self._disk.write_all(fd, piece, length)
                length += len(piece)
                crc = crc32(piece, crc)
            self._disk.fsync(fd)
            self._disk.sync_directory(self._directory)
        except OSError:
            self._disk.close(fd)
            raise
        self.close()
        self._fd = fd
        self._pending.clear()
        self.entries = 0
        for queue in filed:
            queue.recorded = queue.tail_base
            self.entries += queue.tail_base
        self._live_bytes = length - HEADER.size
        return LedgerPlace(generation, length, crc)

    def settled(self) -> None:
        """Delete older files, since a recovery position names the last save. One that stays does no harm."""
        for generation in self._generations():
            if generation != self._place.generation:
                try:
                    self._disk.unlink(self._path(generation))
                except OSError as error:
                    logger.warning("queue ledger: an old one stays: %s", error)

    def _generations(self) -> list[int]:
        names = [name.removeprefix(PREFIX) for name in self._disk.names(self._directory) if name.startswith(PREFIX)]
        return [int(name) for name in names if name.isascii() and name.isdigit()]

    def close(self) -> None:
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1


def _read(disk: Disk, fd: int, place: LedgerPlace) -> bytes | None:
    """Return the bytes that count; None if length or CRC differs."""
    pieces, crc = [], 0
    for position in range(0, place.length, _PIECE_BYTES):
        piece = disk.pread(fd, min(_PIECE_BYTES, place.length - position), position)
        crc = crc32(piece, crc)
        pieces.append(piece)
    data = b"".join(pieces)
    return data if len(data) == place.length and crc == place.crc else None


def ledger_matches(place: LedgerPlace, paths: StorePaths, disk: Disk) -> bool:
    """True if the ledger matches a recovery position. For tools that inspect a store from outside."""
    try:
        fd = disk.open(paths.own / f"{PREFIX}{place.generation:08d}", read_only=True)
    except OSError:
        return False
    try:
        return _read(disk, fd, place) is not None
    finally:
        disk.close(fd)


def queues_in(place: LedgerPlace, paths: StorePaths, disk: Disk) -> ConsumeQueueTable | None:
    """Return the queues of a recovery position's ledger; None if it does not match. For tools, as above; the caller
    closes the table."""
    try:
        fd = disk.open(paths.own / f"{PREFIX}{place.generation:08d}", read_only=True)
    except FileNotFoundError:
        return None
    try:
        data = _read(disk, fd, place)
    finally:
        disk.close(fd)
    if data is None or len(data) < HEADER.size or HEADER.unpack_from(data)[:2] != (MAGIC, VERSION):
        return None
    file_bytes = HEADER.unpack_from(data)[2]
    queues = ConsumeQueueTable(paths, disk, file_bytes, descriptors=16)
    QueueLedger(paths, disk, file_bytes)._fill(data, queues)
    return queues


def _pack(queue: ConsumeQueue, end: int) -> bytes:
    raw = queue.topic.encode()
    kind = BROKEN if queue.broken else WHOLE
    return RECORD.pack(kind, len(raw), queue.queue_id, queue.min_offset, end) + raw


def _pieces(records: Iterator[bytes]) -> Iterator[bytes]:
    part: list[bytes] = []
    for record in records:
        part.append(record)
        if len(part) == _JOINED:
            yield b"".join(part)
            part.clear()
    if part:
        yield b"".join(part)
