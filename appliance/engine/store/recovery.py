"""Finds the log's end after a clean or unclean stop and makes the queues match it. Only this and tail_cut cut files.

If the recovery position's record is still there, and the queue ledger is the one it names, no queue file is opened: the
log is scanned from the position, and QueueRepair checks the files later. Without that ledger, the queue files must hold
as many entries as the position counted. Without a position (a first start, or Apache wrote here in between), Apache's
own rule gives the beginning (D3). If the log then does not fit the queues, all of it is scanned and they are rebuilt.
The position is withdrawn before any change, so that after a crash in recovery the next one starts over. Everything that
was found is synced before the first read.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable
from functools import partial

from ..clock import Clock
from ..named_tuple import NamedTuple
from ..protocol.record import Record, store_time_ms
from .checkpoint import RecoveryPosition
from .dispatch import Dispatch
from .log.commit_log import CommitLog
from .log.log_repair import LogRepair
from .log.log_scan import LogScan, UsualRecords
from .log.raw_log import RawLog
from .queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE, ConsumeQueue
from .queues.consume_queue_table import ConsumeQueueTable
from .queues.queue_files import QueueFiles
from .queues.queue_inspector import QueueInspector
from .queues.queue_ledger import LedgerPlace, QueueLedger
from .queues.queue_order import QueueOrder
from .retention.deleted_topics import Begin, Deletion
from .store_files import StoreFiles

logger = logging.getLogger(__name__)

#: Bytes in the tails at which entries are written to files.
_FLUSH_BYTES = 16 * 1024 * 1024
#: Bytes of them that may stay in memory while the disk has no room: twelve million messages.
MOST_WAITING_BYTES = 240_000_000
#: Apache's checkpoint times may be this much later than what is on disk.
CHECKPOINT_SLACK_MS = 3000
#: Interval at which a long recovery logs its progress.
PROGRESS_S = 5.0


class _QueuesIncomplete(Exception):
    """The queue files do not hold what they should, so all queues are rebuilt."""


class Recovered(NamedTuple):
    """end: of the log. last_offset, last_time_ms: of its last record; -1 and 0 without one.

    ascends_from: physical offset from which on the store times of the scanned records do not go back; None if that
    holds from the record of the recovery position on.
    from_position: recovery began at a recovery position, which still counts. checked: every queue file was looked into.
    touched: queues that got entries, and are ahead of the ledger. waits: the disk had no room for all entries.
    """

    end: int
    last_offset: int
    last_time_ms: int
    ascends_from: int | None
    from_position: bool
    checked: bool
    touched: list[ConsumeQueue]
    waits: bool


class _Begin(NamedTuple):
    """Offset at which the scan begins, and data of the record before. position: None if Apache's rule gave it."""

    offset: int
    record_offset: int
    record_time_ms: int
    position: RecoveryPosition | None


class Parts(NamedTuple):
    """Parts of the store that recovery works on."""

    log: CommitLog
    log_repair: LogRepair
    queues: ConsumeQueueTable
    ledger: QueueLedger
    files: StoreFiles
    delay_levels_ms: list[int]
    clock: Clock

    @property
    def raw(self) -> RawLog:
        return self.log_repair.raw


def recover(parts: Parts) -> Recovered:
    """Find the log's end, fill the queue table and sync everything that was found."""
    found = _recover(parts)
    parts.files.deleted_topics.limit(found.end)
    if parts.files.has_purged():
        parts.files.purged_queues.limit(found.end)
    return found


def _recover(parts: Parts) -> Recovered:
    files = parts.files
    saved = files.recovery_position
    durable = None if saved.durable < 0 else saved.durable

    def vouches(record: Record) -> bool:
        return files.left_clean or _is_in_its_queue(parts.queues, record)

    scan = LogScan(parts.raw, parts.log_repair, durable, vouches)
    position = _trusted_position(files, parts.raw)
    begin: _Begin | None
    if position is not None:
        begin = _Begin(position.offset, position.record_offset, position.record_time_ms, position)
    else:
        # None if it was withdrawn: the queues were being rebuilt, and cannot be trusted.
        begin = _as_apache(parts, scan) if durable is None or saved.position is not None else None
        if durable is not None:
            saved.withdraw(durable)
    if begin is not None:
        try:
            return _Recovery(parts, scan, begin).run()
        except _QueuesIncomplete as reason:
            logger.warning("recovery: %s; rebuilding all queues", reason)
            try:
                files.report("queues", parts.queues.directory_name, str(reason))
            except OSError as error:
                logger.error("recovery: it cannot be added to the findings: %s", error)
            parts.queues.clear()
            parts.ledger.reset()
    if durable is not None:
        saved.withdraw(durable)
    found = _Recovery(parts, LogScan(parts.raw, parts.log_repair, durable, vouches), None).run()
    saved.withdraw(found.end)  # all of it was synced; from now on the store is RocketBox's
    return found


