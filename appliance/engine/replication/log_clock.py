"""Records when the log's end was where, so that bytes behind can be shown as time behind."""

from __future__ import annotations

import threading
from bisect import bisect_right

#: Entries that are kept. When there are more they are thinned, so that two are at least this part of their age apart.
MOST_LOOKS = 2048
_COARSE = 1 / 64


class LogClock:
    """Ends of the log over time. Written by one thread, again and again; read by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Guarded by _lock: the ends that were seen, growing, and when (seconds of the caller's clock).
        self._ends: list[int] = []
        self._times: list[float] = []

    def saw(self, end: int, now: float) -> None:
        """Note the log's end now. If it is before the last one, the log is another or was cut: start anew."""
        with self._lock:
            if self._ends and end < self._ends[-1]:
                self._ends.clear()
                self._times.clear()
            if self._ends and end == self._ends[-1]:
                return
            self._ends.append(end)
            self._times.append(now)
            if len(self._ends) > MOST_LOOKS:
                self._thin(now)

    def _thin(self, now: float) -> None:
        """Keep the first entry, the last, and as many others as give a delay to within _COARSE of itself."""
        kept = [len(self._times) - 1]
        for place in range(len(self._times) - 2, 0, -1):
            later = self._times[kept[-1]]
            if later - self._times[place] >= (now - later) * _COARSE:
                kept.append(place)
        kept = [0, *reversed(kept[: MOST_LOOKS // 2])]
        self._ends = [self._ends[place] for place in kept]
        self._times = [self._times[place] for place in kept]

    def behind_s(self, offset: int, now: float) -> float | None:
        """Return for how long the log has been beyond `offset`, to an entry's precision; 0 if it is not.

        None if it was at the first entry: it is not known since when.
        """
        with self._lock:
            place = bisect_right(self._ends, offset)
            if place == len(self._ends):
                return 0.0
            return max(0.0, now - self._times[place]) if place else None
