"""The only code that cuts files: finds the log's end after a clean or unclean stop and makes the queues match it.

With a recovery position whose record is still there, queue entries below it are trusted and the log is scanned from it.
Without one (a first start, or Apache wrote here in between) the whole log is scanned and the queues are built anew.

The scan ends at the first bytes that are no record. When valid records follow, known by queue entries or by the next
file's start, the range is damage: it is copied to quarantine and stepped over (D15). Otherwise it is a torn tail:
copied aside, then zeroed. Whatever was found is synced before anyone reads it.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import CorruptFile
from ..protocol.record import FIXED_BYTES, MAGIC_BLANK, SIZE_MAGIC, Record, decode_record
from .consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE, ConsumeQueue
from .deleted_topics import load_deleted_topics
from .dispatch import entry_tag_code, has_queue_entry
from .queue_files import QueueFiles

if TYPE_CHECKING:
    from .checkpoint import RecoveryPosition
    from .commit_log import CommitLog
    from .message_store import MessageStore

logger = logging.getLogger(__name__)

_WINDOW_BYTES = 4 * 1024 * 1024
#: How far behind the end torn bytes may lie: what may be un-synced, and one tick.
_TORN_REACH_BYTES = 80 * 1024 * 1024
#: Entries are written out when the tails hold this much.
_FLUSH_BYTES = 16 * 1024 * 1024


class _QueuesIncomplete(Exception):
    """A queue's files do not reach back to the recovery position; everything is built anew."""


def recover(store: MessageStore) -> tuple[int, int, int]:
    """(end of the log, offset of its last record or -1, its store time); the queue table is filled."""
    position = _trusted_position(store)
    if position is not None:
        try:
            return _Recovery(store, position).run()
        except _QueuesIncomplete as reason:
            logger.warning("recovery: %s; building all queues anew", reason)
            store.queues.clear()
    return _Recovery(store, None).run()


def _trusted_position(store: MessageStore) -> RecoveryPosition | None:
    """The saved recovery position, if the record it names is still what it was."""
    position = store.files.recovery_position.position
    if position is None:
        return None
    try:
        record = decode_record(_read(store.log, position.record_offset, position.record_size), check_crc=False)
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


def _read(log: CommitLog, offset: int, size: int) -> bytes:
    """Bytes of one file, whatever `written` says."""
    segment = log.segment_at(offset)
    if segment is None or size <= 0:
        return b""
    return log._disk.pread(segment.fd, min(size, segment.end - offset), offset - segment.start)


