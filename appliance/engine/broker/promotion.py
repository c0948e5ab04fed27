"""Correction of a new leader's tables by its log: their last copy may be older than the log, or go beyond it.

The log counts. A topic that is in the log, but not in the table, was made just before the old leader went; so was one
that only messages name which wait: they would be given up when they come due. A consumer's offset may lie behind the
end of its queue, where messages were that no member had.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice

import msgspec

from ..errors import QueueBroken, RefusedRequest
from ..protocol.names import HALF_TOPIC, PERM_READ, PERM_WRITE, TIMER_TOPIC, topic_name_error
from ..protocol.properties import OF_DELETED, find_property
from ..protocol.record import FIXED_BYTES
from ..store.dispatch import SCHEDULE_TOPIC
from ..store.message_store import MessageStore
from ..store.queues.consume_queue import ConsumeQueue, unpack_entries
from .delays.levels import Place, target_of
from .offsets import ConsumerOffsetManager, QueueOffsets, is_brokers_own
from .timers.records import read_properties
from .topic_config import new_topic
from .topics import TopicConfigManager

logger = logging.getLogger(__name__)

#: Most messages that wait of which a promotion reads for which topic, the newest ones; a third of a second.
MOST_WAITING = 20_000
_ENTRIES = 500


def settle_side_state(
    store: MessageStore, topics: TopicConfigManager, offsets: ConsumerOffsetManager, tables_end: int
) -> None:
    """Correct topics, queues and offsets, before the broker starts. tables_end: end of the log when the tables were
    last taken over; a topic with messages below it only, and without a configuration, was deleted, not lost. -1: not
    known, and no topic counts as deleted."""
    _make_topics(store, topics, tables_end)
    _begin_queues(store, topics, offsets)
    _clamp(store, offsets)


def _make_topics(store: MessageStore, topics: TopicConfigManager, tables_end: int) -> None:
    """Make topics and queues that are newer than the table: the log has messages in them."""
    lacking: dict[str, list[ConsumeQueue]] = {}
    for queue in store.queues.all():
        if queue.max_offset > queue.min_offset:
            known = topics.get(queue.topic)
            if known is None or queue.queue_id >= min(known.read_queue_nums, known.write_queue_nums):
                lacking.setdefault(queue.topic, []).append(queue)
    awaited = _awaited(store, topics, tables_end)
    for topic in dict.fromkeys((*lacking, *awaited)):
        queues = lacking.get(topic, [])
        if topic_name_error(topic) is not None or topics.is_system_topic(topic):
            continue
        # Queues with older messages only were in the table when it was taken over, or had been taken out of it: their
        # topic was deleted, or got fewer queues.
        later = [queue.queue_id for queue in queues if _newest(store, queue) >= tables_end]
        later += awaited.get(topic, ())
        known = topics.get(topic)
        if not later:
            continue
        count = max(later) + 1
        if known is None:
            count = max([count, *(queue.queue_id + 1 for queue in queues)])
            config = new_topic(topic, count, PERM_READ | PERM_WRITE)
        else:
            config = msgspec.structs.replace(
                known,
                read_queue_nums=max(count, known.read_queue_nums),
                write_queue_nums=max(count, known.write_queue_nums),
            )
        try:
            topics.wait_durable(topics.update(config))
        except RefusedRequest as error:
            logger.error(
                "promotion: topic=%s queues=%d: in the log, and cannot be made: %s", topic, count, error.remark
            )
            continue
        was = "made" if known is None else f"had queues={known.write_queue_nums} in the table"
        logger.warning("promotion: topic=%s has queues=%d in the log: %s", topic, count, was)


def _awaited(store: MessageStore, topics: TopicConfigManager, tables_end: int) -> dict[str, set[int]]:
    """Return topic -> queue ids for which messages wait that were stored from `tables_end` on, of topics without a
    configuration. Messages older than a deletion of their topic do not count."""
    deleted = store.files.deleted_topics
    found: dict[str, set[int]] = {}
    left = MOST_WAITING
    for name in (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC):
        for queue in store.queues.of_topic(name):
            for physical, size in islice(_newest_first(store, queue, tables_end), left):
                left -= 1
                target = _target(store, physical, size)
                if target is not None and topics.get(target.topic) is None and physical >= deleted.below(target.topic):
                    found.setdefault(target.topic, set()).add(target.queue_id)
    return found


def _target(store: MessageStore, physical: int, size: int) -> Place | None:
    """Return where a record that waits is to go; None if it cannot be read, or if its topic has been deleted."""
    try:
        properties = read_properties(store.log, physical, size) or ""
        return None if find_property(properties, OF_DELETED) is not None else target_of(properties)
    except OSError as error:
        logger.error("promotion: the record at %d cannot be read: %s", physical, error)
        return None


def _newest_first(store: MessageStore, queue: ConsumeQueue, since: int) -> Iterator[tuple[int, int]]:
    """Yield (physical offset, size) of a queue's records, from its last one back to the first behind `since`; none
    while the queue cannot be read."""
    at = queue.max_offset
    while at > queue.min_offset:
        begin = max(queue.min_offset, at - _ENTRIES)
        try:
            entries = unpack_entries(store.queues.read_entries(queue, begin, at - begin))
        except (QueueBroken, OSError) as error:
            logger.error("promotion: the topics for which messages wait are not all known: %s", error)
            return
        for physical, size, _ in reversed(list(entries)):
            if physical < since:
                return
            yield physical, size
        at = begin


def _newest(store: MessageStore, queue: ConsumeQueue) -> int:
    """Return the physical offset of a queue's last record; the log's end if it cannot be read."""
    try:
        entries = store.queues.read_entries(queue, queue.max_offset - 1, 1)
    except (QueueBroken, OSError):
        return store.log.written
    for physical, _, _ in unpack_entries(entries):
        return int(physical)
    return store.log.written


def _begin_queues(store: MessageStore, topics: TopicConfigManager, offsets: ConsumerOffsetManager) -> None:
    """Begin queues without a message here behind the offsets that consumers have committed.

    A member that copied the log after its first files had been deleted has nothing of a queue whose messages all lay in
    those files. The queue does not begin at 0 again, because these offsets were used before. Any client may commit any
    number: one counts only if the deleted files had room for that many messages.
    """
    most = store.log.min_offset // FIXED_BYTES
    begins: dict[tuple[str, int], int] = {}
    for entry in offsets.all():
        if topics.get(entry.topic) is None or is_brokers_own(entry.group):
            continue
        for queue_id, offset in list(entry.queues.items()):
            begin = store.queues.begin_of(entry.topic, queue_id)
            if begin < offset <= most and store.queues.is_unused(entry.topic, queue_id):
                known = begins.get((entry.topic, queue_id), 0)
                begins[entry.topic, queue_id] = max(known, offset)
    for (topic, queue_id), offset in begins.items():
        store.queues.begin_unused(topic, queue_id, offset)
        logger.warning("promotion: %s queue=%d has no message here and goes on at %d", topic, queue_id, offset)


def cut_offsets(store: MessageStore, offsets: ConsumerOffsetManager) -> None:
    """Set offsets behind the end of their queue to that end, so that the next messages do not count as read. A power
    cut may have taken the messages below such an offset, and Apache keeps any number. Called at the start of a broker
    that is no member of a set."""
    changed = 0
    for entry, queue_id, offset in _of_consumers(offsets):
        end = store.end_of(entry.topic, queue_id)
        if offset > end:
            _bring_back(offsets, "offsets", entry, queue_id, end)
            changed += 1
    if changed:
        _save(offsets)


def _of_consumers(offsets: ConsumerOffsetManager) -> Iterator[tuple[QueueOffsets, int, int]]:
    """Yield (entry, queue id, offset) of all groups but the broker's own: its progress with half messages is checked
    elsewhere."""
    for entry in offsets.all():
        if not is_brokers_own(entry.group):
            for queue_id, offset in list(entry.queues.items()):
                yield entry, queue_id, offset


def _bring_back(offsets: ConsumerOffsetManager, who: str, entry: QueueOffsets, queue_id: int, end: int) -> None:
    """Set an offset behind the end of its queue to that end, and log it."""
    logger.warning(
        "%s: %s@%s queue=%d was at %d, behind the end: now %d",
        who, entry.topic, entry.group, queue_id, entry.queues[queue_id], end,
    )  # fmt: skip
    offsets.clamp(entry, queue_id, end)


def _clamp(store: MessageStore, offsets: ConsumerOffsetManager) -> None:
    """Move the offsets of consumers into the range of their queues."""
    changed = 0
    for entry, queue_id, offset in _of_consumers(offsets):
        low, high = store.offset_range(entry.topic, queue_id)
        if offset > high:
            _bring_back(offsets, "promotion", entry, queue_id, high)
        elif offset < low:
            offsets.clamp(entry, queue_id, low)
        else:
            continue
        changed += 1
    if changed:
        _save(offsets)
        logger.info("promotion: %d offsets of consumers were brought to what the queues hold", changed)


def _save(offsets: ConsumerOffsetManager) -> None:
    """Save offsets that were brought back, before a message comes to the places behind them."""
    try:
        offsets.persist()
    except OSError as error:  # tried again each flushConsumerOffsetInterval
        logger.error("offsets: those that were brought back are not saved yet: %s", error)
