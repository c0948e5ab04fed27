"""One replay job at work: reads dead letters, has copies of them stored in batches, and records the results in the
journal.

    journal records where the targets' queues end -> copies -> copies are durable -> journal records the results

A crash at any point therefore leaves copies only behind the offsets in the journal, where the next start finds them.
`step` never waits: it does a little work, and returns the seconds after which it is to be called again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from msgspec import structs

from ...clock import Clock
from ...errors import CorruptFile, QueueBroken, Unavailable
from ...protocol.codes import ResponseCode
from ...protocol.names import DLQ_PREFIX
from ...protocol.record import Record
from ...store.message_store import MessageStore
from ..groups import SubscriptionGroupManager
from ..sending.outcome import PutOutcome
from ..sending.own_appends import OwnMessage
from ..topic_config import TopicConfig
from ..topics import TopicConfigManager
from .copies import TooLong, copy_of, is_kept, is_writable, origin_topic
from .dead_letters import DeadLetterReader
from .history import History, replays_of, times_replayed
from .job import (
    CANCELLED,
    DONE,
    FAILED,
    PAUSED,
    TO_GROUP,
    TO_ORIGINAL,
    JobState,
    Numbering,
    Result,
    Why,
    count_results,
)
from .journal import JobJournal, Line, StateLine, TargetLine, follow, progress
from .letter_filter import LetterFilter
from .proof import Proof, Unprovable

logger = logging.getLogger(__name__)

#: Copies in one batch: staging them takes remoting-io about a millisecond.
BATCH_MESSAGES = 100
BATCH_BYTES = 512 * 1024
#: Messages looked at in one step when none of them is sent.
STEP_MESSAGES = 500
#: Most results that are not in the journal yet: after a crash, at most this many copies have to be looked for.
MOST_AHEAD = 10_000
SAVE_EVERY_S = 1.0
#: After a stall the job catches up on this much of the lost time.
MOST_BEHIND_S = 2.0
#: Seconds until the next look at whether the log is durable, and until the next try while a queue is being rebuilt.
_DURABLE_POLL_S = 0.01
_RETRY_S = 1.0
#: Topics that one job's copies may go to.
MOST_TARGETS = 1000
#: A journal of this length is compacted, and then again each time it has grown fourfold.
COMPACT_BYTES = 256 * 1024


class Appends(Protocol):
    """Stores the broker's own messages; `OwnAppends`."""

    def submit(self, messages: Sequence[OwnMessage]) -> Future[list[PutOutcome]]: ...


class Surroundings(NamedTuple):
    """The parts of the broker that a job works with. wake: wakes the thread of the replay service."""

    store: MessageStore
    appends: Appends
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    journal: JobJournal
    history: History
    clock: Clock
    wake: Callable[[], None]


class _Mark(NamedTuple):
    """A position that may go into the journal once the log is durable up to `written`. next: messages below it have
    results. targets: behind these offsets copies of later messages lie."""

    next: int
    targets: dict[str, tuple[int, ...]]
    written: int


class _Batch(NamedTuple):
    future: Future[list[PutOutcome]]
    numbers: list[int]


def next_due(on_time: float, now: float, span: float) -> tuple[float, float]:
    """Return (on time, due) of the next batch, after a batch that takes `span` seconds at the job's rate.

    on time: when the rate alone would send it. After a stall, batches are due a quarter faster until that is caught up:
    the rate holds on average, without a burst.
    """
    on_time = max(on_time, now - MOST_BEHIND_S) + span
    return on_time, max(on_time, now + 0.8 * span)


def _nobody() -> None:
    """Do nothing: no caller waits for this end."""


class Ending(NamedTuple):
    """The state that a job is to go into. told: called when the job is in that state."""

    state: str
    by: str
    why: Why | None = None
    told: Callable[[], None] = _nobody


