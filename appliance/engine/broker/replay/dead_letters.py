"""Reads dead letters by their numbers in a job, whatever became of them meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from ...protocol.names import DLQ_PREFIX
from ...protocol.record import Record
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ENTRY_BYTES, HOLE_SIZE, unpack_entries
from ...store.record_reader import Missing
from .job import Numbering, Result, Span

#: Entries read at a time.
CHUNK = 256


class DeadLetterReader:
    """The dead letters of one job's spans. Belongs to one thread; `with` closes its descriptors."""

    def __init__(self, store: MessageStore, group: str, spans: tuple[Span, ...]) -> None:
        self._store = store
        self._topic = DLQ_PREFIX + group
        self._numbering = Numbering(spans)
        self._files = store.queues.new_files(4)

    def __enter__(self) -> DeadLetterReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._files.close()

    def read(self, begin: int, end: int) -> Iterator[tuple[int, Record | Result]]:
        """Yield (number, the record or the reason why there is none) for the messages [begin, end), in order.

        Raises QueueBroken while the queue's files are being rebuilt, OSError when they cannot be read.
        """
        for first, span in self._numbering.pieces(begin, end):
            at = span.begin
            while at < span.end:
                count = min(span.end - at, CHUNK)
                for index, found in enumerate(self._piece(span.queue_id, at, count)):
                    yield first + at - span.begin + index, found
                at += count

    def _piece(self, queue_id: int, begin: int, count: int) -> Iterator[Record | Result]:
        store, done = self._store, 0
        while done < count:
            queue, at = store.find_queue(self._topic, queue_id), begin + done
            if queue is None or at < queue.min_offset or at >= queue.max_offset:
                yield Result.GONE
                done += 1
                continue
            data = store.queues.read_entries(queue, at, count - done, self._files)
            entries = list(unpack_entries(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]))
            if not entries:  # deleted between the look and the read
                yield Result.GONE
                done += 1
            for physical, size, _ in entries:
                yield self._record(physical, size, queue_id, begin + done)
                done += 1

    def _record(self, physical: int, size: int, queue_id: int, offset: int) -> Record | Result:
        if not 0 < size < HOLE_SIZE:
            return Result.UNREADABLE
        found = self._store.records.find(physical, size)
        if isinstance(found, Missing):
            return Result.GONE if found is Missing.EXPIRED else Result.UNREADABLE
        record = found.record
        if (record.topic, record.queue_id, record.queue_offset) != (self._topic, queue_id, offset):
            return Result.UNREADABLE
        return record
