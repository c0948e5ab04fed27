"""Counts of moves of one thing in each of the last samples.

Most things of a large broker move seldom, and a few numbers are enough for them. Only a thing that moves often has a
ring with a place for every sample.
"""

from __future__ import annotations

from array import array

from .day_moves import DayMoves

#: Samples kept: ten minutes.
SLOTS = 600
#: Samples with moves that are kept without a ring.
FEW = 8
_MOST = 0xFFFFFFFF


class RecentMoves:
    """Written by one sample at a time, read by any thread. Sample n is in slot n % SLOTS of the ring.

    moved_at: monotonic seconds of its last move, 0 before the first. few: (sample, moves) one after the other, oldest
    first; replaced whole. While there is a ring there are no few. day: None before the first move.
    """

    __slots__ = ("day", "few", "last", "moved_at", "pending", "ring", "total")

    def __init__(self) -> None:
        self.ring: array[int] | None = None
        self.few: array[int] | None = None
        self.day: DayMoves | None = None
        self.pending = 0
        #: Moves since the start, without the pending ones.
        self.total = 0
        #: The sample of the last move; -1 before the first.
        self.last = -1
        self.moved_at = 0.0

    @property
    def resting(self) -> bool:
        """True if nothing moved within the samples kept."""
        return self.ring is None and self.few is None

    def take(self, sample: int, now_s: int = 0) -> None:
        """Count the pending moves in this sample."""
        if self.day is None:
            self.day = DayMoves()
        self.day.add(now_s, self.pending)
        moved = min(self.pending, _MOST)
        self.total += self.pending
        self.pending = 0
        self.last = sample
        ring = self.ring
        if ring is not None:
            ring[sample % SLOTS] = moved
            return
        few = self.few or array("I")
        if len(few) < 2 * FEW:
            self.few = few + array("I", (sample, moved))
            return
        ring = array("I", bytes(4 * SLOTS))
        for number, count in zip(few[0::2], few[1::2], strict=True):
            if number > sample - SLOTS:
                ring[number % SLOTS] = count
        ring[sample % SLOTS] = moved
        self.ring = ring
        self.few = None

    def rest(self) -> None:
        """Drop all counts: nothing moved within the samples kept."""
        self.ring = self.few = None

    def moved(self, count: int, samples: int = SLOTS) -> int:
        """Return the moves in the last `samples` of `count` samples taken."""
        assert 0 <= samples <= SLOTS, "the ring has no older samples"
        ring = self.ring
        if ring is not None:
            end = (count - 1) % SLOTS + 1
            return sum(ring[end - samples : end]) if end >= samples else sum(ring[:end]) + sum(ring[end - samples :])
        few = self.few
        if few is None:
            return 0
        return sum(moves for number, moves in zip(few[0::2], few[1::2], strict=True) if number >= count - samples)

    def add_to(self, sums: list[int], count: int) -> None:
        """Add the moves of each slot to `sums`, those of the last SLOTS of `count` samples."""
        ring, few = self.ring, self.few
        if ring is not None:
            sums[:] = map(int.__add__, sums, ring)
        elif few is not None:
            for number, moves in zip(few[0::2], few[1::2], strict=True):
                if number >= count - SLOTS:
                    sums[number % SLOTS] += moves
