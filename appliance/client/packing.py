"""Packs messages for their way: checks what users give, and makes bodies and properties of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from .core.requests import TIMERS_SINCE
from .core.send_plan import Envelope
from .errors import InvalidMessage
from .message import Message, MessageQueue
from .options import ProducerOptions
from .wire import (
    DELAY_TIME_LEVEL,
    KEYS,
    MAX_PROPERTIES_BYTES,
    NO_SEND_TOPICS,
    PRODUCER_GROUP,
    SHARDING_KEY,
    SYS_PREPARED,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    WAIT_STORE,
    RequestCode,
    encode_properties,
    topic_name_error,
)

if TYPE_CHECKING:
    from typing import Unpack

#: Largest message of brokers by default. Brokers refuse larger ones themselves; Java's client does, too.
MAX_MESSAGE_BYTES = 4 << 20

#: Names of properties that clients and brokers use themselves: 5.3.3's `MessageConst.STRING_HASH_SET`.
RESERVED = frozenset(
    """TRACE_ON MSG_REGION KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET
    BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME UNIQ_KEY MAX_RECONSUME_TIMES
    CONSUME_START_TIME INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE
    INNER_MULTI_QUEUE_OFFSET __SHARDINGKEY""".split()
)


#: More is no time: the broker refuses what is beyond its own limit, three days unless told otherwise.
_MOST_DELAY_S = 1e12


class SendOptions(TypedDict, total=False):
    """What a send may be given by name; None is as if it were left out.

    From tags to at: the fields of `Message`, for a send that is given a topic and a body. queue: exactly this one.
    select: chooses among the topic's queues, given in Java's order, in the caller's thread; what it raises is raised.
    timeout: seconds, for all attempts; the client's without it.
    """

    tags: str | None
    keys: Sequence[str]
    properties: Mapping[str, str] | None
    shard: str | int | None
    delay_level: int | None
    delay: timedelta | float | None
    at: datetime | None
    queue: MessageQueue | None
    select: Callable[[Sequence[MessageQueue]], MessageQueue] | None
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Where:
    """The options of a send that are not its message's."""

    queue: MessageQueue | None
    select: Callable[[Sequence[MessageQueue]], MessageQueue] | None
    timeout: float | None


def taken_apart(message: Message | str, body: bytes | str | None, options: SendOptions) -> tuple[Message, Where]:
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    where = Where(given.pop("queue", None), given.pop("select", None), given.pop("timeout", None))
    if where.timeout is not None and not (isinstance(where.timeout, int | float) and where.timeout >= 0):
        raise InvalidMessage(f"timeout is seconds, not {where.timeout!r}.")
    if where.queue is not None and not isinstance(where.queue, MessageQueue):
        raise InvalidMessage(f"queue is a MessageQueue, not {where.queue!r}.")
    if isinstance(message, str):
        if body is None:
            raise InvalidMessage(f"A message for {message} needs a body.")
        return Message(message, body, **given), where
    if not isinstance(message, Message):
        raise InvalidMessage(f"A send is given a topic, which is text, and a body, or a Message, not {message!r}.")
    if body is not None or given:
        raise InvalidMessage("A Message has its own fields; give the arguments to it.")
    return message, where


def check_select(message: Message, where: Where) -> None:
    """Raise InvalidMessage if something else than `select`, which is given, chooses the queue, too."""
    if where.queue is not None or message.shard is not None:
        raise InvalidMessage("One of shard, queue and select chooses the queue.")


class Packing(TypedDict, total=False):
    """half: True for the half message of a transaction. own: RocketMQ's properties of a request or a reply. code: of
    the request, if it is no usual send."""

    half: bool
    own: Mapping[str, str] | None
    code: int


def envelope_of(
    group: str,
    message: Message,
    message_id: str,
    queue: MessageQueue | None,
    options: ProducerOptions,
    **packing: Unpack[Packing],
) -> Envelope:
    """Check and pack a message. options: the producer's. Raises InvalidMessage."""
    half, own = packing.get("half", False), packing.get("own")
    topic = message.topic
    body = body_of(message)
    if queue is not None and queue.topic != topic:
        raise InvalidMessage(f"The queue {queue} is of another topic than the message, {topic}.")
    body, sys_flag = options.packed(body)
    if half:
        sys_flag |= SYS_PREPARED
    code = packing.get("code", RequestCode.SEND_MESSAGE_V2)
    properties = (dict(own) if own else {}) | properties_of(message, message_id, group if half else None)
    if code == RequestCode.SEND_REPLY_MESSAGE_V2:
        del properties[WAIT_STORE]  # Java's replies have none
    text = text_of(properties)
    since = TIMERS_SINCE if message.delay is not None or message.at is not None else 0
    return Envelope(group, topic, body, text, sys_flag, message_id, message.shard, queue, since, code)


