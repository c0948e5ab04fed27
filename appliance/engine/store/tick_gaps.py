"""Narrows down which records a step of the wall clock came between.

`WaitingTime` sees a step at its next look, and records stored between two looks may be stamped before or after it.
Their store times do not always show which, as they stand still after the clock was set back. But all records of a tick
come after one reading of the clock, so the ticks around a step are kept here:

    looked ....... | tick ......... | tick ........ | .......... written
                     before_ms        after_ms
                   began            begin
"""

from __future__ import annotations

import math

from ..named_tuple import NamedTuple

#: A tick that begins later than this after the one before, or earlier than that one, is kept.
GAP_MS = 20
#: Ticks that are kept: those of more than a second, the longest time between two looks.
MOST_GAPS = 64


class TickGap(NamedTuple):
    """Two neighbouring ticks that stored records: where their records begin, and the wall clock when they began.
    written_s: monotonic seconds when the later one was written."""

    began: int
    begin: int
    before_ms: int
    after_ms: int
    written_s: float


class TickGaps:
    """Written by remoting-io. Any thread may read: the gaps are replaced whole."""

    def __init__(self) -> None:
        self.gaps: tuple[TickGap, ...] = ()
        self._began = self._end = self._wall_ms = 0

    def start(self, end: int) -> None:
        """Set where the log ends before the first tick."""
        self._began = self._end = end

    def ended(self, wall_ms: int, end: int, written_s: float = math.inf) -> None:
        """Note a tick that stored records up to `end`. wall_ms: the clock when it began. written_s: monotonic seconds,
        later than that."""
        began, begin, before_ms = self._began, self._end, self._wall_ms
        self._began, self._end, self._wall_ms = begin, end, wall_ms
        if not 0 <= wall_ms - before_ms <= GAP_MS:
            self.gaps = (*self.gaps[1 - MOST_GAPS :], TickGap(began, begin, before_ms, wall_ms, written_s))

    def between(self, looked: int, written: int) -> list[TickGap]:
        """Return the gaps before records in [looked, written), in the log's order."""
        return [gap for gap in self.gaps if looked <= gap.begin < written]

    def earliest_ms(self, looked: int, written: int) -> float:
        """Return the earliest reading of the clock that shows for records in [looked, written); inf if none does."""
        return min((gap.after_ms for gap in self.between(looked, written)), default=math.inf)

    def narrowed(self, ms: int, looked: int, written: int, between_ms: float) -> tuple[int, int]:
        """Return a part of [looked, written), records that were stored while the clock was set by `ms`: those before it
        were stamped before that, those behind it after that. All of it if the ticks do not show more.

        between_ms: a reading between those that the clock could show before it was set and those after.
        """
        gaps = [gap for gap in self.gaps if looked <= gap.begin <= written]
        if ms > 0:
            # The clock may be set in the middle of a tick, so the tick before counts as stamped before.
            crossed = [gap.begin for gap in gaps if gap.before_ms <= between_ms < gap.after_ms]
            return looked, crossed[-1] if crossed else written
        # The same, and here it counts as stamped after.
        back = [gap.began for gap in gaps if gap.after_ms < max(gap.before_ms, between_ms)]
        return max(looked, back[0]) if back else looked, written
