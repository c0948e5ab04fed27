"""Inspects queue files: where a queue ends, whether its entries match the log, and what lies behind them.

Used by recovery, which has the store to itself, and by QueueRepair beside the running broker.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable

from ..log.raw_log import RawLog
from .consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE, ConsumeQueue, has_zeros
from .consume_queue_table import ConsumeQueueTable
from .queue_files import QueueFiles

logger = logging.getLogger(__name__)

#: Bytes that a disk writes as a whole: an entry that crosses such a border may be torn.
_SECTOR_BYTES = 512


class QueueInspector:
    """Belongs to one thread."""

    def __init__(
        self,
        raw: RawLog,
        queues: ConsumeQueueTable,
        files: QueueFiles,
        writing: QueueFiles | None = None,
    ) -> None:
        """files: for reading. writing: for zeroing entries; `files` unless given."""
        self._raw = raw
        self._queues = queues
        self._files = files
        self._writing = writing or files
        #: Physical offsets of entries, at which a scan may continue behind damage; unordered.
        self.hints: list[int] = []

    def is_whole(self, queue: ConsumeQueue) -> bool:
        """True if the files are complete, judging by their names, lengths, first and last entries.

        Entries behind the end are zeroed.
        """
        files, per_file = self._files, self._files.entries_per_file
        topic, queue_id, end = queue.topic, queue.queue_id, queue.tail_base
        if queue.min_offset >= end:
            return True
        try:
            there = files.numbers(topic, queue_id)
        except (FileNotFoundError, NotADirectoryError):
            return False
        for number in range(queue.min_offset // per_file, (end - 1) // per_file + 1):
            if number not in there:
                return False
            first = max(queue.min_offset, number * per_file)
            last = min(end, (number + 1) * per_file) - 1
            entry = files.read(topic, queue_id, last, 1)
            if has_zeros(entry) or has_zeros(files.read(topic, queue_id, first, 1)):
                return False
        physical, size, _ = ENTRY.unpack(entry)
        if not self.is_true(topic, queue_id, physical, size, end - 1):
            return False
        self.cut(queue, end, there)
        return True

    def first_physical(self, topic: str, queue_id: int) -> int:
        """Return the physical offset of a queue's first entry, skipping fillers; -1 if it has none."""
        numbers = self._files.numbers(topic, queue_id)
        per_file = self._files.entries_per_file
        entries = self._files.read(topic, queue_id, numbers[0] * per_file, per_file) if numbers else b""
        for physical, size, _ in ENTRY.iter_unpack(entries[: len(entries) - len(entries) % ENTRY_BYTES]):
            if size <= 0:
                break
            if (physical, size) != (0, HOLE_SIZE):
                return int(physical)
        return -1

    def load(self, topic: str, queue_id: int, limit: int) -> None:
        """Set a queue's offsets from its files; only entries of records below physical offset `limit` count."""
        numbers = self._files.numbers(topic, queue_id)
        if not numbers:
            return
        per_file = self._files.entries_per_file
        self._files.check_size(topic, queue_id, numbers[-1])
        end = numbers[0] * per_file
        for number in reversed(numbers):
            end = self._end_in_file(topic, queue_id, number, limit)
            self._collect(topic, queue_id, end, limit)
            if end > number * per_file:
                break
        queue = self._queues.get_or_create(topic, queue_id, end)
        queue.min_offset = numbers[0] * per_file

    def _end_in_file(self, topic: str, queue_id: int, number: int, limit: int) -> int:
        """Return the offset behind a file's last entry below `limit`; entries ascend, zeros follow the last."""
        end = self._search_end(topic, queue_id, number, lambda physical, size, _: size > 0 and physical < limit)
        begin = number * self._files.entries_per_file
        at = (end - 1 - begin) * ENTRY_BYTES
        if end > begin and at // _SECTOR_BYTES != (at + ENTRY_BYTES - 1) // _SECTOR_BYTES:
            # This may be half an entry with arbitrary numbers: then only entries count that match the log.
            def counts(physical: int, size: int, offset: int) -> bool:
                return size > 0 and physical < limit and self.is_true(topic, queue_id, physical, size, offset)

            physical, size, _ = ENTRY.unpack(self._files.read(topic, queue_id, end - 1, 1))
            if not counts(physical, size, end - 1):
                end = self._search_end(topic, queue_id, number, counts)
        return end

    def _search_end(self, topic: str, queue_id: int, number: int, counts: Callable[[int, int, int], bool]) -> int:
        """Return the offset behind the last entry for which counts(physical offset, size, queue offset) is true."""

        def is_behind(offset: int) -> bool:
            entry = self._files.read(topic, queue_id, offset, 1)
            physical, size, _ = ENTRY.unpack(entry) if len(entry) == ENTRY_BYTES else (0, 0, 0)
            return not counts(physical, size, offset)

        low = number * self._files.entries_per_file
        return low + bisect_left(range(low, low + self._files.entries_per_file), True, key=is_behind)

    def is_true(self, topic: str, queue_id: int, physical: int, size: int, offset: int) -> bool:
        """True if the log has the record that an entry names. Entries of expired records and holes count as true."""
        if physical < self._raw.files.min_offset or size == HOLE_SIZE:
            return True
        record = self._raw.record_at(physical, size)
        return record is not None and (record.topic, record.queue_id, record.queue_offset) == (topic, queue_id, offset)

    def collect_hints(self, topic: str, queue_id: int) -> None:
        per_file = self._files.entries_per_file
        for number in self._files.numbers(topic, queue_id):
            self._collect(topic, queue_id, number * per_file, self._raw.files.min_offset)

    def _collect(self, topic: str, queue_id: int, offset: int, limit: int) -> None:
        """Add the physical offsets in a file's entries from `offset` on to `hints`, if they lie in the log."""
        count = 64
        while True:
            data = self._files.read(topic, queue_id, offset, count)
            for physical, size, _ in ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_BYTES]):
                if size <= 0:
                    return
                if physical >= limit and size != HOLE_SIZE:
                    self.hints.append(physical)
            offset += len(data) // ENTRY_BYTES
            if len(data) < ENTRY_BYTES or offset % self._files.entries_per_file == 0:
                return
            count = 20_000

    def cut(self, queue: ConsumeQueue, end: int, numbers: list[int] | None = None) -> None:
        """Zero entries behind the queue's end: after a later crash, stale ones would be taken for valid.

        numbers: of the queue's files, if they are known.
        """
        files, per_file = self._files, self._files.entries_per_file
        try:
            numbers = files.numbers(queue.topic, queue.queue_id) if numbers is None else numbers
        except FileNotFoundError:
            return
        for number in numbers:
            if number * per_file >= end and number * per_file + per_file > end and number != end // per_file:
                self._writing.unlink(queue.topic, queue.queue_id, number)
        if end // per_file not in numbers:
            return
        file_end = (end // per_file + 1) * per_file
        offset = end
        while (offset := files.next_data(queue.topic, queue.queue_id, offset)) < file_end:
            count = min(file_end - offset, 1024)
            data = files.read(queue.topic, queue.queue_id, offset, count)
            if not data:
                return
            if data.strip(b"\0"):
                logger.warning("consume queue: %r had stale entries behind its end", queue)
                self._writing.write(queue.topic, queue.queue_id, offset, bytes(count * ENTRY_BYTES))
            offset += count

    def first_offset(self, queue: ConsumeQueue, end: int) -> int:
        """Return the first offset, below `end`, whose record is still in the log. Fillers at the front have size
        HOLE_SIZE and offset 0."""
        low = queue.min_offset
        if low >= end or not self._is_gone(queue, low):
            return low
        return low + bisect_left(range(low, end), True, key=lambda offset: not self._is_gone(queue, offset))

    def _is_gone(self, queue: ConsumeQueue, offset: int) -> bool:
        entry = self._files.read(queue.topic, queue.queue_id, offset, 1)
        if len(entry) < ENTRY_BYTES:
            return True
        physical, size, _ = ENTRY.unpack(entry)
        return size <= 0 or physical < self._raw.files.min_offset or (physical == 0 and size == HOLE_SIZE)
