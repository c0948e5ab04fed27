"""A log that is another broker's, byte for byte: records that arrive packed are appended, and dispatched, as they are.

    bytes of the stream -> Incoming: whole records, or a file's end -> ReplicaAppender: log, queue entries, the tick

Only whole records are appended, so that the log ends at one whatever happens; their bodies' CRCs and their places are
looked at before. What cannot be a record ends the copying: nothing is cut, and nothing is written over.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from ..errors import CorruptFile, StoreBroken
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
from .log.log_scan import check_place
from .message_store import MessageStore
from .queues.consume_queue import HOLE, HOLE_SIZE, ConsumeQueue
from .queues.flush_queues import TopicDeletion

logger = logging.getLogger(__name__)

#: Records are appended in pieces of about this size: one such piece is one turn of the I/O thread.
PIECE_BYTES = 256 * 1024


class Piece(NamedTuple):
    """Bytes of the log from `offset` on: whole records of one file, or without any the rest of a file."""

    offset: int
    data: bytes
    records: list[Record]

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class Incoming:
    """Bytes of the log on their way, put together to records."""

    def __init__(self, file_bytes: int) -> None:
        # Constant after construction.
        self._file_bytes = file_bytes
        #: Where the bytes kept here begin; -1 before the first ones came, when they may begin anywhere.
        self.offset = -1
        self._rest = bytearray()

    def begin(self, offset: int) -> None:
        """The next bytes are those at `offset`."""
        self.offset = offset

    def feed(self, offset: int, data: memoryview) -> None:
        """Raises CorruptFile when they are not the next ones."""
        if offset != self.offset + len(self._rest):
            raise CorruptFile(f"bytes of {offset} came where those of {self.offset + len(self._rest)} were due")
        self._rest += data

    def take(self) -> Piece | None:
        """The next piece that is whole; None when more has to come. Raises CorruptFile."""
        rest, at = self._rest, 0
        records: list[Record] = []
        while len(rest) - at >= 8 and at < PIECE_BYTES:
            offset = self.offset + at
            size, magic = SIZE_MAGIC.unpack_from(rest, at)
            left = self._file_bytes - offset % self._file_bytes
            if magic == MAGIC_BLANK:
                if size != left:
                    raise CorruptFile(f"the blank record at {offset} has {size} bytes, its file {left} more")
                if records:
                    break
                return self._cut(size, []) if len(rest) >= size else None
            if magic not in (MAGIC_V1, MAGIC_V2) or not FIXED_BYTES <= size <= left - BLANK_BYTES:
                raise CorruptFile(f"no record at {offset}: size {size}, magic {magic:#010x}")
            if at + size > len(rest):
                break
            record = decode_record(rest, at)
            check_place(record, offset)
            records.append(record)
            at += size
        return self._cut(at, records) if records else None

    def _cut(self, size: int, records: list[Record]) -> Piece:
        piece = Piece(self.offset, bytes(memoryview(self._rest)[:size]), records)
        del self._rest[:size]
        self.offset += size
        return piece


class ReplicaAppender:
    """The appending half of a slave's store. Belongs to remoting-io."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._dispatch = Dispatch(store.settings.delay_levels_ms, {})

    def begin_at(self, start: int) -> None:
        """An empty store begins with the file at `start`, where its master's log does. Raises StoreBroken."""
        store = self._store
        if store.log.written != start:
            store.log.begin_at(start)
            store.publication.begin(start, -1)
            logger.info("replication: this log begins at %d, where the master's does", start)

    def append(self, piece: Piece) -> None:
        """Stage a piece, which is published with this tick. Raises StoreBroken; then nothing of it counts."""
        store, log = self._store, self._store.log
        if log.broken is not None:  # the tick before was lost, and this piece does not follow what is there
            raise StoreBroken(log.broken)
        assert log.stage_base + log.staged == piece.offset, (log.stage_base, log.staged, piece.offset)
        if not piece.records:
            log.roll_copy(piece.data)
            return
        data, done = memoryview(piece.data), 0
        tick = store.tick
        for record in piece.records:
            if self._dispatch.has_entry(record):
                queue = store.queues.find(record.topic, record.queue_id)
                if queue is not None and not record.queue_offset < queue.next_offset:
                    pass
                elif queue is not None and not record.queue_offset:
                    # The topic was deleted there and made again: what came before it is the old one's.
                    begin = record.physical_offset - piece.offset
                    log.append_copy(data[done:begin])
                    done = begin
                    store.forget_topic(TopicDeletion(record.topic))
                    queue = None
                self._enter(record, queue)
            tick.last_offset = record.physical_offset
            if record.store_time_ms > store.store_ms:
                store.store_ms = record.store_time_ms
        log.append_copy(data[done:])

    def _enter(self, record: Record, queue: ConsumeQueue | None) -> None:
        """Give a record its queue entry."""
        offset = record.queue_offset
        if queue is None:
            queue = self._new_queue(record)
        missing = offset - queue.next_offset
        if missing < 0 or missing * FIXED_BYTES > record.physical_offset - self._store.log.min_offset:
            logger.error(
                "replication: no queue entry for the record at %d: offset %d does not follow %r",
                record.physical_offset, offset, queue,
            )  # fmt: skip
            return
        if missing:
            logger.error("replication: %r misses entries up to %d", queue, offset)
        for _ in range(missing):
            queue.append(record.physical_offset, HOLE_SIZE, 0)
        queue.append_entry(self._dispatch.entry(record))
        self._store.tick.touched[queue] = queue.next_offset

    def _new_queue(self, record: Record) -> ConsumeQueue:
        """A queue that begins with a record: the log begins in the midst of it. Apache's filler goes before."""
        queues, offset = self._store.queues, record.queue_offset
        begin = offset - offset % queues.files.entries_per_file
        queue = queues.get_or_create(record.topic, record.queue_id, begin)
        if begin < offset:
            queue.tail += HOLE * (offset - begin)
            queue.next_offset = queue.max_offset = queue.min_offset = offset
        return queue
