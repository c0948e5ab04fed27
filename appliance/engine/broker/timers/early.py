"""Acts on messages that wait for a time of their own, before it has come: deliver now, drop.

Each message is claimed (`claims.py`), so that delivery does not take it meanwhile. To deliver a message, its copy is
stored where it is to go, and then a mark that takes it out of the schedule, as for a recall; to drop it, only the mark
is stored. Both are records of the log, and the mark comes after the copy: a crash at any step leaves the act undone, or
delivers the message twice, and nothing but the log has to be saved. The marks have their effect in Apache's brokers,
too.

A mark names the message's first record by its queue offset. Another message of the same topic, unique key and time goes
on waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ...clock import Clock
from ...errors import CorruptFile
from ...protocol.names import TIMER_TOPIC
from ...protocol.properties import REAL_TOPIC, UNIQUE_KEY, find_property
from ...store.message_store import MessageStore
from ...store.record_reader import StoredRecord
from ..delays.due_copy import FindTopic, GivenUp, due_copy
from ..delays.early_batch import Cannot, Chosen, Claimed, EarlyBatches, EarlyWork, Ended, Fate
from ..delays.levels import Place
from ..delays.settled import How
from ..sending.own_appends import OwnAppends, OwnMessage
from .claims import Claim
from .delivery import DeliverTimers, with_times
from .look import ScheduleLook
from .recall import key_of, mark_of
from .records import timed_of
from .runs import TimerEntry, lane_of
from .waiting import Timed

#: Tag of the mark of an act.
ACT_TAG = "ROCKETBOX_ACT"
#: Longest wait until the schedule has the records that were published before.
KNOWN_S = 2.0
_LOOK_S = 0.005
_PLACE = Place(TIMER_TOPIC, 0)


@dataclass(frozen=True, slots=True)
class _Work(EarlyWork):
    topic: str
    timed: Timed

    @property
    def key(self) -> str:
        return key_of(self.topic, self.unique_key)

    @property
    def entry(self) -> TimerEntry:
        one = self.chosen
        return TimerEntry(
            self.timed.due_ms, False, one.queue_offset, one.physical_offset, one.size, lane_of(self.topic)
        )


class EarlyTimerActs(EarlyBatches):
    """Carries out such acts. Any thread; waits in the caller's."""

    def __init__(
        self,
        store: MessageStore,
        appends: OwnAppends,
        delivery: DeliverTimers,
        find_topic: FindTopic,
        clock: Clock,
        take_in: Callable[[], object] | None = None,
    ) -> None:
        """take_in: makes the schedule look for new records soon; None: wakes the delivery for that."""
        super().__init__(store, appends, clock)
        # Constant after construction.
        self._claims = delivery.claims
        self._index = delivery.index
        self._look = delivery.look
        self._find_topic = find_topic
        self._precision_ms = delivery.precision_ms
        self._take_in = take_in or delivery.wakeup

    def look(self, how: How, one: Chosen) -> Fate | None:
        """Return why the act cannot be done to this message as things are, None if it can; changes nothing."""
        try:
            work = self._work(how, one)
            with self._look() as look:
                return self._state(look, work)
        except Cannot as error:
            return error.fate
        except (OSError, CorruptFile):
            return Fate.GONE

    def _state(self, look: ScheduleLook, work: _Work) -> Fate | None:
        """Return why a message does not wait, None if it does."""
        if look.is_marked(work.timed, work.key, work.chosen.queue_offset):
            return Fate.HANDLED
        return None if look.has(work.entry) else Fate.DELIVERED

    def _act(self, how: How, chosen: Sequence[Chosen]) -> list[Ended]:
        ended: dict[int, Ended] = {}
        work: dict[int, _Work] = {}
        claimed: Claimed = {}
        try:
            for number, one in enumerate(chosen):
                try:
                    ready = self._work(how, one)
                except Cannot as error:
                    ended[number] = Ended(one, error.fate, one.unique_key or "", reason=str(error))
                    continue
                claim = self._claims.claim(ready.key, ready.timed.out_ms, ended)
                if claim is not Claim.YOURS:
                    ended[number] = ready.ended(Fate.TAKEN if claim is Claim.TAKEN else Fate.DELIVERED)
                    continue
                claimed[number] = partial(self._release, ready.key, ready.timed.out_ms)
                work[number] = ready
            self._check(work, ended)
            work = {number: one for number, one in work.items() if number not in ended}
            if work:
                self._do(work, ended, claimed)
        finally:
            for release in claimed.values():
                release()
        return [ended[number] for number in range(len(chosen))]

    def _release(self, key: str, out_ms: int) -> None:
        self._claims.release(key, out_ms, self._end())

    def _end(self) -> int:
        queue = self._store.find_queue(*_PLACE)
        return 0 if queue is None else queue.max_offset

    def _work(self, how: How, one: Chosen) -> _Work:
        found = self._store.records.get(one.physical_offset, one.size)
        if found is None:
            raise Cannot(Fate.GONE)
        record = found.record
        if (record.topic, record.queue_id, record.queue_offset) != (*_PLACE, one.queue_offset):
            raise Cannot(Fate.GONE)
        unique_key = find_property(record.properties, UNIQUE_KEY) or ""
        if one.unique_key is not None and unique_key != one.unique_key:
            raise Cannot(Fate.ANOTHER)
        if how is How.DEAD_LETTER:
            raise Cannot(Fate.NO_RETRY)
        timed = timed_of(record.properties, self._precision_ms())
        topic = find_property(record.properties, REAL_TOPIC) or ""
        if timed is None or timed.cancels is not None or not unique_key or not topic:
            raise Cannot(Fate.REFUSED, "its record has no unique key, topic or time")
        copy = self._copy(found, timed) if how is How.DELIVERED else None
        return _Work(one, unique_key, copy, topic, timed)

    def _copy(self, found: StoredRecord, timed: Timed) -> OwnMessage:
        try:
            properties = with_times(found.record, timed, self._clock.wall_ms())
            return due_copy(found, _PLACE, self._find_topic, self._store.files.deleted_topics, properties)
        except GivenUp as error:
            raise Cannot(Fate.NO_TOPIC if error.reason == "no topic" else Fate.GONE, str(error)) from None

    def _check(self, work: dict[int, _Work], ended: dict[int, Ended]) -> None:
        """Enter in `ended` the claimed messages that no longer wait. First waits until the schedule has all marks."""
        if not work:
            return
        end = self._end()
        reason = "the schedule is behind the log; try again"
        if self._index.indexed.queue_offset < end:
            self._take_in()
        if self._wait(lambda: self._index.indexed.queue_offset >= end, KNOWN_S):
            try:
                with self._look() as look:
                    for number, one in work.items():
                        fate = self._state(look, one)
                        if fate is not None:
                            ended[number] = one.ended(fate)
                return
            except (OSError, CorruptFile) as error:
                reason = str(error)
        ended.update({number: one.ended(Fate.REFUSED, reason=reason) for number, one in work.items()})

    def _do(self, work: dict[int, _Work], ended: dict[int, Ended], claimed: Claimed) -> None:
        """Store the copies and the marks, and fill `ended`. Messages of a batch still under way leave `claimed`."""
        copies = {number: one.copy for number, one in work.items() if one.copy is not None}
        outcomes = self._append(copies, work, ended, claimed) if copies else {}
        now_ms = self._clock.wall_ms()
        marks = {
            number: mark_of(
                one.topic,
                one.unique_key,
                one.timed.out_ms,
                now_ms,
                ACT_TAG,
                takes_out=one.timed.first_of(one.chosen.queue_offset).queue_offset,
            )
            for number, one in work.items()
            if number not in ended
        }
        if not marks:
            return
        # When a copy is stored, the result must not say that nothing happened.
        marked = self._append(marks, work, ended, claimed)
        for number in copies:
            if number in outcomes and number not in marked:
                ended[number] = work[number].ended(Fate.UNSURE, outcomes[number], ended[number].reason)
        fate = Fate.DONE if self._durable(self._store.published) else Fate.UNSURE
        for number in marked:
            ended[number] = work[number].ended(fate, outcomes.get(number))

    def _wait(self, holds: Callable[[], bool], seconds: float) -> bool:
        deadline = self._clock.monotonic() + seconds
        while not holds():
            if self._clock.monotonic() >= deadline:
                return False
            self._clock.sleep(_LOOK_S)
        return True
