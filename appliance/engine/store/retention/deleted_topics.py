"""What is left of topics that were deleted: `deleted-topics.json` in our own directory.

    {"topics": {"T": 12345}, "crc32": of that text, "ends": {"T": {"0": [10, 12345]}}, "ends_crc32": of that one}

topics: records of T below this physical offset are a deleted topic's. Records stay in the log after their topic is
gone; without this note recovery would give them queue entries again, and a new topic of that name would begin with the
old one's messages.
ends: offsets of queue 0 of T below 10 were given away before physical offset 12345. A topic of this name goes on behind
them: a consumer that still has an offset of the old one would step over the new one's messages. Also of queues whose
messages were gone before this log began, as their master said. Where the log has a smaller one behind that place, the
log is right: Apache's brokers begin at 0 again.

The checksums are there because one flipped digit would take messages for a deleted topic's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from zlib_ng.zlib_ng import crc32

from ...named_tuple import NamedTuple
from ..disk import Disk
from ..paths import StorePaths

logger = logging.getLogger(__name__)

NAME = "deleted-topics.json"
#: Queues whose ends are kept; those that were noted first go first.
MOST_ENDS = 200_000


class Begin(NamedTuple):
    """Where a queue goes on. place: the physical offset before which the offsets below were given away."""

    offset: int
    place: int


#: topic -> queue id -> where it goes on.
Ends = dict[str, dict[int, Begin]]


class Deletion(NamedTuple):
    """below: physical offset; records of the topic before it are the deleted one's. 0: only ends are noted. ends: an
    offset of 0 takes one back."""

    topic: str
    below: int
    ends: Mapping[int, Begin]


class DeletedTopics:
    """The file. Written by recovery, then by flush-consumequeue alone; read by anyone."""

    def __init__(self, paths: StorePaths, disk: Disk) -> None:
        self._path = paths.own / NAME
        self._disk = disk
        #: What the file was when it was last read or written here, and what that says; replaced whole, never changed.
        self._known: tuple[bytes, dict[str, int], Ends] = (b"", {}, {})
        # Of who writes: topic -> (value, the same as the file holds it). A large file is a join of what is there.
        self._topic_texts: dict[str, tuple[int, str]] = {}
        self._end_texts: dict[str, tuple[Mapping[int, Begin], str]] = {}
        #: Topics whose notes changed since this object was made, in their order, durable. Read by anyone.
        self.changed: list[str] = []

    def load(self) -> dict[str, int]:
        """topic -> physical offset below which its records are a deleted topic's."""
        found = self._read()
        return {} if found is None else found[0]

    def load_ends(self) -> Ends:
        return self.load_all()[1]

    def load_all(self) -> tuple[dict[str, int], Ends]:
        """What `load` and `load_ends` return, of one moment."""
        return self._read() or ({}, {})

    def _read(self) -> tuple[dict[str, int], Ends] | None:
        disk = self._disk
        try:
            fd = disk.open(self._path, read_only=True)
            try:
                raw = disk.pread(fd, disk.size(fd), 0)
            finally:
                disk.close(fd)
            if raw != self._known[0] or not raw:
                self._known = (raw, *decode(json.loads(raw)))
            _, topics, ends = self._known
            return dict(topics), dict(ends)
        except FileNotFoundError:
            return None
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            logger.error("store: %s cannot be read, deleted topics may show again: %s", NAME, error)
            return None

    def remember(self, deletions: Sequence[Deletion], log_begin: int) -> None:
        """Note deletions, durably; those whose records have all left the log are dropped, and their ends stay."""
        topics, ends = self._read() or ({}, {})
        topics = {name: below for name, below in topics.items() if below > log_begin}
        for topic, below, queues in deletions:
            if below:
                topics[topic] = below
            together = {queue_id: end for queue_id, end in {**ends.pop(topic, {}), **queues}.items() if end.offset}
            if together:
                ends[topic] = together
        self._save(topics, ends)
        self.changed += [deletion.topic for deletion in deletions]

    def limit(self, end: int) -> None:
        """What recovery found of the log ends at `end`: records written behind it are no deleted topic's, and their
        numbers were not given away before.

        A deletion is durable before what was written until then is, so a power cut may leave the log shorter.
        """
        topics, ends = self._read() or ({}, {})
        if self._behind(end, topics, ends):
            short = {
                topic: {queue_id: begin._replace(place=min(begin.place, end)) for queue_id, begin in queues.items()}
                for topic, queues in ends.items()
            }
            self._save({topic: min(below, end) for topic, below in topics.items()}, short)

    def undo(self, topics: Sequence[str]) -> None:
        """These were not deleted after all: their set went on without that."""
        known, ends = self._read() or ({}, {})
        for topic in topics:
            known.pop(topic, None)
            ends.pop(topic, None)
        self._save(known, ends)

    def behind(self, point: int) -> list[str]:
        """Topics of which something was noted behind a physical offset: their deletion, or where a queue goes on."""
        return self._behind(point, *(self._read() or ({}, {})))

    @staticmethod
    def _behind(point: int, topics: Mapping[str, int], ends: Ends) -> list[str]:
        found = [topic for topic, below in topics.items() if below > point]
        found += [topic for topic, queues in ends.items() if any(one.place > point for one in queues.values())]
        return list(dict.fromkeys(found))

    def cut(self, point: int) -> None:
        """The log was cut there: what was noted behind it did not happen. What was noted before stays."""
        topics, ends = self._read() or ({}, {})
        left = {
            topic: {queue_id: begin for queue_id, begin in queues.items() if begin.place <= point}
            for topic, queues in ends.items()
        }
        topics = {topic: below for topic, below in topics.items() if below <= point}
        self._save(topics, {topic: queues for topic, queues in left.items() if queues})

    def _save(self, topics: dict[str, int], ends: Ends) -> None:
        left = sum(map(len, ends.values())) - MOST_ENDS
        for topic in list(ends) if left > 0 else ():
            left -= len(ends.pop(topic))
            if left <= 0:
                break
        text = _joined(topics, self._topic_texts)
        document = f'{{"topics": {text}, "crc32": {crc32(text.encode())}'
        if ends:
            text = _joined(ends, self._end_texts)
            document += f', "ends": {text}, "ends_crc32": {crc32(text.encode())}'
        raw = (document + "}").encode()
        self._disk.replace(self._path, raw)
        self._known = (raw, topics, ends)


def decode(found: Any) -> tuple[dict[str, int], Ends]:
    """(topics, ends) of the file's document. Raises ValueError, AttributeError, KeyError, TypeError."""
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


def _joined(values: Mapping[str, Any], known: dict[str, tuple[Any, str]]) -> str:
    """What json.dumps gives. known: of each name that is the same as the last time, its text."""
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
