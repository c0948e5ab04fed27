"""A named thread that can be woken, and stopped within a deadline.

Every thread of the engine is a ServiceThread, so that thread dumps, log lines and ARCHITECTURE.md use the same names.
"""

from __future__ import annotations

import logging
import threading
import time

from .clock import SYSTEM, Clock

logger = logging.getLogger(__name__)


class ServiceThread:
    """Runs `run()` of a subclass in a thread called `name` until `stop()`.

    A subclass loops `while not self.stopped: self.wait(seconds)` and works between the waits; its docstring names what
    it owns. An exception that leaves `run` is logged and ends the thread; a subclass that must continue catches it.
    """

    def __init__(self, name: str, clock: Clock = SYSTEM) -> None:
        self.name = name
        self.clock = clock
        self.stopped = False
        # A closed gate: release() opens it for one wait. Ten times cheaper than threading.Event, which matters for
        # sends.
        self._gate = threading.Lock()
        self._gate.acquire()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        assert self._thread is None, f"thread {self.name} was started already"
        self._thread = threading.Thread(target=self._main, name=self.name, daemon=True)
        self._thread.start()

    def _main(self) -> None:
        try:
            self.run()
        except Exception:
            logger.exception("thread: died of an exception name=%s", self.name)

    def run(self) -> None:
        raise NotImplementedError

    def wait(self, timeout: float | None) -> bool:
        """Sleep until `wakeup()`, `stop()` or the timeout in seconds; True if woken. After a stop, return at once."""
        return self.stopped or self.clock.wait(self._gate, timeout)

    def wakeup(self) -> None:
        """End the thread's wait, or its next one if it is at work. Any thread."""
        try:
            self._gate.release()
        except RuntimeError:  # already open
            pass

    def request_stop(self) -> None:
        """Ask the thread to end, and do not wait for it."""
        self.stopped = True
        self.wakeup()

    def stop(self, deadline: float = 5.0) -> bool:
        """Ask the thread to end and wait up to `deadline` seconds for it; False and a warning if it has not."""
        self.request_stop()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        begin = time.monotonic()
        thread.join(deadline)
        if thread.is_alive():
            waited = time.monotonic() - begin
            logger.warning("thread: still running %.1f s after it was asked to stop name=%s", waited, self.name)
            return False
        return True

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()
