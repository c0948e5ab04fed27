"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): from a header to slices of the log.

Checks in 5.3.3's order, with its texts. Reads never wait on remoting-io: what the page cache does not have is read by
the pool `pull-cold` while the pull waits. The records leave as they lie in the log, adjacent ones in one piece.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ...errors import RefusedRequest
from ...filter.tags import tag_codes
from ...protocol.codes import VERSION, RequestCode, ResponseCode
from ...protocol.command import FLAG_ONEWAY, RemotingCommand
from ...protocol.names import PERM_READ
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher, WorkerPool
from ...remoting.event_loop import EventLoop
from ...store.cold_reader import ColdReader
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ConsumeQueue
from ...store.results import GetResult, GetStatus
from ..long_polling import LongPolling, ParkedPull
from ..topic_config import refuse_batch_queues
from .pull_fields import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND, PullFields, decode_pull, fields_of

if TYPE_CHECKING:
    from ...config import BrokerConfig
    from ..clients import ClientManager
    from ..groups import SubscriptionGroupConfig, SubscriptionGroupManager
    from ..offsets import ConsumerOffsetManager
    from ..topics import TopicConfig, TopicConfigManager

logger = logging.getLogger(__name__)

_HELP = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
#: Holds one answer: 256 KiB of records and the last message that passes the limit, mostly.
_READ_BUFFER_BYTES = 1024 * 1024
#: Scattered records are read in one piece as long as that copies at most this much for each read it saves: a read call
#: costs what copying some 12 KB does.
_BYTES_FOR_A_CALL = 12_000
#: Adjacent records of this size and more go from the page cache to the socket without a copy.
_SENDFILE_FROM_BYTES = 8 * 1024
#: How often a pull is read for in the pool when its queue is another one each time the entries come back.
_COLD_TRIES = 3
#: The client's limit, whatever it asks for.
_MAX_COUNT = 1024 * 1024

_PREFIX = struct.Struct(">ii")
_REPLY = (
    b'{"code":%%d,"extFields":{"suggestWhichBrokerId":"%%d","groupSysFlag":"%%d","nextBeginOffset":"%%d",'
    b'"maxOffset":"%%d","minOffset":"%%d","topicSysFlag":"%%d"},"flag":1,"language":"JAVA","opaque":%%d,'
    b'"remark":"%%b","serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION
)


class ForbiddenType:
    """`forbiddenType` of a refusal with NO_PERMISSION (5.x)."""

    BROKER = "1"
    GROUP = "2"
    TOPIC = "3"
    BROADCASTING_DISABLED = "4"