class _Recovery:
    """One pass over log and queues."""

    def __init__(self, store: MessageStore, position: RecoveryPosition | None) -> None:
        self._store = store
        self._log = store.log
        self._position = position
        self._files: QueueFiles = store.queues.new_files()
        self._tail_bytes = 0
        self._dispatched: dict[ConsumeQueue, None] = {}
        #: Physical offsets at or behind the position that queue entries name, ascending.
        self._hints: list[int] = []
        self._deleted = load_deleted_topics(store)

    def run(self) -> tuple[int, int, int]:
        log = self._log
        start = self._position.offset if self._position else log.min_offset
        last_offset = self._position.record_offset if self._position else -1
        last_time = self._position.record_time_ms if self._position else 0
        if self._position:
            for topic, queue_id in self._store.queues.on_disk():
                self._load_queue(topic, queue_id, start)
        else:
            for topic, queue_id in self._store.queues.on_disk():
                self._collect_hints(topic, queue_id)
        self._hints.sort()
        end = start
        count = 0
        for offset, record in self._scan(start):
            end = offset
            if record is not None:
                last_offset, last_time = record.physical_offset, record.store_time_ms
                self._dispatch(record)
                count += 1
        if not self._position:
            for topic, queue_id in self._store.queues.on_disk():
                if self._store.queues.find(topic, queue_id) is None:
                    self._load_queue(topic, queue_id, end)
        self._cut_tail(end)
        for segment in log.segments:
            if segment.end > start:
                log._disk.fdatasync(segment.fd)
        self._write_tails()
        for queue in self._store.queues.all():
            self._cut_queue(queue)
            self._correct_min_offset(queue)
        self._files.sync()
        self._files.close()
        logger.info(
            "recovery: done from=%d end=%d records=%d clean=%s", start, end, count, self._store.files.left_clean
        )
        return end, last_offset, last_time

    # --- the log

    def _scan(self, offset: int) -> Iterator[tuple[int, Record | None]]:
        """(offset behind it, record) for each record from `offset`; None where only the place moves on."""
        log = self._log
        base, data = offset, b""
        while (segment := log.segment_at(offset)) is not None:
            at = offset - base
            if len(data) - at < 8 or len(data) - at < SIZE_MAGIC.unpack_from(data, at)[0]:
                wanted = max(_WINDOW_BYTES, int.from_bytes(data[at : at + 4], "big") if len(data) - at >= 4 else 0)
                base, at, data = offset, 0, _read(log, offset, min(wanted, segment.end - offset))
            if len(data) - at >= 8:
                size, magic = SIZE_MAGIC.unpack_from(data, at)
                if magic == MAGIC_BLANK and size == segment.end - offset:
                    offset = segment.end
                    base, data = offset, b""
                    yield offset, None
                    continue
            try:
                record = decode_record(data, at)
                if record.physical_offset != offset:
                    raise CorruptFile(f"record at {offset} says it lies at {record.physical_offset}")
            except CorruptFile as error:
                following = self._next_valid(offset)
                if following is None:
                    return
                self._quarantine(offset, following, "damage", str(error))
                offset = following
                base, data = offset, b""
                yield offset, None
                continue
            offset += record.size
            yield offset, record

    def _next_valid(self, offset: int) -> int | None:
        """Where the next valid record behind `offset` begins, as queue entries or the next files know it."""
        starts = [segment.start for segment in self._log.segments if segment.start > offset]
        following = self._first_valid(starts)
        for hint in self._hints[bisect_right(self._hints, offset) :]:
            if following is not None and hint >= following:
                break
            if self._is_record(hint):
                return hint
        return following

    def _first_valid(self, starts: list[int]) -> int | None:
        return next((start for start in starts if self._is_record(start)), None)

    def _is_record(self, offset: int) -> bool:
        size = int.from_bytes(_read(self._log, offset, 4), "big", signed=True)
        if size < FIXED_BYTES:
            return False
        try:
            return decode_record(_read(self._log, offset, size)).physical_offset == offset
        except CorruptFile:
            return False

    def _quarantine(self, begin: int, end: int, kind: str, reason: str) -> None:
        """Keep a copy of bytes that are stepped over or cut."""
        disk, directory = self._store.disk, self._store.paths.quarantine
        disk.make_directory(directory)
        path = directory / f"commitlog-{begin:020d}-{end:020d}.{kind}"
        fd = disk.open(path, create=True)
        try:
            position = 0
            while begin + position < end:
                data = _read(self._log, begin + position, min(_WINDOW_BYTES, end - begin - position))
                if not data:
                    break
                disk.pwrite(fd, data, position)
                position += len(data)
            disk.fsync(fd)
        finally:
            disk.close(fd)
        disk.sync_directory(directory)
        level = logging.ERROR if kind == "damage" else logging.WARNING
        logger.log(level, "recovery: %s [%d, %d) kept as %s: %s", kind, begin, end, path.name, reason)

    def _cut_tail(self, end: int) -> None:
        """Zero what lies behind the end, so that no later record can be followed by stale bytes."""
        if self._store.files.left_clean and self._position:
            return
        log, disk = self._log, self._store.disk
        segment = log.segment_at(end)
        if segment is not None:
            dirty_end = end
            reach = min(end + _TORN_REACH_BYTES, segment.end)
            for offset in range(end, reach, 1 << 20):
                data = _read(log, offset, min(1 << 20, reach - offset)).rstrip(b"\0")
                if data:
                    dirty_end = offset + len(data)
            if dirty_end > end:
                self._quarantine(end, dirty_end, "torn", "the tail of the log is no whole record")
                for offset in range(end, dirty_end, 1 << 20):
                    disk.pwrite(segment.fd, bytes(min(1 << 20, dirty_end - offset)), offset - segment.start)
        for following in [s for s in log.segments if s.start > end]:
            if _read(log, following.start, 4096).strip(b"\0"):
                self._quarantine(following.start, following.start + 4096, "torn", "behind the end of the log")
                disk.truncate(following.fd, 0)
                disk.allocate(following.fd, log.segment_bytes)
                disk.fsync(following.fd)

    # --- the queues

    def _dispatch(self, record: Record) -> None:
        """Give a record its queue entry, as the append did."""
        if not has_queue_entry(record.sys_flag) or record.physical_offset < self._deleted.get(record.topic, 0):
            return
        queues = self._store.queues
        queue = queues.find(record.topic, record.queue_id)
        offset = record.queue_offset
        if queue is None:
            if self._position and offset:
                raise _QueuesIncomplete(f"{record.topic}-{record.queue_id} has no files before offset {offset}")
            queue = queues.get_or_create(record.topic, record.queue_id, offset)
        elif offset < queue.next_offset:
            # The topic was deleted and made anew: its offsets begin again.
            self._write_tails()
            queues.forget(queue)
            queue = queues.get_or_create(record.topic, record.queue_id, offset)
        elif offset > queue.next_offset:
            logger.error("recovery: %r misses entries up to %d", queue, offset)
            while queue.next_offset < offset:
                queue.append(record.physical_offset, HOLE_SIZE, 0)
        queue.append(record.physical_offset, record.size, entry_tag_code(record, self._store.settings.delay_levels_ms))
        queue.max_offset = queue.next_offset
        self._dispatched[queue] = None
        self._tail_bytes += ENTRY_BYTES
        if self._tail_bytes >= _FLUSH_BYTES:
            self._write_tails()

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
        per_file = self._files.entries_per_file
        low, high = number * per_file, (number + 1) * per_file
        while low < high:
            middle = (low + high) // 2
            entry = self._files.read(topic, queue_id, middle, 1)
            physical, size, _ = ENTRY.unpack(entry) if len(entry) == ENTRY_BYTES else (0, 0, 0)
            if size > 0 and physical < limit:
                low = middle + 1
            else:
                high = middle
        return low

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
                    self._hints.append(physical)
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
        if end // per_file in numbers:
            rest = per_file - end % per_file
            probe = files.read(queue.topic, queue.queue_id, end, min(rest, 64))
            if probe.strip(b"\0"):
                stale = files.read(queue.topic, queue.queue_id, end, rest).rstrip(b"\0")
                count = -(-len(stale) // ENTRY_BYTES)
                logger.warning("recovery: %r had %d stale entries behind its end", queue, count)
                files.write(queue.topic, queue.queue_id, end, bytes(count * ENTRY_BYTES))

    def _correct_min_offset(self, queue: ConsumeQueue) -> None:
        """The first entry whose record the log still has. Fillers at the front have size HOLE_SIZE and offset 0."""
        log_min = self._log.min_offset
        low, high = queue.min_offset, queue.max_offset
        entry = self._files.read(queue.topic, queue.queue_id, low, 1) if low < high else b""
        if not entry:
            return
        physical, size, _ = ENTRY.unpack(entry)
        if physical >= log_min and size != HOLE_SIZE:
            return
        while low < high:
            middle = (low + high) // 2
            physical, size, _ = ENTRY.unpack(self._files.read(queue.topic, queue.queue_id, middle, 1))
            if physical < log_min or (physical == 0 and size == HOLE_SIZE):
                low = middle + 1
            else:
                high = middle
        queue.min_offset = low
