"""Queues whose consumption stands still although messages wait, and since when.

The duration of such a fault must not begin anew with the process, so it is kept in
`DATA/rocketbox/standing-queues.json`; Apache's consumerOffset.json has no times and stays as it is. The file has only
queues that are behind and have stood for a while, in groups that had members: for all others the store time of the next
message says as much. If the file is lost, the count begins with the start.
Format page: docs/formats/standing-queues.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..clock import Clock
from ..disk import Disk
from ..errors import CorruptFile
from ..json_file import load_json_with_backup, save_json_atomically
from .attendance import Attendance, Spell
from .offsets import ConsumerOffsetManager
from .sampler import Sampler

logger = logging.getLogger(__name__)

#: Time after which a standing queue is written down, and greatest age of the file while a queue stands.
STOOD_S = 30.0
SAVE_S = 60.0
#: Queues in the file, some 100 bytes each; if more stand, the first ones that are found.
MOST_QUEUES = 10_000


class _File(msgspec.Struct, rename="camel"):
    """Times are wall clock ms. groups: group -> its spells. queues: (group, topic, queue id, offset, since when)."""

    saved_at: int
    groups: dict[str, list[tuple[int, int]]]
    queues: list[tuple[str, str, int, int, int]]


class StandingQueues:
    """`save_when_due` belongs to the thread `save-offsets`, `load` to the start, `save` to the end."""

    def __init__(
        self,
        path: Path,
        offsets: ConsumerOffsetManager,
        sampler: Sampler,
        attendance: Attendance,
        clock: Clock,
        disk: Disk,
    ) -> None:
        # Constant after construction.
        self._path = path
        self._disk = disk
        self._offsets = offsets
        self._sampler = sampler
        self._attendance = attendance
        self._clock = clock
        # Owned by whoever saves.
        self._due_at = clock.monotonic() + SAVE_S
        self._holds_any = False

    def load(self) -> None:
        """Pass the file of an earlier process to sampler and attendance, before sampling and clients begin. A file that
        cannot be read is logged: nothing else depends on it."""
        try:
            document = load_json_with_backup(self._path, self._disk)
            if document is None:
                return
            found = msgspec.convert(document, _File)
        except (CorruptFile, OSError, msgspec.ValidationError) as error:
            logger.warning("standing queues: the times since when queues stand are lost: %s", error)
            return
        self._holds_any = bool(found.queues)
        now, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        if found.saved_at > now_ms:  # the clock was set back
            return

        def moment(at_ms: int) -> float:
            return now - (now_ms - min(at_ms, found.saved_at)) / 1000

        for group, topic, queue_id, offset, since_ms in found.queues[:MOST_QUEUES]:
            self._sampler.take_earlier(group, topic, queue_id, offset, moment(since_ms))
        for group, spells in found.groups.items():
            if not self._attendance.spells(group):
                self._attendance.take_earlier(group, [Spell(moment(began), moment(ended)) for began, ended in spells])

    def save_when_due(self) -> None:
        """Save if the last time was a minute ago. Raises OSError."""
        if self._clock.monotonic() >= self._due_at:
            self.save()

    def save(self) -> None:
        """Rewrite the file if a queue stands, or one did; durable when this returns. Raises OSError."""
        self._due_at = self._clock.monotonic() + SAVE_S
        rows = list(self._rows())
        if rows or self._holds_any:
            save_json_atomically(self._path, self._encoded(rows), self._disk)
            self._holds_any = bool(rows)

    def _rows(self) -> Iterator[tuple[str, str, int, int, float]]:
        now, count = self._clock.monotonic(), 0
        queues_of = self._sampler.index.by_topic()
        for entry in self._offsets.all():
            if not self._attendance.spells(entry.group):
                continue
            for queue in queues_of.get(entry.topic, ()):
                offset = self._sampler.standing_at(entry, queue.queue_id)
                if offset is None or offset >= queue.max_offset or entry.queues.get(queue.queue_id) != offset:
                    continue
                since = self._sampler.queue_since(entry, queue.queue_id)
                if now - since >= STOOD_S:
                    yield entry.group, entry.topic, queue.queue_id, offset, since
                    count += 1
                    if count >= MOST_QUEUES:
                        return

    def _encoded(self, rows: list[tuple[str, str, int, int, float]]) -> str:
        now, now_ms = self._clock.monotonic(), self._clock.wall_ms()

        def wall(at: float) -> int:
            return now_ms - round((now - at) * 1000)

        groups: dict[str, Any] = {
            group: [(wall(began), wall(ended)) for began, ended in self._attendance.spells(group)]
            for group in dict.fromkeys(row[0] for row in rows)
        }
        queues = [(*row[:4], wall(row[4])) for row in rows]
        return json.dumps({"savedAt": now_ms, "groups": groups, "queues": queues})
