"""A clock that tests move."""

from __future__ import annotations

import threading
import time

from appliance.engine.clock import Clock


class FakeClock(Clock):
    """A clock that stands still until `advance` or `sleep` is called."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic = 0.0
        self._lock = threading.Lock()
        # Guarded by _lock: gate that is waited for -> end of the wait.
        self._waiting: dict[threading.Lock, float] = {}

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._monotonic

    steady = monotonic

    def jump(self, ms: int) -> None:
        """Set the wall clock forward or back; no time passes."""
        self._wall_ms += ms

    def advance(self, ms: int) -> None:
        """Let time pass on all clocks; waits that have ended by then return."""
        assert ms >= 0, "use jump() to set the wall clock back"
        with self._lock:
            self._wall_ms += ms
            self._monotonic += ms / 1000
            for gate in [gate for gate, until in self._waiting.items() if until <= self._monotonic]:
                del self._waiting[gate]
                try:
                    gate.release()
                except RuntimeError:  # woken a moment ago
                    pass

    def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.advance(round(seconds * 1000) or 1)
        time.sleep(0)

    def wait(self, gate: threading.Lock, seconds: float | None) -> bool:
        if seconds is None or seconds <= 0:
            return gate.acquire(timeout=-1 if seconds is None else 0)
        with self._lock:
            self._waiting[gate] = self._monotonic + seconds
        gate.acquire()
        with self._lock:
            return self._waiting.pop(gate, None) is not None
