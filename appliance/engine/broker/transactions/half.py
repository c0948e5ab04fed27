"""Half messages: messages that a producer has sent and not yet committed.

A half message is stored in RMQ_SYS_TRANS_HALF_TOPIC, queue 0, with these properties:

    TRAN_MSG            true
    PGROUP              the producer's group: any member of it may end the transaction
    REAL_TOPIC          the topic it is for
    REAL_QID            the queue of that topic
    __transactionId__   its unique key

A transaction is named by two numbers, which are in the answer to the send: the offset of the half message in its queue,
and in the log. The committed message is a copy with the same properties, flag and body; its sys flag says "committed",
and it holds the physical offset of the half.
Source: RocketMQ 5.3.3 `TransactionalMessageBridge.parseHalfMessageInner`,
`EndTransactionProcessor.endMessageTransaction`.
"""

from __future__ import annotations

import re

from ...named_tuple import NamedTuple
from ...protocol.names import HALF_TOPIC
from ...protocol.properties import (
    CHECK_IMMUNITY_TIME,
    MAX_PROPERTIES_BYTES,
    OF_DELETED,
    PREPARED_QUEUE_OFFSET,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    UNIQUE_KEY,
    decode_properties,
    encode_properties,
    find_property,
)
from ...protocol.record import SYS_TRANSACTION_MASK, Record, encode_record, hosts
from ...store.record_reader import StoredRecord
from ..delays.levels import Place
from ..timers.waiting import ADDED_BYTES, has_time

#: The queue of half messages, and that of op messages, which list the decided ones.
HALF_QUEUE = 0
#: Topic of half messages that were not decided in time.
DISCARDED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"

#: Room that a half message's properties leave free: for TRANSACTION_CHECK_TIMES with three digits, ROCKETBOX_FIRST_HALF
#: with nineteen, ROCKETBOX_OF_DELETED with one, ROCKETBOX_WAITED_MS with thirteen, and their separators.
CHECKS_ROOM_BYTES = 132
#: Property of a half that RocketBox put back at the end of its queue: the offset where it lay first. It is not Apache's
#: TRAN_PREPARED_QUEUE_OFFSET, since an op message for that offset says that its copies are decided.
FIRST_HALF = "ROCKETBOX_FIRST_HALF"
#: Property of a half that RocketBox put back: the ms for which it had been open by then, at its earlier places.
WAITED_MS = "ROCKETBOX_WAITED_MS"
#: Property of a half that a discarded one was resumed as: the physical offset of that one.
RESUMED_OF = "ROCKETBOX_RESUMED_OF"

_SECONDS = re.compile(r"[+-]?[0-9]{1,18}\Z", re.ASCII)
_QUEUE_ID = re.compile(r"[0-9]{1,9}\Z", re.ASCII)
_OFFSET = re.compile(r"[0-9]{1,18}\Z", re.ASCII)


class Half(NamedTuple):
    """A half message as it was read. group: its producer's, empty in one from Apache that has none. target: where it is
    to go."""

    record: Record
    data: bytes
    group: str
    target: Place

    @property
    def unique_key(self) -> str:
        return find_property(self.record.properties, UNIQUE_KEY) or ""


def make_half(properties: dict[str, str], target: Place) -> None:
    """Write into a message's properties that it is a half message, to go to `target`. Properties that brokers add to
    halves are removed: a producer may send what it once received (from TRANS_CHECK_MAX_TIME_TOPIC, say)."""
    for name in (TRANSACTION_CHECK_TIMES, PREPARED_QUEUE_OFFSET, FIRST_HALF, WAITED_MS, OF_DELETED, RESUMED_OF):
        properties.pop(name, None)
    properties[TRANSACTION_ID] = properties[UNIQUE_KEY]
    properties[REAL_TOPIC] = target.topic
    properties[REAL_QUEUE_ID] = str(target.queue_id)


def half_of(found: StoredRecord) -> Half | None:
    """Return a record as a half message; None if it is none, or lacks properties that are needed to end it."""
    record = found.record
    return half_like(found) if record.topic == HALF_TOPIC and record.queue_id == HALF_QUEUE else None


def half_like(found: StoredRecord) -> Half | None:
    """Return the same for a record in any topic: a discarded half has the same properties."""
    record, text = found.record, found.record.properties
    group, topic, queue_id = (find_property(text, name) for name in (PRODUCER_GROUP, REAL_TOPIC, REAL_QUEUE_ID))
    if not topic or queue_id is None or _QUEUE_ID.match(queue_id) is None:
        return None
    return Half(record, found.data, group or "", Place(topic, int(queue_id)))


