"""The thread `failover`: reads the set's key, decides (`machine.decide`), and does one act after the other.

Level-triggered: each turn sees everything anew. Nothing that fails ends it; what was not done shows in the next sight.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid as uuids
from collections.abc import Callable
from typing import NamedTuple

from .. import hotpath  # noqa: F401
from ..clock import Clock
from ..errors import CorruptFile, RocketBoxError
from ..service_thread import ServiceThread
from .decision import (
    Act,
    Answer,
    Await,
    BeginEpoch,
    CloseStream,
    Cut,
    Drain,
    Fence,
    Follow,
    Lead,
    Memory,
    Other,
    Read,
    Relay,
    Rules,
    See,
    SetAside,
    Sight,
    Swap,
    Swapped,
    Wish,
)
from .leader_store import LeaderStore, Revision, StoreUnavailable, SwapConflict
from .machine import decide, pause, release_until, wants_read
from .parts import Brokers, LogHealth, MemberFiles, MemberReport, StreamStatus
from .set_state import Announcement, Leader, SetState, decode_announcement, decode_state, encode

logger = logging.getLogger(__name__)

#: How often a member says what it is, and looks what others say.
ANNOUNCE_S = 2.0
_POLL_S = 0.25
_MAX_SLOT = 64


class Status(NamedTuple):
    """For people; replaced whole each turn."""

    role: str
    why: str
    state: SetState | None
    store_ok: bool
    store_why: str
    health: LogHealth | None
    stream: StreamStatus | None
    members: tuple[MemberReport, ...]
    announced: dict[str, Announcement]
    at: float


class FailoverService(ServiceThread):
    """Owns: the leader store, the member's files, the broker's role. Woken by: wishes, its own pauses."""

    def __init__(
        self,
        store: LeaderStore,
        root: str,
        files: MemberFiles,
        brokers: Brokers,
        rules: Rules,
        addr: str,
        ha: str,
        version: str,
        clock: Clock,
    ) -> None:
        super().__init__("failover", clock)
        self._store = store
        self._key = f"{root}/state"
        self._root = root
        self._files = files
        self._brokers = brokers
        self._rules = rules
        self._addr, self._ha, self._version = addr, ha, version
        self._memory = Memory()
        self._swapped: Swapped | None = None
        self._closed_at = -1
        self._following: tuple[str, int] = ("", 0)
        self._awaited: frozenset[str] = frozenset()
        self._drained: bool | None = None
        self._announced: dict[str, Announcement] = {}
        self._announced_at = -ANNOUNCE_S
        self._store_why = ""
        self._higher = 0
        self._wishes = threading.Lock()
        self._wish: Wish | None = None
        self._answer: Answer | None = None
        self._answered = threading.Event()
        self.release_until = 0.0
        self.status = Status("fenced", "it has just started", None, False, "", None, None, (), {}, 0.0)

    # --- any thread

    def ask(self, wish: Wish, seconds: float) -> Answer | None:
        with self._wishes:
            self._answered.clear()
            self._answer, self._wish = None, wish
            self.wakeup()
            if not self._answered.wait(seconds):
                self._wish = None
                return None
            return self._answer

    def met_epoch(self, epoch: int) -> None:
        self._higher = max(self._higher, epoch)
        self.wakeup()

    # --- this thread

    def run(self) -> None:
        while not self.stopped:
            try:
                self._turn()
            except Exception:
                logger.exception("failover: a turn failed")
                self.wait(_POLL_S)
        self._store.close()

    def _turn(self) -> None:
        if self._higher > self._files.seen:
            self._files.see(self._higher)
        if not self._files.slot:
            self._take_slot()
        read, unread = None, False
        if wants_read(self._memory):
            read = self._read()
            unread = read is None
        now = self.clock.steady()
        sight = self._sight(read, unread)
        before = self._memory
        self._memory, acts = decide(before, now, sight, self._rules)
        self.release_until = release_until(self._memory, self._rules)
        self._swapped = None
        memory = self._memory
        if (memory.role, memory.why) != (before.role, before.why):
            logger.info("failover: role=%s %s", memory.role, memory.why)
        self.status = Status(
            memory.role,
            memory.why,
            memory.reign.state if memory.reign is not None else (memory.key.state if memory.key is not None else None),
            not self._store_why,
            self._store_why,
            sight.health,
            sight.stream,
            tuple(sight.members),
            self._announced,
            now,
        )
        for act in acts:
            self._do(act)
        if acts:
            return
        if now - self._announced_at >= ANNOUNCE_S and not unread:
            self._announce(sight)
            return
        seconds = pause(self._memory, self.clock.steady(), self._rules)
        if wants_read(self._memory) and self._memory.key is not None and not unread and self._wish is None:
            self._store.wait(self._key, self._memory.key.revision, min(seconds, _POLL_S))
        else:
            self.wait(seconds)

    def _read(self) -> Read | None:
        try:
            value, revision = self._store.read(self._key)
        except StoreUnavailable as error:
            self._store_why = str(error)
            return None
        self._store_why = ""
        return Read(_state(value), revision, self.clock.steady(), value is None)

    def _sight(self, read: Read | None, unread: bool) -> Sight:
        files = self._files
        last = files.epochs[-1] if files.epochs else None
        try:
            cluster = self._store.identity()
        except StoreUnavailable:
            cluster = ""
        return Sight(
            me=Leader(files.uuid, files.slot, self._addr, self._ha),
            seen=files.seen,
            epoch=last.epoch if last else 0,
            epoch_start=last.start if last else 0,
            health=self._brokers.health(),
            stream=self._brokers.stream(),
            members=self._brokers.members(),
            role=self._brokers.role,
            nonce=uuids.uuid4().hex,
            random=random.random(),
            wall_ms=self.clock.wall_ms(),
            read=read,
            unread=unread,
            swapped=self._swapped,
            closed_at=self._closed_at,
            following=self._following,
            awaited=self._awaited,
            drained=self._drained,
            wish=self._wish,
            cluster=cluster,
            others={uuid: Other(one.seen, one.log_end) for uuid, one in self._announced.items()},
        )

    def _do(self, act: Act) -> None:
        brokers, files = self._brokers, self._files
        logger.debug("failover: %s", act)
        if isinstance(act, Swap):
            self._swapped = self._swap(act)
        elif isinstance(act, See):
            files.see(act.epoch)
        elif isinstance(act, BeginEpoch):
            files.begin_epoch(act.epoch, act.start)
        elif isinstance(act, Await):
            brokers.await_members(act.awaited)
            self._awaited = act.awaited
        elif isinstance(act, CloseStream):
            self._following = ("", 0)
            self._closed_at = brokers.close_stream()
        elif isinstance(act, Lead):
            brokers.lead(act.epoch, act.awaited)
            self._awaited, self._drained, self._closed_at = act.awaited, None, -1
            self._following = ("", 0)
        elif isinstance(act, Fence):
            self._following = ("", 0)
            brokers.fence(act.why)
        elif isinstance(act, Follow):
            self._closed_at = -1
            brokers.follow(act.leader, act.epoch)
            self._following = (act.leader.uuid, act.epoch)
        elif isinstance(act, Cut):
            brokers.cut(act.point, act.leader, act.epoch)
            self._following, self._closed_at = (act.leader.uuid, act.epoch), -1
        elif isinstance(act, SetAside):
            brokers.set_aside(act.why)
            self._following, self._closed_at = ("", 0), -1
        elif isinstance(act, Drain):
            self._drained = brokers.drain(act.seconds)
        elif isinstance(act, Relay):
            brokers.relay_to(act.leader, act.seconds)
        elif isinstance(act, Answer):
            self._answer, self._wish = act, None
            self._answered.set()

    def _swap(self, act: Swap) -> Swapped:
        sent_at = self.clock.steady()
        try:
            revision = self._store.swap(self._key, encode(act.state), act.expected)
        except SwapConflict as error:
            self._store_why = ""
            return Swapped("conflict", sent_at, error.revision, _state(error.value), error.value is None)
        except StoreUnavailable as error:
            self._store_why = str(error)
            return Swapped("unknown", sent_at)
        self._store_why = ""
        return Swapped("done", sent_at, revision)

    def _take_slot(self) -> None:
        own = self._files.uuid.encode()
        try:
            for slot in range(1, _MAX_SLOT):
                key = f"{self._root}/slot/{slot}"
                try:
                    self._store.swap(key, own, None)
                except SwapConflict as error:
                    if error.value != own:
                        continue
                self._files.take_slot(slot)
                return
        except StoreUnavailable as error:
            self._store_why = str(error)

    def _announce(self, sight: Sight) -> None:
        self._announced_at = self.clock.steady()
        files = self._files
        mine = Announcement(
            uuid=files.uuid,
            slot=files.slot,
            addr=self._addr,
            ha=self._ha,
            version=self._version,
            role=self._memory.role,
            seen=files.seen,
            log_end=sight.health.end,
            epochs=tuple((one.epoch, one.start) for one in files.epochs[-5:]),
            wall_ms=self.clock.wall_ms(),
        )
        try:
            self._store.put(f"{self._root}/member/{files.uuid}", encode(mine))
            found = {}
            for value in self._store.list(f"{self._root}/member/").values():
                try:
                    one = decode_announcement(value)
                except CorruptFile:
                    continue
                found[one.uuid] = one
            self._announced = found
        except StoreUnavailable as error:
            self._store_why = str(error)


def _state(value: bytes | None) -> SetState | None:
    if value is None:
        return None
    try:
        return decode_state(value)
    except CorruptFile as error:
        logger.error("failover: %s", error)
        return None


__all__ = ["Callable", "FailoverService", "Revision", "RocketBoxError", "Status"]
