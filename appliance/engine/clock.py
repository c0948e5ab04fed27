"""Wall and monotonic time. Parts receive a Clock, so that tests can move it."""

from __future__ import annotations

import logging
import threading
import time

logger = logging.getLogger(__name__)


class Clock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970; jumps when the clock is set."""
        return int(time.time() * 1000)

    def monotonic(self) -> float:
        """Return seconds that never go back, for durations. Time while the machine sleeps does not count."""
        return time.monotonic()

    def steady(self) -> float:
        """As `monotonic`, but time while the machine sleeps counts, if the system measures that."""
        boot = getattr(time, "CLOCK_BOOTTIME", None)
        return time.monotonic() if boot is None else time.clock_gettime(boot)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, gate: threading.Lock, seconds: float | None) -> bool:
        """Wait until `gate` is released or so many seconds have passed (None: no limit). True if it was released."""
        return gate.acquire(timeout=-1 if seconds is None else max(0.0, seconds))


#: The machine's clocks.
SYSTEM = Clock()


#: A wall clock that gains this much on the steady one between two looks was set, not slewed.
JUMP_MS = 10 * 60_000
#: A clock that was set forward is trusted after this long: time for an operator to notice and correct it.
BELIEVED_AFTER_S = 3600.0


class AgeClock:
    """The time that ages are measured by, of what is deleted when it is old. Belongs to one thread.

    A clock set back is followed at once, since that keeps more. One set forward is followed only after
    BELIEVED_AFTER_S; until then time passes at the steady clock's pace, so that a wrong year deletes nothing. The same
    holds for a clock that was set while this process did not run, which looks like a long stop and is not told of.
    """

    def __init__(self, clock: Clock, seen_ms: int = 0) -> None:
        """seen_ms: newest time that an earlier process left here, by this clock; 0 if there is none."""
        self._clock = clock
        self._wall_ms = clock.wall_ms()
        self._steady = self._jumped_at = clock.steady()
        self._ahead_ms = 0
        self._is_seen = True
        if 0 < seen_ms < self._wall_ms - JUMP_MS:
            self._ahead_ms, self._wall_ms, self._is_seen = self._wall_ms - seen_ms, seen_ms, False

    @property
    def ahead_ms(self) -> int:
        """Distance of the wall clock ahead of the time used, if it was seen to be set; 0 while it is trusted."""
        return self._ahead_ms if self._is_seen else 0

    def now_ms(self) -> int:
        """Return milliseconds since the epoch. To be called regularly, so that drift is not taken for a jump."""
        wall_ms, steady = self._clock.wall_ms(), self._clock.steady()
        expected_ms = self._wall_ms + int((steady - self._steady) * 1000)
        ahead_ms = wall_ms - expected_ms
        if ahead_ms > JUMP_MS:
            if abs(ahead_ms - self._ahead_ms) > JUMP_MS:
                logger.warning(
                    "ages: the clock was set %d s forward; ages do not follow before it has stayed so for %d s",
                    ahead_ms // 1000,
                    BELIEVED_AFTER_S,
                )
                self._ahead_ms, self._jumped_at, self._is_seen = ahead_ms, steady, True
            if steady - self._jumped_at < BELIEVED_AFTER_S:
                return expected_ms
            if self._is_seen:
                logger.warning("ages: the clock is believed from now on")
        self._wall_ms, self._steady, self._ahead_ms = wall_ms, steady, 0
        return wall_ms
