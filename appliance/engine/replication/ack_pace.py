"""How late a member's acknowledgements come, and for how long they have: what a leader leaves a slow one out by.

One span of the log is timed at a time, from when there was something to send to the report that holds all of it. Time
in late spans fills `late_s`, other time empties it: a disk that is slow now and then makes no slow member, and neither
does one that has little to do.
"""

from __future__ import annotations

#: A member that lacks less has caught up, and is measured from then on: to copy a whole log takes its time.
NEAR_BYTES = 256 * 1024
#: A span counts for so long at most: a leader that stood still itself takes nobody for slow because of it.
MOST_S = 2.0
#: `late_s` does not go beyond it, so that nobody waits long after its disk is mended.
FULL_S = 10.0


class AckPace:
    """Told by the thread of a link, asked by any. Seconds of one clock."""

    def __init__(self, limit_s: float) -> None:
        """limit_s: what takes longer is late; 0: nothing is."""
        # Constant after construction.
        self._limit_s = limit_s
        # The link's. _late: seconds in late spans, as they were then. _span: end of what is timed, and since when.
        self._near = False
        self._late = (0.0, 0.0)
        self._span: tuple[int, float] | None = None
        self._took_s = 0.0

    def sends(self, end: int, now: float) -> None:
        """The log goes up to `end`, and the member is sent what it has not got of it."""
        if self._near and self._span is None:
            self._span = end, now

    def takes(self, acknowledged: int, end: int, now: float) -> None:
        """The member keeps the log up to `acknowledged`."""
        self._near = self._near or end - acknowledged <= NEAR_BYTES
        span = self._span
        if span is not None and acknowledged >= span[0]:
            self._took_s, self._late = now - span[1], (self.late_s(now), now)
            self._span = None

    def took_s(self, now: float) -> float:
        """How long the last span took, or the one that is on its way, if that is longer by now."""
        span = self._span
        return self._took_s if span is None else max(self._took_s, now - span[1])

    def late_s(self, now: float) -> float:
        """For how long it has been late."""
        (late, at), span = self._late, self._span
        if not self._limit_s or span is None or now - span[1] <= self._limit_s:
            return max(0.0, late - (now - at))
        return min(FULL_S, max(0.0, late - max(0.0, span[1] - at)) + min(MOST_S, now - span[1]))
