"""What one of our brokers tells another of its topics: their table, which were deleted, where queues go on.

    asked     field `seen`: how many notes of deletions are known, -1 at first
    answered  {"changes": 7, "seen": 3, "begin": the log's, "deleted": {"T": [below, {"0": [10, 12345]}]},
               "topics": as 21}

    asked     a body ["T", ...]
    answered  {"end": the log's, "ends": {"T": {"0": 10}}}

changes: how many changes by administrators are in it. deleted: as `store/retention/deleted_topics.py` has it, all at
first, then what is new. ends: behind the last message of each queue, which lies before `end` in the log.
Apache's brokers answer 3.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..errors import RefusedRequest
from ..fastjson import loads
from ..named_tuple import NamedTuple
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..remoting.connection import Connection
from ..remoting.dispatcher import Dispatcher
from ..store.message_store import MessageStore
from ..store.retention.deleted_topics import Begin, Deletion

#: Not "admin": that one waits for who asks here.
POOL = "pull-cold"
#: Topics whose queues are asked about at a time.
MOST_TOPICS = 1000
#: A name and what is around it, at most.
_NAME_BYTES = 1024


class TopicPlaces(NamedTuple):
    """An answer. topics: the document of 21."""

    changes: int
    seen: int
    log_begin: int
    deletions: tuple[Deletion, ...]
    topics: Any


class TopicPlacesProcessor:
    """On the pool's thread."""

    def __init__(
        self, store: MessageStore, changes: Callable[[], int], topics: Callable[[], bytes | bytearray]
    ) -> None:
        """changes: how many by administrators there were. topics: as 21 answers."""
        self._store = store
        self._changes = changes
        self._topics = topics

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.ROCKETBOX_TOPIC_PLACES, self.handle, POOL)

    def handle(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        body = self._ends(_names_in(request.body)) if request.body else self._places(request)
        return RemotingCommand.response(ResponseCode.SUCCESS, body=body)

    def _places(self, request: RemotingCommand) -> bytes:
        deleted, log = self._store.files.deleted_topics, self._store.log
        try:
            known = int((request.ext_fields or {}).get("seen", "-1"))
        except ValueError:
            known = -1
        changes = self._changes()  # first: what follows has at least these
        seen = len(deleted.changed)
        names = set(deleted.changed[known:seen]) if 0 <= known <= seen else None
        # Each member asks each second, and whoever deletes many topics has a long file.
        below, ends = deleted.load_all() if names is None or names else ({}, {})
        names = below.keys() | ends.keys() if names is None else names
        said = {name: [below.get(name, 0), ends.get(name, {})] for name in sorted(names)}
        head = {"changes": changes, "seen": seen, "begin": log.min_offset, "deleted": said}
        return json.dumps(head).encode()[:-1] + b',"topics":' + self._topics() + b"}"

    def _ends(self, names: Any) -> bytes:
        wanted = [name for name in names[:MOST_TOPICS] if isinstance(name, str)] if isinstance(names, list) else []
        queues = self._store.queues
        ends = {
            name: {queue.queue_id: queue.max_offset for queue in queues.of_topic(name) if queue.max_offset}
            for name in wanted
        }
        end = self._store.log.written  # last: what the queues have lies before, so that who has come so far has it, too
        return json.dumps({"end": end, "ends": ends}).encode()


def _names_in(body: bytes) -> Any:
    """What a request names; refuses with 1 what is no document, or a longer one than a member sends."""
    if len(body) > MOST_TOPICS * _NAME_BYTES:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the body has {len(body)} bytes, which is too much")
    try:
        return loads(bytes(body), 2 * MOST_TOPICS)
    except (ValueError, RecursionError) as error:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the body is no list of topics: {error}") from None


def decode_places(body: bytes) -> TopicPlaces:
    """Raises ValueError, KeyError, TypeError, AttributeError for what is none."""
    found = loads(body)
    deletions = tuple(
        Deletion(
            topic, int(below), {int(queue_id): Begin(int(end), int(place)) for queue_id, (end, place) in ends.items()}
        )
        for topic, (below, ends) in found["deleted"].items()
    )
    return TopicPlaces(int(found["changes"]), int(found["seen"]), int(found["begin"]), deletions, found["topics"])


def decode_ends(body: bytes) -> tuple[int, dict[str, dict[int, int]]]:
    """(the log's end, topic -> queue id -> its end). Raises as `decode_places`."""
    found = loads(body)
    ends = {
        topic: {int(queue_id): int(end) for queue_id, end in queues.items()} for topic, queues in found["ends"].items()
    }
    return int(found["end"]), ends


def differences(told: TopicPlaces, below: dict[str, int], ends: dict[str, dict[int, Begin]]) -> list[Deletion]:
    """Deletions that are not noted here, as far as `below` and `ends` say, which is what is noted."""
    news = []
    for deletion in told.deletions:
        own = ends.get(deletion.topic, {})
        known = all(
            queue_id in own and own[queue_id].offset >= end.offset and own[queue_id].place >= end.place
            for queue_id, end in deletion.ends.items()
        )
        if not known or (not deletion.ends and below.get(deletion.topic, 0) < deletion.below):
            news.append(deletion)
    return news


def not_deleted(told: TopicPlaces, below: dict[str, int], ends: dict[str, dict[int, Begin]], begin: int) -> list[str]:
    """Topics that were deleted here, and there not: nobody had been told before another one led. told: all of them.
    begin: of the own log; what lies before it is gone in any case."""
    theirs = {deletion.topic: deletion for deletion in told.deletions}
    found = []
    for topic, place in below.items():
        own = ends.get(topic)
        if not own or place <= max(begin, told.log_begin):
            continue
        there = theirs.get(topic)
        if there is None or any(
            queue_id not in there.ends or there.ends[queue_id].offset < end.offset for queue_id, end in own.items()
        ):
            found.append(topic)
    return found
