"""Measures how long delayed messages have really waited, whatever the wall clock is set to meanwhile.

An entry of the schedule topic holds its message's due time by the wall clock: store time and delay. After that clock
was set forward, everything would be due at once; after it was set back, messages would wait too long, and those stored
from then on bear a time that stands still (store times never go back, as searches by time rely on it).

So time is counted here on the wall clock less its jumps, `now_ms`. The meaning of an entry's due time depends on when
its record was stored, which follows from its physical offset:

    0 ................. | start ......... | .................. | .................. | checked ...
      an earlier life     jumps so far: 0   the clock jumped     jumps so far: +1 h   not looked at yet
      not after           exact             stored at T or       exact                not known yet
      start + delay                         before: T + delay,
                                            or by the fewer jumps

For an earlier life, and another leader of the set, `ClockSteps` has how far this broker's clock is ahead of theirs.
`look` compares the wall clock with a steady one, often enough that a message stored around a jump is late by less than
a second, and never early. If the machine stands still before a look, the ticks tell when the clock had jumped.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_right
from collections.abc import Callable

from ...clock import Clock
from ...named_tuple import NamedTuple
from ...store.clock_steps import ClockSteps, ahead_of, is_step, slewed_ms
from ...store.tick_gaps import TickGaps

logger = logging.getLogger(__name__)

#: Shortest time between two looks, unless a record is newer than the last one.
MIN_LOOK_S = 0.05
#: Time after a jump in which a record stamped before it may still be on its way to the log.
SETTLE_S = 0.1
#: Store times may be ahead of the wall clock by this, because two threads read it at different moments.
AHEAD_MS = 5
#: Spans kept. When there are more, unsure neighbours are joined: their messages are late by the length of one span.
MOST_SPANS = 4096

#: Grain of the jumps of records around a jump, so that they are few.
_GRAIN_MS = 100


class _Span(NamedTuple):
    """begin: in the log. jumps: before its records were stored; None if unsure, then they were all stored by
    `stored_ms`, after `least` jumps or more."""

    begin: int
    jumps: int | None
    stored_ms: float = 0.0
    least: int = 0


class WaitingTime:
    """Belongs to one thread. All times in ms on the wall clock less its jumps."""

    def __init__(
        self,
        clock: Clock,
        written: Callable[[], int],
        stamped_ms: Callable[[], int],
        steps: ClockSteps,
        gaps: TickGaps,
        on_step: Callable[[int, int, int, float], None] = lambda ms, looked, written, old_ms: None,
    ) -> None:
        """written: up to where records have been put into the log. stamped_ms: the newest store time. steps, gaps: of
        the store. on_step: called with the ms by which the clock was set, the log's end at the looks before and after
        that, and a reading between those that the clock could show before it was set and those after."""
        self._clock = clock
        self._written = written
        self._stamped_ms = stamped_ms
        self._gaps = gaps
        self._on_step = on_step
        # The spans at the start; later ones are in `_spans` below.
        self._earlier = steps.spans
        start = written()
        self._wall, self._steady = self._read()
        self._start_ms = float(self._wall)
        self._jumps = 0
        self._looked = -math.inf
        self._unsure_until = -math.inf
        self._unsure = False
        #: (steady seconds when a jump ended it, the jumps before that): of records that may still come to the log.
        self._former: list[tuple[float, int]] = []
        #: Records from here on were stored after the last look.
        self._checked = start
        self._spans: list[_Span] = [_Span(start, 0)]
        #: The beginnings of the spans.
        self._begins = [start]
        self._start = start

    def _read(self) -> tuple[int, float]:
        """Return (wall ms, steady seconds) of one moment: from the quickest of up to three readings."""
        best = (math.inf, 0, 0.0)
        for _ in range(3):
            before = self._clock.steady()
            wall = self._clock.wall_ms()
            took = self._clock.steady() - before
            if took < best[0]:
                best = (took, wall, before)
            if took < 0.001:
                break
        return best[1], best[2]

    def now_ms(self) -> float:
        """Return the time now. A jump since the last look does not show in it."""
        return self._wall - self._jumps + (self._clock.steady() - self._steady) * 1000

    @property
    def jumps_ms(self) -> int:
        """Ms by which the wall clock had jumped at the last look."""
        return self._jumps

    def look_last(self) -> None:
        """Look once more at the end of a life: the next one cannot see that the clock was set in this one. Does nothing
        where nobody looked before: a follower delivers nothing, and `LeaderClock` notes the steps of its clock."""
        if self._looked > -math.inf:
            self.look(self._written())

    def look(self, physical: int = -1) -> None:
        """Look at both clocks; called at least once a second while anything waits. physical: of a record whose times
        are needed now: if it is newer than the last look, the clocks are read again, however soon that is."""
        if self._clock.steady() - self._looked < MIN_LOOK_S and physical < self._checked:
            return
        # Read first: records below `written`, and stamps up to `stamped`, are older than the readings of the clocks.
        written, stamped = self._written(), self._stamped_ms()
        wall, steady = self._read()
        passed = (steady - self._steady) * 1000
        jump = wall - self._wall - passed
        self._former = [one for one in self._former if one[0] >= self._steady - SETTLE_S]
        if is_step(jump, passed):
            self._former.append((steady, self._jumps))
            self._jumps += round(jump)
            # Of two steps, a small one and a large one, the large one has to be found.
            middle = wall - (jump + passed) / 2
            between = max(middle, wall - jump + slewed_ms(passed)) if jump > 0 else min(middle, self._wall)
            self._on_step(round(jump), self._checked, written, between)
            self._unsure_until = steady + SETTLE_S
            logger.warning(
                "delays: the clock was set %s by %.3f s", "back" if jump < 0 else "forward", abs(jump) / 1000
            )
        # A clock that was set back and forward again shows in the ticks in between, if they stored anything.
        least = self._jumps
        earliest = self._gaps.earliest_ms(self._checked, written)
        if earliest < min(self._wall, wall - passed) - SETTLE_S * 1000:
            least -= math.ceil(wall - earliest)
            self._unsure_until = steady + SETTLE_S
        if stamped > wall + AHEAD_MS:  # store times stand still until the clock has caught up
            self._unsure_until = max(self._unsure_until, steady + SETTLE_S)
        self._wall, self._steady, self._looked = wall, steady, steady
        # One that was set back by less than has passed since the last look does not show in readings alone.
        shown = self._shown(written)
        if any(jumps < self._jumps - SETTLE_S * 1000 for _, jumps in shown):
            self._unsure_until = steady + SETTLE_S
        unsure = steady < self._unsure_until
        if unsure or self._unsure:
            if written > self._checked:
                least = min([least, *(jumps for _, jumps in self._former)])
                self._add(_Span(self._checked, None, self.now_ms(), least))
                # It may have been set back by less than has passed since the last look, too.
                lowest = math.floor(least - min(passed, 1000.0) - SETTLE_S * 1000)
                for begin, jumps in shown:
                    if jumps > self._spans[-1].least + _GRAIN_MS:
                        self._add(_Span(begin, None, self.now_ms(), jumps))
                    elif jumps < self._spans[-1].least:
                        self._add(_Span(begin, None, self.now_ms(), max(lowest, jumps)))
            if not unsure:
                self._add(_Span(written, self._jumps))
        self._unsure = unsure
        self._checked = written

    def _shown(self, written: int) -> list[tuple[int, int]]:
        """Return (begin, jumps) of ticks since the last look: the clock had jumped by at least this when it stamped the
        records from there to the next one. The machine may have stood still for long since then."""
        monotonic, now = self._clock.monotonic(), self.now_ms()
        found, jumps = [], self._jumps
        for gap in reversed(self._gaps.between(self._checked, written)):
            # A machine that was suspended since then was so before the tick, at worst. A clock that was set back in the
            # middle of a tick shows in the next one, or now.
            jumps = min(jumps, gap.after_ms - math.ceil(now - max(0.0, monotonic - gap.written_s) * 1000))
            found.append((gap.begin, jumps))
        return found[::-1]

    def _add(self, span: _Span) -> None:
        if self._spans[-1].begin == span.begin:
            self._spans[-1] = span
        else:
            self._spans.append(span)
        if len(self._spans) > MOST_SPANS:
            self._spans = _joined(self._spans)
        self._begins = [one.begin for one in self._spans]

    def _span_of(self, physical: int) -> _Span:
        return self._spans[bisect_right(self._begins, physical) - 1]

    def is_around_jump(self, physical: int) -> bool:
        """True for a record of which only `jumps_of` tells what the clock had jumped by."""
        return self._start <= physical < self._checked and self._span_of(physical).jumps is None

    def jumps_of(self, physical: int, wall_ms: int) -> int:
        """Return what the wall clock had jumped by, or less, when it showed `wall_ms`, shortly before the record at a
        physical offset around a jump was stored."""
        span = self._span_of(physical)
        return max(span.least, math.floor((wall_ms - span.stored_ms) / _GRAIN_MS) * _GRAIN_MS)

    def jumps_at(self, physical: int) -> int:
        """Return what the wall clock had jumped by when the record at a physical offset was stored; for records around
        a jump, by now. For an earlier life and another leader: as if this clock had been set to that one."""
        if physical < self._start:
            return -ahead_of(self._earlier, physical)
        jumps = self._span_of(physical).jumps
        return self._jumps if jumps is None or physical >= self._checked else jumps

    def due_ms(self, physical: int, due_ms: int, delay_ms: int | None) -> float | None:
        """Return when the message at a physical offset is due whose entry says `due_ms`; None while that is not known.

        delay_ms: of its level, None for a level that is no longer configured.
        """
        if physical >= self._checked:
            return None
        if physical < self._start:
            # Stored in an earlier life. The clock that stamped it may have been ahead of this one, unseen. Then it
            # waits its delay again from the start on, and not until that time comes.
            due = float(due_ms - self.jumps_at(physical))
            return due if delay_ms is None else min(due, self._start_ms + delay_ms)
        span = self._span_of(physical)
        if span.jumps is None:
            latest = span.stored_ms + (delay_ms or 0)
            return latest if delay_ms is None else min(latest, float(due_ms - span.least))
        return float(due_ms - span.jumps)


def _joined(spans: list[_Span]) -> list[_Span]:
    """Return the spans with each two unsure neighbours joined, as unsure as both."""
    found: list[_Span] = []
    single = False
    for span in spans:
        if single and span.jumps is None:
            last = found[-1]
            found[-1] = _Span(last.begin, None, span.stored_ms, min(last.least, span.least))
            single = False
        else:
            found.append(span)
            single = span.jumps is None
    return found
