"""Offsets by time: a binary search over a queue's entries, reading store times from the log.

Store times never go back along the log, hence not along a queue either.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from ..errors import QueueBroken
from ..protocol.record import store_time_ms
from .consume_queue import ENTRY, ConsumeQueue

if TYPE_CHECKING:
    from .message_store import MessageStore

#: Up to the store time behind a 20-byte born host.
_HEAD_BYTES = 76


class Boundary(enum.Enum):
    """LOWER: the first message not older than the time. UPPER: the last one not newer."""

    LOWER = "LOWER"
    UPPER = "UPPER"


class TimeSearch:
    """Belongs to one thread, which may wait for the disk."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._files = store.queues.new_files(64)

    def entries(self, queue: ConsumeQueue, offset: int, count: int) -> bytes:
        """Published entries from `offset`; fewer than `count` where a file or the queue ends."""
        return self._store.queues.read_entries(queue, offset, count, self._files)

    def time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time in ms of a queue's message, -1 when its entry or record is gone."""
        queue = self._store.find_queue(topic, queue_id)
        if queue is None:
            return -1
        entry = self.entries(queue, offset, 1)
        if not entry:
            if queue.broken:
                raise QueueBroken(f"the files of {topic}-{queue_id} are being built anew, try again later")
            return -1
        physical, _, _ = ENTRY.unpack(entry)
        head = self._store.log.read(physical, _HEAD_BYTES)
        if len(head) < _HEAD_BYTES:
            return -1
        return store_time_ms(head)

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """Store time of the queue's first message; -1 when it has none."""
        queue = self._store.find_queue(topic, queue_id)
        if queue is None or queue.min_offset >= queue.max_offset:
            return -1
        return self.time_of(topic, queue_id, queue.min_offset)

    def offset_at(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary) -> int:
        """The offset a time leads to, within [min, max]; 0 for an unknown queue.

        LOWER: max when all messages are older. UPPER: the last offset then, and the first when all are newer.
        """
        queue = self._store.find_queue(topic, queue_id)
        if queue is None:
            return 0
        low, high = queue.min_offset, queue.max_offset
        first, end = low, high
        while low < high:
            middle = (low + high) // 2
            stored = self.time_of(topic, queue_id, middle)
            before = stored < time_ms if boundary is Boundary.LOWER else stored <= time_ms
            if before:
                low = middle + 1
            else:
                high = middle
        if boundary is Boundary.LOWER:
            return low
        return max(first, min(low, end) - 1)

    def close(self) -> None:
        self._files.close()
