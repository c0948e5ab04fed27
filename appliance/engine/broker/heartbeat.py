"""The bodies clients send: HEART_BEAT (34), CHECK_CLIENT_CONFIG (46), LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42).

PURE: bytes in, values out. msgspec reads what Java, Go and C++ write; a body that it refuses (a null, a number as text,
fastjson's dialect) is read again by the tolerant reader.
Source: RocketMQ 5.3.3 `HeartbeatData`, `SubscriptionData`, `CheckClientRequestBody`, `LockBatchRequestBody`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import Any, TypeVar

import msgspec

from .. import fastjson
from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from ..protocol.names import RETRY_PREFIX
from .config_table import without_nulls
from .topic_config import I32, I64

#: RocketBox's limit. A subscription takes some 150 bytes; reading a body must not stop the I/O thread for long.
MAX_BODY_BYTES = 256 * 1024
#: The limit of bodies that are read in a pool; a topic takes some 200 bytes.
MAX_POOL_BODY_BYTES = 1024 * 1024
#: A body may have one object for this many bytes of either limit: 4,096 on the I/O thread take about 2 ms, however
#: small they are. The smallest that clients send, a producer's group, takes some 30 bytes; most take 50 (a queue) to
#: 200 (a consumer).
_BYTES_AN_OBJECT = 64
#: Objects of a heartbeat at most, and so its subscriptions.
MOST_OBJECTS = MAX_BODY_BYTES // _BYTES_AN_OBJECT
#: A body that only the tolerant reader understands may have the limit / _TOLERATED_SHARE bytes, and one value (see
#: `fastjson.loads`) for each _BYTES_A_TOLERATED_VALUE bytes of the limit. 32 KiB with 2,048 values take less than 2 ms;
#: no official client sends such bodies.
_TOLERATED_SHARE = 8
_BYTES_A_TOLERATED_VALUE = 128

TAG = "TAG"
CLUSTERING = "CLUSTERING"
BROADCASTING = "BROADCASTING"
CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
CONSUME_PASSIVELY = "CONSUME_PASSIVELY"

#: Java's enums in their order: the C++ client sends the number. Source: `ConsumeType`, `MessageModel`,
#: `ConsumeFromWhere`.
_ORDINALS = {
    "consume_type": (CONSUME_ACTIVELY, CONSUME_PASSIVELY, "CONSUME_POP"),
    "message_model": (BROADCASTING, CLUSTERING),
    "consume_from_where": (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
}


class SubscriptionData(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A subscription to a topic. sub_version: client ms when it was made. code_set: Java hashes of tags_set.

    Numbers are as wide as Java's: an answer could not hold wider ones, and wide ones may all share one place of a set.
    """

    topic: str = ""
    sub_string: str = "*"
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[I32] = frozenset()
    sub_version: I64 = 0
    expression_type: str = TAG
    class_filter_mode: bool = False


class ConsumerData(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One consumer group of a client. The three enums may be given as numbers, and are names after construction."""

    group_name: str = ""
    consume_type: str | int = CONSUME_PASSIVELY
    message_model: str | int = CLUSTERING
    consume_from_where: str | int = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False

    def __post_init__(self) -> None:
        if type(self.consume_type) is type(self.message_model) is type(self.consume_from_where) is str:
            return
        for field, names in _ORDINALS.items():
            value = getattr(self, field)
            if isinstance(value, int):
                if not 0 <= value < len(names):
                    raise ValueError(f"{field} is {value}")
                msgspec.structs.force_setattr(self, field, names[value])


class ProducerData(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One producer group of a client."""

    group_name: str = ""


class HeartbeatData(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A whole heartbeat. heartbeat_fingerprint, without_sub: of 5.x clients with useHeartbeatV2; else 0, False."""

    client_id: str = msgspec.field(name="clientID", default="")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: I64 = 0
    without_sub: bool = False


class CheckClientBody(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The body of 46."""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData | None = None


class QueueBody(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Java's MessageQueue."""

    topic: str = ""
    broker_name: str = ""
    queue_id: I32 = 0


class LockBody(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The body of 41 and 42."""

    consumer_group: str = ""
    client_id: str = ""
    mq_set: list[QueueBody] = []


B = TypeVar("B")


def decode_body(body: bytes, kind: type[B], max_bytes: int = MAX_BODY_BYTES) -> B:
    """Return the body as `kind`. Refuses with 1 a body that is none, also an empty one.

    max_bytes: MAX_BODY_BYTES on the I/O thread, MAX_POOL_BODY_BYTES in a pool; the other limits follow it.
    """
    if len(body) > max_bytes:
        raise _refused(f"the body has {len(body)} bytes, at most {max_bytes} are read")
    objects = body.count(b"{")
    if objects > max_bytes // _BYTES_AN_OBJECT:
        raise _refused(f"the body has {objects} objects, at most {max_bytes // _BYTES_AN_OBJECT} are read")
    why = "it holds a $ref"
    if b'"$ref"' not in body:  # which would be read as an object without fields
        try:
            return _decoder(kind).decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            why = str(error)  # the error itself would keep this frame, and the body
    if len(body) > max_bytes // _TOLERATED_SHARE:
        raise _refused(f"the body is no {kind.__name__}: {why}")
    try:
        value = fastjson.loads(body, max_bytes // _BYTES_A_TOLERATED_VALUE, object_keys=False)
        return msgspec.convert(without_nulls(value), kind, strict=False)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _refused(f"the body is no {kind.__name__}: {error}") from None
    except RecursionError:
        raise _refused("the body is nested too deeply") from None


def _refused(remark: str) -> RefusedRequest:
    return RefusedRequest(ResponseCode.SYSTEM_ERROR, remark)


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[B]) -> msgspec.json.Decoder[B]:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind, strict=False)
    return decoder


def named_in(data: HeartbeatData) -> Iterator[tuple[str, str]]:
    """Yield ("Group", name) and ("Topic", name) of all that a heartbeat consumes."""
    for consumer in data.consumer_data_set:
        yield "Group", consumer.group_name
        for one in consumer.subscription_data_set:
            yield "Topic", one.topic


def without(data: HeartbeatData, kept_from: Set[tuple[str, str]], is_read: Callable[[str, str], bool]) -> HeartbeatData:
    """Return a heartbeat without groups and topics, ("Group", name) and ("Topic", name). A group of which no topic but
    its retry topic is left goes, too, and one of which others read such a topic: its member would only take queues from
    the others. is_read: True for a group and a topic that its members read."""
    consumers = []
    for consumer in data.consumer_data_set:
        if ("Group", consumer.group_name) in kept_from:
            continue
        wanted = consumer.subscription_data_set
        left = [one for one in wanted if ("Topic", one.topic) not in kept_from]
        if len(left) == len(wanted):
            consumers.append(consumer)
            continue
        if any(("Topic", one.topic) in kept_from and is_read(consumer.group_name, one.topic) for one in wanted):
            continue
        if any(not one.topic.startswith(RETRY_PREFIX) for one in left):
            consumers.append(msgspec.structs.replace(consumer, subscription_data_set=left))
    return msgspec.structs.replace(data, consumer_data_set=consumers)


def subscription_as_dict(data: SubscriptionData) -> dict[str, Any]:
    """Return a subscription as Java writes it, with sets in order, so that two answers are the same."""
    return {
        "classFilterMode": data.class_filter_mode,
        "codeSet": sorted(data.code_set),
        "expressionType": data.expression_type,
        "subString": data.sub_string,
        "subVersion": data.sub_version,
        "tagsSet": sorted(data.tags_set),
        "topic": data.topic,
    }
