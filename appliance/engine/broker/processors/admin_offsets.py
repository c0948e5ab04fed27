"""Administrators' requests about offsets: 222 resets a group's, 314 copies them to another group, 43 returns the table.

A reset is an act of `offset_resets/service.py`: the group's offset moves at once, and its members learn of it from the
answer to their next pull (21). With useServerSideResetOffset off, members are asked to move instead (220), as 4.9 does.
Source: RocketMQ 5.3.3 `AdminBrokerProcessor.resetOffsetInner`, `Broker2Client.resetOffset`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import msgspec

from ...errors import RefusedRequest
from ...loop_calls import in_steps
from ...protocol.askers import KNOWS_RESETS
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.fields import optional_bool, optional_int, optional_long, require_long, require_str
from ...protocol.names import is_legal_group
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ...remoting.event_loop import EventLoop
from ..clients import ClientManager
from ..offset_resets.service import MEMBERS_A_TICK, Asking, OffsetResets
from ..offset_resets.targets import AtTime, Exactly, Latest, PlannedMove, Target, text_of
from ..offsets import LATELY_MOVED
from ..queue_json import queue_key, queue_table
from ..tables import Tables
from ..topic_config import TopicConfig

logger = logging.getLogger(__name__)

#: Runs these requests one after the other, together with acts of the window and with deletions.
POOL = "admin"
#: Encodes the table for 43, so that the pool "admin" does not wait for it.
TABLE_POOL = "query"


class AdminOffsetsProcessor:
    """On the pool's thread. server_side: returns True while the broker moves offsets itself."""

    def __init__(
        self,
        resets: OffsetResets,
        tables: Tables,
        clients: ClientManager,
        broker_name: str,
        server_side: Callable[[], bool],
        loop: EventLoop,
    ) -> None:
        # Constant after construction.
        self._resets = resets
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._clients = clients
        self._broker_name = broker_name
        self._server_side = server_side
        self._loop = loop

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self.handle_reset, POOL)
        dispatcher.add(RequestCode.CLONE_GROUP_OFFSET, self.handle_clone, POOL)
        dispatcher.add(RequestCode.GET_ALL_CONSUMER_OFFSET, self.handle_all, TABLE_POOL)

    def handle_reset(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """222: reset to an offset, to a time, or (timestamp -1) to the end; one queue or all."""
        topic, group = require_str(request, "topic"), require_str(request, "group")
        time_ms = require_long(request, "timestamp")
        queue_id, offset = optional_int(request, "queueId", -1), optional_long(request, "offset", -1)
        config = self._topics.get(topic)
        if config is None:
            raise RefusedRequest(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        to_time: Target = Latest() if time_ms < 0 else AtTime(time_ms)
        if not self._server_side():
            force = optional_bool(request, "isForce", False)
            return self._have_clients_move(config, group, to_time, time_ms, force)
        if self._groups.get(group) is None:
            raise RefusedRequest(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        if queue_id >= config.read_queue_nums:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"Topic {topic} has no queue {queue_id} to read")
        if self._resets.is_broadcasting(group):
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR, f"Group {group} consumes by broadcast: its members keep their offsets"
            )
        one = queue_id if queue_id >= 0 else None
        to = to_time if offset < 0 else Exactly(dict.fromkeys(range(config.read_queue_nums), offset))
        planned = self._resets.plan(group, topic, to, one)
        for move in planned:
            if move.is_beyond:
                raise RefusedRequest(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {offset} not in consume queue range [{move.low}-{move.high}]",
                )
        self._resets.apply("reset", group, planned, conn.remote_host, text_of(to))
        return self._table_of(planned)

    def _table_of(self, planned: list[PlannedMove]) -> RemotingCommand:
        table = queue_table(self._entries(planned))
        return RemotingCommand.response(ResponseCode.SUCCESS, body=b'{"offsetTable":%b}' % table)

    def _entries(self, planned: list[PlannedMove]) -> list[tuple[bytes, bytes]]:
        return [(queue_key(self._broker_name, move.topic, move.queue_id), b"%d" % move.target) for move in planned]

    def _have_clients_move(
        self, config: TopicConfig, group: str, to: Target, time_ms: int, force: bool
    ) -> RemotingCommand:
        """Ask every member to move (220). It does so within 10 s and then commits; no offset changes before that."""
        topic = config.topic_name
        planned = []
        for move in self._resets.plan(group, topic, to):
            if move.before < 0:
                raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
            planned.append(move if force else move._replace(target=min(move.target, move.before)))
        info = self._clients.consumer_group(group)
        members = [] if info is None else list(info.channels.values())
        if not members:
            raise RefusedRequest(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} Timestamp: {time_ms}",
            )
        for member in members:
            if member.version < KNOWS_RESETS:
                raise RefusedRequest(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client does not support this feature. version={member.version}",
                )
        table = b'{"offsetTable":%b}' % queue_table(self._entries(planned))
        targets = [(move.queue_id, move.target) for move in planned]
        asking = Asking(self._broker_name, group, topic, targets, time_ms, force)
        soon = self._loop.call_soon
        soon(partial(in_steps, soon, iter(members), MEMBERS_A_TICK, asking.send))
        logger.info("admin: %d members of %s are asked to move in %s to %s", len(members), group, topic, text_of(to))
        return RemotingCommand.response(ResponseCode.SUCCESS, body=table)

    def handle_clone(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """314: give `destGroup` the offsets of `srcGroup`, in one topic or in all.

        Without `offline`, topics that members of `srcGroup` do not subscribe are left out. `destGroup` is made if that
        is allowed; otherwise the answer is 26. Apache keeps offsets of any name.
        """
        source, target = require_str(request, "srcGroup"), require_str(request, "destGroup")
        if not is_legal_group(target):
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR,
                f"the group name {target[:300]!r} is illegal, allowing only ^[%|a-zA-Z0-9_-]+$",
            )
        topic = request.ext_fields.get("topic") or None
        offline = optional_bool(request, "offline", False)
        planned = self._resets.plan_clone(source, target, topic, subscribed_only=not offline)
        if self._groups.get(target) is None:
            self._resets.on_loop(lambda: self._groups.find(target))
        if self._groups.get(target) is None:
            raise RefusedRequest(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {target} does not exist")
        if planned:
            self._resets.apply("clone", target, planned, conn.remote_host, source)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def handle_all(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """43: the whole table, as its file has it; in LATELY_MOVED what administrators moved, if anything."""
        body, moved = self._offsets.document(), self._offsets.lately_moved()
        if moved:
            body = b'%b,"%b":%b}' % (body[:-1].rstrip(), LATELY_MOVED.encode(), msgspec.json.encode(moved))
        return RemotingCommand.response(ResponseCode.SUCCESS, body=body)
