"""The bodies clients send: HEART_BEAT (34), CHECK_CLIENT_CONFIG (46), LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42).

PURE: bytes in, values out. msgspec reads what Java, Go and C++ write; whatever it refuses (a null, a number as text,
fastjson's dialect) gets a second chance through the tolerant reader.
Source: RocketMQ 5.3.3 `HeartbeatData`, `SubscriptionData`, `CheckClientRequestBody`, `LockBatchRequestBody`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from .. import fastjson
from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from .config_table import without_nulls

#: Ours. A subscription takes some 150 bytes; what is read on the I/O thread must not stop it for long.
MAX_BODY_BYTES = 256 * 1024
#: The same for what is read in a pool; a topic takes some 200 bytes.
MAX_POOL_BODY_BYTES = 1024 * 1024

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
    """What a group wants of a topic. sub_version: client ms when it was made. code_set: Java hashes of tags_set."""

    topic: str = ""
    sub_string: str = "*"
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[int] = frozenset()
    sub_version: int = 0
    expression_type: str = TAG
    class_filter_mode: bool = False


class ConsumerData(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One consumer group of a client; the three enums are names once it is made."""

    group_name: str = ""
    consume_type: str | int = CONSUME_PASSIVELY
    message_model: str | int = CLUSTERING
    consume_from_where: str | int = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False

    def __post_init__(self) -> None:
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
    """A whole heartbeat. heartbeat_fingerprint, without_sub: 5.x clients with useHeartbeatV2; else 0, False."""

    client_id: str = msgspec.field(name="clientID", default="")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
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
    queue_id: int = 0


class LockBody(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The body of 41 and 42."""

    consumer_group: str = ""
    client_id: str = ""
    mq_set: list[QueueBody] = []


B = TypeVar("B")


def decode_body(body: bytes, kind: type[B], max_bytes: int = MAX_BODY_BYTES) -> B:
    """The body as `kind`; refuses with 1 what is none. An empty body is refused, too."""
    if len(body) > max_bytes:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the body has {len(body)} bytes, at most {max_bytes} are read")
    try:
        return _decoder(kind).decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:
        return msgspec.convert(without_nulls(fastjson.loads(body)), kind, strict=False)
    except (msgspec.MsgspecError, ValueError) as error:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the body is no {kind.__name__}: {error}") from None
    except RecursionError:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "the body is nested too deeply") from None


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[B]) -> msgspec.json.Decoder[B]:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind, strict=False)
    return decoder


def subscription_as_dict(data: SubscriptionData) -> dict[str, Any]:
    """As Java writes it; sets in order, so that two answers are the same."""
    return {
        "classFilterMode": data.class_filter_mode,
        "codeSet": sorted(data.code_set),
        "expressionType": data.expression_type,
        "subString": data.sub_string,
        "subVersion": data.sub_version,
        "tagsSet": sorted(data.tags_set),
        "topic": data.topic,
    }
