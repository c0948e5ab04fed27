"""Rolls: messages that wait for long are stored again at the log's end, before the file that holds them may go.

    started by                                        rolls up to
      the cleaner, before it deletes a log file         the end of that file
      time, once a minute                               the records that have lain in the log for `roll_age_ms`

A roll goes through the timer topic in order, and a file may go as soon as the roll has passed it: on a full disk the
copies of the next file's messages get the room that it leaves. Records that still wait are appended again with
TIMER_ROLL_TIMES one higher, as Apache does it, and when the log is durable past the copies, `rolled_to` of the index
moves on. The copy's mark takes the older record out (`records.entries_of`), so a message that was rolled twice, as a
crash may leave it, is delivered once. A message that is due in a moment is left to delivery, and the roll waits for it,
unless the disk is so full that nothing can be delivered. While a record is being rolled, delivery leaves it alone, so
that its message does not come twice.

The age is such that an Apache broker which takes the directory over has the 48 h of its own roll window before it
would delete the file: it schedules a message for then at the latest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future

from ...errors import CorruptFile, QueueBroken, Unavailable
from ...named_tuple import NamedTuple
from ...protocol.names import TIMER_TOPIC
from ...protocol.properties import REAL_TOPIC, UNIQUE_KEY, find_property
from ...protocol.record import hosts
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue, unpack_entries
from ...store.record_reader import Missing
from ...store.time_search import Boundary, TimeSearch
from ..delays.levels import Place, is_of_deleted
from ..sending.outcome import PutOutcome
from ..sending.own_appends import OwnAppends, OwnMessage, copy_of
from .delivery import DeliverTimers, rolled_properties
from .records import entries_of, timed_of
from .runs import TimerEntry
from .schedule import NEAR_MS
from .waiting import Timed

logger = logging.getLogger(__name__)

#: Apache's timerRollWindowSlot, in ms.
ROLL_WINDOW_MS = 172_800_000
#: Seconds between two looks for aged records; a roll starts when the oldest is this much past `roll_age_ms`.
LOOK_S, SLACK_MS = 60.0, 3_600_000
#: Most messages and bytes in a batch of copies.
MOST_MESSAGES, MOST_BYTES = 64, 256 * 1024
#: Queue offsets of one pass.
_PASS = 1 << 20
#: Pauses: between batches, until something is there, after a refusal, without any work.
_REST_S, _SOON_S, _REFUSED_S, _IDLE_S = 0.005, 0.02, 1.0, 60.0
_PLACE = Place(TIMER_TOPIC, 0)


def roll_age_ms(reserved_ms: int) -> int:
    """Return how long a message may lie in the log before it is rolled. reserved_ms: how long files are kept."""
    return max(reserved_ms // 3, reserved_ms - ROLL_WINDOW_MS)


class _Copy(NamedTuple):
    """A record that is to be rolled, and its copy."""

    entry: TimerEntry
    out_ms: int
    first: int
    message: OwnMessage


class RollTimers:
    """`keep` is for the cleaner, `scan` for the thread that saves, `chore` for the thread that delivers."""

    def __init__(
        self,
        store: MessageStore,
        appends: OwnAppends,
        delivery: DeliverTimers,
        reserved_ms: Callable[[], int],
    ) -> None:
        """reserved_ms: returns how long files are kept."""
        # Constant after construction.
        self._store = store
        self._appends = appends
        self._delivery = delivery
        self._index = delivery.index
        self._reserved_ms = reserved_ms
        self._clock = clock = delivery.clock
        self._times = TimeSearch(store.queues, store.records, clock.wall_ms, store.clock_steps.ahead_ms)
        self._steps = self._run()
        # Written by the cleaner, worked off by the thread that delivers.
        self._wanted = 0
        # Between the two threads: the queue offsets to look at, and the bits that `scan` found for them.
        self._asked: tuple[int, int] | None = None
        self._bits: bytearray | None = None
        # Owned by the thread that delivers, numbers read by anyone.
        self._not_before = 0.0
        self._looked = -LOOK_S
        self._old_bytes = 0
        #: Physical offset below which everything that waits was rolled.
        self.rolled_physical = 0
        #: Reason why nothing can be rolled; None if all is well.
        self.failure: str | None = None
        #: Number of records rolled since the start.
        self.rolled = 0
        #: Set for the thread that saves: entries of records that were rolled may be dropped.
        self.tidy = False
        #: Called when the thread that saves is to call `scan`, and when there is something to roll.
        self.on_asked: Callable[[], None] = lambda: None
        self.on_wanted: Callable[[], None] = lambda: None

    # --- the cleaner

    def keep(self, wanted: int) -> str | None:
        """Return why log files up to this physical offset must stay for now: messages that wait there are being rolled.
        None if no message needs them, durably."""
        if not self._delivery.is_ready:
            return "it is not known yet which messages wait for their time"
        if self._lowest() >= wanted:
            return None
        if self.rolled_physical >= wanted and not self._index.is_needed_below(wanted):
            return None
        if wanted > self._wanted:
            logger.info("timers: messages that wait before %d of the log are being stored again", wanted)
            self._wanted = wanted
            self.on_wanted()
        return "messages that wait for their time are being stored again"

    def _lowest(self) -> int:
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        # Read first: records published later lie behind it.
        known = self._index.indexed
        lowest = self._index.lowest()[0]
        if queue is not None and queue.max_offset > known.queue_offset:
            lowest = min(lowest, max(0, known.physical_offset))
        return lowest

    # --- the thread that saves

    def scan(self) -> None:
        """Find which queue offsets of the roll's current pass still wait. Raises OSError, CorruptFile."""
        asked = self._asked
        if asked is not None and self._bits is None:
            self._bits = self._index.pending_in(*asked, lambda: self._rest())

    def _rest(self) -> bool:
        self._clock.sleep(0.0005)
        return True

    # --- the thread that delivers

    def chore(self) -> float:
        """Do one step; return the seconds until the next one."""
        now = self._clock.steady()
        if now < self._not_before:
            return self._not_before - now
        try:
            pause = next(self._steps)
            self.failure = None
        except (OSError, QueueBroken, CorruptFile) as error:
            if self.failure is None:
                logger.error("timers: waiting messages cannot be stored again, will retry: %s", error)
            self.failure = str(error)
            self._steps, pause = self._run(), _REFUSED_S
        self._not_before = now + pause
        return pause

    def look_again(self) -> None:
        """Let the next `chore` work at once, as there is something to roll."""
        self._not_before = 0.0

    def _run(self) -> Iterator[float]:
        while True:
            queue = self._store.find_queue(TIMER_TOPIC, 0)
            if queue is None or not self._delivery.is_ready:
                yield _REFUSED_S
                continue
            wanted = self._wanted
            if self.rolled_physical < wanted:
                end = self._offset_of(queue, wanted)
                yield from self._roll(queue, end)
                self.rolled_physical = max(self.rolled_physical, wanted)
                self.tidy = True
                self.on_asked()
                continue
            end = self._aged(queue)
            if end:
                yield from self._roll(queue, end)
                self.tidy = True
                self.on_asked()
            yield 1.0

    def _aged(self, queue: ConsumeQueue) -> int:
        """Return the queue offset behind the records that are older than `roll_age_ms`; 0 if there is nothing to
        roll."""
        now = self._clock.steady()
        if now - self._looked < LOOK_S:
            return 0
        self._looked = now
        begin = self._begin(queue)
        if begin >= queue.max_offset:
            return 0
        wall_ms, age_ms = self._clock.wall_ms(), roll_age_ms(self._reserved_ms())
        stored_ms = self._times.time_of(TIMER_TOPIC, 0, begin)
        if stored_ms < 0 or wall_ms - stored_ms < age_ms + SLACK_MS:
            return 0
        return self._times.offset_at(TIMER_TOPIC, 0, wall_ms - age_ms, Boundary.LOWER)

    def _begin(self, queue: ConsumeQueue) -> int:
        return max(queue.min_offset, self._index.rolled_to, min(self._index.lowest()[1], queue.max_offset))

    def _offset_of(self, queue: ConsumeQueue, physical: int) -> int:
        """Return the first queue offset whose record lies at or behind a physical offset."""
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            data = self._times.entries(queue, middle, 1)
            if len(data) < ENTRY_BYTES or next(iter(unpack_entries(data[:ENTRY_BYTES])))[0] < physical:
                low = middle + 1
            else:
                high = middle
        return low

    def _roll(self, queue: ConsumeQueue, end: int) -> Iterator[float]:
        """Roll what waits below a queue offset; yield pauses in seconds."""
        at = self._begin(queue)
        while at < end:
            self._passed(queue, at)
            following = min(end, at + _PASS)
            yield from self._until_indexed(following)  # so that the bits have every record that waits
            self._bits, self._asked = None, (at, following)
            self.on_asked()
            while (bits := self._answer()) is None:
                yield _SOON_S
            self._asked = None
            base = at
            while at < following:
                some = range(at, min(at + MOST_MESSAGES, following))
                offsets = [n for n in some if bits[n - base >> 3] >> (n - base & 7) & 1]
                if offsets:
                    yield from self._roll_some(queue, offsets)
                at = min(at + MOST_MESSAGES, following)
                if offsets:
                    self._index.rolled(at, self._old_bytes)
                    self._old_bytes = 0
                    self._passed(queue, at)
                    yield _REST_S
            self._index.rolled(at)

    def _passed(self, queue: ConsumeQueue, at: int) -> None:
        """Note that nothing waits before the record at a queue offset."""
        data = self._times.entries(queue, at, 1) if at < queue.max_offset else b""
        if len(data) >= ENTRY_BYTES:
            ((physical, _, _),) = unpack_entries(data[:ENTRY_BYTES])
            self.rolled_physical = max(self.rolled_physical, physical)

    def _answer(self) -> bytearray | None:
        return self._bits

    def _roll_some(self, queue: ConsumeQueue, offsets: list[int]) -> Iterator[float]:
        copies: list[_Copy] = []
        room = MOST_BYTES
        for offset in offsets:
            copy = yield from self._copy(queue, offset)
            if copy is None:
                continue
            if copies and len(copy.message.body) > room:
                yield from self._append(queue, copies)
                copies, room = [], MOST_BYTES
            copies.append(copy)
            room -= len(copy.message.body)
        if copies:
            yield from self._append(queue, copies)

    def _copy(self, queue: ConsumeQueue, offset: int) -> Generator[float, None, _Copy | None]:
        """Return the copy of what waits at a queue offset; None if there is nothing left to roll."""
        data = self._times.entries(queue, offset, 1)
        if len(data) < ENTRY_BYTES:
            return None
        ((physical, size, _),) = unpack_entries(data[:ENTRY_BYTES])
        while isinstance(found := self._store.records.find(physical, size), Missing):
            if found is not Missing.UNREADABLE:
                return None
            yield _REFUSED_S
        record = found.record
        timed = timed_of(record.properties, self._delivery.precision_ms())
        if timed is None:
            return None
        topic = find_property(record.properties, REAL_TOPIC) or ""
        of_deleted = is_of_deleted(record, topic, self._store.files.deleted_topics)
        entry = entries_of(timed, record.properties, offset, physical, size)[-1]
        copy = _Copy(
            entry,
            timed.out_ms,
            timed.first_of(offset).queue_offset,
            copy_of(
                record,
                hosts(found.data)[0],
                _PLACE,
                rolled_properties(record, timed, self._clock.wall_ms(), self._ahead_ms(entry, timed), of_deleted),
                find_property(record.properties, UNIQUE_KEY) or "",
                record.reconsume_times,
                "" if of_deleted else topic,
            ),
        )
        while (waits := self._waits(copy)) is None:
            yield 0.1
        return copy if waits else None

    def _ahead_ms(self, entry: TimerEntry, timed: Timed) -> int:
        """Return by how much the clock is ahead of the one that stamped the message's first record: whoever has no
        index, as the next leader of a set, knows it from the copy alone."""
        if not self._index.jumps_ms and not self._index.is_shifted:
            return timed.ahead_ms
        shift_ms = self._shift_of(entry, timed.out_ms)
        return timed.ahead_ms if shift_ms is None else self._index.jumps_ms - shift_ms

    def _shift_of(self, entry: TimerEntry, out_ms: int) -> int | None:
        """Return by how much a message is due before its entry's time, or None if it does not wait in the index."""
        standing = self._index.find(entry, out_ms)
        return None if standing is None or standing.is_taken else entry.due_ms - standing.due_ms

    def _waits(self, copy: _Copy) -> bool | None:
        """True if a record is to be rolled, False if delivery has had it, None while it is left to delivery because it
        is due."""
        if copy.entry.due_ms - self._index.most_shift_ms - self._delivery.now_ms() >= NEAR_MS:
            return True
        standing = self._index.find(copy.entry, copy.out_ms)
        if standing is None or copy.entry.is_mark:
            return standing is not None
        if standing.is_taken:
            return None
        # When the disk is full, the log takes no delivery, but it takes a roll's copy, which lets a file go.
        is_far = standing.due_ms - self._delivery.now_ms() >= NEAR_MS
        return True if is_far or self._store.log.refused_by("disk") else None

    def _append(self, queue: ConsumeQueue, copies: list[_Copy]) -> Iterator[float]:
        """Append the copies, until the log is durable past them and they are in the index. Delivery leaves their
        records alone until then. Those that are refused are made again: their topic may have been deleted since."""
        rolling = self._index.rolling
        while copies := [copy for copy in copies if self._waits(copy) is not False]:
            if any(self._waits(copy) is None for copy in copies):
                yield 0.1
                continue
            try:
                future: Future[list[PutOutcome]] = self._appends.submit([copy.message for copy in copies], frees=True)
            except Unavailable:
                yield _SOON_S
                continue
            offsets = {copy.entry.queue_offset for copy in copies}
            rolling |= offsets
            self._index.shifts = self._shifts(copies)
            try:
                copies = yield from self._stored(future, copies)
            finally:
                rolling -= offsets
                self._index.shifts = {}
            if copies:
                yield _REFUSED_S
                copies = yield from self._made_again(queue, copies)

    def _made_again(self, queue: ConsumeQueue, copies: list[_Copy]) -> Generator[float, None, list[_Copy]]:
        found = []
        for copy in copies:
            again = yield from self._copy(queue, copy.entry.queue_offset)
            if again is not None:
                found.append(again)
        return found

    def _shifts(self, copies: list[_Copy]) -> dict[int, int]:
        """Return the messages' shifts by their first records, so that a copy is due when its message was, whatever the
        clock was set to since, or is set to before the copy is in the index."""
        if not self._index.jumps_ms and not self._index.is_shifted:
            return dict.fromkeys((copy.first for copy in copies), 0)
        found = ((copy.first, self._shift_of(copy.entry, copy.out_ms)) for copy in copies)
        return {first: shift_ms for first, shift_ms in found if shift_ms is not None}

    def _stored(self, future: Future[list[PutOutcome]], copies: list[_Copy]) -> Generator[float, None, list[_Copy]]:
        """Wait for a batch; return the copies that were not stored."""
        while not future.done():
            yield _SOON_S
        try:
            outcomes = future.result(0)
        except Exception as error:  # not known what was stored: try again when the index has all records
            logger.error("timers: a roll failed: %r", error)
            yield _REFUSED_S
            queue = self._store.find_queue(TIMER_TOPIC, 0)
            yield from self._until_indexed(0 if queue is None else queue.max_offset)
            return copies
        stored = [one for one in outcomes if one.is_stored]
        self._old_bytes += sum(copy.entry.size for copy, one in zip(copies, outcomes, strict=True) if one.is_stored)
        self.rolled += len(stored)
        while stored and self._store.lasting <= max(one.physical_offsets[0] for one in stored):
            yield _SOON_S
        yield from self._until_indexed(max((one.queue_offset + 1 for one in stored), default=0))
        return [copy for copy, one in zip(copies, outcomes, strict=True) if not one.is_stored]

    def _until_indexed(self, end: int) -> Iterator[float]:
        while self._index.indexed.queue_offset < end:
            yield _SOON_S
