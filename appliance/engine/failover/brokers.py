"""The one Broker that runs on a member, and its changes of role, as fail-over decides them (`parts.Brokers`).

    fenced    takes nothing, shows nothing, and is not registered with name servers
    follower  copies its leader's log, and shows the part that the leader has confirmed
    leader    publishes what all awaited members keep

Each is a Broker of its own, in the same seat (`seat.py`). Called by the thread `failover` only.
"""

from __future__ import annotations

import gc
import logging
import math
import socket
import threading
from collections.abc import Callable, Mapping

from ..broker.broker import Broker
from ..broker.master_side import link_settings
from ..broker.member_side import LeadersTables, LeadersTopics
from ..broker.promotion import settle_side_state
from ..broker.role import NO_TIES, Kind, Role
from ..config import EngineConfig
from ..errors import RocketBoxError
from ..loop_calls import run_on_loop
from ..remoting.event_loop import Timer
from ..replication.acknowledged import ConfirmedPosition
from ..replication.bound_follower import BoundFollower
from ..replication.bound_link import Leading
from ..replication.in_sync_position import InSyncPosition
from ..replication.master import ReplicationServer
from ..seat import Seat, wait_until
from ..store.message_store import MessageStore
from .member_files import MemberFiles
from .on_promote import PromotionProgram
from .parts import LogHealth, MemberReport, StreamStatus
from .relay import Relay
from .set_state import EpochStart, Leader
from .settings import MemberSettings
from .truncation import LeaderLog, StoreCut, consistent_point

logger = logging.getLogger(__name__)

#: Longest time between two ticks of the loop, and the time without one after which it counts as hanging.
TICK_S, STILL_S = 0.2, 1.0
#: Longest waits for a stream to end, and for the log to be kept.
CLOSE_S, KEEP_S = 5.0, 10.0
#: Time between two looks at the findings of damage.
LOOK_S = 10.0
#: Time between attempts to build a fenced broker after one could not be built.
MEND_S = 2.0
#: Longest time that producers of a leader that hands over are held for the next leader before they are refused.
HAND_OVER_S = 3.0
#: Kinds of findings that mean that bytes of the log have changed.
_DAMAGE = frozenset(("damage", "blocks"))
_EVERYTHING = (1 << 63) - 1
NO_STREAM = StreamStatus("", 0, 0.0, False, -1, False, -1, "no leader is followed")


#: Time after a member came back in which name servers are sent frequent registrations.
RETURN_HURRY_S = 10.0


