"""The request of one RocketBox broker to another for what its log does not show: its topics, those deleted, where
queues go on, and which delayed messages were handled before they were due.

    request   fields `seen`: of the last answer, -1 at first; `purged`: of the last answer that had it, -1 at first;
              `leaving`: where log files are to be deleted up to, 0 for none
    answer    {"changes": 7, "counted": ["groups"], "seen": 8403, "begin": the log's,
               "deleted": {"T": [below, {"0": [10, 12345]}]}, "free": 12345, "end": the log's,
               "purged": [a number, {"T": {"0": 12345}}], "topics": as 21}

    request   a body ["T", ...]
    answer    {"end": the log's, "ends": {"T": {"0": 10}}}

    request   field `settled`: of the last answer, 0:0 at first
    answer    the fields `settled` and `end`, and records as `delays/settled.py` has them; more of them until there is
              none

    request   field `schemas`, answered as `schema_copies.py` says

changes: number of changes by administrators that the answer contains. counted: "groups" if these include changes of
groups and moves of their offsets, which the tables of 201 and 43 contain from then on. seen: number of notes of
deletions that it contains, counted from a random one at each start: who asks what was there before does not step over
notes of this one. deleted: as `store/retention/deleted_topics.py` has it, all notes at first, then the new ones. free,
end: as `store/retention/leaders_needs.py` has them. purged: all notes of `store/retention/purged_queues.py`, where
these differ from those that are known. ends: behind the last message of each queue, which lies before `end` in the log,
as do the copies of what was handled early. Apache's brokers answer 3.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import RefusedRequest
from ..fastjson import loads
from ..named_tuple import NamedTuple
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..remoting.connection import Connection
from ..remoting.dispatcher import Dispatcher
from ..store.message_store import MessageStore
from ..store.retention.deleted_topics import Begin, Deletion

if TYPE_CHECKING:
    from ..store.retention.purged_queues import Places

#: Not "admin": changes there wait for the members that ask here.
POOL = "pull-cold"
#: A field of request and answer: `content:place`, see `SettledDelays.added_since`; and one of the answer.
SETTLED, END = "settled", "end"
#: A field of a request: physical offset up to which log files are to be deleted there.
LEAVING = "leaving"
#: Topics in one request for the ends of queues.
MOST_TOPICS = 1000
#: Bytes of a name and the JSON around it, at most.
_NAME_BYTES = 1024


class TopicPlaces(NamedTuple):
    """An answer to `seen`. topics: the document of 21. with_groups: False in an older version, whose changes are not
    those of groups. purged: a number and the notes; None if they are known, or the broker is of an older version. free:
    before it nothing waits; None in an older version. end: of the log."""

    changes: int
    seen: int
    log_begin: int
    deletions: tuple[Deletion, ...]
    topics: Any
    purged: tuple[int, Places] | None = None
    free: int | None = None
    end: int = 0
    with_groups: bool = False


class TopicPlacesProcessor:
    """On the pool's thread."""

    def __init__(
        self,
        store: MessageStore,
        changes: Callable[[], int],
        topics: Callable[[], bytes | bytearray],
        settled: Callable[[int, int], tuple[int, int, bytes]],
    ) -> None:
        """changes: returns the number of changes by administrators. topics: returns the body of 21. settled: as
        `SettledDelays.added_since`."""
        self._store = store
        self._settled = settled
        self._changes = changes
        self._topics = topics
        self._first = int.from_bytes(os.urandom(6))

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.ROCKETBOX_TOPIC_PLACES, self.handle, POOL)

    def handle(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        fields = request.ext_fields or {}
        if SETTLED in fields:
            return self._records(request)
        if "schemas" in fields:
            return self._schemas(fields["schemas"])
        body = self._ends(_names_in(request.body)) if request.body else self._places(request)
        return RemotingCommand.response(ResponseCode.SUCCESS, body=body)

    def _records(self, request: RemotingCommand) -> RemotingCommand:
        content, _, at = request.ext_fields[SETTLED].partition(":")
        is_place = content.isdecimal() and at.isdecimal() and max(len(content), len(at)) < 19
        known = (int(content), int(at)) if is_place else (0, 0)
        try:
            *place, records = self._settled(*known)
        except OSError as error:
            raise RefusedRequest(ResponseCode.SYSTEM_BUSY, str(error)) from None
        # The end is read last: what was stored in the place of these messages lies before it.
        fields = {SETTLED: "{}:{}".format(*place), END: str(self._store.log.written)}
        return RemotingCommand.response(ResponseCode.SUCCESS, None, fields, body=records)

    def _schemas(self, known: str) -> RemotingCommand:
        from .schema_copies import FILE, SCHEMAS, piece  # a broker without slaves is not asked

        try:
            told, body = piece(self._store.paths.own / FILE, self._store.disk, known)
        except OSError as error:
            raise RefusedRequest(ResponseCode.SYSTEM_BUSY, str(error)) from None
        return RemotingCommand.response(ResponseCode.SUCCESS, None, {SCHEMAS: told}, body=body)

    def _places(self, request: RemotingCommand) -> bytes:
        deleted, log = self._store.files.deleted_topics, self._store.log
        fields = request.ext_fields or {}
        known = _number_in(fields, "seen", -1) - self._first
        changes = self._changes()  # first: what is read below contains at least these
        seen = len(deleted.changed)
        names = set(deleted.changed[known:seen]) if 0 <= known <= seen else None
        # Each member asks each second, and the file is long where many topics were deleted.
        below, ends = deleted.load_all() if names is None or names else ({}, {})
        if names is None or names:
            below |= {topic: deleted.below(topic) for topic in deleted.load_late()}
        names = below.keys() | ends.keys() if names is None else names
        said = {name: [below.get(name, 0), ends.get(name, {})] for name in sorted(names)}
        head: dict[str, Any] = {"changes": changes, "seen": self._first + seen, "begin": log.min_offset}
        head["deleted"], head["counted"] = said, ["groups"]
        if LEAVING in fields:
            head["free"] = self._store.cleaner.free_for(_number_in(fields, LEAVING, 0))
            head["end"] = log.written  # last: the copies of what waited before `free` lie before it
        files = self._store.files
        purged = files.purged_queues.state if files.has_purged() else (0, {})
        if fields.get("purged", str(purged[0])) != str(purged[0]):
            head["purged"] = purged
        return json.dumps(head).encode()[:-1] + b',"topics":' + self._topics() + b"}"

    def _ends(self, names: Any) -> bytes:
        wanted = [name for name in names[:MOST_TOPICS] if isinstance(name, str)] if isinstance(names, list) else []
        queues = self._store.queues
        ends = {
            name: {queue.queue_id: queue.max_offset for queue in queues.of_topic(name) if queue.max_offset}
            for name in wanted
        }
        end = self._store.log.written  # last: the queues' messages lie before it, so a log that reaches it has them
        return json.dumps({"end": end, "ends": ends}).encode()


def _number_in(fields: Mapping[str, str], name: str, without: int) -> int:
    text = fields.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else without


def _names_in(body: bytes) -> Any:
    """Return the document in a request. Refuses with 1 a body that is none, or is longer than members send."""
    if len(body) > MOST_TOPICS * _NAME_BYTES:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the body has {len(body)} bytes, which is too much")
    try:
        return loads(bytes(body), 2 * MOST_TOPICS)
    except (ValueError, RecursionError) as error:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the body is no list of topics: {error}") from None


def decode_places(body: bytes) -> TopicPlaces:
    """Return the answer to `seen`. Raises ValueError, KeyError, TypeError, AttributeError if the body is none."""
    found = loads(body)
    deletions = tuple(
        Deletion(
            topic, int(below), {int(queue_id): Begin(int(end), int(place)) for queue_id, (end, place) in ends.items()}
        )
        for topic, (below, ends) in found["deleted"].items()
    )
    purged = None
    if "purged" in found:
        from ..store.retention.purged_queues import read_places

        number, places = found["purged"]
        purged = int(number), read_places(places)
    changes, seen, begin = int(found["changes"]), int(found["seen"]), int(found["begin"])
    free = int(found["free"]) if "free" in found else None
    end, with_groups = int(found.get("end", 0)), "groups" in found.get("counted", ())
    return TopicPlaces(changes, seen, begin, deletions, found["topics"], purged, free, end, with_groups)


def decode_ends(body: bytes) -> tuple[int, dict[str, dict[int, int]]]:
    """Return (the log's end, topic -> queue id -> its end). Raises as `decode_places`."""
    found = loads(body)
    ends = {
        topic: {int(queue_id): int(end) for queue_id, end in queues.items()} for topic, queues in found["ends"].items()
    }
    return int(found["end"]), ends


def differences(told: TopicPlaces, below: dict[str, int], ends: dict[str, dict[int, Begin]]) -> list[Deletion]:
    """Return the deletions that are not noted here. below, ends: the notes here."""
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
    """Return topics that were deleted here, but not there: another broker became leader before it had the note. told:
    contains all notes there. begin: of the log here; messages before it are gone in any case."""
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
