"""Turns a stored message into the input fields for sending it again. PURE."""

from __future__ import annotations

from ...protocol.compression import compression_of
from ...protocol.names import DLQ_PREFIX, NO_SEND_TOPICS, RETRY_PREFIX
from ...protocol.properties import KEYS, REAL_TOPIC, RETRY_TOPIC, SHARDING_KEY, TAGS, decode_properties
from ...protocol.record import Record
from .bodies import decompressed
from .sending import may_be_set
from .snapshots import MessageDraft


def draft_of(record: Record, with_body: bool) -> MessageDraft:
    """Return the fields of the message that this record is or is a copy of."""
    properties = decode_properties(record.properties)
    own = {name: value for name, value in properties.items() if may_be_set(name)}
    shown = {*own, KEYS, TAGS, SHARDING_KEY}
    return MessageDraft(
        topic=topic_of(record),
        queue_id=record.queue_id,
        tags=properties.get(TAGS, ""),
        keys=tuple(properties.get(KEYS, "").split()),
        properties=own,
        sharding_key=properties.get(SHARDING_KEY, ""),
        left_out=tuple(sorted(properties.keys() - shown)),
        body=_body_of(record) if with_body else None,
    )


def topic_of(record: Record) -> str:
    """Return the topic that a message was first sent to."""
    return first_topic(record.topic, record.properties)


def first_topic(topic: str, properties_text: str) -> str:
    """Return the topic that a message in `topic` was first sent to."""
    properties = decode_properties(properties_text)
    # Where messages wait the broker wrote it. Elsewhere it may be a stranger's, who would choose the topic.
    real = properties.get(REAL_TOPIC, topic) if topic in NO_SEND_TOPICS else topic
    came_back = real.startswith((RETRY_PREFIX, DLQ_PREFIX))
    return properties.get(RETRY_TOPIC, real) if came_back else real


def _body_of(record: Record) -> bytes | None:
    kind = compression_of(record.sys_flag)
    if kind is None:
        return record.body
    body, trouble = decompressed(record.body, kind)
    return None if trouble else body
