"""How late a member's acknowledgements come, and for how long they have: what a leader leaves a slow one out by.

One span of the log is timed at a time, from when there was something to send to the report that holds all of it. Time
in late spans fills `late_s`, other time empties it: a disk that is slow now and then makes no slow member, and neither
does one that has little to do.
"""

from __future__ import annotations

from typing import NamedTuple

#: A member that lacks less has caught up, and is measured from then on: to copy a whole log takes its time.
NEAR_BYTES = 256 * 1024
#: A span counts for so long at most: a leader that stood still itself takes nobody for slow because of it.
MOST_S = 2.0
#: `late_s` does not go beyond it, so that nobody waits long after its disk is mended.
FULL_S = 10.0


class _Seen(NamedTuple):
    """late_s: seconds in late spans, as they were at `at`. took_s: how long the last one took. span: the end of what is
    timed, and since when; None while nothing is."""

    late_s: float = 0.0
    at: float = 0.0
    took_s: float = 0.0
    span: tuple[int, float] | None = None


class AckPace:
    """Told by the thread of a link, asked by any. Seconds of one clock."""

    def __init__(self, limit_s: float) -> None:
        """limit_s: what takes longer is late; 0: nothing is."""
        # Constant after construction.
        self._limit_s = limit_s
        # The link's. _seen is replaced whole: who looks in the middle of `takes` would count a late span twice.
        self._near = False
        self._seen = _Seen()

    def sends(self, end: int, now: float) -> None:
        """The log goes up to `end`, and the member is sent what it has not got of it."""
        if self._near and self._seen.span is None:
            self._seen = self._seen._replace(span=(end, now))

    def takes(self, acknowledged: int, end: int, now: float) -> None:
        """The member keeps the log up to `acknowledged`."""
        self._near = self._near or end - acknowledged <= NEAR_BYTES
        span = self._seen.span
        if span is not None and acknowledged >= span[0]:
            self._seen = _Seen(self.late_s(now), now, now - span[1])

    def took_s(self, now: float) -> float:
        """How long the last span took, or the one that is on its way, if that is longer by now."""
        seen = self._seen
        return seen.took_s if seen.span is None else max(seen.took_s, now - seen.span[1])

    def late_s(self, now: float) -> float:
        """For how long it has been late."""
        late, at, _, span = self._seen
        if not self._limit_s or span is None or now - span[1] <= self._limit_s:
            return max(0.0, late - (now - at))
        return min(FULL_S, max(0.0, late - max(0.0, span[1] - at)) + min(MOST_S, now - span[1]))
