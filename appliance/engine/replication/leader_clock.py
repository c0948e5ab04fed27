"""How far a follower's wall clock is ahead of its leader's, as well as questions and answers can tell.

The leader says what its clock shows while it answers, so its look lies between the question and the answer:

    own clock before the question - what the leader said  <=  ahead  <=  own clock behind the answer - what it said

All looks hold at once while nobody sets either clock; a few are kept, and what they have in common counts. Where 0 is
possible the clocks agree. Else the most that is possible counts: what the leader stored comes a round trip late
rather than early, should this member lead next. `ClockSteps` keeps it for that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ..clock import Clock
from ..store.clock_steps import STEP_MS, ClockSteps, is_step

logger = logging.getLogger(__name__)

#: Looks that are kept, a second apart: crystals differ by less than a ms in that time.
MOST_LOOKS = 8
#: A wall clock in ms is cut off.
_ROUNDED_MS = 1


class _Moment(NamedTuple):
    wall_ms: int
    steady: float


class LeaderClock:
    """Of one leader. Belongs to the thread that asks it."""

    def __init__(
        self, clock: Clock, steps: ClockSteps, written: Callable[[], int], log_begin: Callable[[], int]
    ) -> None:
        """steps: of this store. written: where its log ends."""
        # Constant after construction.
        self._clock = clock
        self._steps = steps
        self._written = written
        self._log_begin = log_begin
        self._last: _Moment | None = None
        #: (least, most) that this clock may be ahead.
        self._looks: list[tuple[int, int]] = []
        #: Where the records begin that this leader stamps by the clock that it has now; -1 before the first answer.
        self._begin = -1
        #: Where this log ended when the leader answered last.
        self._looked = 0

    def moment(self) -> _Moment:
        """To be taken before a question, for `said`."""
        return _Moment(self._clock.wall_ms(), self._clock.steady())

    def said(self, asked: _Moment, leader_ms: int, epoch_start: int, leader_end: Callable[[], int]) -> None:
        """The leader answered. epoch_start: from there on it stamps what is in the log. leader_end: asks it where its
        log ends now; what that raises leaves all as it was."""
        now, written = self.moment(), self._written()
        self._look_at_own(asked)
        if self._look_at_own(now):  # set between question and answer: the next one tells
            return
        look = asked.wall_ms - leader_ms - _ROUNDED_MS, now.wall_ms - leader_ms + _ROUNDED_MS
        looks = [*self._looks[1 - MOST_LOOKS :], look]
        least, most = _common(looks)
        was_set = least - most > STEP_MS
        if least > most:  # one of the two is slewed, or was set
            looks, (least, most) = [look], look
        known = self._steps.ahead_ms(max(self._begin, written))
        if was_set:
            # What it stored since its last answer was stamped before it was set or after, on its way here or not: it
            # counts as what makes it later, as nothing may come early.
            self._begin = max(epoch_start, self._looked if most > known else leader_end())
        elif self._begin < 0:
            self._begin = max([epoch_start, *(one.begin for one in self._steps.spans)])
            known = self._steps.ahead_ms(max(self._begin, written))
        self._looks, self._looked = looks, written
        if not least <= known <= most + STEP_MS:
            ahead_ms = 0 if least <= 0 <= most else most
            logger.warning(
                "replication: this wall clock is ahead of the leader's by %d ms%s",
                ahead_ms,
                was_set * ", which was set",
            )
            self._steps.stamped(self._begin, ahead_ms, self._log_begin())

    def _look_at_own(self, now: _Moment) -> bool:
        """Whether this member's clock was set since the last look."""
        last, self._last = self._last, now
        if last is None:
            return False
        passed_ms = (now.steady - last.steady) * 1000
        jump = now.wall_ms - last.wall_ms - passed_ms
        if not is_step(jump, passed_ms):
            return False
        ms = round(jump)
        logger.warning("replication: the clock was set %s by %.3f s", "back" if ms < 0 else "forward", abs(ms) / 1000)
        self._looks = [(least + ms, most + ms) for least, most in self._looks]
        self._steps.set_by(ms, self._log_begin())
        return True


def _common(looks: list[tuple[int, int]]) -> tuple[int, int]:
    """What all looks allow: (least, most); the least is more than the most when they contradict each other."""
    return max(one for one, _ in looks), min(one for _, one in looks)
