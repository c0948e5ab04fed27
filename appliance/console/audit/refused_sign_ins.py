"""Limits the audit log's entries about refused sign-ins, so that guessing from many addresses cannot fill the disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: Most entries in each WINDOW_S. Further ones are only counted, and the next entry says how many.
MOST = 60
WINDOW_S = 300.0


class EntryLog:
    """The count of entries in the present window. Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int | None = None) -> None:
        """most: entries in each window; None for MOST."""
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._began = clock()
        self._lines = 0
        self._left_out = 0

    def may_note(self) -> bool:
        """True if an entry may be written now. If not, it is counted."""
        now = self._clock()
        with self._lock:
            if now - self._began >= WINDOW_S:
                self._began, self._lines = now, 0
            self._lines += 1
            if self._lines > (MOST if self._most is None else self._most):
                self._left_out += 1
                return False
            return True

    def left_out(self) -> dict[str, int] | None:
        """Return the number of entries that were only counted, for the next entry, and reset it; None for none."""
        with self._lock:
            count, self._left_out = self._left_out, 0
        return {"not_listed": count} if count else None


entry_log = EntryLog()
