"""Finds the log's end after a clean or unclean stop and makes the queues match it. Only here files are cut.

With a recovery position whose record is still there, and a queue ledger that is what the position says, no queue file
is opened: the log is scanned from the position, and QueueRepair looks at the files later. Without that ledger the queue
files must hold as many entries as the position counted. Without a position (a first start, Apache wrote here in
between) Apache's own rule says where to begin (D3). When the log then does not fit the queues, all of it is scanned and
they are built anew; before anything is changed the position is withdrawn, so that a crash in here begins again.
Whatever was found is synced before anyone reads it.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import CorruptFile
from ..protocol.record import Record, decode_record, store_time_ms
from .dispatch import entry_tag_code, has_queue_entry
from .findings import Finding
from .log.log_scan import LogScan
from .queues.consume_queue import ENTRY_BYTES, ConsumeQueue
from .queues.queue_files import QueueFiles
from .queues.queue_inspector import QueueInspector
from .queues.queue_ledger import LedgerPlace
from .queues.queue_order import QueueOrder
from .retention.deleted_topics import limit_deleted_topics, load_deleted_topics

if TYPE_CHECKING:
    from .checkpoint import RecoveryPosition
    from .message_store import MessageStore

logger = logging.getLogger(__name__)

#: Entries are written out when the tails hold this much.
_FLUSH_BYTES = 16 * 1024 * 1024
#: Apache's checkpoint times may be this much ahead of what is on disk.
CHECKPOINT_SLACK_MS = 3000
#: How often a long recovery says how far it got.
PROGRESS_S = 5.0


class _QueuesIncomplete(Exception):
    """The queue files do not hold what they should; everything is built anew."""


class Recovered(NamedTuple):
    """end: of the log. last_offset, last_time_ms: of its last record; -1 and 0 without one.

    from_position: a recovery position led here and still counts. checked: every queue file was looked into. touched:
    queues that got entries, and are ahead of the ledger.
    """

    end: int
    last_offset: int
    last_time_ms: int
    from_position: bool
    checked: bool
    touched: list[ConsumeQueue]


class _Begin(NamedTuple):
    """Where the scan begins, and what is known of the record before. position: None when Apache's rule led here."""

    offset: int
    record_offset: int
    record_time_ms: int
    position: RecoveryPosition | None


def recover(store: MessageStore) -> Recovered:
    """Find the log's end; the queue table is filled, and everything found is synced."""
    found = _recover(store)
    limit_deleted_topics(store, found.end)
    return found


def _recover(store: MessageStore) -> Recovered:
    saved = store.files.recovery_position
    durable = None if saved.durable < 0 else saved.durable

    def vouches(record: Record) -> bool:
        return store.files.left_clean or _is_in_its_queue(store, record)

    scan = LogScan(store, durable, vouches)
    position = _trusted_position(store, scan)
    begin: _Begin | None
    if position is not None:
        begin = _Begin(position.offset, position.record_offset, position.record_time_ms, position)
    else:
        # Withdrawn by us: the queues were being built anew, and are not to be believed.
        begin = _as_apache(store, scan) if durable is None or saved.position is not None else None
        if durable is not None:
            saved.withdraw(durable)
    if begin is not None:
        try:
            return _Recovery(store, scan, begin).run()
        except _QueuesIncomplete as reason:
            logger.warning("recovery: %s; building all queues anew", reason)
            store.files.add_finding(
                Finding(store.scheduler.wall_ms, "queues", store.paths.consume_queues.name, -1, -1, "", str(reason))
            )
            store.queues.clear()
            store.ledger.reset()
    if durable is not None:
        saved.withdraw(durable)
    found = _Recovery(store, LogScan(store, durable, vouches), None).run()
    saved.withdraw(found.end)  # all of it was synced; from here on the store is ours
    return found


def _is_in_its_queue(store: MessageStore, record: Record) -> bool:
    """Whether a queue file names a record at its place: entries are written when their record is durable."""
    files = store.queues.new_files(1)
    try:
        return files.names(record)
    except OSError:
        return False
    finally:
        files.close()


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
        logger.warning("recovery: the saved position %d does not match the log", position.offset)
        return None
    return position


def _as_apache(store: MessageStore, scan: LogScan) -> _Begin | None:
    """Where Apache's own recovery would begin (D3): queue entries below are believed. None: at the log's first byte.

    After a clean stop all of the log has its entries, and the last file in use is read once more. Otherwise it is the
    last file whose first record is not newer than the checkpoint. Source: RocketMQ `CommitLog.recoverNormally`,
    `recoverAbnormally`.
    """
    checkpoint = store.files.checkpoint
    newest_ms = min(checkpoint.log_time_ms, checkpoint.queue_time_ms) - CHECKPOINT_SLACK_MS
    for segment in reversed(store.log.segments[1:]):
        if not scan.is_record(segment.start):
            continue
        time_ms = store_time_ms(scan.read(segment.start, 88))
        if store.files.left_clean or 0 < time_ms <= newest_ms:
            return _Begin(segment.start, -1, 0, None) if store.queues.on_disk() else None
    return None


