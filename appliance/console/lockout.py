"""Wrong passwords are counted, and after a few of them signing in is refused for a while.

Counted three ways within five minutes: by name and address (5), by address (20), by name from anywhere (100). The first
stops guessing; the second stops trying one password on many names; the third stops a crowd, and is high because it also
shuts the owner of the name out. Counts live in memory: a restart forgets them, and costs a guesser more.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import deque
from collections.abc import Callable

WINDOW_S = 300.0
LIMITS = {"both": 5, "address": 20, "name": 100}
# Beyond this many counters the oldest go: memory stays bounded under a flood of names.
MAX_COUNTERS = 20_000


class Lockout:
    """Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, limits: dict[str, int] = LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        self._lock = threading.Lock()
        # Guarded by _lock. Counter -> times of failures within the window; in order of first failure.
        self._failures: dict[tuple[str, str], deque[float]] = {}

    def wait_s(self, username: str, address: str) -> float:
        """Seconds until this name may be tried from this address; 0 when it may be now."""
        now = self._clock()
        with self._lock:
            return max(self._wait_locked(key, now) for key in _keys(username, address))

    def failed(self, username: str, address: str) -> bool:
        """Count a wrong password; true when the door shuts with it."""
        now = self._clock()
        shut = False
        with self._lock:
            for key in _keys(username, address):
                self._forget_locked(key, now)
                times = self._failures.setdefault(key, deque())
                times.append(now)
                shut = shut or len(times) == self._limits[key[0]]
            while len(self._failures) > MAX_COUNTERS:
                del self._failures[next(iter(self._failures))]
        return shut

    def succeeded(self, username: str, address: str) -> None:
        """Forget what was counted for this name from this address."""
        with self._lock:
            self._failures.pop(_keys(username, address)[0], None)

    def clear(self) -> None:
        with self._lock:
            self._failures.clear()

    def _wait_locked(self, key: tuple[str, str], now: float) -> float:
        self._forget_locked(key, now)
        times = self._failures.get(key)
        limit = self._limits[key[0]]
        if times is None or len(times) < limit:
            return 0.0
        return times[-limit] + WINDOW_S - now

    def _forget_locked(self, key: tuple[str, str], now: float) -> None:
        times = self._failures.get(key)
        while times and times[0] <= now - WINDOW_S:
            times.popleft()
        if times is not None and not times:
            del self._failures[key]


def _keys(username: str, address: str) -> tuple[tuple[str, str], ...]:
    name = username.casefold()[:64]
    network = _network(address)
    return (("both", f"{name} {network}"), ("address", network), ("name", name))


def _network(address: str) -> str:
    """An IPv6 customer owns a /64: its addresses count as one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 6 and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


lockout = Lockout()
