"""Notes on deleted topics: `deleted-topics.json` in RocketBox's own directory.

    {"topics": {"T": 12345}, "crc32": of that text, "ends": {"T": {"0": [10, 12345]}}, "ends_crc32": of that one,
     "late": {"U": 12345}, "late_crc32": of that one}

topics: records of T below this physical offset belong to a deleted topic. Records stay in the log after their topic is
gone; without this note recovery would give them queue entries again, and a new topic of that name would begin with the
old one's messages.
ends: in queue 0 of T, offsets below 10 were used before physical offset 12345. A new topic of this name continues
behind them; otherwise a consumer with an offset of the old one would skip messages of the new one. Also noted for
queues whose messages were gone before this log began, as their master reported. If the log has a smaller offset behind
that place, the log is right: Apache's brokers begin at 0 again.
late: as topics, but the note came from the master when queues here had messages of the next topic already. Their older
entries stay, below the minimum offset; only what waits for the deleted topic reads this.

The checksums are needed because one flipped digit could assign live messages to a deleted topic.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from zlib_ng.zlib_ng import crc32

from ... import fastjson
from ...disk import Disk
from ...named_tuple import NamedTuple
from ..paths import StorePaths

logger = logging.getLogger(__name__)

NAME = "deleted-topics.json"
#: Limit on queues whose ends are kept; the oldest notes are dropped first.
MOST_ENDS = 200_000
#: Deletions of this life that are kept in memory before those are dropped whose records have left the log.
_MOST_BEGUN = 1000


class Begin(NamedTuple):
    """Offset at which a queue continues. place: the offsets below it were used before this physical offset."""

    offset: int
    place: int


#: topic -> queue id -> where it continues.
Ends = dict[str, dict[int, Begin]]


class Notes(NamedTuple):
    """The content of the file: topics and late, topic -> physical offset; ends. See this module."""

    topics: dict[str, int]
    ends: Ends
    late: dict[str, int]


class Deletion(NamedTuple):
    """below: records of the topic before this physical offset belong to the deleted one; 0: only ends are noted. ends:
    an offset of 0 removes one. late: see this module."""

    topic: str
    below: int
    ends: Mapping[int, Begin]
    late: int = 0


class DeletedTopics:
    """The file. Written by recovery, then by flush-consumequeue alone; any thread may read it."""

    def __init__(self, paths: StorePaths, disk: Disk) -> None:
        self._path = paths.own / NAME
        self._disk = disk
        #: The file's bytes when last read or written here, and their content; replaced whole, never changed.
        self._known: tuple[bytes, Notes] = (b"", Notes({}, {}, {}))
        # Owned by the writer: topic -> (value, its text in the file), so that a large file is joined from known texts.
        self._topic_texts: dict[str, tuple[int, str]] = {}
        self._end_texts: dict[str, tuple[Mapping[int, Begin], str]] = {}
        #: topic -> as `below`, of deletions that have begun in this life; the file may have them later, or lack them
        #: while it cannot be written. Written by remoting-io.
        self._begun: dict[str, int] = {}
        #: Topics whose notes were changed, durably, since this object was made, in order. Read by any thread.
        self.changed: list[str] = []

    def load(self) -> dict[str, int]:
        """Return topic -> physical offset below which its records belong to a deleted topic."""
        return self._read().topics

    def below(self, topic: str) -> int:
        """Return the physical offset below which what waits for a topic is for a deleted one of its name, 0 if none was
        deleted; without a look at the file. Recovery has read it. On remoting-io it is true of every record that is
        staged next, also while the deletion is being noted."""
        known = self._known[1]
        return max(known.topics.get(topic, 0), known.late.get(topic, 0), self._begun.get(topic, 0))

    def begin(self, topic: str, below: int, log_begin: int) -> None:
        """Have `below` know a deletion that is about to be noted. On remoting-io, in the call that reads the log's
        end."""
        if below:
            self._begun[topic] = below
        if len(self._begun) > _MOST_BEGUN:
            self._begun = {name: at for name, at in self._begun.items() if at > log_begin}

    def load_ends(self) -> Ends:
        return self._read().ends

    def load_all(self) -> tuple[dict[str, int], Ends]:
        """Return the results of `load` and `load_ends` from one state of the file."""
        topics, ends, _ = self._read()
        return topics, ends

    def load_late(self) -> dict[str, int]:
        """Return the late notes."""
        return self._read().late

    def _read(self) -> Notes:
        """Return a copy of the notes; none of a file that is missing or damaged."""
        try:
            raw = self._disk.read(self._path)
            if raw != self._known[0] or not raw:
                document = fastjson.loads_plain(raw)
                self._known = (raw, Notes(*decode(document), decode_late(document)))
            topics, ends, late = self._known[1]
            return Notes(dict(topics), dict(ends), dict(late))
        except FileNotFoundError:
            pass
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            logger.error("store: %s cannot be read, deleted topics may show again: %s", NAME, error)
        return Notes({}, {}, {})

    def remember(self, deletions: Sequence[Deletion], log_begin: int) -> None:
        """Note deletions, durably. Topics without records left in the log are dropped; their ends stay."""
        topics, ends, late = self._read()
        topics, late = ({name: at for name, at in notes.items() if at > log_begin} for notes in (topics, late))
        for topic, below, queues, late_below in deletions:
            if below:
                topics[topic] = below
            if late_below:
                late[topic] = max(late_below, late.get(topic, 0))
            together = {queue_id: end for queue_id, end in {**ends.pop(topic, {}), **queues}.items() if end.offset}
            if together:
                ends[topic] = together
        self._save(topics, ends, late)
        self.changed += [deletion.topic for deletion in deletions]

    def limit(self, end: int) -> None:
        """Limit all notes to the log's end `end`, as recovery found it: records that are written behind it belong to no
        deleted topic, and their offsets are not used yet.

        A deletion is durable earlier than records written before it, so after a power cut the log may end before it.
        """
        topics, ends, late = known = self._read()
        if _behind(end, known):
            short = {
                topic: {queue_id: begin._replace(place=min(begin.place, end)) for queue_id, begin in queues.items()}
                for topic, queues in ends.items()
            }
            topics, late = ({topic: min(below, end) for topic, below in notes.items()} for notes in (topics, late))
            self._save(topics, short, late)

    def undo(self, topics: Sequence[str]) -> None:
        """Remove the notes of topics whose deletion did not happen, since their set continued without it."""
        known = self._read()
        for topic in topics:
            for notes in known:
                notes.pop(topic, None)
        self._save(*known)

    def behind(self, point: int) -> list[str]:
        """Return the topics with a note behind a physical offset: their deletion, or where a queue continues."""
        return _behind(point, self._read())

    def cut(self, point: int) -> None:
        """Remove the notes made behind `point`, where the log was cut. Earlier ones stay."""
        topics, ends, late = self._read()
        left = {
            topic: {queue_id: begin for queue_id, begin in queues.items() if begin.place <= point}
            for topic, queues in ends.items()
        }
        topics, late = ({topic: at for topic, at in notes.items() if at <= point} for notes in (topics, late))
        self._save(topics, {topic: queues for topic, queues in left.items() if queues}, late)

    def _save(self, topics: dict[str, int], ends: Ends, late: dict[str, int]) -> None:
        left = sum(map(len, ends.values())) - MOST_ENDS
        for topic in list(ends) if left > 0 else ():
            left -= len(ends.pop(topic))
            if left <= 0:
                break
        topic_texts, end_texts = _joined(topics, self._topic_texts), _joined(ends, self._end_texts) if ends else ""
        raw = _document(topic_texts, end_texts, late)
        self._disk.replace(self._path, raw)
        self._known = (raw, Notes(topics, ends, late))


def _behind(point: int, notes: Notes) -> list[str]:
    found = [topic for topic, below in notes.topics.items() if below > point]
    found += [topic for topic, queues in notes.ends.items() if any(one.place > point for one in queues.values())]
    found += [topic for topic, below in notes.late.items() if below > point]
    return list(dict.fromkeys(found))


def encode(topics: Mapping[str, int], ends: Ends, late: Mapping[str, int]) -> bytes:
    """Return the file's content."""
    return _document(json.dumps(topics), json.dumps(ends) if ends else "", late)


