"""Cuts the end off a store that no broker runs: from an offset in the log on, no record stays, nor reference to one.

    log ......... | cut off      files behind are deleted, the newest first; bytes in the last one are zeroed
    queues        entries of records that are cut off are zeroed, files with no other entries are deleted
    index, seals, checkpoint, recovery position, queue ledger, deleted topics        end at the offset

Each step may be repeated: the caller notes the cut before the first step, and begins again after a crash. The log is
cut first, so that no later step can find the records that were cut off.

The recovery position and the ledger have to be true at the new end, or recovery would read the whole log. They are if
they were true before, which is checked by comparing the queue files with the ledger. If these do not match, the
position is withdrawn, and recovery rebuilds the queues.
"""

from __future__ import annotations

import logging

from .checkpoint import RecoveryPosition
from .closed_store import ClosedStore
from .index.index_cut import cut_index
from .log.block_checksums import BlockChecksums
from .log.log_scan import LogScan
from .log.raw_log import ZEROS_BYTES
from .queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE, ConsumeQueue
from .queues.consume_queue_table import ConsumeQueueTable
from .queues.queue_inspector import QueueInspector
from .queues.queue_ledger import LedgerPlace, QueueLedger

logger = logging.getLogger(__name__)


class _DoesNotFit(Exception):
    """Queue files and ledger do not match, or the log cannot be read up to its new end."""


def cut_tail(store: ClosedStore, point: int, trusted: RecoveryPosition | None, again: bool = True) -> None:
    """Cut everything from physical offset `point` on; a record or the log's first file must begin there.

    trusted: the recovery position before the first attempt, None if it could not be trusted. again: there may have been
    an earlier attempt. After an OSError it has to be repeated.
    """
    _cut_log(store, point)
    seals = BlockChecksums(store.paths, store.disk)
    for start in seals.starts():
        if start + store.settings.segment_bytes > point:
            seals.remove(start)
    if store.disk.is_directory(seals.directory):
        # If one came back after a crash, the new file in that place would count as damaged.
        store.disk.sync_directory(seals.directory)
    last_ms = _QueueCut(store, point, again).run(trusted)
    cut_index(store.paths, store.disk, store.settings.index_slots, store.settings.index_entries, point)
    if last_ms is not None:
        checkpoint = store.files.checkpoint
        checkpoint.limit(last_ms)
        checkpoint.save(0, 0)
        if checkpoint.index_time_ms > last_ms:
            checkpoint.save_index(last_ms)
    undone = store.files.deleted_topics.behind(point)
    if undone:
        # The leader sends the set's deletions again, if there are any. Until then the topics have all their messages.
        logger.warning("cut: topics that were deleted behind it, or queues of them, are there again: %s", undone[:20])
        saved = store.files.recovery_position
        if saved.durable >= 0:
            saved.withdraw(min(saved.durable, point))
        store.files.deleted_topics.cut(point)


def _cut_log(store: ClosedStore, point: int) -> None:
    """Cut the log's files. The first file stays in any case: it says where the log begins."""
    disk, log = store.disk, store.log
    assert point >= log.min_offset, (point, log.min_offset)
    while len(log.segments) > 1 and log.segments[-1].start >= point:
        segment = log.segments[-1]
        log.segments = log.segments[:-1]
        disk.unlink(segment.path)
        # Sync after each: a crash must not leave a gap.
        disk.sync_directory(store.paths.commit_log)
        segment.release()
    for segment in log.segments:
        begin = max(point, segment.start)
        if begin < segment.end:
            end = store.raw.data_end(segment, begin)
            for offset in range(begin, end, ZEROS_BYTES):
                zeros = bytes(min(ZEROS_BYTES, end - offset))
                disk.write_all(segment.fd, zeros, offset - segment.start)
        disk.fdatasync(segment.fd)
        disk.forget_cached(segment.fd)


