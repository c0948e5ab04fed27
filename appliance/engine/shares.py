"""Limits one peer's share of a table that all peers use. PURE, but for the clock of `LastingShares` and `Rates`.

One rule for every bound: a peer that takes more has to leave room for others.

    an address      may have as much as it leaves free
    a connection    may have as much of that as it leaves to the others of its address
    every peer      may have a few in any case, however full the table is

So one connection gets a quarter of an empty table, one address with many connections half of it, the next address half
of the rest, and the last peer still gets a few. All clients on this machine are one address, and so are all behind one
router: there the connections share.
"""

from __future__ import annotations

import threading
from collections import deque

from .clock import Clock

_LOOPBACK_V6 = bytes(15) + b"\x01"
_MAPPED_V4 = bytes(10) + b"\xff\xff"
#: Stands for all loopback addresses; no other address is so short.
_LOCAL = b""
#: Connections and addresses that `LastingShares` and `Rates` remember.
_REMEMBERED = 10_000
#: Divisor of the free room in a table of lasting entries: only that part is shared out.
LASTING_PART = 4


def address_of(peer: bytes) -> bytes:
    """Return the address that a connection counts for (peer: see `message_id.encode_host`): the IPv4 address, or the
    /64 network of an IPv6 address."""
    if len(peer) == 8:
        return _LOCAL if peer[0] == 127 else peer[:4]
    if peer[:12] == _MAPPED_V4:
        return _LOCAL if peer[12] == 127 else peer[12:16]
    return _LOCAL if peer[:16] == _LOOPBACK_V6 else peer[:8]


def share(left: int, own: int) -> int:
    """Return how many more a connection may take that has `own`. left: the free room less what its address has.

    Each entry that it takes reduces the free room by one, and adds one to its address and to its own.
    """
    return max((left - 2 * own) // 4, 0)


class Shares:
    """Counts each peer's entries until they are given back. Owned by the owner of the table.

    A peer is an address and port, `conn.born_host`; None is the broker itself, which may have all of it. The few that
    every connection may have count neither for the table nor for the address.
    """

    def __init__(self, few: int = 0) -> None:
        """few: number that each connection may have in any case."""
        self.few = few
        #: The sum over all peers, without the few of each.
        self.taken = 0
        self._addresses: dict[bytes, int] = {}
        self._connections: dict[bytes, int] = {}

    def room(self, peer: bytes | None, most: int) -> int:
        """Return how many more a peer may have. most: size of the table."""
        free = most - self.taken
        if peer is None:
            return max(free, 0)
        own = self._connections.get(peer, 0)
        left = free - self._addresses.get(address_of(peer), 0)
        return max(self.few - own, 0) + share(left, max(own - self.few, 0))

    def of(self, peer: bytes) -> int:
        """Return how many a connection has."""
        return self._connections.get(peer, 0)

    def take(self, peer: bytes | None, most: int, size: int = 1) -> bool:
        """Count `size` more for a peer. Return False, and count nothing, if that exceeds its share."""
        if size > self.room(peer, most):
            return False
        self.add(peer, size)
        return True

    def add(self, peer: bytes | None, size: int = 1) -> None:
        """Count `size` more for a peer, fewer if negative, regardless of its share."""
        if peer is None:
            self.taken += size
            return
        before = self._connections.get(peer, 0)
        after = before + size
        assert after >= 0, "what is given back was taken"
        _put(self._connections, peer, after)
        beyond = max(after - self.few, 0) - max(before - self.few, 0)
        if beyond:
            address = address_of(peer)
            _put(self._addresses, address, self._addresses.get(address, 0) + beyond)
            self.taken += beyond

    def give(self, peer: bytes | None, size: int = 1) -> None:
        """Count `size` fewer for a peer."""
        self.add(peer, -size)


def _put(table: dict[bytes, int], key: bytes, number: int) -> None:
    if number:
        table[key] = number
    else:
        table.pop(key, None)


class LooseShares:
    """Shares of objects that are freed when their last reference goes, on any thread and at any moment. Any thread."""

    def __init__(self) -> None:
        # Any thread, by one C call: `give` may run while this thread holds the lock.
        self._given: deque[bytes | None] = deque()
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._shares = Shares()

    def take(self, peer: bytes | None, most: int, few: int | None = None) -> bool:
        """As `Shares.take`, for one entry. few: number that a connection may have at most."""
        with self._lock:
            while self._given:
                self._shares.give(self._given.popleft())
            if few is not None and peer is not None and self._shares.of(peer) >= few:
                return False
            return self._shares.take(peer, most)

    def give(self, peer: bytes | None) -> None:
        """Count one fewer for a peer, from the next `take` on."""
        self._given.append(peer)


class LastingShares:
    """Shares of entries that are kept for ever: names in tables. Nothing is given back; counts begin at the start.

    An address may make a quarter of what it leaves free. After it has made its share, its connections that have made
    few may still make some, at a rate that is limited for the whole address.
    """

    def __init__(self, clock: Clock, few: int = 16, a_minute: int = 60) -> None:
        self._clock = clock
        self._few = few
        self._a_minute = a_minute
        self._addresses: dict[bytes, int] = {}
        self._connections: dict[bytes, int] = {}
        # Address -> (how many its connections with few entries may make, as of when).
        self._tokens: dict[bytes, tuple[float, float]] = {}

    def take(self, peer: bytes | None, free: int) -> bool:
        """Count one more for a peer; False if that exceeds its share. free: room that is left in the table."""
        if free <= 0 or peer is None:
            return free > 0
        address = address_of(peer)
        of_address, own = self._addresses.get(address, 0), self._connections.get(peer, 0)
        if not share(free // LASTING_PART - of_address, own):
            tokens = self._tokens_of(address)
            if own >= self._few or tokens < 1:
                return False
            if len(self._tokens) >= _REMEMBERED:
                self._tokens.clear()
            self._tokens[address] = tokens - 1, self._clock.monotonic()
        if len(self._connections) >= _REMEMBERED:
            self._connections.clear()
        self._addresses[address], self._connections[peer] = of_address + 1, own + 1
        return True

    def _tokens_of(self, address: bytes) -> float:
        tokens, at = self._tokens.get(address, (float(self._a_minute), 0.0))
        passed = self._clock.monotonic() - at
        return min(tokens + passed * self._a_minute / 60, self._a_minute)


class Rates:
    """Limits how much each peer or address may cause: a burst, and then a rate per second."""

    def __init__(self, clock: Clock, burst: int, a_second: int) -> None:
        self._clock = clock
        self._burst = burst
        self._a_second = a_second
        # Peer or address -> (how much of its burst it had used, as of when); that shrinks with time.
        self._used: dict[bytes, tuple[float, float]] = {}

    def used(self, whose: bytes) -> float:
        """Return how much of its burst is used."""
        used, at = self._used.get(whose, (0.0, 0.0))
        return max(used - (self._clock.monotonic() - at) * self._a_second, 0.0)

    def wait_s(self, whose: bytes, size: int) -> float:
        """Count `size`. Return the seconds that it should wait before it causes more, 0 within its burst."""
        used = self.used(whose) + size
        if len(self._used) >= _REMEMBERED and whose not in self._used:
            self._used = {one: said for one, said in self._used.items() if self.used(one)}
        self._used[whose] = used, self._clock.monotonic()
        return max(used - self._burst, 0.0) / self._a_second
