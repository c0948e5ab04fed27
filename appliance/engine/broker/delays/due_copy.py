"""Makes the copy of a message that waited, to be stored where it is to go; and counts messages that are given up.

Shared by the delivery of delayed messages and of timers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...clock import Clock
from ...few_lines import FewLines
from ...protocol.names import HALF_TOPIC
from ...protocol.properties import (
    DELAY_TIME_LEVEL,
    TIMER_FIRST,
    TIMER_NAMES,
    TIMER_OUT_MS,
    TIMER_WAS_OUT_MS,
    UNIQUE_KEY,
    find_property,
    without_properties,
)
from ...protocol.record import body_crc, hosts
from ...store.record_reader import Missing, StoredRecord
from ...store.retention.deleted_topics import DeletedTopics
from ..sending.own_appends import OwnMessage, copy_of
from ..topic_config import TopicConfig, refuse_batch_queues
from .levels import Place, is_of_deleted, queue_for, target_of

logger = logging.getLogger(__name__)

#: Most messages given up that are logged in a period, and its seconds; the others are only counted.
_TOLD, _TELL_S = 10, 10.0
#: Properties that a message has only while it waits. A consumer that passes the message on would delay it again; with
#: TIMER_OUT_MS, a new time would not count.
_OF_WAITING = (DELAY_TIME_LEVEL, *TIMER_NAMES, TIMER_OUT_MS, TIMER_FIRST, TIMER_WAS_OUT_MS)

FindTopic = Callable[[str], TopicConfig | None]


class GivenUp(Exception):
    """The message at hand cannot be delivered, now or later. reason: a key of `GivenUpMessages.counts`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class NotNow(Exception):
    """The record at hand cannot be read at this moment."""


class GivenUpMessages:
    """Counts messages that are given up, by reason, and logs some of them. Belongs to one thread; any thread may read
    the counts."""

    def __init__(self, what: str, clock: Clock) -> None:
        """what: the first word of the log lines."""
        self._what = what
        self.counts = {"expired": 0, "damaged": 0, "no topic": 0, "refused": 0, "transaction": 0}
        self._lines = FewLines(logger.error, _TOLD, _TELL_S, clock.monotonic)

    def add(self, where: str, physical: int, reason: str, detail: str) -> None:
        """Count a message. where: its place in words. physical: its offset in the log, -1 if that is not known."""
        self.counts[reason] += 1
        self._lines.log(
            "%s: a message is given up %s at=%d reason=%s: %s",
            self._what,
            where,
            physical,
            reason,
            detail,
        )


def arrived_properties(text: str) -> str:
    """Return the properties of the copy of a message that waited. text: the message's."""
    return without_properties(text, _OF_WAITING)


def due_copy(
    found: StoredRecord,
    waits_in: Place,
    find_topic: FindTopic,
    deleted: DeletedTopics,
    properties: str | None = None,
) -> OwnMessage:
    """Return the copy of a message that waited, for where it is to go. waits_in: the place its record must be from.
    properties: of the copy, the `arrived_properties` if None. Raises GivenUp."""
    record = found.record
    if (record.topic, record.queue_id) != waits_in:
        raise GivenUp("damaged", f"the record is one of {record.topic}-{record.queue_id}")
    if record.body and body_crc(record.body) != record.body_crc:
        raise GivenUp("damaged", "its body does not match its CRC")
    target = target_of(record.properties)
    if target is None:
        raise GivenUp("damaged", "it does not say where it is to go")
    if target.topic == HALF_TOPIC:
        raise GivenUp("transaction", f"its topic is {target.topic}")
    if is_of_deleted(record, target.topic, deleted):
        raise GivenUp("no topic", f"topic[{target.topic}] was deleted after the message was sent")
    return copy_of(
        record,
        hosts(found.data)[0],
        Place(target.topic, _queue_of(target, find_topic)),
        arrived_properties(record.properties) if properties is None else properties,
        find_property(record.properties, UNIQUE_KEY) or "",
        record.reconsume_times,
        target.topic,
    )


def look_at_missing(why: Missing) -> None:
    """Raise GivenUp for a record that will never be there, NotNow for one that cannot be read."""
    if why is Missing.EXPIRED:
        raise GivenUp("expired", why.value)
    if why is Missing.NO_RECORD:
        raise GivenUp("damaged", why.value)
    raise NotNow(why.value)


def _queue_of(target: Place, find_topic: FindTopic) -> int:
    """Return the message's queue, or the one it goes to because its topic has fewer queues now. Raises GivenUp."""
    config = find_topic(target.topic)
    queue_id = None if config is None else queue_for(target, config)
    if config is None or queue_id is None:
        raise GivenUp("no topic", f"topic[{target.topic}] not exist")
    try:
        refuse_batch_queues(config)
    except Exception as error:
        raise GivenUp("no topic", str(error)) from None
    return queue_id
