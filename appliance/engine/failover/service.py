"""The thread that keeps a member in its set: read the key, decide, act, and again.

    store.read -> Sight -> machine.decide -> acts -> files, brokers, store.swap -> what they did: the next Sight

An act that fails ends its turn; the next sight shows what was not done, and it is decided anew.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import uuid as uuids
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ..clock import SYSTEM, Clock
from ..errors import CorruptFile
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
    Join,
    Lead,
    Memory,
    Note,
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
from .invariants import InvariantBroken, awaited_by
from .leader_store import LeaderStore, Revision, StoreReplaced, StoreUnavailable, SwapConflict
from .machine import decide, pause, release_until, wants_read
from .parts import Brokers, LogHealth, MemberFiles, MemberReport, StreamStatus
from .set_state import Announcement, Leader, SetState, decode_announcement, decode_state, encode
from .settings import differences
from .stores import shortage

logger = logging.getLogger(__name__)

#: Time between two announcements, and between two reads of the other members' announcements.
ANNOUNCE_S = 3.0
#: Time between two looks at the room that the store has.
ROOM_S = 60.0
#: Time between two calls that tidy the store's history.
TIDY_S = 3600.0
#: Pause after a turn that failed; longest pause of a member without a stream, which looks at the key more often.
_AFTER_FAILURE_S, _WITHOUT_STREAM_S = 0.25, 0.1
#: Pause after a turn with the same acts as in the turn before.
_AGAIN_S = 0.02
_MAX_SLOT = 64
#: A failure of the store is logged at once, and again after this time.
_TELL_S = 60.0
#: Roles in which a member has read the key and takes it for its set's: it must not touch another set's slots.
_BELIEVES = frozenset(("leader", "in-sync", "follower", "candidate"))
#: Most announcements that are read; no set has more members than slots.
_MAX_ANNOUNCED = 2 * _MAX_SLOT
_ANNOUNCED_EPOCHS = 8


class SetStatus(NamedTuple):
    """The status for pages and metrics; a new one each turn. Seconds are CLOCK_BOOTTIME.

    role: "leader", "in-sync", "follower", "candidate", "fenced", "frozen", "stranger"; why: "" when all is well. state,
    revision: of the key, as last known. store_ok: the last call was answered; store_why: why not. shortage: what the
    store lacks, or will soon. read_at: when the store answered last; 0.0: never. astray: the key is gone or the store
    was replaced, and only an operator can decide how to go on. awaited: uuids without which nothing is published.
    announced: by uuid, the members' announcements; heard_at: when each last changed. won: elections that this process
    won. slow: by uuid, members whose acknowledgements to this leader come late, and how late (ms). at: when this status
    was made.
    """

    role: str
    why: str
    uuid: str
    slot: int
    seen: int
    state: SetState | None = None
    revision: str = ""
    store_ok: bool = False
    store_why: str = ""
    shortage: str = ""
    read_at: float = 0.0
    astray: bool = False
    health: LogHealth | None = None
    stream: StreamStatus | None = None
    members: tuple[MemberReport, ...] = ()
    awaited: frozenset[str] = frozenset()
    announced: Mapping[str, Announcement] = {}
    heard_at: Mapping[str, float] = {}
    won: int = 0
    slow: Mapping[str, int] = {}
    at: float = 0.0


class FailoverService(ServiceThread):
    """The thread `failover`. Owns: the leader store, the member's files, and the Broker's role. Woken by: wishes, and
    by a higher epoch in a handshake."""

    def __init__(
        self,
        open_store: Callable[[], LeaderStore],
        root: str,
        files: MemberFiles,
        brokers: Brokers,
        rules: Rules,
        addr: str,
        ha: str,
        version: str,
        clock: Clock = SYSTEM,
        tidy: Callable[[LeaderStore], None] = lambda store: None,
        settings: Callable[[], dict[str, str]] = dict,
    ) -> None:
        """open_store: connects on first use; called again when an operator adopts. root: prefix of the set's keys in
        the store, without a "/" at its end. addr, ha: "host:port" as announced. tidy: called each hour with the store.
        settings: this member's values of the settings that all members must have alike."""
        super().__init__("failover", clock)
        # Constant after construction.
        self._open_store, self._files, self._brokers = open_store, files, brokers
        self._root, self._key = root, f"{root}/state"
        self._addr, self._ha, self._version = addr, ha, version
        self._tidy = tidy
        self._settings = settings
        # This thread's. _replaced: the store that answers now is another than the one that was opened.
        self._store = open_store()
        self._replaced = False
        self._opened_for: Wish | None = None
        self._rules = rules
        self._memory = Memory()
        self._swapped: Swapped | None = None
        self._closed_at = -1
        self._following: tuple[str, int] = ("", 0)
        self._awaited: frozenset[str] = frozenset()
        self._drained: bool | None = None
        self._cluster = ""
        self._announced: dict[str, Announcement] = {}
        self._heard_at: dict[str, float] = {}
        self._contradictions: dict[str, tuple[str, ...]] = {}  # by uuid, each logged once
        self._not_understood: set[str] = set()  # keys of the last look, each logged once
        self._announced_at = -ANNOUNCE_S
        self._is_newest = False  # true of this directory, as far as the store knows; looked at once
        self._tidied_at = -TIDY_S
        self._shortage, self._room_at = "", -ROOM_S
        self._store_ok, self._store_why, self._read_at = False, "it was not asked yet", 0.0
        self._write_why = ""  # why it takes no writes, although it may answer reads
        self._told_why, self._told_at = "", -_TELL_S
        self._won = 0
        self._last_acts: tuple[Act, ...] = ()
        self._last_failure = ""
        self._full = False
        # Any thread's.
        self._met = 0
        self._asking = threading.Lock()
        self._wish: Wish | None = None
        self._answer: Answer | None = None
        self._answered = threading.Event()
        #: BOOTTIME until which a leader may acknowledge: checked before each release in an asynchronous set.
        self.release_until = release_until(self._memory, rules)
        #: Replaced whole, each turn.
        self.status = SetStatus(self._memory.role, self._memory.why, files.uuid, files.slot, files.seen)

    # --- any thread

    def ask(self, wish: Wish, seconds: float) -> Answer | None:
        """Have a wish fulfilled, or return why it will not be. None: not within `seconds`; the wish is withdrawn."""
        with self._asking:
            self._answered.clear()
            self._answer, self._wish = None, wish
            self.wakeup()
            self._answered.wait(seconds)
            self._wish = None
            return self._answer

    def met_epoch(self, epoch: int) -> None:
        """Note an epoch that another member showed in a handshake."""
        self._met = max(self._met, epoch)
        self.wakeup()

    # --- the thread

    def run(self) -> None:
        while not self.stopped:
            try:
                self._sleep(self._turn())
            except Exception as error:
                self._survive(error)
        self.release_until = release_until(Memory(), self._rules)
        self._store.close()

    def _survive(self, error: Exception) -> None:
        """Log a failed turn, but only once while the same error repeats. A leader whose decision broke an invariant is
        fenced."""
        if repr(error) != self._last_failure:
            logger.error("failover: a turn failed", exc_info=error)
            self._last_failure = repr(error)
        if isinstance(error, InvariantBroken) and self._brokers.role == "leader":
            try:
                self._fence(f"a decision was refused, this is a bug: {error}")
            except Exception:
                logger.exception("failover: could not fence the broker")
        self.wait(_AFTER_FAILURE_S)

    def _turn(self) -> float:
        """Do one turn; return the seconds to wait before the next."""
        if self._met > self._files.seen:
            self._files.see(self._met)
        wish = self._wish
        if wish is not None and wish.kind == "adopt" and self._opened_for is not wish and self._was_put_back():
            self._believe_the_store()
            self._opened_for = wish
        read, unread = None, False
        if wants_read(self._memory):
            read = self._read()
            unread = read is None
        due = self.clock.steady() - self._announced_at >= ANNOUNCE_S
        if self._store_ok and (due or not self._is_newest or not (self._files.slot or self._full)):
            self._keep_house()
        if not self._is_newest:
            read, unread = None, True  # an old copy must not take itself for the member that the key names
        now = self.clock.steady()
        sight = self._sight(read, unread, wish)
        before = self._memory
        if sight.me.uuid != self._rules.uuid:  # its store was set aside: it is another member now
            self._rules = self._rules._replace(uuid=sight.me.uuid)
        self._memory, acts = decide(before, now, sight, self._rules)
        self._swapped = None
        self.release_until = release_until(self._memory, self._rules)
        self._report(before, sight, now)
        for act in acts:
            self._do(act, wish)
        repeated, self._last_acts = acts == self._last_acts, acts
        if acts:
            return _AGAIN_S if repeated else 0.0
        return pause(self._memory, self.clock.steady(), self._rules)

    def _sleep(self, seconds: float) -> None:
        memory = self._memory
        if seconds <= 0:
            return
        if wants_read(memory) and not self._brokers.stream().leader:
            self.wait(min(seconds, _WITHOUT_STREAM_S))
        elif wants_read(memory) and memory.key is not None and self._store_ok and self._wish is None:
            self._store.wait(self._key, memory.key.revision, seconds)
        else:
            self.wait(seconds)

    def _sight(self, read: Read | None, unread: bool, wish: Wish | None) -> Sight:
        files, brokers = self._files, self._brokers
        last = files.epochs[-1] if files.epochs else None
        return Sight(
            me=Leader(files.uuid, files.slot, self._addr, self._ha),
            seen=files.seen,
            epoch=last.epoch if last is not None else 0,
            epoch_start=last.start if last is not None else 0,
            health=brokers.health(),
            stream=brokers.stream(),
            members=brokers.members(),
            role=brokers.role,
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
            wish=wish,
            cluster=self._cluster,
            replaced=self._replaced,
            set_id=files.set_id,
            others={uuid: Other(one.seen, one.log_end, one.log_begin) for uuid, one in self._announced.items()},
            known=files.known,
        )

    def _report(self, before: Memory, sight: Sight, now: float) -> None:
        memory, key = self._memory, self._memory.key
        if memory.reign is not None and before.reign is None:
            self._won += 1
        if (memory.role, memory.why) != (before.role, before.why):
            logger.info("failover: role=%s why=%s epoch=%d", memory.role, memory.why or "-", sight.seen)
        slow = _slow_of(memory, sight, now)
        if slow.keys() != self.status.slow.keys():
            self._tell_of_slow(slow, sight)
        self.status = SetStatus(
            role=memory.role,
            why=memory.why,
            uuid=sight.me.uuid,
            slot=sight.me.slot,
            seen=sight.seen,
            state=key.state if key is not None else None,
            revision=key.revision if key is not None else "",
            store_ok=self._store_ok and not self._write_why,
            store_why=self._store_why or self._write_why,
            shortage=self._shortage,
            read_at=self._read_at,
            astray=self._is_another_store() or (memory.reign is not None and memory.reign.orphaned),
            health=sight.health,
            stream=sight.stream,
            members=tuple(sight.members),
            awaited=awaited_by(memory, sight.me.uuid),
            announced=self._announced,
            heard_at=self._heard_at,
            won=self._won,
            slow=slow,
            at=now,
        )

    def _tell_of_slow(self, slow: dict[str, int], sight: Sight) -> None:
        peers = {one.uuid: one.peer for one in sight.members}
        for uuid in slow.keys() - self.status.slow.keys():
            logger.warning(
                "failover: member=%s peer=%s takes %d ms to acknowledge: it is left out of the set while "
                "minInSyncReplicas are left", uuid, peers.get(uuid, "-"), slow[uuid],
            )  # fmt: skip
        for uuid in self.status.slow.keys() - slow.keys():
            logger.info("failover: member=%s peer=%s is no longer slow, or gone", uuid, peers.get(uuid, "-"))

    # --- acts

    def _do(self, act: Act, wish: Wish | None) -> None:
        """Do one act, and set what the next sight shows of it: before the act, the state in case it fails half-way."""
        brokers, files = self._brokers, self._files
        match act:
            case Swap():
                self._swapped = self._swap(act)
            case See(epoch):
                files.see(epoch)
            case Join(set_id):
                files.join(set_id)
            case Note(known):
                files.note(known)
            case BeginEpoch(epoch, start):
                files.begin_epoch(epoch, start)
            case Await(awaited):
                brokers.await_members(awaited)
                self._awaited = awaited
            case CloseStream():
                self._following, self._closed_at = ("", 0), -1
                self._closed_at = brokers.close_stream()
            case Lead(epoch, awaited):
                self._following, self._drained, self._awaited = ("", 0), None, awaited
                brokers.lead(epoch, awaited)
                self._closed_at = -1
            case Fence(why):
                self._fence(why)
            case Follow(leader, epoch):
                self._following, self._closed_at = ("", 0), -1
                brokers.follow(leader, epoch)
                self._following = (leader.uuid, epoch)
            case Cut(point, leader, epoch):
                self._following, self._closed_at = ("", 0), -1
                brokers.cut(point, leader, epoch)
                self._following = (leader.uuid, epoch)
            case SetAside(why):
                self._following, self._closed_at = ("", 0), -1
                brokers.set_aside(why)
            case Drain(seconds):
                self._drained = False
                self._drained = brokers.drain(seconds)
            case Relay(leader, seconds):
                brokers.relay_to(leader, seconds)
            case Answer():
                if self._wish is wish:
                    # Another member adopted the store before: this one only had to believe it.
                    self._answer = Answer(True, act.why) if wish is not None and self._opened_for is wish else act
                    self._wish = None
                    self._answered.set()
                if wish is not None and wish.kind == "resign":
                    self.request_stop()

    def _fence(self, why: str) -> None:
        self._following, self._closed_at = ("", 0), -1
        self._brokers.fence(why)

    # --- the store

    @contextlib.contextmanager
    def _asked(self, writes: bool = False) -> Iterator[None]:
        """Wrap a call of the store, and note whether it answered. Lets StoreUnavailable through."""
        try:
            yield
        except StoreUnavailable as error:
            self._store_ok, self._store_why = False, str(error)
            if writes:
                self._write_why = str(error)
            self._replaced = isinstance(error, StoreReplaced)
            self._tell_of_store(str(error))
            raise
        except SwapConflict:
            self._answered_well(writes)
            raise
        self._answered_well(writes)

    def _answered_well(self, wrote: bool) -> None:
        self._store_ok, self._store_why, self._read_at = True, "", self.clock.steady()
        self._replaced = False
        if wrote:
            self._write_why = ""
        if self._told_why and not self._write_why:
            logger.info("failover: the leader store answers")
            self._told_why = ""

    def _tell_of_store(self, why: str) -> None:
        """Log a failure of the store, unless one was logged less than _TELL_S ago."""
        now = self.clock.steady()
        if now - self._told_at >= _TELL_S:
            self._told_why, self._told_at = why, now
            logger.warning("failover: the leader store fails: %s", why)

    def _is_another_store(self) -> bool:
        known = self._memory.cluster
        return self._replaced or bool(known and self._cluster and self._cluster != known)

    def _was_put_back(self) -> bool:
        """True if the store is another one, or an older state of it. A leader writes only, each few seconds: it reads
        here, since an operator may ask before it has seen that."""
        read, reign = self._read(), self._memory.reign
        older = read is not None and reign is not None and (read.state.epoch if read.state else 0) < reign.state.epoch
        return older or self._is_another_store()

    def _believe_the_store(self) -> None:
        """Open the store anew for an operator who adopts, and believe whatever answers now. A swap without an answer
        was sent to the old store, and is forgotten; this reign counts as orphaned, since its key is gone."""
        logger.warning("failover: the leader store is opened anew, to be adopted")
        old, self._store = self._store, self._open_store()
        old.close()
        self._replaced, self._cluster = False, ""
        with contextlib.suppress(StoreUnavailable):
            self._cluster = self._store.identity()
        reign = self._memory.reign
        if reign is not None:
            reign = reign._replace(orphaned=True)
        self._memory = self._memory._replace(key=None, reads=0, pending=None, run_at=None, reign=reign, cluster="")
        self._swapped = None

    def _read(self) -> Read | None:
        """Return the key's state, None if the store does not answer."""
        try:
            with self._asked():
                value, revision = self._store.read(self._key)
        except StoreUnavailable:
            self._look_at_the_cluster()
            return None
        return Read(_state_of(value), revision, self.clock.steady(), value is None)

    def _swap(self, act: Swap) -> Swapped:
        sent_at = self.clock.steady()
        try:
            with self._asked(writes=True):
                revision: Revision = self._store.swap(self._key, encode(act.state), act.expected)
        except SwapConflict as conflict:
            state = _state_of(conflict.value)
            return Swapped("conflict", sent_at, conflict.revision, state, conflict.value is None)
        except StoreUnavailable:
            return Swapped("unknown", sent_at)
        except Exception:
            # Whatever failed: the swap may have been done.
            logger.exception("failover: the leader store failed in a way of its own")
            return Swapped("unknown", sent_at)
        return Swapped("done", sent_at, revision)

    def _look_at_the_cluster(self) -> None:
        """Read which cluster answers, but at most every ANNOUNCE_S: the call may take up to its time-out."""
        now = self.clock.steady()
        if now - self._announced_at >= ANNOUNCE_S:
            self._announced_at = now
            with contextlib.suppress(StoreUnavailable):
                self._cluster = self._store.identity()

    def _keep_house(self) -> None:
        """Take a slot, announce this member, and read the others' announcements: for people, and for ranks of
        candidates."""
        self._announced_at = self.clock.steady()
        try:
            with self._asked():
                self._cluster = self._store.identity()
            if not self._is_newest:
                with self._asked():
                    self._look_whether_old()
            with contextlib.suppress(OSError):  # on a full disk it stays as it is
                self._files.advance()
            with contextlib.suppress(StoreUnavailable), self._asked(writes=True):
                if not self._files.slot:
                    self._take_slot()
                elif self._memory.role in _BELIEVES and not self._is_another_store():
                    self._keep_slot()
                self._store.put(f"{self._root}/member/{self._files.uuid}", encode(self._announcement()))
            with self._asked():
                found = self._store.list(f"{self._root}/member/")
        except StoreUnavailable:
            return
        announced, broken = {}, set[str]()
        for key in sorted(found)[:_MAX_ANNOUNCED]:
            try:
                one = decode_announcement(found[key])
            except CorruptFile as error:
                if key not in self._not_understood:
                    logger.warning("failover: a member's announcement is not understood key=%s: %s", key, error)
                broken.add(key)
                continue
            announced[one.uuid] = one
        # The time in an announcement is by its member's own clock: what counts here is that the announcement changed.
        now = self.clock.steady()
        same = {uuid for uuid, one in announced.items() if one == self._announced.get(uuid)}
        self._heard_at = {uuid: self._heard_at[uuid] if uuid in same else now for uuid in announced}
        self._announced, self._not_understood = announced, broken
        self._tell_contradictions()
        self._look_for_room()
        if self.clock.steady() - self._tidied_at >= TIDY_S:
            self._tidied_at = self.clock.steady()
            self._tidy(self._store)

    def _look_whether_old(self) -> None:
        """Make this member a new one, which copies the leader's store anew, if its directory is an old copy of itself,
        as from a snapshot. It has in its log what it acknowledged, or less; and topics that were deleted since would
        come back with it. Raises StoreUnavailable, OSError."""
        found = self._store.list(f"{self._root}/member/").get(f"{self._root}/member/{self._files.uuid}")
        turn = 0
        if found is not None:
            with contextlib.suppress(CorruptFile):
                turn = decode_announcement(found).turn
        if self._files.is_older_than(turn):
            logger.error(
                "failover: this directory is an old copy of the member %s: it was left at turn %d, and turn %d was "
                "announced. It joins as a new member and copies all from the leader",
                self._files.uuid,
                self._files.turn,
                turn,
            )
            self._files.renew()
        self._is_newest = True

    def _look_for_room(self) -> None:
        now = self.clock.steady()
        if now - self._room_at < ROOM_S:
            return
        self._room_at, before, self._shortage = now, self._shortage, shortage(self._store)
        if bool(before) != bool(self._shortage):
            log = logger.warning if self._shortage else logger.info
            log("failover: leader store: %s", self._shortage or "it has room again")

    def _tell_contradictions(self) -> None:
        own = self._settings()
        found = {uuid: differences(own, one.settings) for uuid, one in self._announced.items()}
        for uuid, differs in found.items():
            if differs and self._contradictions.get(uuid) != differs:
                logger.warning(
                    "failover: member=%s uuid=%s has other settings than this one, and would lead by them: %s",
                    self._announced[uuid].addr,
                    uuid,
                    "; ".join(differs),
                )
        self._contradictions = found

    def _take_slot(self) -> None:
        """Take the first free slot. If an earlier attempt was done but not answered, the slot is recognised by this
        member's uuid. Raises StoreUnavailable."""
        own = self._files.uuid.encode()
        for slot in range(1, _MAX_SLOT + 1):
            try:
                self._store.swap(f"{self._root}/slot/{slot}", own, None)
            except SwapConflict as conflict:
                if conflict.value != own:
                    continue
            self._files.take_slot(slot)
            logger.info("failover: took slot=%d", slot)
            return
        self._full = True
        logger.error("failover: all %d slots of the set are taken: delete those of members that are gone", _MAX_SLOT)

    def _keep_slot(self) -> None:
        """Write the slot's owner again if a store that was wiped or restored lacks it: otherwise a newcomer would take
        the same brokerId. Raises StoreUnavailable."""
        key, own = f"{self._root}/slot/{self._files.slot}", self._files.uuid.encode()
        holder = self._store.list(f"{self._root}/slot/").get(key)
        if holder is None:
            with contextlib.suppress(SwapConflict):  # then it is looked at in the next round
                self._store.swap(key, own, None)
                logger.info("failover: took slot=%d again", self._files.slot)
        elif holder != own and self._memory.role != "leader":  # a leader's brokerId is 0
            logger.warning(
                "failover: slot=%d is that of uuid=%s by now: this member takes another one, which is its brokerId "
                "from its next start on",
                self._files.slot,
                holder.decode(errors="replace"),
            )
            self._take_slot()

    def _announcement(self) -> Announcement:
        files, health = self._files, self._brokers.health()
        return Announcement(
            uuid=files.uuid,
            slot=files.slot,
            addr=self._addr,
            ha=self._ha,
            version=self._version,
            role=self._memory.role,
            seen=files.seen,
            log_end=health.end,
            epochs=tuple((one.epoch, one.start) for one in files.epochs[-_ANNOUNCED_EPOCHS:]),
            wall_ms=self.clock.wall_ms(),
            log_begin=health.begin,
            settings=self._settings(),
            slow=dict(self.status.slow),
            turn=files.turn,
        )


def _slow_of(memory: Memory, sight: Sight, now: float) -> dict[str, int]:
    """Return uuid -> how late it acknowledges, in ms, for the slow members that are connected."""
    if memory.reign is None:
        return {}
    here = {one.uuid for one in sight.members}
    return {uuid: round(one.took * 1000) for uuid, one in memory.slow.items() if uuid in here and now < one.until}


def _state_of(value: bytes | None) -> SetState | None:
    """Decode the key's value; None if there is none, or if it is not understood, which is logged."""
    if value is None:
        return None
    try:
        return decode_state(value)
    except CorruptFile as error:
        logger.error("failover: %s", error)
        return None
