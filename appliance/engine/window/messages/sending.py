"""Sends test messages: checks them, then appends them as the broker's own messages."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout

from ...broker.delays.levels import Place, make_wait, queue_of_level
from ...broker.sending.own_appends import OwnMessage
from ...broker.sending.sending import Sending
from ...broker.topic_config import TopicConfig
from ...broker.topics import TopicConfigManager
from ...broker.transactions.half import HALF_QUEUE, make_half
from ...broker.transactions.half_appends import HalfAppends
from ...errors import InvalidInput, NotFound, RefusedRequest, Unavailable
from ...protocol.codes import ResponseCode
from ...protocol.message_id import encode_offset_id
from ...protocol.names import HALF_TOPIC, NO_SEND_TOPICS, PERM_WRITE, SCHEDULE_TOPIC, is_legal_group
from ...protocol.properties import (
    KEYS,
    MAX_PROPERTIES_BYTES,
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    PRODUCER_GROUP,
    SHARDING_KEY,
    TAGS,
    TIMER_DELIVER_MS,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    encode_properties,
    java_hash,
)
from ..options import Options
from ..refusals import require_within
from ..sentences import say
from .snapshots import SentMessage

logger = logging.getLogger(__name__)

#: Clients' names of the results of a message that was stored, but not flushed or replicated in time.
_STATUS = {
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
}
#: Characters that a tag must not have: it could not be subscribed to.
NOT_IN_TAGS = ("|", " ")
#: Properties that have a meaning for the broker or the clients; a test message must not have them.
OWN_PROPERTIES = frozenset(
    "KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID "
    "ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY "
    "MAX_RECONSUME_TIMES CONSUME_START_TIME TRAN_PREPARED_QUEUE_OFFSET TRANSACTION_CHECK_TIMES "
    "CHECK_IMMUNITY_TIME_IN_SECONDS INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME "
    "CLUSTER MSG_TYPE POP_CK INNER_NUM DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID".split()
)
#: Prefixes of such names: Apache's hidden ones, those of timed messages, and RocketBox's. They record events that did
#: not happen to this message; with TIMER_OUT_MS, for example, it would not wait for its time.
OWN_PREFIXES = ("__", "TIMER_", "ROCKETBOX_")


class TestSender:
    """Any thread; waits in the caller's."""

    #: Keeps pytest from taking this class for a test.
    __test__ = False

    def __init__(
        self,
        topics: TopicConfigManager,
        sending: Sending,
        halves: HalfAppends,
        store_host: bytes,
        options: Options,
    ) -> None:
        # Constant after construction.
        self._topics = topics
        self._appends = sending.appends
        self._properties = sending.properties
        self._store_host = store_host
        self._options = options
        self._levels = sending.levels
        self._halves = halves
        self._places = sending.places

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str = "",
        keys: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        delay_level: int = 0,
        deliver_at_ms: int | None = None,
        half_of: str = "",
        sharding_key: str = "",
        timeout_s: float = 10.0,
        by: str = "",
    ) -> SentMessage:
        """Send one message on the same path as a client's; returns once it is published (durable in sync flush).

        Blocks up to `timeout_s`. queue_id None: the broker picks one. delay_level: one of `messageDelayLevel`, 0 for
        none. deliver_at_ms: a delivery time instead, wall ms; a time that has passed means now. With either, the result
        has the place where the message waits. half_of: a producer group; the message becomes a half message of it, and
        its transaction is left open on purpose: the broker checks it with the group's producers. sharding_key: messages
        with the same key go to the same queue, the one that the clients' SelectMessageQueueByHash chooses; not together
        with queue_id. NotFound (topic), InvalidInput, Unavailable if the log is read-only, too many sends are under
        way, or the time is over (the message may have been stored then).
        """
        begin = time.monotonic()
        queues = self._check(topic, body, queue_id)
        own = _properties(tags, tuple(keys), dict(properties or {}), sharding_key) | self._properties.added
        if sharding_key:
            if queue_id is not None:
                raise InvalidInput("sharding_key", say("queue_or_key"))
            queue_id = abs(java_hash(sharding_key)) % queues  # as the clients' SelectMessageQueueByHash
        place = Place(topic, secrets.randbelow(queues) if queue_id is None else queue_id)
        require_within("delay_level", delay_level, 0, self._levels.highest)
        if delay_level and deliver_at_ms is not None:
            raise InvalidInput("deliver_at_ms", say("level_or_time"))
        if half_of:
            self._make_half(own, half_of, delay_level > 0 or deliver_at_ms is not None, place)
            place = Place(HALF_TOPIC, HALF_QUEUE)
        elif delay_level:
            make_wait(own, delay_level, place)
            place = Place(SCHEDULE_TOPIC, queue_of_level(delay_level))
        elif deliver_at_ms is not None:
            place = self._at_a_time(own, place, deliver_at_ms)
        message = OwnMessage(
            place.topic,
            place.queue_id,
            body,
            encode_properties(own),
            own[UNIQUE_KEY],
            born_ms=int(time.time() * 1000),
        )
        try:
            if half_of:
                outcome = self._halves.append(message, timeout_s)
            else:
                [outcome] = self._appends.submit((message,)).result(timeout_s)
        except FutureTimeout:
            raise Unavailable(say("no_answer_in_time", seconds=round(timeout_s))) from None
        if outcome.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            raise Unavailable(outcome.reason)
        if not outcome.physical_offsets:
            raise InvalidInput("message", outcome.reason, outcome.code)
        logger.info(
            "admin: test message sent topic=%s queue=%d offset=%d by=%s",
            topic,
            outcome.queue_id,
            outcome.queue_offset,
            by,
        )
        return SentMessage(
            status=_STATUS.get(outcome.code, "SEND_OK"),
            topic=place.topic,
            queue_id=outcome.queue_id,
            queue_offset=outcome.queue_offset,
            unique_id=outcome.unique_key,
            offset_id=encode_offset_id(self._store_host, outcome.physical_offsets[0]),
            took_ms=(time.monotonic() - begin) * 1000,
        )

    def _make_half(self, own: dict[str, str], group: str, waits: bool, target: Place) -> None:
        """Set the properties of a half message of this producer group."""
        if waits:
            raise InvalidInput("half_of", say("half_no_delay"))
        if not is_legal_group(group):
            raise InvalidInput("half_of", say("half_bad_group"))
        if self._options.config.broker.reject_transaction_message:
            raise InvalidInput("half_of", say("half_rejected"), ResponseCode.NO_PERMISSION)
        own[TRANSACTION_PREPARED] = "true"
        own[PRODUCER_GROUP] = group
        make_half(own, target)

    def _at_a_time(self, own: dict[str, str], place: Place, deliver_at_ms: int) -> Place:
        """Return the place where the message waits until then; `place` itself if that time has passed."""
        own[TIMER_DELIVER_MS] = str(deliver_at_ms)
        try:
            waits = self._places.place_of(own, place)
        except RefusedRequest as refusal:
            raise InvalidInput("deliver_at_ms", refusal.remark, refusal.code) from None
        return place if waits is None else waits.place

    def _check(self, topic: str, body: bytes, queue_id: int | None) -> int:
        """Return the number of write queues; raises AdminError if the message cannot be sent."""
        config = writable(self._topics, topic)
        if config.order and not self._options.config.broker.broker_permission & PERM_WRITE:  # as a producer's
            raise InvalidInput("topic", say("topic_not_writable"), ResponseCode.NO_PERMISSION)
        if queue_id is not None and not 0 <= queue_id < config.write_queue_nums:
            last = config.write_queue_nums - 1
            raise InvalidInput("queue_id", say("out_of_range", field="queue_id", low=0, high=last))
        limit = self._options.config.store.max_message_size
        if not body:
            raise InvalidInput("body", say("body_missing"), ResponseCode.MESSAGE_ILLEGAL)
        if len(body) > limit:
            raise InvalidInput("body", say("body_too_long", size=len(body), limit=limit), ResponseCode.MESSAGE_ILLEGAL)
        return config.write_queue_nums


