"""Asks producers that have not decided a transaction (request 39).

A half message is due when its immunity is over, and then each `transactionCheckInterval`. The question goes to one
producer of its group, in turn, and counts when it was sent. If no producer of the group is connected, its halves wait
for one and cost nothing. After `transactionCheckMax` questions without an answer, or when the message was kept for
longer than messages are, it is set aside in TRANS_CHECK_MAX_TIME_TOPIC.

The oldest halves are looked at now and then. One that was kept too long is set aside, even if there is no producer to
ask. One that would leave with its log file, or that holds up the offsets of CID_RMQ_SYS_TRANS before many decided ones,
is put back at the end of the half queue.

The thread reads due halves from the log; what follows happens on remoting-io, which owns all the state.
Source: RocketMQ 5.3.3 `TransactionalMessageServiceImpl.check`, `AbstractTransactionalMessageCheckListener`.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

from ...clock import AgeClock
from ...errors import QueueBroken
from ...few_lines import FewLines
from ...loop_calls import run_on_loop
from ...named_tuple import NamedTuple
from ...protocol.codes import RequestCode
from ...protocol.command import FLAG_ONEWAY, RemotingCommand
from ...protocol.message_id import encode_offset_id
from ...protocol.names import CHECK_GROUP, HALF_TOPIC, OP_HALF_TOPIC
from ...protocol.properties import PREPARED_QUEUE_OFFSET, find_property
from ...protocol.record import hosts
from ...remoting.connection import Connection
from ...remoting.event_loop import EventLoop, Timer
from ...service_thread import ServiceThread
from ...store.clock_steps import Stamped, ahead_of
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ENTRY_BYTES, unpack_entries
from ...store.record_reader import Missing
from ..clients import ClientManager
from ..offsets import ConsumerOffsetManager
from .decisions import NOBODY, Decisions
from .half import (
    FIRST_HALF,
    HALF_QUEUE,
    Half,
    as_checked,
    checks_of,
    earlier_offsets,
    half_of,
    immunity_ms,
    waited_ms,
)
from .open_halves import MOST_CHECKS
from .rebuild import Found, Rebuild

logger = logging.getLogger(__name__)

#: Pause between two looks of remoting-io for due halves.
LOOK_S = 0.1
#: Most halves read at a time; what follows from one reading is one call of the loop.
AT_ONCE = 64
#: ... and most of their bytes, which are in memory until they were sent.
AT_ONCE_BYTES = 1024 * 1024
#: Halves found at the start that are taken over in one call of the loop.
_ADOPTED_AT_ONCE = 1000
#: Pause between two readings, as other threads want the GIL, too.
_REST_S = 0.002
#: A producer with this much in its outbox is not asked.
BUSY_BYTES = 1024 * 1024
#: Most producers that are tried one after the other.
_TURNS = 16
#: Pause before a half is looked at again that cannot be read, or could not be set aside.
AGAIN_MS = 5000
#: Lines about halves that cannot be read, in these seconds.
_TOLD, _TELL_S = 5, 600.0
#: Seconds between two looks at the oldest halves.
REVIEW_S = 10.0
#: A long immunity is waited for in pieces, so that halves decided meanwhile do not stay in memory.
LONG_WAIT_MS = 60_000
#: Op messages, and halves, behind the oldest open half: with more of them it is put back, if few are like it.
MOST_OPS, MOST_HALVES = 50_000, 5_000_000
#: Most decisions that wait, for the start or for their half message's sync.
_MOST_WAITING = 10_000
#: Decisions that waited and are carried out in one tick, which takes them a millisecond.
_JOBS_A_TICK = 20
#: Pause between two looks whether a half message is published that was decided before.
_PUBLISHED_S = 0.005
#: Time before a question after a producer's group has appeared, as it is still starting.
APPEARED_MS = 500


class CheckSettings(NamedTuple):
    """timeout_ms: `transactionTimeOut`. interval_ms: `transactionCheckInterval`. most: `transactionCheckMax`. kept_ms:
    `fileReservedTime`. broker_name: the sender's, in a question."""

    timeout_ms: int
    interval_ms: int
    most: int
    kept_ms: int
    broker_name: str


