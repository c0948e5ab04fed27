"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320): from a frame to the send path, and the answer.

The outcome of a send stays a value until its tick is published; only then is the
answer encoded from it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from ...protocol.codes import VERSION, RequestCode
from ...protocol.command import FLAG_ONEWAY, RemotingCommand
from ...protocol.properties import MSG_REGION, TRACE_SWITCH
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher, Frame
from ..sending.fields import LongFields, SendFields, fields_of
from ..sending.outcome import PutOutcome
from ..sending.send_path import SendPath

_PREFIX = struct.Struct(">ii")


class SendAnswers:
    """Makes the answers of sends. Owned by remoting-io."""

    def __init__(self, store_host: bytes, region: str, trace_on: bool) -> None:
        # Constant after construction.
        self._host_hex = store_host.hex().upper().encode()
        self._region = region
        self.take_trace(trace_on)

    def take_trace(self, on: bool) -> None:
        """Use this value of traceOn from now on; it is part of every answer."""
        trace = "true" if on else "false"
        #: Bytes before, between and behind code, queue id, unique key, offset ids, queue offset and opaque. The last
        #: piece is the beginning of each offset id.
        self.pieces = (
            b'{"code":',
            b',"extFields":{"queueId":"',
            b'","transactionId":"',
            b'","msgId":"',
            b'","TRACE_ON":"%b","MSG_REGION":%b,"queueOffset":"' % (trace.encode(), msgspec.json.encode(self._region)),
            b'"},"flag":1,"language":"JAVA","opaque":',
            b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION,
            self._host_hex,
        )
        before, *between = [piece.replace(b"%", b"%%") for piece in self.pieces[:-1]]
        places = (b"%d", b"%d", b"%b", b"%b", b"%d", b"%d")
        #: The same as one template.
        self.stored = before + b"".join([place + piece for place, piece in zip(places, between, strict=True)])
        #: The template for one message: it takes the physical offset instead of offset ids.
        self.stored_one = self.stored.replace(b'"msgId":"%b"', b'"msgId":"%b%%016X"' % self._host_hex)
        #: Fields of every answer to a send, refusals too; Java reads them without a null check.
        self._always = {TRACE_SWITCH: trace, MSG_REGION: self._region}

    def offset_ids(self, physical_offsets: Sequence[int]) -> bytes:
        return b",".join([self._host_hex + b"%016X"] * len(physical_offsets)) % tuple(physical_offsets)

    def refusal(self, outcome: PutOutcome) -> RemotingCommand:
        return self.plain(outcome.code, outcome.reason)

    def plain(self, code: int, remark: str | None) -> RemotingCommand:
        """Return an answer with the fields that every answer to a send has."""
        return RemotingCommand.response(code, remark, dict(self._always))


class SendReply(msgspec.Struct, gc=False):
    """A peer that waits for the answer to one send."""

    answers: SendAnswers
    conn: Connection
    opaque: int

    def put_ended(self, outcome: PutOutcome) -> None:
        try:
            places = outcome.physical_offsets
            answers = self.answers
            if not places:
                self.conn.answer(self.opaque, answers.refusal(outcome))
                return
            key = outcome.unique_key
            quoted = key.encode() if key.isalnum() else msgspec.json.encode(key)[1:-1]
            if len(places) == 1:
                header = answers.stored_one % (
                    outcome.code, outcome.queue_id, quoted, places[0], outcome.queue_offset, self.opaque,
                )  # fmt: skip
            else:
                ids = answers.offset_ids(places)
                header = answers.stored % (
                    outcome.code, outcome.queue_id, quoted, ids, outcome.queue_offset, self.opaque,
                )  # fmt: skip
            if outcome.recall_handle:
                header = _with_handle(header, outcome.recall_handle)
            size = len(header)
            self.conn.send(_PREFIX.pack(size + 4, size) + header)
        except Exception:  # closes this peer's connection; the tick's other answers go out
            self.conn.fail()


def _with_handle(header: bytes, recall_handle: str) -> bytes:
    """Return an answer's header with the recall handle added. It is Base64, and no value before its place holds a
    quote."""
    return header.replace(b',"queueOffset":"', b',"recallHandle":"%b","queueOffset":"' % recall_handle.encode(), 1)


class SendProcessor:
    """Owned by remoting-io: every method runs there."""

    def __init__(self, path: SendPath, answers: SendAnswers, runs: Any = None) -> None:
        """runs: takes usual sends before `hot_send` sees them (`SendPath.runs`)."""
        # Constant after construction.
        self._put = path.put
        self._answers = answers
        self._runs = runs

    def register(self, dispatcher: Dispatcher) -> None:
        for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            dispatcher.add(code, self.handle_send)
            dispatcher.add_hot(code, LongFields if code == RequestCode.SEND_MESSAGE else SendFields, self.hot_send)
            dispatcher.add_runs(code, self._runs)

    def take_options(self) -> None:
        """Have `runs` read the options of sends again, which were changed."""
        if self._runs is not None:
            self._runs.refresh()

    def hot_send(self, conn: Connection, frame: Frame[SendFields], body: memoryview) -> None:
        """Serve a send as Java, Go and C++ write it."""
        reply_to = None if frame.flag & FLAG_ONEWAY else SendReply(self._answers, conn, frame.opaque)
        self._put(frame.extFields, frame.version, conn.born_host, body, reply_to)

    def handle_send(self, request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
        """Serve a send in any other encoding; it is answered when the tick is published."""
        fields = fields_of(request, letters=request.code != RequestCode.SEND_MESSAGE)
        reply_to = None if request.flag & FLAG_ONEWAY else SendReply(self._answers, conn, request.opaque)
        self._put(fields, request.version, conn.born_host, memoryview(request.body), reply_to)
        return None
