"""`Producer`: sends messages of one group."""

from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypedDict, Unpack

from .core.batches import by_size, encode_member, places
from .core.requests import TIMERS_SINCE
from .core.send_plan import Envelope, Sending
from .errors import ClientError, Closed, ForkedError, InvalidMessage, InvalidOption, SendError, TooMuchInFlight
from .message import Message, MessageQueue, SendResult
from .session import Session
from .shells.threads import Pending
from .shells.worker import Worker
from .wire import (
    DELAY_TIME_LEVEL,
    KEYS,
    MAX_PROPERTIES_BYTES,
    NO_SEND_TOPICS,
    PRODUCER_GROUP,
    SHARDING_KEY,
    SYS_COMPRESSED,
    SYS_PREPARED,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    TRANSACTION_PREPARED,
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
        core = session.core
        self._sending = Sending(core.directory, session.clock, core.faults, id(self) >> 4, retries, core.beat)
        self._callbacks = Worker("rocketbox-callbacks", session.shell.lock)
        # Guarded by _room.
        self._room = threading.Condition()
        self._in_flight = 0
        self._in_flight_bytes = 0

    @property
    def in_flight(self) -> int:
        """Number of messages that are neither confirmed nor failed, or whose callback has not returned."""
        return self._in_flight

    def send(
        self, message: Message | str, body: bytes | str | None = None, **options: Unpack[SendOptions]
    ) -> SendResult:
        """Send a message, `send("orders", "paid")` or `send(Message(...))`, and return its place.

        options: `SendOptions`. With a shard or a queue there is one attempt.

        Raises InvalidMessage, NoNameServer, NoRoute, Unsupported, Closed: nothing was sent; and SendError, with
        `maybe_stored` True if the message may be stored nevertheless.
        """
        return self._submit(*taken_apart(message, body, options)).result()

    def submit(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        callback: Callable[[SendResult | ClientError], None] | None = None,
        **options: Unpack[SendOptions],
    ) -> Pending[SendResult]:
        """Do the same without waiting for the answer: `result()` of the returned object waits, and raises.

        callback: called once with the result, or the error that `result()` raises, in a thread of this producer's, one
        message after the other; it must not wait for `flush`. A message is in flight until its callback has returned.

        This call waits only while the producer has as many messages in flight as allowed, and raises TooMuchInFlight if
        that lasts for the time-out. Raises InvalidMessage and Closed at once, and what `select` needs and cannot get.
        """
        return self._submit(*taken_apart(message, body, options), callback=callback)

    def send_many(self, messages: Iterable[Message], window: int = 256) -> Iterator[SendResult | ClientError]:
        """Send messages with up to `window` of them in flight; yield what became of each, in their order: its place, or
        its error.

        Messages are taken and sent while the results are iterated over; `list(producer.send_many(messages))` sends all.
        One that is not iterated to its end sends no more, and waits for what it has in flight when it is closed.
        Raises InvalidOption, Closed and ForkedError.
        """
        if window < 1:
            raise InvalidOption(f"window is 1 or more, not {window!r}.")
        return self._send_many(messages, window)

    def _send_many(self, messages: Iterable[Message], window: int) -> Iterator[SendResult | ClientError]:
        pending: deque[Pending[SendResult] | ClientError] = deque()
        try:
            for message in messages:
                try:
                    pending.append(self._submit(*taken_apart(message, None, {})))
                except (Closed, ForkedError):
                    raise
                except ClientError as error:
                    pending.append(error)
                if len(pending) >= window:
                    yield _outcome(pending.popleft())
            while pending:
                yield _outcome(pending.popleft())
        finally:
            for one in pending:
                _outcome(one)

    def send_batch(self, messages: Sequence[Message], timeout: float | None = None) -> list[SendResult]:
        """Send messages of one topic to one queue, in their order, in as few requests as their size allows; return
        their places. They are not compressed. timeout: seconds, for each request.

        Raises as `send`. If a request fails, the rest is not sent; a note of the error says how many messages are
        stored before it.
        """
        if not messages:
            raise InvalidMessage("A batch has a message at least.")
        first = messages[0]
        if any((one.topic, one.shard) != (first.topic, first.shard) for one in messages):
            raise InvalidMessage("The messages of a batch have one topic, and the same shard or none.")
        self._session.check_usable()
        seconds = timeout or self._session.timeout
        ids, members = [], []
        for message in messages:
            body = _body(message)
            if _waiting_time(message):
                raise InvalidMessage("A message of a batch has no delay.")
            ids.append(self._new_key())
            members.append(encode_member(body, _text(_properties(message, ids[-1]))))
        queue: MessageQueue | None = None
        found: list[SendResult] = []
        for together in by_size(members, MAX_MESSAGE_BYTES):
            key = self._new_key()
            text = _text({UNIQUE_KEY: key, WAIT_STORE: "true"})
            body = b"".join(together)
            envelope = Envelope(self.group, first.topic, body, text, 0, key, first.shard, queue, batch=True)
            try:
                sent = self._launch(envelope, seconds, self._session.clock.monotonic() + seconds).result()
            except ClientError as error:
                if found:
                    if isinstance(error, SendError):
                        error.maybe_stored = True
                    error.add_note(f"The first {len(found)} of the {len(messages)} messages are stored.")
                raise
            queue = sent.queue
            found += places(sent, ids[len(found) : len(found) + len(together)])
        return found

    def send_oneway(
        self, message: Message | str, body: bytes | str | None = None, **options: Unpack[SendOptions]
    ) -> None:
        """Send without an answer, so it stays unknown whether the message was stored. Raises as `send` if there is no
        route or no connection."""
        made, where = taken_apart(message, body, options)
        self._session.check_usable()
        deadline = self._session.clock.monotonic() + (where.timeout or self._session.timeout)
        envelope = self._envelope(made, self._queue(made, where, deadline))
        self._register()
        self._session.wait(self._sending.tell(envelope, deadline))

    def recall(self, sent: SendResult, timeout: float | None = None) -> None:
        """Take back a message that was sent with `delay` or `at` and is not delivered yet.

        Raises InvalidOption for another message; NotPermitted where brokers forbid it (recallMessageEnable);
        RequestRefused, which is also for one that was delivered; NoNameServer, NoRoute, BrokerAway, RequestTimeout: it
        is not known whether it was taken back.
        """
        self._session.check_usable()
        if sent.recall_handle is None:
            raise InvalidOption(
                f"The message {sent.message_id} has no recall_handle: it was not sent with delay or at, or by a broker "
                "older than 5.3.2."
            )
        self._register()
        deadline = self._session.clock.monotonic() + (timeout or self._session.timeout)
        self._session.wait(self._sending.recall(self.group, sent, sent.recall_handle, deadline))

    def flush(self, timeout: float | None = None) -> int:
        """Wait until nothing is in flight; return how many messages still are after `timeout` seconds. Raises
        ForkedError: they are the parent's."""
        self._session.check_process()
        with self._room:
            self._room.wait_for(lambda: not self._in_flight, timeout)
            return self._in_flight

    def retire(self, deadline: float) -> None:
        """Wait for what is in flight. For `Client.close`, as is `stop`."""
        self.flush(max(0.0, deadline - self._session.clock.monotonic()))

    def stop(self, deadline: float) -> tuple[str, ...]:
        """Wait for the callbacks of what has just failed; return the names of threads that did not end."""
        ended = self._callbacks.join(deadline - self._session.clock.monotonic())
        return () if ended else (self._callbacks.name,)

    def _submit(
        self,
        message: Message,
        where: Where,
        callback: Callable[[SendResult | ClientError], None] | None = None,
        half: bool = False,
    ) -> Pending[SendResult]:
        self._session.check_usable()
        seconds = where.timeout or self._session.timeout
        deadline = self._session.clock.monotonic() + seconds
        envelope = self._envelope(message, self._queue(message, where, deadline), half)
        return self._launch(envelope, seconds, deadline, callback)

    def _launch(
        self,
        envelope: Envelope,
        seconds: float,
        deadline: float,
        callback: Callable[[SendResult | ClientError], None] | None = None,
    ) -> Pending[SendResult]:
        size = len(envelope.body)
        with self._room:
            if not self._room.wait_for(lambda: self._has_room(size), seconds):
                raise TooMuchInFlight(
                    f"{self._in_flight} messages of {self._in_flight_bytes} bytes are unconfirmed, and stayed so for "
                    f"{seconds:g} s: brokers are slower than this producer. The message was not sent."
                )
            self._in_flight += 1
            self._in_flight_bytes += size
        pending: Pending[SendResult] = Pending()

        def landed() -> None:
            with self._room:
                self._in_flight -= 1
                self._in_flight_bytes -= size
                self._room.notify_all()

        def done(result: Any, error: BaseException | None) -> None:
            pending.complete(result, error)
            if callback is None:
                landed()
                return
            with self._session.shell.lock:
                self._callbacks.put_locked(partial(_call_back, callback, result if error is None else error, landed))

        try:
            self._register()
        except BaseException as error:
            landed()
            pending.complete(None, error)
            raise
        self._session.shell.run(self._sending.send(envelope, deadline), done)
        return pending

    def _queue(self, message: Message, where: Where, deadline: float) -> MessageQueue | None:
        """Return the queue that the caller chose, here, in its thread; None without a choice."""
        if where.select is None:
            return where.queue
        if where.queue is not None or message.shard is not None:
            raise InvalidMessage("One of shard, queue and select chooses the queue.")
        _check_topic(message.topic)
        self._register()
        return where.select(self._session.wait(self._session.core.directory.publish_queues(message.topic, deadline)))

    def _register(self) -> None:
        """Have heartbeats name this group from now on."""
        self._session.begin()
        with self._session.shell.lock:
            self._session.core.producers.add(self.group)

    def _has_room(self, size: int) -> bool:
        if not self._in_flight:
            return True
        return self._in_flight < self._most and self._in_flight_bytes + size <= self._most_bytes

    def _envelope(self, message: Message, queue: MessageQueue | None, half: bool = False) -> Envelope:
        """Check and pack a message. half: True for the half message of a transaction. Raises InvalidMessage."""
        topic = message.topic
        body = _body(message)
        if queue is not None and queue.topic != topic:
            raise InvalidMessage(f"The queue {queue} is of another topic than the message, {topic}.")
        sys_flag = SYS_PREPARED if half else 0
        if len(body) >= self._compress_over > 0:
            packed = zlib.compress(body, _COMPRESS_LEVEL)
            if len(packed) < len(body):
                body, sys_flag = packed, sys_flag | _ZLIB
        message_id = self._new_key()
        text = _text(_properties(message, message_id, self.group if half else None))
        since = TIMERS_SINCE if message.delay is not None or message.at is not None else 0
        return Envelope(self.group, topic, body, text, sys_flag, message_id, message.shard, queue, since)

    def _new_key(self) -> str:
        with self._session.shell.lock:
            return self._session.keys.next(self._session.clock.wall_ms())


@dataclass(frozen=True, slots=True)
class Where:
    """The options of a send that are not its message's."""

    queue: MessageQueue | None
    select: Callable[[Sequence[MessageQueue]], MessageQueue] | None
    timeout: float | None


def taken_apart(message: Message | str, body: bytes | str | None, options: SendOptions) -> tuple[Message, Where]:
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    where = Where(given.pop("queue", None), given.pop("select", None), given.pop("timeout", None))
    if isinstance(message, str):
        if body is None:
            raise InvalidMessage(f"A message for {message} needs a body.")
        return Message(message, body, **given), where
    if body is not None or given:
        raise InvalidMessage("A Message has its own fields; give the arguments to it.")
    return message, where


def _outcome(pending: Pending[SendResult] | ClientError) -> SendResult | ClientError:
    if isinstance(pending, ClientError):
        return pending
    try:
        return pending.result()
    except ClientError as error:
        return error


def _call_back(callback: Callable[[SendResult | ClientError], None], outcome: Any, landed: Callable[[], None]) -> None:
    try:
        callback(outcome)
    finally:
        landed()


def _body(message: Message) -> bytes:
    """Return the body, of a message that may be sent as far as its topic and its body go. Raises InvalidMessage."""
    _check_topic(message.topic)
    try:  # bytes(17) would be 17 zeros
        body = message.body.encode() if isinstance(message.body, str) else bytes(memoryview(message.body))
    except (TypeError, UnicodeEncodeError) as error:
        raise InvalidMessage(f"A body is bytes, or text that UTF-8 can hold: {error}.") from None
    if not 0 < len(body) <= MAX_MESSAGE_BYTES:
        raise InvalidMessage(f"A body has 1 to {MAX_MESSAGE_BYTES} bytes, and this one has {len(body)}.")
    return body


def _text(properties: dict[str, str]) -> str:
    """Return the text of properties. Raises InvalidMessage."""
    text = encode_properties(properties)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"A property is no text that can be sent: {error}.") from None
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidMessage(f"Properties, keys and tags take {size} bytes, and {MAX_PROPERTIES_BYTES} are allowed.")
    return text