def writable(topics: TopicConfigManager, topic: str) -> TopicConfig:
    """Return the settings of a topic. Raises AdminError if it accepts no messages."""
    config = topics.get(topic)
    if config is None:
        raise NotFound("topic", topic)
    if topic in NO_SEND_TOPICS:
        raise InvalidInput("topic", say("topic_kept"), ResponseCode.NO_PERMISSION)
    if not config.perm & PERM_WRITE or not config.write_queue_nums:
        raise InvalidInput("topic", say("topic_not_writable"), ResponseCode.NO_PERMISSION)
    return config


def may_be_set(name: str) -> bool:
    """True if a sender may set this property, because it has no meaning for the broker or the clients."""
    return name not in OWN_PROPERTIES and not name.startswith(OWN_PREFIXES)


def _properties(tags: str, keys: tuple[str, ...], others: dict[str, str], sharding_key: str) -> dict[str, str]:
    """Return the message's properties; InvalidInput names the one that is not allowed."""
    found: dict[str, str] = {UNIQUE_KEY: secrets.token_hex(16).upper()}
    if sharding_key:
        check_text("sharding_key", sharding_key)
        found[SHARDING_KEY] = sharding_key
    if tags:
        check_text("tags", tags)
        if any(sign in tags for sign in NOT_IN_TAGS):
            raise InvalidInput("tags", say("bad_tag"))
        found[TAGS] = tags
    if keys:
        for key in keys:
            check_text("keys", key)
            if not key or any(sign.isspace() for sign in key):
                raise InvalidInput("keys", say("bad_key"))
        found[KEYS] = " ".join(keys)
    for name, value in others.items():
        check_text("properties", name)
        check_text("properties", value)
        if not name or not value:
            raise InvalidInput("properties", say("bad_property"))
        if not may_be_set(name):
            raise InvalidInput("properties", say("property_reserved", name=name[:64]))
        found[name] = value
    size = len(encode_properties(found).encode())
    if size > MAX_PROPERTIES_BYTES - 512:  # the broker adds its own
        raise InvalidInput("properties", say("properties_too_long", size=size))
    return found


def check_text(field: str, text: str) -> None:
    if NAME_SEPARATOR in text or PAIR_SEPARATOR in text:
        raise InvalidInput(field, say("separator_inside"))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(field, say("no_unicode")) from None
