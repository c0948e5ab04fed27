"""Record of messages that retention deleted before a group had consumed them; it stays when offsets move on.

    queue   old minimum ....... committed ......... new minimum
            consumed, deleted | deleted unread     | kept

When the cleaner has raised a queue's minimum offset, each group's committed offset there is compared with it, before
its consumers are sent on. A group without a committed offset in a queue is not counted, since it may not want its
messages; nor are the broker's own groups. A crash between the deletion and the note loses the note.

Kept in `DATA/rocketbox/deleted-unread.json`, a row for each group, topic, queue and hour of the deletion, the newest
MOST_ROWS; format: docs/formats/deleted-unread.md.
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
#: Rows, of some 100 bytes each: a hundred queues that lose messages each hour, for four days.
MOST_ROWS = 10_000
_HOUR_MS = 3_600_000


class DeletedUnread(NamedTuple):
    """Deletions within one hour: `messages` of the queue offsets from `begin` to below `end` were deleted unconsumed.

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
        self.rows = tuple(rows.values())[-MOST_ROWS:]
        try:
            text = json.dumps({"rows": [list(one) for one in self.rows]}, separators=(",", ":"))
            self._disk.replace(self._path, text.encode(errors="replace"))
        except OSError as error:
            logger.error("retention: %s cannot be written: %s", self._path, error)


def _key(one: DeletedUnread) -> tuple[str, str, int, int]:
    return one.group, one.topic, one.queue_id, one.at_ms // _HOUR_MS


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
