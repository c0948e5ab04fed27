"""Delivers messages that wait for a time of their own when it has come.

The thread adds to the index what was stored in the timer topic, and takes from it what is due: messages of one topic by
due time and then in the order they were stored in, several topics in turns while more is due than can be delivered at
once. A message is read from the log, and `OwnAppends` stores its copy in the topic and queue it is for; the copy has
TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS, as Apache's has, and nothing that would make it wait again. A few batches are
under way at a time; after one that was refused there is a pause.

Marks say which records no longer count (`marks.py`). They come before the messages they are for, or are looked up if
the clock was set in between, and are kept while a message with their TIMER_OUT_MS may come. A message that a recall or
an administrator acts on, or that is being rolled, is put aside, and those behind it go on.

A message that cannot be delivered is treated as delayed messages are (`delays/delivery.py`): it is tried again if the
fault may pass, else given up, logged and counted. It holds up no other message.
Source: RocketMQ 5.3.3 `TimerMessageStore`, which delivers by whole seconds and looks for new ones every 100 ms.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future

from ...clock import SYSTEM, Clock
from ...errors import CorruptFile, QueueBroken, Unavailable
from ...named_tuple import NamedTuple
from ...protocol.codes import ResponseCode
from ...protocol.names import TIMER_TOPIC
from ...protocol.properties import (
    MAX_PROPERTIES_BYTES,
    OF_DELETED,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_FIRST,
    TIMER_ROLL_TIMES,
    TIMER_WAS_OUT_MS,
    decode_properties,
    encode_properties,
    without_properties,
)
from ...protocol.record import Record
from ...service_thread import ServiceThread
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ENTRY_BYTES, HOLE_SIZE, ConsumeQueue, unpack_entries
from ...store.record_reader import Missing
from ..delays.due_copy import FindTopic, GivenUp, GivenUpMessages, NotNow, arrived_properties, due_copy, look_at_missing
from ..delays.levels import Place
from ..delays.waiting_time import WaitingTime
from ..sending.outcome import PutOutcome
from ..sending.own_appends import OwnAppends, OwnMessage
from .apache_files import Done, read_checkpoint
from .claims import Claims
from .look import ScheduleLook
from .marks import KeyMarks
from .records import cancel_key, delay_in, entries_of, first_text, read_properties, read_stored, short_key, timed_of
from .runs import TimerEntry, lane_of, unpack_entry
from .schedule import Indexed, Stretch, TimerIndex
from .spans import SpanReader
from .waiting import Timed

logger = logging.getLogger(__name__)

#: A batch, and how many are under way: remoting-io stages each in one go (D10).
MOST_MESSAGES = 128
MOST_BYTES = 512 * 1024
MOST_BATCHES = 4
#: Pause between two rounds that delivered something.
ROUND_S = 0.003
#: Pause before the next look for new records, unless a message is due sooner.
LOOK_S = 0.5
#: The same while a message that is about to be due is on its way to the log; how long after its due time it is awaited.
SOON_S, SOON_MS = 0.002, 2000
#: Records added to the index in a round, and in one of the start, when nothing is delivered yet.
INDEXED_AT_ONCE, INDEXED_AT_START = 512, 128
#: Entries of the queue read at a time.
_ENTRIES = 128
#: Pause before the next try: OwnAppends is full; a message was refused; log, queue or index cannot be read.
FULL_S, REFUSED_S, BROKEN_S = 0.01, 0.1, 1.0
MOST_REFUSALS = 3
UNREADABLE_S = 60.0
#: Pause between two searches for marks that are no longer needed; entries of such marks dropped in a round.
MARKS_S, MARKS_AT_ONCE = 1.0, 4096
#: Queue files kept open.
_DESCRIPTORS = 8

_PLACE = Place(TIMER_TOPIC, 0)


class _Mark:
    """The marks for messages with one key and one TIMER_OUT_MS, and their entries: each with True if its record is
    nothing but this mark."""

    __slots__ = ("entries", "says")

    def __init__(self) -> None:
        self.says = KeyMarks()
        self.entries: list[tuple[bytes, bool]] = []


class _Waits(NamedTuple):
    """A message that was taken: when it was due on the wall clock less its jumps, its entry, its copy, and the key and
    TIMER_OUT_MS with which it was entered in the claims."""

    due_ms: float
    entry: bytes
    message: OwnMessage
    key: str
    out_ms: int


class _Batch(NamedTuple):
    """A batch that is under way."""

    future: Future[list[PutOutcome]]
    waits: list[_Waits]

    @property
    def entries(self) -> list[bytes]:
        return [one.entry for one in self.waits]


class _Aside(Exception):
    """A recall or an administrator acts on the message at hand, or it is being rolled."""

    def __init__(self, key: str, out_ms: int) -> None:
        super().__init__(key)
        self.key = key
        self.out_ms = out_ms


class _Later(Exception):
    """The message is due later than its entry says: timerPrecisionMs has changed since it was indexed."""

    def __init__(self, due_ms: int) -> None:
        super().__init__(due_ms)
        self.due_ms = due_ms


class DeliverTimers(ServiceThread):
    """The thread `deliver-timers`. Woken when the next message is due, by new messages that are due soon, and by
    batches that ended."""

    def __init__(
        self,
        store: MessageStore,
        appends: OwnAppends,
        index: TimerIndex,
        find_topic: FindTopic,
        precision_ms: Callable[[], int],
        claims: Claims | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """The store is already open, with what an earlier life left in it."""
        super().__init__("deliver-timers", clock)
        # Constant after construction.
        self._store = store
        self._appends = appends
        self.index = index
        self._find_topic = find_topic
        self.precision_ms = precision_ms
        self.claims = claims or Claims()
        queue = store.find_queue(TIMER_TOPIC, 0)
        self._end_at_start = 0 if queue is None else queue.max_offset
        # Owned by the thread; numbers may be read by anyone.
        self._time = WaitingTime(
            clock, lambda: store.log.written, lambda: store.store_ms, store.clock_steps, store.tick_gaps
        )
        self._files = store.queues.new_files(_DESCRIPTORS)
        self._spans = SpanReader(store.log)
        self._loaded = False
        #: True when everything that was there at the start is in the index; before that nothing is delivered.
        self.is_ready = False
        self._batches: list[_Batch] = []
        self._submitted = False
        self._marks: dict[tuple[int, str], _Mark] = {}
        self._waiting: list[_Waits] = []
        #: Entry that was put aside -> (key, TIMER_OUT_MS) by which its message is claimed.
        self._aside: dict[bytes, tuple[str, int]] = {}
        #: Later marks for the messages of a round, by TIMER_OUT_MS, shift, lane and their topic's lane.
        self._later: dict[tuple[int, float, int, int], dict[str, KeyMarks]] = {}
        self._marks_not_before = 0.0
        self._not_before = 0.0
        #: Messages due until then, on the wall clock less its jumps, are delivered when the index has reached the end
        #: that the topic had at that time.
        self._until_ms = 0.0
        self._end = 0
        self._refusals: dict[bytes, int] = {}
        self._unreadable: dict[bytes, float] = {}
        self._given_up = GivenUpMessages("timers", clock)
        #: Written by remoting-io: the earliest due time of messages that are about to be stored.
        self._soon_ms = 1 << 62
        #: Other work of this thread, a step at a time between deliveries.
        self.chores: list[Callable[[], float]] = []
        #: Reason why messages that may be due are not delivered; None if they are.
        self.failure: str | None = None
        #: Counters.
        self.delivered = 0
        self.cancelled = 0
        self.given_up = self._given_up.counts
        #: Ms after its due time at which the first message of the last ended batch was stored.
        self.late_ms = 0.0

    # --- from any thread

    def expect(self, due_ms: int) -> None:
        """Note that a message that is due then is about to be stored."""
        if due_ms < self._soon_ms:
            self._soon_ms = due_ms
            self.wakeup()

    @property
    def pending(self) -> int:
        """Number of waiting messages and marks in the index."""
        return self.index.pending

    @property
    def next_due_ms(self) -> int | None:
        """Due time of the next message, on the wall clock less its jumps; None without any, or before it is known."""
        if not self.is_ready:
            return None
        try:
            return self.index.next_due_ms()
        except (OSError, CorruptFile):
            return None

    def now_ms(self) -> float:
        """Return the wall clock less its jumps."""
        return self._time.now_ms()

    def look(self) -> ScheduleLook:
        """Return a view of the messages that wait for a time of their own now."""
        return ScheduleLook(self.index, self._store.disk, self._store.log, self.precision_ms)

    def waits(self, key: str, out_ms: int) -> bool:
        """True if a message with this key (`topic+unique key`) and TIMER_OUT_MS waits, or may wait. Reads the records
        that are not in the index yet: True if they are too many, False if something cannot be read."""
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        begin, end = self.index.indexed.queue_offset, 0 if queue is None else queue.max_offset
        if end - begin > _ENTRIES:
            return True
        try:
            while queue is not None and begin < end:
                entries = self._store.queues.read_entries(queue, begin, end - begin)  # fewer where a file ends
                if not entries:
                    return True
                begin += len(entries) // ENTRY_BYTES
                for physical, size, _ in unpack_entries(entries):
                    stored = read_stored(self._store.log, physical, size)
                    timed = None if stored is None else timed_of(stored[0], self.precision_ms())
                    if stored is None or timed is None or timed.out_ms != out_ms or timed.cancels is not None:
                        continue
                    if cancel_key(stored[0]) == key:
                        return True
            with self.look() as look:
                return look.waits(out_ms, key, self.index.rounded_ms)
        except (OSError, CorruptFile, QueueBroken):
            return False

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
        """End the thread. Called again after remoting-io has ended, to take in the outcomes of batches under way."""
        ended = super().stop(deadline)
        if ended:
            self._time.look_last()
            self.index.jumps_ms = self._time.jumps_ms  # the shifts that are saved last are those of the clock now
            self._collect()
        return ended

    def round(self) -> float:
        """Index what is new and deliver what is due; return the seconds until there may be more to do."""
        self._look()
        self._submitted = False
        if self._store.log.broken is not None:  # until a restart; the store reports it
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

    def _look(self, physical: int = -1) -> None:
        """Look at the clock. The index must have a step in `jumps_ms` before it adds records stored after it, because
        the shifts that it saves are relative to `jumps_ms`."""
        self._time.look(physical)
        self.index.jumps_ms = self._time.jumps_ms

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
        self._set_end()
        self._later.clear()
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
        if self.index.indexed.queue_offset < self._end:
            return SOON_S
        self._look_aside()
        self._submitted = submitted = self._deliver()
        if steady < self._not_before:
            return self._not_before - steady
        if not self._waiting:
            self.failure = None
        return self._pause(submitted, more)

    def _set_end(self) -> None:
        """Note the time and the topic's end: every message acknowledged until now lies before that end. The next end is
        set when the index has reached this one; else delivery would wait for as long as many messages are sent."""
        if self.index.indexed.queue_offset < self._end:
            return
        self._until_ms = self._time.now_ms()
        self.claims.reached_ms = max(self.claims.reached_ms, int(self._until_ms + self._time.jumps_ms))
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        self._end = 0 if queue is None else queue.max_offset

    def _look_aside(self) -> None:
        """Put messages back that are no longer claimed or rolled, to be taken after the marks made meanwhile."""
        self.claims.indexed(self.index.indexed.queue_offset, self.clock.wall_ms())
        free = [
            one
            for one, claimed in self._aside.items()
            if self.claims.is_free(*claimed) and unpack_entry(one).queue_offset not in self.index.rolling
        ]
        for one in free:
            del self._aside[one]
        self.index.back(free)

    def _pause(self, submitted: bool, more: bool) -> float:
        if submitted or more:
            return ROUND_S
        if len(self._batches) >= MOST_BATCHES:
            return LOOK_S  # the end of a batch wakes the thread
        now = self._time.now_ms()
        pause = SOON_S if self._aside else LOOK_S
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
        self._aside.clear()
        self._later.clear()
        self._end = 0
        self.claims.forget_entered()
        self._begin_again()
        self.is_ready = False

    def _load(self) -> None:
        """Load the saved index. Begin a new one if that is of another log, or another broker has used the store."""
        left = read_checkpoint(self._store.disk, self._store.paths.root)
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
        left = read_checkpoint(self._store.disk, self._store.paths.root)
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        skip = Done() if left is None else Done(left.last_read_ms, left.queue_offset)
        if left is not None and left.done is not None:
            skip = left.done.until(self._end_at_start)
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
        """Add new records to the index; True if there are more."""
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
        """Add some records to the index; return the queue offset behind them."""
        entries = self._store.queues.read_entries(queue, begin, count, self._files)
        if len(entries) < ENTRY_BYTES:
            raise QueueBroken(f"entry {begin} of {queue.topic}-{queue.queue_id} cannot be read")
        found: list[TimerEntry] = []
        others: dict[int, list[TimerEntry]] = {}
        stretches: list[Stretch] = []
        precision_ms, skip = self.precision_ms(), self.index.skip
        self.index.rounded_ms = max(self.index.rounded_ms, precision_ms)
        offset, last = begin, self.index.indexed
        places = [(at, size) for at, size, _ in unpack_entries(entries[: len(entries) // ENTRY_BYTES * ENTRY_BYTES])]
        self._spans.expect(places)
        self._look(places[-1][0])  # the clock may have been set since the last one, and these stamped after that
        usual_ms = self._time.jumps_at(places[-1][0])
        for physical, size in places:
            if size <= 0:
                self._store.queues.on_broken(queue)
                raise QueueBroken(f"the files of {queue.topic}-{queue.queue_id} are being rebuilt")
            properties = None if size == HOLE_SIZE else read_properties(self._spans, physical, size)
            timed = None if properties is None else timed_of(properties, precision_ms)
            if timed is not None:
                shift_ms = None if timed.first is None else self.index.shifts.get(timed.first.queue_offset)
                if shift_ms is None:
                    shift_ms = self._shift_of(timed, properties or "", physical)
                if not stretches or shift_ms != stretches[-1].shift_ms:
                    stretches.append(Stretch(offset, shift_ms))
                if not skip.holds(timed.out_ms, offset, timed.cancels is not None):
                    into = found if shift_ms == usual_ms else others.setdefault(shift_ms, [])
                    into += entries_of(timed, properties or "", offset, physical, size)
            elif physical >= self._store.log.min_offset:
                self._given_up.add(f"queue_offset={offset}", physical, "damaged", "its record says no time")
            offset += 1
            last = Indexed(offset, physical, size)
        self.index.add(found, last, usual_ms, others, stretches)
        return offset

    def _shift_of(self, timed: Timed, properties: str, physical: int) -> int:
        """Return what the clock had jumped by when a record was stored. Around a jump a delay tells more than a time of
        day, which is due by the new clock."""
        if timed.first is None and self._time.is_around_jump(physical):
            delay_ms = delay_in(properties)
            if delay_ms is not None:
                return self._time.jumps_of(physical, timed.due_ms - delay_ms)
        return self._time.jumps_at(physical) - timed.ahead_ms

    # --- delivery

    def _deliver(self) -> bool:
        """Submit what is due, a few batches at most; True if there was anything."""
        submitted = False
        while len(self._batches) < MOST_BATCHES:
            if not self._waiting and not self._prepare():
                break
            if not self._submit():
                break
            submitted = True
        return submitted

    def _prepare(self) -> bool:
        """Take what is due and make its copies; True if there are copies to submit."""
        taken = self.index.take(self._until_ms, MOST_MESSAGES, MOST_BYTES)
        if not taken:
            self._let_marks_go()
            return False
        found = [(due, one, unpack_entry(one)) for due, one in taken]
        self._spans.expect((entry.physical_offset, entry.size) for _, _, entry in found)
        # All marks first: if the clock was set, they may stand behind the messages that they are for.
        found.sort(key=lambda each: not each[2].is_mark)
        blocked: list[bytes] = []
        later: dict[bytes, int] = {}
        for at, (due, one, entry) in enumerate(found):
            try:
                ready = self._ready(due, one, entry)
            except _Aside as error:
                self._aside[one] = (error.key, error.out_ms)
            except _Later as error:
                later[one] = error.due_ms
            except GivenUp as error:
                self._give_up(one, entry, error.reason, str(error))
            except (NotNow, QueueBroken, OSError) as error:
                blocked = [other for _, other, _ in found[at:]]
                self._fail(str(error), BROKEN_S)
                break
            except Exception as error:  # an unforeseen one must not hold up other messages for long
                if not isinstance(error, MemoryError) and self._refused_often(one):
                    self._give_up(one, entry, "damaged", repr(error))
                    continue
                logger.exception("timers: no copy can be made of queue_offset=%d", entry.queue_offset)
                blocked = [other for _, other, _ in found[at:]]
                self._fail(repr(error), BROKEN_S)
                break
            else:
                if ready is not None:
                    self._waiting.append(ready)
        self.index.back([*blocked, *later], later)
        return bool(self._waiting) or (not blocked and self._prepare_more())

    def _prepare_more(self) -> bool:
        """Wake the thread for another round: all entries taken were marks or cancelled, and more may be behind them."""
        self.wakeup()
        return False

    def _ready(self, due: float, one: bytes, entry: TimerEntry) -> _Waits | None:
        """Return a message with its copy, entered in the claims; None for a mark, which is kept, and for a record that
        no longer counts, which is done with. Raises _Aside, _Later, GivenUp, and errors that may pass."""
        found = self._store.records.find(entry.physical_offset, entry.size, self._spans.read)
        if isinstance(found, Missing):
            if found is Missing.EXPIRED and (entry.is_mark or entry.queue_offset < self.index.rolled_to):
                self.index.done(one)  # it was rolled in time
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
        timed = timed_of(record.properties, self.precision_ms())
        if timed is None:
            raise GivenUp("damaged", "its record says no time")
        key = timed.cancels if entry.is_mark and timed.cancels is not None else cancel_key(record.properties)
        if entry.is_mark:
            mark = self._marks.setdefault((timed.out_ms, short_key(key)), _Mark())
            mark.entries.append((one, timed.cancels is not None))
            mark.says.note(timed, entry.queue_offset)
            return None
        shift_ms = entry.due_ms - due
        if timed.due_ms > entry.due_ms:
            raise _Later(timed.due_ms)
        for says in self._marks_for(timed, key, shift_ms, entry.lane):
            is_replaced = says.is_replaced(timed, entry.queue_offset, record.store_time_ms)
            if is_replaced or says.is_cancelled(timed, entry.queue_offset):
                self.cancelled += not is_replaced
                self.index.done(one)
                return None
        if entry.queue_offset in self.index.rolling or not self.claims.enter(key, timed.out_ms):
            raise _Aside(key, timed.out_ms)
        try:
            properties = with_times(record, timed, self.clock.wall_ms())
            message = due_copy(found, _PLACE, self._find_topic, self._store.files.deleted_topics, properties)
        except BaseException:
            self.claims.leave(key, timed.out_ms)
            raise
        return _Waits(due, one, message, key, timed.out_ms)

    def _marks_for(self, timed: Timed, key: str, shift_ms: float, lane: int) -> list[KeyMarks]:
        """Return the marks for a key and TIMER_OUT_MS: those already taken, and those that come after the message,
        because the clock was set after it was stored or an older version left the message or the mark."""
        found = []
        short = short_key(key)
        if self._marks and (known := self._marks.get((timed.out_ms, short))) is not None:
            found.append(known.says)
        topic_lane = lane_of(key)
        if self.index.has_later(shift_ms, lane, topic_lane):
            which = (timed.out_ms, shift_ms, lane, topic_lane)
            if which not in self._later:
                self._later[which] = self._read_later(*which)
            if (later := self._later[which].get(short)) is not None:
                found.append(later)
        return found

    def _read_later(self, out_ms: int, shift_ms: float, lane: int, topic_lane: int) -> dict[str, KeyMarks]:
        found: dict[str, KeyMarks] = {}
        for entry in self.index.later_marks(out_ms + 1, shift_ms, lane, topic_lane):
            stored = read_stored(self._store.log, entry.physical_offset, entry.size)
            timed = None if stored is None else timed_of(stored[0], self.precision_ms())
            if stored is not None and timed is not None and timed.out_ms == out_ms:
                key = short_key(timed.cancels if timed.cancels is not None else cancel_key(stored[0]))
                found.setdefault(key, KeyMarks()).note(timed, entry.queue_offset)
        return found

    def _let_marks_go(self) -> None:
        """Drop marks that are no longer needed, because no message of their time waits. The clock does not decide that,
        as it may have been set."""
        if not self._marks or self.clock.steady() < self._marks_not_before:
            return
        self._marks_not_before = self.clock.steady() + MARKS_S
        over = self.index.first_of_all_ms() - self.index.rounded_ms
        gone = 0
        for known in [known for known in self._marks if known[0] < over]:
            if gone >= MARKS_AT_ONCE:
                self._marks_not_before = 0.0
                self.wakeup()
                return
            entries = self._marks.pop(known).entries
            gone += len(entries)
            for one, is_whole in entries:
                self.index.done(one, is_whole=is_whole)

    def _submit(self) -> bool:
        """Submit a batch; False if there is no room for one now."""
        waits: list[_Waits] = []
        room = MOST_BYTES
        for one in self._waiting:
            if waits and len(one.message.body) > room:
                break
            waits.append(one)
            room -= len(one.message.body)
        try:
            future = self._appends.submit([one.message for one in waits])
        except Unavailable:
            self._not_before = self.clock.steady() + FULL_S
            return False
        del self._waiting[: len(waits)]
        self._batches.append(_Batch(future, waits))
        future.add_done_callback(lambda _: self.wakeup())
        return True

    def _collect(self) -> None:
        """Handle the outcomes of batches that ended."""
        while self._batches and self._batches[0].future.done():
            batch = self._batches.pop(0)
            try:
                outcomes = batch.future.result(0)
            except Exception as error:  # it is not known what was stored
                logger.error("timers: a batch of %d failed: %r", len(batch.waits), error)
                outcomes = [PutOutcome(ResponseCode.SYSTEM_ERROR, reason=repr(error))] * len(batch.waits)
            again: list[bytes] = []
            wall_ms = self.clock.wall_ms()
            for (_, one, _, key, out_ms), outcome in zip(batch.waits, outcomes, strict=True):
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
                self.claims.leave(key, out_ms, outcome.is_stored and out_ms >= wall_ms)
            self.index.back(again)
            self.late_ms = max(0.0, self._time.now_ms() - batch.waits[0].due_ms)

    def _refused_often(self, one: bytes) -> bool:
        times = self._refusals[one] = self._refusals.get(one, 0) + 1
        return times >= MOST_REFUSALS

    def _give_up(self, one: bytes, entry: TimerEntry, reason: str, detail: str) -> None:
        self._given_up.add(f"queue_offset={entry.queue_offset}", entry.physical_offset, reason, detail)
        self._refusals.pop(one, None)
        self._unreadable.pop(one, None)
        self.index.done(one)


def with_times(record: Record, timed: Timed, now_ms: int) -> str:
    """Return the properties of the copy, with TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS as Apache's has them, if there is
    room for these, and with ROCKETBOX_TIMER_OUT_MS, by which a cut of the log sets timers back."""
    text = without_properties(arrived_properties(record.properties), (TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS))
    end = "" if not text or text.endswith("\x02") else "\x02"
    due = {TIMER_WAS_OUT_MS: str(timed.out_ms)}
    for added in ({TIMER_ENQUEUE_MS: str(record.store_time_ms), TIMER_DEQUEUE_MS: str(now_ms)} | due, due):
        longer = f"{text}{end}{encode_properties(added)}"
        if len(longer.encode()) <= MAX_PROPERTIES_BYTES:
            return longer
    return text


def rolled_properties(record: Record, timed: Timed, now_ms: int, ahead_ms: int = 0, of_deleted: bool = False) -> str:
    """Return the properties of the copy of a record that is rolled: as Apache's roll has them, and the first record. As
    they are if there is no room for more: then the message comes twice if its older record is still there. ahead_ms: of
    the copy. of_deleted: see `is_of_deleted`; the copy's place no longer shows it."""
    found = decode_properties(record.properties)
    found[TIMER_ROLL_TIMES] = str(timed.roll_times + 1 if timed.roll_times < 1 << 30 else 1 << 30)
    found[TIMER_ENQUEUE_MS] = str(record.store_time_ms)
    found[TIMER_DEQUEUE_MS] = str(now_ms)
    found[TIMER_FIRST] = first_text(timed, record.queue_offset, record.store_time_ms, ahead_ms)
    if of_deleted:
        found[OF_DELETED] = "1"
    text = encode_properties(found)
    return text if len(text.encode()) <= MAX_PROPERTIES_BYTES else record.properties