class AskedNow(enum.Enum):
    """Outcome of asking at once."""

    ASKED = enum.auto()
    DECIDED = enum.auto()
    NO_PRODUCER = enum.auto()
    BUSY = enum.auto()


class _Looked(NamedTuple):
    """A half as it was read. missing: why it cannot be read."""

    offset: int
    half: Half | None
    missing: Missing | None = None


class CheckTransactions(ServiceThread):
    """Asks producers. It reads on a thread of its own; its other methods act on remoting-io."""

    def __init__(
        self,
        store: MessageStore,
        decisions: Decisions,
        clients: ClientManager,
        offsets: ConsumerOffsetManager,
        loop: EventLoop,
        settings: Callable[[], CheckSettings],
        left_ms: Callable[[int, int, int], float],
    ) -> None:
        """left_ms: as `DeliverDelayed.left_until_ms`."""
        super().__init__("check-transactions", clock := loop.clock)
        # Constant after construction.
        self._store = store
        self._halves = decisions.halves
        self._decisions = decisions
        self._clients = clients
        self._offsets = offsets
        self._loop = loop
        self._settings = settings
        self._left_ms = left_ms
        self._files = store.queues.new_files(capacity=4)
        #: A broken queue has all halves in it, and each is looked at every few seconds. Owned by the thread.
        self._unreadable = FewLines(logger.warning, _TOLD, _TELL_S, clock.monotonic)
        half = store.queues.get_or_create(HALF_TOPIC, HALF_QUEUE)
        op = store.queues.get_or_create(OP_HALF_TOPIC, HALF_QUEUE)
        #: The store's halves and op messages below these ends have to be looked at, at the start.
        self._half_end, self._op_end = half.next_offset, op.next_offset
        self._half_begin = max(0, offsets.get(CHECK_GROUP, HALF_TOPIC, HALF_QUEUE))
        op_begin = max(0, offsets.get(CHECK_GROUP, OP_HALF_TOPIC, HALF_QUEUE))
        # An offset beyond the end is of no use: then all op messages are read, as the halves they list are decided.
        self._op_begin = op_begin if op_begin <= self._op_end else 0
        #: Returns the check counts from before this start: pages of half messages, as `OpenHalves.restore` takes them.
        self.remembered: Callable[[], Iterable[tuple[int, bytes]]] = tuple
        #: (connection, topic) -> True if the client may be asked about messages to the topic; None: all may. Set by the
        #: engine.
        self.may_be_asked: Callable[[Connection, str], bool] | None = None
        #: Reason why it cannot work; None if it can.
        self.failure: str | None = None
        #: Written by remoting-io, taken by the thread: look at the oldest.
        self._review_wanted = False
        #: Written by clean-store: log files that end up to here are to go.
        self._leaving_end = 0
        #: Written on remoting-io: (offset below which no open half lies, offset to which the log has to be durable for
        #: that); the reason why it cannot get further, None without one.
        self._left: tuple[int, int] = (0, 0)
        self._stays: str | None = None
        # Owned by remoting-io.
        #: True when all open halves in the store are known.
        self.ready = self._half_begin >= self._half_end
        self._turn = 0
        #: (end of the log, half, op): offsets that may be saved once the log is durable to that end.
        self._progress: tuple[int, int, int] | None = None
        #: Clock for ages. It follows a wall clock that is set forward only after a while.
        self._ages = AgeClock(clock, store.cleaner.seen_ms)
        self._began_ms = self.now_ms()
        self._reviewed_ms = self._began_ms
        #: Number of questions sent since the start.
        self.asked = 0
        self._waiting_for_ready: list[Callable[[], None]] = []
        #: (physical offset, job), see `when_published`.
        self._waiting_for_log: list[tuple[int, Callable[[], None]]] = []

    def begin(self) -> list[Timer]:
        """Have remoting-io look at the clock; return the timers. Called there, or before it runs."""
        return [self._loop.call_every(LOOK_S, self._look_at_clock), self._loop.call_every(1.0, self._save)]

    def now_ms(self) -> float:
        return self.clock.steady() * 1000

    # --- remoting-io

    def stored(self, offset: int, properties: str) -> None:
        """Add a half message that was staged."""
        immunity = immunity_ms(properties, self._settings().timeout_ms)
        self._halves.open(offset, self.now_ms() + min(immunity, LONG_WAIT_MS), checks_of(properties))

    def when_ready(self, job: Callable[[], None]) -> bool:
        """Run `job` when all open halves in the store are known: now, or soon. False if too many wait already."""
        if self.ready:
            job()
            return True
        if len(self._waiting_for_ready) >= _MOST_WAITING:
            return False
        self._waiting_for_ready.append(job)
        return True

    def when_published(self, physical: int, job: Callable[[], None]) -> bool:
        """Run `job` soon after what was staged at this physical offset is published, or the log has broken. A producer
        gets the answer for a half message before that if it sent WAIT=false, or the sync is slow. False if nothing
        waits there to be published, or too many jobs wait."""
        log = self._store.log
        staged = self._store.published <= physical < log.stage_base + log.staged
        if not staged or log.broken is not None or len(self._waiting_for_log) >= _MOST_WAITING:
            return False
        if not self._waiting_for_log:
            self._loop.call_later(_PUBLISHED_S, self._look_at_published)
        self._waiting_for_log.append((physical, job))
        return True

    def _look_at_published(self) -> None:
        end = self._store.published if self._store.log.broken is None else 1 << 63
        jobs = [job for physical, job in self._waiting_for_log if physical < end]
        self._waiting_for_log = [one for one in self._waiting_for_log if one[0] >= end]
        if self._waiting_for_log:
            self._loop.call_later(_PUBLISHED_S, self._look_at_published)
        self._do_some(iter(jobs))

    def _do_some(self, jobs: Iterator[Callable[[], None]]) -> None:
        """Do jobs that have waited, a few in each tick, as others want the loop, too."""
        some = list(islice(jobs, _JOBS_A_TICK))
        for job in some:
            self._loop.call_soon(job)
        if some:
            self._loop.call_soon(lambda: self._do_some(jobs))

    def producers_came(self, group: str) -> None:
        """Ask about the halves of a producer group soon, as it has a member now."""
        if self._halves.unpark(group, self.now_ms() + APPEARED_MS):
            logger.info("transactions: producers are there again group=%s", group)

    def _look_at_clock(self) -> None:
        now_ms = self.now_ms()
        if now_ms - self._reviewed_ms >= REVIEW_S * 1000:
            self._reviewed_ms, self._review_wanted = now_ms, True
            self._ages.now_ms()
        if self._review_wanted or self._halves.is_due(now_ms):
            self.wakeup()

    def _save(self) -> None:
        """Put the offsets from which Apache would go on into consumerOffset.json; only those that no crash can undo."""
        store = self._store
        if not self.ready or store.log.broken is not None:
            return  # what was decided since the log broke counts only until the next start
        if self._progress is not None and store.lasting >= self._progress[0]:
            _, half, op = self._progress
            self._progress = None
            for topic, offset in ((HALF_TOPIC, half), (OP_HALF_TOPIC, op)):
                if offset != self._offsets.get(CHECK_GROUP, topic, HALF_QUEUE):
                    self._offsets.commit_own(topic, offset)
        if self._progress is None:
            self._progress = (store.log.stage_base + store.log.staged, *self._decisions.progress())

    # --- clean-store

    def keeps(self, end: int) -> str | None:
        """Return why log files up to this physical offset must stay for now: open halves lie there, and are being put
        back. None if none does, durably."""
        below, durable = self._left
        if below >= end and self._store.lasting >= durable:
            return None
        if self.stopped or not self.ready:
            return "it is not known yet which transactions are open"
        if end > self._leaving_end:
            self._leaving_end = end
        self.wakeup()
        return self._stays or "open transactions are being stored again"

    # --- the thread

    def run(self) -> None:
        if not self.ready and not self._find_open():
            return
        while not self.stopped:
            self.wait(None)
            if self._review_wanted or self._leaving_end > self._left[0]:
                self._review_wanted = False
                self._review()
            while not self.stopped and self._work():
                self.clock.wait(self._gate, _REST_S)

    def _on_loop(self, job: Callable[[], object]) -> bool:
        return run_on_loop(self._loop.call_soon, job, lambda: self.stopped or not self._loop.alive)

    def _find_open(self) -> bool:
        """Find the open halves in the store. False if the thread was stopped."""
        found: Found | None = None
        while not self.stopped:
            try:
                found = Rebuild(self._store, self._files, lambda: self.stopped).find(
                    self._half_begin, self._half_end, self._op_begin, self._op_end
                )
                break
            except (QueueBroken, OSError) as error:
                failure = f"open transactions cannot be looked for: {error}"
                if failure != self.failure:
                    logger.error("transactions: %s", failure)
                self.failure = failure
                self.wait(1.0)
        if found is None:
            return False
        self.failure = None
        for at in range(0, len(found.open), _ADOPTED_AT_ONCE):
            offsets = found.open[at : at + _ADOPTED_AT_ONCE]
            if not self._on_loop(partial(self._halves.adopt, offsets, self.now_ms())):
                return False
        for number, states in self.remembered():
            if not self._on_loop(partial(self._halves.restore, number, states)):
                return False
        logger.info("transactions: found open=%d without op message=%d", len(found.open), len(found.decided))
        return self._on_loop(lambda: self._begin_work(found))

    def _begin_work(self, found: Found) -> None:
        self._decisions.adopt(found)
        self.ready = True
        waiting, self._waiting_for_ready = self._waiting_for_ready, []
        self._do_some(iter(waiting))

    def _work(self) -> bool:
        """Look at some halves that are due; False if none is."""
        due: list[int] = []
        more: list[bool] = []

        def take() -> None:
            due.extend(self._halves.take_due(self.now_ms(), AT_ONCE))
            more.append(self._halves.is_due(self.now_ms()))

        if not self._on_loop(take):
            return False
        looked: list[_Looked] = []
        size = 0
        for offset in due:
            looked.append(self._look(offset))
            half = looked[-1].half
            size += len(half.data) if half is not None else 0
            if size > AT_ONCE_BYTES:
                if not self._on_loop(partial(self._act, looked)):
                    return False
                looked, size = [], 0
        if looked and not self._on_loop(partial(self._act, looked)):
            return False
        return bool(due) or more[0]

    def _review(self) -> None:
        """Look at the oldest halves, as long as something has to be done about them."""
        end = self._leaving_end
        held_up: set[int] = set()
        if not self._on_loop(lambda: held_up.update(self._decisions.held_up_by(MOST_OPS, MOST_HALVES))):
            return
        while not self.stopped and self._review_some(end, held_up):
            self.clock.wait(self._gate, _REST_S)

    def _review_some(self, end: int, held_up: set[int]) -> bool:
        """Look at some of the oldest; False when all is done, or nothing can be done now."""
        oldest: list[int] = []
        if not self._on_loop(lambda: oldest.extend(self._halves.all(0, AT_ONCE))):
            return False
        looked: list[_Looked] = []
        size = 0
        spans = self._store.clock_steps.spans
        kept_since_ms = self.clock.wall_ms() - self._settings().kept_ms
        for offset in oldest:
            looked.append(self._look(offset))
            half = looked[-1].half
            if half is None:
                continue
            size += len(half.data)
            young = self._stored_ms(half, spans) >= kept_since_ms and half.record.physical_offset >= end
            if size > AT_ONCE_BYTES or (young and offset not in held_up):
                break
        went_on: list[bool] = []
        return self._on_loop(lambda: went_on.append(self._act_on_oldest(looked, end, held_up))) and went_on[0]

    def _act_on_oldest(self, looked: list[_Looked], end: int, held_up: set[int]) -> bool:
        """Act on the oldest, on remoting-io. False if nothing is left to do, or nothing can be done; `_left` and
        `_stays` show which."""
        settings, spans = self._settings(), self._store.clock_steps.spans
        now_ms = self._ages.now_ms()
        done = 0
        for offset, half, missing in looked:
            checks = self._halves.checks(offset)
            if checks is None:
                done += 1
                continue
            if half is None:
                if missing in (Missing.EXPIRED, Missing.NO_RECORD):
                    self._lost(offset, missing)
                    done += 1
                    continue
                if missing is Missing.UNREADABLE:
                    self._stays = f"the half message {offset} cannot be read"
                    return False
                break  # just stored: younger than all that counts here
            if not self._decisions.seen(half):
                done += 1
                continue
            checks = max(checks, checks_of(half.record.properties))
            open_ms = now_ms - self._stored_ms(half, spans)
            is_old = open_ms > settings.kept_ms
            if is_old and self._set_aside(half, checks):
                pass
            elif half.record.physical_offset < end or offset in held_up:
                # An old one, too: on a full disk the topic for it cannot be made before its file is gone.
                if not self._decisions.put_back(half, checks, open_ms):
                    self._keep(half, f"the half message {offset} cannot be stored again: the log takes nothing")
                    return False
            elif is_old:
                self._keep(half, f"the half message {offset} cannot be set aside")
                return False
            else:
                break
            done += 1
        if done and done == len(looked):
            return True
        self._stays = None
        # All copies are staged. Their op messages come later, which does not matter here.
        self._left = (max(end, self._left[0]), self._decisions.staged_to)
        return False

    def _keep(self, half: Half, reason: str) -> None:
        """Note why this half stays. All older ones are done with, so files before it may go, and make room for it."""
        self._stays = reason
        below = half.record.physical_offset
        if below > self._left[0]:
            self._left = (below, self._decisions.staged_to)

    def _look(self, offset: int) -> _Looked:
        store = self._store
        queue = store.find_queue(HALF_TOPIC, HALF_QUEUE)
        try:
            data = b"" if queue is None else store.queues.read_entries(queue, offset, 1, self._files)
            if len(data) < ENTRY_BYTES:
                gone = queue is None or offset < queue.min_offset
                return _Looked(offset, None, Missing.EXPIRED if gone else Missing.NOT_PUBLISHED)
            ((physical, size, _),) = unpack_entries(data[:ENTRY_BYTES])
            found = store.records.find(physical, size)
        except (QueueBroken, OSError) as error:
            self._unreadable.log("transactions: half message %d cannot be read: %s", offset, error)
            return _Looked(offset, None, Missing.UNREADABLE)
        if isinstance(found, Missing):
            return _Looked(offset, None, found)
        half = half_of(found)
        return _Looked(offset, half, None if half else Missing.NO_RECORD)

    # --- remoting-io again

    def _act(self, looked: list[_Looked]) -> None:
        # By group and topic, looked up once: there may be thousands of them.
        producers: dict[tuple[str, str], list[Connection]] = {}
        for offset, half, missing in looked:
            if half is not None and (half.group, half.target.topic) not in producers:
                producers[half.group, half.target.topic] = self._producers_for(half)
            checks = self._halves.checks(offset)
            if checks is None:
                continue  # decided meanwhile
            if half is not None:
                if self._decisions.seen(half):
                    self._act_on(
                        half, max(checks, checks_of(half.record.properties)), producers[half.group, half.target.topic]
                    )
            elif missing in (Missing.EXPIRED, Missing.NO_RECORD):
                self._lost(offset, missing)
            else:
                self._halves.wait(offset, self.now_ms() + AGAIN_MS)

    def _act_on(self, half: Half, checks: int, producers: list[Connection]) -> None:
        settings, record = self._settings(), half.record
        offset, now_ms = record.queue_offset, self.now_ms()
        stored_ms = self._stored_ms(half, self._store.clock_steps.spans)
        if checks >= min(settings.most, MOST_CHECKS) or self._ages.now_ms() - stored_ms > settings.kept_ms:
            if not self._set_aside(half, checks):
                self._halves.wait(offset, now_ms + AGAIN_MS)
            return
        # Apache counts a check, too, when it puts back a half that it leaves alone.
        left_ms = 0 if self._halves.checks(offset) else self._immune_for(half, settings)
        if left_ms > 0:
            self._halves.wait(offset, now_ms + left_ms)
            return
        # Producers that may not be asked are there: a further one would not wake what is parked.
        is_alone = not producers and not self._clients.producer_channels(half.group)
        if is_alone and self._halves.park(offset, half.group):
            return
        if self._ask(half, checks + 1, producers):
            self._halves.set_checks(offset, checks + 1)
        self._halves.wait(offset, now_ms + settings.interval_ms)

    def _immune_for(self, half: Half, settings: CheckSettings) -> float:
        """Return the ms for which a half is still left alone, whatever the wall clock is set to. A long time is waited
        for in pieces that grow."""
        record = half.record
        immunity = immunity_ms(record.properties, settings.timeout_ms)
        since_start = min({record.queue_offset, *earlier_offsets(half)}) >= self._half_end
        if since_start and immunity <= LONG_WAIT_MS:
            return 0  # its time, which it kept where it was put back, is behind that
        names = (PREPARED_QUEUE_OFFSET, FIRST_HALF)  # whoever put it back
        put_back = any(find_property(record.properties, name) is not None for name in names)
        since_ms = record.born_time_ms if put_back else record.store_time_ms
        left = min(self._left_ms(record.physical_offset, since_ms + immunity, immunity), immunity)
        return min(left, max(LONG_WAIT_MS, immunity - left))

    @staticmethod
    def _stored_ms(half: Half, spans: tuple[Stamped, ...]) -> int:
        """Return when a half was stored first, wherever it lies now.

        spans: of `ClockSteps`, read before the clock that this is compared with. In the other order, a clock that is
        set back in between would make it older.
        """
        record = half.record
        return record.store_time_ms + ahead_of(spans, record.physical_offset) - waited_ms(record.properties)

    def _set_aside(self, half: Half, checks: int) -> bool:
        """Set a half aside; False if that is not possible now."""
        if not self._decisions.discard(half, checks, NOBODY):
            return False
        logger.warning(
            "transactions: set aside queue_offset=%d group=%s topic=%s checks=%d",
            half.record.queue_offset,
            half.group,
            half.target.topic,
            checks,
        )
        return True

    def _lost(self, offset: int, why: Missing) -> None:
        logger.error("transactions: half message %d is lost: %s", offset, why.value)
        self._decisions.forget(offset)

    def _producers_for(self, half: Half) -> list[Connection]:
        """Return the producers of a half's group that may be asked: a question holds the message."""
        found = [one.conn for one in self._clients.producer_channels(half.group)]
        may = self.may_be_asked
        return found if may is None else [conn for conn in found if may(conn, half.target.topic)]

    def _ask(self, half: Half, checks: int, connections: list[Connection]) -> bool:
        """Ask one of these producers, in turn; False if all are too busy to be asked."""
        for _ in connections[:_TURNS]:
            self._turn += 1
            conn = connections[self._turn % len(connections)]
            if not conn.closed and conn.outbox_bytes < BUSY_BYTES:
                conn.send_command(self._question(half, checks))
                self.asked += 1
                return True
        return False

    def ask_now(self, half: Half) -> AskedNow:
        """Ask about a half at once, for an administrator. This does not count as a check, and the next check keeps its
        time."""
        checks = self._halves.checks(half.record.queue_offset)
        if checks is None:
            return AskedNow.DECIDED
        producers = self._producers_for(half)
        if not producers:
            return AskedNow.NO_PRODUCER
        checks = max(1, checks, checks_of(half.record.properties))
        return AskedNow.ASKED if self._ask(half, checks, producers) else AskedNow.BUSY

    def _question(self, half: Half, checks: int) -> RemotingCommand:
        record, key = half.record, half.unique_key
        return RemotingCommand(
            RequestCode.CHECK_TRANSACTION_STATE,
            opaque=self.asked & 0x7FFFFFFF,
            flag=FLAG_ONEWAY,
            ext_fields={
                "bname": self._settings().broker_name,
                "commitLogOffset": str(record.physical_offset),
                "topic": HALF_TOPIC,
                "msgId": key,
                "tranStateTableOffset": str(record.queue_offset),
                "offsetMsgId": encode_offset_id(hosts(half.data)[1], record.physical_offset),
                "transactionId": key,
            },
            body=as_checked(half, checks),
        )
