"""Test messages: checked here, then sent on the same path as a client's."""

from __future__ import annotations

import logging
import secrets
import time
from concurrent.futures import TimeoutError as FutureTimeout

from ..broker.local_sends import LocalSends
from ..broker.topics import TopicConfigManager
from ..errors import InvalidInput, NotFound, RefusedRequest, Unavailable
from ..protocol.codes import ResponseCode
from ..protocol.names import NO_SEND_TOPICS, PERM_WRITE
from ..protocol.properties import (
    KEYS,
    MAX_PROPERTIES_BYTES,
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    TAGS,
    UNIQUE_KEY,
    encode_properties,
)
from .message_snapshots import SentMessage
from .options import Options
from .sentences import say

logger = logging.getLogger(__name__)

#: The group our own messages name; it is not registered anywhere.
PRODUCER_GROUP = "ROCKETBOX_CONSOLE"
#: A tag with a bar in it could not be subscribed to.
_NOT_IN_TAGS = ("|", " ")
#: What the broker or the clients mean something by; messages with these are not what this page sends.
_OWN_PROPERTIES = frozenset(
    "KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID "
    "ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY "
    "MAX_RECONSUME_TIMES CONSUME_START_TIME TRAN_PREPARED_QUEUE_OFFSET TRANSACTION_CHECK_TIMES "
    "CHECK_IMMUNITY_TIME_IN_SECONDS INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME "
    "CLUSTER MSG_TYPE POP_CK INNER_NUM TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_DEL_UNIQKEY "
    "DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID".split()
)


class TestSender:
    """Any thread; waits in the caller's."""

    #: pytest: this is no test.
    __test__ = False

    def __init__(self, topics: TopicConfigManager, sends: LocalSends, options: Options) -> None:
        # Constant after construction.
        self._topics = topics
        self._sends = sends
        self._options = options

    def send(
        self,
        topic: str,
        body: bytes,
        tags: str,
        keys: tuple[str, ...],
        properties: dict[str, str],
        queue_id: int | None,
        timeout_s: float,
        by: str,
    ) -> SentMessage:
        begin = time.monotonic()
        self._check(topic, body, queue_id)
        own = _properties(tags, keys, properties)
        key = own[UNIQUE_KEY]
        fields = {
            "a": PRODUCER_GROUP,
            "b": topic,
            "c": topic,  # the template for a topic that is not there: so none is made
            "d": "0",
            "e": str(-1 if queue_id is None else queue_id),
            "f": "0",
            "g": str(int(time.time() * 1000)),
            "h": "0",
            "i": encode_properties(own),
            "j": "0",
            "k": "false",
            "m": "false",
        }
        future = self._sends.submit(fields, body)
        try:
            answer = future.result(timeout_s)
        except FutureTimeout:
            raise Unavailable(say("no_answer_in_time", seconds=round(timeout_s))) from None
        except RefusedRequest as refusal:
            raise InvalidInput("message", refusal.remark, refusal.code) from None
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT):
            remark = answer.remark or f"response code {answer.code}"
            if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
                raise Unavailable(remark)
            raise InvalidInput("message", remark, answer.code)
        ext = answer.ext_fields
        logger.info(
            "admin: test message sent topic=%s queue=%s offset=%s by=%s", topic, ext["queueId"], ext["queueOffset"], by
        )
        return SentMessage(
            status="SEND_OK" if answer.code == ResponseCode.SUCCESS else "FLUSH_DISK_TIMEOUT",
            topic=topic,
            queue_id=int(ext["queueId"]),
            queue_offset=int(ext["queueOffset"]),
            unique_id=key,
            offset_id=ext["msgId"],
            took_ms=(time.monotonic() - begin) * 1000,
        )

    def _check(self, topic: str, body: bytes, queue_id: int | None) -> None:
        config = self._topics.get(topic)
        if config is None:
            raise NotFound("topic", topic)
        if topic in NO_SEND_TOPICS:
            raise InvalidInput("topic", say("topic_kept"), ResponseCode.NO_PERMISSION)
        if not config.perm & PERM_WRITE or not config.write_queue_nums:
            raise InvalidInput("topic", say("topic_not_writable"), ResponseCode.NO_PERMISSION)
        if queue_id is not None and not 0 <= queue_id < config.write_queue_nums:
            last = config.write_queue_nums - 1
            raise InvalidInput("queue_id", say("out_of_range", field="queue_id", low=0, high=last))
        limit = self._options.config.store.max_message_size
        if not body:
            raise InvalidInput("body", say("body_missing"), ResponseCode.MESSAGE_ILLEGAL)
        if len(body) > limit:
            raise InvalidInput("body", say("body_too_long", size=len(body), limit=limit), ResponseCode.MESSAGE_ILLEGAL)


def _properties(tags: str, keys: tuple[str, ...], others: dict[str, str]) -> dict[str, str]:
    """What the message carries; InvalidInput names what it may not."""
    found: dict[str, str] = {UNIQUE_KEY: secrets.token_hex(16).upper()}
    if tags:
        _check_text("tags", tags)
        if any(sign in tags for sign in _NOT_IN_TAGS):
            raise InvalidInput("tags", say("bad_tag"))
        found[TAGS] = tags
    if keys:
        for key in keys:
            _check_text("keys", key)
            if not key or any(sign.isspace() for sign in key):
                raise InvalidInput("keys", say("bad_key"))
        found[KEYS] = " ".join(keys)
    for name, value in others.items():
        _check_text("properties", name)
        _check_text("properties", value)
        if not name or not value:
            raise InvalidInput("properties", say("bad_property"))
        if name in _OWN_PROPERTIES or name.startswith("__"):
            raise InvalidInput("properties", say("property_reserved", name=name[:64]))
        found[name] = value
    size = len(encode_properties(found).encode())
    if size > MAX_PROPERTIES_BYTES - 512:  # the broker adds its own
        raise InvalidInput("properties", say("properties_too_long", size=size))
    return found


def _check_text(field: str, text: str) -> None:
    if NAME_SEPARATOR in text or PAIR_SEPARATOR in text:
        raise InvalidInput(field, say("separator_inside"))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(field, say("no_unicode")) from None