class _Forbidden(RefusedRequest):
    def __init__(self, remark: str, kind: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.kind = kind


class PullProcessor:
    """Owned by remoting-io; `cold` is the pool that may wait for the disk."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        clients: ClientManager,
        offsets: ConsumerOffsetManager,
        config: BrokerConfig,
        loop: EventLoop,
        cold: WorkerPool,
        advertised_ip: str,
    ) -> None:
        # Constant after construction.
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._config = config
        self._loop = loop
        self._cold = cold
        self._advertised_ip = advertised_ip
        self.long_polling = LongPolling(loop, self._resume)
        self._pulled = offsets.pulled.note
        # Owned by the pool's thread.
        self._cold_reader = ColdReader(store)
        # Owned by remoting-io.
        self._buffer = memoryview(bytearray(_READ_BUFFER_BYTES))
        self.found_count = 0
        self.miss_count = 0
        self.message_count = 0
        self.message_bytes = 0

    def take_options(self, config: BrokerConfig) -> None:
        """Options were changed: these count from now on. Any thread."""
        self._config = config

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.PULL_MESSAGE, self.handle_pull)
        dispatcher.add(RequestCode.LITE_PULL_MESSAGE, self.handle_pull)
        dispatcher.add_hot(RequestCode.PULL_MESSAGE, self.hot_pull)
        dispatcher.add_hot(RequestCode.LITE_PULL_MESSAGE, self.hot_lite_pull)

    def close(self) -> None:
        """When the loop and the pool have ended."""
        self._cold_reader.close()

    # --- ways in

    def hot_pull(self, conn: Connection, view: memoryview, header: int, body: int, end: int) -> bool:
        try:
            frame = decode_pull(view[header:body])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False
        if not frame.flag & FLAG_ONEWAY:
            self._pull(conn, frame.opaque, frame.extFields)
        return True

    def hot_lite_pull(self, conn: Connection, view: memoryview, header: int, body: int, end: int) -> bool:
        if not self._config.lite_pull_message_enable:
            return False
        return self.hot_pull(conn, view, header, body, end)

    def handle_pull(self, request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
        """The same for any other encoding."""
        if request.code == RequestCode.LITE_PULL_MESSAGE and not self._config.lite_pull_message_enable:
            raise RefusedRequest(
                ResponseCode.NO_PERMISSION, f"the broker[{self._advertised_ip}] for lite pull consumer is forbidden"
            )
        fields = fields_of(request)
        if not request.is_oneway:
            self._pull(conn, request.opaque, fields)
        return None

    # --- one pull

    def _pull(self, conn: Connection, opaque: int, fields: PullFields) -> None:
        """Answer it, park it, or hand it to the cold pool."""
        try:
            topic, group, codes = self._check(fields, conn)
        except RefusedRequest as refusal:
            ext = {"forbiddenType": refusal.kind} if isinstance(refusal, _Forbidden) else {}
            conn.answer(opaque, RemotingCommand.response(refusal.code, str(refusal), ext))
            return
        if self._offsets.resets and self._answer_reset(conn, opaque, fields.group, fields.topic, fields.queue_id):
            return
        if fields.sys_flag & COMMIT_OFFSET:
            self._offsets.commit(fields.group, fields.topic, fields.queue_id, fields.commit_offset)
        queue = self._store.find_queue(fields.topic, fields.queue_id)
        result = self._store.get(queue, fields.offset, min(fields.max_count, _MAX_COUNT), codes)
        if result is None:
            self._get_cold(conn, opaque, fields.group, fields.offset, fields.max_count, queue, codes)
            return
        self._pulled(group.group_name, queue, result.next_offset)
        code = _code_of(result.status, fields.offset)
        if code == ResponseCode.PULL_NOT_FOUND and fields.sys_flag & SUSPEND:
            timeout_ms = fields.suspend_ms if self._config.long_polling_enable else self._config.short_polling_time_ms
            if timeout_ms > 0:
                if queue is None:
                    queue = self._store.queues.get_or_create(fields.topic, fields.queue_id)
                if not self.long_polling.hold(
                    conn, opaque, group.group_name, queue, fields.offset, fields.max_count, codes, timeout_ms
                ):
                    # A client waits after this code; told that nothing was found it would ask again at once.
                    remark = "[HELD]too many pulls of this client, or of all, are being held"
                    conn.answer(opaque, RemotingCommand.response(ResponseCode.SYSTEM_BUSY, remark))
                return
        self._answer(conn, opaque, code, result, topic.topic_sys_flag, group.group_sys_flag)

    def _check(
        self, fields: PullFields, conn: Connection
    ) -> tuple[TopicConfig, SubscriptionGroupConfig, frozenset[int] | None]:
        """(topic, group, wanted tag codes); refuses as 5.3.3's PullMessageProcessor does."""
        if not self._config.broker_permission & PERM_READ:
            raise _Forbidden(f"the broker[{self._advertised_ip}] pulling message is forbidden", ForbiddenType.BROKER)
        group = self._groups.find(fields.group)
        if group is None:
            raise RefusedRequest(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{fields.group}] does not exist, {_HELP}",
            )
        if not group.consume_enable:
            raise _Forbidden(f"subscription group no permission, {fields.group}", ForbiddenType.GROUP)
        topic = self._topics.get(fields.topic)
        if topic is None:
            raise RefusedRequest(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{fields.topic}] not exist, apply first please! {_HELP}"
            )
        if topic.attributes:
            refuse_batch_queues(topic)
        if not topic.perm & PERM_READ:
            raise _Forbidden(f"the topic[{fields.topic}] pulling message is forbidden", ForbiddenType.TOPIC)
        if not 0 <= fields.queue_id < topic.read_queue_nums:
            raise RefusedRequest(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{fields.queue_id}] is illegal, topic:[{fields.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{conn.remote_host}]",
            )
        if fields.sys_flag & SUBSCRIPTION:
            expression, kind = fields.subscription, fields.expression_type
        else:
            expression, kind = self._subscribed(fields, group)
        if kind is not None and kind != "" and kind != "TAG":
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind}"
            )
        return topic, group, tag_codes(expression)

    def _subscribed(self, fields: PullFields, group: SubscriptionGroupConfig) -> tuple[str | None, str | None]:
        """(expression, type) the group's heartbeats said."""
        info = self._clients.consumer_group(fields.group)
        if info is None:
            raise RefusedRequest(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{_HELP}")
        if info.message_model == "BROADCASTING" and not group.consume_broadcast_enable:
            raise _Forbidden(
                f"the consumer group[{fields.group}] can not consume by broadcast way",
                ForbiddenType.BROADCASTING_DISABLED,
            )
        subscription = info.subscriptions.get(fields.topic)
        if subscription is None:
            raise RefusedRequest(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{_HELP}")
        if subscription.sub_version < fields.sub_version:
            raise RefusedRequest(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription.sub_string, subscription.expression_type

    def _resume(self, parked: ParkedPull) -> None:
        """A parked pull was woken or is out of time: answer with what there is now."""
        if parked.conn.closed:
            return
        if parked.conn.full:  # what it asked for before comes first
            parked.conn.when_room(lambda: self._resume(parked))
            return
        place = parked.group, parked.queue.topic, parked.queue.queue_id
        if self._offsets.resets and self._answer_reset(parked.conn, parked.opaque, *place):
            return
        # The topic may have been deleted and made anew meanwhile.
        queue = self._store.find_queue(parked.queue.topic, parked.queue.queue_id)
        result = self._store.get(queue, parked.offset, min(parked.max_count, _MAX_COUNT), parked.codes)
        if result is None:
            self._get_cold(
                parked.conn, parked.opaque, parked.group, parked.offset, parked.max_count, queue, parked.codes
            )
            return
        self._pulled(parked.group, queue, result.next_offset)
        self._finish(parked.conn, parked.opaque, parked.group, parked.queue.topic, parked.offset, result)

    def _answer_reset(self, conn: Connection, opaque: int, group: str, topic: str, queue_id: int) -> bool:
        """An administrator moved the group's offset: say where to, instead of what was asked for; False otherwise."""
        offset = self._offsets.resets.pop((group, topic, queue_id), None)
        if offset is None:
            return False
        low, high = self._store.offset_range(topic, queue_id)
        result = GetResult(GetStatus.OFFSET_RESET, offset, low, high, [], 0, 0)
        self._finish(conn, opaque, group, topic, offset, result)
        return True

    def _finish(
        self, conn: Connection, opaque: int, group_name: str, topic_name: str, offset: int, result: GetResult
    ) -> None:
        topic = self._topics.get(topic_name)
        group = self._groups.get(group_name)
        self._answer(
            conn,
            opaque,
            _code_of(result.status, offset),
            result,
            topic.topic_sys_flag if topic else 0,
            group.group_sys_flag if group else 0,
        )

    # --- answers

    def _answer(
        self, conn: Connection, opaque: int, code: int, result: GetResult, topic_flag: int, group_flag: int
    ) -> None:
        if conn.full:  # nothing is built that is not taken; a pull that came off the disk gets here so
            conn.when_room(
                lambda: None if conn.closed else self._answer(conn, opaque, code, result, topic_flag, group_flag)
            )
            return
        header = _REPLY % (
            code,
            0,
            group_flag,
            result.next_offset,
            result.max_offset,
            result.min_offset,
            topic_flag,
            opaque,
            result.status.encode(),
        )
        length = len(header)
        if not result.runs:
            self.miss_count += 1
            conn.send(_PREFIX.pack(length + 4, length) + header)
            return
        head = _PREFIX.pack(length + 4 + result.size, length) + header
        if len(result.runs) == 1 and result.size >= _SENDFILE_FROM_BYTES:
            place = self._store.log.resident(*result.runs[0])
            if place is not None and conn.send_file(head, *place, result.size):
                self._count(result)
                return
        parts = self._read_runs(result)
        if parts is None:
            self._read_cold(conn, opaque, head, result)
            return
        self._count(result)
        parts.insert(0, head)
        conn.send_now(parts, len(head) + result.size)

    def _count(self, result: GetResult) -> None:
        self.found_count += 1
        self.message_count += result.message_count
        self.message_bytes += result.size

    def _read_runs(self, result: GetResult) -> list[bytes | memoryview] | None:
        """The records from the page cache, in the shared buffer; None when some are not there."""
        log = self._store.log
        runs = result.runs
        buffer = self._buffer
        first, last = runs[0], runs[-1]
        if len(runs) == 1:
            size = first[1]
            if size > len(buffer):
                buffer = memoryview(bytearray(size))
            return [buffer[:size]] if log.read_nowait(first[0], buffer[:size]) else None
        span = last[0] + last[1] - first[0]
        segment = log.segment_at(first[0])
        worth = min(len(buffer), result.size + len(runs) * _BYTES_FOR_A_CALL)
        if span <= worth and segment and first[0] + span <= segment.end:
            if not log.read_nowait(first[0], buffer[:span]):
                return None
            base = first[0]
            return [buffer[offset - base : offset - base + size] for offset, size in runs]
        if result.size > len(buffer):
            buffer = memoryview(bytearray(result.size))
        parts: list[bytes | memoryview] = []
        at = 0
        for offset, size in runs:
            part = buffer[at : at + size]
            if not log.read_nowait(offset, part):
                return None
            parts.append(part)
            at += size
        return parts

    # --- what waits for the disk, in the pool

    def _get_cold(
        self,
        conn: Connection,
        opaque: int,
        group: str,
        offset: int,
        max_count: int,
        queue: ConsumeQueue | None,
        codes: frozenset[int] | None,
        tries: int = _COLD_TRIES,
    ) -> None:
        """Have the pool read the queue's entries, and answer from what it read: one round, whatever is cached."""
        assert queue is not None
        store = self._store
        max_count = min(max_count, _MAX_COUNT)

        def read() -> None:
            if conn.closed:
                return
            try:
                entries = self._cold_reader.entries(queue, offset, max_count, codes)
            except OSError as error:
                logger.error("pull: the entries of %r cannot be read at %d: %s", queue, offset, error)
                self._loop.call_soon(lambda: self._unreadable(conn, opaque))
                return
            self._loop.call_soon(lambda: look(entries))

        def look(entries: bytes) -> None:
            if conn.closed:
                return
            now = store.find_queue(queue.topic, queue.queue_id)
            if now is queue:
                result = store.get(queue, offset, max_count, codes, entries)
            else:  # deleted, and perhaps made anew, meanwhile
                result = store.get(now, offset, max_count, codes)
            if result is not None:
                self._pulled(group, now, result.next_offset)
                self._finish(conn, opaque, group, queue.topic, offset, result)
            elif tries > 1:
                self._get_cold(conn, opaque, group, offset, max_count, now, codes, tries - 1)
            else:
                self._busy(conn, opaque)

        self._submit(conn, opaque, read)

    def _read_cold(self, conn: Connection, opaque: int, head: bytes, result: GetResult) -> None:
        """Read the records in the pool and send them from there."""
        log = self._store.log

        def read() -> None:
            if conn.closed:
                return
            try:
                parts = [log.read(offset, size) for offset, size in result.runs]
            except OSError as error:
                logger.error("pull: the log cannot be read at %d: %s", result.runs[0][0], error)
                self._loop.call_soon(lambda: self._unreadable(conn, opaque))
                return
            body = b"".join(parts)
            if len(body) != result.size:
                begin = log.min_offset
                for (offset, size), part in zip(result.runs, parts, strict=True):
                    if len(part) != size and (part or offset >= begin):
                        logger.error("pull: the log gave %d of %d bytes at %d", len(part), size, offset)
                        conn.close()
                        return
            conn.post(lambda: send(body), len(body))

        def send(body: bytes) -> None:
            """What has expired since it was found is left out."""
            self._count(result)
            prefix = _PREFIX.pack(len(head) - 4 + len(body), len(head) - 8)
            conn.send_parts([prefix, head[8:], body], len(head) + len(body))

        if not self._cold.submit(read, 0, conn):
            conn.close()  # the client pulls again; it has no answer to misread

    def _submit(self, conn: Connection, opaque: int, job: Callable[[], None]) -> None:
        if not self._cold.submit(job):
            self._busy(conn, opaque)

    @staticmethod
    def _busy(conn: Connection, opaque: int) -> None:
        remark = "[OVERLOAD]system busy, start flow control for a while"
        conn.answer(opaque, RemotingCommand.response(ResponseCode.SYSTEM_BUSY, remark))

    @staticmethod
    def _unreadable(conn: Connection, opaque: int) -> None:
        """The disk failed: the client tries again later, at the same offset."""
        conn.answer(opaque, RemotingCommand.response(ResponseCode.SYSTEM_ERROR, "the messages cannot be read"))


def _code_of(status: str, offset: int) -> int:
    """The response code of a read. Source: 5.3.3 `PullMessageProcessor.composeResponseHeader`."""
    if status == GetStatus.FOUND:
        return ResponseCode.SUCCESS
    if status in (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING):
        return ResponseCode.PULL_RETRY_IMMEDIATELY
    if status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    if status in (GetStatus.OFFSET_FOUND_NULL, GetStatus.OFFSET_OVERFLOW_ONE):
        return ResponseCode.PULL_NOT_FOUND
    return ResponseCode.PULL_OFFSET_MOVED
