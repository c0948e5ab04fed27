"""Wrong passwords are counted, and after a few of them signing in is refused for a while.

Counted three ways within five minutes: by name and address (5), by address (20), by name from anywhere (100). The first
stops guessing; the second stops trying one password on many names; the third stops a crowd, and is high because it also
shuts the owner of the name out. A browser in which the user has signed in before (`known_browsers`), and a session that
is the user's, are counted for themselves (5): what strangers try does not shut the owner out there.

A try counts as a wrong one from its beginning, and is taken back when it was right: of many at once no more are made
than one after the other. Counts live in memory: a restart forgets them, and costs a guesser more.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_S = 300.0
LIMITS = {"both": 5, "address": 20, "name": 100, "known": 5}
# Beyond this many counters the oldest go: memory stays bounded under a flood of names.
MAX_COUNTERS = 20_000


@dataclass(frozen=True, slots=True)
class Try:
    """One try, which counts as wrong until `Lockout.was_right` is told otherwise.

    wait_s: how long it has to wait; then it was not made and does not count. shuts: whether the door shuts with it.
    """

    keys: tuple[tuple[str, str], ...]
    at: float
    wait_s: float = 0.0
    shuts: bool = False


class Lockout:
    """Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, limits: dict[str, int] = LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        self._lock = threading.Lock()
        # Guarded by _lock. Counter -> times of failures within the window; in order of first failure.
        self._failures: dict[tuple[str, str], deque[float]] = {}

    def begin(self, username: str, address: str, known: str = "") -> Try:
        """A try of this name from this address. known: by what the caller is known to be the user's own; or ""."""
        now = self._clock()
        keys = _keys(username, address, known)
        with self._lock:
            wait_s = max(self._wait_locked(key, now) for key in keys)
            if wait_s > 0:
                return Try(keys, now, wait_s)
            shuts = False
            for key in keys:
                times = self._failures.setdefault(key, deque())
                times.append(now)
                shuts = shuts or len(times) == self._limits[key[0]]
            while len(self._failures) > MAX_COUNTERS:
                del self._failures[next(iter(self._failures))]
        return Try(keys, now, shuts=shuts)

    def was_right(self, one: Try) -> None:
        """It does not count. What was counted before stays: more may be asked for than this."""
        with self._lock:
            for key in one.keys:
                times = self._failures.get(key)
                if times is not None and one.at in times:
                    times.remove(one.at)
                    if not times:
                        del self._failures[key]

    def succeeded(self, username: str, address: str, known: str = "") -> None:
        """Forget what was counted for this name from this address."""
        with self._lock:
            self._failures.pop(_keys(username, address, known)[0], None)

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


def _keys(username: str, address: str, known: str) -> tuple[tuple[str, str], ...]:
    name = username.casefold()[:64]
    if known:
        return (("known", f"{name} {known}"),)
    network = network_of(address)
    return (("both", f"{name} {network}"), ("address", network), ("name", name))


def network_of(address: str) -> str:
    """An IPv6 customer owns a /64: its addresses count as one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 6 and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


lockout = Lockout()
