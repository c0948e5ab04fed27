"""Finds the log's end after a clean or unclean stop and makes the queues match it. Only here files are cut.

With a recovery position whose record is still there, and queue files that hold all it counted, queue entries below it
are trusted and the log is scanned from it. Without one (a first start, Apache wrote here in between, a queue file got
lost) the whole log is scanned and the queues are built anew; before anything is changed the position is withdrawn, so
that a crash in here begins again. Whatever was found is synced before anyone reads it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import CorruptFile
from ..protocol.record import Record, decode_record
from .consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE, ConsumeQueue
from .deleted_topics import limit_deleted_topics, load_deleted_topics
from .dispatch import entry_tag_code, has_queue_entry
from .log_scan import LogScan
from .queue_files import QueueFiles

if TYPE_CHECKING:
    from .checkpoint import RecoveryPosition
    from .message_store import MessageStore

logger = logging.getLogger(__name__)

#: Entries are written out when the tails hold this much.
_FLUSH_BYTES = 16 * 1024 * 1024
#: What a disk writes whole: an entry that crosses such a border may be torn.
_SECTOR_BYTES = 512
_HOLE = ENTRY.pack(0, HOLE_SIZE, 0)


class _QueuesIncomplete(Exception):
    """The queue files do not hold what the recovery position says; everything is built anew."""


def recover(store: MessageStore) -> tuple[int, int, int]:
    """(end of the log, offset of its last record or -1, its store time); the queue table is filled."""
    found = _recover(store)
    limit_deleted_topics(store, found[0])
    return found


def _recover(store: MessageStore) -> tuple[int, int, int]:
    saved = store.files.recovery_position
    durable = None if saved.durable < 0 else saved.durable
    position = _trusted_position(store, LogScan(store, durable))
    if position is not None:
        try:
            return _Recovery(store, LogScan(store, durable), position).run()
        except _QueuesIncomplete as reason:
            logger.warning("recovery: %s; building all queues anew", reason)
            store.queues.clear()
    if durable is not None:
        saved.withdraw(durable)
    found = _Recovery(store, LogScan(store, durable), None).run()
    saved.withdraw(found[0])  # all of it was synced; from here on the store is ours
    return found


def _trusted_position(store: MessageStore, log: LogScan) -> RecoveryPosition | None:
    """The saved recovery position, if the record it names is still what it was."""
    position = store.files.recovery_position.position
    if position is None:
        return None
    try:
        record = decode_record(log.read(position.record_offset, position.record_size), check_crc=False)
    except CorruptFile:
        record = None
    if (
        record is None
        or record.size != position.record_size
        or record.body_crc != position.record_crc
        or record.store_time_ms != position.record_time_ms
        or record.physical_offset != position.record_offset
    ):
        logger.warning("recovery: the saved position %d does not match the log, scanning all of it", position.offset)
        return None
    return position


class _Recovery:
    """One pass over log and queues."""

    def __init__(self, store: MessageStore, log: LogScan, position: RecoveryPosition | None) -> None:
        self._store = store
        self._scan = log
        self._log = store.log
        self._position = position
        self._files: QueueFiles = store.queues.new_files()
        self._tail_bytes = 0
        self._dispatched: dict[ConsumeQueue, None] = {}
        self._deleted = load_deleted_topics(store)

    def run(self) -> tuple[int, int, int]:
        try:
            return self._run()
        finally:
            self._files.close()

    def _run(self) -> tuple[int, int, int]:
        store, position = self._store, self._position
        clean = store.files.left_clean
        start = position.offset if position else self._log.min_offset
        last_offset = position.record_offset if position else -1
        last_time = position.record_time_ms if position else 0
        if not clean:
            self._scan.settle(start)
        self._finish_deletions()
        on_disk = store.queues.on_disk()
        for topic, queue_id in on_disk:
            if position:
                self._load_queue(topic, queue_id, start)
            else:
                self._collect_hints(topic, queue_id)
        if position:
            self._count_entries(position)
        self._scan.hints.sort()
        end = start
        count = 0
        for offset, record in self._scan.records(start):
            end = offset
            if record is not None:
                last_offset, last_time = record.physical_offset, record.store_time_ms
                self._dispatch(record)
                count += 1
        if not position:
            for topic, queue_id in on_disk:
                if store.queues.find(topic, queue_id) is None:
                    self._load_queue(topic, queue_id, end)
        as_left = clean and position is not None and position.offset == end
        if not as_left:
            self._scan.cut(end)
            self._scan.settle(start)
        self._write_tails()
        for queue in store.queues.all():
            if not as_left:
                self._cut_queue(queue)
            self._correct_min_offset(queue)
        self._files.sync()
        logger.info("recovery: done from=%d end=%d records=%d clean=%s", start, end, count, clean)
        return end, last_offset, last_time

    def _finish_deletions(self) -> None:
        """Delete files of deleted topics that a crash left: their first entry names a record of before.

        A queue whose first entry is zero was made anew and did not get further.
        """
        for topic, queue_id in self._store.queues.on_disk() if self._deleted else ():
            below = self._deleted.get(topic, -1)
            physical = self._first_physical(topic, queue_id) if below >= 0 else -1
            if 0 <= physical < below:
                logger.warning("recovery: finishing the deletion of %s-%d", topic, queue_id)
                for number in self._files.numbers(topic, queue_id):
                    self._files.unlink(topic, queue_id, number)
                self._store.disk.sync_directory(self._store.paths.queue_dir(topic, queue_id))

    def _first_physical(self, topic: str, queue_id: int) -> int:
        """Where the record of a queue's first entry lies, fillers aside; -1 when it has none."""
        numbers = self._files.numbers(topic, queue_id)
        per_file = self._files.entries_per_file
        entries = self._files.read(topic, queue_id, numbers[0] * per_file, per_file) if numbers else b""
        for physical, size, _ in ENTRY.iter_unpack(entries[: len(entries) - len(entries) % ENTRY_BYTES]):
            if size <= 0:
                break
            if (physical, size) != (0, HOLE_SIZE):
                return int(physical)
        return -1

    def _count_entries(self, position: RecoveryPosition) -> None:
        """Whether the files hold all entries that were there when the position was saved."""
        found = sum(queue.next_offset for queue in self._store.queues.all())
        if found != position.entries:
            raise _QueuesIncomplete(f"queue files hold {found} entries instead of {position.entries}")

    # --- the queues

    def _dispatch(self, record: Record) -> None:
        """Give a record its queue entry, as the append did."""
        if not has_queue_entry(record.sys_flag) or record.physical_offset < self._deleted.get(record.topic, 0):
            return
        queue = self._store.queues.find(record.topic, record.queue_id)
        offset = record.queue_offset
        if queue is None or queue.next_offset != offset:
            queue = self._bring_to(record, queue)
        queue.append(record.physical_offset, record.size, entry_tag_code(record, self._store.settings.delay_levels_ms))
        queue.max_offset = queue.next_offset
        self._dispatched[queue] = None
        self._tail_bytes += ENTRY_BYTES
        if self._tail_bytes >= _FLUSH_BYTES:
            self._write_tails()

    def _bring_to(self, record: Record, queue: ConsumeQueue | None) -> ConsumeQueue:
        """The record's queue, ready to take its offset."""
        offset, queues = record.queue_offset, self._store.queues
        if self._position and (queue is not None or offset):
            raise _QueuesIncomplete(f"{record.topic}-{record.queue_id} is not at offset {offset}: {queue}")
        if queue is not None and offset > queue.next_offset:
            logger.error("recovery: %r misses entries up to %d", queue, offset)
            while queue.next_offset < offset:
                queue.append(record.physical_offset, HOLE_SIZE, 0)
            return queue
        if queue is not None:  # the topic was deleted by Apache and made anew: its offsets begin again
            self._write_tails()
            queues.forget(queue)
        begin = offset - offset % self._files.entries_per_file
        if begin < offset:
            # Apache's filler: its recovery would stop at zeros.
            self._files.write(record.topic, record.queue_id, begin, _HOLE * (offset - begin))
        try:
            numbers = self._files.numbers(record.topic, record.queue_id)
        except FileNotFoundError:
            numbers = []
        for number in numbers:
            if number < begin // self._files.entries_per_file:
                self._files.unlink(record.topic, record.queue_id, number)
        return queues.get_or_create(record.topic, record.queue_id, offset)

    def _write_tails(self) -> None:
        for queue in self._dispatched:
            offset, entries = queue.unwritten()
            self._files.write(queue.topic, queue.queue_id, offset, entries)
            queue.trim(queue.max_offset)
        self._dispatched.clear()
        self._tail_bytes = 0

    def _load_queue(self, topic: str, queue_id: int, limit: int) -> None:
        """Find a queue's offsets from its files; entries below physical offset `limit` count."""
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
        queue = self._store.queues.get_or_create(topic, queue_id, end)
        queue.min_offset = numbers[0] * per_file
        queue.first_file = numbers[0]

    def _end_in_file(self, topic: str, queue_id: int, number: int, limit: int) -> int:
        """The offset behind the last entry of a file that lies below `limit`; entries ascend, zeros follow the last."""
        end = self._search_end(topic, queue_id, number, lambda physical, size, _: size > 0 and physical < limit)
        begin = number * self._files.entries_per_file
        at = (end - 1 - begin) * ENTRY_BYTES
        if end > begin and at // _SECTOR_BYTES != (at + ENTRY_BYTES - 1) // _SECTOR_BYTES:
            # It may be half an entry, whose numbers say anything: then only entries count that the log bears out.
            def is_true(physical: int, size: int, offset: int) -> bool:
                return size > 0 and physical < limit and self._is_true(topic, queue_id, physical, size, offset)

            physical, size, _ = ENTRY.unpack(self._files.read(topic, queue_id, end - 1, 1))
            if not is_true(physical, size, end - 1):
                end = self._search_end(topic, queue_id, number, is_true)
        return end

    def _search_end(self, topic: str, queue_id: int, number: int, counts: Callable[[int, int, int], bool]) -> int:
        """The offset behind the last entry for which counts(physical offset, size, queue offset)."""
        per_file = self._files.entries_per_file
        low, high = number * per_file, (number + 1) * per_file
        while low < high:
            middle = (low + high) // 2
            entry = self._files.read(topic, queue_id, middle, 1)
            physical, size, _ = ENTRY.unpack(entry) if len(entry) == ENTRY_BYTES else (0, 0, 0)
            if counts(physical, size, middle):
                low = middle + 1
            else:
                high = middle
        return low

    def _is_true(self, topic: str, queue_id: int, physical: int, size: int, offset: int) -> bool:
        """Whether the log has, where an entry says, the record it stands for; nothing to say of what has expired."""
        if physical < self._log.min_offset or size == HOLE_SIZE:
            return True
        try:
            record = decode_record(self._scan.read(physical, size), check_crc=False)
        except CorruptFile:
            return False
        return (record.physical_offset, record.size, record.topic, record.queue_id, record.queue_offset) == (
            physical,
            size,
            topic,
            queue_id,
            offset,
        )

    def _collect_hints(self, topic: str, queue_id: int) -> None:
        per_file = self._files.entries_per_file
        for number in self._files.numbers(topic, queue_id):
            self._collect(topic, queue_id, number * per_file, self._log.min_offset)

    def _collect(self, topic: str, queue_id: int, offset: int, limit: int) -> None:
        """Remember where a file's entries from `offset` on say that records lie, as far as they could be true."""
        count = 64
        while True:
            data = self._files.read(topic, queue_id, offset, count)
            for physical, size, _ in ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_BYTES]):
                if size <= 0:
                    return
                if physical >= limit and size != HOLE_SIZE:
                    self._scan.hints.append(physical)
            offset += len(data) // ENTRY_BYTES
            if len(data) < ENTRY_BYTES or offset % self._files.entries_per_file == 0:
                return
            count = 20_000

    def _cut_queue(self, queue: ConsumeQueue) -> None:
        """Zero entries behind the queue's end: stale ones would be taken for real after a later crash."""
        files, per_file = self._files, self._files.entries_per_file
        end = queue.max_offset
        try:
            numbers = files.numbers(queue.topic, queue.queue_id)
        except FileNotFoundError:
            return
        for number in numbers:
            if number * per_file >= end and number * per_file + per_file > end and number != end // per_file:
                files.unlink(queue.topic, queue.queue_id, number)
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
                logger.warning("recovery: %r had stale entries behind its end", queue)
                files.write(queue.topic, queue.queue_id, offset, bytes(count * ENTRY_BYTES))
            offset += count

    def _correct_min_offset(self, queue: ConsumeQueue) -> None:
        """The first entry whose record the log still has. Fillers at the front have size HOLE_SIZE and offset 0."""
        low, high = queue.min_offset, queue.max_offset
        if low >= high or not self._is_gone(queue, low):
            return
        while low < high:
            middle = (low + high) // 2
            if self._is_gone(queue, middle):
                low = middle + 1
            else:
                high = middle
        queue.min_offset = low

    def _is_gone(self, queue: ConsumeQueue, offset: int) -> bool:
        entry = self._files.read(queue.topic, queue.queue_id, offset, 1)
        if len(entry) < ENTRY_BYTES:
            return True
        physical, size, _ = ENTRY.unpack(entry)
        return size <= 0 or physical < self._log.min_offset or (physical == 0 and size == HOLE_SIZE)
