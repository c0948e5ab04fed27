"""Clients come and go: 34 HEART_BEAT, 35 UNREGISTER_CLIENT, 38 GET_CONSUMER_LIST_BY_GROUP, 46 CHECK_CLIENT_CONFIG.

All run on remoting-io, so that a heartbeat is registered before the pull that follows it on the same connection. A
heartbeat with many new entries is registered in slices, one a tick, so that other peers do not wait for it; it is
answered after the last slice.
Source: RocketMQ 5.3.3 `ClientManageProcessor`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

import msgspec

from ...config import BrokerConfig
from ...errors import RefusedRequest
from ...filter.expressions import (
    FILTERS,
    SQL92,
    TAG_TYPES,
    is_known,
    is_quick,
    is_quick_to_make,
    make_filter,
    not_supported,
)
from ...filter.message_filter import MessageFilter
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import Caller, RemotingCommand
from ...protocol.fields import require_str
from ...protocol.names import PERM_READ, PERM_WRITE, RETRY_PREFIX, is_legal_group
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher, WorkerPool
from ...shares import Shares
from ..clients import Client, ClientManager
from ..config_table import TooMany
from ..groups import SubscriptionGroupManager
from ..heartbeat import (
    MOST_OBJECTS,
    CheckClientBody,
    ConsumerData,
    HeartbeatData,
    decode_body,
    named_in,
    without,
)
from ..heartbeat_bounds import (
    MOST_EXPRESSION_CHARS,
    MOST_GROUPS_OF_A_CONNECTION,
    MOST_SUBSCRIPTION_BYTES_OF_A_CONNECTION,
    check_heartbeat,
    too_many_groups,
    too_much_subscribed,
)
from ..topics import TopicConfigManager

logger = logging.getLogger(__name__)

_UNIT_SUB = 2  # TopicSysFlag
#: Cost of one slice of a heartbeat in tens of microseconds: about 1 ms. 100 groups that are known already fit into one.
_SLICE = 100
#: Cost of an entry in the same unit: its group is known, the client joins it, the group and its retry topic are made.
_KNOWN, _JOINED, _MADE = 1, 5, 15
#: A heartbeat of at most this many entries is one slice, whatever they cost; nearly every client's is.
_FEW = 6
#: Time that the pool gives to one heartbeat's expressions before others have their turn, plus the expression under way.
#: Pulls wait in the same pool.
_COMPILING_S = 0.01
#: Bytes of the bodies of all heartbeats that wait for their next slice. Beyond it a heartbeat is answered with 2, and
#: the client sends the next in 30 s. 10,000 clients with 30 groups each may begin at once. The bytes are shared out by
#: connection and address (`Shares`); each connection may have the smaller number in any case.
MOST_WAITING_BYTES, FEW_WAITING_BYTES = 64 * 1024 * 1024, 16 * 1024


class _Heartbeat:
    """A heartbeat that is being registered; `at` counts the entries that are done, consumers first. data: what is
    allowed of it. refusal: of the rest, "" if there is none. mark: None if the next one like it is to be read."""

    __slots__ = ("at", "compiled", "conn", "data", "full_wanted", "mark", "refusal", "request", "size", "who")

    def __init__(
        self,
        request: RemotingCommand,
        conn: Connection,
        data: HeartbeatData,
        who: Client,
        mark: int | None,
        refusal: str,
        full_wanted: bool,
    ) -> None:
        self.request = request
        self.conn = conn
        self.data = data
        self.who = who
        self.mark = mark
        self.refusal = refusal
        self.size = len(request.body)
        self.at = 0
        self.compiled: dict[str, MessageFilter | RefusedRequest] = {}
        self.full_wanted = full_wanted


class ClientProcessor:
    """Owned by remoting-io."""

    def __init__(
        self,
        clients: ClientManager,
        groups: SubscriptionGroupManager,
        topics: TopicConfigManager,
        later: Callable[[Callable[[], None]], None],
        pool: WorkerPool,
        config: BrokerConfig,
    ) -> None:
        """later: runs a function on this thread in the next tick. pool: compiles expressions that take long."""
        # Constant after construction.
        self._clients = clients
        self._groups = groups
        self._topics = topics
        self._later = later
        self._pool = pool
        # Replaced whole by take_options().
        self._config = config
        # Heartbeats that their first slice did not finish. One slice is taken a tick, of each heartbeat in turn.
        self._waiting: deque[_Heartbeat] = deque()
        self._waiting_for: dict[Connection, _Heartbeat] = {}
        self._waiting_bytes = 0
        self._shares = Shares(FEW_WAITING_BYTES)

    def take_options(self, config: BrokerConfig) -> None:
        """Use these options from now on. Any thread."""
        self._config = config

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.HEART_BEAT, self.handle_heartbeat)
        dispatcher.add(RequestCode.UNREGISTER_CLIENT, self.handle_unregister)
        dispatcher.add(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self.handle_consumer_list)
        dispatcher.add(RequestCode.CHECK_CLIENT_CONFIG, self.handle_check_config)

    def _generation(self) -> int:
        """Return a number that grows with each change of topics or groups."""
        return self._topics.generation + self._groups.generation

    def handle_heartbeat(self, request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
        """Register the client's groups. A group that may not be made is left out, as 5.3.3 does. Groups and topics that
        its user may not consume are left out, and refused with 16 when the rest is registered.

        Refuses with 1 a body that is no heartbeat, one that names groups but no client, and one that exceeds
        `heartbeat_bounds`; nothing is registered then. Refuses with 2 while an earlier heartbeat of the connection is
        being registered. None: the answer comes later.
        """
        body, caller = request.body, request.caller
        mark = hash(body) if caller is None else _mark_of(body, caller)
        if (
            mark is not None
            and (request.version, request.language) == (conn.version, conn.language)
            and conn not in self._waiting_for
            and self._clients.heard_again(conn, mark, self._generation())
        ):
            if caller is not None:
                caller.allowed()
            return _taken(full_wanted=True)  # it equals the connection's last one, as nearly all do
        data = decode_body(body, HeartbeatData)
        if mark is None or mark != self._clients.mark_of(conn):  # otherwise it equals the last one, which passed
            check_heartbeat(data)
            self._check_room(conn, data, len(body))
        if self._waiting_for and conn in self._waiting_for:
            raise RefusedRequest(ResponseCode.SYSTEM_BUSY, "the last heartbeat of this client is still being taken")
        refusal = ""
        full_wanted = data.heartbeat_fingerprint == 0  # as recorded: always True for a client without V2
        if caller is not None:
            meant = self._with_subscriptions(data) if data.without_sub else data
            kept_from, refusal = caller.kept_from_consuming(named_in(meant), conn)
            if kept_from:
                full_wanted |= data.without_sub and self._reads_others(data)
                data, mark = without(meant, kept_from, self._is_read), None
        who = Client(data.client_id, request.language, request.version)
        if conn.client_id != who.client_id:
            conn.told.clear()  # it had another client id before
        conn.client_id, conn.language, conn.version = who
        if new := _to_be_compiled(data):
            self._compile_first(_Heartbeat(request, conn, data, who, mark, refusal, full_wanted), new)
            return None
        if len(data.consumer_data_set) + len(data.producer_data_set) <= _FEW:
            generation = self._generation()
            for consumer in data.consumer_data_set:
                if self._make_group(consumer, conn):
                    full_wanted |= self._clients.register_consumer(
                        conn, who, consumer, data.heartbeat_fingerprint, data.without_sub
                    )
            for producer in data.producer_data_set:
                if is_legal_group(producer.group_name):
                    self._clients.register_producer(conn, who, producer.group_name)
            again = None
            if data.heartbeat_fingerprint == 0 and mark is not None:  # else the answer depends on the other members
                again = (
                    {consumer.group_name for consumer in data.consumer_data_set},
                    {producer.group_name for producer in data.producer_data_set},
                )
            self._clients.heard(conn, mark, again, generation)
            return _answer(data, refusal, full_wanted)
        beat = _Heartbeat(request, conn, data, who, mark, refusal, full_wanted)
        if not self._take_slice(beat):
            self._let_wait(beat)
            self._resume(beat)
            return None
        return self._done(beat)

    def _with_subscriptions(self, data: HeartbeatData) -> HeartbeatData:
        """Return a V2 heartbeat without subscriptions with those that it stands for: what the group reads. A client
        that may not read this would only take queues, also if its fingerprint is another one than the group's: what it
        reads itself is not known before its full heartbeat. Refuses with 1 one that stands for more than a heartbeat
        can name, as by naming a group twice."""
        room = MOST_OBJECTS
        consumers = []
        for consumer in data.consumer_data_set:
            info = self._clients.consumer_group(consumer.group_name)
            if info is not None and data.heartbeat_fingerprint:
                room -= len(info.subscriptions)
                if room < 0:
                    raise RefusedRequest(
                        ResponseCode.SYSTEM_ERROR, f"its groups read more than the {MOST_OBJECTS} topics of a heartbeat"
                    )
                read = list(info.subscriptions.values())
                consumer = msgspec.structs.replace(consumer, subscription_data_set=read)
            consumers.append(consumer)
        return msgspec.structs.replace(data, consumer_data_set=consumers)

    def _reads_others(self, data: HeartbeatData) -> bool:
        """True if the last heartbeat of one of its groups had another fingerprint."""
        groups = (self._clients.consumer_group(consumer.group_name) for consumer in data.consumer_data_set)
        return any(info is not None and info.fingerprint != data.heartbeat_fingerprint for info in groups)

    def _is_read(self, group: str, topic: str) -> bool:
        info = self._clients.consumer_group(group)
        return info is not None and topic in info.subscriptions

    def _let_wait(self, beat: _Heartbeat) -> None:
        """Count a heartbeat that is not done yet. Refuses it with 2 if too many wait."""
        if not self._shares.take(beat.conn.born_host, MOST_WAITING_BYTES, beat.size):
            raise RefusedRequest(ResponseCode.SYSTEM_BUSY, "too many heartbeats of new clients at once, try again")
        self._waiting_for[beat.conn] = beat
        self._waiting_bytes += beat.size

    def _waits_no_more(self, beat: _Heartbeat) -> None:
        self._waiting_for.pop(beat.conn, None)
        self._waiting_bytes -= beat.size
        self._shares.give(beat.conn.born_host, beat.size)

    def _resume(self, beat: _Heartbeat) -> None:
        """Queue a heartbeat for its next slice."""
        if not self._waiting:
            self._later(self._continue)
        self._waiting.append(beat)

    def _compile_first(self, beat: _Heartbeat, expressions: dict[str, str]) -> None:
        """Have new expressions compiled in the pool before the heartbeat is registered.

        expressions: expression -> its type.
        """
        conn = beat.conn
        self._let_wait(beat)

        rest = deque(expressions.items())

        def go_on() -> bool:
            """Queue the next slice of compiling in the pool, behind the jobs that wait there; False if it is full."""
            return self._pool.submit(compile_some, beat.size, conn)

        def compile_some() -> None:
            ends = time.monotonic() + _COMPILING_S
            goes_on = False
            try:
                while rest and not conn.closed and not goes_on:
                    expression, kind = rest.popleft()
                    try:
                        beat.compiled[expression] = make_filter(kind, expression, conn.born_host)
                    except RefusedRequest as refusal:
                        # A copy is kept: the caught error holds the frames that it passed through, and the heartbeat.
                        beat.compiled[expression] = RefusedRequest(refusal.code, refusal.remark)
                    goes_on = bool(rest) and time.monotonic() >= ends and go_on()
            finally:  # after an error, too: otherwise the heartbeat would wait for ever
                if not goes_on:
                    conn.post(lambda: self._resume(beat), 0)

        if not go_on():
            self._waits_no_more(beat)
            raise RefusedRequest(ResponseCode.SYSTEM_BUSY, "too many expressions of new clients at once, try again")

    def _check_room(self, conn: Connection, data: HeartbeatData, size: int) -> None:
        """Refuse with 1 a heartbeat that would make its connection hold more than it may. size: bytes of the body."""
        consumers, producers = self._clients.groups_of(conn)
        if not consumers and not producers:
            return
        named = {producer.group_name for producer in data.producer_data_set}
        if len(producers.keys() | named) > MOST_GROUPS_OF_A_CONNECTION:
            raise too_many_groups()
        unnamed = consumers.keys() - {consumer.group_name for consumer in data.consumer_data_set}
        if not unnamed:  # so it is with Apache's clients: a heartbeat names every group of the connection
            return
        if len(unnamed) + len(data.consumer_data_set) > MOST_GROUPS_OF_A_CONNECTION:
            raise too_many_groups()
        if size + self._clients.subscription_bytes(conn, unnamed) > MOST_SUBSCRIPTION_BYTES_OF_A_CONNECTION:
            raise too_much_subscribed()

    def _take_slice(self, beat: _Heartbeat) -> bool:
        """Register the rest of a heartbeat, or one slice of it. True when it is done."""
        data, conn, clients = beat.data, beat.conn, self._clients
        consumers, producers = data.consumer_data_set, data.producer_data_set
        in_consumers, in_producers = clients.groups_of(conn)
        cost = 0
        while beat.at < len(consumers) and cost < _SLICE:
            consumer = consumers[beat.at]
            beat.at += 1
            made = self._topics.generation + self._groups.generation
            joined = consumer.group_name not in in_consumers
            if self._make_group(consumer, conn):
                beat.full_wanted |= clients.register_consumer(
                    conn, beat.who, consumer, data.heartbeat_fingerprint, data.without_sub, beat.compiled
                )
            if self._topics.generation + self._groups.generation != made:
                cost += _MADE
            cost += _JOINED if joined else _KNOWN
            cost += len(consumer.subscription_data_set) // 10
        while len(consumers) <= beat.at < len(consumers) + len(producers) and cost < _SLICE:
            name = producers[beat.at - len(consumers)].group_name
            beat.at += 1
            cost += _KNOWN if name in in_producers else _JOINED
            if is_legal_group(name):
                clients.register_producer(conn, beat.who, name)
        return beat.at >= len(consumers) + len(producers)

    def _continue(self) -> None:
        """Take the next slice of the heartbeat that has waited longest."""
        beat = self._waiting.popleft()
        answer = None
        try:
            if beat.conn.closed or self._take_slice(beat):
                answer = self._done(beat)
        except RefusedRequest as refusal:
            answer = RemotingCommand.response(refusal.code, str(refusal))
        except Exception as error:  # a bug: the heartbeats behind this one are taken nevertheless
            logger.exception("clients: a heartbeat was not taken in full from=%s", beat.conn.remote_host)
            answer = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if answer is None:
            self._waiting.append(beat)
        else:
            self._waits_no_more(beat)
            beat.conn.respond(beat.request, answer)
        if self._waiting:
            self._later(self._continue)

    def _done(self, beat: _Heartbeat) -> RemotingCommand:
        self._clients.heard(beat.conn, beat.mark)
        return _answer(beat.data, beat.refusal, beat.full_wanted)

    def _make_group(self, consumer: ConsumerData, conn: Connection) -> bool:
        """Make the group and its retry topic where they are missing; False if the group may not be made."""
        name = consumer.group_name
        try:
            group = self._groups.find(name, conn.born_host)
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
        beat = self._waiting_for.get(conn)
        if beat is not None:  # it came before: the rest of it would have the client join again
            consumers, producers = beat.data.consumer_data_set, beat.data.producer_data_set
            at = max(0, beat.at - len(consumers))
            producers[at:] = [one for one in producers[at:] if one.group_name != producer]
            consumers[beat.at :] = [one for one in consumers[beat.at :] if one.group_name != consumer]
        if producer:
            self._clients.unregister_producer(conn, producer)
        if consumer:
            self._clients.unregister_consumer(conn, consumer)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def handle_consumer_list(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """38: the client ids of a group. A client that does not find its own id among them takes no queue."""
        name = require_str(request, "consumerGroup")
        info = self._clients.consumer_group(name)
        if info is None:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        body = msgspec.json.encode({"consumerIdList": info.client_ids()})
        return RemotingCommand.response(ResponseCode.SUCCESS, body=body)

    def handle_check_config(self, request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
        """46: answer 0 if the broker can filter by the subscription, 23 with the fault and its place if the expression
        is wrong. None: the answer comes later."""
        data = decode_body(request.body, CheckClientBody).subscription_data
        if data is None:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "the body has no subscriptionData")
        kind, expression = data.expression_type, data.sub_string
        if kind in TAG_TYPES:
            return RemotingCommand.response(ResponseCode.SUCCESS)
        if kind not in FILTERS or not self._config.enable_property_filter:
            raise not_supported(kind)
        if len(expression) > MOST_EXPRESSION_CHARS:
            raise RefusedRequest(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"the expression has more than {MOST_EXPRESSION_CHARS} characters",
            )
        if is_quick(expression):
            make_filter(kind, expression, conn.born_host)
            return RemotingCommand.response(ResponseCode.SUCCESS)

        def compile_it() -> None:
            try:
                make_filter(kind, expression, conn.born_host)
                answer = RemotingCommand.response(ResponseCode.SUCCESS)
            except RefusedRequest as refusal:
                answer = RemotingCommand.response(refusal.code, refusal.remark)
            conn.post(lambda: conn.respond(request, answer), 0)

        if not self._pool.submit(compile_it, len(request.body), conn):
            raise RefusedRequest(ResponseCode.SYSTEM_BUSY, "too many expressions of new clients at once, try again")
        return None


def _to_be_compiled(data: HeartbeatData) -> dict[str, str]:
    """Return expression -> type for the SQL92 expressions of a heartbeat that are not known; {} if all of them together
    compile quickly."""
    found: dict[str, str] = {}
    for consumer in data.consumer_data_set:
        for wanted in consumer.subscription_data_set:
            kind, expression = wanted.expression_type, wanted.sub_string
            if kind == SQL92 and expression not in found and not is_known(expression):
                found[expression] = kind
    return {} if is_quick_to_make(sum(map(len, found)) + len(found) * 50) else found


def _mark_of(body: bytes, caller: Caller) -> int | None:
    """Return what tells a user's heartbeat from others; None if each is to be read."""
    identity = caller.identity
    return None if identity is None else hash((body, identity))


def _answer(data: HeartbeatData, refusal: str, full_wanted: bool) -> RemotingCommand:
    """Return the answer to a heartbeat of which a part may be refused. A client that is answered 16 does not learn that
    its subscriptions are wanted: it is told that first."""
    if refusal and not (data.without_sub and full_wanted):
        return RemotingCommand.response(ResponseCode.NO_PERMISSION, refusal)
    return _taken(full_wanted)


def _taken(full_wanted: bool) -> RemotingCommand:
    """Return the answer to a heartbeat. full_wanted: the next one is to contain all subscriptions (V2)."""
    return RemotingCommand.response(
        ResponseCode.SUCCESS,
        ext={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if full_wanted else "false"},
    )
