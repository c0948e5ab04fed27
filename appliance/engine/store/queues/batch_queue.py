"""BatchConsumeQueue of Apache 5.x, for topics with queue.type=BatchCQ: one unit for each stored batch. Read only.

    batchconsumequeue/<topic>/<queue id>/<20 digits>      46 bytes a unit, 300,000 units a file

    physical offset 8 | size 4 | tag code 8 | store time 8 | queue offset of the first message 8 | messages 2
    compacted offset 4 (-1) | reserved 4 (0)

The record has the inner-batch bit and the property INNER_NUM; its queue offset is the first message's. RocketBox does
not serve such topics (docs/compatibility.md): only `rocketbox store verify` reads the units.
Source: RocketMQ 5.3.3 `BatchConsumeQueue`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..paths import queue_id_of, segment_offset

DIRECTORY = "batchconsumequeue"
UNIT = struct.Struct(">qiqqqhii")
_UNITS_READ = 10_000


class BatchUnit(NamedTuple):
    """One unit. base_offset: queue offset of the first of `messages`."""

    physical_offset: int
    size: int
    tag_code: int
    store_time_ms: int
    base_offset: int
    messages: int
    compacted_offset: int
    reserved: int

    @property
    def is_valid(self) -> bool:
        """True by Apache's own rule; zeros follow a queue's last unit."""
        return self.physical_offset >= 0 and self.size > 0 and self.base_offset >= 0 and self.messages > 0


def batch_queue_files(root: Path) -> Iterator[tuple[str, int, Path]]:
    """Yield (topic, queue id, file) of a store's batch queues, in order."""
    top = root / DIRECTORY
    for topic in sorted(top.iterdir()) if top.is_dir() else ():
        for directory in sorted(topic.iterdir()) if topic.is_dir() else ():
            queue_id = queue_id_of(directory.name)
            if queue_id is not None and directory.is_dir():
                for path in sorted(directory.iterdir()):
                    if segment_offset(path.name) is not None:
                        yield topic.name, queue_id, path


def units_of(path: Path) -> Iterator[tuple[int, BatchUnit]]:
    """Yield (position, unit) of a file's units up to the first invalid one."""
    position = 0
    with open(path, "rb") as file:
        while data := file.read(UNIT.size * _UNITS_READ):
            for fields in UNIT.iter_unpack(data[: len(data) - len(data) % UNIT.size]):
                unit = BatchUnit(*fields)
                if not unit.is_valid:
                    return
                yield position, unit
                position += UNIT.size
