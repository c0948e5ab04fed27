"""Estimates how far a follower's wall clock is ahead of its leader's, from requests and answers.

The leader reads its clock while it answers, so its reading was taken between the request and the answer:

    own clock before the request - the leader's reading  <=  ahead  <=  own clock after the answer - its reading

All such bounds hold at once as long as neither clock is set; a few are kept, and their common range counts. If 0 is in
it the clocks agree. Otherwise its upper end counts: should this member lead next, messages that the leader stored are
delivered a round trip late rather than early. `ClockSteps` keeps it for that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ..clock import Clock
from ..store.clock_steps import STEP_MS, ClockSteps, is_step

logger = logging.getLogger(__name__)

#: Bounds that are kept, a second apart: clock crystals drift by less than a ms in that time.
MOST_LOOKS = 8
#: Error of a wall clock in whole ms.
_ROUNDED_MS = 1


class _Moment(NamedTuple):
    wall_ms: int
    steady: float


class LeaderClock:
    """The clock of one leader. Belongs to the thread that sends it requests."""

    def __init__(
        self, clock: Clock, steps: ClockSteps, written: Callable[[], int], log_begin: Callable[[], int]
    ) -> None:
        """steps: of this store. written: returns its log's end. log_begin: returns where that begins."""
        # Constant after construction.
        self._clock = clock
        self._steps = steps
        self._written = written
        self._log_begin = log_begin
        self._last: _Moment | None = None
        #: Bounds (least, most) of the ms that this clock is ahead.
        self._looks: list[tuple[int, int]] = []
        #: Offset from which on this leader's clock, as it is set now, stamped the records; -1 before the first answer.
        self._begin = -1
        #: This log's end when the leader answered last.
        self._looked = 0

    def moment(self) -> _Moment:
        """Return the time now; to be taken before a request, for `said`."""
        return _Moment(self._clock.wall_ms(), self._clock.steady())

    def said(self, asked: _Moment, leader_ms: int, epoch_start: int, leader_end: Callable[[], int]) -> None:
        """Take an answer of the leader. epoch_start: offset from which on its clock stamps the records. leader_end:
        queries its log's end; if that raises, nothing has changed."""
        now, written = self.moment(), self._written()
        self._look_at_own(asked)
        if self._look_at_own(now):  # set between request and answer: wait for the next one
            return
        look = asked.wall_ms - leader_ms - _ROUNDED_MS, now.wall_ms - leader_ms + _ROUNDED_MS
        looks = [*self._looks[1 - MOST_LOOKS :], look]
        least, most = _common(looks)
        was_set = least - most > STEP_MS
        if least > most:  # one of the two is slewed, or was set
            looks, (least, most) = [look], look
        known = self._steps.ahead_ms(max(self._begin, written))
        if was_set:
            # Records that it stored since its last answer may be stamped before or after the clock was set. Of both
            # readings the one that delivers them later counts, since nothing may be delivered early.
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

    def look(self) -> None:
        """Note it if this member's own clock was set since the last question or answer."""
        self._look_at_own(self.moment())

    def _look_at_own(self, now: _Moment) -> bool:
        """True if this member's own clock was set since the last call; notes by how much."""
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
    """Return the range (least, most) that all bounds allow; least > most if they contradict each other."""
    return max(one for one, _ in looks), min(one for _, one in looks)
