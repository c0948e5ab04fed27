"""Watermarks of publication: a sync master's, by what its slaves hold; a set's follower's, by what its leader shows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable


class ReplicatedPosition:
    """Offset up to which enough slaves hold the log. Moved by the threads of slaves, read by anyone; only grows."""

    def __init__(self, needed: int, on_progress: Callable[[], None]) -> None:
        """needed: number of slaves that must have a byte before it counts. on_progress: called when it has grown, on
        the thread of a slave."""
        # Constant after construction.
        self.needed = needed
        self._on_progress = on_progress
        self._lock = threading.Lock()
        # Written under _lock.
        self._position = 0

    def begin(self, end: int) -> None:
        """Start at the end of the log that was opened: what it held is published, as it was before."""
        self._position = end

    def __call__(self) -> int:
        return self._position

    def take(self, acknowledged: Iterable[int]) -> None:
        """Take the offsets that the connected slaves acknowledged; -1 for one that has not reported yet."""
        best = sorted(acknowledged, reverse=True)
        if len(best) < self.needed:
            return
        reached = best[self.needed - 1]
        with self._lock:
            grows = reached > self._position
            if grows:
                self._position = reached
        if grows:
            self._on_progress()


class ConfirmedPosition:
    """Offset up to which the leader shows the log: followers show nothing behind it. Its thread moves it."""

    def __init__(self, on_progress: Callable[[], None]) -> None:
        """on_progress: called when it has grown, on the follower's thread."""
        # Constant after construction.
        self._on_progress = on_progress
        # Written by begin(), then by the follower's thread.
        self._position = self._opened_at = 0
        self._heard = -1

    def begin(self, end: int) -> None:
        """Start at the end of the log that was opened."""
        self._position = self._opened_at = end

    def __call__(self) -> int:
        return self._position

    @property
    def covers_start(self) -> bool:
        """True if the leader shows all that was here when the log was opened; until then some of it may yet be cut."""
        return self._heard >= self._opened_at

    def take(self, confirm: int) -> None:
        """Take the confirm offset that the leader sent."""
        self._heard = max(self._heard, confirm)
        if confirm > self._position:
            self._position = confirm
            self._on_progress()
