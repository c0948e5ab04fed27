"""Wall and monotonic time, handed in so that tests can move it."""

from __future__ import annotations

import time


class Clock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump."""
        return int(time.time() * 1000)

    def monotonic(self) -> float:
        """Seconds that never go back; for durations."""
        return time.monotonic()


class FakeClock(Clock):
    """A clock that stands still until `advance`."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic = 0.0

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, ms: int) -> None:
        self._wall_ms += ms
        self._monotonic += ms / 1000
