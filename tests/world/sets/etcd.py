"""A stand-in for etcd, as the store for leadership uses it: compare-and-swap, a quota, a state of before that returns.

One place keeps the keys. Each member has its own way to it, which may be cut in either direction: a request that does
not come is not done, and one whose answer does not come was done. No lease is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appliance.engine.failover.leader_store import Revision, StoreReplaced, StoreUnavailable, SwapConflict
from tests.world.threads import Event

if TYPE_CHECKING:
    from tests.world.sets.member import Member
    from tests.world.sets.network import SetNetwork

NAME = "etcd"
TIMEOUT_S = 1.0


class Etcd:
    """The keys. down: it does not answer. full: its quota is used up, it takes no writes."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[bytes, int]] = {}
        self.revision = 1
        self.down = self.full = False
        self._copy: tuple[dict[str, tuple[bytes, int]], int] | None = None
        #: Counts the states of before that were put back.
        self.restored = 0
        #: Of those who watch keys.
        self.watched: dict[Event, None] = {}

    def write(self, key: str, value: bytes) -> int:
        if self.full:
            raise StoreUnavailable("etcd answers 429: mvcc: database space exceeded")
        self.revision += 1
        self.keys[key] = (value, self.revision)
        self._tell()
        return self.revision

    def _tell(self) -> None:
        for event in self.watched:
            event.set()

    def copy(self) -> None:
        """Keep a copy of the keys, as a backup does."""
        self._copy = (dict(self.keys), self.revision)

    def restore(self) -> bool:
        """Put the copy back, if there is one that is older."""
        if self._copy is None or self._copy[1] == self.revision:
            return False
        keys, self.revision = self._copy
        self.keys = dict(keys)
        self.restored += 1
        self._tell()
        return True


class Client:
    """One member's connection: a `LeaderStore`. As the real one it believes no older state than it has seen."""

    def __init__(self, etcd: Etcd, network: SetNetwork, member: Member) -> None:
        self._etcd, self._network, self._member = etcd, network, member
        self._revision = 0

    def _go(self, way: tuple[str, str]) -> bool:
        """False if nothing comes through in this direction."""
        network = self._network
        network.scheduler.block(None, network.delay_of(f"{way[0]}>{way[1]}"))
        return f"{way[0]}>{way[1]}" not in network.cuts and not self._etcd.down

    def _begin(self) -> None:
        if not self._go((self._member.name, NAME)):
            self._network.scheduler.block(None, TIMEOUT_S)
            raise StoreUnavailable("etcd does not answer in time")

    def _end(self, revision: int) -> None:
        if not self._go((NAME, self._member.name)):
            self._network.scheduler.block(None, TIMEOUT_S)
            raise StoreUnavailable("etcd does not answer in time")
        if revision < self._revision:
            raise StoreReplaced(f"etcd is at revision {revision} again, it was at {self._revision}")
        self._revision = revision

    def read(self, key: str) -> tuple[bytes | None, Revision]:
        self._begin()
        value, revision = self._etcd.keys.get(key, (None, 0))
        self._end(self._etcd.revision)
        return value, Revision(str(revision))

    def swap(self, key: str, value: bytes, expected: Revision | None) -> Revision:
        self._begin()
        if self._etcd.revision < self._revision:  # the value is compared, too
            self._end(self._etcd.revision)
        found, at = self._etcd.keys.get(key, (None, 0))
        if str(at) != (expected or "0"):
            self._end(self._etcd.revision)
            raise SwapConflict(found, Revision(str(at)))
        revision = self._etcd.write(key, value)
        self._end(revision)
        return Revision(str(revision))

    def wait(self, key: str, seen: Revision, timeout_s: float) -> None:
        scheduler = self._network.scheduler
        until = scheduler.now + timeout_s
        changed = Event(scheduler)
        self._etcd.watched[changed] = None
        try:
            while scheduler.now < until and changed.wait(until - scheduler.now):
                changed.clear()
                if self.read(key)[1] != seen:
                    return
        except StoreUnavailable:
            pass
        finally:
            del self._etcd.watched[changed]

    def put(self, key: str, value: bytes) -> None:
        self._begin()
        self._end(self._etcd.write(key, value))

    def list(self, prefix: str) -> dict[str, bytes]:
        self._begin()
        found = {key: value for key, (value, _) in self._etcd.keys.items() if key.startswith(prefix)}
        self._end(self._etcd.revision)
        return found

    def identity(self) -> str:
        self._begin()
        self._end(self._etcd.revision)
        return "one"

    def close(self) -> None:
        """Nothing is kept open."""
