"""Sizes and ages of queues, read from the log and remembered: a message's store time never changes.

A list of 500 topics needs thousands of queues. So each queue is read once: its sizes give the place of its first
message, too. Only the new entries of a queue that grew are read, and only one store time of a topic.
"""

from __future__ import annotations

import time

from ...store.queues.consume_queue import ENTRY_BYTES, HOLE_SIZE, ConsumeQueue, split_entries
from ..messages.queue_reader import QueueReader

#: Queues up to EXACT_ENTRIES long are summed; of longer ones SAMPLE_ENTRIES are sampled in SAMPLE_PLACES places.
EXACT_ENTRIES = 512
SAMPLE_ENTRIES = 64
SAMPLE_PLACES = 4
#: An estimate is made again when a queue has changed by this share.
STALE_SHARE = 0.1
#: Facts kept; the table is emptied beyond it.
FACTS_KEPT = 50_000


class Measures:
    """Any thread: each step on the dicts is one C call, and two threads that find a fact find the same one."""

    def __init__(self, facts_kept: int = FACTS_KEPT) -> None:
        self._facts_kept = facts_kept
        self._times: dict[tuple[ConsumeQueue, int], int] = {}
        self._places: dict[tuple[ConsumeQueue, int], int] = {}
        # queue -> (min offset, max offset, bytes, exact)
        self._sizes: dict[ConsumeQueue, tuple[int, int, int, bool]] = {}

    def stored_at_ms(self, reader: QueueReader, queue: ConsumeQueue, offset: int) -> int | None:
        """Return the store time of a queue's message; None if it is not in the log."""
        key = (queue, offset)
        known = self._times.get(key)
        if known is None:
            place = self._places.get(key)
            if place is not None:
                known = reader.time_at(place, queue, offset)
            if known is None:
                known = reader.stored_at_ms(queue, offset)
            if known is not None:
                if len(self._times) >= self._facts_kept:
                    self._times.clear()
                self._times[key] = known
        return known

    def place(self, reader: QueueReader, queue: ConsumeQueue, offset: int) -> int | None:
        """Return the physical offset of a queue's message; None if it has none."""
        key = (queue, offset)
        known = self._places.get(key)
        if known is None:
            for physical, size, _ in reader.entries(queue, offset, 1):
                if 0 < size < HOLE_SIZE:
                    known = physical
                    self._keep_place(key, physical)
        return known

    def _keep_place(self, key: tuple[ConsumeQueue, int], physical: int) -> None:
        if len(self._places) >= self._facts_kept:
            self._places.clear()
        self._places[key] = physical

    def oldest_at_ms(self, reader: QueueReader, queues: list[ConsumeQueue]) -> int | None:
        """Return the store time of the oldest message of several queues; None if they have none.

        Physical offsets are in the order of store times, so only the time of the lowest one is read.
        """
        firsts: list[tuple[int, int, int]] = []
        for number, queue in enumerate(queues):
            low = queue.min_offset
            if low < queue.max_offset:
                place = self.place(reader, queue, low)
                if place is not None:
                    firsts.append((place, number, low))
        firsts.sort()
        for _, number, low in firsts:
            at = self.stored_at_ms(reader, queues[number], low)
            if at is not None:  # else it has just left the log
                return at
        return None

    def known_oldest(self, queues: list[ConsumeQueue]) -> tuple[bool, int | None]:
        """Return (True if the result is known without reading, the result as of `oldest_at_ms`)."""
        first: tuple[int, int, int] | None = None
        for number, queue in enumerate(queues):
            low = queue.min_offset
            if low < queue.max_offset:
                place = self._places.get((queue, low))
                if place is None:
                    return False, None
                if first is None or place < first[0]:
                    first = (place, number, low)
        if first is None:
            return True, None
        at = self._times.get((queues[first[1]], first[2]))
        return at is not None, at

    def size(self, reader: QueueReader, queue: ConsumeQueue) -> tuple[int, bool]:
        """Return (bytes of a queue's records, True if that is exact)."""
        low, high = queue.min_offset, queue.max_offset
        if low >= high:
            return 0, True
        known = self._sizes.get(queue)
        if known is not None and known[0] == low and known[1] == high:
            return known[2], known[3]
        if known is not None and high - low > EXACT_ENTRIES:
            known_low, known_high, size, _ = known
            count = known_high - known_low
            if abs(low - known_low) + abs(high - known_high) <= count * STALE_SHARE:
                return size * (high - low) // count, False
        if known is not None and known[3] and known[0] == low < known[1] < high and high - low <= EXACT_ENTRIES:
            more, exact = self._measure(reader, queue, known[1], high)
            size = known[2] + more
        else:
            size, exact = self._measure(reader, queue, low, high)
        if len(self._sizes) >= self._facts_kept:
            self._sizes.clear()
        self._sizes[queue] = (low, high, size, exact)
        return size, exact

    def known_size(self, queues: list[ConsumeQueue]) -> int | None:
        """Return the bytes of several queues by earlier measurements; None if one was never measured."""
        total = 0
        for queue in queues:
            if queue.min_offset < queue.max_offset:
                known = self._sizes.get(queue)
                if known is None:
                    return None
                total += known[2] * (queue.max_offset - queue.min_offset) // (known[1] - known[0])
        return total

    def are_known(self, queues: list[ConsumeQueue]) -> bool:
        """True if a row of these queues needs little or no reading."""
        return self.known_size(queues) is not None and self.known_oldest(queues)[0]

    @property
    def count(self) -> int:
        """Number of queues that are remembered."""
        return len(self._sizes)

    def _measure(self, reader: QueueReader, queue: ConsumeQueue, low: int, high: int) -> tuple[int, bool]:
        """Return (bytes of the records of [low, high), True if that is exact); remembers the place of the first one."""
        count = high - low
        if count <= EXACT_ENTRIES:
            total, at = 0, low
            while at < high:
                data = reader.raw_entries(queue, at, high - at)
                got = len(data) // ENTRY_BYTES
                if not got:
                    return total, False
                places, sizes = split_entries(data, got)
                if at == low and 0 < sizes[0] < HOLE_SIZE:
                    self._keep_place((queue, low), places[0])
                total += sum(size for size in sizes if 0 < size < HOLE_SIZE)
                at += got
            return total, True
        total = seen = 0
        for place in range(SAMPLE_PLACES):
            at = low + (count - SAMPLE_ENTRIES) * place // (SAMPLE_PLACES - 1)
            data = reader.raw_entries(queue, at, SAMPLE_ENTRIES)
            got = len(data) // ENTRY_BYTES
            if got:
                places, sizes = split_entries(data, got)
                if not place and 0 < sizes[0] < HOLE_SIZE:
                    self._keep_place((queue, low), places[0])
                total += sum(size for size in sizes if 0 < size < HOLE_SIZE)
                seen += got
        return (total * count // seen if seen else 0), False


class Budget:
    """A time limit for the reads of one request."""

    def __init__(self, milliseconds: float) -> None:
        self._end = time.monotonic() + milliseconds / 1000

    @property
    def spent(self) -> bool:
        return time.monotonic() >= self._end


class Pace(Budget):
    """A budget with rests in between: while Python code runs without a pause, each system call of the I/O thread has to
    wait for the GIL afterwards, however often the GIL is switched."""

    def __init__(self, milliseconds: float, gentle: float) -> None:
        """gentle: time of a rest as a multiple of the work before it; 0 for no rests."""
        super().__init__(milliseconds)
        self._gentle = gentle
        self._began = time.monotonic()

    def rest(self) -> None:
        """Sleep between two pieces of work, each of which should take less than a millisecond."""
        if self._gentle:
            time.sleep((time.monotonic() - self._began) * self._gentle)
            self._began = time.monotonic()
