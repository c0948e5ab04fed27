"""Finds the copies of a message: delayed, sent back to a group, dead letters, replayed.

A copy keeps the unique id, so the key index has it under each topic that it lies in. Several messages may share a
unique id, so a copy must also have the message's birth time and host, or name the original in ORIGIN_MESSAGE_ID.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...broker.replay.provenance import REPLAY_JOB
from ...broker.topics import TopicConfigManager
from ...broker.transactions.half import DISCARDED_TOPIC
from ...protocol.message_id import decode_offset_id, encode_host, encode_offset_id
from ...protocol.names import DLQ_PREFIX, HALF_TOPIC, RETRY_PREFIX
from ...protocol.properties import (
    DELAY_TIME_LEVEL,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    decode_properties,
)
from ...protocol.record import SYS_COMMIT, SYS_TRANSACTION_MASK, Record
from ...store.dispatch import SCHEDULE_TOPIC, waiting_tag_code
from ...store.index.index_query import IndexQuery
from ...store.message_store import MessageStore
from ..sentences import Sentence, say
from .queue_reader import QueueReader

#: Time limit for the search through the topics, and the part of it for waiting until the index has caught up.
BUDGET_S = 0.25
CATCH_UP_S = 0.1
#: Copies that are returned at most: the first ones and the last ones.
MOST_COPIES = 60


class Copy(NamedTuple):
    """A record of the message. place: topic/queue/offset. kind: "plain", "waiting" (in the schedule topic), "retry",
    "dead", "half" (of a transaction) or "discarded" (a half message that was set aside). group: the group that a retry
    or dead letter belongs to. target: the topic that it waits for. level, due_ms: of a waiting copy. job: the replay
    job that made it."""

    record: Record
    properties: Mapping[str, str]
    kind: str
    group: str | None
    target: str | None
    level: int | None
    due_ms: int | None
    job: str | None

    @property
    def place(self) -> str:
        return f"{self.record.topic}/{self.record.queue_id}/{self.record.queue_offset}"

    @property
    def offset_id(self) -> str:
        return encode_offset_id(encode_host(*self.record.store_host), self.physical)

    @property
    def physical(self) -> int:
        return self.record.physical_offset


class Copies(NamedTuple):
    """all: in the order in which they were stored, with the message itself. notes: reasons why some may be missing."""

    all: tuple[Copy, ...]
    notes: tuple[Sentence, ...]

    def after(self, copy: Copy) -> Iterator[Copy]:
        """Yield the copies stored later than `copy`."""
        return (one for one in self.all if one.physical > copy.physical)

    def committed(self, half: Copy) -> Copy | None:
        """Return the copy that a half message became when it was committed (with a delay, the waiting copy); None if
        there is none."""
        for one in self.after(half):
            # Copies that came from no half message name offset 0, too.
            named = one.record.prepared_transaction_offset == half.physical and one.record.was_born_with(half.record)
            if named and one.kind != "discarded" and one.record.sys_flag & SYS_TRANSACTION_MASK == SYS_COMMIT:
                return one
        return None

    def arrived(self, copy: Copy) -> Copy | None:
        """Return the copy that a waiting copy became when it was due; None if there is none."""
        for one in self.after(copy):
            if one.record.topic == copy.target and one.record.reconsume_times == copy.record.reconsume_times:
                return one
        return None


class MessageCopies:
    """Any thread; reads in the caller's."""

    def __init__(
        self, topics: TopicConfigManager, store: MessageStore, monotonic: Callable[[], float] = time.monotonic
    ):
        # Constant after construction.
        self._topics = topics
        self._store = store
        self._monotonic = monotonic
        self._query = IndexQuery(store.index, store.records)

    def find(self, record: Record, groups: Iterable[str]) -> Copies:
        """Find the copies of a message. groups: their topics are searched first."""
        levels = self._store.settings.delay_levels_ms
        deadline = self._monotonic() + BUDGET_S
        me = copy_of(record, levels)
        found = {record.physical_offset: me}
        notes: list[Sentence] = []
        origin = self.origin(me)
        if origin is not None:
            found[origin.physical] = origin
        unique_id = me.properties.get(UNIQUE_KEY)
        if unique_id is None:
            notes.append(say("copies_no_id"))
        elif not self._store.index.enabled:
            notes.append(say("index_off"))
        else:
            if not self._query.catch_up(CATCH_UP_S):
                notes.append(say("index_behind", size_bytes=self._store.index.behind))
            for topic in self._in_order(me, groups):
                if self._monotonic() > deadline:
                    notes.append(say("copies_cut"))
                    break
                answer = self._query.find(topic, unique_id, MOST_COPIES, 0, (1 << 63) - 1, deadline=deadline)
                for stored in answer.records:
                    copy = copy_of(stored.record, levels)
                    if copy.physical not in found and _same(me, copy) and self._is_there(stored.record):
                        found[copy.physical] = copy
        ordered = sorted(found.values(), key=lambda copy: copy.physical)
        if len(ordered) > MOST_COPIES:
            notes.append(say("copies_many", count=len(ordered)))
            kept = [*ordered[: MOST_COPIES // 2], *ordered[-MOST_COPIES // 2 :]]
            ordered = kept if me in kept else sorted([me, *kept], key=lambda copy: copy.physical)
        return Copies(tuple(ordered), tuple(notes))

    def _in_order(self, me: Copy, groups: Iterable[str]) -> list[str]:
        """Return every topic once, the likely places of a copy first."""
        likely = [me.record.topic, SCHEDULE_TOPIC, me.properties.get(RETRY_TOPIC), me.target]
        if TRANSACTION_PREPARED in me.properties:
            likely += [HALF_TOPIC, DISCARDED_TOPIC]
        for group in ([me.group] if me.group else []) + list(groups):
            likely += [RETRY_PREFIX + group, DLQ_PREFIX + group]
        names = sorted(config.topic_name for config in self._topics.all())
        names.sort(key=lambda name: not name.startswith((RETRY_PREFIX, DLQ_PREFIX)))
        return list(dict.fromkeys([name for name in likely if name is not None] + names))

    def origin(self, me: Copy) -> Copy | None:
        """Return the original message that a copy names; None if it is not there or is another message."""
        try:
            host, port, physical = decode_offset_id(me.properties.get(ORIGIN_MESSAGE_ID, ""))
        except ValueError:
            return None
        stored = self._store.records.get(physical)
        if stored is None or stored.record.store_host != (host, port):
            return None
        found = copy_of(stored.record, self._store.settings.delay_levels_ms)
        # Any producer may set this property.
        if found.properties.get(UNIQUE_KEY) != me.properties.get(UNIQUE_KEY) or not self._is_there(stored.record):
            return None
        return found

    def _is_there(self, record: Record) -> bool:
        """True if the record's queue points at it. This excludes deleted topics, and bytes that only look like a
        record."""
        queue = self._store.find_queue(record.topic, record.queue_id)
        if queue is None:
            return False
        offset = record.queue_offset
        with QueueReader(self._store, 1) as reader:
            return any(physical == record.physical_offset for _, physical, _ in reader.span(queue, offset, offset + 1))


def copy_of(record: Record, levels: Sequence[int]) -> Copy:
    """Classify a record by its topic and properties."""
    properties = decode_properties(record.properties)
    job = properties.get(REPLAY_JOB)
    topic = record.topic
    if topic == SCHEDULE_TOPIC:
        target = properties.get(REAL_TOPIC)
        group = target[len(RETRY_PREFIX) :] if target and target.startswith(RETRY_PREFIX) else None
        text = properties.get(DELAY_TIME_LEVEL, "")
        level = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
        due_ms = waiting_tag_code(record.properties, record.store_time_ms, levels) if level else None
        return Copy(record, properties, "waiting", group, target, level, due_ms, job)
    half = {HALF_TOPIC: "half", DISCARDED_TOPIC: "discarded"}.get(topic)
    if half is not None:
        return Copy(record, properties, half, None, properties.get(REAL_TOPIC), None, None, job)
    for prefix, kind in ((RETRY_PREFIX, "retry"), (DLQ_PREFIX, "dead")):
        if topic.startswith(prefix):
            return Copy(record, properties, kind, topic[len(prefix) :], None, None, None, job)
    return Copy(record, properties, "plain", None, None, None, None, job)


def _same(one: Copy, other: Copy) -> bool:
    born = (one.record.born_time_ms, one.record.born_host)
    return born == (other.record.born_time_ms, other.record.born_host) or bool(origins(one) & origins(other))


def origins(copy: Copy) -> set[str]:
    """Return the offset ids that a message and its copies may share: the record's own, and the one that it names."""
    named = copy.properties.get(ORIGIN_MESSAGE_ID)
    return {copy.offset_id} if named is None else {copy.offset_id, named}
