"""The lag times of all groups. Each takes two reads of the log, so results are remembered for a while."""

from __future__ import annotations

import time

from ..messages.queue_reader import QueueReader
from ..sentences import Sentence, say
from .lag import Backlog, lag_time_ms
from .measures import Budget, Measures

#: Age up to which a group's last result is used if there is no time for a new one; the history makes one every 30 s.
KEPT_S = 60.0
#: Groups whose results are remembered.
MOST_KEPT = 20_000


class LagTimes:
    """Any thread; each step on its table is one C call."""

    def __init__(self, measures: Measures) -> None:
        # Constant after construction.
        self._measures = measures
        # group -> (when measured, lag time in ms, reason if that is None).
        self._known: dict[str, tuple[float, int | None, Sentence | None]] = {}

    def of(
        self,
        group: str,
        backlog: Backlog,
        reader: QueueReader,
        budget: Budget | None = None,
        measures: Measures | None = None,
        now_ms: int | None = None,
    ) -> tuple[int | None, Sentence | None]:
        """Return (age in ms of the oldest message that the group has not consumed, reason if that is not known); the
        age is 0 if the group has consumed all.

        budget: once it is spent, the result of the last minute is returned. measures: remembers what is read, instead
        of the shared one. now_ms: since 1970, the same for groups that are compared; None: the present.
        """
        measures = measures or self._measures
        if backlog.lag is None or not backlog.lagging:
            return lag_time_ms(backlog, reader, measures)
        if budget is not None and budget.spent:
            known = self._known.get(group)
            if known is None or time.monotonic() - known[0] > KEPT_S:
                return None, say("not_measured_yet")
            return known[1:]
        lag_ms, why = lag_time_ms(backlog, reader, measures, now_ms)
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        self._known[group] = (time.monotonic(), lag_ms, why)
        return lag_ms, why

    def guess(self, group: str, backlog: Backlog) -> int:
        """Return the last known lag time in ms, without reading, for sorting: 0 if there is none, -1 if the lag is
        unknown."""
        if not backlog.lagging:
            return -1 if backlog.lag is None else 0
        known = self._known.get(group)
        return 0 if known is None or known[1] is None else known[1]
