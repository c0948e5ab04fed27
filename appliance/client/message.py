"""Messages, their places and results: values whose only behaviour is to decode themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from .errors import BadAnswer
from .wire import (
    KEYS,
    RETRY_PREFIX,
    RETRY_TOPIC,
    TAGS,
    UNIQUE_KEY,
    Record,
    Undecodable,
    compression_of,
    decode_properties,
    decompress,
    encode_host,
    encode_offset_id,
    read_plain_json,
)

#: Largest size of a decompressed body: 16 times the largest message (4 MiB) that brokers accept by default.
MAX_BODY_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic, on one broker. They sort as Java's clients sort them."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send.

    body: text is sent as UTF-8. tags: one tag, by which consumers filter. keys: business keys, by which the message is
    found; none contains a blank. shard: messages of one shard go to one queue and stay in order (a number: as Java's
    Long). At most one of: delay_level - number of the broker's `messageDelayLevel` to wait, from 1 on (3: 10 s, unless
    configured), on any broker; delay - time to wait, a timedelta or seconds; at - when to deliver it, without a time
    zone in this machine's. The last two need a broker of 5.0 or newer.
    """

    topic: str
    body: bytes | str
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    shard: str | int | None = None
    delay_level: int | None = None
    delay: timedelta | float | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class SendResult:
    """The place of a stored message. message_id: its unique key. offset_id: names broker and place in its log.
    recall_handle: of a message with a `delay` or `at`, for `Producer.recall`. is_traced: False if the broker wants no
    trace of it. unconfirmed: why it is not as safe as the broker should keep it, of a producer that accepts that
    (`accept_unconfirmed`)."""

    message_id: str
    offset_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str = "DefaultRegion"
    is_traced: bool = True
    unconfirmed: str | None = None


@dataclass(frozen=True, slots=True)
class CloseReport:
    """Work that `close` left undone. unconfirmed: sends without an answer. uncommitted: number of queues whose offset
    could not be committed, so that messages come again. still_running: names of threads that did not end."""

    unconfirmed: int = 0
    uncommitted: int = 0
    still_running: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicStats:
    """Numbers of messages of one topic since a client's producer or consumer of this group began. sent: confirmed by a
    broker. failed_sends: raised an error; one-way sends are in neither. consumed: a push consumer's handler was done
    with them. failed: it was not, or is called again."""

    topic: str
    group: str
    sent: int = 0
    failed_sends: int = 0
    consumed: int = 0
    failed: int = 0


_EARLIEST, _LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_EPOCH = datetime.fromtimestamp(0, UTC)


def _time_of(ms: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return _LATEST if ms > 0 else _EARLIEST


class ReceivedMessage:
    """A message as a broker stored it. Properties and body are decoded on first use.

    topic: the one it was sent to, also of a copy that comes from its group's retry topic. queue, queue_offset: its
    place. attempt: 1 at the first delivery. born_at, stored_at: with the time zone UTC; of a time outside of years 1 to
    9999, which producers may say, their first or last moment.
    """

    __slots__ = ("_body", "_properties", "_record", "handled_before", "namespace", "queue")

    def __init__(self, record: Record, queue: MessageQueue) -> None:
        self._record = record
        self.queue = queue
        self._properties: dict[str, str] | None = None
        self._body: bytes | None = None
        #: How often an ordered consumer was given this copy before.
        self.handled_before = 0
        #: The client's, which `topic` is without.
        self.namespace = ""

    def __repr__(self) -> str:
        return f"<message {self.message_id} of {self.queue} offset={self.queue_offset} {len(self._record.body)} bytes>"

    @property
    def record(self) -> Record:
        """The message as the broker stored it, its body perhaps compressed."""
        return self._record

    @property
    def topic(self) -> str:
        if not self.namespace:
            return self.full_topic
        from .core.names import without_namespace

        return without_namespace(self.namespace, self.full_topic)

    @property
    def full_topic(self) -> str:
        """The topic with its namespace, as brokers name it."""
        topic = self._record.topic
        return self.properties.get(RETRY_TOPIC, topic) if topic.startswith(RETRY_PREFIX) else topic

    @property
    def queue_offset(self) -> int:
        return self._record.queue_offset

    @property
    def attempt(self) -> int:
        return self._record.reconsume_times + self.handled_before + 1

    @property
    def born_at(self) -> datetime:
        return _time_of(self._record.born_time_ms)

    @property
    def stored_at(self) -> datetime:
        return _time_of(self._record.store_time_ms)

    @property
    def properties(self) -> dict[str, str]:
        if self._properties is None:
            self._properties = decode_properties(self._record.properties)
        return self._properties

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> list[str]:
        return self.properties.get(KEYS, "").split()

    @property
    def message_id(self) -> str:
        """Unique key that the producer made, the same at every delivery; without one the offset id."""
        return self.properties.get(UNIQUE_KEY) or self.offset_id

    @property
    def offset_id(self) -> str:
        return encode_offset_id(encode_host(*self._record.store_host), self._record.physical_offset)

    @property
    def body(self) -> bytes:
        """The body, decompressed. Raises BadAnswer if that fails, or it would have more than 64 MiB."""
        if self._body is None:
            self._body = self._inflated()
        return self._body

    def _inflated(self) -> bytes:
        kind = compression_of(self._record.sys_flag)
        if kind is None:
            return self._record.body
        try:
            body, more = decompress(kind, self._record.body, MAX_BODY_BYTES)
        except Undecodable as error:
            raise BadAnswer(f"The body of {self!r} says that it is {kind}, but {error}.") from None
        except ImportError as error:
            raise BadAnswer(f"The body of {self!r} is {kind}: install the package {error.name} to read it.") from None
        if more:
            raise BadAnswer(f"The body of {self!r} has more than {MAX_BODY_BYTES >> 20} MiB when decompressed.")
        return body

    @property
    def text(self) -> str:
        """The body as UTF-8 text. Raises UnicodeDecodeError."""
        return self.body.decode()

    def json(self) -> Any:
        """Return the value of a JSON body. Raises ValueError."""
        return read_plain_json(self.body)