def _document(topics: str, ends: str, late: Mapping[str, int]) -> bytes:
    document = f'{{"topics": {topics}, "crc32": {crc32(topics.encode())}'
    if ends:
        document += f', "ends": {ends}, "ends_crc32": {crc32(ends.encode())}'
    if late:
        document += f', "late": {json.dumps(late)}, "late_crc32": {_crc_of(late)}'
    return (document + "}").encode()


def decode(found: Any) -> tuple[dict[str, int], Ends]:
    """Return (topics, ends) of the file's document. Raises ValueError, AttributeError, KeyError, TypeError."""
    topics = {str(topic): int(offset) for topic, offset in found["topics"].items()}
    if found["crc32"] != _crc_of(topics):
        raise ValueError("the checksum does not match")
    texts = found.get("ends", {})
    if (texts or "ends_crc32" in found) and found["ends_crc32"] != _crc_of(texts):
        raise ValueError("the checksum of the ends does not match")
    return topics, {
        str(topic): {int(queue_id): Begin(int(end[0]), int(end[1])) for queue_id, end in queues.items()}
        for topic, queues in texts.items()
    }


def decode_late(found: Any) -> dict[str, int]:
    """Return the late notes of the file's document. Raises as `decode`."""
    late = {str(topic): int(offset) for topic, offset in found.get("late", {}).items()}
    if (late or "late_crc32" in found) and found["late_crc32"] != _crc_of(late):
        raise ValueError("the checksum of late notes does not match")
    return late


def _joined(values: Mapping[str, Any], known: dict[str, tuple[Any, str]]) -> str:
    """Return what json.dumps would. known: name -> (value, text) of the last time, reused for an equal value."""
    if len(known) > 2 * len(values) + 1000:
        known.clear()
    pieces = []
    for name, value in values.items():
        before = known.get(name)
        if before is None or (before[0] is not value and before[0] != value):
            before = known[name] = (value, json.dumps({name: value})[1:-1])
        pieces.append(before[1])
    return "{" + ", ".join(pieces) + "}"


def _crc_of(value: object) -> int:
    return crc32(json.dumps(value).encode())
