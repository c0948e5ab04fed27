"""Requests about connected clients: 203, 204, 328, 345 are answered from the tables; 223, 307, 309 by the client.

203, 204 and 328 list members, of which there may be very many, and run in the pool.

A client's answer to 307 and 309 is returned as it came: code, remark and body differ by its language.
Source: RocketMQ 5.3.3 `AdminBrokerProcessor`, `Broker2Client`; texts as recorded.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import msgspec

from ... import fastjson
from ...errors import RefusedRequest
from ...loop_calls import in_steps
from ...protocol.askers import KNOWS_RESETS
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import MAX_FRAME_BYTES, RemotingCommand
from ...protocol.fields import I32_MAX, I64_MAX, require_str
from ...protocol.message_id import decode_offset_id
from ...protocol.record import decode_record
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ...remoting.event_loop import EventLoop
from ...remoting.peer_requests import PeerRequests
from ..clients import ClientChannel, ClientManager
from ..heartbeat import MAX_POOL_BODY_BYTES, subscription_as_dict
from ..member_questions import ANSWER_TIMEOUT_S, MemberQuestions
from ..queue_json import queue_key, queue_table
from .query import check_length

logger = logging.getLogger(__name__)

POOL = "query"
STATUS_TIMEOUT_S = 5.0

#: RocketBox's limit: values in a client's answer to 221 (see `fastjson.loads`). A queue's offset takes four of them, in
#: 60 bytes.
_MAX_STATUS_VALUES = 80_000
#: Bytes of a producer in 328, at least. Members that 223 asks in one tick.
_PRODUCER_BYTES, _ASKED_A_TICK = 100, 50


class AdminClientsProcessor:
    """Owned by remoting-io; the pool makes the lists of members, and reads the record for a 309."""

    def __init__(
        self,
        clients: ClientManager,
        peers: PeerRequests,
        questions: MemberQuestions,
        loop: EventLoop,
    ) -> None:
        # Constant after construction.
        self._clients = clients
        self._peers = peers
        self._questions = questions
        self._loop = loop

    def register(self, dispatcher: Dispatcher) -> None:
        self._pool = dispatcher.pool(POOL)
        dispatcher.add(RequestCode.GET_CONSUMER_CONNECTION_LIST, self.handle_consumers, POOL)
        dispatcher.add(RequestCode.GET_PRODUCER_CONNECTION_LIST, self.handle_producers, POOL)
        dispatcher.add(RequestCode.GET_ALL_PRODUCER_INFO, self.handle_all_producers, POOL)
        dispatcher.add(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, self.handle_subscription)
        dispatcher.add(RequestCode.GET_CONSUMER_RUNNING_INFO, self.handle_running_info)
        dispatcher.add(RequestCode.CONSUME_MESSAGE_DIRECTLY, self.handle_consume_directly, POOL)
        dispatcher.add(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, self.handle_status)

    # --- from the tables

    def handle_consumers(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """203: a group's connections and subscriptions; 206 if no member is online."""
        group = require_str(request, "consumerGroup")
        info = self._clients.consumer_group(group)
        if info is None:
            raise RefusedRequest(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        found = {
            "connectionSet": _connections(list(info.channels.values())),
            "consumeFromWhere": info.consume_from_where,
            "consumeType": info.consume_type,
            "messageModel": info.message_model,
            "subscriptionTable": {
                topic: subscription_as_dict(data) for topic, data in list(info.subscriptions.items())
            },
        }
        return _success(found)

    def handle_producers(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """204: a producer group's connections."""
        group = require_str(request, "producerGroup")
        channels = self._clients.producer_channels(group)
        if not channels:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        return _success({"connectionSet": _connections(channels)})

    def handle_all_producers(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """328: every producer of every group. Refused with 1 if the answer is longer than clients read."""
        data: dict[str, list[dict[str, object]]] = {}
        count = 0
        for group in self._clients.producer_groups():
            channels = self._clients.producer_channels(group)
            count += len(channels)
            check_length(count * _PRODUCER_BYTES, "one producer group at a time, by 204")
            data[group] = [
                {
                    "clientId": channel.client_id,
                    "language": channel.language,
                    "lastUpdateTimestamp": channel.last_update_ms,
                    "remoteIP": f"/{channel.conn.remote_host}",
                    "version": channel.version,
                }
                for channel in channels
            ]
        return _success({"data": data})

    def handle_subscription(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """345: a group's subscription to a topic; without `subscriptionData` if it has none, or is offline."""
        group, topic = require_str(request, "group"), require_str(request, "topic")
        info = self._clients.consumer_group(group)
        found: dict[str, object] = {"group": group, "topic": topic}
        subscription = None if info is None else info.subscriptions.get(topic)
        if subscription is not None:
            found["subscriptionData"] = subscription_as_dict(subscription)
        return _success(found)

    # --- by asking a client

    def _member(self, group: str, client_id: str) -> ClientChannel:
        channel = self._questions.member(group, client_id)
        if channel is None:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        return channel

    def handle_running_info(self, request: RemotingCommand, conn: Connection) -> None:
        """307: a consumer's report about itself."""
        group, client_id = require_str(request, "consumerGroup"), require_str(request, "clientId")
        self._relay(request, conn, self._member(group, client_id), request.ext_fields, b"")

    def handle_consume_directly(self, request: RemotingCommand, conn: Connection) -> None:
        """309: have a consumer consume one message now, whatever its offsets say."""
        group, client_id = require_str(request, "consumerGroup"), require_str(request, "clientId")
        channel = self._member(group, client_id)
        try:
            physical = decode_offset_id(require_str(request, "msgId"))[2]
        except ValueError as error:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"msgId: {error}") from None
        record = self._questions.read_record(physical)
        if record is None:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {physical}")
        if request.caller is not None:
            request.caller.check_topic(decode_record(record).topic, "Sub")
        fields = self._questions.consume_fields(request.ext_fields)
        self._loop.call_soon(lambda: self._relay_found(request, conn, channel, fields, record))

    def _relay_found(
        self, request: RemotingCommand, conn: Connection, channel: ClientChannel, fields: dict[str, str], body: bytes
    ) -> None:
        try:
            self._relay(request, conn, channel, fields, body)
        except RefusedRequest as refusal:
            conn.respond(request, RemotingCommand.response(refusal.code, str(refusal)))

    def _relay(
        self, request: RemotingCommand, conn: Connection, channel: ClientChannel, fields: dict[str, str], body: bytes
    ) -> None:
        """Send the request on to the client, and its answer to `conn`. Refuses with 1 a client that is too old."""
        group, client_id = fields["consumerGroup"], fields["clientId"]
        if self._questions.is_too_old(channel):
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{channel.version}> too low to finish, "
                "please upgrade it to V3_1_8",
            )

        def done(answer: RemotingCommand | None) -> None:
            if answer is None:
                text = f"consumer <{group}> <{client_id}> Timeout: no answer in {ANSWER_TIMEOUT_S:g} s"
                reply = RemotingCommand.response(ResponseCode.CONSUME_MSG_TIMEOUT, text)
            else:
                reply = RemotingCommand.response(answer.code, answer.remark, answer.ext_fields, answer.body)
            conn.respond(request, reply)

        self._questions.ask(channel, request.code, dict(fields), body, done)

    def handle_status(self, request: RemotingCommand, conn: Connection) -> None:
        """223: the offsets that each member of a group holds of a topic; with `clientAddr` (a client id), only that
        member's."""
        group, topic = require_str(request, "group"), require_str(request, "topic")
        only = request.ext_fields.get("clientAddr") or ""
        info = self._clients.consumer_group(group)
        members = [] if info is None else [c for c in list(info.channels.values()) if not only or c.client_id == only]
        if not members:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{group}]")
        for channel in members:
            if channel.version < KNOWS_RESETS:
                raise RefusedRequest(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client does not support this feature. version={channel.version}",
                )
        bodies: dict[str, bytes] = {}
        held = 0
        open_questions = len(members)

        def merge() -> None:
            """Send the answer. In the pool, because clients' answers are in a dialect that no C parser reads."""
            merged = b",".join(msgspec.json.encode(name) + b":" + _offsets_of(body) for name, body in bodies.items())
            found = b'{"consumerTable":{' + merged + b'},"messageQueueTable":{}}'
            conn.respond(request, RemotingCommand.response(ResponseCode.SUCCESS, body=found))

        def answered(channel: ClientChannel, answer: RemotingCommand | None) -> None:
            nonlocal open_questions, held
            open_questions -= 1
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                held += len(answer.body)
                fits = len(answer.body) <= MAX_POOL_BODY_BYTES and held <= MAX_FRAME_BYTES
                bodies[channel.client_id] = answer.body if fits else b""
            if open_questions == 0 and not self._pool.submit(merge, held):
                busy = RemotingCommand.response(ResponseCode.SYSTEM_BUSY, "too many requests wait; try again")
                conn.respond(request, busy)

        def ask(channel: ClientChannel) -> None:
            question = RemotingCommand(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext_fields={"topic": topic, "group": group}
            )
            self._peers.ask(channel.conn, question, STATUS_TIMEOUT_S, partial(answered, channel))

        in_steps(self._loop.call_soon, iter(members), _ASKED_A_TICK, ask)


def _success(value: object) -> RemotingCommand:
    return RemotingCommand.response(ResponseCode.SUCCESS, body=msgspec.json.encode(value))


def _connections(channels: list[ClientChannel]) -> list[dict[str, object]]:
    return [
        {
            "clientAddr": channel.conn.remote_host,
            "clientId": channel.client_id,
            "language": channel.language,
            "version": channel.version,
        }
        for channel in channels
    ]


def _number(value: Any, limit: int = I64_MAX) -> int:
    number = int(value)
    if not -1 <= number <= limit:  # Java's -1: nothing consumed yet
        raise ValueError("a number that no client has")
    return number


def _offsets_of(body: bytes) -> bytes:
    """Return the `messageQueueTable` of a client's answer to 221, encoded anew; an empty table if it cannot be read."""
    try:
        table = fastjson.loads(body, _MAX_STATUS_VALUES).get("messageQueueTable") or {}
        return queue_table(
            (queue_key(str(q["brokerName"]), str(q["topic"]), _number(q["queueId"], I32_MAX)), b"%d" % _number(offset))
            for q, offset in ((fastjson.loads(key, _MAX_STATUS_VALUES), offset) for key, offset in table.items())
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning("admin: a consumer's status cannot be read: %s", error)
        return b"{}"
