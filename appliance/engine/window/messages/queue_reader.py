"""Reads entries and records of queues for the window, waiting for the disk in the caller's thread.

The records are checked: each must have the queue and the offset by which it was looked up. If another thread trims the
queue's tail or deletes files meanwhile, the look-up is repeated.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from types import TracebackType

from ...clock import SYSTEM
from ...errors import QueueBroken
from ...protocol.record import FIXED_BYTES, MAGIC_V1, MAGIC_V2, Record, store_time_ms
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE, ConsumeQueue
from ...store.time_search import behind_last_before, first_as_of, seen_as_of

logger = logging.getLogger(__name__)

#: Bytes of a record up to the end of the store time behind a 20-byte born host.
_HEAD_BYTES = 76
_TRIES = 5
#: Bytes of the log that `read_run` takes, and the largest gap between two records that it reads together.
_READ_BYTES, _GAP_BYTES = 256 * 1024, 8 * 1024

Entry = tuple[int, int, int]  # physical offset, size, tag code


class QueueReader:
    """A reader for one request, with its own file descriptors; `with` closes them. Belongs to one thread."""

    def __init__(self, store: MessageStore, descriptors: int = 16) -> None:
        self._store = store
        self._files = store.queues.new_files(descriptors)
        self.read_bytes = 0

    def __enter__(self) -> QueueReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._files.close()

    def first_behind(self, queue: ConsumeQueue, physical: int) -> int:
        """Return the queue's first offset whose record lies at or behind a physical offset."""

        def is_behind(offset: int) -> bool:
            found = self.entries(queue, offset, 1)
            return bool(found) and found[0][0] >= physical

        low = queue.min_offset
        return low + bisect_left(range(low, queue.max_offset), True, key=is_behind)

    def raw_entries(self, queue: ConsumeQueue, offset: int, count: int) -> bytes:
        """Return published entries from `offset` on, in one piece; fewer if a file, the tail or the queue ends.

        remoting-io may be trimming the tail: a read counts only if the tail was whole and the same before and after.
        """
        for _ in range(_TRIES):
            base = queue.tail_base
            wanted = min(count, queue.max_offset - offset)
            if wanted <= 0 or offset < queue.min_offset:
                return b""
            try:
                data = self._store.queues.read_entries(queue, offset, wanted, self._files)
            except OSError as error:
                logger.warning("admin: entries of %r cannot be read at=%d: %s", queue, offset, error)
                return b""
            except QueueBroken:
                return b""
            whole = len(queue.tail) // ENTRY_BYTES >= queue.next_offset - base
            if queue.tail_base == base and (whole or offset < base):
                self.read_bytes += len(data)
                return data
            time.sleep(0.0005)
        return b""

    def entries(self, queue: ConsumeQueue, offset: int, count: int) -> list[Entry]:
        """Return the entries of `raw_entries`, unpacked."""
        data = self.raw_entries(queue, offset, count)
        return list(ENTRY.iter_unpack(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]))

    def span(self, queue: ConsumeQueue, begin: int, end: int) -> list[tuple[int, int, int]]:
        """Return (queue offset, physical offset, size) of all entries in [begin, end) that can be read."""
        found = []
        at = begin
        while at < end:
            part = self.entries(queue, at, end - at)
            if not part:
                at += 1
                if at < queue.min_offset:
                    at = queue.min_offset
                continue
            for physical, size, _ in part:
                found.append((at, physical, size))
                at += 1
        return found

    def stored_at_ms(self, queue: ConsumeQueue, offset: int) -> int | None:
        """Return the store time of one message; None if it is not in the log."""
        for _ in range(_TRIES):
            for physical, size, _ in self.entries(queue, offset, 1):
                if not 0 < size < HOLE_SIZE:
                    return None
                found = self._time_at(physical, queue.queue_id, offset)
                if found is not None:
                    return found
        return None

    def time_at(self, physical: int, queue: ConsumeQueue, offset: int) -> int | None:
        """Return the store time of the message that was seen at a physical offset; None if it has gone."""
        return self._time_at(physical, queue.queue_id, offset)

    def _time_at(self, physical: int, queue_id: int, queue_offset: int) -> int | None:
        head = self._read(physical, _HEAD_BYTES)
        if len(head) < _HEAD_BYTES or int.from_bytes(head[4:8], "big") not in (MAGIC_V1, MAGIC_V2):
            return None
        if int.from_bytes(head[12:16], "big") != queue_id or int.from_bytes(head[20:28], "big") != queue_offset:
            return None
        return store_time_ms(head)

    def _read(self, physical: int, size: int) -> bytes:
        """Read from the log. Empty if the file has just been deleted or cannot be read: a page shows what it can."""
        try:
            data = self._store.log.read(physical, size)
        except OSError as error:
            logger.warning("admin: the log cannot be read at=%d size=%d: %s", physical, size, error)
            return b""
        self.read_bytes += len(data)
        return data

    def bytes_at(self, physical: int, size: int) -> bytes:
        """Return published bytes of the log, in which the caller finds records; fewer at the end of a file or of the
        published part."""
        return self._read(physical, min(size, self._store.published - physical))

    def record(self, queue: ConsumeQueue, offset: int) -> tuple[Record, bytes] | None:
        """Return (record, its bytes) of one message; None if it is not there or cannot be read."""
        for physical, size in self._places(queue, offset):
            found = self.record_at(physical, size)
            if found is not None and self.belongs(found[0], queue, offset):
                return found
        return None

    def without_body(self, queue: ConsumeQueue, offset: int) -> Record | None:
        """As `record`, without the bytes. The body of a long message is not read, and empty."""
        for physical, size in self._places(queue, offset):
            if FIXED_BYTES <= size < HOLE_SIZE:
                found = self._store.records.without_body(physical, size)
                if found is not None and self.belongs(found, queue, offset):
                    return found
        return None

    def _places(self, queue: ConsumeQueue, offset: int) -> Iterator[tuple[int, int]]:
        """Yield (physical offset, size) of the message's entry, read again each time the caller rejects the place."""
        for _ in range(_TRIES):
            for physical, size, _ in self.entries(queue, offset, 1):
                yield physical, size

    @staticmethod
    def belongs(record: Record, queue: ConsumeQueue, offset: int) -> bool:
        return record.queue_offset == offset and record.queue_id == queue.queue_id and record.topic == queue.topic

    def record_at(self, physical: int, size: int) -> tuple[Record, bytes] | None:
        """Return (record, its bytes) at a physical offset; None if there is no record of that size."""
        if not FIXED_BYTES <= size < HOLE_SIZE:
            return None
        found = self._store.records.get(physical, size)
        if found is not None:
            self.read_bytes += size
        return found

    def offset_at(self, queue: ConsumeQueue, time_ms: int) -> int:
        """Return the first offset whose message is not older than the time, within [min, max].

        A message that cannot be read counts as older.
        """
        look = partial(self._look, queue)
        return first_as_of(queue.min_offset, queue.max_offset, look, time_ms, SYSTEM.wall_ms())

    def end_at(self, queue: ConsumeQueue, time_ms: int) -> int:
        """Return the offset behind the last message that is not newer than the time, within [min, max]: the end of the
        span that `offset_at` begins. A message that cannot be read counts as older."""
        seen = seen_as_of(partial(self._look, queue), time_ms, SYSTEM.wall_ms())
        return behind_last_before(queue.min_offset, queue.max_offset, seen, time_ms + 1)

    def _look(self, queue: ConsumeQueue, offset: int) -> tuple[int, int]:
        stored = self.stored_at_ms(queue, offset)
        return offset, -1 if stored is None else stored


def read_run(store: MessageStore, entries: list[Entry], first: int) -> bytes:
    """Return the log from an entry's record on, up to the last of the records that follow closely."""
    start, size, _ = entries[first]
    end = start + size
    for physical, size, _ in entries[first + 1 :]:
        if not 0 < size < HOLE_SIZE or not end <= physical <= end + _GAP_BYTES:
            break
        if physical + size - start > _READ_BYTES:
            break
        end = physical + size
    try:
        return store.log.read(start, end - start) if end <= store.published else b""
    except OSError:
        return b""
