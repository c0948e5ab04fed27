"""Queues that administrators emptied: `purged-queues.json` in RocketBox's own directory, docs/formats/purged-queues.md.

    {"queues": {"T": {"0": 12345}}, "crc32": of that text}

Records of queue 0 of T that begin before physical offset 12345 are no longer shown. They stay in the log until its
files expire, and any recovery finds them again: the note keeps the queue's minimum offset behind them. It names a place
in the log and not a queue offset, so that a message that comes to the same queue offset later, as after a power cut or
the cut of a former leader's log, is never hidden.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect_left
from collections.abc import Callable, Mapping

from zlib_ng.zlib_ng import crc32

from ... import fastjson
from ...disk import Disk
from ..paths import StorePaths
from ..queues.consume_queue import ENTRY, ENTRY_BYTES

logger = logging.getLogger(__name__)

NAME = "purged-queues.json"

#: Notes kept whose records have all left this log, those of the latest places: a member of the set, or a slave, that
#: was away may still have the records, and gets the note from here. 30 bytes each in the file and in an answer.
MOST_OLD = 10_000

#: topic -> queue id -> physical offset before which records of the queue are not shown.
Places = Mapping[str, Mapping[int, int]]


class PurgedQueues:
    """The file. Written by recovery, then by clean-store alone; any thread may read `places` and `state`."""

    def __init__(self, paths: StorePaths, disk: Disk) -> None:
        self._path = paths.own / NAME
        self._disk = disk
        #: The durable notes and a number that differs for other ones; replaced together, never changed.
        self.state: tuple[int, Places] = (0, {})

    @property
    def places(self) -> Places:
        return self.state[1]

    def load(self) -> Places:
        """Read the file; return its notes, none if it is missing or damaged."""
        try:
            places = decode(self._disk.read(self._path))
        except FileNotFoundError:
            places = {}
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            logger.error("store: %s cannot be read, purged messages may show again: %s", NAME, error)
            places = {}
        self._take(places)
        return places

    def remember(self, news: Places, log_begin: int) -> None:
        """Add notes, durably. A note only moves forward; of those whose records have all left the log MOST_OLD stay.

        Raises OSError: then the notes are what they were.
        """
        merged = together(self.places, news)
        old = sorted(place for queues in merged.values() for place in queues.values() if place <= log_begin)
        begin = old[-MOST_OLD - 1] if len(old) > MOST_OLD else -1
        self._save({
            topic: left
            for topic, queues in merged.items()
            if (left := {queue_id: place for queue_id, place in queues.items() if place > begin})
        })  # fmt: skip

    def undo(self, topics: Mapping[str, Mapping[int, int]]) -> None:
        """Replace the notes of these topics, since their set continued without the purges noted here. topics: with the
        notes that stay. Their queues show more once they were made again from the log."""
        self._save({topic: left for topic, left in {**self.places, **topics}.items() if left})

    def limit(self, end: int) -> None:
        """Limit all notes to the log's end, as recovery found it: records that are written behind it are shown."""
        if any(place > end for queues in self.places.values() for place in queues.values()):
            self._save({
                topic: {queue_id: min(place, end) for queue_id, place in queues.items()}
                for topic, queues in self.places.items()
            })  # fmt: skip

    def _save(self, places: Places) -> None:
        self._disk.replace(self._path, encode(places))
        self._take(places)

    def _take(self, places: Places) -> None:
        self.state = (crc32(encode(places)) if places else 0, places)


def not_purged(theirs: Places, own: Places, begin: int) -> dict[str, Mapping[int, int]]:
    """Return topic -> the leader's notes, of topics with a purge that is noted here, but not there: another broker
    became leader before it had the note. begin: of both logs; messages before it are gone in any case."""
    return {
        topic: theirs.get(topic, {})
        for topic, queues in own.items()
        if any(place > max(begin, theirs.get(topic, {}).get(queue_id, 0)) for queue_id, place in queues.items())
    }


def together(places: Places, news: Places) -> dict[str, dict[int, int]]:
    """Return the notes of both, the later place of each queue."""
    merged = {topic: dict(queues) for topic, queues in places.items()}
    for topic, queues in news.items():
        own = merged.setdefault(topic, {})
        for queue_id, place in queues.items():
            own[queue_id] = max(place, own.get(queue_id, 0))
    return merged


def encode(places: Places) -> bytes:
    """Return the file's content."""
    # Text keys as `decode` has them: numbers would be in another order, 2 before 10.
    named = {topic: {str(queue_id): place for queue_id, place in queues.items()} for topic, queues in places.items()}
    text = json.dumps(named, sort_keys=True)
    return f'{{"queues": {text}, "crc32": {crc32(text.encode())}}}'.encode()


def decode(raw: bytes) -> dict[str, dict[int, int]]:
    """Return the notes in a file's content. Raises ValueError, KeyError, AttributeError or TypeError if it is none."""
    document = fastjson.loads_plain(raw)
    text = json.dumps(document["queues"], sort_keys=True)
    if crc32(text.encode()) != document["crc32"]:
        raise ValueError("the checksum differs")
    return read_places(document["queues"])


def read_places(document: Mapping[str, Mapping[str, int]]) -> dict[str, dict[int, int]]:
    """Return notes from a JSON document. Raises as `decode`."""
    return {
        topic: {int(queue_id): int(place) for queue_id, place in queues.items()} for topic, queues in document.items()
    }


def behind_place(read: Callable[[int], bytes], low: int, high: int, place: int) -> int:
    """Return the first offset in [low, high) whose record does not begin before `place`; `high` if there is none.

    read: returns the entry at an offset. An entry that is missing does not count as purged, but entries ascend, so all
    below a purged one are.
    """

    def is_purged(offset: int) -> bool:
        entry = read(offset)
        if len(entry) < ENTRY_BYTES:
            return False
        physical, size, _ = ENTRY.unpack(entry)
        return bool(size > 0 and physical < place)

    if low < high and is_purged(high - 1):
        return high
    return bisect_left(range(high), True, low, high, key=lambda offset: not is_purged(offset))
