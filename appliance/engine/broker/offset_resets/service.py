"""Moves a group's offsets: the same way for requests 222 and 314 and for the window.

A move is planned on the caller's thread, which may wait for the disk, and done on that of the pool "admin", one act
after the other:

1. the plan is checked again; remoting-io notes the group's offsets, and holds back commits of them from here on;
2. the act is written to the journal and synced;
3. remoting-io moves all offsets at once; members get them in slices;
4. in a set, the members that may lead next copy the offsets.

After a failure of 2 nothing has changed, after one of 4 all has. If the process ends between 2 and 3, its next start
does 3.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from ...errors import Conflict, RefusedRequest, StartError
from ...loop_calls import in_steps, run_on_loop
from ...protocol.askers import KNOWS_RESETS, wants_offsets_listed
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import FLAG_ONEWAY, RemotingCommand, encode_command
from ...remoting.event_loop import EventLoop
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ConsumeQueue
from ...store.time_search import Boundary, TimeSearch
from ..clients import ClientChannel, ClientManager
from ..heartbeat import BROADCASTING
from ..long_polling import LongPolling
from ..offsets import check_movable, is_brokers_own
from ..queue_json import queue_key, queue_table
from ..tables import Tables
from .journal import ResetJournal
from .pending import MOST_PENDING, GroupMove, Key, Pending
from .records import NONE, Move, ResetRecord
from .targets import AtTime, Earliest, Exactly, Latest, PlannedMove, Target, within

logger = logging.getLogger(__name__)

#: Most queues of one act. With these the I/O thread stops for two milliseconds; with more it would for longer.
MOST_QUEUES = 4096
#: Queues whose parked pulls a tick looks at.
_STEP = 50
#: 4.9 and Go clients let go of a queue 10 s after they got its new offset, and take it again at their next rebalance.
#: Requests to rebalance at these times save them a wait of 20 s.
_NUDGES_S = (10.2, 11.5, 15.0)
#: Times after a move at which members are asked to move themselves, in queues that none has pulled since. A client that
#: stands on a message has a full cache, and then pulls no more, so it never gets the offset with a pull.
_ASKS_S = (5.0, 30.0)
#: The same times after a start: members come back with their heartbeats, which clients send every 30 s.
_ASKS_AGAIN_S = (35.0, 65.0)
#: Queues whose members get an offset within this time share their nudges.
_TOGETHER_S = 0.5
#: Members that are asked to move in one tick.
MEMBERS_A_TICK = 50

_opaques = itertools.count()


class Asking:
    """The request to members to move themselves (220), one frame for all that read the same encoding: they stop reading
    the queues for 10 s, commit the offsets and begin there."""

    def __init__(
        self, broker_name: str, group: str, topic: str, targets: Sequence[tuple[int, int]], time_ms: int, force: bool
    ) -> None:
        """targets: (queue id, offset). time_ms, force: as the administrator asked."""
        table = queue_table([(queue_key(broker_name, topic, queue_id), b"%d" % offset) for queue_id, offset in targets])
        rows = [
            {"brokerName": broker_name, "offset": offset, "queueId": queue_id, "topic": topic}
            for queue_id, offset in targets
        ]
        fields = {"topic": topic, "group": group, "timestamp": str(time_ms), "isForce": str(force).lower()}
        self._for_cpp = _frame(fields, msgspec.json.encode({"offsetTable": rows}))
        self._for_others = _frame(fields, b'{"offsetTable":%b}' % table)

    def send(self, member: ClientChannel) -> None:
        """On remoting-io."""
        member.conn.send(self._for_cpp if wants_offsets_listed(member.language) else self._for_others)


def _frame(fields: dict[str, str], body: bytes) -> bytes:
    return encode_command(
        RemotingCommand(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            opaque=next(_opaques) & 0x7FFFFFFF,
            flag=FLAG_ONEWAY,
            ext_fields=fields,
            body=body,
        )
    )


class OffsetResets:
    """Plans and does moves, as the head of the file describes."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        clients: ClientManager,
        long_polling: LongPolling,
        loop: EventLoop,
        broker_name: str,
    ) -> None:
        """Raises StartError."""
        path = store.paths.own / "offset-resets.journal"
        # Constant after construction.
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._clients = clients
        self._long_polling = long_polling
        self._loop = loop
        self._clock = loop.clock
        self._broker_name = broker_name
        try:
            self.journal = ResetJournal(path, loop.clock, store.disk)
        except OSError as error:
            raise StartError(f"{path} cannot be opened: {error.strerror}.") from None
        #: As that of `TopicService`. Set by the broker.
        self.tell_members: Callable[[str], None] = lambda what: None
        # Owned by remoting-io: group -> monotonic s of when it last got an offset, and nudges were arranged for.
        self._told_at: dict[str, float] = {}
        self._offsets.pending.on_told = self._nudge_later
        self._offsets.after_save = self._offsets_saved

    def close(self) -> None:
        """Close the journal. Called when offsets are no longer saved."""
        self.journal.close()

    def restore(self, asks: bool) -> None:
        """Repeat the moves in the journal that no member took over. Called before serving, with topics and groups
        known. asks: members are asked to move themselves; False for a slave, whose master moves them."""
        count = 0
        records: dict[int, ResetRecord] = {}
        for record, move in self.journal.unfinished():
            if self._topics.get(move.topic) is None or self._groups.get(record.group) is None:
                continue
            if is_brokers_own(record.group):  # accepted by an older version
                continue
            if self.journal.is_too_old(record):
                self._offsets.pending.over.append((record.id, move.topic, move.queue_id))
                continue
            self._offsets.reset_all(_ready(record, [move]))
            if move.target == NONE:
                self._offsets.pending.over.append((record.id, move.topic, move.queue_id))
            else:
                records[record.id] = record
            count += 1
        if count:
            logger.info("offsets: %d queues were moved before the last stop and are not taken over yet", count)
        if records and asks:
            self._loop.call_soon(partial(self._ask_later, tuple(records.values()), _ASKS_AGAIN_S))

    # --- planning, any thread that may wait for the disk

    def is_broadcasting(self, group: str) -> bool:
        """True if the group's members keep their offsets themselves."""
        info = self._clients.consumer_group(group)
        return info is not None and info.message_model == BROADCASTING

    def plan(self, group: str, topic: str, to: Target, queue_id: int | None = None) -> list[PlannedMove]:
        """Plan each queue of the topic (or the one), even if it does not move; empty when there is no such topic or
        queue.

        Raises QueueBroken while a queue is being rebuilt and the target is a time. Refuses with 16 the broker's own
        groups.
        """
        check_movable(group)
        config = self._topics.get(topic)
        count = 0 if config is None else config.read_queue_nums
        ids: Iterable[int] = range(count) if queue_id is None else range(count)[queue_id : queue_id + 1]
        search = TimeSearch(self._store.queues, self._store.records)
        try:
            return [move for number in ids if (move := self._planned(search, group, topic, number, to)) is not None]
        finally:
            search.close()

    def _planned(self, search: TimeSearch, group: str, topic: str, queue_id: int, to: Target) -> PlannedMove | None:
        before = self._offsets.get(group, topic, queue_id)
        found = search.offset_at(topic, queue_id, to.ms, Boundary.LOWER) if isinstance(to, AtTime) else 0
        low, high = self._store.offset_range(topic, queue_id)
        if isinstance(to, Earliest):
            asked = low
        elif isinstance(to, Latest):
            asked = high
        elif isinstance(to, AtTime):
            asked = within(found, low, high)
        elif isinstance(to, Exactly):
            if queue_id not in to.offsets:
                return None
            asked = to.offsets[queue_id]
        else:
            if before == NONE:
                return None
            asked = before + to.by
        return PlannedMove(topic, queue_id, before, asked, min(max(asked, low), high), low, high)

    def plan_clone(self, source: str, target: str, topic: str | None, subscribed_only: bool) -> list[PlannedMove]:
        """Plan to give `target` the offsets of `source`. subscribed_only: those of topics to which the source's members
        subscribe. Refuses with 16 the broker's own groups."""
        check_movable(target)
        info = self._clients.consumer_group(source)
        found = []
        for entry in self._offsets.all():
            if entry.group != source or (topic and entry.topic != topic) or self._topics.get(entry.topic) is None:
                continue
            if subscribed_only and info is not None and info.subscriptions and entry.topic not in info.subscriptions:
                continue
            for queue_id, offset in sorted(entry.queues.copy().items()):
                low, high = self._store.offset_range(entry.topic, queue_id)
                before = self._offsets.get(target, entry.topic, queue_id)
                asked = within(offset, low, high)
                found.append(PlannedMove(entry.topic, queue_id, before, offset, asked, low, high))
        return found

    def plan_undo(self, record: ResetRecord) -> list[PlannedMove]:
        """Plan to move each queue back to where it was, except if its topic is gone, was made again, or has fewer
        queues now."""
        gone = self.journal.gone(record.id)
        found = []
        for move in record.moves:
            config = self._topics.get(move.topic)
            if config is None or move.topic in gone or move.queue_id >= config.read_queue_nums:
                continue
            now = self._offsets.get(record.group, move.topic, move.queue_id)
            low, high = self._store.offset_range(move.topic, move.queue_id)
            back = within(move.before, low, high)
            found.append(PlannedMove(move.topic, move.queue_id, now, move.before, back, low, high))
        return found

    # --- doing, on the thread of the pool "admin"

    def apply(
        self,
        kind: str,
        group: str,
        planned: Sequence[PlannedMove],
        by: str,
        asked: str,
        undoes: int = 0,
        check: Callable[[Sequence[Move]], None] = lambda moves: None,
    ) -> ResetRecord:
        """Do what was planned; durable on return.

        check: called once no commit changes the group's offsets; may raise Conflict, and nothing is done then.
        Refuses with 26, 17 or 1 if the group, a topic or the offsets are gone since then, with 1 if it cannot be
        written down, with 2 if too many moves wait for their consumers or the broker stops. Nothing was done then,
        except that a broker that stops may do it at its next start; if members of a set did not confirm it in time, it
        refuses with 1, too, and it was done.
        """
        if not planned:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"no offset of group {group} would be moved")
        if len(planned) > MOST_QUEUES:
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR, f"{len(planned)} queues at once, at most {MOST_QUEUES} are taken"
            )
        if undoes and self.journal.undone_by(undoes):
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"reset {undoes} was taken back before")
        number = self.journal.next_id()
        targets = self._checked(group, planned)
        held = self._hold(group, targets, number)
        record = ResetRecord(number, kind, group, by, self._clock.wall_ms(), asked, held.moves(targets), undoes)
        try:
            check(record.moves)
            self.journal.append(record)
        except Conflict:
            self.on_loop(lambda: self._offsets.pending.restore(held.pending))
            raise
        except (OSError, ValueError) as error:  # ValueError: a name that is no text, from another program's store
            self.on_loop(lambda: self._offsets.pending.restore(held.pending))
            reason = getattr(error, "strerror", None) or str(error)
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the offsets were not moved: {reason}") from None
        self._do(record)
        logger.info(
            "admin: offsets moved id=%d %s group=%s asked=%s queues=%d by=%s",
            number, kind, group, asked, len(record.moves), by,
        )  # fmt: skip
        self.tell_members("moved")
        return record

    def _checked(self, group: str, planned: Sequence[PlannedMove]) -> list[tuple[str, int, int]]:
        """Return (topic, queue id, target) of each planned move, if all of it is still there. Topics and groups are
        deleted on this thread."""
        check_movable(group)
        if len(self._offsets.resets) + len(planned) > MOST_PENDING:
            raise RefusedRequest(ResponseCode.SYSTEM_BUSY, "too many moved offsets wait for their consumers")
        if self._groups.get(group) is None:
            raise RefusedRequest(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        targets = []
        for move in planned:
            if self._topics.get(move.topic) is None:
                raise RefusedRequest(ResponseCode.TOPIC_NOT_EXIST, f"Topic {move.topic} does not exist")
            low, high = self._store.offset_range(move.topic, move.queue_id)
            if move.target > high:
                raise RefusedRequest(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {move.target} not in consume queue range [{low}-{high}]",
                )
            # The messages there may have expired since the plan was made.
            targets.append((move.topic, move.queue_id, within(move.target, low, high)))
        return targets

    def _hold(self, group: str, targets: Sequence[tuple[str, int, int]], number: int) -> _Held:
        """Note the group's present offsets, and let no commit change them."""
        keys = [(group, topic, queue_id) for topic, queue_id, _ in targets]
        topics = {topic for topic, _, _ in targets}
        held = _Held()

        def hold() -> None:
            held.offsets = {topic: self._offsets.queues_of(group, topic) for topic in topics}
            held.pending = self._offsets.pending.hold(keys, number)

        self.on_loop(hold)
        return held

    def _do(self, record: ResetRecord) -> None:
        """Move all offsets in one step of remoting-io, then answer the group's parked pulls."""
        group = record.group
        ready = _ready(record, record.moves)
        queues = []
        for move in record.moves:
            queue = self._store.find_queue(move.topic, move.queue_id)
            if queue is not None:
                queues.append(queue)

        def tell(queue: ConsumeQueue) -> None:
            self._offsets.pulled.forget(group, queue)
            self._long_polling.release(queue, group)

        def do_it() -> None:
            self._offsets.reset_all(ready)
            in_steps(self._loop.call_soon, iter(queues), _STEP, tell)
            self._ask_later((record,), _ASKS_S)

        self.on_loop(do_it)

    def on_loop(self, job: Callable[[], object]) -> None:
        """Run a job on remoting-io and wait for it. Refuses with 2 when the broker stops."""
        if not run_on_loop(self._loop.call_soon, job, lambda: not self._loop.alive):
            raise RefusedRequest(ResponseCode.SYSTEM_BUSY, "the broker is stopping")

    # --- remoting-io

    def _nudge_later(self, group: str) -> None:
        """Arrange nudges for a group that got an offset: its members may need them to go on."""
        now = self._clock.monotonic()
        if now - self._told_at.get(group, -_TOGETHER_S) < _TOGETHER_S:
            return
        self._told_at[group] = now
        for seconds in _NUDGES_S:
            self._loop.call_later(seconds, partial(self._nudge, group, seconds))

    def _nudge(self, group: str, seconds: float) -> None:
        if seconds == _NUDGES_S[-1] and self._clock.monotonic() - self._told_at.get(group, 0.0) >= seconds - 0.1:
            self._told_at.pop(group, None)
        if self._offsets.pending.waits(group):
            self._clients.have_rebalance(group)

    def _ask_later(self, records: Sequence[ResetRecord], after_s: Sequence[float]) -> None:
        def ask() -> None:
            in_steps(self._loop.call_soon, iter(records), 1, self._ask_who_does_not_pull)

        for seconds in after_s:
            self._loop.call_later(seconds, ask)

    def _ask_who_does_not_pull(self, record: ResetRecord) -> None:
        """Ask members to move themselves in queues of topics that they subscribe and that none has pulled since."""
        group, info = self._groups.get(record.group), self._clients.consumer_group(record.group)
        if group is None or not group.consume_enable or info is None:
            return
        topics: dict[str, list[tuple[int, int]]] = {}
        for move in record.moves:
            found = self._offsets.pending.table.get((record.group, move.topic, move.queue_id))
            if found is not None and (found.reset_id, found.tellings) == (record.id, 0):
                topics.setdefault(move.topic, []).append((move.queue_id, found.target))
        members = [member for member in info.channels.values() if member.version >= KNOWS_RESETS]
        for topic in topics.keys() & info.subscriptions.keys():
            asking = Asking(self._broker_name, record.group, topic, topics[topic], record.at_ms, True)
            in_steps(self._loop.call_soon, iter(members), MEMBERS_A_TICK, asking.send)

    # --- the thread that saves offsets

    def _offsets_saved(self, over: list[tuple[int, str, int]], gone: list[tuple[str, str]]) -> None:
        """Write down what is over and what is gone, now that the file holds the offsets since then. Raises OSError."""
        self._end_old_ones()
        corrected = self._offsets.pending.corrected
        if corrected:
            self.journal.correct([*corrected])
            corrected.clear()
        self.journal.note(over, gone)

    def _end_old_ones(self) -> None:
        """End moves that no member took over for a day: the offset is in the file, and a later member begins there."""
        oldest = self.journal.oldest_ms()
        pending = self._offsets.pending
        for key, found in list(pending.table.items()):
            if found.reset_id < oldest and found.tellings >= 0 and self.journal.get(found.reset_id) is None:
                pending.end(key)


def _ready(record: ResetRecord, moves: Iterable[Move]) -> GroupMove:
    return GroupMove(record.group, record.id, [(move.topic, move.queue_id, move.target) for move in moves])


class _Held:
    """A group's offsets when they were noted: topic -> queue id -> offset, and what was pending before."""

    def __init__(self) -> None:
        self.offsets: dict[str, dict[int, int]] = {}
        self.pending: dict[Key, Pending | None] = {}

    def moves(self, targets: Sequence[tuple[str, int, int]]) -> tuple[Move, ...]:
        return tuple(
            Move(topic, queue_id, self.offsets[topic].get(queue_id, NONE), target)
            for topic, queue_id, target in targets
        )
