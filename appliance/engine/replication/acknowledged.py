"""How far the log has come to slaves: a watermark of publication when the master waits for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable


class ReplicatedPosition:
    """Up to where enough slaves hold the log. Moved by the threads of slaves, read by anyone; only grows."""

    def __init__(self, needed: int, on_progress: Callable[[], None]) -> None:
        """needed: how many slaves must have a byte before it counts. on_progress: on the thread of a slave."""
        # Constant after construction.
        self.needed = needed
        self._on_progress = on_progress
        self._lock = threading.Lock()
        # Written under _lock.
        self._position = 0

    def begin(self, end: int) -> None:
        """The log was opened, and ends there: what it held is published, as it was before."""
        self._position = end

    def __call__(self) -> int:
        return self._position

    def take(self, acknowledged: Iterable[int]) -> None:
        """So far every connected slave is, as it said; -1 for one that has not said anything."""
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
