"""Acts of administrators: end transactions, have producers asked now, and resume discarded transactions.

A decision is durable in the journal before it is done. It is done on remoting-io, as a producer's is, and the first
decision wins. The administrator gets the outcome when the log is durable past it. If the process ends in between, its
next start does what the journal says, when all open half messages are known (`finish`).
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

from ...clock import Clock
from ...errors import AdminError, QueueBroken, RefusedRequest, Unavailable
from ...named_tuple import NamedTuple
from ...protocol.names import HALF_TOPIC
from ...protocol.properties import UNIQUE_KEY, find_property
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ENTRY_BYTES, unpack_entries
from ...store.record_reader import Missing
from ..sending.durable_soon import durable_soon
from ..sending.outcome import Awaited, refused
from .admin_journal import DONE, REFUSED, TOO_LATE, Act, DecisionJournal, Ended
from .check import AskedNow, CheckTransactions
from .decisions import ALREADY_DECIDED, Decisions
from .half import HALF_QUEUE, Half, half_like, half_of
from .resolved import By
from .resume import Resumed, ResumeDiscarded

logger = logging.getLogger(__name__)

#: Longest wait until a decision is published.
STORED_S = 15.0
#: Half messages that are asked about in one call of the loop, as each is encoded for its producer.
_ASKED_AT_ONCE = 16
_REST_S = 0.001

COMMIT, ROLL_BACK = "commit", "roll_back"


class Fate(enum.Enum):
    """Outcome for one half message."""

    DONE = "done"
    ASKED = "asked"
    #: It was decided before this act.
    DECIDED = "decided_before"
    GONE = "gone"
    ANOTHER = "another"
    NO_PRODUCER = "no_producer"
    BUSY = "busy"
    #: It stays open.
    REFUSED = "refused"
    #: It is written down, and will be done at the next start at the latest.
    UNSURE = "unsure"
    NOT_SAVED = "not_saved"


class Chosen(NamedTuple):
    """A half message by its offset in the half queue. unique_key: the one that it must have, None for any."""

    half_offset: int
    unique_key: str | None = None


class Decided(NamedTuple):
    """Outcome for one half message. half: None if it was not read. reason: the broker's words."""

    chosen: Chosen
    fate: Fate
    half: Half | None = None
    reason: str = ""


