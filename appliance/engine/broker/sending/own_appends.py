"""The entry to the log for the broker's own messages: test messages, and those that it stores again by itself (D7).

Batches are handed to remoting-io, staged there in one tick with whatever else it holds, and published with it: there is
no second way into the log. A batch has one future, which gives the outcome of each of its messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext

import msgspec

from ...errors import MessageTooLarge, RefusedRequest, StoreBroken, Unavailable
from ...protocol.codes import ResponseCode
from ...protocol.record import Record
from ...store.dispatch import SCHEDULE_TOPIC, properties_tag_code, waiting_tag_code
from ...store.message_store import MessageStore
from ..delays.levels import DelayLevels, Place
from ..topic_config import TopicConfig, refuse_batch_queues
from .admission import topic_field
from .outcome import PutOutcome, ReplyTo, refused, store_unavailable
from .properties import checked_bytes

#: Most batches under way at a time; further ones are refused, so that nothing piles up before a slow disk.
PENDING_LIMIT = 64
#: Most messages of a batch, and most body bytes beyond its first message: a tick writes at most 1 MiB (D6).
MAX_BATCH_MESSAGES = 1000
MAX_BATCH_BYTES = 1024 * 1024


class OwnMessage(msgspec.Struct, frozen=True):
    """One complete message: `properties` are stored as they are. A message that is to wait names the schedule topic and
    the queue of its level, and has the properties that `delays.levels.make_wait` writes.

    born_host: 8 or 20 bytes, see `message_id.encode_host`; empty for the broker's own address. Times in ms. waited_at:
    physical offset of the record that waited, if this is its copy, and waits_for: the topic that it is for. Such a copy
    is refused if that topic has been deleted since it was made. -1 for all others. late_properties: returns them in the
    tick that stores the message, on remoting-io, in place of `properties`.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: str
    unique_key: str
    born_ms: int
    born_host: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    waited_at: int = -1
    waits_for: str = ""
    late_properties: Callable[[], str] | None = None


def copy_of(
    record: Record,
    born_host: bytes,
    place: Place,
    properties: str,
    unique_key: str,
    reconsume_times: int,
    waits_for: str = "",
) -> OwnMessage:
    """Return a copy of a stored message for `place`. Body, birth and flags are the same. waits_for: see OwnMessage."""
    return OwnMessage(
        place.topic,
        place.queue_id,
        record.body,
        properties,
        unique_key,
        record.born_time_ms,
        born_host,
        record.flag,
        record.sys_flag,
        reconsume_times,
        waited_at=record.physical_offset if waits_for else -1,
        waits_for=waits_for,
    )


class _Batch:
    """A batch under way. Owned by remoting-io once it is staged."""

    def __init__(self, messages: tuple[OwnMessage, ...], frees: bool) -> None:
        self.messages = messages
        self.frees = frees
        self.future: Future[list[PutOutcome]] = Future()
        self._outcomes: list[PutOutcome | None] = [None] * len(messages)
        self._missing = len(messages)

    def put_ended(self, index: int, outcome: PutOutcome) -> None:
        assert self._outcomes[index] is None, "a message has one outcome"
        self._outcomes[index] = outcome
        self._missing -= 1
        if not self._missing:
            self.future.set_result([one for one in self._outcomes if one is not None])


