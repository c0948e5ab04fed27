"""Finding single messages: 12 QUERY_MESSAGE (by key or unique key) and 33 VIEW_MESSAGE_BY_ID (by physical offset).

Both read the disk in the pool `key-query`; a query by key is answered without it if the page cache has all it needs.
For a unique key the index is enough as it is. Only if it has nothing, the part of the log behind it is indexed first.

Answers are those of 5.3.3 without two of its faults: a message whose key merely has the same hash is not returned, and
33 at a place where no record begins finds nothing instead of returning the bytes that lie there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import RefusedRequest
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import MAX_FRAME_BYTES, RemotingCommand
from ...protocol.fields import optional_bool, require_int, require_long, require_str
from ...store.index.index_query import IndexQuery, KeyBytes, KeyRecords

if TYPE_CHECKING:
    from ...config import BrokerConfig, StoreConfig
    from ...remoting.connection import Connection
    from ...remoting.dispatcher import Dispatcher
    from ...store.message_store import MessageStore

POOL = "key-query"
#: The field that clients set when they ask for a unique key; then the broker's own limit counts instead of `maxNum`.
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
#: Clients read no larger frame; the rest is for the header. Records that do not fit are left out, the oldest first.
MAX_BODY_BYTES = MAX_FRAME_BYTES - 64 * 1024


def check_length(size: int, instead: str) -> None:
    """Refuse with 1 an answer of `size` bytes or more if no client reads one so long. instead: what to ask for."""
    if size > MAX_BODY_BYTES:
        raise RefusedRequest(
            ResponseCode.SYSTEM_ERROR, f"the answer is longer than {MAX_BODY_BYTES >> 20} MiB: ask for {instead}"
        )


class QueryMessageProcessor:
    """Stateless; runs on remoting-io and on the pool's thread."""

    def __init__(self, store: MessageStore, broker: BrokerConfig, config: StoreConfig) -> None:
        self._records = store.records
        self._query = IndexQuery(store.index, store.records)
        self.take_options(broker, config)

    def take_options(self, broker: BrokerConfig, config: StoreConfig) -> None:
        """Use these options from now on. Any thread."""
        # Replaced whole.
        self._broker = broker
        self._config = config

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.QUERY_MESSAGE, self.handle_query, POOL, self.query_at_once)
        dispatcher.add(RequestCode.VIEW_MESSAGE_BY_ID, self.handle_view, POOL)

    def query_at_once(self, request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
        asked = self._read(request)
        found = self._query.find_now(*asked)
        return None if found is None else _answer_of(found, found.records)

    def handle_query(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        topic, key, limit, begin_ms, end_ms, is_unique = self._read(request)
        if is_unique:
            found = self._query.find(topic, key, limit, begin_ms, end_ms, MAX_BODY_BYTES)
            if found.records:
                return _answer_of(found, [data for _, data in found.records])
        self._query.catch_up()
        found = self._query.find(topic, key, limit, begin_ms, end_ms, MAX_BODY_BYTES)
        return _answer_of(found, [data for _, data in found.records])

    def _read(self, request: RemotingCommand) -> tuple[str, str, int, int, int, bool]:
        """Return topic, key, most messages, first and last time in ms, and whether the key is a unique one."""
        topic, key = require_str(request, "topic"), require_str(request, "key")
        limit = require_int(request, "maxNum")
        begin_ms, end_ms = require_long(request, "beginTimestamp"), require_long(request, "endTimestamp")
        is_unique = optional_bool(request, UNIQUE_KEY_QUERY, False)
        if is_unique:
            limit = self._broker.default_query_max_num
        return topic, key, min(limit, self._config.max_msgs_num_batch), begin_ms, end_ms, is_unique

    def handle_view(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        offset = require_long(request, "offset")
        found = self._records.get(offset)
        if found is None:
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        if request.caller is not None:
            request.caller.check_topic(found.record.topic, "Sub", "Get")
        return RemotingCommand.response(ResponseCode.SUCCESS, body=found.data)


def _answer_of(found: KeyRecords | KeyBytes, records: list[bytes]) -> RemotingCommand:
    ext = {
        "indexLastUpdateTimestamp": str(found.last_time_ms),
        "indexLastUpdatePhyoffset": str(found.last_offset),
    }
    if not records:
        return RemotingCommand.response(
            ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct", ext
        )
    return RemotingCommand.response(ResponseCode.SUCCESS, None, ext, b"".join(records))
