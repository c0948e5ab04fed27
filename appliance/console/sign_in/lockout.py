"""Counts wrong passwords, and refuses to sign in for a while after a few of them.

There are three counts within five minutes: by name and address (5), by address (20), by name from anywhere (100). The
first stops guessing; the second stops trying one password on many names; the third stops guessing from many addresses,
and is high because it also locks out the owner of the name. A browser in which the user has signed in before
(`known_browsers`), and a session of the user, have their own count (5): strangers' tries do not lock the owner out
there.

A try counts as wrong from its beginning and is taken back if it was right, so trying many passwords at once gains
nothing over one after the other. Counts are kept in memory: a restart resets them, which costs a guesser more.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import deque
from collections.abc import Callable

from ...engine.lazy_dataclass import dataclass

WINDOW_S = 300.0
LIMITS = {"both": 5, "address": 20, "name": 100, "known": 5}
# If there are more counters, the oldest are dropped, so that a flood of names cannot fill the memory.
MAX_COUNTERS = 20_000
# Stands for all loopback addresses.
_LOCAL = "127.0.0.0/8"


@dataclass(frozen=True, slots=True)
class Try:
    """One try, which counts as wrong until it is given to `Lockout.was_right`.

    wait_s: seconds to wait before the next try; if it is above 0, this try is refused and not counted. shuts: this try
    reached a limit, so further ones will be refused.
    """

    keys: tuple[tuple[str, str], ...]
    at: float
    wait_s: float = 0.0
    shuts: bool = False


class Lockout:
    """The counts of wrong tries. Any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, limits: dict[str, int] = LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        self._lock = threading.Lock()
        # Guarded by _lock. Counter -> times of failures within the window; in order of first failure.
        self._failures: dict[tuple[str, str], deque[float]] = {}

    def begin(self, username: str, address: str, known: str = "") -> Try:
        """Count a try of this name from this address. known: identifies the user's own browser or session; "" if it is
        not known to be theirs."""
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
        """Take back a try that was right. Earlier ones still count: a second factor may be required, too."""
        with self._lock:
            for key in one.keys:
                times = self._failures.get(key)
                if times is not None and one.at in times:
                    times.remove(one.at)
                    if not times:
                        del self._failures[key]

    def succeeded(self, username: str, address: str, known: str = "") -> None:
        """Forget the wrong tries of this name from this address."""
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
    network = network_of(address, of_loopback=_LOCAL)
    return (("both", f"{name} {network}"), ("address", network), ("name", name))


def network_of(address: str, of_loopback: str = "") -> str:
    """Return the network that an address counts for: a customer with IPv6 owns a /64, whose addresses count as one.
    of_loopback: returned for every loopback address, as a program on this machine has all of them; "": no such rule."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    mapped = getattr(parsed, "ipv4_mapped", None)
    if of_loopback and (mapped or parsed).is_loopback:
        return of_loopback
    if parsed.version == 6 and mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


lockout = Lockout()