class AdminActs:
    """Carries out the acts. Any thread but remoting-io; waits in the caller's."""

    def __init__(
        self,
        store: MessageStore,
        decisions: Decisions,
        checks: CheckTransactions,
        discarded: ResumeDiscarded,
        journal: DecisionJournal,
        call_soon: Callable[[Callable[[], None]], None],
        clock: Clock,
    ) -> None:
        # Constant after construction.
        self._store = store
        self._halves = decisions.halves
        self._decisions = decisions
        self._checks = checks
        self._discarded = discarded
        self.journal = journal
        self._call_soon = call_soon
        self._clock = clock
        #: Acts that an earlier process did not finish.
        self._owed = [act for act in journal.unfinished() if act.action in (COMMIT, ROLL_BACK)]

    # --- commit, roll back

    def decide(self, action: str, chosen: Sequence[Chosen], reason: str, by: str) -> list[Decided]:
        """End these transactions; return one outcome each, in their order. action: COMMIT or ROLL_BACK."""
        found = [self._find(one) for one in chosen]
        wanted = [number for number, one in enumerate(found) if one.fate is Fate.DONE]
        if not wanted:
            return found
        ids = self.journal.next_ids(len(wanted))
        acts = {
            number: self._act(act_id, action, found[number], reason, by)
            for act_id, number in zip(ids, wanted, strict=True)
        }
        try:
            self.journal.append(acts.values())
        except OSError as error:
            for number in wanted:
                found[number] = found[number]._replace(fate=Fate.NOT_SAVED, reason=error.strerror or str(error))
            return found
        for number, (fate, why) in self._do({number: (acts[number], found[number].half) for number in wanted}).items():
            found[number] = found[number]._replace(fate=fate, reason=why)
        return found

    def look(self, one: Chosen) -> Decided:
        """Return the outcome that a decision would have: DONE if it is possible. Changes nothing."""
        return self._find(one)

    def _find(self, one: Chosen) -> Decided:
        try:
            half = self.half_at(one.half_offset) or self._put_back_from(one.half_offset)
            if half is not None and (now := self._decisions.place_of(half)) is not half:
                half = self.half_at(now.record.queue_offset)  # it was put back since it was seen here
        except (QueueBroken, OSError) as error:
            return Decided(one, Fate.REFUSED, reason=str(error))
        if half is None:
            return Decided(one, Fate.GONE)
        if one.unique_key is not None and half.unique_key != one.unique_key:
            return Decided(one, Fate.ANOTHER, half)
        if self._checks.ready and self._halves.checks(half.record.queue_offset) is None:
            return Decided(one, Fate.DECIDED, half)
        return Decided(one, Fate.DONE, half)

    def half_at(self, offset: int) -> Half | None:
        """Return the half message at an offset of the half queue; None without one. Raises QueueBroken, OSError."""
        queue = self._store.find_queue(HALF_TOPIC, HALF_QUEUE)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return None
        files = self._store.queues.new_files(capacity=1)
        try:
            data = self._store.queues.read_entries(queue, offset, 1, files)
        finally:
            files.close()
        if len(data) < ENTRY_BYTES:
            return None
        ((physical, size, _),) = unpack_entries(data[:ENTRY_BYTES])
        found = self._store.records.find(physical, size)
        half = None if isinstance(found, Missing) else half_of(found)
        return half if half is not None and half.record.queue_offset == offset else None

    def _put_back_from(self, offset: int) -> Half | None:
        """Return the half message that lay there and was put back, for an old place that has left the log; None without
        one."""
        now = self._decisions.moved_to(offset)
        found = None if now is None else self._store.records.find(now)
        return None if found is None or isinstance(found, Missing) else half_of(found)

    def _act(self, act_id: int, action: str, found: Decided, reason: str, by: str) -> Act:
        half = found.half
        assert half is not None
        record = half.record
        return Act(
            act_id,
            action,
            by,
            reason,
            self._clock.wall_ms(),
            record.queue_offset,
            record.physical_offset,
            half.unique_key,
            record.store_time_ms,
            half.target.topic,
            half.group,
        )

    def _do(self, acts: dict[int, tuple[Act, Half | None]]) -> dict[int, tuple[Fate, str]]:
        """Carry out acts that are in the journal; return number -> (fate, reason)."""
        waiting = {number: Awaited() for number in acts}
        for number, (act, half) in acts.items():
            assert half is not None
            self._hand_over(act, half, waiting[number])
        deadline = self._clock.monotonic() + STORED_S
        fates: dict[int, tuple[Fate, str]] = {}
        for number, one in waiting.items():
            try:
                outcome = one.future.result(max(0.0, deadline - self._clock.monotonic()))
            except FutureTimeout:
                fates[number] = Fate.UNSURE, ""
                continue
            if outcome.is_stored:
                fates[number] = Fate.DONE, ""
            elif outcome.reason == ALREADY_DECIDED:
                fates[number] = Fate.DECIDED, outcome.reason
            else:
                fates[number] = Fate.REFUSED, outcome.reason
        some_done = any(fate is Fate.DONE for fate, _ in fates.values())
        if some_done and not durable_soon(self._store.log, self._store.published, self._clock):
            fates = {n: (Fate.UNSURE, why) if fate is Fate.DONE else (fate, why) for n, (fate, why) in fates.items()}
        self._write_ends({number: act for number, (act, _) in acts.items()}, fates)
        return fates

    def _hand_over(self, act: Act, half: Half, waiting: Awaited) -> None:
        def end() -> None:
            now = self._decisions.place_of(half)  # it may have been put back meanwhile
            try:
                if act.action == COMMIT:
                    self._decisions.commit(now, waiting, By.ADMINISTRATOR)
                else:
                    self._decisions.roll_back(now, waiting, By.ADMINISTRATOR)
            except RefusedRequest as refusal:
                waiting.put_ended(refused(refusal.code, refusal.remark))

        def begin() -> None:
            if not self._checks.when_ready(end):
                waiting.put_ended(refused(1, "too much waits for the start of transactions"))

        self._call_soon(begin)

    def _write_ends(self, acts: dict[int, Act], fates: dict[int, tuple[Fate, str]]) -> None:
        """Write the outcomes to the journal and the broker's log. A refusal that the journal does not take becomes
        UNSURE in `fates`."""
        outcomes = {Fate.DONE: DONE, Fate.DECIDED: TOO_LATE, Fate.REFUSED: REFUSED}
        ended = [
            Ended(acts[number].id, outcomes[fate], why) for number, (fate, why) in fates.items() if fate in outcomes
        ]
        not_done = any(fate is Fate.REFUSED for fate, _ in fates.values())
        try:
            if ended:
                self.journal.end(ended, sync=not_done)
        except OSError as error:
            logger.error("transactions: what became of an act cannot be written down: %s", error)
            for number, (fate, _) in fates.items():
                if fate is Fate.REFUSED:
                    fates[number] = Fate.UNSURE, error.strerror or str(error)
        for number, (fate, why) in fates.items():
            act = acts[number]
            logger.info(
                "admin: transaction %s %s half=%d key=%s topic=%s group=%s reason=%r by=%s %s",
                act.action,
                fate.value,
                act.half_offset,
                act.unique_key,
                act.topic,
                act.group,
                act.reason,
                act.by,
                why,
            )

    def finish(self) -> None:
        """Do the acts that an earlier process wrote down and perhaps did not do; once, when all open halves are
        known."""
        owed, self._owed = self._owed, []
        found: dict[int, tuple[Act, Half | None]] = {}
        gone: dict[int, tuple[Fate, str]] = {}
        for number, act in enumerate(owed):
            try:
                half = self._owed_half(act)
            except (QueueBroken, OSError) as error:
                logger.error("transactions: act %d waits for the next start: %s", act.id, error)
                continue
            if half is None:
                gone[number] = Fate.DECIDED, "its half message is no longer there"
            else:
                found[number] = act, half
        if found:
            logger.info("transactions: acts of the last process are finished count=%d", len(found))
            self._do(found)
        if gone:
            self._write_ends({number: owed[number] for number in gone}, gone)

    def _owed_half(self, act: Act) -> Half | None:
        """Return the half message that an act is about; None if it is gone. Raises QueueBroken, OSError."""
        half = self.half_at(act.half_offset)
        if half is not None:
            record = half.record
            found = record.physical_offset, record.store_time_ms, half.unique_key
            return half if found == (act.physical_offset, act.stored_ms, act.unique_key) else None
        half = self._put_back_from(act.half_offset)
        return half if half is not None and half.unique_key == act.unique_key else None

    # --- check now

    def ask_now(self, halves: Sequence[Half]) -> list[Decided]:
        """Have a producer asked about each of them now; that does not count as one of its checks."""
        ended: list[Decided] = []
        for begin in range(0, len(halves), _ASKED_AT_ONCE):
            part = halves[begin : begin + _ASKED_AT_ONCE]
            asked: Future[list[AskedNow]] = Future()
            self._call_soon(lambda part=part, asked=asked: self._ask(part, asked))  # type: ignore[misc]
            try:
                answers = asked.result(STORED_S)
            except FutureTimeout:
                raise Unavailable("The broker's network thread does not answer.") from None
            for half, answer in zip(part, answers, strict=True):
                ended.append(Decided(Chosen(half.record.queue_offset), _FATES[answer], half))
            self._clock.sleep(_REST_S)
        return ended

    def _ask(self, halves: Sequence[Half], asked: Future[list[AskedNow]]) -> None:
        """Have the producers asked, on remoting-io."""
        try:
            asked.set_result([self._checks.ask_now(half) for half in halves])
        except Exception as error:
            asked.set_exception(error)
            raise

    # --- resume

    def resume(self, physical: int, reason: str, by: str) -> Resumed:
        """Resume a discarded half message. Errors as in `ResumeDiscarded.resume`; Unavailable also if the act cannot be
        written down."""
        found = self._discarded.find(physical)
        half = half_like(found)
        assert half is not None
        [act_id] = self.journal.next_ids(1)
        record = found.record
        key = find_property(record.properties, UNIQUE_KEY) or ""
        act = Act(
            act_id,
            "resume",
            by,
            reason,
            self._clock.wall_ms(),
            record.queue_offset,
            physical,
            key,
            record.store_time_ms,
            half.target.topic,
            half.group,
        )
        try:
            self.journal.append([act])
        except OSError as error:
            raise Unavailable(f"The journal of decisions cannot be written: {error.strerror or error}.") from None
        try:
            resumed = self._discarded.resume(physical)
        except AdminError as error:
            self._write_ends({0: act}, {0: (Fate.REFUSED, str(error))})
            raise
        self._write_ends({0: act}, {0: (Fate.DONE, "")})
        return resumed


_FATES = {
    AskedNow.ASKED: Fate.ASKED,
    AskedNow.DECIDED: Fate.DECIDED,
    AskedNow.NO_PRODUCER: Fate.NO_PRODUCER,
    AskedNow.BUSY: Fate.BUSY,
}
