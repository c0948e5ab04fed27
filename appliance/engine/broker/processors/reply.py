"""SEND_REPLY_MESSAGE (324), SEND_REPLY_MESSAGE_V2 (325): a reply is pushed to the requester (326).

A reply is stored as a send is (`storeReplyMessageEnable`), and pushed to the producer whose client id its property
REPLY_TO_CLIENT names. The code of the answer is the outcome of the push, its fields give the place of the stored reply.
It is sent when both are known: the requester has answered 326 or its time is over, and the tick is published. No thread
blocks meanwhile.

Source: RocketMQ 5.3.3 `ReplyMessageProcessor`, `Broker2Client.callClient`; texts as there, frames as recorded.
Differs: the stored reply also has the property CLUSTER, as each sent message has; a reply is pushed only if it may be
stored; if two connections have the client id, the newest gets the push, and the other one only after that has closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec.structs import replace

from ...clock import Clock
from ...errors import RefusedRequest
from ...host_port import join_host_port
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.message_id import decode_host
from ...protocol.properties import (
    MSG_REGION,
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    TRACE_SWITCH,
    decode_properties,
    encode_properties,
)
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ...remoting.peer_requests import PeerRequests
from ..clients import ClientManager
from ..sending.fields import SendFields, fields_of
from ..sending.outcome import PutOutcome
from ..sending.send_path import SendPath
from .send import SendAnswers

logger = logging.getLogger(__name__)

#: Time that a requester has to answer 326, as with Apache. The client that replies gives up after 3 s by default.
PUSH_TIMEOUT_S = 10.0
#: RocketBox's limit: pushes that may wait for the answer of one requester. Beyond it, and beyond the requester's share
#: of `MAX_WAITING`, a reply is not pushed, as if the requester had gone.
MOST_PUSHES_TO_ONE = 1000


class ReplyProcessor:
    """Owned by remoting-io."""

    def __init__(
        self,
        path: SendPath,
        answers: SendAnswers,
        clients: ClientManager,
        peers: PeerRequests,
        store_host: bytes,
        stores_replies: Callable[[], bool],
        clock: Clock,
    ) -> None:
        """store_host: the broker's address as records hold it. stores_replies: returns `storeReplyMessageEnable`."""
        # Constant after construction.
        self._path = path
        self._answers = answers
        self._clients = clients
        self._peers = peers
        self._store_host = join_host_port(*decode_host(store_host))
        self._stores_replies = stores_replies
        self._clock = clock

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.SEND_REPLY_MESSAGE, self.handle_reply)
        dispatcher.add(RequestCode.SEND_REPLY_MESSAGE_V2, self.handle_reply)

    def handle_reply(self, request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
        """Check a reply as a send, store it, push it. One that may not be stored is refused at once and not pushed."""
        fields = fields_of(request, letters=request.code == RequestCode.SEND_REPLY_MESSAGE_V2)
        if fields.batch:
            fields = replace(fields, batch=False)  # as with Apache's: one message, whatever its body is
        reply = _Reply(self._answers, conn, request)
        reply.queue_id = max(fields.queue_id, 0)
        if self._stores_replies():
            reply.is_stored = True
            body = memoryview(request.body)
            self._path.put(fields, request.version, conn.born_host, body, reply, empty_body=True)
            if reply.is_refused:
                return None
        else:
            try:
                reply.queue_id = self._path.queue_of(fields, request.version, conn.born_host).queue_id
            except RefusedRequest as refusal:
                return self._answers.plain(refusal.code, refusal.remark)
        reply.is_pushing = True
        self._push(fields, conn, request.body, reply)
        request.body, request.ext_fields = b"", {}  # it waits for its answer: very many may, for PUSH_TIMEOUT_S
        return None

    def _push(self, fields: SendFields, conn: Connection, body: bytes, reply: _Reply) -> None:
        properties = decode_properties(fields.properties)
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            reply.push_ended(f"reply message properties[{REPLY_TO_CLIENT}] is null")
            return
        requester = self._clients.producer_of(client_id)
        if requester is None:
            logger.info("reply: no requester client=%s from=%s", client_id[:300], conn.remote_host)
            reply.push_ended(f"push reply message fail, channel of <{client_id}> not found.")
            return
        failed = f"push reply message to {client_id}fail."
        waiting = self._peers.waiting_of(requester)
        if requester.full or waiting >= MOST_PUSHES_TO_ONE:
            logger.warning(
                "reply: not pushed, %s client=%s waiting=%d of=%d",
                "the requester takes nothing" if requester.full else "too many pushes wait for their answer",
                client_id[:300],
                waiting,
                self._peers.waiting,
            )
            reply.push_ended(failed)
            return
        now_ms = self._clock.wall_ms()
        added = self._path.added_properties
        properties |= {name: added[name] for name in (MSG_REGION, TRACE_SWITCH)}
        properties[PUSH_REPLY_TIME] = str(now_ms)
        question = RemotingCommand(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            ext_fields={
                "producerGroup": fields.producer_group,
                "topic": fields.topic,
                "defaultTopic": fields.default_topic,
                "defaultTopicQueueNums": str(fields.default_topic_queue_nums),
                "queueId": str(fields.queue_id),
                "sysFlag": str(fields.sys_flag),
                "bornTimestamp": str(fields.born_ms),
                "flag": str(fields.flag),
                "properties": encode_properties(properties),
                "reconsumeTimes": str(fields.reconsume_times),
                "unitMode": "true" if fields.unit_mode else "false",
                "bornHost": conn.remote_host,
                "storeHost": self._store_host,
                "storeTimestamp": str(now_ms),
            },
            body=body,
        )

        def done(answer: RemotingCommand | None) -> None:
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                reply.push_ended(None)
                return
            why = "no answer" if answer is None else f"code={answer.code} {(answer.remark or '')[:300]}"
            logger.warning("reply: the push failed client=%s: %s", client_id[:300], why)
            reply.push_ended(failed)

        self._peers.ask(requester, question, PUSH_TIMEOUT_S, done)


class _Reply:
    """A reply under way, and the connection that waits for the answer to it.

    is_stored: the reply goes to the store, which calls `put_ended`. is_pushing: the push has begun; a `put_ended`
    before that is a refusal, and becomes the answer.
    """

    __slots__ = (
        "_answers", "_conn", "_failure", "_pushed", "_request", "_stored", "is_pushing", "is_refused", "is_stored",
        "queue_id",
    )  # fmt: skip

    def __init__(self, answers: SendAnswers, conn: Connection, request: RemotingCommand) -> None:
        self._answers = answers
        self._conn = conn
        self._request = request
        self._pushed = False  # the outcome of the push is known
        self._failure: str | None = None
        self._stored: PutOutcome | None = None
        self.is_stored = False
        self.is_pushing = False
        self.is_refused = False
        self.queue_id = 0

    def put_ended(self, outcome: PutOutcome) -> None:
        if not self.is_pushing:
            self.is_refused = True
            self._conn.respond(self._request, self._answers.refusal(outcome))
            return
        self._stored = outcome
        if self._pushed:
            self._answer()

    def push_ended(self, failure: str | None) -> None:
        """Take the outcome of the push. failure: why the requester did not get the reply; None if it did."""
        self._pushed, self._failure = True, failure
        if not self.is_stored or self._stored is not None:
            self._answer()

    def _answer(self) -> None:
        """Send the answer: the code of the push, the ids of the stored reply; id 0 for a reply that is not stored."""
        code = ResponseCode.SUCCESS if self._failure is None else ResponseCode.SYSTEM_ERROR
        response = self._answers.plain(code, self._failure)
        stored = self._stored
        if stored is not None and stored.physical_offsets:
            response.ext_fields |= {
                "msgId": self._answers.offset_ids(stored.physical_offsets).decode(),
                "queueId": str(stored.queue_id),
                "queueOffset": str(stored.queue_offset),
            }
        elif self._failure is None:
            response.ext_fields |= {"msgId": "0", "queueId": str(self.queue_id), "queueOffset": "0"}
        self._conn.respond(self._request, response)
