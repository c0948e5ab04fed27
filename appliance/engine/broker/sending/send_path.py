"""One send from its fields to the tick, for every protocol: admission, properties, put.

Its outcome goes to its `ReplyTo` when the tick is published; a refusal goes there at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from zlib_ng.zlib_ng import crc32

from ...errors import MessageTooLarge, RefusedRequest, StoreBroken
from ...hotpath import SendRuns
from ...protocol.codes import ResponseCode
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ...protocol.properties import find_property
from ...protocol.recall_handle import encode_recall_handle
from ...protocol.record import SYS_TRANSACTION_MASK
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ConsumeQueue
from ..delays.levels import DelayLevels
from .admission import SendAdmission, TopicRoute, topic_field
from .batch_body import BatchRecords, MemberLook, Shapes
from .fields import SendFields
from .outcome import PutOutcome, ReplyTo, refused, store_unavailable
from .properties import HALF, IllegalProperties, SendProperties

if TYPE_CHECKING:
    from ...remoting.event_loop import EventLoop
    from ..topics import TopicConfigManager


class SendPath:
    """Owned by remoting-io: every method runs there."""

    def __init__(
        self,
        store: MessageStore,
        admission: SendAdmission,
        properties: SendProperties,
        levels: DelayLevels,
        max_message_size: int,
        wall_ms: Callable[[], int],
        broker_name: str,
    ) -> None:
        """wall_ms: the time now, which may be later than the begin of the tick: a delay must not count from before its
        message was sent."""
        # Constant after construction.
        self._broker_name = broker_name
        self._store = store
        self._levels = levels
        self._wall_ms = wall_ms
        self._admission = admission
        self._properties = properties
        # Owned by remoting-io.
        #: Sends to retry topics that became dead letters, since the start.
        self.dead_letters = 0
        self.max_message_size = max_message_size
        #: Called for each half message that is staged, with its offset in the half queue and its properties.
        self.on_half: Callable[[int, str], None] = lambda offset, properties: None
        #: Reason to refuse half messages, with 16; None when they are taken.
        self.no_halves: str | None = None
        #: Returns the reason to refuse messages that are to wait, with 14; None when they are taken.
        self.no_waiting: Callable[[], str | None] = lambda: None
        self._shapes = Shapes()

    def runs(self, loop: EventLoop, topics: TopicConfigManager, answers: Any) -> Any:
        """Return the taker of usual sends in the compiled twin, whose outcome is the same as with `put`; None in the
        pure twin.

        answers: SendAnswers, for sends that come as frames.
        """
        if SendRuns is None:
            return None
        return SendRuns(
            loop,
            self._store,
            topics,
            self._admission,
            self,
            self._properties,
            answers,
            self._shapes,
            MemberLook,
            crc32,
            PutOutcome(ResponseCode.SUCCESS),
        )

    @property
    def added_properties(self) -> Mapping[str, str]:
        """The properties that the broker adds to each message."""
        return self._properties.added

    def queue_of(self, fields: SendFields, client_version: int, born_host: bytes) -> ConsumeQueue:
        """Return the queue that `put` would choose, with the checks of topic and queue. Raises RefusedRequest."""
        return self._admission.admit(fields, client_version, born_host)[1]

    def put(
        self,
        fields: SendFields,
        client_version: int,
        born_host: bytes,
        body: memoryview,
        reply_to: ReplyTo | None,
        empty_body: bool = False,
    ) -> None:
        """Stage a message or a batch. If it is refused, nothing is staged, and the outcome goes out at once.

        reply_to: receives the outcome; None for a one-way request.
        empty_body: take a message without a body, which only replies may be.
        """
        store = self._store
        try:
            route, queue = self._admission.admit(fields, client_version, born_host)
            if (not body and not empty_body) or len(body) > self.max_message_size:
                raise IllegalProperties
            if fields.batch and route.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                raise IllegalProperties
            queue_id = queue.queue_id
            key, properties, code, waits = self._properties.stored(fields, route.topic, queue_id, store.store_ms)
            field = route.topic_field
            sys_flag = fields.sys_flag
            if waits is not None:
                if (reason := self.no_waiting()) is not None:
                    raise RefusedRequest(ResponseCode.SERVICE_NOT_AVAILABLE, reason)
                if waits is HALF:
                    if self.no_halves is not None:
                        raise RefusedRequest(ResponseCode.NO_PERMISSION, self.no_halves)
                    sys_flag &= ~SYS_TRANSACTION_MASK
                queue, field = store.queues.get_or_create(*waits.place), topic_field(waits.place.topic)
                if waits.level:
                    code = store.next_store_ms(self._wall_ms()) + self._levels.delay_ms(waits.level)
            offset = queue.next_offset
            places = (
                self._put_batch(queue, route, fields, born_host, body, properties)
                if fields.batch
                else (
                    store.put(
                        queue,
                        field,
                        body,
                        properties,
                        code,
                        fields.flag,
                        sys_flag,
                        fields.born_ms,
                        born_host,
                        fields.reconsume_times,
                    ),
                )
            )
        except (IllegalProperties, MessageTooLarge):
            outcome = refused(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message is illegal, maybe msg body or properties length not matched. "
                f"msg body length limit {self.max_message_size}B, msg properties length limit 32KB.",
            )
        except RefusedRequest as refusal:
            outcome = refused(refusal.code, refusal.remark)
        except struct.error:
            outcome = refused(ResponseCode.SYSTEM_ERROR, "a number of the header does not fit its field")
        except StoreBroken as error:
            self._store_broken(str(error), reply_to)
            return
        else:
            if route.given_up:
                self.dead_letters += 1
            if waits is HALF:
                self.on_half(offset, properties.decode())
            if reply_to is not None:
                text = fields.properties
                handle = ""
                if waits is not None and waits.due_ms and not route.topic.startswith(RETRY_PREFIX):
                    handle = encode_recall_handle(route.topic, self._broker_name, waits.due_ms - 1, key)
                ended = (reply_to, PutOutcome(0, queue_id, offset, places, key, recall_handle=handle))
                if "WAIT\x01false" in text and find_property(text, "WAIT") == "false":
                    store.tick.early.append(ended)
                else:
                    store.tick.acks.append(ended)
            return
        if reply_to is not None:
            reply_to.put_ended(outcome)

    def _put_batch(
        self,
        queue: ConsumeQueue,
        route: TopicRoute,
        fields: SendFields,
        born_host: bytes,
        body: memoryview,
        properties: bytes,
    ) -> list[int]:
        """Stage every message of a batch at consecutive offsets, all in one file; returns their physical offsets."""
        batch = BatchRecords(
            body,
            route.topic_field,
            queue.queue_id,
            properties,
            self._shapes,
            fields.sys_flag,
            fields.born_ms,
            born_host,
            self._store.store_host,
            fields.reconsume_times,
        )
        return self._store.put_batch(queue, batch.pack)

    def _store_broken(self, reason: str, reply_to: ReplyTo | None) -> None:
        """Refuse this send with 14 because the log cannot take it, and fail the whole tick if the log itself broke."""
        if reply_to is not None:
            reply_to.put_ended(store_unavailable(reason))
        if self._store.log.broken is not None:
            self._store.fail_tick(reason)
