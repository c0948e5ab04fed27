"""Cleaning on request: 306 CLEAN_EXPIRED_CONSUMEQUEUE, 316 CLEAN_UNUSED_TOPIC, 329 DELETE_EXPIRED_COMMITLOG."""

from __future__ import annotations

from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ..requested_cleaning import RequestedCleaning

POOL = "admin"


class CleaningProcessor:
    """On the pool's thread."""

    def __init__(self, service: RequestedCleaning) -> None:
        self._service = service

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, self.handle_queues, POOL)
        dispatcher.add(RequestCode.CLEAN_UNUSED_TOPIC, self.handle_topics, POOL)
        dispatcher.add(RequestCode.DELETE_EXPIRED_COMMITLOG, self.handle_log, POOL)

    def handle_queues(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        self._service.clean_queues(conn.remote_host)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def handle_topics(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        self._service.clean_topics(conn.remote_host)
        return RemotingCommand.response(ResponseCode.SUCCESS)

    def handle_log(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        self._service.clean_log(conn.remote_host)
        return RemotingCommand.response(ResponseCode.SUCCESS)
