"""Delivers delayed messages when they are due.

Each level is delivered in the order of its queue in SCHEDULE_TOPIC_XXXX: a message that is due is read from the log,
and `OwnAppends` stores its copy in the topic and queue it is for; the copy keeps REAL_*, as Apache's does, and has no
DELAY, so that a consumer may pass it on.
One batch of a level is under way at a time, so that no message passes one that was refused; levels do not wait for each
other. Memory holds nothing for a message that waits, only the position and the due time of each level's next message.

No message holds up its level for ever, and none is lost silently:

    the log takes nothing now, or cannot be read    tried again, for as long as it takes
    one record cannot be read, others can           given up after a minute
    expired, damaged, no topic or one of batches,
    or its topic was deleted and made again         given up: logged, and counted by reason
    its queue is gone, its topic is there           another queue of the topic, always the same

Source: RocketMQ 5.3.3 `ScheduleMessageService` (which skips what it cannot read and stores for topics that are gone).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from ...clock import SYSTEM, Clock
from ...errors import QueueBroken, Unavailable
from ...named_tuple import NamedTuple
from ...protocol.codes import ResponseCode
from ...service_thread import ServiceThread
from ...store.dispatch import SCHEDULE_TOPIC
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ENTRY_BYTES, HOLE_SIZE, ConsumeQueue, unpack_entries
from ...store.queues.queue_extension import is_address
from ...store.record_reader import Missing, StoredRecord
from ..sending.outcome import PutOutcome
from ..sending.own_appends import OwnAppends, OwnMessage
from ..topic_config import TopicConfig
from .due_copy import GivenUp, GivenUpMessages, NotNow, due_copy, look_at_missing
from .levels import Place
from .progress import DelayProgress
from .waiting_time import WaitingTime

logger = logging.getLogger(__name__)

#: Limits of a batch: remoting-io stages it in one go, and other threads hardly have the GIL meanwhile (D10).
MOST_MESSAGES = 128
MOST_BYTES = 512 * 1024
#: Pause between two rounds that delivered something: messages that come due one by one are taken together.
ROUND_S = 0.004
#: Pause between two looks at the queues for new messages; shorter than any delay but 0.
LOOK_S = 0.9
#: The same if a level's delay is 0, as Apache does.
LOOK_AT_ONCE_S = 0.1
#: Pause before the next try while an operator or the cleaner acts on the next message.
CLAIMED_S = 0.02
#: The same: OwnAppends is full; a message was refused; log or queue cannot be read, or the log not written.
FULL_S, REFUSED_S, BROKEN_S = 0.01, 0.1, 1.0
#: Refusals of one message before it is given up.
MOST_REFUSALS = 3
#: Longest time for which a record that cannot be read holds up those behind it.
UNREADABLE_S = 60.0
#: Queue files kept open.
_DESCRIPTORS = 32


class SettledEntries(Protocol):
    """Entries of the schedule topic that were handled before they were due and are no longer delivered.
    `settled.SettledDelays` holds them."""

    def enter(self, level: int, begin: int, end: int) -> int:
        """Take [begin, ...) up to the offset returned: no other part acts on these from now on. Returns `begin` itself
        while the first one is claimed."""
        ...

    def holds(self, level: int, queue_offset: int) -> bool:
        """True if the entry is settled."""
        ...

    def between(self, level: int, begin: int, end: int) -> int:
        """Return how many of [begin, end) are settled."""
        ...

    def trim(self, level: int, below: int) -> None:
        """Drop what lies below this offset: it will not be looked up again, not after a crash either."""
        ...


class NothingSettled:
    """No settled entries, for delivery without an operator."""

    def enter(self, level: int, begin: int, end: int) -> int:
        return end

    def holds(self, level: int, queue_offset: int) -> bool:
        return False

    def between(self, level: int, begin: int, end: int) -> int:
        return 0

    def trim(self, level: int, below: int) -> None:
        pass


class _UnderWay(NamedTuple):
    """A batch of a level. offsets: queue offsets of its messages. Once it is stored, all entries below `end` are done
    with."""

    future: Future[list[PutOutcome]]
    offsets: list[int]
    begin: int
    end: int
    due_ms: float


class _Level:
    """One level. position: the next entry to take. next_ms: when that is due, None if not known."""

    def __init__(self, number: int, delay_ms: int | None, position: int) -> None:
        self.number = number
        self.delay_ms = delay_ms
        self.position = position
        self.next_ms: float | None = None
        self.under_way: _UnderWay | None = None
        #: Nothing is tried before this time by the steady clock.
        self.not_before = 0.0
        #: (entry, how often it was refused) and (entry, since when it cannot be read).
        self.refused = (-1, 0)
        self.unreadable: tuple[int, float] = (-1, 0.0)
        #: Entries that were stored although one before them was refused -> physical offset of the copy.
        self.ahead: dict[int, int] = {}
        self.limit = MOST_MESSAGES
        self.failure: str | None = None


class DeliverDelayed(ServiceThread):
    """The thread `deliver-delayed`. Woken when the next message is due, and by batches that ended."""

    def __init__(
        self,
        store: MessageStore,
        appends: OwnAppends,
        delays_ms: Sequence[int],
        progress: DelayProgress,
        find_topic: Callable[[str], TopicConfig | None],
        settled: SettledEntries | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """delays_ms: the delay of each level, level 1 first. The store is already open, with what an earlier life left
        in it."""
        super().__init__("deliver-delayed", clock)
        # Constant after construction.
        self._store = store
        self._appends = appends
        self._delays_ms = tuple(delays_ms)
        self.progress = progress
        self._find_topic = find_topic
        self._settled = settled or NothingSettled()
        for number in progress.levels():
            # Before anything new is stored: it would lie below a saved offset that is beyond the queue's end.
            self._clamp_saved(number)
            self._settled.trim(number, progress.of(number))
        progress.on_saved = self._settled.trim
        # Owned by the thread; numbers may be read by anyone.
        self._time = WaitingTime(
            clock,
            lambda: store.log.written,
            lambda: store.store_ms,
            store.clock_steps,
            store.tick_gaps,
            self._clock_was_set,
        )
        self._files = store.queues.new_files(_DESCRIPTORS)
        self._levels: dict[int, _Level] = {}
        self._submitted = False
        #: Reason why messages of a level that may be due are not delivered; None if all are.
        self.failure: str | None = None
        #: Written by the cleaner: log files up to there are to go, and due messages in them are delivered even if the
        #: disk is full.
        self.leaving_end = 0
        #: Counters: messages delivered, and those that could not be, by reason.
        self.delivered = 0
        self._given_up = GivenUpMessages("delays", clock)
        self.given_up = self._given_up.counts
        #: Ms after its due time at which the first message of the last ended batch was stored.
        self.late_ms = 0.0
        for queue in store.queues.all():  # also of levels that are no longer configured: their messages wait here
            if queue.topic == SCHEDULE_TOPIC:
                self._level(queue.queue_id + 1)
        self._refresh()

    # --- questions, from any thread

    def levels(self) -> list[int]:
        """Return the levels that have or had messages, in order."""
        known = {*range(1, len(self._delays_ms) + 1), *self._levels}
        return sorted({*self.progress.levels(), *filter(self._has_had, known)})

    def delivered_to(self, level: int) -> int:
        """Return the queue offset of the first message of a level that is not delivered yet."""
        return self.progress.of(level)

    def position(self, level: int) -> int:
        """Return the queue offset of the first message of a level whose delivery has not begun."""
        known = self._levels.get(level)
        return self.progress.of(level) if known is None else known.position

    def _has_had(self, level: int) -> bool:
        return self._store.max_offset(SCHEDULE_TOPIC, level - 1) > 0

    def waiting(self, level: int) -> int:
        """Return how many messages of a level are still to be delivered."""
        queue = self._store.find_queue(SCHEDULE_TOPIC, level - 1)
        if queue is None:
            return 0
        begin, end = max(self.progress.of(level), queue.min_offset), queue.max_offset
        return max(0, end - begin - self._settled.between(level, begin, end))

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Return level -> (delivered_to, the queue's maximum offset) of levels in use, as request 28 shows them."""
        return {
            level: (self.progress.of(level), self._store.max_offset(SCHEDULE_TOPIC, level - 1))
            for level in self.levels()
        }

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
        """End the thread; batches under way end on remoting-io. Called again after that has ended, so that their
        outcomes become progress, too."""
        ended = super().stop(deadline)
        if ended:
            self._time.look_last()
            for level in list(self._levels.values()):
                if level.under_way is not None and level.under_way.future.done():
                    self._collect(level, level.under_way)
        return ended

    def round(self) -> float:
        """Deliver what is due; return the seconds until there may be more to do."""
        self._time.look()
        self._submitted = False
        if self._store.log.broken is not None:  # until a restart; the store reports it
            return BROKEN_S
        self._refresh()
        steady = self.clock.steady()
        pause = LOOK_S if 0 not in self._delays_ms else LOOK_AT_ONCE_S
        for level in self._levels.values():
            try:
                until = self._serve(level, steady)
            except (OSError, QueueBroken) as error:
                until = self._fail(level, str(error), BROKEN_S)
            except Exception as error:
                logger.exception("delays: level %d cannot be delivered", level.number)
                until = self._fail(level, repr(error), 10 * BROKEN_S)
            pause = min(pause, until)
        failing = [level for level in self._levels.values() if level.failure is not None]
        self.failure = f"level {failing[0].number}: {failing[0].failure}" if failing else None
        return pause

    def _fail(self, level: _Level, reason: str, pause: float) -> float:
        if reason != level.failure:
            logger.error("delays: level %d waits: %s", level.number, reason)
        level.failure = reason
        level.not_before = self.clock.steady() + pause
        return pause

    def _refresh(self) -> None:
        """Add levels whose queue was created since."""
        for number in range(1, len(self._delays_ms) + 1):
            if number not in self._levels and self._store.find_queue(SCHEDULE_TOPIC, number - 1) is not None:
                self._level(number)

    def _delay_ms(self, number: int) -> int | None:
        """Return the delay of a level; None if it is no longer configured."""
        return self._delays_ms[number - 1] if number <= len(self._delays_ms) else None

    def _level(self, number: int) -> _Level:
        level = self._levels.get(number)
        if level is None:
            level = _Level(number, self._delay_ms(number), self.progress.of(number))
            self._levels = {**self._levels, number: level}
        return level

    def _serve(self, level: _Level, steady: float) -> float:
        """Take a level as far as it goes now; return the seconds until there may be more to do for it."""
        if level.under_way is not None:
            if not level.under_way.future.done():
                return LOOK_S  # its end wakes the thread
            self._collect(level, level.under_way)
        if steady < level.not_before:
            return level.not_before - steady
        queue = self._store.find_queue(SCHEDULE_TOPIC, level.number - 1)
        if queue is None:
            return LOOK_S
        self._clamp(level, queue)
        if self.leaving_end and self._settled.holds(level.number, level.position):
            self._step_over(level, queue)
        if level.position >= queue.max_offset:
            level.next_ms = None
            return LOOK_S
        now = self._time.now_ms()
        if level.next_ms is None or level.next_ms <= now:
            self._take(level, queue, now)
        if level.under_way is not None:
            return LOOK_S
        if steady < level.not_before:
            return level.not_before - steady
        if level.next_ms is None:  # the due time of a new entry is known after the next look at the clocks
            return LOOK_AT_ONCE_S if level.delay_ms == 0 else LOOK_S
        return max(0.0, (level.next_ms - self._time.now_ms()) / 1000)

    def _clamp_saved(self, number: int) -> None:
        """Bring the saved offset of a level into the range of its queue; the file may be of another store."""
        queue = self._store.find_queue(SCHEDULE_TOPIC, number - 1)
        saved, high = self.progress.of(number), 0 if queue is None else queue.max_offset
        if not 0 <= saved <= high:
            logger.error("delays: level %d is said to be delivered to %d, its queue ends at %d", number, saved, high)
            self.progress.reached(number, min(max(0, saved), high), -1)

    def _clamp(self, level: _Level, queue: ConsumeQueue) -> None:
        """Bring the position into the range of the queue: retention took the oldest entries, or the file was of another
        store. Settled entries among those are not lost: they stay known as settled until delivery has passed them."""
        low, high = queue.min_offset, queue.max_offset
        if low <= level.position <= high:
            return
        if level.position < low:
            begin = max(0, level.position)
            lost = low - begin - self._settled.between(level.number, begin, low)
            if lost:
                logger.error(
                    "delays: level %d: messages expired before they were delivered first=%d last=%d lost=%d",
                    level.number,
                    begin,
                    low - 1,
                    lost,
                )
                self.given_up["expired"] += lost
        else:
            logger.error(
                "delays: level %d goes back from %d to %d, the queue's end", level.number, level.position, high
            )
        level.position = min(max(level.position, low), high)
        level.next_ms = None
        self.progress.reached(level.number, level.position, -1)

    def _step_over(self, level: _Level, queue: ConsumeQueue) -> None:
        """Pass settled entries at the front whose log files are to go, so that slaves learn in time for the next leader
        that nothing waits there. Elsewhere an entry stays known as settled until it is due."""
        begin = end = level.position
        for physical, _, _ in unpack_entries(self._entries(queue, begin, MOST_MESSAGES)):
            if physical >= self.leaving_end or not self._settled.holds(level.number, end):
                break
            end += 1
        end = self._settled.enter(level.number, begin, end)
        if end > begin:
            level.position, level.next_ms = end, None
            self._passed(level, end, -1)

    def _clock_was_set(self, ms: int, looked: int, written: int, between_ms: float) -> None:
        """Record a step of the clock for the next life and for the cleaner. There all records between two looks would
        be late by the step, so it is placed between two ticks."""
        looked, written = self._store.tick_gaps.narrowed(ms, looked, written, between_ms)
        self._store.clock_steps.set_while_appending(ms, looked, written, self._store.log.min_offset)

    def left_until_ms(self, physical: int, due_ms: int, delay_ms: int) -> float:
        """Return the ms until `due_ms` by the clock that stamped the record at `physical`, which waits `delay_ms` in
        all. Any thread."""
        try:
            due = self._time.due_ms(physical, due_ms, delay_ms)
        except IndexError:  # the thread looks at the clocks this moment
            due = None
        return self._left_unseen_ms(due_ms, delay_ms) if due is None else due - self._time.now_ms()

    def _left_unseen_ms(self, due_ms: int, delay_ms: int | None) -> float:
        """Return the same for a record that was stored since the last look at the clocks: its delay at most, as store
        times stand still after the clock was set back."""
        left_ms = due_ms - self.clock.wall_ms()
        return left_ms if delay_ms is None else min(left_ms, delay_ms)

    def left_ms(self, number: int, physical: int, code: int) -> float:
        """Return the ms until the message of a level whose record lies at `physical` is due. code: of its entry. Any
        thread."""
        level = self._levels.get(number)
        try:
            due_ms = None if level is None else self._due_ms(level, physical, code)
        except IndexError:  # the thread looks at the clocks this moment
            due_ms = None
        if due_ms is None:
            return self._left_unseen_ms(code, self._delay_ms(number))
        return due_ms - self._time.now_ms()

    def _take(self, level: _Level, queue: ConsumeQueue, now: float) -> None:
        """Submit what is due of a level, a batch at most."""
        begin = level.position
        entries = self._entries(queue, begin, level.limit)
        if not entries:
            return
        due: list[tuple[int, int, int]] = []  # entry, physical offset, size
        first_ms = now
        level.next_ms = now  # more may be due behind them
        for entry, (physical, size, code) in enumerate(unpack_entries(entries), begin):
            due_ms = self._due_ms(level, physical, code)
            if due_ms is None or due_ms > now:
                level.next_ms = due_ms
                break
            first_ms = min(first_ms, due_ms)
            due.append((entry, physical, size))
        if not due:
            level.failure = None
            return
        end = self._settled.enter(level.number, begin, due[-1][0] + 1)
        if end == begin:  # no message passes one that is claimed at the moment
            level.next_ms = now
            level.not_before = self.clock.steady() + CLAIMED_S
            return
        if end <= due[-1][0]:
            level.next_ms = now
            due = due[: end - begin]
        settled = {entry for entry, _, _ in due if self._settled.holds(level.number, entry)}
        level.position = end
        messages: list[OwnMessage] = []
        offsets: list[int] = []
        lost: list[tuple[int, int, GivenUp]] = []
        room = MOST_BYTES
        ahead = -1
        for entry, physical, size in due:
            if entry in settled:
                continue
            if entry in level.ahead:
                ahead = max(ahead, level.ahead[entry])
                continue
            if messages and size > room:
                level.position, level.next_ms = entry, now
                break
            try:
                message = self._message(level, queue, entry, physical, size)
            except GivenUp as error:
                lost.append((entry, physical, error))
                continue
            except (NotNow, QueueBroken) as error:
                level.position, level.next_ms = entry, now
                if not messages:
                    self._fail(level, str(error), BROKEN_S)
                break
            messages.append(message)
            offsets.append(entry)
            room -= len(message.body)
        frees = due[0][1] < self.leaving_end
        if messages and not self._submit(level, messages, offsets, begin, first_ms, frees):
            return
        for entry, physical, why in lost:
            self._give_up(level, entry, physical, why.reason, str(why))
        if not messages and level.position > begin:
            self._passed(level, level.position, ahead)

    def _entries(self, queue: ConsumeQueue, begin: int, count: int) -> bytes:
        entries = self._store.queues.read_entries(queue, begin, count, self._files)
        if len(entries) < ENTRY_BYTES:
            if begin >= queue.min_offset:
                raise QueueBroken(f"entry {begin} of {queue.topic}-{queue.queue_id} cannot be read")
            return b""  # they have just expired
        return entries

    def _due_ms(self, level: _Level, physical: int, code: int) -> float | None:
        if is_address(code):  # Apache keeps the time in an extension file; the record says the same
            code = max(0, self._store.records.store_time(physical)) + (level.delay_ms or 0)
        return self._time.due_ms(physical, code, level.delay_ms)

    def _submit(
        self, level: _Level, messages: list[OwnMessage], offsets: list[int], begin: int, first_ms: float, frees: bool
    ) -> bool:
        """Submit a batch. False if there is no room for it now: it is made again later."""
        try:
            future = self._appends.submit(messages, frees)
        except Unavailable:
            level.position, level.next_ms = begin, first_ms
            level.not_before = self.clock.steady() + FULL_S
            return False
        level.under_way = _UnderWay(future, offsets, begin, level.position, first_ms)
        self._submitted = True
        future.add_done_callback(lambda _: self.wakeup())
        return True

    # --- what became of it

    def _collect(self, level: _Level, batch: _UnderWay) -> None:
        level.under_way = None
        try:
            outcomes = batch.future.result(0)
        except Exception as error:  # not known what was stored: one by one from the first on
            logger.error("delays: level %d: a batch of %d failed: %r", level.number, len(batch.offsets), error)
            level.limit = 1
            self._try_again(level, batch)
            return
        stop: int | None = None
        last = -1
        stored = 0
        for entry, outcome in zip(batch.offsets, outcomes, strict=True):
            if outcome.is_stored:
                stored += 1
                physical = outcome.physical_offsets[0]
                if stop is None:
                    last = max(last, physical)
                else:
                    level.ahead[entry] = physical
            elif stop is None:
                if outcome.code == ResponseCode.SERVICE_NOT_AVAILABLE:
                    stop = entry
                    self._fail(level, outcome.reason, BROKEN_S)
                elif self._refused_often(level, entry):
                    self._give_up(level, entry, -1, "refused", outcome.reason)
                else:
                    stop = entry
                    level.not_before = self.clock.steady() + REFUSED_S
        self.delivered += stored
        self.late_ms = max(0.0, self._time.now_ms() - batch.due_ms)
        if stop is None:
            level.limit = MOST_MESSAGES
            level.failure = None
            self._passed(level, batch.end, last)
            return
        level.position = stop
        level.next_ms = None
        if stop > batch.begin:
            self._passed(level, stop, last)

    @staticmethod
    def _refused_often(level: _Level, entry: int) -> bool:
        times = level.refused[1] + 1 if level.refused[0] == entry else 1
        level.refused = (entry, times)
        return times >= MOST_REFUSALS

    def _try_again(self, level: _Level, batch: _UnderWay) -> None:
        """Try a batch again of which it is not known what was stored."""
        if self._refused_often(level, batch.offsets[0]) and len(batch.offsets) == 1:
            self._give_up(level, batch.offsets[0], -1, "refused", "storing it fails each time")
            self._passed(level, batch.end, -1)
            return
        level.position = batch.begin
        level.next_ms = None
        level.not_before = self.clock.steady() + REFUSED_S

    def _passed(self, level: _Level, offset: int, physical: int) -> None:
        """Note that everything of a level below `offset` is done with. physical: of the last copy; -1 for none."""
        for entry in [entry for entry in level.ahead if entry < offset]:
            physical = max(physical, level.ahead.pop(entry))
        if level.not_before <= self.clock.steady():
            level.failure = None
        self.progress.reached(level.number, offset, physical)

    def _give_up(self, level: _Level, entry: int, physical: int, reason: str, detail: str) -> None:
        self._given_up.add(f"level={level.number} queue_offset={entry}", physical, reason, detail)

    # --- making the copy

    def _message(self, level: _Level, queue: ConsumeQueue, entry: int, physical: int, size: int) -> OwnMessage:
        """Return the copy of a waiting message for where it is to go."""
        if size == HOLE_SIZE:
            raise GivenUp("damaged", "its entry stands for no record")
        if size <= 0:
            self._store.queues.on_broken(queue)
            raise QueueBroken(f"the files of {queue.topic}-{queue.queue_id} are being rebuilt")
        found = self._store.records.find(physical, size)
        if isinstance(found, Missing):
            self._look_at_missing(level, queue, entry, found)
        assert isinstance(found, StoredRecord)
        place = Place(SCHEDULE_TOPIC, queue.queue_id)
        return due_copy(found, place, self._find_topic, self._store.files.deleted_topics)

    def _look_at_missing(self, level: _Level, queue: ConsumeQueue, entry: int, why: Missing) -> None:
        """Raise GivenUp; NotNow if the record may be read later, or no readable message waits behind it."""
        if why not in (Missing.UNREADABLE, Missing.NOT_PUBLISHED):
            look_at_missing(why)
        now = self.clock.steady()
        if level.unreadable[0] != entry:
            level.unreadable = (entry, now)
        elif now - level.unreadable[1] >= UNREADABLE_S and self._can_read(queue, entry + 1):
            raise GivenUp("damaged", why.value)
        raise NotNow(why.value)

    def _can_read(self, queue: ConsumeQueue, entry: int) -> bool:
        """True if the record of an entry can be read."""
        if entry >= queue.max_offset:
            return False
        ((physical, size, _),) = unpack_entries(self._entries(queue, entry, 1))
        return self._store.records.find(physical, size) is not Missing.UNREADABLE