class _Place:
    """Receives the outcome of one message of a batch."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: _Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def put_ended(self, outcome: PutOutcome) -> None:
        self._batch.put_ended(self._index, outcome)


class OwnAppends:
    """`submit` may be called by any thread; the rest happens on remoting-io.

    find_topic: returns the topic's settings now. alive: True while remoting-io runs.
    """

    def __init__(
        self,
        store: MessageStore,
        find_topic: Callable[[str], TopicConfig | None],
        levels: DelayLevels,
        call_soon: Callable[[Callable[[], None]], None],
        alive: Callable[[], bool],
        wall_ms: Callable[[], int],
    ) -> None:
        """wall_ms: as SendPath's."""
        # Constant after construction.
        self._store = store
        self._find_topic = find_topic
        self._levels = levels
        self._call_soon = call_soon
        self._alive = alive
        self._wall_ms = wall_ms
        # Batches under way; add and discard are one C call each.
        self._pending: set[_Batch] = set()

    def submit(self, messages: Sequence[OwnMessage], frees: bool = False) -> Future[list[PutOutcome]]:
        """Store messages, in this order, in one tick. The future gives the outcome of each, in the same order.
        frees: once they are stored, a log file can be deleted, so a full disk takes them.

        Raises Unavailable when PENDING_LIMIT batches are under way or the I/O thread has ended, ValueError for a batch
        that is empty or too large.
        """
        batch = _Batch(tuple(messages), frees)
        if not batch.messages:
            raise ValueError("a batch without messages")
        if len(batch.messages) > MAX_BATCH_MESSAGES or sum(len(m.body) for m in batch.messages[1:]) > MAX_BATCH_BYTES:
            raise ValueError(f"a batch of {len(batch.messages)} messages is too large")
        if len(self._pending) >= PENDING_LIMIT or not self._alive():
            raise Unavailable("Too many of the broker's own messages are being stored; try again.")
        self._pending.add(batch)
        batch.future.add_done_callback(lambda _: self._pending.discard(batch))
        self._call_soon(lambda: self._stage(batch))
        return batch.future

    def _stage(self, batch: _Batch) -> None:
        # The time now, not that of the tick: a message that fell due in between must not look as if it came early.
        self._store.next_store_ms(self._wall_ms())
        with self._store.log.freeing() if batch.frees else nullcontext():
            for index, message in enumerate(batch.messages):
                try:
                    self.put(message, _Place(batch, index))
                except Exception as error:
                    if not batch.future.done():
                        batch.future.set_exception(error)
                    raise

    def put(self, message: OwnMessage, reply_to: ReplyTo) -> None:
        """On remoting-io: stage one message, or refuse it at once. `reply_to` gets the outcome."""
        try:
            outcome = self._put(message)
        except RefusedRequest as refusal:
            reply_to.put_ended(refused(refusal.code, refusal.remark))
        except (MessageTooLarge, struct.error) as error:
            reply_to.put_ended(refused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {error}"))
        except StoreBroken as error:
            reply_to.put_ended(store_unavailable(str(error)))
            if self._store.log.broken is not None:
                self._store.fail_tick(str(error))
        else:
            self._store.tick.acks.append((reply_to, outcome))

    def _put(self, message: OwnMessage) -> PutOutcome:
        """Stage one message and return its outcome. Its topic may have been deleted since the message was made."""
        store = self._store
        topic = self._find_topic(message.topic)
        if topic is None:
            raise RefusedRequest(ResponseCode.TOPIC_NOT_EXIST, f"topic[{message.topic}] not exist")
        if 0 <= message.waited_at < store.files.deleted_topics.below(message.waits_for):
            raise RefusedRequest(ResponseCode.TOPIC_NOT_EXIST, f"topic[{message.waits_for}] was deleted meanwhile")
        refuse_batch_queues(topic)
        text = message.properties if message.late_properties is None else message.late_properties()
        properties = checked_bytes(text)
        if message.topic == SCHEDULE_TOPIC:  # which has a queue for each level, whatever its settings say
            queues = self._levels.highest
            code = waiting_tag_code(text, store.next_store_ms(self._wall_ms()), self._levels.delays_ms)
        else:
            queues = max(topic.read_queue_nums, topic.write_queue_nums)
            code = properties_tag_code(text)
        if not 0 <= message.queue_id < queues:
            raise RefusedRequest(ResponseCode.INVALID_PARAMETER, f"{topic} has no queue {message.queue_id}")
        queue = store.queues.get_or_create(message.topic, message.queue_id)
        offset = queue.next_offset
        physical = store.put(
            queue,
            topic_field(message.topic),
            message.body,
            properties,
            code,
            message.flag,
            message.sys_flag,
            message.born_ms,
            message.born_host or store.store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
        )
        return PutOutcome(ResponseCode.SUCCESS, message.queue_id, offset, (physical,), message.unique_key)
