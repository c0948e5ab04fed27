"""How many refused sign-ins the audit log takes: who guesses from many addresses does not fill the disk with lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: Lines in each WINDOW_S; further ones are counted, and the next line says how many.
MOST = 60
WINDOW_S = 300.0


class EntryLog:
    """Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._began = clock()
        self._lines = 0
        self._left_out = 0

    def may_note(self) -> bool:
        """Whether a line may be written now; else it is counted."""
        now = self._clock()
        with self._lock:
            if now - self._began >= WINDOW_S:
                self._began, self._lines = now, 0
            self._lines += 1
            if self._lines > MOST:
                self._left_out += 1
                return False
            return True

    def left_out(self) -> dict[str, int] | None:
        """What the line says of those that were only counted."""
        with self._lock:
            count, self._left_out = self._left_out, 0
        return {"not_listed": count} if count else None


entry_log = EntryLog()
