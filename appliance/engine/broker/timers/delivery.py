"""Delivers messages that wait for a time of their own when it has come.

The thread takes into the index what was stored in the timer topic, and takes from it what is due, by due time and then
by the order it was stored in. A message is read from the log and stored once more, in the topic and queue it is for, by
`OwnAppends`; its text keeps what Apache's keeps, with TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS. A few batches are under
way at a time; after one that was refused there is a pause.

Marks come before the messages they are for: TIMER_DEL_UNIQKEY cancels, TIMER_ROLL_TIMES says that an older record of a
message no longer counts. They are kept while a message with their TIMER_OUT_MS may come.

What cannot be delivered is treated as delayed messages are (`delays/delivery.py`): tried again while it may pass, else
given up, logged and counted, and it holds up nobody.
Source: RocketMQ 5.3.3 `TimerMessageStore`, which delivers by whole seconds and looks for new ones every 100 ms.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from ...clock import SYSTEM, Clock
from ...errors import CorruptFile, QueueBroken, Unavailable
from ...protocol.codes import ResponseCode
from ...protocol.names import TIMER_TOPIC
from ...protocol.properties import (
    MAX_PROPERTIES_BYTES,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_ROLL_TIMES,
    decode_properties,
    encode_properties,
)
from ...protocol.record import Record
from ...service_thread import ServiceThread
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ENTRY_BYTES, HOLE_SIZE, ConsumeQueue, unpack_entries
from ...store.record_reader import Missing
from ..delays.due_copy import FindTopic, GivenUp, GivenUpMessages, NotNow, due_copy, look_at_missing
from ..delays.levels import Place
from ..delays.waiting_time import WaitingTime
from ..sending.outcome import PutOutcome
from ..sending.own_appends import OwnAppends, OwnMessage
from .apache_files import Checkpoint
from .claims import Claims
from .records import cancel_key, entries_of, read_properties, short_key, timed_of
from .runs import TimerEntry, unpack_entry
from .schedule import Indexed, Skip, TimerIndex
from .spans import SpanReader

logger = logging.getLogger(__name__)

#: A batch, and how many are under way: remoting-io stages each in one go (D10).
MOST_MESSAGES = 128
MOST_BYTES = 512 * 1024
MOST_BATCHES = 4
#: Between two rounds that delivered something.
ROUND_S = 0.003
#: New records are looked for so often, when none is known to be due sooner.
LOOK_S = 0.5
#: So often while a message that is about to be due is on its way to the log, and for how long that is waited for.
SOON_S, SOON_MS = 0.002, 2000
#: Records taken into the index in a round, and in one of the start, when nothing is delivered yet.
INDEXED_AT_ONCE, INDEXED_AT_START = 512, 128
#: Entries of the queue read at a time.
_ENTRIES = 128
#: Until the next try: OwnAppends is full; a message was refused; log, queue or index cannot be read.
FULL_S, REFUSED_S, BROKEN_S = 0.01, 0.1, 1.0
MOST_REFUSALS = 3
UNREADABLE_S = 60.0
#: Marks are kept so long behind their time: Apache's times are rounded, ours are not.
MARK_SPAN_MS = 1000
#: Queue files kept open.
_DESCRIPTORS = 8

_PLACE = Place(TIMER_TOPIC, 0)


class _Mark:
    """What marks say of messages with one key and one TIMER_OUT_MS. newest: (roll times, queue offset) of the record
    that counts."""

    __slots__ = ("cancelled", "entries", "newest")

    def __init__(self) -> None:
        self.cancelled = False
        self.newest = (0, -1)
        self.entries: list[bytes] = []


class _Batch(NamedTuple):
    """Under way: entries, and when the first was due by the clock without its jumps."""

    future: Future[list[PutOutcome]]
    entries: list[bytes]
    first_ms: float


class DeliverTimers(ServiceThread):
    """The thread `deliver-timers`. Woken by the time when the next message is due, by new ones that are due soon, and
    by batches that ended."""

    def __init__(
        self,
        store: MessageStore,
        appends: OwnAppends,
        index: TimerIndex,
        find_topic: FindTopic,
        precision_ms: Callable[[], int],
        left_by_apache: Callable[[], Checkpoint | None],
        claims: Claims | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """The store is open by now, and holds what an earlier life left. left_by_apache: reads the checkpoint file,
        raises OSError."""
        super().__init__("deliver-timers", clock)
        # Constant after construction.
        self._store = store
        self._appends = appends
        self.index = index
        self._find_topic = find_topic
        self._precision_ms = precision_ms
        self._left_by_apache = left_by_apache
        self._claims = claims or Claims()
        queue = store.find_queue(TIMER_TOPIC, 0)
        self._end_at_start = 0 if queue is None else queue.max_offset
        self._log_at_start = store.log.written
        # Owned by the thread; numbers may be read by anyone.
        self._time = WaitingTime(clock, lambda: store.log.written, lambda: store.store_ms)
        self._files = store.queues.new_files(_DESCRIPTORS)
        self._spans = SpanReader(store.log)
        self._loaded = False
        #: Everything that was there at the start is in the index: before that nothing is delivered.
        self.is_ready = False
        self._batches: list[_Batch] = []
        self._submitted = False
        self._marks: dict[tuple[int, str], _Mark] = {}
        self._waiting: list[tuple[int, bytes, OwnMessage | None]] = []
        self._not_before = 0.0
        #: What is due until then, by the clock without its jumps, is closed to others; the largest jump so far.
        self._until_ms = 0.0
        self._shift_ms = 0
        self._refusals: dict[bytes, int] = {}
        self._unreadable: dict[bytes, float] = {}
        self._given_up = GivenUpMessages("timers", clock)
        #: Written by remoting-io: a message that will be stored is due then.
        self._soon_ms = 1 << 62
        #: Other work of this thread, a step at a time between deliveries.
        self.chores: list[Callable[[], float]] = []
        #: Why messages that may be due are not delivered, if so.
        self.failure: str | None = None
        #: Counters.
        self.delivered = 0
        self.cancelled = 0
        self.given_up = self._given_up.counts
        #: How late the first message of the batch that ended last was stored, in ms.
        self.late_ms = 0.0

    # --- from any thread

    def expect(self, due_ms: int) -> None:
        """A message that is due then is about to be stored."""
        if due_ms < self._soon_ms:
            self._soon_ms = due_ms
            self.wakeup()

    @property
    def pending(self) -> int:
        """How many wait, marks among them, as far as they are in the index."""
        return self.index.pending

    @property
    def next_due_ms(self) -> int | None:
        """When the next one is due, by the clock without its jumps; None without any, or before it is known."""
        if not self.is_ready:
            return None
        try:
            return self.index.next_due_ms()
        except (OSError, CorruptFile):
            return None

    # --- the thread

    def run(self) -> None:
        try:
            while not self.stopped:
                pause = self.round()
                if self._submitted and not self.stopped:
                    self.clock.sleep(ROUND_S)
                    pause = max(0.0, pause - ROUND_S)
                self.wait(pause)
        finally:
            self._files.close()

    def stop(self, deadline: float = 5.0) -> bool:
        """End the thread. Once more after remoting-io has ended: then what became of what is under way counts, too."""
        ended = super().stop(deadline)
        if ended:
            self._collect()
        return ended

    def round(self) -> float:
        """Take in what is new and deliver what is due; returns the seconds until there may be more to do."""
        self._time.look()
        self._submitted = False
        if self._store.log.broken is not None:  # until a restart; the store says so itself
            return BROKEN_S
        try:
            pause = self._round()
        except (OSError, QueueBroken) as error:
            return self._fail(str(error), BROKEN_S)
        except CorruptFile as error:
            self._make_again(str(error))
            return 0.0
        except Exception as error:
            logger.exception("timers: a round failed")
            return self._fail(repr(error), 10 * BROKEN_S)
        for chore in self.chores:
            pause = min(pause, chore())
        return pause

    def _fail(self, reason: str, pause: float) -> float:
        if reason != self.failure:
            logger.error("timers: messages wait: %s", reason)
        self.failure = reason
        self._not_before = self.clock.steady() + pause
        return pause

    def _round(self) -> float:
        if not self._loaded:
            self._load()
        if self.index.damaged is not None:
            raise CorruptFile(self.index.damaged)
        end, is_free = self._close()
        more = self._take_in()
        self._collect()
        if not self.is_ready:
            if more:
                return 0.001
            self.is_ready = True
            logger.info("timers: %d entries wait", self.index.pending)
        steady = self.clock.steady()
        if steady < self._not_before:
            return self._not_before - steady
        if not is_free or self.index.indexed.queue_offset < end:
            return SOON_S
        self._submitted = submitted = self._deliver()
        if steady < self._not_before:
            return self._not_before - steady
        if not self._waiting:
            self.failure = None
        return self._pause(submitted, more)

    def _close(self) -> tuple[int, bool]:
        """Nobody claims any more what is due until now, and whoever did has published the mark for it before the queue
        offset that is returned; or is about to: (that offset, whether it is so)."""
        self._until_ms = self._time.now_ms()
        self._shift_ms = max(self._shift_ms, self._time.jumps_ms)
        is_free = self._claims.close(int(self._until_ms + self._shift_ms), 0)
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        return 0 if queue is None else queue.max_offset, is_free

    def _pause(self, submitted: bool, more: bool) -> float:
        if submitted or more:
            return ROUND_S
        if len(self._batches) >= MOST_BATCHES:
            return LOOK_S  # their end wakes us
        now = self._time.now_ms()
        pause = LOOK_S
        soon = self._soon_ms - self._time.jumps_ms
        if now - soon > SOON_MS:
            self._soon_ms = 1 << 62
        elif soon < now + LOOK_S * 1000:
            pause = max(SOON_S, (soon - now) / 1000)
        due = self.index.next_due_ms()
        if due is not None:
            pause = min(pause, max(0.0, (due - now) / 1000))
        return pause

    # --- the index

    def _make_again(self, reason: str) -> None:
        logger.error("timers: the schedule index is damaged and is made again from the log: %s", reason)
        self.index.clear()
        self._marks.clear()
        self._waiting.clear()
        self._batches.clear()
        self._begin_again()
        self.is_ready = False

    def _load(self) -> None:
        """What an earlier life knew, if it is of this log, and nobody else went on with it since."""
        left = self._left_by_apache()
        if self.index.load(self._end_at_start):
            if left is not None and not left.ours:
                logger.warning("timers: another broker went on with this store; the schedule index is made again")
                self.index.clear()
            elif not self._is_of_this_log(self.index.indexed):
                logger.error("timers: the schedule index is of another log and is made again")
                self.index.clear()
            else:
                self._loaded = True
                return
        self._begin_again()
        self._loaded = True

    def _begin_again(self) -> None:
        left = self._left_by_apache()
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        skip = Skip() if left is None else Skip(left.last_read_ms, left.queue_offset)
        if left is not None and left.done is not None:
            skip = Skip(left.done.out_ms, min(left.done.queue_offset, self._end_at_start))
        self.index.start_at(Indexed(0 if queue is None else queue.min_offset), skip)

    def _is_of_this_log(self, indexed: Indexed) -> bool:
        if indexed.physical_offset < 0:
            return True
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        if queue is None:
            return False
        if indexed.queue_offset <= queue.min_offset:
            return True
        entries = self._store.queues.read_entries(queue, indexed.queue_offset - 1, 1, self._files)
        if len(entries) < ENTRY_BYTES:
            return False
        ((physical, size, _),) = unpack_entries(entries[:ENTRY_BYTES])
        return (physical, size) == (indexed.physical_offset, indexed.size)

    def _take_in(self) -> bool:
        """Take new records into the index; whether there are more."""
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        if queue is None:
            return False
        begin, end = self.index.indexed.queue_offset, queue.max_offset
        if begin < queue.min_offset:
            begin = queue.min_offset
        limit = min(end, begin + (INDEXED_AT_ONCE if self.is_ready else INDEXED_AT_START))
        while begin < limit:
            if self.index.is_full:
                self.index.on_unsaved()
                return True
            begin = self._index(queue, begin, min(_ENTRIES, limit - begin))
        return begin < queue.max_offset

    def _index(self, queue: ConsumeQueue, begin: int, count: int) -> int:
        """Take some records in; returns the queue offset behind them."""
        entries = self._store.queues.read_entries(queue, begin, count, self._files)
        if len(entries) < ENTRY_BYTES:
            raise QueueBroken(f"entry {begin} of {queue.topic}-{queue.queue_id} cannot be read")
        found: list[TimerEntry] = []
        precision_ms, skip = self._precision_ms(), self.index.skip
        self.index.rounded_ms = max(self.index.rounded_ms, precision_ms)
        offset, last = begin, self.index.indexed
        places = [(at, size) for at, size, _ in unpack_entries(entries[: len(entries) // ENTRY_BYTES * ENTRY_BYTES])]
        self._spans.expect(places)
        for physical, size in places:
            if size <= 0:
                self._store.queues.on_broken(queue)
                raise QueueBroken(f"the files of {queue.topic}-{queue.queue_id} are being rebuilt")
            properties = None if size == HOLE_SIZE else read_properties(self._spans, physical, size)
            timed = None if properties is None else timed_of(properties, precision_ms)
            if timed is not None:
                if not skip.holds(timed.out_ms, offset):
                    found += entries_of(timed, offset, physical, size)
            elif physical >= self._store.log.min_offset:
                self._given_up.add(f"queue_offset={offset}", physical, "damaged", "its record says no time")
            offset += 1
            last = Indexed(offset, physical, size)
        old = last.physical_offset < self._log_at_start
        self.index.add(found, last, 0 if old else self._time.jumps_ms)
        return offset

    # --- delivery

    def _deliver(self) -> bool:
        """Hand over what is due, some batches at most; whether anything was."""
        submitted = False
        while len(self._batches) < MOST_BATCHES:
            if not self._waiting and not self._prepare():
                break
            if not self._submit():
                break
            submitted = True
        return submitted

    def _prepare(self) -> bool:
        """Take what is due and make its copies; whether there was something."""
        taken = self.index.take(self._until_ms, MOST_MESSAGES, MOST_BYTES)
        if not taken:
            self._let_marks_go(self._until_ms)
            return False
        blocked: list[bytes] = []
        entries = [unpack_entry(one) for _, one in taken]
        self._spans.expect((entry.physical_offset, entry.size) for entry in entries)
        for at, ((due, one), entry) in enumerate(zip(taken, entries, strict=True)):
            try:
                message = self._message(one, entry)
            except GivenUp as error:
                self._give_up(one, entry, error.reason, str(error))
            except (NotNow, QueueBroken, OSError) as error:
                blocked = [other for _, other in taken[at:]]
                self._fail(str(error), BROKEN_S)
                break
            except Exception as error:  # one that nobody thought of holds up nobody for long
                if not isinstance(error, MemoryError) and self._refused_often(one):
                    self._give_up(one, entry, "damaged", repr(error))
                    continue
                logger.exception("timers: no copy can be made of queue_offset=%d", entry.queue_offset)
                blocked = [other for _, other in taken[at:]]
                self._fail(repr(error), BROKEN_S)
                break
            else:
                if message is not None:
                    self._waiting.append((due, one, message))
        if blocked:
            self.index.back(blocked)
        return bool(self._waiting) or (not blocked and self._prepare_more())

    def _prepare_more(self) -> bool:
        """All that was taken were marks, or cancelled: there may be more behind them, in the next round."""
        self.wakeup()
        return False

    def _message(self, one: bytes, entry: TimerEntry) -> OwnMessage | None:
        """The copy; None for a mark, which is kept, and for what a mark was for, which is done with."""
        found = self._store.records.find(entry.physical_offset, entry.size, self._spans.read)
        if isinstance(found, Missing):
            if found is Missing.EXPIRED and (entry.is_mark or entry.queue_offset < self.index.rolled_to):
                self.index.done(one)  # it was stored once more in time
                return None
            if found is Missing.UNREADABLE:
                since = self._unreadable.setdefault(one, self.clock.steady())
                if self.clock.steady() - since >= UNREADABLE_S:
                    raise GivenUp("damaged", found.value)
            look_at_missing(found)
        assert not isinstance(found, Missing)
        record = found.record
        if record.topic != TIMER_TOPIC or record.queue_offset != entry.queue_offset:
            raise GivenUp("damaged", f"the record is one of {record.topic}-{record.queue_id}")
        timed = timed_of(record.properties, self._precision_ms())
        if timed is None:
            raise GivenUp("damaged", "its record says no time")
        if entry.is_mark:
            key = timed.cancels if timed.cancels is not None else cancel_key(record.properties)
            mark = self._marks.setdefault((timed.out_ms, short_key(key)), _Mark())
            mark.entries.append(one)
            if timed.cancels is not None:
                mark.cancelled = True
            else:
                mark.newest = max(mark.newest, (timed.roll_times, entry.queue_offset))
            return None
        if timed.due_ms > entry.due_ms:  # timerPrecisionMs is another one since it was taken in
            self.index.add([entry._replace(due_ms=timed.due_ms)], self.index.indexed)
            self.index.done(one)
            return None
        if self._marks:
            known = self._marks.get((timed.out_ms, short_key(cancel_key(record.properties))))
            if known is not None:
                rolled = (timed.roll_times, entry.queue_offset) < known.newest
                if known.cancelled or rolled:
                    self.cancelled += known.cancelled and not rolled
                    self.index.done(one)
                    return None
        properties = with_times(record, self.clock.wall_ms())
        return due_copy(found, _PLACE, self._find_topic, properties)

    def _let_marks_go(self, now: float) -> None:
        """Nothing is due: marks whose time is over are of no use any more."""
        if not self._marks:
            return
        first = min((batch.first_ms for batch in self._batches), default=now)
        over = min(now, first) + self._time.jumps_ms - MARK_SPAN_MS
        for known in [known for known in self._marks if known[0] < over]:
            for one in self._marks.pop(known).entries:
                self.index.done(one)

    def _submit(self) -> bool:
        """False when there is no room for a batch now."""
        entries: list[bytes] = []
        messages: list[OwnMessage] = []
        room = MOST_BYTES
        for _, one, message in self._waiting:
            assert message is not None
            if messages and len(message.body) > room:
                break
            entries.append(one)
            messages.append(message)
            room -= len(message.body)
        try:
            future = self._appends.submit(messages)
        except Unavailable:
            self._not_before = self.clock.steady() + FULL_S
            return False
        first_ms = self._waiting[0][0]
        del self._waiting[: len(messages)]
        self._batches.append(_Batch(future, entries, first_ms))
        future.add_done_callback(lambda _: self.wakeup())
        return True

    def _collect(self) -> None:
        """What became of batches that ended."""
        while self._batches and self._batches[0].future.done():
            batch = self._batches.pop(0)
            try:
                outcomes = batch.future.result(0)
            except Exception as error:  # nobody knows what was stored
                logger.error("timers: a batch of %d failed: %r", len(batch.entries), error)
                outcomes = [PutOutcome(ResponseCode.SYSTEM_ERROR, reason=repr(error))] * len(batch.entries)
            again: list[bytes] = []
            for one, outcome in zip(batch.entries, outcomes, strict=True):
                if outcome.is_stored:
                    self.index.done(one, outcome.physical_offsets[0])
                    self._refusals.pop(one, None)
                    self._unreadable.pop(one, None)
                    self.delivered += 1
                elif outcome.code == ResponseCode.SERVICE_NOT_AVAILABLE:
                    self._fail(outcome.reason, BROKEN_S)
                    again.append(one)
                elif self._refused_often(one):
                    self._give_up(one, unpack_entry(one), "refused", outcome.reason)
                else:
                    self._not_before = self.clock.steady() + REFUSED_S
                    again.append(one)
            self.index.back(again)
            self.late_ms = max(0.0, self._time.now_ms() - batch.first_ms)

    def _refused_often(self, one: bytes) -> bool:
        times = self._refusals[one] = self._refusals.get(one, 0) + 1
        return times >= MOST_REFUSALS

    def _give_up(self, one: bytes, entry: TimerEntry, reason: str, detail: str) -> None:
        self._given_up.add(f"queue_offset={entry.queue_offset}", entry.physical_offset, reason, detail)
        self._refusals.pop(one, None)
        self._unreadable.pop(one, None)
        self.index.done(one)


def with_times(record: Record, now_ms: int) -> str:
    """The properties of the copy: since when it waited, and when it was stored."""
    added = {TIMER_ENQUEUE_MS: str(record.store_time_ms), TIMER_DEQUEUE_MS: str(now_ms)}
    text = record.properties
    if TIMER_ENQUEUE_MS in text:
        return encode_properties(decode_properties(text) | added)
    end = "" if not text or text.endswith("\x02") else "\x02"
    longer = f"{text}{end}{encode_properties(added)}"
    return longer if len(longer.encode()) <= MAX_PROPERTIES_BYTES else text


def rolled_properties(record: Record, now_ms: int) -> str:
    """The properties of a message that is stored once more while it waits, as Apache's roll has them; as they are when
    there is no room for more: then it comes twice if its older record is still there."""
    found = decode_properties(record.properties)
    times = found.get(TIMER_ROLL_TIMES, "")
    found[TIMER_ROLL_TIMES] = str(int(times) + 1 if times.isascii() and times.isdigit() and len(times) < 10 else 1)
    found[TIMER_ENQUEUE_MS] = str(record.store_time_ms)
    found[TIMER_DEQUEUE_MS] = str(now_ms)
    text = encode_properties(found)
    return text if len(text.encode()) <= MAX_PROPERTIES_BYTES else record.properties
