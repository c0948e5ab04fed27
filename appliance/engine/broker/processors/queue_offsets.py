"""Offsets and times of a queue: 30 GET_MAX_OFFSET, 31 GET_MIN_OFFSET, 29 SEARCH_OFFSET_BY_TIMESTAMP and
32 GET_EARLIEST_MSG_STORETIME.

The response code is always 0, for unknown queues too, as with the recorded brokers. 29 and 32 read the log and run in
the pool `query`.
"""

from __future__ import annotations

from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.fields import require_int, require_long, require_str
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher
from ...store.message_store import MessageStore
from ...store.time_search import Boundary, TimeSearch

POOL = "query"


class QueueOffsetProcessor:
    """30 and 31 inline, 29 and 32 in the pool."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._search = TimeSearch(store.queues, store.records)  # owned by the pool's thread

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.GET_MAX_OFFSET, self.handle_max_offset)
        dispatcher.add(RequestCode.GET_MIN_OFFSET, self.handle_min_offset)
        dispatcher.add(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, self.handle_search, POOL)
        dispatcher.add(RequestCode.GET_EARLIEST_MSG_STORETIME, self.handle_earliest, POOL)

    def handle_max_offset(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """30: the offset behind the last published message, also with `committed=false`: no other can be pulled."""
        offset = self._store.max_offset(require_str(request, "topic"), require_int(request, "queueId"))
        return RemotingCommand.response(ResponseCode.SUCCESS, ext={"offset": str(offset)})

    def handle_min_offset(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        offset = self._store.min_offset(require_str(request, "topic"), require_int(request, "queueId"))
        return RemotingCommand.response(ResponseCode.SUCCESS, ext={"offset": str(offset)})

    def handle_search(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        topic, queue_id = require_str(request, "topic"), require_int(request, "queueId")
        upper = request.ext_fields.get("boundaryType", "").lower() == "upper"
        boundary = Boundary.UPPER if upper else Boundary.LOWER
        offset = self._search.offset_at(topic, queue_id, require_long(request, "timestamp"), boundary)
        return RemotingCommand.response(ResponseCode.SUCCESS, ext={"offset": str(offset)})

    def handle_earliest(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        time_ms = self._search.earliest_time(require_str(request, "topic"), require_int(request, "queueId"))
        return RemotingCommand.response(ResponseCode.SUCCESS, ext={"timestamp": str(time_ms)})