def immunity_ms(properties: str, timeout_ms: int) -> int:
    """Return the ms after its storing for which a half message is left alone: what its producer asked for, else
    `transactionTimeOut`."""
    seconds = find_property(properties, CHECK_IMMUNITY_TIME)
    if seconds is None or _SECONDS.match(seconds) is None or int(seconds) < 0:
        return timeout_ms
    return int(seconds) * 1000


def checks_of(properties: str) -> int:
    """Return how often its producers have been asked according to the message, in which Apache counts."""
    times = find_property(properties, TRANSACTION_CHECK_TIMES)
    return int(times) if times is not None and times.isascii() and times.isdigit() and len(times) < 10 else 0


def waited_ms(properties: str) -> int:
    """Return the ms for which a half had been open when it was put back last; 0 if it never was."""
    return offset_in(properties, WAITED_MS) or 0


def offset_in(properties: str, name: str) -> int | None:
    """Return the half queue's offset in a property; None without one."""
    text = find_property(properties, name)
    return int(text) if text is not None and _OFFSET.match(text) else None


def earlier_offsets(half: Half) -> set[int]:
    """Return the offsets at which a half that was put back may have lain when its producer received its offset."""
    text, here = half.record.properties, half.record.queue_offset
    found = {offset_in(text, name) for name in (FIRST_HALF, PREPARED_QUEUE_OFFSET)}
    return {offset for offset in found if offset is not None and offset < here}


def put_back_text(half: Half, checks: int, waited: int) -> str:
    """Return the properties of a half that is put back after it was open for `waited` ms; less than before, as a clock
    that was set may say, does not count. The time is left out, also an earlier one, where it would take the room of
    what else is added later, as may be in a half of Apache or of an older version."""
    found = decode_properties(half.record.properties)
    found.pop(WAITED_MS, None)
    found.setdefault(FIRST_HALF, str(half.record.queue_offset))
    if checks:
        found[TRANSACTION_CHECK_TIMES] = str(checks)
    timed = found | {WAITED_MS: str(max(waited, waited_ms(half.record.properties)))}
    longest = encode_properties(timed | {TRANSACTION_CHECK_TIMES: "999", OF_DELETED: "1"})
    room = MAX_PROPERTIES_BYTES - (ADDED_BYTES if has_time(found) else 0)
    return encode_properties(timed if len(longest.encode()) <= room else found)


def with_mark(properties: str) -> str:
    """Return the properties of a half whose topic was deleted, see `is_of_deleted`."""
    return encode_properties(decode_properties(properties) | {OF_DELETED: "1"})


def with_checks(properties: str, checks: int) -> str:
    """Return the properties of a half message whose producers were asked `checks` times; unchanged if there is no room
    for that, as may be in one from Apache."""
    found = decode_properties(properties)
    found[TRANSACTION_CHECK_TIMES] = str(checks)
    text = encode_properties(found)
    return text if len(text.encode()) <= MAX_PROPERTIES_BYTES else properties


def resumed_text(discarded: Record) -> str:
    """Return the properties of the half that a discarded one is resumed as. They name it if there is room, beside what
    every half leaves free."""
    text = with_checks(discarded.properties, 0)
    found = decode_properties(text)
    for name in (RESUMED_OF, WAITED_MS):
        found.pop(name, None)
    named = encode_properties(found | {RESUMED_OF: str(discarded.physical_offset)})
    return named if _fits(named) else encode_properties(found)


def has_room(half: Record) -> bool:
    """True if a half's properties leave as much free as those of every client's half."""
    return _fits(half.properties)


def _fits(properties: str) -> bool:
    added = ADDED_BYTES if has_time(decode_properties(properties)) else 0
    return len(properties.encode()) <= MAX_PROPERTIES_BYTES - CHECKS_ROOM_BYTES - added


def as_checked(half: Half, checks: int) -> bytes:
    """Return the message as its producer gets it with the question: a record in its real topic."""
    record = half.record
    return encode_record(
        record._replace(
            topic=half.target.topic,
            queue_id=half.target.queue_id,
            sys_flag=record.sys_flag & ~SYS_TRANSACTION_MASK,
            properties=with_checks(record.properties, checks),
        ),
        *hosts(half.data),
    )
