"""The delay levels, and how a message is made to wait at one of them.

A message that waits is stored in SCHEDULE_TOPIC_XXXX, in its level's queue, with these properties:

    DELAY       its level, from 1 on; never above the highest
    REAL_TOPIC  the topic it is for
    REAL_QID    the queue of that topic

The entry's tag code is the time it is due: `dispatch.waiting_tag_code`.
Source: RocketMQ 5.3.3 `HookUtils.transformDelayLevelMessage`, `ScheduleMessageService`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors import RefusedRequest
from ...named_tuple import NamedTuple
from ...protocol.codes import ResponseCode
from ...protocol.fields import I32_MAX, I32_MIN
from ...protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from ...protocol.properties import DELAY_TIME_LEVEL, OF_DELETED, REAL_QUEUE_ID, REAL_TOPIC, find_property
from ...protocol.record import Record
from ...store.retention.deleted_topics import DeletedTopics
from ..topic_config import TopicConfig

#: Texts that Java's Integer.parseInt takes.
_NUMBER = re.compile(r"[+-]?[0-9]{1,32}\Z", re.ASCII)


class Place(NamedTuple):
    """A topic and queue where a message waits, or where one is to go."""

    topic: str
    queue_id: int


class DelayLevels:
    """`messageDelayLevel`. Constant after construction."""

    def __init__(self, levels_ms: Sequence[int]) -> None:
        """levels_ms: the delay of each level, level 1 first."""
        self.delays_ms = tuple(levels_ms)

    @property
    def highest(self) -> int:
        return len(self.delays_ms)

    def delay_ms(self, level: int) -> int:
        """Return how long a message of this level waits, in ms. The level must be a configured one."""
        return self.delays_ms[level - 1]

    def level_of(self, text: str | None) -> int:
        """Return the level that a DELAY property asks for, 0 for none; never above the highest.

        Raises RefusedRequest with 13 if the text is no number of 32 bits; 5.3.3 answers 1 and an exception's text, on
        which clients try again.
        """
        if text is None:
            return 0
        if _NUMBER.match(text) is None or not I32_MIN <= (level := int(text)) <= I32_MAX:
            raise RefusedRequest(ResponseCode.MESSAGE_ILLEGAL, f"the delay level {text[:40]!r} is no number")
        return max(0, min(level, self.highest))


def make_wait(properties: dict[str, str], level: int, target: Place) -> None:
    """Write into a message's properties that it waits at `level` and then goes to `target`."""
    properties.pop(OF_DELETED, None)  # a client's
    properties[DELAY_TIME_LEVEL] = str(level)
    properties[REAL_TOPIC] = target.topic
    properties[REAL_QUEUE_ID] = str(target.queue_id)


def target_of(properties: str) -> Place | None:
    """Return where a waiting message is to go by its properties; None if they do not say. The topic may have no such
    queue."""
    topic, queue_id = find_property(properties, REAL_TOPIC), find_property(properties, REAL_QUEUE_ID) or ""
    if topic is None or topic in (SCHEDULE_TOPIC, TIMER_TOPIC) or _NUMBER.match(queue_id) is None:
        return None
    return Place(topic, int(queue_id))


def is_of_deleted(record: Record, topic: str, deleted: DeletedTopics) -> bool:
    """True if a message that waits is for a topic of this name that was deleted: one that was made since must not get
    it. record: the one that waits."""
    return record.physical_offset < deleted.below(topic) or find_property(record.properties, OF_DELETED) is not None


def queue_for(target: Place, config: TopicConfig) -> int | None:
    """Return the queue that a message goes to: its own, or if the topic has fewer queues by now another one (always the
    same); None if it has none at all."""
    queues = max(config.read_queue_nums, config.write_queue_nums)
    if not queues:
        return None
    return target.queue_id if 0 <= target.queue_id < queues else target.queue_id % (config.read_queue_nums or queues)


def queue_of_level(level: int) -> int:
    """Return the queue of the schedule topic where messages of a level wait."""
    return level - 1
