"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320): from a frame to staged records.

The hot path reads the frame in place, looks the topic up in a table of resolved routes, stages one record and leaves
its answer with the tick; the answer goes out when the tick is published. Whatever is unusual about a message (a
property of the broker's own, a delay, a missing key) takes the slow branch of `_stored_properties`.

Order of checks and texts: RocketMQ 5.3.3 `AbstractSendMessageProcessor.msgCheck`, as recorded.
"""

from __future__ import annotations

import logging
import random
import struct
from typing import TYPE_CHECKING

import msgspec

from ...errors import MessageTooLarge, RefusedRequest, StoreBroken
from ...protocol.codes import VERSION, RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.message_id import UniqueKeys
from ...protocol.names import (
    DLQ_PREFIX,
    NO_SEND_TOPICS,
    PERM_READ,
    PERM_WRITE,
    RETRY_PREFIX,
    topic_name_error,
)
from ...protocol.properties import (
    CLUSTER,
    DELAY_NAMES,
    DELAY_TIME_LEVEL,
    INNER_NUM,
    MAX_PROPERTIES_BYTES,
    MSG_REGION,
    POP_CK,
    TRACE_SWITCH,
    TRANSACTION_PREPARED,
    TRANSIENT_PREFIX,
    UNIQUE_KEY,
    decode_properties,
    encode_properties,
    find_property,
)
from ...protocol.record import SYS_BORN_IPV6, SYS_INNER_BATCH, SYS_STORE_IPV6, SYS_TRANSACTION_MASK, UNWRITTEN
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ...store.dispatch import has_queue_entry, properties_tag_code
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ConsumeQueue
from ..topic_config import refuse_batch_queues
from .batch_body import BatchRecords, Shapes
from .send_fields import SendFields, decode_letters, decode_long, fields_of

if TYPE_CHECKING:
    from ...config import BrokerConfig
    from ..groups import SubscriptionGroupManager
    from ..queue_locks import RebalanceLockManager
    from ..topics import TopicConfigManager

logger = logging.getLogger(__name__)

_HELP = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
#: Clients from V3_4_9 on send their own limit of retries.
_VERSION_WITH_MAX_RECONSUME = 121
#: Routes kept; the table is emptied beyond it.
_ROUTES_KEPT = 50_000

_PREFIX = struct.Struct(">ii")
_IPV6_FLAGS = SYS_BORN_IPV6 | SYS_STORE_IPV6
#: No ordinary message has one of these. A record with one may have no queue entry (`has_queue_entry`).
_UNUSUAL_FLAGS = SYS_TRANSACTION_MASK | SYS_INNER_BATCH


class TopicRoute:
    """What sends to one topic need, resolved once per change of the topic table."""

    __slots__ = ("queues", "text", "topic", "topic_field", "write_queues")

    def __init__(self, topic: str, queue_count: int, write_queues: int, text: str) -> None:
        self.topic = topic
        raw = topic.encode()
        self.topic_field = bytes((len(raw),)) + raw
        self.queues: list[ConsumeQueue | None] = [None] * queue_count
        self.write_queues = write_queues
        self.text = text


class SendProcessor:
    """Owned by remoting-io: every method runs there."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        locks: RebalanceLockManager,
        config: BrokerConfig,
        store_host: bytes,
        max_message_size: int,
        unique_keys: UniqueKeys,
    ) -> None:
        # Constant after construction.
        self._store = store
        self._topics = topics
        self._groups = groups
        self._locks = locks
        self._unique_keys = unique_keys
        self._host_hex = store_host.hex().upper().encode()
        self._region = config.region_id
        self._cluster = config.cluster_name
        #: Every answer to a send carries these, refusals too; Java reads them without a null check.
        self.send_ext: dict[str, str] = {}
        # Owned by remoting-io.
        self.take_options(config, max_message_size)
        self._routes: dict[str, TopicRoute] = {}
        self._shapes = Shapes()

    def take_options(self, config: BrokerConfig, max_message_size: int) -> None:
        """Make anew what follows from options. On remoting-io, or before it starts."""
        self._config = config
        self._generation = -1  # routes hold the broker's permission
        region, trace = self._region, "true" if config.trace_on else "false"
        self._max_message_size = max_message_size
        self._trace = trace
        self.send_ext |= {TRACE_SWITCH: trace, MSG_REGION: region}
        self._suffix = f"MSG_REGION\x01{region}\x02CLUSTER\x01{self._cluster}\x02TRACE_ON\x01{trace}\x02".encode()
        quoted_region = msgspec.json.encode(region).decode().replace("%", "%%")
        #: queue id, unique key, offset id, queue offset, opaque go in.
        self._reply = (
            '{"code":0,"extFields":{"queueId":"%d","transactionId":"%b","msgId":"%b",'
            f'"TRACE_ON":"{trace}","MSG_REGION":{quoted_region},"queueOffset":"%d"}},"flag":1,"language":"JAVA",'
            f'"opaque":%d,"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
        ).encode()

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.SEND_MESSAGE, self.handle_send)
        dispatcher.add(RequestCode.SEND_MESSAGE_V2, self.handle_send)
        dispatcher.add(RequestCode.SEND_BATCH_MESSAGE, self.handle_send)
        dispatcher.add_hot(RequestCode.SEND_MESSAGE, self.hot_long)
        dispatcher.add_hot(RequestCode.SEND_MESSAGE_V2, self.hot_letters)
        dispatcher.add_hot(RequestCode.SEND_BATCH_MESSAGE, self.hot_letters)

    # --- three ways in

    def hot_letters(self, conn: Connection, view: memoryview, header: int, body: int, end: int) -> bool:
        """310 and 320 in place; False when the header is not as Java, Go and C++ write it."""
        try:
            frame = decode_letters(view[header:body])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False
        self._send(conn, frame.opaque, frame.flag, frame.version, frame.extFields, view[body:end])
        return True

    def hot_long(self, conn: Connection, view: memoryview, header: int, body: int, end: int) -> bool:
        """10 in place."""
        try:
            frame = decode_long(view[header:body])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False
        self._send(conn, frame.opaque, frame.flag, frame.version, frame.extFields, view[body:end])
        return True

    def handle_send(self, request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
        """The same for any other encoding; answers through the tick."""
        fields = fields_of(request, letters=request.code != RequestCode.SEND_MESSAGE)
        self._send(conn, request.opaque, request.flag, request.version, fields, memoryview(request.body))
        return None

    # --- one send

    def _send(
        self, conn: Connection, opaque: int, flag: int, version: int, fields: SendFields, body: memoryview
    ) -> None:
        """Stage it, or answer why not. Nothing was staged when it is refused."""
        try:
            if self._topics.generation != self._generation:
                self._routes.clear()
                self._generation = self._topics.generation
            route = self._routes.get(fields.topic)
            if route is None:
                route = self._resolve(fields, conn)
            if fields.topic.startswith(RETRY_PREFIX):
                route = self._retry_route(route, fields, version, conn)
            queue_id = fields.queue_id
            if queue_id < 0:
                queue_id = random.randrange(max(1, route.write_queues))
            if queue_id >= len(route.queues):
                raise RefusedRequest(
                    ResponseCode.INVALID_PARAMETER,
                    f"request queueId[{queue_id}] is illegal, {route.text} Producer: {conn.remote_host}",
                )
            queue = route.queues[queue_id]
            if queue is None:
                queue = route.queues[queue_id] = self._store.queues.get_or_create(route.topic, queue_id)
            if not body or len(body) > self._max_message_size:
                raise self._illegal()
            if fields.batch:
                reply = self._put_batch(conn, opaque, fields, route, queue, body)
            else:
                reply = self._put_one(conn, opaque, fields, route, queue, body)
        except (RefusedRequest, MessageTooLarge) as error:
            refusal = error if isinstance(error, RefusedRequest) else self._illegal()
            if not flag & 2:
                response = RemotingCommand.response(refusal.code, str(refusal), dict(self.send_ext))
                conn.answer(opaque, response)
            return
        except StoreBroken as error:
            self._store_broken(conn, opaque, flag, str(error))
            return
        if not flag & 2:
            if fields.properties.find("WAIT\x01false") >= 0 and find_property(fields.properties, "WAIT") == "false":
                self._store.tick.early.append((conn, opaque, reply))
            else:
                self._store.tick.acks.append((conn, opaque, reply))

    def _put_one(
        self,
        conn: Connection,
        opaque: int,
        fields: SendFields,
        route: TopicRoute,
        queue: ConsumeQueue,
        body: memoryview,
    ) -> bytes:
        """Stage one message; returns its answer's frame."""
        text = fields.properties
        key, properties, code = self._stored_properties(text, fields, route)
        offset = queue.next_offset
        try:
            physical = self._store.put(
                queue,
                route.topic_field,
                body,
                properties,
                code,
                fields.flag,
                fields.sys_flag & ~_IPV6_FLAGS,
                fields.born_ms,
                conn.born_host,
                fields.reconsume_times,
            )
        except struct.error:
            raise self._number_too_large() from None
        header = self._reply % (queue.queue_id, key, b"%b%016X" % (self._host_hex, physical), offset, opaque)
        size = len(header)
        return _PREFIX.pack(size + 4, size) + header

    def _put_batch(
        self,
        conn: Connection,
        opaque: int,
        fields: SendFields,
        route: TopicRoute,
        queue: ConsumeQueue,
        body: memoryview,
    ) -> bytes:
        """Stage every message of a batch at consecutive offsets, all in one file; returns the answer's frame."""
        if route.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            raise self._illegal()
        key, common, _ = self._stored_properties(fields.properties, fields, route)
        first = queue.next_offset
        try:
            batch = BatchRecords(
                body,
                route.topic_field,
                queue.queue_id,
                common,
                self._shapes,
                fields.sys_flag & ~_IPV6_FLAGS,
                fields.born_ms,
                conn.born_host,
                self._store.store_host,
                fields.reconsume_times,
            )
            offsets = self._store.put_batch(queue, batch.pack)
        except struct.error:
            raise self._number_too_large() from None
        ids = b",".join([self._host_hex + b"%016X"] * len(offsets)) % tuple(offsets)
        header = self._reply % (queue.queue_id, key, ids, first, opaque)
        size = len(header)
        return _PREFIX.pack(size + 4, size) + header

    def _stored_properties(self, text: str, fields: SendFields, route: TopicRoute) -> tuple[bytes, bytes, int]:
        """(unique key as it stands in the answer's JSON, properties as stored, tag code of their queue entry).

        The broker adds MSG_REGION, CLUSTER, TRACE_ON and a unique key if there is none, as 5.3.3 does. The last of them
        ends the properties, with a byte that is no zero.
        """
        at = text.find("UNIQ_KEY\x01")
        if (
            at < 0
            or (at > 0 and text[at - 1] != "\x02")
            or fields.sys_flag & _UNUSUAL_FLAGS
            or "\0" in text
            or "DELAY" in text
            or "CLUSTER\x01" in text
            or (text.count("_") > 1 and _has_unusual_name(text))  # UNIQ_KEY has one
        ):
            return self._unusual_properties(text, fields, route)
        end = text.find("\x02", at + 9)
        if end < 0:
            key = text[at + 9 :]
            properties = text.encode() + b"\x02" + self._suffix
        else:
            key = text[at + 9 : end]
            properties = text.encode() + (b"" if text[-1] == "\x02" else b"\x02") + self._suffix
        if len(properties) > MAX_PROPERTIES_BYTES:
            raise self._illegal()
        # The broker's own properties hold no tag.
        code = properties_tag_code(text)
        return key.encode() if key.isalnum() else msgspec.json.encode(key)[1:-1], properties, code

    def _unusual_properties(self, text: str, fields: SendFields, route: TopicRoute) -> tuple[bytes, bytes, int]:
        """The same through the map, after refusing what is not served yet, and what no crash may meet."""
        found = decode_properties(text)
        if found.get(TRANSACTION_PREPARED, "").lower() == "true" or fields.sys_flag & SYS_TRANSACTION_MASK:
            raise RefusedRequest(ResponseCode.MESSAGE_ILLEGAL, "transactional messages are not supported yet")
        if not has_queue_entry(fields.sys_flag) or INNER_NUM in found:
            raise self._illegal()  # a batch of 5.x's batch queues, which this topic has not
        if route.topic.startswith(DLQ_PREFIX) and fields.topic.startswith(RETRY_PREFIX):
            found[DELAY_TIME_LEVEL] = "0"  # given up: a dead letter has no delay
        for name in DELAY_NAMES:
            level = found.get(name)
            if level is not None and not (name == DELAY_TIME_LEVEL and _is_no_delay(level)):
                raise RefusedRequest(ResponseCode.MESSAGE_ILLEGAL, f"delayed messages ({name}) are not supported yet")
        found.pop(POP_CK, None)
        for name in [name for name in found if name.startswith(TRANSIENT_PREFIX)]:
            del found[name]
        key = found.get(UNIQUE_KEY)
        if key is None:
            key = found[UNIQUE_KEY] = self._unique_keys.next(self._store.store_ms or fields.born_ms)
        found[MSG_REGION] = self._region
        found[CLUSTER] = self._cluster
        found[TRACE_SWITCH] = self._trace
        stored = encode_properties(found)
        try:
            properties = stored.encode()
        except UnicodeEncodeError:
            raise self._illegal() from None
        if len(properties) > MAX_PROPERTIES_BYTES:
            raise self._illegal()
        if UNWRITTEN in properties:
            raise RefusedRequest(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: its properties hold {len(UNWRITTEN)} zeros in a row, "
                "which after a power cut could not be told from what was never written",
            )
        return msgspec.json.encode(key)[1:-1], properties, properties_tag_code(stored)

    def _illegal(self) -> RefusedRequest:
        return RefusedRequest(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. "
            f"msg body length limit {self._max_message_size}B, msg properties length limit 32KB.",
        )

    @staticmethod
    def _number_too_large() -> RefusedRequest:
        return RefusedRequest(ResponseCode.SYSTEM_ERROR, "a number of the header does not fit its field")

    def _store_broken(self, conn: Connection, opaque: int, flag: int, reason: str) -> None:
        """The log cannot take it: 14 for this send, and for its tick when the log itself broke."""
        if not flag & 2:
            remark = f"service not available now: {reason}"
            response = RemotingCommand.response(ResponseCode.SERVICE_NOT_AVAILABLE, remark, dict(self.send_ext))
            conn.answer(opaque, response)
        if self._store.log.broken is not None:
            self._store.fail_tick(reason)

    # --- topics

    def _resolve(self, fields: SendFields, conn: Connection) -> TopicRoute:
        """Check a topic and look its queues up; creates it where that is allowed."""
        topic = fields.topic
        error = topic_name_error(topic)
        if error is not None:
            raise RefusedRequest(ResponseCode.INVALID_PARAMETER, error)
        if topic in NO_SEND_TOPICS:
            raise RefusedRequest(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        config = self._topics.get(topic)
        if config is None:
            config = self._topics.create_from_default(topic, fields.default_topic, fields.default_topic_queue_nums)
            if config is None and topic.startswith(RETRY_PREFIX):
                name = topic[len(RETRY_PREFIX) :]
                if self._groups.find(name) is None:  # before its topic is made; Apache makes that all the same
                    raise RefusedRequest(
                        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}{_HELP}"
                    )
                config = self._topics.create_retry_topic(topic, 1, PERM_READ | PERM_WRITE)
            if config is None:
                raise RefusedRequest(
                    ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{_HELP}"
                )
        refuse_batch_queues(config)
        if config.order and not self._config.broker_permission & PERM_WRITE:
            raise RefusedRequest(ResponseCode.NO_PERMISSION, "the broker sending message is forbidden")
        count = max(config.read_queue_nums, config.write_queue_nums)
        route = TopicRoute(topic, count, config.write_queue_nums, str(config))
        # Kept for the generation that was seen before the topic was looked up: whatever changed since then, another
        # thread's change or this send's own new topic, empties the table at the next send.
        if len(self._routes) >= _ROUTES_KEPT:
            self._routes.clear()
        self._routes[topic] = route
        return route

    def _retry_route(self, route: TopicRoute, fields: SendFields, version: int, conn: Connection) -> TopicRoute:
        """A consumer that sends back by itself; past its limit the message goes to the dead letters.

        Source: 5.3.3 `handleRetryAndDLQ`.
        """
        name = fields.topic[len(RETRY_PREFIX) :]
        group = self._groups.find(name)
        if group is None:
            raise RefusedRequest(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}{_HELP}"
            )
        limit = group.retry_max_times
        if version >= _VERSION_WITH_MAX_RECONSUME and fields.max_reconsume_times is not None:
            limit = fields.max_reconsume_times
        # An ordered consumer sends here only when it gives up; a 4.9 client then says its limit, not one more.
        if fields.reconsume_times <= limit and not self._locks.is_locked(name):
            return route
        topic = DLQ_PREFIX + name
        config = self._topics.get(topic) or self._topics.create_retry_topic(topic, 1, PERM_READ | PERM_WRITE)
        if config is None:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] cannot be created")
        fields.queue_id = 0
        return TopicRoute(topic, 1, 1, str(config))


def _has_unusual_name(text: str) -> bool:
    """Whether properties may hold one of the names with a `_` that the map has to look at."""
    return (
        "TIMER_" in text
        or "TRAN_MSG" in text
        or "MSG_REGION\x01" in text
        or "TRACE_ON\x01" in text
        or "POP_CK\x01" in text
        or "INNER_NUM\x01" in text
        or TRANSIENT_PREFIX in text
    )


def _is_no_delay(level: str) -> bool:
    """DELAY that means none: 0 or less, as Integer.parseInt reads it."""
    try:
        return int(level) <= 0
    except ValueError:
        return False
