"""Record of messages that retention deleted before a group had consumed them; it stays when offsets move on.

    queue   old minimum ....... committed ......... new minimum
            consumed, deleted | deleted unread     | kept

When the cleaner has raised a queue's minimum offset, each group's committed offset there is compared with it, before
its consumers are sent on. A group without a committed offset in a queue is not counted, since it may not want its
messages; nor are the broker's own groups. A crash between the deletion and the note loses the note.

Kept in `DATA/rocketbox/deleted-unread.json`, a row for each group, topic, queue and quarter of an hour of the deletion,
as the days of all time zones begin with one. Of more than MOST_ROWS the oldest are summed up: first the queues of a
topic, then all groups and topics of a quarter. Format: docs/formats/deleted-unread.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from ..disk import Disk
from ..named_tuple import NamedTuple
from ..protocol.names import DLQ_PREFIX
from ..store.retention.clean_queues import Raised
from .groups import is_system_group
from .offsets import QueueOffsets

logger = logging.getLogger(__name__)

NAME = "deleted-unread.json"
#: Rows, of some 100 bytes each: a hundred queues that lose messages in each quarter of an hour, for a day.
MOST_ROWS = 10_000
_QUARTER_MS = 900_000
#: Queue id of a row that sums up queues. Its offsets are [0, messages).
ALL_QUEUES = -1
#: Group and topic of a row that sums up all; no name has a star.
ALL = "*"


class DeletedUnread(NamedTuple):
    """Deletions within a quarter of an hour: `messages` of the queue offsets from `begin` to below `end` were deleted
    unconsumed.

    at_ms: wall time of the last of these deletions."""

    group: str
    topic: str
    queue_id: int
    begin: int
    end: int
    messages: int
    at_ms: int


class DeletedUnreadTable:
    """Written by the cleaner's thread; `rows` may be read by any."""

    def __init__(
        self, path: Path, disk: Disk, entries: Callable[[], Iterable[QueueOffsets]], wall_ms: Callable[[], int]
    ) -> None:
        """entries: the committed offsets."""
        # Constant after construction.
        self._path = path
        self._disk = disk
        self._entries = entries
        self._wall_ms = wall_ms
        #: Replaced whole, the oldest first.
        self.rows: tuple[DeletedUnread, ...] = _load(path, disk)

    def deleted(self, raised: Iterable[Raised]) -> None:
        """Note which groups lost unread messages when the minimum offsets of these queues were raised."""
        by_topic: dict[str, list[Raised]] = {}
        for one in raised:
            by_topic.setdefault(one.topic, []).append(one)
        at_ms = self._wall_ms()
        found = []
        for entry in self._entries() if by_topic else ():
            if is_system_group(entry.group) or entry.topic.startswith(DLQ_PREFIX):
                continue
            for one in by_topic.get(entry.topic, ()):
                committed = entry.queues.get(one.queue_id)
                if committed is not None and committed < one.end:
                    begin = max(committed, one.begin)
                    found.append(
                        DeletedUnread(entry.group, one.topic, one.queue_id, begin, one.end, one.end - begin, at_ms)
                    )
        if found:
            self._add(found)

    def _add(self, found: list[DeletedUnread]) -> None:
        rows = {_key(one): one for one in self.rows}
        for one in found:
            known = rows.pop(_key(one), None)
            if known is not None:
                one = one._replace(begin=min(known.begin, one.begin), messages=known.messages + one.messages)
            rows[_key(one)] = one
            logger.warning(
                "retention: deleted unread group=%s topic=%s queue=%d offsets=%d-%d",
                one.group, one.topic, one.queue_id, one.begin, one.end - 1,
            )  # fmt: skip
        self.rows = _bounded(tuple(rows.values()))
        try:
            text = json.dumps({"rows": [list(one) for one in self.rows]}, separators=(",", ":"))
            self._disk.replace(self._path, text.encode(errors="replace"))
        except OSError as error:
            logger.error("retention: %s cannot be written: %s", self._path, error)


def _key(one: DeletedUnread) -> tuple[str, str, int, int]:
    return one.group, one.topic, one.queue_id, one.at_ms // _QUARTER_MS


def _bounded(rows: tuple[DeletedUnread, ...]) -> tuple[DeletedUnread, ...]:
    """Return at most MOST_ROWS rows with the same messages in all: those of the oldest quarters are summed up, of as
    few quarters as need be. Only quarters before the newest MOST_ROWS ones are left out."""
    if len(rows) <= MOST_ROWS:
        return rows
    quarters: dict[int, list[DeletedUnread]] = {}
    for one in rows:
        quarters.setdefault(one.at_ms // _QUARTER_MS, []).append(one)
    excess = len(rows) - MOST_ROWS
    for quarter, some in sorted(quarters.items()):
        if excess > 0:
            sums = _summed([one._replace(queue_id=ALL_QUEUES) for one in some])
            if len(sums) < len(some):
                excess -= len(some) - len(sums)
                quarters[quarter] = sums
    for quarter, some in sorted(quarters.items()):
        if excess > 0 and len(some) > 1:
            some.sort(key=lambda one: -one.messages)  # those that lost the most keep their rows
            kept = max(0, len(some) - excess - 1)
            rest = [one._replace(group=ALL, topic=ALL, queue_id=ALL_QUEUES) for one in some[kept:]]
            quarters[quarter] = some[:kept] + _summed(rest)
            excess -= len(some) - len(quarters[quarter])
    return tuple(one for _, some in sorted(quarters.items()) for one in some)[-MOST_ROWS:]


def _summed(rows: list[DeletedUnread]) -> list[DeletedUnread]:
    """Return a row for each key of rows that sum up queues."""
    sums: dict[tuple[str, str, int, int], DeletedUnread] = {}
    for one in rows:
        known = sums.get(_key(one), one._replace(messages=0))
        messages = known.messages + one.messages
        sums[_key(one)] = one._replace(begin=0, end=messages, messages=messages, at_ms=max(known.at_ms, one.at_ms))
    return [*sums.values()]


def _load(path: Path, disk: Disk) -> tuple[DeletedUnread, ...]:
    """Return the rows of the file; none if it is missing or damaged."""
    try:
        rows = [DeletedUnread(*row) for row in json.loads(disk.read(path))["rows"]]
        if all(isinstance(one, str) for row in rows for one in row[:2]) and all(
            type(one) is int for row in rows for one in row[2:]
        ):
            return tuple(rows[-MOST_ROWS:])
        raise ValueError("its rows are of another shape")
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        logger.error("retention: %s cannot be read, and begins anew: %s", path, error)
        return ()
