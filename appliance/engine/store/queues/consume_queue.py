"""The entries of one (topic, queue id): physical offset and size of each message's record in the commit log.

An entry is 20 bytes: physical offset 8, record size 4, tag code 8 (the Java hash of the tag, sign-extended; in the
schedule topic the delivery time). Entry n is at byte 20n of the queue's stream, which is cut into sparse files of
`mappedFileSizeConsumeQueue` bytes named by their first byte. Source: RocketMQ `ConsumeQueue`.

New entries wait in `tail` until the flush-consumequeue thread has written them (D5):

    0 ... | in files ............ | in the tail ........... |
          ^ min_offset            ^ tail_base    ^ max_offset  ^ next_offset
                                                 published     staged

    tail_base <= max_offset <= next_offset; min_offset <= max_offset
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from functools import lru_cache

from ...hotpath import QueueState

ENTRY_BYTES = 20
ENTRY = struct.Struct(">qiq")
#: Size in an entry that stands for no record. Apache's filler has it, so Apache's recovery steps over RocketBox's, too.
HOLE_SIZE = 0x7FFFFFFF
#: Apache's filler in front of a queue's first entry.
HOLE = ENTRY.pack(0, HOLE_SIZE, 0)


class ConsumeQueue(QueueState):
    """One queue. Owned by remoting-io; other threads may read its numbers."""

    __slots__ = ("broken", "dirty", "recorded", "topic", "trims")

    def __init__(self, topic: str, queue_id: int, offset: int = 0) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = offset
        self.max_offset = offset
        self.next_offset = offset
        self.tail = bytearray()
        self.tail_base = offset
        #: Odd while `trim` runs, so that no other thread pairs a tail with the wrong base.
        self.trims = 0
        self.dirty = False
        #: True while its files lack entries: reads below the tail wait until QueueRepair has rebuilt them.
        self.broken = False
        #: End of the queue's files according to the queue ledger; -1 if it has none. Owned by flush-consumequeue.
        self.recorded = -1

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}-{self.queue_id} [{self.min_offset}, {self.max_offset})>"

    def begin_at(self, offset: int) -> None:
        """Let a queue that has never had an entry begin at `offset`. Parts that wait at the queue keep it."""
        assert not self.tail, self
        self.trims += 1
        self.min_offset = self.max_offset = self.next_offset = self.tail_base = offset
        self.trims += 1

    def append(self, physical_offset: int, size: int, tag_code: int) -> int:
        """Add an entry behind the last one; return its queue offset. Readers see it once it is published."""
        self.tail += ENTRY.pack(physical_offset, size, tag_code)
        offset = self.next_offset
        self.next_offset = offset + 1
        return offset

    def append_entry(self, entry: bytes) -> None:
        """`append` of an entry that is packed already."""
        self.tail += entry
        self.next_offset += 1

    def append_entries(self, entries: bytes, count: int) -> None:
        """`append_entry` of several consecutive entries."""
        self.tail += entries
        self.next_offset += count

    def tail_entries(self, offset: int, count: int) -> bytes:
        """Return published entries from `offset` on from the tail; `offset` must not be below `tail_base`."""
        count = min(count, self.max_offset - offset)
        begin = (offset - self.tail_base) * ENTRY_BYTES
        return bytes(self.tail[begin : begin + count * ENTRY_BYTES])

    def tail_entries_shared(self, offset: int, count: int) -> bytes | None:
        """`tail_entries` for other threads; None if `offset` has moved to the files meanwhile."""
        while True:
            trims = self.trims
            base = self.tail_base
            begin = (offset - base) * ENTRY_BYTES
            found = bytes(self.tail[max(begin, 0) : begin + min(count, self.max_offset - offset) * ENTRY_BYTES])
            if trims & 1 or trims != self.trims:
                time.sleep(0)
                continue
            return found if begin >= 0 else None

    def unwritten(self) -> tuple[int, bytes]:
        """Return (queue offset, entries) of the entries that are published but in no file yet."""
        return self.tail_base, bytes(self.tail[: (self.max_offset - self.tail_base) * ENTRY_BYTES])

    def trim(self, offset: int) -> int:
        """Drop the tail below `offset`, which the files hold; return the bytes dropped."""
        count = offset - self.tail_base
        if count <= 0:
            return 0
        assert offset <= self.max_offset, (self, offset)
        self.trims += 1
        del self.tail[: count * ENTRY_BYTES]
        self.tail_base = offset
        self.trims += 1
        return count * ENTRY_BYTES


def has_zeros(entries: bytes) -> bool:
    """True if there are no entries, or the first or last has size 0: below a queue's end, a file has lost some."""
    end = len(entries) - len(entries) % ENTRY_BYTES
    return not end or entries[8:12] == b"\0\0\0\0" or entries[end - 12 : end - 8] == b"\0\0\0\0"


def unpack_entries(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (physical offset, size, tag code) of each entry."""
    return ENTRY.iter_unpack(data)


def split_entries(data: bytes, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return (physical offsets, sizes) of the first `count` entries, without a Python step per entry."""
    numbers = _flat(count).unpack_from(data)
    return numbers[0::2], numbers[1::2]


@lru_cache(maxsize=1024)
def _flat(count: int) -> struct.Struct:
    return struct.Struct(">" + "qi8x" * count)