def check_message(message: Message, queue: MessageQueue | None = None) -> None:
    """Raise InvalidMessage if no broker would take the message."""
    envelope_of("", message, "0" * 32, queue, ProducerOptions(compress=None))


def body_of(message: Message) -> bytes:
    """Return the body, of a message that may be sent as far as its topic and its body go. Raises InvalidMessage."""
    check_topic(message.topic)
    try:  # bytes(17) would be 17 zeros
        body = message.body.encode() if isinstance(message.body, str) else bytes(memoryview(message.body))
    except (TypeError, UnicodeEncodeError) as error:
        raise InvalidMessage(f"A body is bytes, or text that UTF-8 can hold: {error}.") from None
    if not 0 < len(body) <= MAX_MESSAGE_BYTES:
        raise InvalidMessage(f"A body has 1 to {MAX_MESSAGE_BYTES} bytes, and this one has {len(body)}.")
    return body


def text_of(properties: dict[str, str]) -> str:
    """Return the text of properties. Raises InvalidMessage."""
    text = encode_properties(properties)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"A property is no text that can be sent: {error}.") from None
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidMessage(f"Properties, keys and tags take {size} bytes, and {MAX_PROPERTIES_BYTES} are allowed.")
    return text


def check_topic(topic: str) -> None:
    why = topic_name_error(topic)
    if why is None and topic in NO_SEND_TOPICS:
        why = "It is one of the broker's own."
    if why is not None:
        raise InvalidMessage(f"A message cannot be sent to the topic {topic[:300]!r}: {why}")


def properties_of(message: Message, message_id: str, half_of: str | None = None) -> dict[str, str]:
    """Return the properties to send: RocketMQ's in Java's order, then the message's own. half_of: for a half message,
    the group of its producer. Raises InvalidMessage."""
    found = waiting_time(message)
    if half_of is not None and found:
        raise InvalidMessage("A message of a transaction has no delay: it is delivered when the transaction commits.")
    keys = [message.keys] if isinstance(message.keys, str) else list(message.keys)
    if keys:
        if any(not key or key.split() != [key] for key in keys):
            raise InvalidMessage(f"Keys are words without blanks, and these are not: {keys!r}.")
        found[KEYS] = " ".join(keys)
    if half_of is not None:
        found[TRANSACTION_PREPARED] = "true"
    found[UNIQUE_KEY] = message_id
    found[WAIT_STORE] = "true"
    if half_of is not None:
        found[PRODUCER_GROUP] = half_of
    if message.tags is not None and not isinstance(message.tags, str):
        raise InvalidMessage(f"tags is one tag, a text, not {message.tags!r}.")
    if message.shard is not None and not isinstance(message.shard, str | int):
        raise InvalidMessage(f"A shard is a text or a number, not {message.shard!r}.")
    if message.tags:
        found[TAGS] = message.tags
    if message.shard is not None:
        found[SHARDING_KEY] = str(message.shard)
    for name, value in message.properties.items():
        if name in RESERVED:
            raise InvalidMessage(f"The property {name} is RocketMQ's own; choose another name.")
        if not isinstance(value, str) or not name.strip() or not value.strip():
            raise InvalidMessage(
                f"Properties have a name and a text that are not blank, and {name!r}: {value!r} has not."
            )
        found[name] = value
    for name, value in found.items():
        if "\x01" in name + value or "\x02" in name + value:
            raise InvalidMessage(f"{name!r} holds one of the characters 1 and 2, which separate properties.")
    return found


def waiting_time(message: Message) -> dict[str, str]:
    """Return the property that says when the message is delivered; none for at once. Raises InvalidMessage."""
    level, delay, at = message.delay_level, message.delay, message.at
    if sum(one is not None for one in (level, delay, at)) > 1:
        raise InvalidMessage("A message has one of delay_level, delay and at.")
    if level is not None:
        if not isinstance(level, int) or level < 0:
            raise InvalidMessage(f"A delay level is 0 (none) or more, not {level!r}.")
        return {DELAY_TIME_LEVEL: str(level)}
    if delay is not None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if not isinstance(seconds, int | float) or not 0 <= seconds < _MOST_DELAY_S:
            raise InvalidMessage(f"A delay is 0 seconds or more, not {delay!r}.")
        return {TIMER_DELAY_MS: str(round(seconds * 1000))}
    if at is not None and not isinstance(at, datetime):
        raise InvalidMessage(f"at is a datetime, not {at!r}.")
    return {} if at is None else {TIMER_DELIVER_MS: str(round(at.timestamp() * 1000))}
