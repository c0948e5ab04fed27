"""Measures how late a member's acknowledgements come, and for how long: by this a leader leaves a slow member out.

One span of the log is timed at a time, from when there was something to send to the report that covers all of it. Time
in late spans fills `late_s`, other time empties it: a member whose disk is slow now and then does not count as slow,
and neither does one that has little to do.
"""

from __future__ import annotations

from typing import NamedTuple

#: A member that lacks at most this has caught up, and is timed from then on: copying a whole log may take long.
NEAR_BYTES = 256 * 1024
#: Most that one span adds to `late_s`: a member does not become slow because the leader itself stood still.
MOST_S = 2.0
#: Upper limit of `late_s`, so that a member soon returns after its disk was mended.
FULL_S = 10.0


class _Seen(NamedTuple):
    """late_s: seconds in late spans, as of `at`. took_s: seconds that the last span took. span: (end offset, begin in
    seconds) of the span that is timed now; None while none is."""

    late_s: float = 0.0
    at: float = 0.0
    took_s: float = 0.0
    span: tuple[int, float] | None = None


class AckPace:
    """Written by the thread of a link, read by any. Seconds of one clock."""

    def __init__(self, limit_s: float) -> None:
        """limit_s: a span that takes longer is late; 0: none is."""
        # Constant after construction.
        self._limit_s = limit_s
        # The link's. _seen is replaced whole: else a reader in the middle of `takes` would count a late span twice.
        self._near = False
        self._seen = _Seen()

    def sends(self, end: int, now: float) -> None:
        """Note that the log goes up to `end`, and that the member is being sent the bytes that it lacks."""
        if self._near and self._seen.span is None:
            self._seen = self._seen._replace(span=(end, now))

    def takes(self, acknowledged: int, end: int, now: float) -> None:
        """Note that the member keeps the log up to `acknowledged`, and that the log ends at `end`."""
        self._near = self._near or end - acknowledged <= NEAR_BYTES
        span = self._seen.span
        if span is not None and acknowledged >= span[0]:
            self._seen = _Seen(self.late_s(now), now, now - span[1])

    def took_s(self, now: float) -> float:
        """Return the seconds that the last span took, or the current one if it has already taken longer."""
        seen = self._seen
        return seen.took_s if seen.span is None else max(seen.took_s, now - seen.span[1])

    def late_s(self, now: float) -> float:
        """Return for how long the member has been late, 0 to FULL_S."""
        late, at, _, span = self._seen
        if not self._limit_s or span is None or now - span[1] <= self._limit_s:
            return max(0.0, late - (now - at))
        return min(FULL_S, max(0.0, late - max(0.0, span[1] - at)) + min(MOST_S, now - span[1]))
