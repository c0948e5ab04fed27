"""CONSUMER_SEND_MSG_BACK (36), refused until delayed delivery exists.

A message sent back is a delayed one. Stored as an ordinary message it would come back at once, for ever; refused with 1
a client keeps it and tries again by itself after 5 s.
"""

from __future__ import annotations

from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher


class SendBackProcessor:
    """Answers 1."""

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.CONSUMER_SEND_MSG_BACK, self.handle_send_back)

    def handle_send_back(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        return RemotingCommand.response(
            ResponseCode.SYSTEM_ERROR,
            "sending back is not supported yet: this broker does not deliver delayed messages",
        )
