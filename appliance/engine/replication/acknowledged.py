"""How far the log has come elsewhere: watermarks of publication, of a sync master and of a set's follower."""

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


class ConfirmedPosition:
    """Up to where the leader shows the log: a follower shows no more. Moved by its thread, read by anyone."""

    def __init__(self, on_progress: Callable[[], None]) -> None:
        """on_progress: on the follower's thread."""
        # Constant after construction.
        self._on_progress = on_progress
        # Written by begin(), then by the follower's thread.
        self._position = self._opened_at = 0
        self._heard = -1

    def begin(self, end: int) -> None:
        """The log was opened, and ends there."""
        self._position = self._opened_at = end

    def __call__(self) -> int:
        return self._position

    @property
    def covers_start(self) -> bool:
        """Whether the leader shows all that was here when the log was opened: before, some of it may yet be cut."""
        return self._heard >= self._opened_at

    def take(self, confirm: int) -> None:
        """The leader said so."""
        self._heard = max(self._heard, confirm)
        if confirm > self._position:
            self._position = confirm
            self._on_progress()
