"""Offsets moved by administrators: 222 resets a group, 314 copies one group's to another, 43 hands the table out.

A reset is the group's offset at once, and every member's next pull of the queue is answered with it (21): parked pulls
are answered right away, and what members still report of before (15) does not count until then.
Source: RocketMQ 5.3.3 `AdminBrokerProcessor.resetOffsetInner`, `ConsumerOffsetManager.assignResetOffset`.
"""

from __future__ import annotations

import logging

from ...errors import RefusedRequest
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.fields import optional_bool, optional_int, optional_long, require_long, require_str
from ...protocol.names import is_legal_group
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ...remoting.event_loop import EventLoop
from ...store.message_store import MessageStore
from ...store.time_search import Boundary, TimeSearch
from ..clients import ClientManager
from ..groups import SubscriptionGroupManager
from ..long_polling import LongPolling
from ..offsets import ConsumerOffsetManager
from ..queue_json import queue_key, queue_table
from ..topics import TopicConfigManager

logger = logging.getLogger(__name__)

#: Searches by time read the log.
POOL = "query"


class AdminOffsetsProcessor:
    """Looks up on the pool's thread, changes on remoting-io."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        clients: ClientManager,
        long_polling: LongPolling,
        loop: EventLoop,
        broker_name: str,
    ) -> None:
        # Constant after construction.
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._long_polling = long_polling
        self._loop = loop
        self._broker_name = broker_name
        self._search = TimeSearch(store.queues, store.records)

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self.handle_reset, POOL)
        dispatcher.add(RequestCode.CLONE_GROUP_OFFSET, self.handle_clone, POOL)
        dispatcher.add(RequestCode.GET_ALL_CONSUMER_OFFSET, self.handle_all, POOL)

    def handle_reset(self, request: RemotingCommand, conn: Connection) -> None:
        """222: to an offset, to a time, or (timestamp -1) to the end; of one queue or of all. Answered on the loop."""
        topic, group = require_str(request, "topic"), require_str(request, "group")
        time_ms = require_long(request, "timestamp")
        queue_id, offset = optional_int(request, "queueId", -1), optional_long(request, "offset", -1)
        config = self._topics.get(topic)
        if config is None:
            raise RefusedRequest(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if self._groups.get(group) is None:
            raise RefusedRequest(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        if queue_id >= config.read_queue_nums:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"Topic {topic} has no queue {queue_id} to read")
        targets = {}
        for number in range(config.read_queue_nums) if queue_id < 0 else (queue_id,):
            targets[number] = self._target(topic, number, offset, time_ms)

        def apply() -> None:
            for number, target in targets.items():
                self._offsets.reset(group, topic, number, target)
                queue = self._store.find_queue(topic, number)
                if queue is not None:
                    self._offsets.pulled.forget(group, queue)
                    self._long_polling.release(queue, group)
            logger.info("admin: offsets reset group=%s topic=%s to=%s by=%s", group, topic, targets, conn.remote_host)
            table = queue_table(
                (queue_key(self._broker_name, topic, number), b"%d" % target) for number, target in targets.items()
            )
            body = b'{"offsetTable":%b}' % table
            conn.respond(request, RemotingCommand.response(ResponseCode.SUCCESS, body=body))

        self._loop.call_soon(apply)

    def _target(self, topic: str, queue_id: int, offset: int, time_ms: int) -> int:
        low, high = self._store.offset_range(topic, queue_id)
        if offset >= 0:
            if not low <= offset <= high:
                raise RefusedRequest(
                    ResponseCode.SYSTEM_ERROR, f"Target offset {offset} not in consume queue range [{low}-{high}]"
                )
            return offset
        return high if time_ms < 0 else self._search.offset_at(topic, queue_id, time_ms, Boundary.LOWER)

    def handle_clone(self, request: RemotingCommand, conn: Connection) -> None:
        """314: `destGroup` continues where `srcGroup` is, in one topic or in all that it subscribes.

        The group is made if it may be, 26 if not: Apache keeps offsets of any name. Answered on the loop.
        """
        source, target = require_str(request, "srcGroup"), require_str(request, "destGroup")
        if not is_legal_group(target):
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR,
                f"the group name {target[:300]!r} is illegal, allowing only ^[%|a-zA-Z0-9_-]+$",
            )
        topic = request.ext_fields.get("topic") or ""
        offline = optional_bool(request, "offline", False)
        info = self._clients.consumer_group(source)
        found: list[tuple[str, dict[int, int]]] = []
        for entry in self._offsets.all():
            if entry.group != source or (topic and entry.topic != topic):
                continue
            if self._topics.get(entry.topic) is None:
                continue
            if not offline and info is not None and info.subscriptions and entry.topic not in info.subscriptions:
                continue
            found.append((entry.topic, entry.queues.copy()))

        def apply() -> None:
            conn.respond(request, self._clone(target, found))

        self._loop.call_soon(apply)

    def _clone(self, target: str, found: list[tuple[str, dict[int, int]]]) -> RemotingCommand:
        """On remoting-io."""
        try:
            if self._groups.find(target) is None:
                raise RefusedRequest(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {target} does not exist")
        except RefusedRequest as refusal:
            return RemotingCommand.response(refusal.code, str(refusal))
        for topic, queues in found:
            for queue_id, offset in queues.items():
                if not self._offsets.commit(target, topic, queue_id, offset):
                    remark = f"not all of it is kept: the offsets of {topic} would be more than there may be"
                    return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, remark)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def handle_all(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """43: the whole table, as its file has it."""
        return RemotingCommand.response(ResponseCode.SUCCESS, body=self._offsets.document())
