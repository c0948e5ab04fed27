"""A master's record of its slaves: their rates, those that are gone, and hosts that were turned away. For people."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ..clock import Clock
from ..host_port import host_of
from .log_clock import LogClock

#: Hosts that are remembered, of each kind; the oldest is forgotten.
MOST_HOSTS = 32
#: Time over which a rate is measured.
_RATE_S = 1.0


class Link(Protocol):
    """A connection to a slave."""

    peer: str
    acknowledged: int
    sent: int


class GoneSlave(NamedTuple):
    """A slave that has gone. host: its address. acknowledged: offset up to which it had the log. at_ms: wall time."""

    host: str
    acknowledged: int
    at_ms: int
    why: str


class Stranger(NamedTuple):
    """A host that was turned away. times: since the start. at_ms: the last time."""

    host: str
    times: int
    at_ms: int
    why: str


class _Pace(NamedTuple):
    at: float
    sent: int
    bytes_per_s: float


class SlavesSeen:
    """Written by the thread that listens for slaves and by the threads of slaves; read by any."""

    def __init__(self, clock: Clock) -> None:
        # Constant after construction.
        self.log = LogClock()
        self._clock = clock
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._following: set[Link] = set()
        self._gone: list[GoneSlave] = []
        self._strangers: dict[str, Stranger] = {}
        self._paces: dict[Link, _Pace] = {}

    # --- told

    def look(self, links: Iterable[Link], end: int) -> None:
        """Note the log's end and the connected slaves, now."""
        now = self._clock.monotonic()
        self.log.saw(end, now)
        with self._lock:
            paces = {}
            for link in links:
                sent = link.sent
                before = self._paces.get(link)
                if link.acknowledged >= 0 and link not in self._following:
                    self._comes(link)
                if before is None or before.sent < 0 or sent < before.sent:
                    paces[link] = _Pace(now, sent, 0.0)
                elif now - before.at < _RATE_S:
                    paces[link] = before
                else:
                    paces[link] = _Pace(now, sent, (sent - before.sent) / (now - before.at))
            self._paces = paces

    def left(self, link: Link, why: str) -> None:
        """Note a connection that has ended. One on which no slave followed does not count."""
        if link.acknowledged < 0:
            return
        with self._lock:
            if link not in self._following:
                self._comes(link)
            self._following.discard(link)
            self._gone.append(GoneSlave(host_of(link.peer), link.acknowledged, self._clock.wall_ms(), why))
            del self._gone[:-MOST_HOSTS]

    def _comes(self, link: Link) -> None:
        """Note a slave that follows from now on: one gone slave at its host is no longer listed."""
        self._following.add(link)
        host = host_of(link.peer)
        for number, one in enumerate(self._gone):
            if one.host == host:
                del self._gone[number]
                return

    def refused(self, host: str, why: str) -> None:
        """Note a host that was turned away."""
        with self._lock:
            before = self._strangers.pop(host, None)
            times = 1 if before is None else before.times + 1
            self._strangers[host] = Stranger(host, times, self._clock.wall_ms(), why)
            while len(self._strangers) > MOST_HOSTS:
                del self._strangers[next(iter(self._strangers))]

    # --- asked

    def gone(self) -> list[GoneSlave]:
        """Return the slaves that have gone, the newest first."""
        with self._lock:
            return self._gone[::-1]

    def strangers(self) -> list[Stranger]:
        """Return the hosts that were turned away, the latest first."""
        with self._lock:
            return list(self._strangers.values())[::-1]

    def bytes_per_s(self, link: Link) -> float:
        """Return the rate at which a slave was sent the log over the last second."""
        with self._lock:
            pace = self._paces.get(link)
        return 0.0 if pace is None else pace.bytes_per_s
