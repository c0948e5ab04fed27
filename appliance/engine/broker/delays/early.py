"""Acts on messages that wait, before they are due: deliver now, make a dead letter, drop.

Each message is claimed, so that delivery does not pass it. Its copy is appended like all of the broker's own messages,
and has to be durable, whatever the flush type; then the message is settled. So a crash, a failed write or a hung disk
at any step delivers a message twice at worst. A drop has no copy: it waits until the message itself is durable.

A dead letter is what request 36 would have stored there: DELAY 0, WAIT false, everything else as in the message that
waits, in which this retry has been counted already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...clock import Clock
from ...errors import RefusedRequest
from ...protocol.message_id import encode_host
from ...protocol.names import NO_SEND_TOPICS, RETRY_PREFIX
from ...protocol.properties import (
    DELAY_TIME_LEVEL,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    UNIQUE_KEY,
    WAIT_STORE,
    decode_properties,
    encode_properties,
)
from ...protocol.record import Record
from ...store.dispatch import SCHEDULE_TOPIC
from ...store.message_store import MessageStore
from ..sending.outcome import PutOutcome
from ..sending.own_appends import OwnAppends, OwnMessage, copy_of
from ..topic_config import TopicConfig
from .due_copy import arrived_properties
from .early_batch import Cannot, Chosen, Claimed, EarlyBatches, EarlyWork, Ended, Fate
from .levels import Place, is_of_deleted, queue_for, queue_of_level, target_of
from .settled import Claim, How, Settled, SettledDelays

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EarlyDelay(EarlyWork):
    """A message at a delay level. record: the one that waits."""

    record: Record


class EarlyActs(EarlyBatches):
    """Carries out such acts. Any thread; waits in the caller's."""

    def __init__(
        self,
        store: MessageStore,
        appends: OwnAppends,
        settled: SettledDelays,
        delivered_to: Callable[[int], int],
        find_topic: Callable[[str], TopicConfig | None],
        dead_letters_of: Callable[[str], TopicConfig],
        clock: Clock,
    ) -> None:
        """delivered_to: the queue offset of a level's first message that is not delivered. dead_letters_of: returns a
        group's dead letter topic, which it creates if it is missing; raises RefusedRequest."""
        super().__init__(store, appends, clock)
        # Constant after construction.
        self._settled = settled
        self._delivered_to = delivered_to
        self._find_topic = find_topic
        self._dead_letters_of = dead_letters_of
        #: Called when something is done, which the log does not show: returns why not all members of the set that may
        #: lead next know it, "" if they do.
        self.members_lack: Callable[[], str] = lambda: ""

    def act(self, how: How, chosen: Sequence[Chosen]) -> list[Ended]:
        ended = super().act(how, chosen)
        if any(one.fate is Fate.DONE for one in ended) and (why := self.members_lack()):
            return [replace(one, fate=Fate.DONE_FOR_NOW, reason=why) if one.fate is Fate.DONE else one for one in ended]
        return ended

    def look(self, how: How, one: Chosen) -> Fate | None:
        """Return why the act cannot be done to this message as things are, None if it can; changes nothing."""
        if one.queue_offset < max(self._delivered_to(one.level), self._settled.entered(one.level)):
            return Fate.DELIVERED
        if self._settled.holds(one.level, one.queue_offset):
            return Fate.HANDLED
        try:
            self._work(how, one, make=False)
        except Cannot as error:
            return error.fate
        return None

    def _act(self, how: How, chosen: Sequence[Chosen]) -> list[Ended]:
        ended: dict[int, Ended] = {}
        work: dict[int, EarlyDelay] = {}
        claimed: Claimed = {}
        try:
            for number, one in enumerate(chosen):
                fate = self._claim(one)
                if fate is not None:
                    ended[number] = Ended(one, fate)
                    continue
                claimed[number] = partial(self._settled.release, one.level, [one.queue_offset])
                try:
                    work[number] = self._work(how, one)
                except Cannot as error:
                    ended[number] = Ended(one, error.fate, reason=str(error))
            if work:
                self._do(how, work, ended, claimed)
        finally:
            for release in claimed.values():
                release()
        return [ended[number] for number in range(len(chosen))]

    def _claim(self, one: Chosen) -> Fate | None:
        """Claim a message; return why that is not possible, None if it is claimed."""
        if one.queue_offset < self._delivered_to(one.level):
            return Fate.DELIVERED
        claim = self._settled.claim(one.level, one.queue_offset)
        return {Claim.DELIVERED: Fate.DELIVERED, Claim.SETTLED: Fate.HANDLED, Claim.TAKEN: Fate.TAKEN}.get(claim)

    # --- what is to be stored

    def _work(self, how: How, one: Chosen, make: bool = True) -> EarlyDelay:
        """Read a message and make its copy. make: False to make no dead letter, nor its topic. Raises Cannot."""
        found = self._store.records.get(one.physical_offset, one.size)
        if found is None:
            raise Cannot(Fate.GONE)
        record = found.record
        place = (record.topic, record.queue_id, record.queue_offset)
        if place != (SCHEDULE_TOPIC, queue_of_level(one.level), one.queue_offset):
            raise Cannot(Fate.GONE)
        properties = decode_properties(record.properties)
        unique_key = properties.get(UNIQUE_KEY, "")
        if one.unique_key is not None and unique_key != one.unique_key:
            raise Cannot(Fate.ANOTHER)
        if how is How.DROPPED:
            return EarlyDelay(one, unique_key, None, record)
        if how is How.DELIVERED:
            target = self._target(record)
            text = arrived_properties(record.properties)
            return EarlyDelay(one, unique_key, early_copy(record, target, text, unique_key, target.topic), record)
        topic = properties.get(REAL_TOPIC, "")
        if not topic.startswith(RETRY_PREFIX):
            raise Cannot(Fate.NO_RETRY)
        if not make:
            return EarlyDelay(one, unique_key, None, record)
        try:
            target = Place(self._dead_letters_of(topic[len(RETRY_PREFIX) :]).topic_name, 0)
        except RefusedRequest as refusal:
            raise Cannot(Fate.NO_TOPIC, refusal.remark) from None
        del properties[REAL_TOPIC]
        properties.pop(REAL_QUEUE_ID, None)
        properties |= {DELAY_TIME_LEVEL: "0", WAIT_STORE: "false"}
        copy = early_copy(record, target, encode_properties(properties), unique_key)
        return EarlyDelay(one, unique_key, copy, record)

    def _target(self, record: Record) -> Place:
        """Return the place where delivery would store the message."""
        target = target_of(record.properties)
        if target is None:
            raise Cannot(Fate.NO_TOPIC, "it does not say where it is to go")
        config = self._find_topic(target.topic)
        queue_id = None if config is None else queue_for(target, config)
        if queue_id is None or target.topic in NO_SEND_TOPICS:
            raise Cannot(Fate.NO_TOPIC, f"topic[{target.topic}] not exist")
        if is_of_deleted(record, target.topic, self._store.files.deleted_topics):
            raise Cannot(Fate.NO_TOPIC, f"topic[{target.topic}] was deleted after the message was sent")
        return Place(target.topic, queue_id)

    # --- storing and settling

    def _do(self, how: How, work: dict[int, EarlyDelay], ended: dict[int, Ended], claimed: Claimed) -> None:
        """Store the copies, settle the messages and fill `ended`. Messages that are settled, or in a batch that is
        still under way, leave `claimed`."""
        outcomes: dict[int, PutOutcome] = {}
        if how is not How.DROPPED:
            copies = {number: one.copy for number, one in work.items() if one.copy is not None}
            outcomes = self._append(copies, work, ended, claimed)
        done = [number for number in work if number not in ended]
        ends = [one.chosen.physical_offset + one.chosen.size for number, one in work.items() if number in done]
        if not done:
            return
        end = max(ends) if how is How.DROPPED else self._store.published
        if not self._durable(end):
            for number in done:
                ended[number] = work[number].ended(Fate.UNSURE, outcomes.get(number))
            return
        records = [
            Settled(
                one.chosen.level, one.chosen.queue_offset, one.record.physical_offset, one.record.store_time_ms, how
            )
            for one in (work[number] for number in done)
        ]
        fate, reason = Fate.DONE, ""
        try:
            self._settled.settle(records, for_now=how is not How.DROPPED)
        except OSError as error:
            fate, reason = Fate.NOT_SAVED if how is How.DROPPED else Fate.DONE_FOR_NOW, str(error)
            logger.error("settled delays: cannot be saved: %s", error)
        for number in done:
            if fate is not Fate.NOT_SAVED:
                del claimed[number]
            ended[number] = work[number].ended(fate, outcomes.get(number), reason)


def early_copy(record: Record, target: Place, text: str, unique_key: str, waits_for: str = "") -> OwnMessage:
    """Return the copy of a message that waits. text: the copy's properties. waits_for: as OwnMessage's."""
    born_host = encode_host(*record.born_host)
    return copy_of(record, born_host, target, text, unique_key, record.reconsume_times, waits_for)
