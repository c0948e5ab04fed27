"""Reads offsets of many queues at once: the first, the one behind the last, the one of a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from appliance.engine.protocol.codes import RequestCode, ResponseCode

from .access import Access
from .brokers import tried
from .connection import Answer, Connection, number, refused
from .routes import Addresses, Queue

#: Requests under way on one connection.
_WINDOW = 64

Offsets = dict[Queue, int]


class OffsetReader:
    """Sends requests to the brokers of a route. Each call connects to each broker once."""

    def __init__(self, access: Access, brokers: Mapping[str, Addresses]) -> None:
        self._access = access
        self._brokers = brokers
        #: Broker name -> address of its server that answered last.
        self.answered: dict[str, str] = {}

    def first(self, queues: Iterable[Queue]) -> Offsets:
        """Return for each queue the offset of the oldest message."""
        return self._ask(RequestCode.GET_MIN_OFFSET, queues, "the first offset", {})

    def end(self, queues: Iterable[Queue]) -> Offsets:
        """Return for each queue the offset behind the newest message."""
        return self._ask(RequestCode.GET_MAX_OFFSET, queues, "the last offset", {})

    def not_before(self, queues: Iterable[Queue], time_ms: int) -> Offsets:
        """Return for each queue an offset with no message before it that was stored at `time_ms` or later; messages at
        and behind it may be older.

        For a time that several messages share, 4.9 answers with any of them; for a time between two, with the nearer.
        """
        return self._ask(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queues, "the offset of a time", {"timestamp": time_ms - 1}
        )

    def not_after(self, queues: Iterable[Queue], time_ms: int) -> Offsets:
        """Return for each queue an offset with no message at or behind it that was stored before `time_ms`; messages
        before it may be younger."""
        fields = {"timestamp": time_ms}
        found = self._ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queues, "the offset of a time", fields)
        return {queue: offset + 1 for queue, offset in found.items()}

    def _ask(self, code: int, queues: Iterable[Queue], what: str, fields: Mapping[str, object]) -> Offsets:
        by_broker: dict[str, list[Queue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker, []).append(queue)
        found: Offsets = {}
        for broker, wanted in by_broker.items():
            ask_all = _asker(code, wanted, what, fields)
            self.answered[broker], offsets = tried(broker, self._brokers[broker], self._access, ask_all)
            found |= offsets
        return found


def _asker(
    code: int, queues: Sequence[Queue], what: str, fields: Mapping[str, object]
) -> Callable[[Connection], tuple[str, Offsets]]:
    def ask_all(connection: Connection) -> tuple[str, Offsets]:
        found: Offsets = {}
        under_way: dict[int, Queue] = {}
        waiting = deque(queues)
        while waiting or under_way:
            while waiting and len(under_way) < _WINDOW:
                queue = waiting.popleft()
                asked = {"topic": queue.topic, "queueId": queue.queue_id, **fields}
                under_way[connection.send(code, asked)] = queue
            answer = connection.receive()
            queue = under_way.pop(answer.opaque)
            found[queue] = _offset(connection, queue, what, answer)
        return connection.address, found

    return ask_all


def _offset(connection: Connection, queue: Queue, what: str, answer: Answer) -> int:
    if answer.code != ResponseCode.SUCCESS:
        raise refused(connection.address, f"{what} of {queue}", answer)
    return max(0, number(connection.address, answer, "offset"))
