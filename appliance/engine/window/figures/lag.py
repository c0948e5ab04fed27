"""Lag of consumer groups: in messages from two offsets, in time from the store time of the group's next message."""

from __future__ import annotations

import time
from typing import NamedTuple

from ...broker.clients import ClientManager, ConsumerGroupInfo
from ...broker.groups import SubscriptionGroupManager
from ...broker.offsets import ConsumerOffsetManager, QueueOffsets
from ...broker.queue_index import QueueIndex
from ...broker.topics import TopicConfigManager
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ...store.queues.consume_queue import ConsumeQueue
from ..messages.queue_reader import QueueReader
from ..sentences import Sentence, say
from .measures import Measures

BROADCASTING = "BROADCASTING"


class Backlog(NamedTuple):
    """A group's lag, computed without reading. lag: number of messages; None if unknown, `why` is the reason then.
    lagging: (queue, next offset) of each queue that is behind. retries: messages that wait in the retry topic."""

    lag: int | None
    why: Sentence | None
    lagging: list[tuple[ConsumeQueue, int]]
    retries: int


class ConsumerLag(NamedTuple):
    """Makes snapshots of all groups' progress. Any thread."""

    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    clients: ClientManager
    offsets: ConsumerOffsetManager
    known_queues: QueueIndex

    def snapshot(self) -> LagSnapshot:
        return LagSnapshot(self)


class LagSnapshot:
    """All groups' offsets at one moment; made for one request, so that the tables are copied once."""

    def __init__(self, tables: ConsumerLag) -> None:
        self._topics = tables.topics
        self._groups = tables.groups
        self.queues = tables.known_queues.by_topic()
        self.online: dict[str, ConsumerGroupInfo] = {info.group_name: info for info in tables.clients.consumer_groups()}
        #: group -> topic -> the group's offsets of it.
        self.entries: dict[str, dict[str, QueueOffsets]] = {}
        for entry in tables.offsets.all():
            own = self.entries.get(entry.group)
            if own is None:
                own = self.entries[entry.group] = {}
            own[entry.topic] = entry
        self._readable: dict[str, list[ConsumeQueue]] = {}
        self._backlogs: dict[tuple[str, str | None], Backlog] = {}

    def groups(self) -> set[str]:
        """Return all groups that there are: configured, with clients, or known by their offsets only."""
        return {config.group_name for config in self._groups.all()} | self.online.keys() | self.entries.keys()

    def has(self, group: str) -> bool:
        """True if there is such a group."""
        return group in self.online or group in self.entries or self._groups.get(group) is not None

    def topics_of(self, group: str) -> list[str]:
        """Return the topics that a group has offsets of or subscribes to, sorted, without retry topics."""
        names = set(self.entries.get(group, ()))
        info = self.online.get(group)
        if info is not None:
            names.update(list(info.subscriptions))
        return sorted(name for name in names if not name.startswith(RETRY_PREFIX))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the group's offsets of a topic, {queue id: offset}, as a copy."""
        entry = self.entries.get(group, {}).get(topic)
        return {} if entry is None else entry.queues.copy()

    def readable(self, topic: str) -> list[ConsumeQueue]:
        """Return the topic's queues that consumers can read."""
        found = self._readable.get(topic)
        if found is None:
            config = self._topics.get(topic)
            count = 0 if config is None else config.read_queue_nums
            found = [queue for queue in self.queues.get(topic, ()) if queue.queue_id < count]
            self._readable[topic] = found
        return found

    def backlog(self, group: str, only_topic: str | None = None) -> Backlog:
        """Return a group's backlog over all its topics or in one."""
        key = (group, only_topic)
        found = self._backlogs.get(key)
        if found is None:
            found = self._backlogs[key] = self._backlog(group, only_topic)
        return found

    def _backlog(self, group: str, only_topic: str | None) -> Backlog:
        retries = self.retries(group) if only_topic is None else 0
        info = self.online.get(group)
        if info is not None and info.message_model == BROADCASTING:
            return Backlog(None, say("broadcast_keeps_offsets"), [], retries)
        lag = uncommitted = 0
        known = False
        lagging: list[tuple[ConsumeQueue, int]] = []
        for topic in self.topics_of(group) if only_topic is None else [only_topic]:
            offsets = self.committed(group, topic)
            known = known or bool(offsets) or topic.startswith(RETRY_PREFIX)
            for queue in self.readable(topic):
                committed = offsets.get(queue.queue_id)
                unread = lag_of(queue, committed)
                if unread is None:
                    uncommitted += 1
                elif unread:
                    lag += unread
                    lagging.append((queue, next_of(queue, committed)))
        if not known:
            return Backlog(None, say("never_committed"), [], retries)
        why = say("some_never_committed", queues=uncommitted) if uncommitted else None
        return Backlog(lag, why, lagging, retries)

    def retries(self, group: str) -> int:
        """Return the number of messages in the group's retry topic that it has not consumed."""
        topic = RETRY_PREFIX + group
        queues = self.readable(topic)
        if not queues:
            return 0
        offsets = self.committed(group, topic)
        return sum(lag_of(queue, offsets.get(queue.queue_id)) or 0 for queue in queues)

    def dead_letters(self, group: str) -> int:
        """Return the number of messages in the group's dead letter topic."""
        return sum(queue.max_offset - queue.min_offset for queue in self.queues.get(DLQ_PREFIX + group, ()))

    def letters_by_group(self) -> dict[str, int]:
        """Return group -> number of its dead letters, of groups that have some; also of those that were deleted."""
        names = [topic.removeprefix(DLQ_PREFIX) for topic in self.queues if topic.startswith(DLQ_PREFIX)]
        return {name: count for name in names if (count := self.dead_letters(name))}


def next_of(queue: ConsumeQueue, committed: int | None) -> int:
    """Return the offset of a queue's first message that a group has not consumed. committed: the group's offset."""
    return max(queue.min_offset, committed or 0)


def lag_of(queue: ConsumeQueue, committed: int | None) -> int | None:
    """Return the number of a queue's messages that a group has not consumed; None if there are messages and the group
    has committed nothing. Consumers begin a retry topic with its first message, so there that is all of them."""
    if committed is None and not queue.topic.startswith(RETRY_PREFIX):
        return None if queue.min_offset < queue.max_offset else 0
    return max(0, queue.max_offset - next_of(queue, committed))


def never_committed(queue_id: int, others: bool) -> Sentence:
    """Return why a queue has no offset of a group. others: other queues of its topic have one."""
    return say("queue_never_committed", queue=queue_id) if others else say("never_committed")


def lag_time_ms(
    backlog: Backlog, reader: QueueReader, measures: Measures, now_ms: int | None = None
) -> tuple[int | None, Sentence | None]:
    """Return (age in ms of the oldest message not consumed, reason if that is not known); 0 if none is left."""
    if backlog.lag is None:
        return None, backlog.why
    if not backlog.lagging:
        return 0, None
    now = int(time.time() * 1000) if now_ms is None else now_ms
    # Physical offsets are in the order of store times: the lowest one is the oldest, so only its time is read.
    oldest = None
    for queue, offset in backlog.lagging:
        physical = measures.place(reader, queue, offset)
        if physical is not None and (oldest is None or physical < oldest[0]):
            oldest = (physical, queue, offset)
    stored = None if oldest is None else measures.stored_at_ms(reader, oldest[1], oldest[2])
    if stored is None:
        return None, say("message_gone")
    return max(0, now - stored), None