class OwnBrokers:
    """Fulfils `parts.Brokers`. The seat holds a fenced broker, or none, when this is made."""

    def __init__(
        self,
        seat: Seat,
        ha_socket: socket.socket,
        files: MemberFiles,
        cut: StoreCut,
        settings: MemberSettings,
        config: Callable[[], EngineConfig],
    ) -> None:
        """ha_socket: listens for members and slaves; stays open in every role."""
        # Constant after construction.
        self._seat = seat
        self._loop = loop = seat.loop
        self._server = seat.server
        self._ha_socket = ha_socket
        self._files = files
        self._cut = cut
        self._settings = settings
        self._config = config
        self._clock = loop.clock
        self._program = PromotionProgram(settings.on_promote)
        #: Called on the thread of a link with a higher epoch that a member showed. Set before the first lead().
        self.on_higher_epoch: Callable[[int], None] = lambda epoch: None
        #: Returns until when (`Clock.steady`) an asynchronous leader may acknowledge; others may be elected after it.
        #: Called on any thread.
        self.release_until: Callable[[], float] = lambda: math.inf
        # Owned by the thread `failover`; `role` is read by anyone.
        self.role = "fenced"
        self._followed: BoundFollower | None = None
        self._topics: LeadersTopics | None = None
        self._tables: LeadersTables | None = None
        #: Topics that were deleted or purged here but not at the leader, with its notes; added by `sync-topics`.
        self._not_deleted: dict[str, Mapping[int, int]] = {}
        self._followed_as: tuple[Leader, int] | None = None
        #: Offsets of records that this store could not take, and because of which it was set aside and copied anew.
        self._unplaced: set[int] = set()
        #: The log's end when this follower last took the leader's topics over; -1: unknown.
        self._tables_end = -1
        self._confirmed: ConfirmedPosition | None = None
        self._position: InSyncPosition | None = None
        self._drained = False
        self._relay: Relay | None = None
        self._left_clean = True
        self._damage = ""
        self._looked_at = -LOOK_S
        self._changed_at: float | None = None
        if seat.broker is not None:
            self._left_clean = seat.broker.store.files.left_clean
        # Owned by remoting-io.
        self._handing_over: Timer | None = None
        loop.call_soon(self._begin_ticks)

    def _begin_ticks(self) -> None:
        self._loop.call_every(TICK_S, lambda: None)

    @property
    def _set_key(self) -> str:
        """Name and id of the set, which must be the same at both ends of a stream."""
        return f"{self._settings.set}/{self._files.set_id}"

    # --- looking

    def health(self) -> LogHealth:
        self._tidy()
        self._mend()
        broker = self._seat.broker
        if broker is None:
            return LogHealth(0, 0, 0, False, self._seat.why_empty or "there is no broker", self._loop_moves())
        store = broker.store
        why_not = self._why_not_electable(broker)
        return LogHealth(
            store.log.written,
            store.kept(),
            store.published,
            not why_not,
            why_not,
            self._is_alive(broker),
            broker.topic_service.changes,
            store.log.min_offset,
        )

    def _why_not_electable(self, broker: Broker) -> str:
        store = broker.store
        if store.log.broken is not None:
            return store.log.broken
        if self._files.damage:
            return self._files.damage
        now = self._clock.monotonic()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            begin = store.log.min_offset
            found = [one for one in store.files.findings() if one.kind in _DAMAGE and one.end > begin]
            self._damage = f"its log is damaged: {found[-1].reason}" if found else ""
        if self._damage:
            return self._damage
        if not store.settings.synchronous and not self._left_clean and not self._files.same_boot:
            return "the machine stopped while this log was flushed in the background: its end may be missing"
        return ""

    def _loop_moves(self) -> bool:
        return self._clock.monotonic() - self._loop.monotonic < STILL_S

    def _is_alive(self, broker: Broker) -> bool:
        """Any thread."""
        return self._loop_moves() and broker.store.sync_age < self._settings.disk_stall_s

    def members(self) -> list[MemberReport]:
        position = self._position
        return [] if position is None else position.members()

    def stream(self) -> StreamStatus:
        followed = self._followed
        if followed is None:
            return NO_STREAM
        self._undo_deletions()
        if (followed := self._followed) is None:
            return NO_STREAM
        status = followed.status
        broker, confirmed = self._seat.broker, self._confirmed
        if broker is not None and confirmed is not None and confirmed.covers_start and broker.waits_for_confirmation:
            broker.open_reads()
        if status.unplaced and followed.unplaced_at in self._unplaced:
            why = f"{status.unplaced}, nor could it in a new copy: the log of the leader has to be looked at"
            return status._replace(unplaced=why, why=why, copied=True)
        return status

    def _undo_deletions(self) -> None:
        """Bring back topics and messages that were deleted or purged here but that the leader still has, because it did
        not learn of that before it led: clients may still use them there. Their queues are made again from the log."""
        topics, following = dict(self._not_deleted), self._followed_as
        if not topics or following is None or self._followed is None:
            return
        self._not_deleted.clear()
        leader, epoch = following
        self._stop_following()
        logger.warning("failover: deletions that the leader does not know are undone: %s", list(topics)[:20])
        self._become_follower(epoch, lambda: self._cut.undo_deletions(topics))
        self._begin_following(leader, epoch)

    # --- following

    def follow(self, leader: Leader, epoch: int) -> None:
        self._end_relay()
        if self.role == "follower" and self._seat.broker is not None:
            self._stop_following()
        else:
            self._become_follower(epoch)
        self._begin_following(leader, epoch)

    def _become_follower(self, epoch: int, offline: Callable[[], object] = lambda: None) -> None:
        self._forget_role()
        confirmed = ConfirmedPosition(lambda: self._watermark_moved())
        role = Role(Kind.FOLLOWER, self._files.slot, epoch, position=confirmed)

        def attach(broker: Broker) -> None:
            confirmed.begin(broker.store.log.written)

        self._change(role, attach, offline)
        self._confirmed, self._tables_end = confirmed, -1
        self.role = "follower"

    def _watermark_moved(self) -> None:
        broker = self._seat.broker
        if broker is not None:
            broker.store.watermark_moved()

    def _begin_following(self, leader: Leader, epoch: int) -> None:
        broker, confirmed = self._seat.broker, self._confirmed
        assert broker is not None
        assert confirmed is not None
        self._not_deleted.clear()
        self._followed_as = (leader, epoch)
        followed = BoundFollower(
            broker.store,
            self._loop.call_soon,
            leader,
            epoch,
            self._set_key,
            self._files,
            consistent_point,
            self._files.adopt_epochs,
            confirmed,
            self._clock,
            broker.ties.guard,
        )
        broker.store.on_kept = followed.log_kept

        def address() -> str:
            return leader.addr if followed.agrees else ""

        def taken(changes: int) -> None:
            followed.taken = changes
            followed.log_kept()

        copying = threading.Lock()
        topics = LeadersTopics(broker, address, self._loop, copying, taken, self._not_deleted.update)
        tables = LeadersTables(broker, address, self._loop, copying, self._settings.synchronous, self._epoch_start)
        followed.on_changes = lambda changes: topics.wakeup()

        # A member that has just come may soon be the leader: its tables are fetched at once.
        def agreed() -> None:
            topics.wakeup()
            tables.wakeup()

        followed.on_agreement = agreed
        self._followed, self._topics, self._tables = followed, topics, tables
        # Stopping the broker stops these: a process that ends calls nothing else for them.
        broker.member_threads = (followed, topics, tables)
        broker.has_leader = lambda: followed.agrees
        topics.start()
        followed.start()
        tables.start()

    def _epoch_start(self) -> int:
        """Return the offset from which on the followed leader wrote the log; 0 in the first epoch, since the set was
        made from the store of its leader."""
        epochs = self._files.epochs
        return epochs[-1].start if len(epochs) > 1 else 0

    def close_stream(self) -> int:
        broker = self._seat.broker
        if broker is None:
            raise RocketBoxError(self._seat.why_empty)
        self._stop_following()
        store = broker.store
        if not wait_until(lambda: store.kept() >= store.log.written, KEEP_S, self._clock):
            raise RocketBoxError("the log is not synced in time")
        return store.log.written

    def _stop_following(self) -> None:
        """Stop the stream, so that no further byte is appended. Raises RocketBoxError if it does not end in time."""
        followed, topics, tables = self._followed, self._topics, self._tables
        for thread in (topics, tables):
            if thread is not None:
                thread.request_stop()
        if followed is not None and not followed.close(CLOSE_S):
            raise RocketBoxError("the stream does not end")
        for thread in (topics, tables):
            if thread is not None:
                thread.stop(CLOSE_S)
        if topics is not None:
            self._tables_end = max(self._tables_end, topics.whole_to)
        self._followed = self._topics = self._tables = None
        broker = self._seat.broker
        if broker is not None and followed is not None:
            broker.store.on_kept = None
            broker.member_threads = ()
            broker.has_leader = lambda: False

    def cut(self, point: int, leader: Leader, epoch: int) -> None:
        followed = self._followed
        answer = None if followed is None else followed.answer
        if answer is None:
            raise RocketBoxError("the leader has not said what its log is")
        log = LeaderLog(leader.uuid, epoch, tuple(EpochStart(*one) for one in answer.epochs), answer.end)
        self._stop_following()

        def offline() -> None:
            self._cut.begin(point, log, f"epoch {epoch} is led by {leader.uuid}, whose log went another way")

        self._become_follower(epoch, offline)
        self._begin_following(leader, epoch)

    def set_aside(self, why: str) -> None:
        followed = self._followed
        if followed is not None and followed.unplaced_at >= 0:
            self._unplaced.add(followed.unplaced_at)
        self._stop_following()
        self._become_follower(0, lambda: self._cut.set_aside(why))

    # --- leading

    def lead(self, epoch: int, awaited: frozenset[str]) -> None:
        self._end_relay()
        self._stop_following()
        tables_end = self._tables_end
        self._forget_role()
        made: list[InSyncPosition] = []

        def limit() -> int:
            return made[0]()

        def in_time() -> int:
            return _EVERYTHING if self._clock.steady() <= self.release_until() else -1

        def attach(broker: Broker) -> None:
            store = broker.store
            position = InSyncPosition(store.kept, lambda: store.published, store.watermark_moved, self._clock)
            position.begin(store.log.written)
            if self._settings.synchronous:
                position.set_awaited(awaited)
                self._refuse_alone(store, awaited)
            made.append(position)
            broker.replication = server = self._new_server(broker, position)
            broker.topic_service.on_change = server.log_grew
            broker.topic_service.all_have = position.all_have
            # From now on this member's own clock stamps the records.
            store.clock_steps.stamped(store.log.written, 0, store.log.min_offset)
            settle_side_state(store, broker.topics, broker.offsets, tables_end)

        role = Role(Kind.LEADER, 0, epoch, position=limit if self._settings.synchronous else in_time)
        self._change(role, attach, before_sends=lambda broker: self._program.start(epoch))
        self._position = made[0]
        self.role = "leader"
        self._loop.call_soon(self._let_producers_go)

    def _new_server(self, broker: Broker, position: InSyncPosition) -> ReplicationServer:
        store, config = broker.store, self._config().store
        leading = Leading(
            self._set_key,
            self._files.uuid,
            self._files.epochs,
            position,
            lambda: self._is_alive(broker),
            lambda: store.published,
            lambda epoch: self.on_higher_epoch(epoch),
            # A member that led before may have registered as the leader again.
            lambda: broker.registration.hurry(RETURN_HURRY_S),
            lambda: broker.topic_service.changes,
        )
        server = ReplicationServer(
            self._ha_socket.dup(),
            store,
            link_settings(config),
            None,
            self._clock,
            leading,
            broker.ties.guard,
        )
        store.on_kept = server.log_grew
        return server

    def await_members(self, awaited: frozenset[str]) -> None:
        position = self._position
        if position is not None and self._settings.synchronous:
            self._on_loop(lambda: position.set_awaited(awaited))
            broker = self._seat.broker
            if broker is not None:
                store = broker.store
                self._on_loop(lambda: self._refuse_alone(store, awaited))

    def _refuse_alone(self, store: MessageStore, awaited: frozenset[str]) -> None:
        """Refuse appends while too few members are in sync. On remoting-io, or before the broker serves."""
        have, needed = len(awaited) + 1, self._settings.min_in_sync
        store.log.refuse(f"{have} of the {needed} members are in sync" if have < needed else None, "in sync")

    def drain(self, deadline_s: float) -> bool:
        """See `parts.Brokers`. Producers are held meanwhile, and a while longer: the next leader may take what they
        send."""
        broker, position = self._seat.broker, self._position
        if broker is None or position is None:
            return False
        store = broker.store
        self._on_loop(self._begin_hand_over)
        self._on_loop(lambda: store.log.refuse("this broker hands its office over", "hand over"))

        def all_have_all() -> bool:
            end = store.log.written
            return store.published >= end and position() >= end

        self._drained = wait_until(all_have_all, deadline_s, self._clock)
        return self._drained

    def _begin_hand_over(self) -> None:
        self._let_producers_go()
        self._server.hold_producers(True, "hand over")
        self._handing_over = self._loop.call_later(HAND_OVER_S, self._let_producers_go)

    def _let_producers_go(self) -> None:
        """On remoting-io."""
        if self._handing_over is not None:
            self._handing_over.cancel()
            self._handing_over = None
        self._server.hold_producers(False, "hand over")

    def fence(self, why: str) -> None:
        position = self._position
        if position is not None:
            position.freeze()
        self._program.stop()
        hang_up = not self._drained
        self.role = "fenced"
        self._stop_following()
        self._forget_role()
        self._seat.fence(why, Role(Kind.FENCED, self._files.slot, why=why), hang_up)
        self._changed_at = self._clock.monotonic()

    # --- both

    def relay_to(self, leader: Leader, seconds: float) -> None:
        self._end_relay()
        broker = self._seat.broker
        ties = NO_TIES if broker is None else broker.ties
        relay = Relay(leader.addr, seconds, self._clock, ties.greeting(), ties.guard.connect)
        relay.start()
        self._relay = relay
        self._seat.elsewhere = relay.take
        self._loop.call_soon(self._let_producers_go)

    def _end_relay(self) -> None:
        relay, self._relay = self._relay, None
        if relay is not None:
            self._seat.elsewhere = None
            relay.stop()

    def stop(self) -> None:
        """Stop this object's own threads; the broker is stopped with the process."""
        self._end_relay()
        self._program.stop()
        try:
            self._stop_following()
        except RocketBoxError as error:
            logger.warning("failover: %s", error)

    def _forget_role(self) -> None:
        self.role = "fenced"
        self._confirmed = self._position = None
        self._drained = False

    def _change(
        self,
        role: Role,
        attach: Callable[[Broker], None],
        offline: Callable[[], object] = lambda: None,
        before_sends: Callable[[Broker], None] = lambda broker: None,
    ) -> None:
        self._looked_at = -LOOK_S
        self._changed_at = self._clock.monotonic()

        def offline_first() -> None:
            offline()
            # A cut that failed half-way is finished before anything opens the store: otherwise messages stored then
            # would be cut off by the next start.
            self._cut.finish()

        self._seat.change(role, attach, offline_first, before_sends)

    def _tidy(self) -> None:
        """Free the memory of the old broker, some time after a change. Full collections never start by themselves
        (`engine_process.settle_interpreter`)."""
        if self._changed_at is not None and self._clock.monotonic() - self._changed_at > LOOK_S:
            self._changed_at = None
            self._seat.forget_old()
            gc.collect()

    def _mend(self) -> None:
        """Try now and then to build a fenced broker if the seat is empty because building one failed."""
        if self._seat.broker is not None or self._clock.monotonic() - (self._changed_at or -MEND_S) < MEND_S:
            return
        why = self._seat.why_empty
        try:
            self._change(Role(Kind.FENCED, self._files.slot, why=why), lambda broker: None)
        except (RocketBoxError, OSError) as error:
            logger.debug("failover: still no broker: %s", error)

    def _on_loop(self, job: Callable[[], object]) -> None:
        end = self._clock.monotonic() + CLOSE_S
        if not run_on_loop(self._loop.call_soon, job, lambda: self._clock.monotonic() >= end):
            raise RocketBoxError("the I/O thread hangs")
