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

    def steady(self) -> float:
        """The same, and time asleep counts too, where the system can tell."""
        boot = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic() if boot is None else time.clock_gettime(boot)


class FakeClock(Clock):
    """A clock that stands still until `advance`."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic = 0.0

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._monotonic

    steady = monotonic

    def jump(self, ms: int) -> None:
        """The wall clock is set; no time passes."""
        self._wall_ms += ms

    def advance(self, ms: int) -> None:
        self._wall_ms += ms
        self._monotonic += ms / 1000
