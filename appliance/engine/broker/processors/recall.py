"""RECALL_MESSAGE (370): from a frame to `timers/recall.py`, and the answer when the mark is durable.

Source: RocketMQ 5.3.3 `RecallMessageProcessor`, answers as recorded. Differs: the success has no remark (Apache's says
"not set any response code"); a mark that is stored and not yet known to be durable is 1, not a success; a handle whose
unique key holds control characters is invalid.
"""

from __future__ import annotations

from ...errors import RefusedRequest
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.fields import require_str
from ...protocol.properties import MSG_REGION
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ..sending.outcome import PutOutcome
from ..timers.recall import Asked, RecallPath

_FAILED = "recall failed, execute error"


class RecallProcessor:
    """Owned by remoting-io."""

    def __init__(self, path: RecallPath, region: str) -> None:
        # Constant after construction.
        self._path = path
        self._region = region

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.RECALL_MESSAGE, self.handle_recall)

    def handle_recall(self, request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
        """370: answer a refusal at once, everything else when the mark's tick is published."""
        fields = request.ext_fields
        try:
            asked = Asked(
                require_str(request, "topic"),
                fields.get("recallHandle", ""),
                fields.get("producerGroup", ""),
                conn.born_host,
            )
            self._path.recall(asked, _RecallReply(conn, request, self._region))
        except RefusedRequest as refusal:
            return RemotingCommand.response(refusal.code, refusal.remark, {MSG_REGION: self._region})
        return None


class _RecallReply:
    """A producer that waits for the answer."""

    __slots__ = ("_conn", "_region", "_request")

    def __init__(self, conn: Connection, request: RemotingCommand, region: str) -> None:
        self._conn = conn
        self._request = request
        self._region = region

    def put_ended(self, outcome: PutOutcome) -> None:
        fields = {MSG_REGION: self._region}
        if outcome.code == ResponseCode.SUCCESS:
            fields["msgId"] = outcome.unique_key
            self._conn.respond(self._request, RemotingCommand.response(ResponseCode.SUCCESS, None, fields))
            return
        reason = "stored, but not yet known to be durable" if outcome.physical_offsets else outcome.reason
        answer = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{_FAILED}: {reason}", fields)
        self._conn.respond(self._request, answer)