class Run:
    """Works off one job on the thread of the replay service. `state`: the job's state according to the journal."""

    def __init__(self, state: JobState, around: Surroundings) -> None:
        # Constant after construction.
        self._around = around
        self._spec = state.spec
        self._numbering = Numbering(state.spec.spans)
        self._total = state.spec.total
        self._reader = DeadLetterReader(around.store, state.spec.group, state.spec.spans)
        # Owned by the thread.
        self.state = state
        #: Number of the next message, and the results of the messages from state.next up to it.
        self.at = state.next
        self.ahead = bytearray()
        #: True while copies may be stored that this run has not looked for yet.
        self.checking = bool(state.targets)
        #: True if the journal has to be opened again before anything else.
        self.journal_failed = False
        self._proof: Proof | None = None
        self._stored: set[int] = set()
        self._batch: _Batch | None = None
        self._ending: Ending | None = None
        self._mark: _Mark | None = None
        self._announcing: _Mark | None = None
        self._due = self._on_time = self._saved_at = around.clock.monotonic()
        self._compact_at = COMPACT_BYTES
        self._history: dict[tuple[int, int], list[JobState]] = {}
        self._history_of = range(0)

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of messages with each Result, of all messages below `at`."""
        return tuple(a + b for a, b in zip(self.state.counts, count_results(self.ahead), strict=True))

    @property
    def ending(self) -> bool:
        """True while the job is on its way into another state."""
        return self._ending is not None

    def close(self) -> None:
        self._reader.close()
        if self._proof is not None:
            self._proof.close()

    def end(self, ending: Ending) -> None:
        """Stop sending, and go into another state when the outcome of every copy that was sent is known."""
        self._ending = ending

    # --- steps

    def step(self) -> float:
        """Do a little work; return the seconds until the next step. The job is over or paused once it is not
        RUNNING."""
        if self._batch is not None:
            if not self._batch.future.done():
                return _RETRY_S
            self._take_outcomes(self._batch)
        try:
            return self._go_on()
        except QueueBroken:
            return _RETRY_S
        except _JournalFailed as failed:
            self._lose_journal(failed.reason)
            return 0.0

    def _go_on(self) -> float:
        ending = self._ending
        if ending is not None and ending.state == PAUSED and self.checking:
            self._leave_unsettled(ending)
            return 0.0
        if self.checking:
            self._prove()
            return 0.0
        if ending is not None:
            return self._finish(ending)
        if self._announcing is not None:
            if not self._is_durable(self._announcing):
                return _DURABLE_POLL_S
            self._announce(self._announcing)
        self._save()
        if self.at >= self._total:
            self.end(Ending(DONE, ""))
            return 0.0
        return self._send_some()

    # --- what is stored already

    def _prove(self) -> None:
        """Read a piece of the targets; end or pause the job if it cannot be found out which copies are stored."""
        around = self._around
        try:
            if self._proof is None:
                upto = min(self._total, self.state.next + MOST_AHEAD)
                self._proof = Proof(around.store, around.topics, self.state, upto)
            if not self._proof.step():
                return
        except Unprovable as error:
            if error.again:
                self._leave_unsettled(Ending(PAUSED, "", error.why, self._told()))
            else:
                self._give_up(error.why)
            return
        self._stored = self._proof.found
        logger.info("replay: job %s: %d copies are stored from %d on", self._spec.id, len(self._stored), self.at)
        self._proof.close()
        self._proof = None
        self.checking = False
        if self._ending is not None and self._ending.state == CANCELLED:
            # Every copy that was stored counts as replayed, whatever its number.
            upto = max(self._stored, default=self.at - 1) + 1
            while self.at < upto:
                self.ahead.append(Result.REPLAYED if self.at in self._stored else Result.NOT_REACHED)
                self.at += 1

    def _give_up(self, why: Why) -> None:
        """Let the job fail: it cannot be found out which copies are stored, so nothing else is sent."""
        upto = min(self._total, self.state.next + MOST_AHEAD)
        self.ahead = bytearray((Result.UNKNOWN,)) * (upto - self.state.next)
        self.at = upto
        self.checking = False
        self.end(Ending(FAILED, "", why, self._told()))

    # --- the journal

    def _write(self, *lines: TargetLine | StateLine) -> None:
        self._append(*lines)
        for line in lines:
            self.state = follow(self.state, line)

    def _append(self, *lines: Line) -> None:
        try:
            self._around.journal.append(self._spec.id, *lines)
        except OSError as error:
            raise _JournalFailed(error.strerror or str(error)) from None

    def _mark_here(self, topics: Sequence[str]) -> _Mark:
        """Return the mark of this place. No batch may be under way.

        Copies of later messages will lie behind the present ends of the topics' queues. Copies that were found by the
        proof lie behind the targets that it read; these stay until the numbers of all those copies have been passed.
        """
        assert self._batch is None
        offsets = {topic: self._ends_of(topic) for topic in topics} | self._found_behind()
        # All records that these queues point to are below this.
        return _Mark(self.at, offsets, self._around.store.log.written)

    def _found_behind(self) -> dict[str, tuple[int, ...]]:
        """Return the targets behind which copies of later messages were found; empty if there are none."""
        return self.state.targets if max(self._stored, default=-1) >= self.at else {}

    def _ends_of(self, topic: str) -> tuple[int, ...]:
        config = self._around.topics.get(topic)
        count = 0 if config is None else max(config.read_queue_nums, config.write_queue_nums)
        return tuple(self._around.store.offset_range(topic, queue_id)[1] for queue_id in range(count))

    def _is_durable(self, mark: _Mark) -> bool:
        """True if the log is durable up to the mark: positions in the journal never pass what is durable (D7).

        If it never will be, because the log is broken, the job is to pause.
        """
        store = self._around.store
        if store.lasting >= mark.written:
            return True
        if store.log.broken is not None:
            self._doubt(store.log.broken)
        return False

    def _doubt(self, reason: str) -> None:
        """Pause the job: the store failed, and it is not known which copies are stored. The resume looks for them."""
        self.checking = True
        self.end(Ending(PAUSED, "", Why("replay_store_refused", {"reason": reason}), self._told()))

    def _told(self) -> Callable[[], None]:
        """Return the callback of the end under way, for another end that takes its place."""
        return self._ending.told if self._ending is not None else _nobody

    def _announce(self, mark: _Mark) -> None:
        self._write(*(TargetLine(topic, offsets) for topic, offsets in mark.targets.items()))
        self._announcing = None

    def _save(self) -> None:
        """Write known results into the journal from time to time, once their copies are durable."""
        now = self._around.clock.monotonic()
        if self._mark is None:
            full = self.at - self.state.next >= MOST_AHEAD
            if self.at > self.state.next and (full or now - self._saved_at >= SAVE_EVERY_S):
                self._mark = self._mark_here(list(self.state.targets))
        if self._mark is not None and self._is_durable(self._mark):
            self._save_mark(self._mark)

    def _save_mark(self, mark: _Mark, ending: StateLine | None = None) -> None:
        count = mark.next - self.state.next
        results = self.ahead[:count]
        targets = mark.targets if ending is None or not ending.settled else {}
        line = progress(self.state, results, targets)
        lines = (line,) if ending is None else (line, ending)
        self._append(*lines)
        self.state = follow(self.state, line, results)
        if ending is not None:
            self.state = follow(self.state, ending)
        del self.ahead[:count]
        self._stored = {number for number in self._stored if number >= mark.next}
        self._mark = None
        self._saved_at = self._around.clock.monotonic()
        self._compact(ending is not None and self.state.finished)

    def _compact(self, finished: bool) -> None:
        journal, job = self._around.journal, self._spec.id
        if not finished and journal.size(job) < self._compact_at:
            return
        try:
            journal.compact(job)
            self._compact_at = max(COMPACT_BYTES, 4 * journal.size(job))
        except CorruptFile as error:
            raise _JournalFailed(str(error)) from None
        except OSError as error:
            if finished:  # the long file says the same
                logger.warning("replay: the journal of job %s stays long: %s", job, error)
            else:
                raise _JournalFailed(error.strerror or str(error)) from None

    def _lose_journal(self, reason: str) -> None:
        """Pause the job after a failed write: as after a crash, only the content of the journal counts. Nothing is sent
        before the journal has been read again."""
        logger.error("replay: the journal of job %s cannot be written: %s", self._spec.id, reason)
        self.journal_failed = True
        self._rewind(Why("replay_journal_failing", {"reason": reason}))

    def _rewind(self, why: Why | None) -> None:
        self.state = structs.replace(self.state, state=PAUSED, why=why, changed_ms=self._around.clock.wall_ms())
        self.at = self.state.next
        self.ahead = bytearray()
        self._tell()

    def _tell(self) -> None:
        ending, self._ending = self._ending, None
        if ending is not None:
            ending.told()

    def _leave_unsettled(self, ending: Ending) -> None:
        """Pause the job although it is not known which copies are stored; the resume looks for them."""
        self._ending = ending
        self._write(StateLine(PAUSED, False, self._around.clock.wall_ms(), ending.by, ending.why))
        logger.warning("replay: job %s is paused: %s", self._spec.id, ending.why)
        self._rewind(ending.why)

    def _finish(self, ending: Ending) -> float:
        """Write the end into the journal once all copies are durable; return the seconds until the next step."""
        if self._mark is None or self._mark.next != self.at:
            self._mark = self._mark_here(())
        if not self._is_durable(self._mark):
            return _DURABLE_POLL_S
        settled = ending.state != PAUSED or not self._found_behind()
        line = StateLine(ending.state, settled, self._around.clock.wall_ms(), ending.by, ending.why)
        self._save_mark(self._mark, line)
        logger.info(
            "replay: job %s of %s is %s by=%s at=%d of=%d replayed=%d",
            self._spec.id,
            self._spec.group,
            ending.state,
            ending.by or "the broker",
            self.at,
            self._total,
            self.state.counts[Result.REPLAYED],
        )
        self._tell()
        return 0.0

    def leave(self) -> None:
        """Save the known and durable results when the broker stops: the next start need not look for those copies."""
        if self._batch is not None and self._batch.future.done():
            self._take_outcomes(self._batch)
        if self._batch is not None or self.checking or self._ending is not None:
            return
        mark = self._mark_here(())
        if self._around.store.lasting < mark.written:
            return
        try:
            self._append(progress(self.state, self.ahead, mark.targets))
        except _JournalFailed as failed:
            logger.warning("replay: job %s is looked for at the next start: %s", self._spec.id, failed.reason)

    # --- sending

    def _send_some(self) -> float:
        around, spec = self._around, self._spec
        now = around.clock.monotonic()
        if now < self._due:
            return self._due - now
        end = min(self._total, self.at + STEP_MESSAGES, self.state.next + MOST_AHEAD)
        if end <= self.at:
            return _DURABLE_POLL_S
        # Looked up once: a change in the middle of this step must not be taken for each message's own fault.
        target = around.topics.get(spec.topic) if spec.topic else None
        stop = self._obstacle(target)
        if stop is not None:
            self.end(stop)
            return 0.0
        most = min(BATCH_MESSAGES, max(1, spec.rate // 10))
        results, numbers, size = bytearray(), list[int](), 0
        messages: list[OwnMessage] = []
        try:
            for number, found in self._reader.read(self.at, end):
                decided = Result.REPLAYED if number in self._stored else self._decide(number, found, target)
                if isinstance(decided, OwnMessage):
                    size += len(decided.body)
                    if messages and size > BATCH_BYTES:
                        break
                    messages.append(decided)
                    numbers.append(number)
                    results.append(Result.NOT_REACHED)
                    if len(messages) >= most:
                        break
                else:
                    results.append(decided)
        except OSError as error:
            self.end(Ending(PAUSED, "", Why("replay_unreadable", {"reason": error.strerror or str(error)})))
            return 0.0
        fresh = {message.topic for message in messages} - self.state.targets.keys()
        if fresh:
            self._announcing = self._mark_here(sorted(fresh))
            return 0.0
        if messages:
            try:
                future = around.appends.submit(messages)
            except Unavailable:
                return 0.05
            self._batch = _Batch(future, numbers)
        self.ahead += results
        self.at += len(results)
        self._on_time, self._due = next_due(self._on_time, now, len(messages) / spec.rate)
        if self._batch is None:
            return 0.001
        self._batch.future.add_done_callback(lambda _: around.wake())
        return 0.0 if self._batch.future.done() else _RETRY_S

    def _obstacle(self, target: TopicConfig | None) -> Ending | None:
        """Return the end of a job that cannot go on as a whole; None if nothing prevents it. target: the one topic its
        copies go to, as it is now."""
        around, spec = self._around, self._spec
        if around.topics.get(DLQ_PREFIX + spec.group) is None:
            return Ending(FAILED, "", Why("replay_letters_gone", {"topic": DLQ_PREFIX + spec.group}))
        if spec.target == TO_GROUP and around.groups.get(spec.group) is None:
            return Ending(FAILED, "", Why("replay_group_gone", {"group": spec.group}))
        if spec.target == TO_ORIGINAL:
            return None
        if target is None:
            return Ending(FAILED, "", Why("replay_target_gone", {"topic": spec.topic}))
        if not is_writable(target):
            return Ending(PAUSED, "", Why("replay_target_unwritable", {"topic": spec.topic}))
        return None

    def _decide(self, number: int, found: Record | Result, target: TopicConfig | None) -> OwnMessage | Result:
        """Return the copy to store, or the Result of a message without one. target: the topic of all copies, None when
        each has its own."""
        if isinstance(found, Result):
            return found
        spec = self._spec
        if spec.filter is not None and not self._is_meant(spec.filter, number, found):
            return Result.NOT_CHOSEN
        topic = spec.topic or origin_topic(found)
        if topic is None:
            return Result.NO_ORIGIN
        times = times_replayed(found, self._earlier(number, found))
        if times >= spec.max_replays:
            return Result.GUARD
        config = target or self._around.topics.get(topic)
        if config is None:
            return Result.NO_TOPIC
        if not is_writable(config) or (not spec.topic and is_kept(topic)):
            return Result.NOT_WRITABLE
        if not spec.topic and topic not in self.state.targets and len(self.state.targets) >= MOST_TARGETS:
            return Result.REFUSED
        try:
            return copy_of(found, topic, number % config.write_queue_nums, spec, number, times + 1)
        except TooLong:
            return Result.TOO_LONG

    def _is_meant(self, wanted: LetterFilter, number: int, record: Record) -> bool:
        return wanted.fits(record) and wanted.fits_replays(len(replays_of(record, self._earlier(number, record))))

    def _earlier(self, number: int, record: Record) -> list[JobState]:
        """Return the other jobs that have replayed this dead letter."""
        if number not in self._history_of:
            self._history_of = range(number, number + STEP_MESSAGES * 10)
            pieces = self._numbering.pieces(number, self._history_of.stop)
            spans = [span for _, span in pieces]
            self._history = self._around.history.of(self._spec.group, spans, besides=self._spec.id)
        return self._history.get((record.queue_id, record.queue_offset), [])

    def _take_outcomes(self, batch: _Batch) -> None:
        self._batch = None
        error = batch.future.exception()
        outcomes = [] if error is not None else batch.future.result()
        reason = None if error is None else str(error)
        for number, outcome in zip(batch.numbers, outcomes, strict=not reason):
            if outcome.physical_offsets:
                result = Result.REPLAYED
            elif outcome.code == ResponseCode.TOPIC_NOT_EXIST:
                result = Result.NO_TOPIC
            elif outcome.code in (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER):
                result = Result.REFUSED
            else:
                reason = outcome.reason
                continue
            self.ahead[number - self.state.next] = result
        if reason is not None:
            self._doubt(reason)


class _JournalFailed(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
