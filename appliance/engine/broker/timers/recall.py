"""RECALL_MESSAGE (370): a producer takes back a message whose time has not come.

A mark takes it back: a record of the timer topic with the message's TIMER_OUT_MS and, as TIMER_DEL_UNIQKEY, its
`topic+unique key`. The mark is staged as any message is, so a crash leaves the message recalled or not; it has the same
effect in Apache's brokers. Until it is published the message is claimed (`claims.py`), so that delivery does not take
it. If delivery has the message already, the mark is not staged and the producer gets an error.

The recall of an unknown id succeeds, as with Apache. The message is looked up only if delivery has reached its time
before, and the clock was set back since.
Source: RocketMQ 5.3.3 `RecallMessageProcessor`, checks in its order, texts as there.
"""

from __future__ import annotations

from collections.abc import Callable

from ...config import EngineConfig
from ...errors import RefusedRequest
from ...named_tuple import NamedTuple
from ...protocol.codes import ResponseCode
from ...protocol.names import PERM_WRITE, TIMER_TOPIC, is_legal_group
from ...protocol.properties import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    TIMER_OF,
    TIMER_OUT_MS,
    UNIQUE_KEY,
    encode_properties,
)
from ...protocol.recall_handle import RecallHandle, decode_recall_handle
from ..sending.outcome import PutOutcome, ReplyTo
from ..sending.own_appends import OwnAppends, OwnMessage
from ..topic_config import TopicConfig
from .claims import RECALLS, Claim, Claims
from .delivery import DeliverTimers

RECALL_TAG = "_RECALL_TAG_"
_NOT_AVAILABLE = "recall failed, broker service not available"
#: Properties of a mark: when it was made, and the producer group that asked for it.
_BORN_TIMESTAMP, _PRODUCER_GROUP = "BORN_TIMESTAMP", "PGROUP"


class Asked(NamedTuple):
    """Fields of a request. born_host: the peer's address, as records hold it."""

    topic: str
    handle: str
    producer_group: str
    born_host: bytes


def key_of(topic: str, unique_key: str) -> str:
    """Return the key by which a mark names the message that it is for."""
    return f"{topic}+{unique_key}"


def mark_of(
    topic: str,
    unique_key: str,
    out_ms: int,
    now_ms: int,
    tag: str = RECALL_TAG,
    takes_out: int = -1,
    by: tuple[str, bytes] = ("", b""),
) -> OwnMessage:
    """Return the mark for the messages of this key and TIMER_OUT_MS. takes_out: for one of them only, the queue offset
    of its first record; else -1. by: producer group and address."""
    group, born_host = by
    properties = {
        TIMER_DEL_UNIQKEY: key_of(topic, unique_key),
        UNIQUE_KEY: unique_key,
        TIMER_DELIVER_MS: str(out_ms + 1),
        _BORN_TIMESTAMP: str(now_ms),
        _PRODUCER_GROUP: group,
        TAGS: tag,
        TIMER_OUT_MS: str(out_ms),
        REAL_TOPIC: topic,
        REAL_QUEUE_ID: "0",
        TIMER_OF: "" if takes_out < 0 else str(takes_out),
    }
    text = encode_properties({name: value for name, value in properties.items() if value})
    return OwnMessage(TIMER_TOPIC, 0, b"0", text, unique_key, now_ms, born_host)


class RecallPath:
    """Owned by remoting-io."""

    def __init__(
        self,
        appends: OwnAppends,
        claims: Claims,
        find_topic: Callable[[str], TopicConfig | None],
        options: Callable[[], EngineConfig],
        wall_ms: Callable[[], int],
        delivery: DeliverTimers | None = None,
        no_waiting: Callable[[], str | None] = lambda: None,
    ) -> None:
        """options: as they are now. delivery: knows which messages wait; without it all do, and none is overdue.
        no_waiting: the reason why no further marks are taken, which are kept until their time as messages are; None
        when they are."""
        # Constant after construction.
        self._appends = appends
        self._claims = claims
        self._find_topic = find_topic
        self._options = options
        self._wall_ms = wall_ms
        self._delivery = delivery
        self._no_waiting = no_waiting

    def recall(self, asked: Asked, reply_to: ReplyTo) -> None:
        """Stage the mark; `reply_to` gets the outcome when it is durable. Raises RefusedRequest: 16, 14, 17, 604."""
        now_ms = self._wall_ms()
        self._check_broker(now_ms)
        if self._find_topic(asked.topic) is None:
            raise RefusedRequest(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{asked.topic}] not exist")
        handle = self._handle(asked, now_ms)
        if (reason := self._no_waiting()) is not None:
            raise RefusedRequest(ResponseCode.SERVICE_NOT_AVAILABLE, f"recall failed, {reason}")
        key, out_ms = key_of(handle.topic, handle.unique_key), handle.at_ms - 1
        group = asked.producer_group if is_legal_group(asked.producer_group) else ""
        mark = mark_of(handle.topic, handle.unique_key, out_ms, now_ms, by=(group, asked.born_host))
        if self._claims.claim(key, out_ms, RECALLS) is not Claim.YOURS:
            raise self._too_late()
        try:
            if out_ms < self._claims.reached_ms and self._delivery and not self._delivery.waits(key, out_ms):
                raise self._too_late()
            self._appends.put(mark, _Recall(self._claims, key, out_ms, reply_to))
        except BaseException:  # else delivery would wait for the mark for ever
            self._claims.release(key, out_ms, 0)
            raise

    def _too_late(self) -> RefusedRequest:
        return RefusedRequest(ResponseCode.ILLEGAL_OPERATION, "recall failed, the message is delivered")

    def _check_broker(self, now_ms: int) -> None:
        options = self._options().broker
        if not options.recall_message_enable:
            raise RefusedRequest(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if now_ms < options.start_accept_send_request_time_stamp:
            raise RefusedRequest(ResponseCode.SERVICE_NOT_AVAILABLE, _NOT_AVAILABLE)
        if not options.broker_permission & PERM_WRITE and not options.allow_recall_when_broker_not_writeable:
            raise RefusedRequest(ResponseCode.SERVICE_NOT_AVAILABLE, _NOT_AVAILABLE)

    def _handle(self, asked: Asked, now_ms: int) -> RecallHandle:
        options = self._options()
        try:
            handle = decode_recall_handle(asked.handle)
        except ValueError as error:
            raise RefusedRequest(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
        if handle.topic != asked.topic:
            raise RefusedRequest(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != options.broker.broker_name:
            raise RefusedRequest(ResponseCode.ILLEGAL_OPERATION, _NOT_AVAILABLE)
        late_ms, early_ms = self._delivery.index.drift_ms if self._delivery else (0, 0)
        if not -late_ms < handle.at_ms - now_ms < options.store.timer_max_delay_sec * 1000 + early_ms:
            raise RefusedRequest(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle


class _Recall:
    """Waits for a mark: releases the claim and passes the outcome on."""

    __slots__ = ("_claims", "_key", "_out_ms", "_reply_to")

    def __init__(self, claims: Claims, key: str, out_ms: int, reply_to: ReplyTo) -> None:
        self._claims = claims
        self._key = key
        self._out_ms = out_ms
        self._reply_to = reply_to

    def put_ended(self, outcome: PutOutcome) -> None:
        self._claims.release(self._key, self._out_ms, outcome.queue_offset + 1 if outcome.physical_offsets else 0)
        self._reply_to.put_ended(outcome)
