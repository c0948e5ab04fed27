"""What a new leader makes of what lies beside its log: tables that came later than the log, or went further.

The log is what counts. A topic that it holds and the table does not was made just before the old leader went; a
consumer's offset may lie behind its end, where messages were that no member had.
"""

from __future__ import annotations

import logging

from ..errors import QueueBroken, RefusedRequest
from ..protocol.names import CHECK_GROUP, PERM_READ, PERM_WRITE, topic_name_error
from ..protocol.record import FIXED_BYTES
from ..store.message_store import MessageStore
from ..store.queues.consume_queue import ConsumeQueue, unpack_entries
from .offsets import ConsumerOffsetManager
from .topic_config import new_topic
from .topics import TopicConfigManager

logger = logging.getLogger(__name__)


def settle_side_state(
    store: MessageStore, topics: TopicConfigManager, offsets: ConsumerOffsetManager, tables_end: int
) -> None:
    """Before the broker starts. tables_end: so far the log had come when the tables were taken over last; below it a
    topic without a configuration was deleted, not lost. -1: nobody knows, so that none was."""
    _make_topics(store, topics, tables_end)
    _begin_queues(store, topics, offsets)
    _clamp(store, offsets)


def _make_topics(store: MessageStore, topics: TopicConfigManager, tables_end: int) -> None:
    unknown: dict[str, list[ConsumeQueue]] = {}
    for queue in store.queues.all():
        if queue.max_offset > queue.min_offset and topics.get(queue.topic) is None:
            unknown.setdefault(queue.topic, []).append(queue)
    for topic, queues in unknown.items():
        if topic_name_error(topic) is not None or topics.is_system_topic(topic):
            continue
        if not any(_newest(store, queue) >= tables_end for queue in queues):
            continue
        count = max(queue.queue_id for queue in queues) + 1
        try:
            topics.wait_durable(topics.update(new_topic(topic, count, PERM_READ | PERM_WRITE)))
        except RefusedRequest as error:
            logger.error("promotion: topic=%s is in the log, and cannot be made: %s", topic, error.remark)
            continue
        logger.warning("promotion: topic=%s was in the log and not in the table, made with queues=%d", topic, count)


def _newest(store: MessageStore, queue: ConsumeQueue) -> int:
    """Physical offset of a queue's last record; the log's end where that cannot be told."""
    try:
        entries = store.queues.read_entries(queue, queue.max_offset - 1, 1)
    except (QueueBroken, OSError):
        return store.log.written
    for physical, _, _ in unpack_entries(entries):
        return int(physical)
    return store.log.written


def _begin_queues(store: MessageStore, topics: TopicConfigManager, offsets: ConsumerOffsetManager) -> None:
    """Whoever copied the log after its first files had been deleted has nothing of a queue whose messages all lay in
    them. It goes on behind what consumers have read of it, not at 0: those numbers were given away before.

    Anybody may commit any number: there are never more messages in deleted files than they had room for.
    """
    most = store.log.min_offset // FIXED_BYTES
    begins: dict[tuple[str, int], int] = {}
    for entry in offsets.all():
        if topics.get(entry.topic) is None or entry.group == CHECK_GROUP:
            continue
        for queue_id, offset in list(entry.queues.items()):
            if 0 < offset <= most and store.find_queue(entry.topic, queue_id) is None:
                known = begins.get((entry.topic, queue_id), 0)
                begins[entry.topic, queue_id] = max(known, offset)
    for (topic, queue_id), offset in begins.items():
        store.queues.get_or_create(topic, queue_id, offset)
        logger.warning("promotion: %s queue=%d has no message here and goes on at %d", topic, queue_id, offset)


def _clamp(store: MessageStore, offsets: ConsumerOffsetManager) -> None:
    """Those of the broker's own group say how far it has come with half messages, and are looked at by itself."""
    changed = 0
    for entry in offsets.all():
        if entry.group == CHECK_GROUP:
            continue
        for queue_id, offset in list(entry.queues.items()):
            queue = store.find_queue(entry.topic, queue_id)
            low, high = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
            fitting = min(max(offset, low), high)
            if fitting != offset:
                changed += 1
                if offset > high:
                    logger.warning(
                        "promotion: %s@%s queue=%d was at %d, behind the end: now %d",
                        entry.topic, entry.group, queue_id, offset, fitting,
                    )  # fmt: skip
                offsets.clamp(entry, queue_id, fitting)
    if changed:
        logger.info("promotion: %d offsets of consumers were brought to what the queues hold", changed)
