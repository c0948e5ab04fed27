"""Clients come and go: 34 HEART_BEAT, 35 UNREGISTER_CLIENT, 38 GET_CONSUMER_LIST_BY_GROUP, 46 CHECK_CLIENT_CONFIG.

All on remoting-io, so that a heartbeat is done before the pull that follows it on the same connection. One that brings
much that is new is worked off a slice a tick, so that nobody else waits for it, and answered at its end.
Source: RocketMQ 5.3.3 `ClientManageProcessor`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import msgspec

from ...errors import RefusedRequest
from ...filter.expressions import FILTERS, not_supported
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.fields import require_str
from ...protocol.names import PERM_READ, PERM_WRITE, RETRY_PREFIX, is_legal_group
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ..clients import Client, ClientManager
from ..config_table import TooMany
from ..groups import SubscriptionGroupManager
from ..heartbeat import CheckClientBody, ConsumerData, HeartbeatData, decode_body
from ..heartbeat_bounds import (
    MOST_GROUPS_OF_A_CONNECTION,
    MOST_SUBSCRIPTION_BYTES_OF_A_CONNECTION,
    check_heartbeat,
    too_many_groups,
    too_much_subscribed,
)
from ..topics import TopicConfigManager

logger = logging.getLogger(__name__)

_UNIT_SUB = 2  # TopicSysFlag
#: A slice of a heartbeat, in tens of microseconds: 1 ms, about. 100 groups that are known already are one slice.
_SLICE = 100
#: What an entry costs in these: known, one by which a client joins, one whose group and retry topic are made.
_KNOWN, _JOINED, _MADE = 1, 5, 15
#: So many entries are one slice, whatever they cost: what nearly every client has.
_FEW = 6
#: Bodies of the heartbeats that wait for their next slice, all together; another one then is answered with 2, and the
#: client sends the next in 30 s. 10,000 clients with 30 groups each may begin at once.
MOST_WAITING_BYTES = 64 * 1024 * 1024


class _Heartbeat:
    """One that is being taken; `at` counts the entries that are done, consumers first."""

    __slots__ = ("at", "conn", "data", "full_wanted", "mark", "request", "size", "who")

    def __init__(self, request: RemotingCommand, conn: Connection, data: HeartbeatData, who: Client, mark: int) -> None:
        self.request = request
        self.conn = conn
        self.data = data
        self.who = who
        self.mark = mark
        self.size = len(request.body)
        self.at = 0
        self.full_wanted = data.heartbeat_fingerprint == 0  # recorded: always said to a client without V2


class ClientProcessor:
    """Owned by remoting-io."""

    def __init__(
        self,
        clients: ClientManager,
        groups: SubscriptionGroupManager,
        topics: TopicConfigManager,
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        """later: runs a function on this thread in the next tick."""
        # Constant after construction.
        self._clients = clients
        self._groups = groups
        self._topics = topics
        self._later = later
        # Those not done in their first slice: one slice a tick, of one after the other.
        self._waiting: deque[_Heartbeat] = deque()
        self._waiting_for: set[Connection] = set()
        self._waiting_bytes = 0

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.HEART_BEAT, self.handle_heartbeat)
        dispatcher.add(RequestCode.UNREGISTER_CLIENT, self.handle_unregister)
        dispatcher.add(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self.handle_consumer_list)
        dispatcher.add(RequestCode.CHECK_CLIENT_CONFIG, self.handle_check_config)

    def handle_heartbeat(self, request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
        """Register what the client holds. A group that may not be made is left out, as 5.3.3 does.

        Refuses with 1, and nothing is registered, a body that is no heartbeat, one that names groups but no client, and
        what `heartbeat_bounds` does not let through; with 2 while an earlier one of the connection is being taken.
        None: the answer comes later.
        """
        body = request.body
        data = decode_body(body, HeartbeatData)
        mark = hash(body)
        if mark != self._clients.mark_of(conn):  # else it says what the last one said, which was fine
            check_heartbeat(data)
            self._check_room(conn, data, len(body))
        if self._waiting_for and conn in self._waiting_for:
            raise RefusedRequest(ResponseCode.SYSTEM_BUSY, "the last heartbeat of this client is still being taken")
        who = Client(data.client_id, request.language, request.version)
        conn.client_id, conn.language, conn.version = who
        if len(data.consumer_data_set) + len(data.producer_data_set) <= _FEW:
            full_wanted = data.heartbeat_fingerprint == 0
            for consumer in data.consumer_data_set:
                if self._make_group(consumer):
                    full_wanted |= self._clients.register_consumer(
                        conn, who, consumer, data.heartbeat_fingerprint, data.without_sub
                    )
            for producer in data.producer_data_set:
                if is_legal_group(producer.group_name):
                    self._clients.register_producer(conn, who, producer.group_name)
            self._clients.heard(conn, mark)
            return _taken(full_wanted)
        beat = _Heartbeat(request, conn, data, who, mark)
        if not self._take_slice(beat):
            if self._waiting_bytes + beat.size > MOST_WAITING_BYTES:
                raise RefusedRequest(ResponseCode.SYSTEM_BUSY, "too many heartbeats of new clients at once, try again")
            if not self._waiting:
                self._later(self._continue)
            self._waiting.append(beat)
            self._waiting_for.add(conn)
            self._waiting_bytes += beat.size
            return None
        return self._done(beat)

    def _check_room(self, conn: Connection, data: HeartbeatData, size: int) -> None:
        """Refuse with 1 what would make one connection hold more than its share. size: the body's."""
        consumers, producers = self._clients.groups_of(conn)
        if not consumers and not producers:
            return
        named = {producer.group_name for producer in data.producer_data_set}
        if len(producers.keys() | named) > MOST_GROUPS_OF_A_CONNECTION:
            raise too_many_groups()
        unnamed = consumers.keys() - {consumer.group_name for consumer in data.consumer_data_set}
        if not unnamed:  # as with every client of Apache's: a heartbeat names all that it is in
            return
        if len(unnamed) + len(data.consumer_data_set) > MOST_GROUPS_OF_A_CONNECTION:
            raise too_many_groups()
        if size + self._clients.subscription_bytes(conn, unnamed) > MOST_SUBSCRIPTION_BYTES_OF_A_CONNECTION:
            raise too_much_subscribed()

    def _take_slice(self, beat: _Heartbeat) -> bool:
        """Register what is left of a heartbeat, or a slice of it; whether it is done."""
        data, conn, clients = beat.data, beat.conn, self._clients
        consumers, producers = data.consumer_data_set, data.producer_data_set
        in_consumers, in_producers = clients.groups_of(conn)
        cost = 0
        while beat.at < len(consumers) and cost < _SLICE:
            consumer = consumers[beat.at]
            beat.at += 1
            made = self._topics.generation + self._groups.generation
            joined = consumer.group_name not in in_consumers
            if self._make_group(consumer):
                beat.full_wanted |= clients.register_consumer(
                    conn, beat.who, consumer, data.heartbeat_fingerprint, data.without_sub
                )
            if self._topics.generation + self._groups.generation != made:
                cost += _MADE
            cost += _JOINED if joined else _KNOWN
            cost += len(consumer.subscription_data_set) // 10
        while len(consumers) <= beat.at < len(consumers) + len(producers) and cost < _SLICE:
            name = producers[beat.at - len(consumers)].group_name
            beat.at += 1
            if is_legal_group(name):
                clients.register_producer(conn, beat.who, name)
            cost += _KNOWN if name in in_producers else _JOINED
        return beat.at >= len(consumers) + len(producers)

    def _continue(self) -> None:
        """The next slice of the heartbeat that has waited longest."""
        beat = self._waiting.popleft()
        answer = None
        try:
            if beat.conn.closed or self._take_slice(beat):
                answer = self._done(beat)
        except RefusedRequest as refusal:
            answer = RemotingCommand.response(refusal.code, str(refusal))
        except Exception as error:  # of ours: the heartbeats behind it are taken all the same
            logger.exception("clients: a heartbeat was not taken in full from=%s", beat.conn.remote_host)
            answer = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if answer is None:
            self._waiting.append(beat)
        else:
            self._waiting_for.discard(beat.conn)
            self._waiting_bytes -= beat.size
            beat.conn.respond(beat.request, answer)
        if self._waiting:
            self._later(self._continue)

    def _done(self, beat: _Heartbeat) -> RemotingCommand:
        self._clients.heard(beat.conn, beat.mark)
        return _taken(beat.full_wanted)

    def _make_group(self, consumer: ConsumerData) -> bool:
        """Have the group and its retry topic made; False when the group may not be."""
        name = consumer.group_name
        try:
            group = self._groups.find(name)
        except TooMany as error:
            logger.warning("clients: heartbeat for a new group=%r: %s", name[:300], error)
            return False
        if group is None:
            logger.info("clients: heartbeat for a group that may not be made group=%r", name[:300])
            return False
        ordered = any(self._topics.is_order_topic(wanted.topic) for wanted in consumer.subscription_data_set)
        flag = _UNIT_SUB if consumer.unit_mode else 0
        try:
            self._topics.create_retry_topic(
                RETRY_PREFIX + name, group.retry_queue_nums, PERM_READ | PERM_WRITE, ordered, flag
            )
        except TooMany as error:
            logger.warning("clients: no retry topic for group=%s: %s", name, error)
        return True

    def handle_unregister(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        producer, consumer = request.ext_fields.get("producerGroup"), request.ext_fields.get("consumerGroup")
        if producer:
            self._clients.unregister_producer(conn, producer)
        if consumer:
            self._clients.unregister_consumer(conn, consumer)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def handle_consumer_list(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """The client ids of a group; the one who asks must be among them or it takes no queue."""
        name = require_str(request, "consumerGroup")
        info = self._clients.consumer_group(name)
        if info is None:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        body = msgspec.json.encode({"consumerIdList": info.client_ids()})
        return RemotingCommand.response(ResponseCode.SUCCESS, body=body)

    def handle_check_config(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """Whether the broker can filter as a consumer wants: by tags. There is no compiler for SQL92 yet."""
        data = decode_body(request.body, CheckClientBody).subscription_data
        if data is None:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "the body has no subscriptionData")
        if data.expression_type not in FILTERS:
            raise not_supported(data.expression_type)
        return RemotingCommand.response(ResponseCode.SUCCESS)


def _taken(full_wanted: bool) -> RemotingCommand:
    """The answer. full_wanted: the next heartbeat is to say everything (V2)."""
    return RemotingCommand.response(
        ResponseCode.SUCCESS,
        ext={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if full_wanted else "false"},
    )
