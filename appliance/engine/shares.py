"""What one peer may have of a table that all of them share. PURE, but for the clock of what is kept for ever.

One rule for every bound: whoever takes more has to leave room for others.

    an address      may have as much as it leaves free
    a connection    may have as much of that as it leaves to the others of its address
    everyone        may have a few in any case, however full the table is

So one connection gets a quarter of an empty table, one address with many connections half of it, the next address half
of what is left, and whoever comes last still gets a few. Everybody on this machine is one address, and so is everybody
behind one router: there it is the connections that share.
"""

from __future__ import annotations

import threading
from collections import deque

from .clock import Clock

_LOOPBACK_V6 = bytes(15) + b"\x01"
_MAPPED_V4 = bytes(10) + b"\xff\xff"
#: Of this machine, whichever of its addresses; nobody else's is so short.
_LOCAL = b""
#: Connections that are remembered to have made what is kept for ever, and addresses that make more now and then.
_REMEMBERED = 10_000
#: Of what is kept for ever 1 / so much of what is free is shared out.
LASTING_PART = 4


def address_of(peer: bytes) -> bytes:
    """Whose a connection is (see `message_id.encode_host`): an address of IPv4, the network of one of IPv6 (/64)."""
    if len(peer) == 8:
        return _LOCAL if peer[0] == 127 else peer[:4]
    if peer[:12] == _MAPPED_V4:
        return _LOCAL if peer[12] == 127 else peer[12:16]
    return _LOCAL if peer[:16] == _LOOPBACK_V6 else peer[:8]


def share(left: int, own: int) -> int:
    """How many more a connection may have that has `own`. left: how much more is free than its address has.

    Each that it takes is one less that is free, one more of its address, and one more of its own.
    """
    return max((left - 2 * own) // 4, 0)


class Shares:
    """Counts what each has, until it is given back. Owned by whoever owns the table.

    A peer is an address and port, `conn.born_host`; None is the broker itself, which may have all of it. The few that
    everyone may have count neither for the table nor for the address.
    """

    def __init__(self, few: int = 0) -> None:
        """few: what each connection may have in any case."""
        self.few = few
        #: What all have together, but for the few of each.
        self.taken = 0
        self._addresses: dict[bytes, int] = {}
        self._connections: dict[bytes, int] = {}

    def room(self, peer: bytes | None, most: int) -> int:
        """How many more a peer may have. most: what the table has room for."""
        free = most - self.taken
        if peer is None:
            return max(free, 0)
        own = self._connections.get(peer, 0)
        left = free - self._addresses.get(address_of(peer), 0)
        return max(self.few - own, 0) + share(left, max(own - self.few, 0))

    def of(self, peer: bytes) -> int:
        """What a connection has."""
        return self._connections.get(peer, 0)

    def take(self, peer: bytes | None, most: int, size: int = 1) -> bool:
        """Count so many more of a peer's; False, and nothing is counted, when that is more than its share."""
        if size > self.room(peer, most):
            return False
        self.add(peer, size)
        return True

    def add(self, peer: bytes | None, size: int = 1) -> None:
        """Count so many more of a peer's, or less, whatever its share is."""
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
        """A peer has so many less."""
        self.add(peer, -size)


def _put(table: dict[bytes, int], key: bytes, number: int) -> None:
    if number:
        table[key] = number
    else:
        table.pop(key, None)


class LooseShares:
    """Of what goes when its last holder lets go of it, on any thread and in the middle of anything. Any thread."""

    def __init__(self) -> None:
        # Any thread; one C call: it may come while this thread has the lock.
        self._given: deque[bytes | None] = deque()
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._shares = Shares()

    def take(self, peer: bytes | None, most: int, few: int | None = None) -> bool:
        """As `Shares.take`, of one. few: what a connection may have of it at most."""
        with self._lock:
            while self._given:
                self._shares.give(self._given.popleft())
            if few is not None and peer is not None and self._shares.of(peer) >= few:
                return False
            return self._shares.take(peer, most)

    def give(self, peer: bytes | None) -> None:
        """A peer has one less from the next `take` on."""
        self._given.append(peer)


class LastingShares:
    """Of what is kept for ever, whoever made it: names in tables. Nothing is given back, and counted since the start.

    An address may make a quarter of what it leaves free. Of one that has made its share, connections that have made
    little yet still may make a few, as many as a clock allows the whole address.
    """

    def __init__(self, clock: Clock, few: int = 16, a_minute: int = 60) -> None:
        self._clock = clock
        self._few = few
        self._a_minute = a_minute
        self._addresses: dict[bytes, int] = {}
        self._connections: dict[bytes, int] = {}
        # Address -> (how many its newcomers may make, when that was so).
        self._tokens: dict[bytes, tuple[float, float]] = {}

    def take(self, peer: bytes | None, free: int) -> bool:
        """Count one more of a peer's; False when that is more than its share. free: what the table has room for."""
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
    """How much each may cause in one go, and then a second. By peer or address."""

    def __init__(self, clock: Clock, burst: int, a_second: int) -> None:
        self._clock = clock
        self._burst = burst
        self._a_second = a_second
        # Whose -> (how much it used, when that was so); what was used goes with time.
        self._used: dict[bytes, tuple[float, float]] = {}

    def used(self, whose: bytes) -> float:
        """How much is used of its burst."""
        used, at = self._used.get(whose, (0.0, 0.0))
        return max(used - (self._clock.monotonic() - at) * self._a_second, 0.0)

    def wait_s(self, whose: bytes, size: int) -> float:
        """Count so much; how long it should wait before it causes more, 0 within its burst."""
        used = self.used(whose) + size
        if len(self._used) >= _REMEMBERED and whose not in self._used:
            self._used = {one: said for one, said in self._used.items() if self.used(one)}
        self._used[whose] = used, self._clock.monotonic()
        return max(used - self._burst, 0.0) / self._a_second
