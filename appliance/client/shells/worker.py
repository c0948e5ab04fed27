"""A thread for functions of the user, which neither run on the I/O thread nor while a lock is held."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

logger = logging.getLogger("rocketbox.client")


class Worker:
    """Calls what it is given, one after the other. Its thread begins when there is something to call, and ends when
    there is nothing left."""

    def __init__(self, name: str, lock: threading.Lock, most: int | None = None) -> None:
        """name: of the thread. lock: the client's. most: number of calls that may wait."""
        # Constant after construction.
        self.name = name
        self._lock = lock
        self._most = most
        # Guarded by _lock.
        self._waiting: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def put_locked(self, act: Callable[[], None]) -> bool:
        """Have `act` called; False if too much waits, or this is closed. Called with the lock."""
        if self._is_closed or (self._most is not None and len(self._waiting) >= self._most):
            return False
        self._waiting.append(act)
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            # If the machine gives none, or a signal's handler raises, the next call tries again. After the latter the
            # thread may run: so it becomes this worker's by itself, and of two the first one does.
            thread.start()
            self._thread = thread
        return True

    def _run(self) -> None:
        own = threading.current_thread()
        with self._lock:
            if self._thread not in (None, own):
                return
            self._thread = own
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                act = self._waiting.popleft()
            try:
                act()
            except BaseException:  # sys.exit() too: what waits is called nevertheless
                logger.exception("client: %s goes on after an error", self.name)

    def drop(self) -> None:
        """Take nothing more, and forget what waits; what runs goes on."""
        with self._lock:
            self._is_closed = True
            self._waiting.clear()

    def join(self, timeout: float) -> bool:
        """Wait until nothing runs or waits; False if that lasts longer than `timeout` seconds. Called from what it
        runs, it returns at once."""
        with self._lock:
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(max(0.0, timeout))
        return not thread.is_alive()