def _is_in_its_queue(queues: ConsumeQueueTable, record: Record) -> bool:
    """True if a queue file has the record's entry in its place: entries are written when their record is durable."""
    files = queues.new_files(1)
    try:
        return files.names(record)
    except OSError:
        return False
    finally:
        files.close()


def _trusted_position(files: StoreFiles, raw: RawLog) -> RecoveryPosition | None:
    """Return the saved recovery position if the record it names is unchanged, else None."""
    position = files.recovery_position.position
    if position is None:
        return None
    if not position.is_true(raw.record_at(position.record_offset, position.record_size)):
        logger.warning("recovery: the saved position %d does not match the log", position.offset)
        return None
    return position


def _as_apache(parts: Parts, scan: LogScan) -> _Begin | None:
    """Return where Apache's own recovery would begin (D3), trusting queue entries below; None: at the log's first byte.

    After a clean stop all records have their entries, and only the last file in use is read again. Otherwise it is the
    last file whose first record is not newer than the checkpoint. Source: RocketMQ `CommitLog.recoverNormally`,
    `recoverAbnormally`.
    """
    checkpoint = parts.files.checkpoint
    newest_ms = min(checkpoint.log_time_ms, checkpoint.queue_time_ms) - CHECKPOINT_SLACK_MS
    for segment in reversed(parts.log.segments[1:]):
        if not scan.is_record(segment.start):
            continue
        time_ms = store_time_ms(parts.raw.read(segment.start, 88))
        if parts.files.left_clean or 0 < time_ms <= newest_ms:
            return _Begin(segment.start, -1, 0, None) if parts.queues.on_disk() else None
    return None


