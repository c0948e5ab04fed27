"""How late every group is. Two reads of the log for each, so what was found is remembered for a while."""

from __future__ import annotations

import time

from .lag import Backlog, lag_time_ms
from .measures import Budget, Measures
from .queue_reader import QueueReader
from .sentences import Sentence, say

#: What was found for a group is told for so long when there is no time to look again; the history looks each 30 s.
KEPT_S = 60.0
#: Groups remembered.
MOST_KEPT = 20_000


class LagTimes:
    """Any thread; each step on its table is one C call."""

    def __init__(self, measures: Measures) -> None:
        # Constant after construction.
        self._measures = measures
        # group -> (when, what was found).
        self._known: dict[str, tuple[float, int | None, Sentence | None]] = {}

    def of(
        self,
        group: str,
        backlog: Backlog,
        reader: QueueReader,
        budget: Budget | None = None,
        measures: Measures | None = None,
    ) -> tuple[int | None, Sentence | None]:
        """(age in ms of the oldest message that it has not consumed, why it is not known); 0 when nothing is behind.

        budget: when it is spent, what was found within the last minute is told. measures: where what is read is
        remembered, if not with all the rest.
        """
        measures = measures or self._measures
        if backlog.lag is None or not backlog.lagging:
            return lag_time_ms(backlog, reader, measures)
        if budget is not None and budget.spent:
            known = self._known.get(group)
            if known is None or time.monotonic() - known[0] > KEPT_S:
                return None, say("not_measured_yet")
            return known[1:]
        lag_ms, why = lag_time_ms(backlog, reader, measures)
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        self._known[group] = (time.monotonic(), lag_ms, why)
        return lag_ms, why

    def guess(self, group: str, backlog: Backlog) -> int:
        """What it was last, without reading; for an order."""
        if not backlog.lagging:
            return -1 if backlog.lag is None else 0
        known = self._known.get(group)
        return 0 if known is None or known[1] is None else known[1]
