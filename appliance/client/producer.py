"""`Producer`: sends messages of one group."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from .core.send_plan import Envelope, Sending
from .errors import InvalidMessage, InvalidOption, TooMuchInFlight
from .message import Message, MessageQueue, SendResult
from .session import Session
from .shells.threads import Pending
from .wire import (
    DELAY_TIME_LEVEL,
    KEYS,
    MAX_PROPERTIES_BYTES,
    NO_SEND_TOPICS,
    SHARDING_KEY,
    SYS_COMPRESSED,
    TAGS,
    UNIQUE_KEY,
    WAIT_STORE,
    encode_properties,
    topic_name_error,
)

#: Largest message of brokers by default. Brokers refuse larger ones themselves; Java's client does, too.
MAX_MESSAGE_BYTES = 4 << 20
_COMPRESS_LEVEL = 5
#: System flag for compressed by zlib: the type bits are 5.x's, and older readers use the first bit only.
_ZLIB = SYS_COMPRESSED | 0x300

#: Names of properties that clients and brokers use themselves: 5.3.3's `MessageConst.STRING_HASH_SET`.
RESERVED = frozenset(
    """TRACE_ON MSG_REGION KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET
    BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME UNIQ_KEY MAX_RECONSUME_TIMES
    CONSUME_START_TIME INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE
    INNER_MULTI_QUEUE_OFFSET __SHARDINGKEY""".split()
)


class Producer:
    """Made by `Client.producer`. Threads may share it."""

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        retries: int,
        max_in_flight: int,
        max_in_flight_bytes: int,
        compress_over: int,
    ) -> None:
        if retries < 0 or max_in_flight < 1 or max_in_flight_bytes < 1 or compress_over < 0:
            raise InvalidOption("retries and compress_over are 0 or more, max_in_flight and its bytes 1 or more.")
        # Constant after construction.
        self.group = group
        self._session = session
        self._most = max_in_flight
        self._most_bytes = max_in_flight_bytes
        self._compress_over = compress_over
        self._sending = Sending(session.core.directory, session.clock, session.core.faults, id(self) >> 4, retries)
        # Guarded by _room.
        self._room = threading.Condition()
        self._in_flight = 0
        self._in_flight_bytes = 0

    @property
    def in_flight(self) -> int:
        """Number of messages that are neither confirmed nor failed."""
        return self._in_flight

    def send(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        shard: str | int | None = None,
        queue: MessageQueue | None = None,
        delay_level: int | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message, `send("orders", "paid")` or `send(Message(...))`, and return its place.

        The arguments are the fields of `Message`. queue: exactly this one. With a shard or a queue there is one
        attempt. timeout: seconds, for all attempts; the client's without it.

        Raises InvalidMessage, NoNameServer, NoRoute, Closed: nothing was sent; and SendError, with `maybe_stored` True
        if the message may be stored nevertheless.
        """
        made = _message(message, body, tags, keys, properties, shard, delay_level)
        return self._submit(made, queue, timeout).result()

    def submit(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        shard: str | int | None = None,
        queue: MessageQueue | None = None,
        delay_level: int | None = None,
        timeout: float | None = None,
    ) -> Pending[SendResult]:
        """Do the same without waiting for the answer: `result()` of the returned object waits, and raises.

        This call waits only while the producer has as many messages in flight as allowed, and raises TooMuchInFlight if
        that lasts for the time-out. Raises InvalidMessage and Closed at once.
        """
        made = _message(message, body, tags, keys, properties, shard, delay_level)
        return self._submit(made, queue, timeout)

    def send_oneway(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        shard: str | int | None = None,
        queue: MessageQueue | None = None,
        delay_level: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send without an answer, so it stays unknown whether the message was stored. Raises as `send` if there is no
        route or no connection."""
        made = _message(message, body, tags, keys, properties, shard, delay_level)
        self._session.check_usable()
        envelope = self._envelope(made, queue)
        self._register()
        deadline = self._session.clock.monotonic() + (timeout or self._session.timeout)
        self._session.wait(self._sending.tell(envelope, deadline))

    def flush(self, timeout: float | None = None) -> int:
        """Wait until nothing is in flight; return how many messages still are after `timeout` seconds."""
        with self._room:
            self._room.wait_for(lambda: not self._in_flight, timeout)
            return self._in_flight

    def _submit(self, message: Message, queue: MessageQueue | None, timeout: float | None) -> Pending[SendResult]:
        self._session.check_usable()
        envelope = self._envelope(message, queue)
        size = len(envelope.body)
        seconds = timeout or self._session.timeout
        deadline = self._session.clock.monotonic() + seconds
        with self._room:
            if not self._room.wait_for(lambda: self._has_room(size), seconds):
                raise TooMuchInFlight(
                    f"{self._in_flight} messages of {self._in_flight_bytes} bytes are unconfirmed, and stayed so for "
                    f"{seconds:g} s: brokers are slower than this producer. The message was not sent."
                )
            self._in_flight += 1
            self._in_flight_bytes += size
        pending: Pending[SendResult] = Pending()

        def done(result: Any, error: BaseException | None) -> None:
            with self._room:
                self._in_flight -= 1
                self._in_flight_bytes -= size
                self._room.notify_all()
            pending.complete(result, error)

        try:
            self._register()
        except BaseException as error:
            done(None, error)
            raise
        self._session.shell.run(self._sending.send(envelope, deadline), done)
        return pending

    def _register(self) -> None:
        """Have heartbeats name this group from now on."""
        self._session.begin()
        with self._session.shell.lock:
            self._session.core.producers.add(self.group)

    def _has_room(self, size: int) -> bool:
        if not self._in_flight:
            return True
        return self._in_flight < self._most and self._in_flight_bytes + size <= self._most_bytes

    def _envelope(self, message: Message, queue: MessageQueue | None) -> Envelope:
        """Check and pack a message. Raises InvalidMessage."""
        topic = message.topic
        why = topic_name_error(topic)
        if why is None and topic in NO_SEND_TOPICS:
            why = "It is one of the broker's own."
        if why is not None:
            raise InvalidMessage(f"A message cannot be sent to the topic {topic[:300]!r}: {why}")
        body = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
        if not 0 < len(body) <= MAX_MESSAGE_BYTES:
            raise InvalidMessage(f"A body has 1 to {MAX_MESSAGE_BYTES} bytes, and this one has {len(body)}.")
        if queue is not None and queue.topic != topic:
            raise InvalidMessage(f"The queue {queue} is of another topic than the message, {topic}.")
        sys_flag = 0
        if len(body) >= self._compress_over > 0:
            packed = zlib.compress(body, _COMPRESS_LEVEL)
            if len(packed) < len(body):
                body, sys_flag = packed, _ZLIB
        with self._session.shell.lock:
            message_id = self._session.keys.next(self._session.clock.wall_ms())
        text = encode_properties(_properties(message, message_id))
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidMessage(f"A property is no text that can be sent: {error}.") from None
        if size > MAX_PROPERTIES_BYTES:
            raise InvalidMessage(
                f"Properties, keys and tags take {size} bytes, and {MAX_PROPERTIES_BYTES} are allowed."
            )
        return Envelope(self.group, topic, body, text, sys_flag, message_id, message.shard, queue)


def _message(
    message: Message | str,
    body: bytes | str | None,
    tags: str | None,
    keys: Sequence[str],
    properties: Mapping[str, str] | None,
    shard: str | int | None,
    delay_level: int | None,
) -> Message:
    if isinstance(message, str):
        if body is None:
            raise InvalidMessage(f"A message for {message} needs a body.")
        return Message(message, body, tags, keys, properties or {}, shard, delay_level)
    if body is not None or tags or keys or properties or shard is not None or delay_level is not None:
        raise InvalidMessage("A Message has its own fields; give the arguments to it.")
    return message


def _properties(message: Message, message_id: str) -> dict[str, str]:
    """Return the properties to send: RocketMQ's in Java's order, then the message's own. Raises InvalidMessage."""
    found = {}
    keys = [message.keys] if isinstance(message.keys, str) else list(message.keys)
    if keys:
        if any(not key or key.split() != [key] for key in keys):
            raise InvalidMessage(f"Keys are words without blanks, and these are not: {keys!r}.")
        found[KEYS] = " ".join(keys)
    found[UNIQUE_KEY] = message_id
    found[WAIT_STORE] = "true"
    if message.tags:
        found[TAGS] = message.tags
    if message.shard is not None:
        found[SHARDING_KEY] = str(message.shard)
    if message.delay_level is not None:
        if message.delay_level < 0:
            raise InvalidMessage(f"A delay level is 0 (none) or more, not {message.delay_level}.")
        found[DELAY_TIME_LEVEL] = str(message.delay_level)
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
