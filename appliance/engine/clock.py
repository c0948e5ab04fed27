"""Wall and monotonic time. Parts are given a Clock, so that tests can move it."""

from __future__ import annotations

import time


class Clock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; jumps when somebody sets the clock."""
        return int(time.time() * 1000)

    def monotonic(self) -> float:
        """Seconds that never go back, for durations. Time while the machine sleeps does not count."""
        return time.monotonic()

    def steady(self) -> float:
        """The same, but time while the machine sleeps counts, where the system can tell."""
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
        """Somebody sets the wall clock; no time passes."""
        self._wall_ms += ms

    def advance(self, ms: int) -> None:
        """Time passes, on all clocks."""
        assert ms >= 0, "use jump() to set the wall clock back"
        self._wall_ms += ms
        self._monotonic += ms / 1000
