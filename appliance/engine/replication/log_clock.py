"""When the log had come how far, so that bytes behind can be told as time behind."""

from __future__ import annotations

import threading
from bisect import bisect_right

#: Looks that are kept. When there are more they are thinned, so that two are this part of their age apart.
MOST_LOOKS = 2048
_COARSE = 1 / 64


class LogClock:
    """Told of the log's end again and again, by one thread; asked by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Guarded by _lock: the ends that were seen, growing, and when (seconds of the caller's clock).
        self._ends: list[int] = []
        self._times: list[float] = []

    def saw(self, end: int, now: float) -> None:
        """The log ends there now. One that ends before what was seen is another log, or was cut."""
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
        """Keep the first, the last, and of the others so many that a delay is told to a part of itself."""
        kept = [len(self._times) - 1]
        for place in range(len(self._times) - 2, 0, -1):
            later = self._times[kept[-1]]
            if later - self._times[place] >= (now - later) * _COARSE:
                kept.append(place)
        kept = [0, *reversed(kept[: MOST_LOOKS // 2])]
        self._ends = [self._ends[place] for place in kept]
        self._times = [self._times[place] for place in kept]

    def behind_s(self, offset: int, now: float) -> float | None:
        """For how long the log has gone beyond `offset`, to a look's precision; 0 when it has not.

        None when it had at the first look: since when is not known.
        """
        with self._lock:
            place = bisect_right(self._ends, offset)
            if place == len(self._ends):
                return 0.0
            return max(0.0, now - self._times[place]) if place else None