def _check_topic(topic: str) -> None:
    why = topic_name_error(topic)
    if why is None and topic in NO_SEND_TOPICS:
        why = "It is one of the broker's own."
    if why is not None:
        raise InvalidMessage(f"A message cannot be sent to the topic {topic[:300]!r}: {why}")


def _properties(message: Message, message_id: str, half_of: str | None = None) -> dict[str, str]:
    """Return the properties to send: RocketMQ's in Java's order, then the message's own. half_of: for a half message,
    the group of its producer. Raises InvalidMessage."""
    found = _waiting_time(message)
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


def _waiting_time(message: Message) -> dict[str, str]:
    """Return the property that says when the message is delivered; none for at once. Raises InvalidMessage."""
    level, delay, at = message.delay_level, message.delay, message.at
    if sum(one is not None for one in (level, delay, at)) > 1:
        raise InvalidMessage("A message has one of delay_level, delay and at.")
    if level is not None:
        if level < 0:
            raise InvalidMessage(f"A delay level is 0 (none) or more, not {level}.")
        return {DELAY_TIME_LEVEL: str(level)}
    if delay is not None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if not 0 <= seconds < _MOST_DELAY_S:
            raise InvalidMessage(f"A delay is 0 seconds or more, not {delay!r}.")
        return {TIMER_DELAY_MS: str(round(seconds * 1000))}
    return {} if at is None else {TIMER_DELIVER_MS: str(round(at.timestamp() * 1000))}
