"""A log copied from another broker byte for byte: records arrive packed, and are appended and dispatched as they are.

    bytes of the stream -> Incoming: whole records, or a file's end -> ReplicaAppender: log, queue entries, the tick

Where the hot path is compiled, usual records come as runs of queue entries (`hotpath/replica.pxi`). The first unusual
one, and all of a part that does not continue its queues, are handled record by record, as in the pure twin.

Only whole records are appended, so that the log always ends at one; their bodies' CRCs and their offsets are checked
before. Bytes that cannot be a record end the copying: nothing is cut, and nothing is overwritten.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from ..errors import CorruptFile, StoreBroken
from ..hotpath import RecordWalk
from ..protocol.record import (
    BLANK_BYTES,
    FIXED_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SIZE_MAGIC,
    Record,
    decode_record,
)
from .dispatch import Dispatch
from .log.log_scan import Run, check_place, checked_records
from .message_store import MessageStore
from .queues.consume_queue import HOLE_SIZE, ConsumeQueue
from .retention.deleted_topics import Begin

logger = logging.getLogger(__name__)

#: Records are appended in pieces of about this size, one piece per turn of the I/O thread.
PIECE_BYTES = 512 * 1024
#: The same limit where each record takes a step of Python.
PURE_PIECE_BYTES = 256 * 1024

#: No queue gets this far; behind it, entries would lie where no file can be.
MAX_QUEUE_OFFSET = 1 << 58


class Runs(NamedTuple):
    """Consecutive usual records, by their queues. begin, end: their bytes in the piece. last: physical offset of the
    last one. store_ms: its store time, the latest of them. A queue has one run at most."""

    begin: int
    end: int
    last: int
    store_ms: int
    runs: list[Run]


class Piece(NamedTuple):
    """Bytes of the log from `offset` on: whole records of one file, or the rest of a file without any."""

    offset: int
    data: bytes
    parts: list[Runs | Record]

    @property
    def end(self) -> int:
        return self.offset + len(self.data)

    @property
    def records(self) -> Iterator[Record]:
        for part in self.parts:
            if isinstance(part, Runs):
                yield from self.records_of(part)
            else:
                yield part

    def records_of(self, part: Runs) -> Iterator[Record]:
        """Yield the records of some runs."""
        return checked_records(self.data, part.begin, part.end)


class Incoming:
    """Assembles received bytes of the log into records."""

    def __init__(self, file_bytes: int) -> None:
        # Constant after construction.
        self._file_bytes = file_bytes
        self._walk = RecordWalk(crc32).walk if RecordWalk is not None else None
        self._piece_bytes = PIECE_BYTES if RecordWalk is not None else PURE_PIECE_BYTES
        #: Physical offset of the first byte kept here; -1 before the first ones came, which may begin anywhere.
        self.offset = -1
        self._rest = bytearray()

    def begin(self, offset: int) -> None:
        """Expect the bytes at `offset` next."""
        self.offset = offset

    def feed(self, offset: int, data: memoryview) -> None:
        """Add received bytes. Raises CorruptFile when they are not the next ones."""
        if offset != self.offset + len(self._rest):
            raise CorruptFile(f"bytes of {offset} came where those of {self.offset + len(self._rest)} were due")
        self._rest += data

    def take(self) -> Piece | None:
        """Return the next whole piece; None if more bytes are needed. Raises CorruptFile."""
        rest, at, most = self._rest, 0, self._piece_bytes
        parts: list[Runs | Record] = []
        while len(rest) - at >= 8 and at < most:
            if self._walk is not None:
                found = self._walk(rest, at, len(rest), most, self.offset, self._file_bytes)
                if found is not None:
                    end, last, store_ms, runs = found
                    parts.append(Runs(at, end, last, store_ms, runs))
                    at = end
                    continue
            offset = self.offset + at
            size, magic = SIZE_MAGIC.unpack_from(rest, at)
            left = self._file_bytes - offset % self._file_bytes
            if magic == MAGIC_BLANK:
                if size != left:
                    raise CorruptFile(f"the blank record at {offset} has {size} bytes, its file {left} more")
                if parts:
                    break
                return self._cut(size, []) if len(rest) >= size else None
            if magic not in (MAGIC_V1, MAGIC_V2) or not FIXED_BYTES <= size <= left - BLANK_BYTES:
                raise CorruptFile(f"no record at {offset}: size {size}, magic {magic:#010x}")
            if at + size > len(rest):
                break
            record = decode_record(rest, at)
            check_place(record, offset)
            if record.queue_offset > MAX_QUEUE_OFFSET:
                raise CorruptFile(f"the record at {offset} says it is number {record.queue_offset} of its queue")
            parts.append(record)
            at += size
        return self._cut(at, parts) if parts else None

    def _cut(self, size: int, parts: list[Runs | Record]) -> Piece:
        piece = Piece(self.offset, bytes(memoryview(self._rest)[:size]), parts)
        del self._rest[:size]
        self.offset += size
        return piece


class CannotPlace(CorruptFile):
    """A record has no place in its queue: the messages before it, or others in its place, are not the expected ones.
    Neither it nor the records behind it were appended."""

    def __init__(self, record: Record, queue: ConsumeQueue) -> None:
        super().__init__(
            f"the record at {record.physical_offset} cannot be placed: it is number {record.queue_offset} of "
            f"{record.topic}-{record.queue_id}, which has [{queue.min_offset}, {queue.next_offset}) here"
        )
        self.physical_offset = record.physical_offset


class ReplicaAppender:
    """The appending half of a slave's store. Belongs to remoting-io."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._dispatch = Dispatch(store.settings.delay_levels_ms, {}, store.queues.begins)
        #: Store time of the last record.
        self._last_ms = store.store_ms

    def begin_at(self, start: int) -> None:
        """Let an empty store begin with the file at `start`, where its master's log begins. Raises StoreBroken."""
        store = self._store
        if store.log.written != start:
            store.log.begin_at(start)
            store.publication.begin(start, -1)
            logger.info("replication: this log begins at %d, where the master's does", start)

    def append(self, piece: Piece) -> None:
        """Stage a piece, which is published with this tick. Raises StoreBroken; then none of it counts. Raises
        CannotPlace; then the records before that one count."""
        log = self._store.log
        if log.broken is not None:  # the last tick was lost, so this piece does not follow the log's end
            raise StoreBroken(log.broken)
        assert log.stage_base + log.staged == piece.offset, (log.stage_base, log.staged, piece.offset)
        if not piece.parts:
            log.roll_copy(piece.data)
            return
        data, done = memoryview(piece.data), 0
        for part in piece.parts:
            if not isinstance(part, Runs):
                done = self._append_record(piece, part, done)
            elif self._append_runs(part):
                first = next(piece.records_of(part))
                self._stored_at(first.physical_offset, first.store_time_ms, part.store_ms)
            else:
                for record in piece.records_of(part):
                    done = self._append_record(piece, record, done)
        log.append_copy(data[done:])

    def _append_runs(self, part: Runs) -> bool:
        """Give usual records their entries, all or none; False if they do not continue a queue."""
        store = self._store
        find = store.queues.find
        found = [find(topic, queue_id) for topic, queue_id, _, _, _ in part.runs]
        begin_of = store.queues.begin_of
        for queue, (topic, queue_id, first, _, _) in zip(found, part.runs, strict=True):
            if (queue.next_offset if queue is not None else 0) != first:
                return False
            if queue is None and begin_of(topic, queue_id):
                return False
        touched = store.tick.touched
        for queue, (topic, queue_id, _, count, entries) in zip(found, part.runs, strict=True):
            if queue is None:
                queue = store.queues.get_or_create(topic, queue_id)
            queue.append_entries(entries, count)
            touched[queue] = queue.next_offset
        store.tick.last_offset = part.last
        if part.store_ms > store.store_ms:
            store.store_ms = part.store_ms
        return True

    def _append_record(self, piece: Piece, record: Record, done: int) -> int:
        """Give one record its entry. done: bytes of the piece that are staged; returns the new number."""
        store = self._store
        if self._dispatch.has_entry(record):
            queue = store.queues.find(record.topic, record.queue_id)
            if queue is None or record.queue_offset != queue.next_offset:
                begin = record.physical_offset - piece.offset
                store.log.append_copy(memoryview(piece.data)[done:begin])
                done = begin
                self._place(record, queue)
            else:
                self._enter(record, queue)
        store.tick.last_offset = record.physical_offset
        self._stored_at(record.physical_offset, record.store_time_ms, record.store_time_ms)
        if record.store_time_ms > store.store_ms:
            store.store_ms = record.store_time_ms
        return done

    def _stored_at(self, physical: int, first_ms: int, last_ms: int) -> None:
        """Note records from `physical` on, whose store times ascend from first_ms to last_ms."""
        if first_ms < self._last_ms:
            self._store.time_order.goes_back(physical)
        self._last_ms = last_ms

    def _place(self, record: Record, queue: ConsumeQueue | None) -> None:
        """Give a record that is not the next of its queue its entry; the records before it are staged. Raises
        CannotPlace."""
        store, offset = self._store, record.queue_offset
        begin = store.queues.begins_of(record.topic).get(record.queue_id)
        if (queue is not None and not offset) or (begin is not None and offset < begin.offset):
            # An Apache broker deleted the topic, and it was made again: the queue here belonged to the old one.
            logger.warning(
                "replication: %s-%d begins anew with the record at %d, and had %r",
                record.topic, record.queue_id, record.physical_offset, queue,
            )  # fmt: skip
            if queue is None or not offset:
                store.begin_queue_anew(record.topic, record.queue_id)
                queue = None
        if queue is None or store.queues.is_unused(record.topic, record.queue_id):
            self._enter(record, self._new_queue(record))
            return
        missing = offset - queue.next_offset
        if missing < 0 or missing * FIXED_BYTES > record.physical_offset - store.log.min_offset:
            raise CannotPlace(record, queue)
        logger.error("replication: %r misses entries up to %d", queue, offset)
        for _ in range(missing):
            queue.append(record.physical_offset, HOLE_SIZE, 0)
        self._enter(record, queue)

    def _enter(self, record: Record, queue: ConsumeQueue) -> None:
        queue.append_entry(self._dispatch.entry(record))
        self._store.tick.touched[queue] = queue.next_offset

    def _new_queue(self, record: Record) -> ConsumeQueue:
        """Return a queue that begins with a record, since the log begins in the middle of the queue."""
        queues, offset = self._store.queues, record.queue_offset
        if offset:
            queues.take_begins({record.topic: {record.queue_id: Begin(offset, record.physical_offset)}})
        return queues.begin_unused(record.topic, record.queue_id, offset)