class _Recovery:
    """One pass over log and queues."""

    def __init__(self, store: MessageStore, scan: LogScan, begin: _Begin | None) -> None:
        self._store = store
        self._scan = scan
        self._log = store.log
        self._begin = begin
        self._files: QueueFiles = store.queues.new_files()
        self._inspector = QueueInspector(store, self._files, scan)
        self._tail_bytes = 0
        self._dispatched: dict[ConsumeQueue, None] = {}
        self._touched: dict[ConsumeQueue, None] = {}
        self._deleted = load_deleted_topics(store)
        self._order = QueueOrder(store, self._files, self._append, self._code_of, self._write_tails)
        self._said = time.monotonic()

    def run(self) -> Recovered:
        try:
            return self._run()
        finally:
            self._files.close()

    def _run(self) -> Recovered:
        store, begin = self._store, self._begin
        position = begin.position if begin else None
        clean = store.files.left_clean
        start = begin.offset if begin else self._log.min_offset
        last_offset = begin.record_offset if begin else -1
        last_time = begin.record_time_ms if begin else 0
        if not clean:
            self._scan.settle(start)
        self._finish_deletions()
        by_ledger = position is not None and self._load_ledger(position)
        on_disk = [] if by_ledger else store.queues.on_disk()
        for number, (topic, queue_id) in enumerate(on_disk):
            self._say("queue %d of %d looked into", number, len(on_disk))
            if begin:
                self._inspector.load(topic, queue_id, start)
            else:
                self._inspector.collect_hints(topic, queue_id)
        if position and not by_ledger:
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
                if not count & 0xFFF:
                    self._say("read up to %d of %d", end, self._log.segments[-1].end)
        self._order.finish()
        if not begin:
            for topic, queue_id in on_disk:
                if store.queues.find(topic, queue_id) is None:
                    self._inspector.load(topic, queue_id, end)
        as_left = clean and position is not None and position.offset == end
        if not as_left:
            self._scan.cut(end)
            self._scan.settle(start)
        self._write_tails()
        for queue in self._touched if by_ledger else store.queues.all():
            if not as_left:
                self._inspector.cut(queue, queue.max_offset)
            if not by_ledger:
                queue.min_offset = self._inspector.first_offset(queue, queue.max_offset)
        self._files.sync()
        if not clean:
            self._sync_names()
        for key in self._files.incomplete if by_ledger else ():
            lost = store.queues.find(*key)
            if lost is not None:
                lost.broken = True
        logger.info("recovery: done from=%d end=%d records=%d clean=%s", start, end, count, clean)
        return Recovered(end, last_offset, last_time, position is not None, not by_ledger, list(self._touched))

    def _sync_names(self) -> None:
        """A process that died may have left names it had not synced yet, of the files just written."""
        paths = self._store.paths
        directories: dict[Path, None] = {}
        for queue in self._touched:
            directory = paths.queue_dir(queue.topic, queue.queue_id)
            directories[directory] = directories[directory.parent] = None
        for directory in (*directories, paths.consume_queues) if directories else ():
            self._store.disk.sync_directory(directory)

    def _say(self, text: str, *arguments: object) -> None:
        """How far it got, now and then."""
        if time.monotonic() - self._said >= PROGRESS_S:
            self._said = time.monotonic()
            logger.info("recovery: " + text, *arguments)

    def _load_ledger(self, position: RecoveryPosition) -> bool:
        """Take the queues as the ledger has them; False when it does not count."""
        ledger, queues = self._store.ledger, self._store.queues
        place = LedgerPlace(position.ledger_generation, position.ledger_length, position.ledger_crc)
        if not ledger.load(place, queues):
            return False
        if position.entries != ledger.entries:
            queues.clear()
            ledger.reset()
            return False
        for topic, below in self._deleted.items():
            if position.offset <= below:  # it was saved before the deletion
                gone = queues.remove_topic(topic)
                if gone:
                    ledger.drop(topic, gone)
        return True

    def _finish_deletions(self) -> None:
        """Delete files of deleted topics that a crash left: their first entry names a record of before.

        A queue whose first entry is zero was made anew and did not get further.
        """
        for topic, queue_id in self._store.queues.on_disk(sorted(self._deleted)):
            physical = self._inspector.first_physical(topic, queue_id)
            if 0 <= physical < self._deleted[topic]:
                logger.warning("recovery: finishing the deletion of %s-%d", topic, queue_id)
                for number in self._files.numbers(topic, queue_id):
                    self._files.unlink(topic, queue_id, number)
                self._store.disk.sync_directory(self._store.paths.queue_dir(topic, queue_id))

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
            if self._begin and (queue is not None or offset):
                raise _QueuesIncomplete(f"{record.topic}-{record.queue_id} is not at offset {offset}: {queue}")
            self._order.place(record, queue)
            return
        if queue in self._order.doubts:
            self._order.settle(queue)
        self._append(queue, record)

    def _code_of(self, record: Record) -> int:
        return entry_tag_code(record, self._store.settings.delay_levels_ms)

    def _append(self, queue: ConsumeQueue, record: Record) -> None:
        queue.append(record.physical_offset, record.size, self._code_of(record))
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
        self._touched |= self._dispatched
        self._dispatched.clear()
        self._tail_bytes = 0
