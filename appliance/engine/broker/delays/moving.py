"""Moves delayed messages whose log file is about to go: they are stored again, with a time of their own.

The cleaner calls `keep` before it deletes a file. A message in it that waits at a level gets a copy in the timer topic,
due when the message is, and its entry is settled (`early.py`, `settled.py`): delivery of the level steps over it. So
all waiting messages are kept by one rule, and no file stays for them. A message that is due in a moment is left to
delivery, unless the disk is so full that nothing is delivered.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ...clock import Clock
from ...errors import QueueBroken
from ...protocol.names import TIMER_TOPIC
from ...protocol.properties import (
    CLUSTER,
    DELAY_TIME_LEVEL,
    MAX_PROPERTIES_BYTES,
    MSG_REGION,
    OF_DELETED,
    TIMER_DELAY_MS,
    TIMER_FIRST,
    TIMER_NAMES,
    TIMER_OF,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    decode_properties,
    encode_properties,
)
from ...store.dispatch import SCHEDULE_TOPIC
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ENTRY_BYTES, unpack_entries
from ...store.record_reader import Missing
from ..sending.own_appends import OwnAppends
from ..topic_config import TopicConfig
from .delivery import DeliverDelayed
from .early import EarlyActs, EarlyDelay, early_copy
from .early_batch import MOST_MESSAGES, Cannot, Chosen, Fate
from .levels import Place, is_of_deleted, queue_of_level, target_of
from .settled import How, SettledDelays

#: Messages due within this time are left to delivery.
NEAR_MS = 5000
#: Entries looked at in one call of `keep`; the cleaner calls it again.
MOST_ENTRIES = 16_384
#: Queue files kept open.
_DESCRIPTORS = 4
#: Properties that a copy must not keep: some would make it a mark, or the copy of another record.
_NOT_OF_A_NEW_ONE = (DELAY_TIME_LEVEL, TIMER_FIRST, TIMER_OF, TIMER_ROLL_TIMES, *TIMER_NAMES)
#: Properties that a broker adds to each message, left out if a copy would have too many.
_TO_MAKE_ROOM = (MSG_REGION, CLUSTER)


class MoveDelayed(EarlyActs):
    """Moves messages to the timer topic. Belongs to the cleaner's thread, and waits in it."""

    frees = True

    def __init__(
        self,
        store: MessageStore,
        appends: OwnAppends,
        settled: SettledDelays,
        delivery: DeliverDelayed,
        find_topic: Callable[[str], TopicConfig | None],
        dead_letters_of: Callable[[str], TopicConfig],
        clock: Clock,
    ) -> None:
        super().__init__(store, appends, settled, delivery.progress.durable_of, find_topic, dead_letters_of, clock)
        # Constant after construction.
        self._delivery = delivery
        self._files = store.queues.new_files(_DESCRIPTORS)
        # Owned by the thread.
        self._left_ms: dict[tuple[int, int], float] = {}
        #: Level -> queue offset below which nothing waits.
        self._done: dict[int, int] = {}
        #: Number of messages moved since the start.
        self.moved = 0

    def keep(self, end: int) -> str | None:
        """Return why log files up to this physical offset must stay for now; None if nothing waits there, durably."""
        budget = MOST_ENTRIES
        self._delivery.leaving_end = max(self._delivery.leaving_end, end)
        for level in self._delivery.levels():
            try:
                budget, reason = self._move(level, end, budget)
            except (OSError, QueueBroken) as error:
                return f"the delayed messages of level {level} cannot be read: {error}"
            if reason is not None:
                return reason
        return None

    def _move(self, level: int, end: int, budget: int) -> tuple[int, str | None]:
        """Move what a level has before `end`; return (what is left of the budget, why the file must stay or None)."""
        queue = self._store.find_queue(SCHEDULE_TOPIC, queue_of_level(level))
        if queue is None:
            return budget, None
        at = max(self._delivered_to(level), queue.min_offset, self._done.get(level, 0))
        while at < queue.max_offset:
            data = self._store.queues.read_entries(queue, at, min(MOST_MESSAGES, queue.max_offset - at), self._files)
            if len(data) < ENTRY_BYTES:
                return budget, f"the delayed messages of level {level} cannot be read"
            chosen: list[Chosen] = []
            self._left_ms.clear()
            is_over = False
            for offset, (physical, size, code) in enumerate(
                unpack_entries(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]), at
            ):
                if physical >= end:
                    is_over = True
                    break
                if not self._settled.holds(level, offset):
                    left_ms = self._left_ms[level, offset] = self._delivery.left_ms(level, physical, code)
                    if left_ms < NEAR_MS and self._store.log.refused_by("disk") is None:
                        return budget, "delayed messages are about to be delivered"
                    chosen.append(Chosen(level, offset, physical, size))
                at = offset + 1
            for ended in self.act(How.MOVED, chosen):
                if ended.fate in (Fate.DONE, Fate.DONE_FOR_NOW):
                    self.moved += 1
                elif ended.fate is Fate.GONE:  # or it cannot be read at this moment
                    one = ended.chosen
                    if self._store.records.find(one.physical_offset, one.size) is Missing.UNREADABLE:
                        return budget, f"the delayed messages of level {level} cannot be read"
                elif ended.fate is not Fate.HANDLED:
                    return budget, "delayed messages are being stored again, or delivered"
            if is_over:
                break
            self._done[level] = at
            budget -= MOST_MESSAGES
            if budget <= 0:
                return budget, "delayed messages are being stored again"
        return budget, None

    def _work(self, how: How, one: Chosen, make: bool = True) -> EarlyDelay:
        work = super()._work(How.DROPPED, one)
        found = decode_properties(work.record.properties)
        target = target_of(work.record.properties)
        if target is None:
            raise Cannot(Fate.GONE, "it does not say where it is to go")
        for name in _NOT_OF_A_NEW_ONE:
            found.pop(name, None)
        of_deleted = is_of_deleted(work.record, target.topic, self._store.files.deleted_topics)
        if of_deleted:
            found[OF_DELETED] = "1"
        due_s = self._clock.steady() + self._left_ms[one.level, one.queue_offset] / 1000

        def properties() -> str:
            # By the clock as it is when the copy is stored: it may have been set since. What is left tells that moment,
            # should it be set before the copy is seen.
            left_ms = max(0, round((due_s - self._clock.steady()) * 1000))
            due_ms = self._clock.wall_ms() + left_ms
            # A multiple of 10 ms could be taken for a time that Apache rounded.
            found[TIMER_OUT_MS] = str(due_ms - 1 if (due_ms - 1) % 10 else due_ms)
            for more in ({TIMER_DELAY_MS: str(left_ms)}, {}):
                text = encode_properties(found | more)
                if len(text.encode()) <= MAX_PROPERTIES_BYTES:
                    return text
            for name in _TO_MAKE_ROOM:
                found.pop(name, None)
            return encode_properties(found)

        waits_for = "" if of_deleted else target.topic
        copy = early_copy(work.record, Place(TIMER_TOPIC, 0), "", work.unique_key, waits_for)
        return EarlyDelay(one, work.unique_key, replace(copy, late_properties=properties), work.record)

    def close(self) -> None:
        self._files.close()
