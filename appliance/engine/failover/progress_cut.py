"""Sets progress back after a cut: work that counts as done because of a record that was cut off is done again.

    delayed messages    config/delayOffset.json goes back to the first one whose copy was cut off
    timers              config/timercheck goes back to the earliest one; the index of them is made again from the log
    transactions        config/consumerOffset.json goes back to the first half message that was decided there

A message may be delivered twice by that; none is lost. Reads the bytes in quarantine; each step may be repeated.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from ..broker.delays.progress import FILE_NAME as DELAY_PROGRESS
from ..broker.timers.apache_files import checkpoint_of, checkpoint_path, read_checkpoint, remove_schedule
from ..disk import Disk
from ..fastjson import encode_pretty, loads
from ..protocol.names import CHECK_GROUP, HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from ..protocol.properties import REAL_TOPIC, TIMER_OUT_MS, TIMER_WAS_OUT_MS, UNIQUE_KEY, find_property
from ..protocol.record import Record
from ..store.closed_store import ClosedStore
from ..store.queues.consume_queue import ENTRY, ENTRY_BYTES
from ..store.queues.consume_queue_table import ConsumeQueueTable
from ..store.queues.queue_inspector import QueueInspector
from .quarantine import Tail

logger = logging.getLogger(__name__)

OFFSETS = "consumerOffset.json"
#: Copies that are remembered one by one; beyond that only their number counts.
MAX_COPIES = 1_000_000
#: This many messages in a row without a copy in the tail end the search of one delay level.
_STRAY = 1000
_NUMBER = re.compile(rb"[0-9]{1,18}\Z")
#: Files of a broker are at most this long; a longer one is left alone.
_MAX_BYTES = 512 * 1024 * 1024


class ProgressCut:
    """The progress to set back after one cut. Owned by the code that cuts (`truncation.StoreCut`)."""

    def __init__(self, store: ClosedStore, point: int, timers: Path) -> None:
        """timers: the directory of the index of timers."""
        self._disk = store.disk
        self._store = store
        self._point = point
        self._timers = timers
        self._config = store.paths.config
        self._copies: set[int] = set()
        self._copy_count = 0
        #: The earliest time, and the lowest offset in the half queue, that a record in the tail marks as done.
        self._timer_ms: int | None = None
        self._timer_seen = False
        self._half: int | None = None

    def run(self, tail: Tail) -> None:
        """Set back what depends on records of the tail. Raises OSError; then it has to be called again."""
        for record in tail.records(self._disk):
            self._look(record)
        if self._copy_count:
            self._cut_delays()
        if self._timer_seen:
            self._cut_timers()
        if self._half is not None:
            self._cut_transactions(self._half)

    def _look(self, record: Record) -> None:
        topic, properties = record.topic, record.properties
        if topic == TIMER_TOPIC:
            self._timer_seen = True
        elif topic == OP_HALF_TOPIC:
            for word in record.body.split(b","):
                if _NUMBER.match(word):
                    self._half = int(word) if self._half is None else min(self._half, int(word))
        elif topic not in (SCHEDULE_TOPIC, HALF_TOPIC):
            # The second name is that of copies that Apache or an older version delivered.
            out_ms = find_property(properties, TIMER_WAS_OUT_MS) or find_property(properties, TIMER_OUT_MS)
            if out_ms is not None and out_ms.isascii() and out_ms.isdigit():
                self._timer_seen = True
                self._timer_ms = int(out_ms) if self._timer_ms is None else min(self._timer_ms, int(out_ms))
            if find_property(properties, REAL_TOPIC) is not None:  # of all that waited somewhere
                self._copy_count += 1
                if len(self._copies) < MAX_COPIES:
                    self._copies.add(_who(record))

    # --- delayed messages

    def _cut_delays(self) -> None:
        path = self._config / DELAY_PROGRESS
        document = _load(self._disk, path)
        table = document.get("offsetTable") if isinstance(document, dict) else None
        if not isinstance(table, dict):
            return
        changed = False
        for level, offset in table.items():
            if not level.isdecimal() or type(offset) is not int:
                return  # its reader will report what is wrong
            back = self._first_again(int(level), offset)
            if back < offset:
                logger.warning("cut: delay level %s goes back from %d to %d", level, offset, back)
                table[level], changed = back, True
        if changed:
            document["offsetTable"] = {int(level): offset for level, offset in table.items()}
            self._disk.replace(path, encode_pretty(document).encode())

    def _first_again(self, level: int, offset: int) -> int:
        """Return the offset in the level's queue to go back to: that of the first message whose copy was cut off, or a
        lower one if the copies are alike. Deliveries come in the queue's order: only the last ones may have
        been cut off."""
        settings = self._store.settings
        queues = ConsumeQueueTable(self._store.paths, self._disk, settings.queue_file_bytes, settings.queue_descriptors)
        files = queues.new_files(16)
        try:
            if (SCHEDULE_TOPIC, level - 1) in queues.on_disk([SCHEDULE_TOPIC]):
                QueueInspector(self._store.raw, queues, files).load(SCHEDULE_TOPIC, level - 1, self._point)
            queue = queues.find(SCHEDULE_TOPIC, level - 1)
            if queue is None:
                return 0
            first = at = min(offset, queue.next_offset)
            if self._copy_count > MAX_COPIES:
                return max(queue.min_offset, first - self._copy_count)
            while at > queue.min_offset and first - at < _STRAY:
                at -= 1
                entry = files.read(SCHEDULE_TOPIC, level - 1, at, 1)
                if len(entry) < ENTRY_BYTES:
                    return max(queue.min_offset, first - self._copy_count)
                physical, size, _ = ENTRY.unpack(entry)
                record = self._store.raw.record_at(physical, size)
                if record is not None and _who(record) in self._copies:
                    first = at
            return first
        finally:
            files.close()
            queues.close()

    # --- timers

    def _cut_timers(self) -> None:
        """Set the checkpoint back before the index is removed: it decides what a rebuilt index leaves out."""
        root = self._store.paths.root
        left = read_checkpoint(self._disk, root)
        if left is not None:
            back = left.last_read_ms if self._timer_ms is None else min(left.last_read_ms, self._timer_ms)
            # Deliveries that a leader noted as done go as well: copies of them may lie in the tail.
            if back < left.last_read_ms or left.done is not None:
                logger.warning("cut: timers go back from %d to %d", left.last_read_ms, back)
                self._disk.replace(checkpoint_path(root), checkpoint_of(back, left.queue_offset, back))
        remove_schedule(self._disk, root)
        if self._disk.is_directory(self._timers):
            for name in self._disk.names(self._timers):
                self._disk.unlink(self._timers / name)
            self._disk.sync_directory(self._timers)

    # --- transactions

    def _cut_transactions(self, half: int) -> None:
        """Read op messages from the first one again: those that remain may name half messages after this one, too."""
        path = self._config / OFFSETS
        document = _load(self._disk, path)
        table = document.get("offsetTable") if isinstance(document, dict) else None
        halves = table.get(f"{HALF_TOPIC}@{CHECK_GROUP}") if isinstance(table, dict) else None
        if not isinstance(table, dict) or not isinstance(halves, dict) or int(halves.get("0", 0)) <= half:
            return
        logger.warning("cut: half messages go back from %s to %d", halves["0"], half)
        halves["0"] = half
        table[f"{OP_HALF_TOPIC}@{CHECK_GROUP}"] = {"0": 0}
        document["offsetTable"] = {
            key: {int(queue_id): offset for queue_id, offset in queues.items()} for key, queues in table.items()
        }
        self._disk.replace(path, encode_pretty(document).encode())


def _who(record: Record) -> int:
    """Return a hash of the fields that a message and its copy have in common."""
    key = find_property(record.properties, UNIQUE_KEY)
    return hash((key, record.born_time_ms, record.body_crc, len(record.body)))


def _load(disk: Disk, path: Path) -> Any:
    """Load a table of the broker; None if there is none, it is longer than _MAX_BYTES, or it is not JSON, which is
    logged."""
    data = disk.read_if_any(path, _MAX_BYTES + 1)
    if data is None or len(data) > _MAX_BYTES:
        return None
    try:
        return loads(data)
    except ValueError as error:
        logger.error("cut: %s cannot be read: %s", path, error)
        return None
