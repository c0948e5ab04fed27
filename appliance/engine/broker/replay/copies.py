"""The copy that a replay stores of a dead letter.

Kept: body and its compression, keys, tags, unique key, birth, ORIGIN_MESSAGE_ID and the sender's own properties.
Dropped: properties that would delay the copy, and those about retries from its last consumer. A copy for the failed
group also keeps RETRY_TOPIC, because Java clients restore the topic that it names.
"""

from __future__ import annotations

from ...errors import RefusedRequest
from ...protocol.message_id import encode_host
from ...protocol.names import DLQ_PREFIX, NO_SEND_TOPICS, PERM_WRITE, RETRY_PREFIX
from ...protocol.properties import (
    DELAY_TIME_LEVEL,
    POP_CK,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_TOPIC,
    TIMER_NAMES,
    TIMER_WAS_OUT_MS,
    UNIQUE_KEY,
    decode_properties,
    encode_properties,
)
from ...protocol.record import SYS_TRANSACTION_MASK, Record
from ..sending.own_appends import OwnMessage
from ..sending.properties import checked_bytes
from ..topic_config import TopicConfig
from .job import JobSpec
from .provenance import REPLAY_JOB, REPLAY_PROOF, REPLAY_SEQ, REPLAYED, proof_of

#: Properties that a copy must not take over. Source of the names: `MessageConst`.
_DROPPED = (
    DELAY_TIME_LEVEL,
    *TIMER_NAMES,
    POP_CK,
    REAL_TOPIC,
    REAL_QUEUE_ID,
    *("RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "TIMER_OUT_MS", "TIMER_ROLL_TIMES"),
    *("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_DELAY_LEVEL"),
    TIMER_WAS_OUT_MS,
)


def is_kept(topic: str) -> bool:
    """True if no replay may go to a topic of this name: one of the broker's own, a retry topic, dead letters."""
    return topic in NO_SEND_TOPICS or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def is_writable(config: TopicConfig) -> bool:
    """True if messages may be put into the topic now."""
    return bool(config.perm & PERM_WRITE and config.write_queue_nums)


class TooLong(Exception):
    """The record has no room for the properties of a replay."""


def origin_topic(record: Record) -> str | None:
    """Return the topic that a dead letter was first sent to; None if its properties do not name it."""
    return decode_properties(record.properties).get(RETRY_TOPIC)


def copy_of(record: Record, topic: str, queue_id: int, spec: JobSpec, sequence: int, times: int) -> OwnMessage:
    """Return the copy of a dead letter. times: how often it was replayed, this copy included. Raises TooLong."""
    properties = decode_properties(record.properties)
    for name in _DROPPED:
        properties.pop(name, None)
    if not topic.startswith(RETRY_PREFIX):
        properties.pop(RETRY_TOPIC, None)
    for name in (REPLAY_JOB, REPLAY_SEQ, REPLAYED, REPLAY_PROOF):
        properties.pop(name, None)
    properties |= {REPLAY_JOB: spec.id, REPLAY_SEQ: str(sequence), REPLAYED: str(times)}
    if spec.secret:
        properties[REPLAY_PROOF] = proof_of(spec.secret, sequence)
    text = encode_properties(properties)
    try:
        checked_bytes(text)
    except RefusedRequest:
        raise TooLong from None
    return OwnMessage(
        topic,
        queue_id,
        record.body,
        text,
        properties.get(UNIQUE_KEY, ""),
        record.born_time_ms,
        encode_host(*record.born_host),
        record.flag,
        record.sys_flag & ~SYS_TRANSACTION_MASK,
    )