class _Recovery:
    """One pass over log and queues."""

    def __init__(self, parts: Parts, scan: LogScan, begin: _Begin | None) -> None:
        self._log, self._log_repair, self._queues, self._ledger, self._small_files, levels, self._clock = parts
        self._scan = scan
        self._begin = begin
        self._files: QueueFiles = self._queues.new_files()
        self._new: set[tuple[str, int]] = set()
        self._files.new = self._new
        self._inspector = QueueInspector(parts.raw, self._queues, self._files)
        self._tail_bytes = 0
        # Queues that got entries: since the tails were last written, and in all.
        self._dispatched: dict[ConsumeQueue, None] = {}
        self._touched: dict[ConsumeQueue, None] = {}
        # Queues whose minimum offset the ledger does not have.
        self._raised: dict[ConsumeQueue, None] = {}
        self._deleted = self._small_files.deleted_topics.load()
        self._queues.take_begins(self._small_files.deleted_topics.load_ends())
        self._dispatch = Dispatch(levels, self._deleted, self._queues.begins)
        self._order = QueueOrder(
            self._log.min_offset, self._queues, self._files, self._dispatch, self._append, self._write_tails
        )
        self._logged_at = self._clock.monotonic()

    def run(self) -> Recovered:
        try:
            return self._run()
        finally:
            self._files.close()

    def _run(self) -> Recovered:
        begin, queues = self._begin, self._queues
        position = begin.position if begin else None
        clean = self._small_files.left_clean
        start = begin.offset if begin else self._log.min_offset
        last_offset = begin.record_offset if begin else -1
        last_time = begin.record_time_ms if begin else 0
        ascends_from = start if position is None else None
        if not clean:
            self._log_repair.settle(start)
        self._finish_deletions()
        by_ledger = position is not None and self._load_ledger(position)
        on_disk = [] if by_ledger else queues.on_disk()
        for number, (topic, queue_id) in enumerate(on_disk):
            self._log_progress("queue %d of %d looked into", number, len(on_disk))
            if begin:
                self._inspector.load(topic, queue_id, start)
            else:
                self._inspector.collect_hints(topic, queue_id)
        if position and not by_ledger:
            self._count_entries(position)
        self._scan.hints = sorted(self._inspector.hints)
        end = start
        count = 0
        for offset, part in self._scan.parts(start):
            end = offset
            records: Iterable[Record] = ()
            if not isinstance(part, UsualRecords):
                records = () if part is None else (part,)
            elif self._place_many(part):
                first = next(part.records())
                if first.store_time_ms < last_time:
                    ascends_from = first.physical_offset
                last_offset, last_time = part.last, part.store_ms
                count += part.number
                self._log_progress("read up to %d of %d", end, self._log.segments[-1].end)
            else:
                records = part.records()
            for record in records:
                if record.store_time_ms < last_time:
                    ascends_from = record.physical_offset
                last_offset, last_time = record.physical_offset, record.store_time_ms
                self._place(record)
                count += 1
                if not count & 0xFFF:
                    self._log_progress("read up to %d of %d", end, self._log.segments[-1].end)
        self._order.finish()
        if not begin:
            for topic, queue_id in on_disk:
                if queues.find(topic, queue_id) is None:
                    self._inspector.load(topic, queue_id, end)
        as_left = clean and position is not None and position.offset == end
        if not as_left:
            self._log_repair.cut(end)
            self._log_repair.settle(start)
        self._write_tails()
        for queue in self._touched if by_ledger else queues.all():
            if not as_left and (queue.topic, queue.queue_id) not in self._new:
                self._inspector.cut(queue, queue.max_offset)
            if not by_ledger:
                queue.min_offset = self._inspector.first_offset(queue, queue.tail_base)
        self._begin_queues(end)
        self._files.sync()
        if not clean:
            self._sync_names()
        for key in self._files.incomplete if by_ledger else ():
            lost = queues.find(*key)
            if lost is not None:
                lost.broken = True
        if self._small_files.has_purged():
            self._empty_purged(end)
        self._touched |= self._dispatched  # entries without room are written by the first round that has it
        waits = bool(self._dispatched)
        if waits:
            logger.error("recovery: the disk is full, entries of %d queues are not written yet", len(self._dispatched))
        logger.info("recovery: done from=%d end=%d records=%d clean=%s", start, end, count, clean)
        touched = list(self._touched | self._raised)
        return Recovered(end, last_offset, last_time, ascends_from, position is not None, not by_ledger, touched, waits)

    def _begin_queues(self, end: int) -> None:
        """Skip offsets below a queue's beginning, a deleted topic's, unless the log shows that the queue began anew."""
        queues = self._queues
        known = [(topic, queue_id, one) for topic, ends in queues.begins.items() for queue_id, one in ends.items()]
        for topic, queue_id, begin in known:
            queue = queues.find(topic, queue_id)
            if queue is None or queue.min_offset >= begin.offset:
                continue
            if self._physical(queue, min(begin.offset, queue.max_offset) - 1) >= begin.place:
                self._take_back(topic, queue_id, begin)
                continue
            for _ in range(begin.offset - queue.max_offset):
                queue.append(end, HOLE_SIZE, 0)
                self._dispatched[queue] = None
            queue.max_offset = queue.next_offset
            queue.min_offset = begin.offset
            self._raised[queue] = None
        self._write_tails()

    def _empty_purged(self, end: int) -> None:
        """Raise the minimum offsets of queues that were purged. The ledger may be of a moment before, or not count."""
        from .retention.purged_queues import behind_place

        for topic, places in self._small_files.purged_queues.places.items():
            for queue_id, place in places.items():
                queue = self._queues.find(topic, queue_id)
                if queue is None:
                    continue
                if queue.min_offset > queue.max_offset:  # a power cut took purged messages whose purge the ledger has
                    queue.min_offset = queue.max_offset
                    self._raised[queue] = None
                if queue.broken:
                    continue
                read = partial(self._entry, queue)
                first = behind_place(read, queue.min_offset, queue.max_offset, min(place, end))
                if first > queue.min_offset:
                    queue.min_offset = first
                    self._raised[queue] = None

    def _take_back(self, topic: str, queue_id: int, begin: Begin) -> None:
        """Remove a queue's beginning: the log has a smaller offset behind the place that was noted with it."""
        logger.warning("recovery: %s-%d began anew, and not at %d", topic, queue_id, begin.offset)
        note = Deletion(topic, 0, {queue_id: Begin(0, 0)})
        self._queues.take_begins({topic: note.ends})
        self._small_files.deleted_topics.remember([note], self._log.min_offset)

    def _physical(self, queue: ConsumeQueue, offset: int) -> int:
        """Return the physical offset of the record at a queue offset; -1 if there is none."""
        entry = self._entry(queue, offset)
        physical, size, _ = ENTRY.unpack(entry) if len(entry) == ENTRY_BYTES else (-1, 0, 0)
        return int(physical) if 0 < size < HOLE_SIZE else -1

    def _entry(self, queue: ConsumeQueue, offset: int) -> bytes:
        if offset < queue.min_offset:
            return b""
        if offset >= queue.tail_base:
            return queue.tail_entries(offset, 1)
        return self._files.read(queue.topic, queue.queue_id, offset, 1)

    def _sync_names(self) -> None:
        """Sync names of the files just written, which a process that died may have left unsynced."""
        self._queues.sync_directories(self._touched)

    def _log_progress(self, text: str, *arguments: object) -> None:
        """Log the progress, every PROGRESS_S."""
        if self._clock.monotonic() - self._logged_at >= PROGRESS_S:
            self._logged_at = self._clock.monotonic()
            logger.info("recovery: " + text, *arguments)

    def _load_ledger(self, position: RecoveryPosition) -> bool:
        """Load the queues from the ledger; False if it does not count."""
        ledger, queues = self._ledger, self._queues
        place = LedgerPlace(position.ledger_generation, position.ledger_length, position.ledger_crc)
        if not ledger.load(place, queues):
            return False
        if position.entries != ledger.entries:
            queues.clear()
            ledger.reset()
            return False
        for topic, below in self._deleted.items():
            if position.offset <= below:  # the position was saved before the deletion
                gone = queues.remove_topic(topic)
                if gone:
                    ledger.drop(topic, gone)
        return True

    def _finish_deletions(self) -> None:
        """Delete files of deleted topics that a crash left: their first entry is of a record before the deletion.

        If a queue's first entry is zero, the topic was made again and got no further.
        """
        for topic, queue_id in self._queues.on_disk(sorted(self._deleted)):
            physical = self._inspector.first_physical(topic, queue_id)
            if 0 <= physical < self._deleted[topic]:
                logger.warning("recovery: finishing the deletion of %s-%d", topic, queue_id)
                for number in self._files.numbers(topic, queue_id):
                    self._files.unlink(topic, queue_id, number)
                self._files.sync_directory(topic, queue_id)

    def _count_entries(self, position: RecoveryPosition) -> None:
        """Raise _QueuesIncomplete unless the files hold as many entries as when the position was saved."""
        found = sum(queue.next_offset for queue in self._queues.all())
        if found != position.entries:
            raise _QueuesIncomplete(f"queue files hold {found} entries instead of {position.entries}")

    # --- the queues

    def _place(self, record: Record) -> None:
        """Give a record its queue entry, like the append did."""
        if not self._dispatch.has_entry(record):
            return
        queue = self._queues.find(record.topic, record.queue_id)
        offset = record.queue_offset
        begin = self._queues.begins_of(record.topic).get(record.queue_id)
        if begin is not None and offset < begin.offset:
            self._take_back(record.topic, record.queue_id, begin)
        elif begin is not None and queue is None and offset == begin.offset:
            queue = self._queues.get_or_create(record.topic, record.queue_id)
        if queue is None or queue.next_offset != offset:
            if self._begin and (queue is not None or offset):
                raise _QueuesIncomplete(f"{record.topic}-{record.queue_id} is not at offset {offset}: {queue}")
            self._order.place(record, queue)
            return
        if queue in self._order.undecided:
            self._order.decide(queue)
        self._append(queue, record)

    def _place_many(self, part: UsualRecords) -> bool:
        """Give records their entries as `_place` does, all or none; False if one of them needs more than the next entry
        of its queue."""
        queues, found = self._queues, []
        for topic, queue_id, first, _, entries in part.runs:
            queue = queues.find(topic, queue_id)
            if (
                queue is None
                or queue.next_offset != first
                or queue in self._order.undecided
                or topic in self._deleted
                or queue_id in queues.begins_of(topic)
            ):
                return False
            found.append((queue, entries))
        for queue, entries in found:
            queue.append_entries(entries, len(entries) // ENTRY_BYTES)
            self._appended(queue, len(entries))
        return True

    def _append(self, queue: ConsumeQueue, record: Record) -> None:
        queue.append_entry(self._dispatch.entry(record))
        self._appended(queue, ENTRY_BYTES)

    def _appended(self, queue: ConsumeQueue, size: int) -> None:
        queue.max_offset = queue.next_offset
        self._dispatched[queue] = None
        self._tail_bytes += size
        if self._tail_bytes >= _FLUSH_BYTES:
            self._write_tails()

    def _write_tails(self) -> None:
        """Write the tails. Entries that the disk has no room for stay in them, and no position passes them."""
        self._tail_bytes = waiting = 0
        for queue in list(self._dispatched):
            offset, entries = queue.unwritten()
            try:
                if entries:
                    self._queues.write_entries(self._files, queue, offset, entries)
            except OSError as error:
                waiting += len(entries)
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or waiting > MOST_WAITING_BYTES:
                    raise
                continue
            queue.trim(queue.max_offset)
            self._touched[queue] = None
            del self._dispatched[queue]
