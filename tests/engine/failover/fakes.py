"""Members of a set without brokers and disks, for the thread `failover`: logs are lists, a stream is a copy."""

from __future__ import annotations

import threading
import time

from appliance.engine.failover.leader_store import Revision, StoreUnavailable, SwapConflict
from appliance.engine.failover.parts import Known, LogHealth, MemberReport, StreamStatus
from appliance.engine.failover.set_state import EpochStart, Leader
from tests.engine.failover.simulation.member import consistent_point


class FakeStore:
    """A LeaderStore for many threads. down: it answers no call. lose: number of swaps whose answers get lost after they
    are done. broken: error that the next call raises, once."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[bytes, int]] = {}
        self.revision = 0
        self.down, self.lose, self.name = False, 0, "one"
        self.broken: Exception | None = None
        self.changed = threading.Condition()
        self.closed = 0

    def _reach(self) -> None:
        if self.broken is not None:
            broken, self.broken = self.broken, None
            raise broken
        if self.down:
            raise StoreUnavailable("the store is down")

    def write(self, key: str, value: bytes) -> Revision:
        with self.changed:
            self.revision += 1
            self.keys[key] = (value, self.revision)
            self.changed.notify_all()
            return Revision(str(self.revision))

    def read(self, key: str) -> tuple[bytes | None, Revision]:
        with self.changed:
            self._reach()
            value, revision = self.keys.get(key, (None, 0))
            return value, Revision(str(revision))

    def swap(self, key: str, value: bytes, expected: Revision | None) -> Revision:
        with self.changed:
            self._reach()
            found, revision = self.keys.get(key, (None, 0))
            if str(revision) != (expected or "0"):
                raise SwapConflict(found, Revision(str(revision)))
            after = self.write(key, value)
            if self.lose:
                self.lose -= 1
                raise StoreUnavailable("the answer was lost")
            return after

    def wait(self, key: str, seen: Revision, timeout_s: float) -> None:
        with self.changed:
            self.changed.wait_for(lambda: str(self.keys.get(key, (None, 0))[1]) != seen, timeout_s)

    def put(self, key: str, value: bytes) -> None:
        with self.changed:
            self._reach()
            self.write(key, value)

    def list(self, prefix: str) -> dict[str, bytes]:
        with self.changed:
            self._reach()
            return {key: value for key, (value, _) in self.keys.items() if key.startswith(prefix)}

    def identity(self) -> str:
        self._reach()
        return self.name

    def close(self) -> None:
        self.closed += 1


class FakeFiles:
    def __init__(self, uuid: str) -> None:
        self.uuid, self.slot, self.seen, self.set_id = uuid, 0, 0, ""
        self.epochs: tuple[EpochStart, ...] = ()
        self.known = Known()
        self.turn = 0

    def advance(self) -> None:
        self.turn += 1

    def is_older_than(self, turn: int) -> bool:
        return self.turn < turn

    def renew(self) -> None:
        self.uuid, self.slot, self.epochs, self.known = f"{self.uuid}-new", 0, (), Known()

    def note(self, known: Known) -> None:
        self.known = known

    def see(self, epoch: int) -> None:
        self.seen = max(self.seen, epoch)

    def take_slot(self, slot: int) -> None:
        self.slot = slot

    def join(self, set_id: str) -> None:
        self.set_id = set_id

    def begin_epoch(self, epoch: int, start: int) -> None:
        self.epochs += (EpochStart(epoch, start),)


class FakeBrokers:
    """Brokers of a set. fails: acts that raise, by name, and how often. done: acts in order."""

    def __init__(self, network: dict[str, FakeBrokers], files: FakeFiles) -> None:
        self.network, self.files = network, files
        self.role, self.epoch = "fenced", 0
        self.log: list[str] = []
        self.published = 0
        self.awaited: frozenset[str] = frozenset()
        self.leader: tuple[str, int] | None = None
        self.alive, self.running, self.draining = True, True, False
        self.cut_at = -1
        self.done: list[str] = []
        self.fails: dict[str, int] = {}
        self.heard_at = 0.0
        network[files.uuid] = self

    def _begin(self, name: str) -> None:
        if self.fails.get(name):
            self.fails[name] -= 1
            raise OSError(f"{name} failed")
        self.done.append(name)

    def _now(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def _stream(self) -> FakeBrokers | None:
        if self.leader is None or not self.running:
            return None
        other = self.network.get(self.leader[0])
        if other is None or not other.running or other.role != "leader" or other.epoch != self.leader[1]:
            return None
        point = consistent_point(self.files.epochs, len(self.log), other.files.epochs, len(other.log))
        if point is not None and point < len(self.log):
            self.cut_at = point
            return None
        self.files.epochs = other.files.epochs
        self.log += other.log[len(self.log) :]
        return other

    def health(self) -> LogHealth:
        if self.role == "leader":
            for other in list(self.network.values()):
                other._stream()
            ends = [len(self.network[uuid].log) for uuid in self.awaited]
            self.published = min([len(self.log), *ends])
        return LogHealth(len(self.log), len(self.log), self.published, True, "", self.alive)

    def follow(self, leader: Leader, epoch: int) -> None:
        self._begin("follow")
        self.role, self.leader, self.cut_at = "follower", (leader.uuid, epoch), -1

    def cut(self, point: int, leader: Leader, epoch: int) -> None:
        self._begin("cut")
        del self.log[point:]
        self.role, self.leader, self.cut_at = "follower", (leader.uuid, epoch), -1

    def set_aside(self, why: str) -> None:
        self._begin("set_aside")
        self.log, self.role, self.leader = [], "follower", None

    def close_stream(self) -> int:
        self._begin("close_stream")
        self.leader = None
        return len(self.log)

    def lead(self, epoch: int, awaited: frozenset[str]) -> None:
        self._begin("lead")
        self.role, self.epoch, self.awaited, self.draining = "leader", epoch, awaited, False

    def await_members(self, awaited: frozenset[str]) -> None:
        self._begin("await_members")
        self.awaited = awaited

    def fence(self, why: str) -> None:
        self._begin("fence")
        self.role, self.epoch, self.leader = "fenced", 0, None

    def drain(self, deadline_s: float) -> bool:
        self._begin("drain")
        self.draining = True
        return True

    def relay_to(self, leader: Leader, seconds: float) -> None:
        self._begin("relay_to")

    def members(self) -> list[MemberReport]:
        if self.role != "leader":
            return []
        now = self._now()
        return [
            MemberReport(uuid, uuid, len(other.log), len(self.log), now, now)
            for uuid, other in list(self.network.items())
            if other is not self and other._stream() is self
        ]

    def stream(self) -> StreamStatus:
        there = self._stream()
        if there is not None:
            self.heard_at = self._now()
            return StreamStatus(there.files.uuid, there.epoch, self.heard_at, False, -1, False, there.published, "")
        gone = self.leader is not None and not self.network[self.leader[0]].running
        return StreamStatus("", 0, self.heard_at, gone, self.cut_at, False, 0, "no stream")
