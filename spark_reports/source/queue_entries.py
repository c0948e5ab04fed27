"""The queues of a store: the places of their messages in the log, by the 20-byte entries in the consume queue files.

An entry in a file means that its record is whole and published: both brokers write it after that. Entries ascend along
the log. Behind a queue's end there are zeros, or entries that a truncation of Apache's left, which name no record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from appliance.engine.errors import CorruptFile
from appliance.engine.protocol.record import decode_record
from appliance.engine.store.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE
from appliance.engine.store_tools.offline_store import OfflineStore

_ENTRIES = np.dtype([("physical", ">i8"), ("size", ">i4"), ("tag", ">i8")])


@dataclass(frozen=True)
class Queue:
    """[first, end): queue offsets of messages that are in the log. begins: physical offset of the first; ends: the one
    behind the last. is_known_below: True if a message before the log's first byte has an entry, so that there are no
    others of the topic before `begins`. Else there may be messages of a deleted topic of the same name."""

    topic: str
    queue_id: int
    first: int
    end: int
    begins: int
    ends: int
    is_known_below: bool

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.queue_id


class Queues:
    """Reads queue files. Belongs to one thread of the driver."""

    def __init__(self, store: OfflineStore) -> None:
        self._store = store

    def all(self) -> list[Queue]:
        """Return the queues that have messages, in the order of topic and id."""
        found = [self._queue(topic, queue_id) for topic, queue_id in sorted(self._store.queues())]
        return [queue for queue in found if queue is not None]

    def _queue(self, topic: str, queue_id: int) -> Queue | None:
        files, per_file = self._store.files, self._store.files.entries_per_file
        numbers = self._store.queue_numbers(topic, queue_id)
        while numbers and not self._has_entry(topic, queue_id, numbers[-1] * per_file):
            numbers.pop()  # made ahead of need, or cut short
        if not numbers:
            return None
        low = numbers[-1]
        while low - 1 in numbers:
            low -= 1
        begin, last = low * per_file, numbers[-1] * per_file

        def entry(offset: int) -> tuple[int, int]:
            raw = files.read(topic, queue_id, offset, 1)
            return ENTRY.unpack(raw)[:2] if len(raw) == ENTRY_BYTES else (0, 0)

        def is_below(offset: int) -> bool:
            physical, size = entry(offset)
            return size == HOLE_SIZE or physical < self._store.log.min_offset

        end = _first(last, last + per_file, lambda offset: entry(offset)[1] <= 0)
        first = _first(begin, end, lambda offset: not is_below(offset))
        if first < end and not self._names_record(queue_id, end - 1, *entry(end - 1)):
            end = _first(first, end, lambda offset: not self._names_record(queue_id, offset, *entry(offset)))
        if first == end:
            return None
        begins, (physical, size) = entry(first)[0], entry(end - 1)
        before = entry(first - 1) if first > begin else (0, 0)
        is_known_below = 0 < before[1] < HOLE_SIZE
        return Queue(topic, queue_id, first, end, begins, physical + size, is_known_below)

    def _has_entry(self, topic: str, queue_id: int, offset: int) -> bool:
        raw = self._store.files.read(topic, queue_id, offset, 1)
        return len(raw) == ENTRY_BYTES and ENTRY.unpack(raw)[1] > 0

    def _names_record(self, queue_id: int, offset: int, physical: int, size: int) -> bool:
        """True if an entry names a whole record that contains this queue and offsets. A crash may leave an entry
        without a record."""
        try:
            record = decode_record(self._store.raw.read(physical, size))
        except CorruptFile:
            return False
        return (record.size, record.queue_id, record.queue_offset, record.physical_offset) == (
            size, queue_id, offset, physical,
        )  # fmt: skip

    def offset_at(self, queue: Queue, physical: int) -> int:
        """Return the first queue offset whose message lies at `physical` or behind it."""

        def is_at(offset: int) -> bool:
            found, size, _ = ENTRY.unpack(self._read(queue, offset, 1))
            return size != HOLE_SIZE and found >= physical

        if physical <= queue.begins:
            return queue.first
        return queue.end if physical >= queue.ends else _first(queue.first, queue.end, is_at)

    def physical_of(self, queue: Queue, offset: int) -> int:
        """Return the physical offset of the message at a queue offset, or the next one behind a hole; `ends` if there
        is none."""
        while offset < queue.end:
            physical, size, _ = ENTRY.unpack(self._read(queue, offset, 1))
            if size != HOLE_SIZE:
                return int(physical)
            offset += 1
        return queue.ends

    def last_physical(self, queue: Queue) -> int:
        """Return the physical offset of the queue's last message."""
        return int(ENTRY.unpack(self._read(queue, queue.end - 1, 1))[0])

    def places(self, queue: Queue, offset: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (physical offsets, sizes) of the messages [offset, end); holes are left out."""
        physicals, sizes = [], []
        while offset < end:
            raw = self._store.files.read(queue.topic, queue.queue_id, offset, end - offset)
            if not raw:
                break  # deleted in between
            found = np.frombuffer(raw, _ENTRIES)
            found = found[(found["size"] > 0) & (found["size"] != HOLE_SIZE)]
            physicals.append(found["physical"].astype(np.int64))
            sizes.append(found["size"].astype(np.int64))
            offset += len(raw) // ENTRY_BYTES
        empty = np.zeros(0, np.int64)
        return np.concatenate([empty, *physicals]), np.concatenate([empty, *sizes])

    def _read(self, queue: Queue, offset: int, count: int) -> bytes:
        """Read entries; zeros for those that were deleted meanwhile."""
        return self._store.files.read(queue.topic, queue.queue_id, offset, count).ljust(count * ENTRY_BYTES, b"\0")


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the first of [low, high) for which `holds` is true, as it is for all behind it; `high` without one."""
    return low + bisect_left(range(low, high), True, key=holds)