class _QueueCut:
    """The queues' part of one cut, on queue files that are open nowhere else."""

    def __init__(self, store: ClosedStore, point: int, again: bool) -> None:
        self._store = store
        self._again = again
        self._point = point
        self._queues = self._new_table()
        self._files = self._queues.new_files()
        self._inspector = QueueInspector(store.raw, self._queues, self._files)
        self._ledger = QueueLedger(store.paths, store.disk, self._files.file_bytes)

    def _new_table(self) -> ConsumeQueueTable:
        settings = self._store.settings
        return ConsumeQueueTable(
            self._store.paths, self._store.disk, settings.queue_file_bytes, settings.queue_descriptors
        )

    def run(self, trusted: RecoveryPosition | None) -> int | None:
        """Cut the queues; return the store time of the last record that is left, None if it is not known."""
        try:
            return self._run(trusted)
        finally:
            self._ledger.close()
            self._files.close()
            self._queues.close()

    def _run(self, trusted: RecoveryPosition | None) -> int | None:
        saved = self._store.files.recovery_position
        try:
            if trusted is None:
                raise _DoesNotFit("there was no recovery position to go by")
            if saved.position == trusted:
                self._find_ends(trusted)
                if trusted.offset > self._point:
                    saved.save(self._position())
                    self._ledger.settled()
            elif saved.position is not None:  # an earlier attempt got this far
                self._load(saved.position)
            else:  # or found that they do not match
                raise _DoesNotFit("an earlier attempt to cut the queues found no ground")
        except _DoesNotFit as reason:
            logger.warning("cut: %s; the queues will be rebuilt", reason)
            if saved.durable >= 0:
                saved.withdraw(min(saved.durable, self._point))
            self._queues.clear()
            for topic, queue_id in self._queues.on_disk():
                self._inspector.load(topic, queue_id, self._point)
            self._cut_queues()
            return None
        self._cut_queues()
        position = saved.position
        assert position is not None
        return position.record_time_ms

    # --- where queues end

    def _find_ends(self, trusted: RecoveryPosition) -> None:
        """Fill the table with the ends of what is left of each queue. Only reads."""
        known = self._known(trusted)
        if trusted.offset <= self._point:
            # It stays as it is: the next recovery finds the records in between and gives them their entries again.
            for (topic, queue_id), (_, high) in known.items():
                self._queues.get_or_create(topic, queue_id, high)
        deleted = self._store.files.deleted_topics.load()
        for topic, queue_id in self._queues.on_disk():
            if self._queues.find(topic, queue_id) is not None:
                continue
            if topic in deleted and (topic, queue_id) not in known:
                continue  # recovery will finish the deletion
            self._inspector.load(topic, queue_id, min(self._point, trusted.offset))
        if trusted.offset <= self._point:
            return
        for queue in self._queues.all():
            end = known.pop((queue.topic, queue.queue_id), (0, 0))[1]
            if queue.next_offset > end or (queue.next_offset < end and not self._is_cut_off(queue)):
                raise _DoesNotFit(f"{queue!r} had entries up to {end}")
            queue.min_offset = self._inspector.first_offset(queue, queue.max_offset)
        for (topic, queue_id), (low, high) in known.items():
            if low < high:
                raise _DoesNotFit(f"{topic}-{queue_id} had entries up to {high}, and has no files")
            self._queues.get_or_create(topic, queue_id, high)

    def _known(self, trusted: RecoveryPosition) -> dict[tuple[str, int], tuple[int, int]]:
        """Return queue -> (minimum offset, offset behind the last entry) at the recovery position."""
        table = self._new_table()
        ledger = QueueLedger(self._store.paths, self._store.disk, self._files.file_bytes)
        try:
            if ledger.load(LedgerPlace(*trusted.ledger), table):
                if any(queue.broken for queue in table.all()):
                    raise _DoesNotFit("queue files were being rebuilt")
            else:
                inspector = QueueInspector(self._store.raw, table, self._files)
                for topic, queue_id in table.on_disk():
                    inspector.load(topic, queue_id, trusted.offset)
            entries = sum(queue.next_offset for queue in table.all())
            if entries != trusted.entries:
                raise _DoesNotFit(f"there are {entries} queue entries, not {trusted.entries}")
            return {(queue.topic, queue.queue_id): (queue.min_offset, queue.next_offset) for queue in table.all()}
        finally:
            ledger.close()
            table.close()

    def _is_cut_off(self, queue: ConsumeQueue) -> bool:
        """True if the entry behind the queue's new end is of a record that is cut off."""
        entry = self._files.read(queue.topic, queue.queue_id, queue.next_offset, 1)
        if len(entry) < ENTRY_BYTES:
            return False
        physical, size, _ = ENTRY.unpack(entry)
        return bool(size > 0 and physical >= self._point)

    def _load(self, position: RecoveryPosition) -> None:
        """Load the table that an earlier attempt saved; queues that have nothing left are read from the files again."""
        if not self._ledger.load(LedgerPlace(*position.ledger), self._queues):
            raise _DoesNotFit("the ledger of an earlier attempt is not what it was")
        for topic, queue_id in self._queues.on_disk():
            if self._queues.find(topic, queue_id) is None:
                self._inspector.load(topic, queue_id, self._point)

    # --- the recovery position

    def _position(self) -> RecoveryPosition:
        """Return the position at the log's new end, found by a scan from the last record of all queues."""
        begin = max((self._last_physical(queue) for queue in self._queues.all()), default=-1)
        if begin < self._store.log.min_offset:
            raise _DoesNotFit("no queue has an entry below the cut")
        last = None
        end = begin
        scan = LogScan(self._store.raw, _StepsOverNothing(), None, next_durable=lambda _: None)
        for behind, record in scan.records(begin):
            end, last = behind, record or last
        if last is None or end != self._point:
            raise _DoesNotFit(f"the log ends at {end}, not at {self._point}")
        place = self._ledger.save(self._queues.all())
        return RecoveryPosition(
            end,
            last.physical_offset,
            last.size,
            last.body_crc,
            last.store_time_ms,
            self._ledger.entries,
            *place,
        )

    def _last_physical(self, queue: ConsumeQueue) -> int:
        if queue.next_offset <= queue.min_offset:
            return -1
        physical, size, _ = ENTRY.unpack(self._files.read(queue.topic, queue.queue_id, queue.next_offset - 1, 1))
        return -1 if size == HOLE_SIZE else int(physical)

    # --- cutting

    def _cut_queues(self) -> None:
        for queue in self._queues.all():
            topic, queue_id = queue.topic, queue.queue_id
            try:
                before = self._files.numbers(topic, queue_id)
            except FileNotFoundError:
                continue
            self._inspector.cut(queue, queue.next_offset, before)
            # An earlier attempt may have deleted files and stopped before this sync.
            if self._again or (before and before[-1] > queue.next_offset // self._files.entries_per_file):
                self._files.sync_directory(topic, queue_id)
        self._files.sync()


class _StepsOverNothing:
    def damage(self, begin: int, end: int, reason: str) -> None:
        raise AssertionError(reason)
