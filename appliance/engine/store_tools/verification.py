"""`rocketbox store verify`: checks all parts of a store against each other. Reads only. In this order:

names and sizes of files
small files
block checksums of closed log files
each record, with its queue entry and its index entries
queue entries and index entries without a record, checkpoint times
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from ..errors import CorruptFile
from ..store.log.block_checksums import BlockChecksums, mismatches
from ..store.queues.batch_queue import DIRECTORY, batch_queue_files, units_of
from .index_check import IndexCheck
from .log_check import CheckingScan
from .offline_store import OfflineStore
from .problems import Problems
from .queue_check import QueueCheck
from .small_files_check import SmallFilesCheck

#: (what is being read, bytes done, bytes in all)
Progress = Callable[[str, int, int], None]


class Verified(NamedTuple):
    """The extent of what was read. sealed_files: closed log files that were compared with their checksums. seconds:
    time that it took."""

    records: int
    log_begin: int
    log_end: int
    queues: int
    index_entries: int
    sealed_files: int
    seconds: float


def verify(store: OfflineStore, problems: Problems, progress: Progress = lambda what, done, total: None) -> Verified:
    """Check the whole store; problems go to `problems`."""
    begin = time.monotonic()
    is_open = store.lock_holder() is not None
    unfinished = store.was_killed or is_open
    _check_names(store, problems)
    small = SmallFilesCheck(store, problems, unfinished)
    small.run()
    if store.was_killed and not is_open:
        problems.note("abort", "abort", -1, "the broker that had this store open did not stop cleanly")
    sealed = _check_blocks(store, problems, progress)
    total = store.log.end - store.log.min_offset
    scan = CheckingScan(store, problems, small.durable)
    queues = QueueCheck(store, problems, small.deleted, small.ends, scan.is_damaged, unfinished)
    index = IndexCheck(store, problems, scan.is_damaged, unfinished)
    records = last_ms = 0

    def told(offset: int) -> None:
        progress("records", offset - store.log.min_offset, total)

    for record in scan.all_records(told):
        records += 1
        if record.store_time_ms < last_ms:
            text = f"the record at {record.physical_offset} has an earlier store time than the record before it"
            problems.note("clock", *scan.place(record.physical_offset), text)
        last_ms = max(last_ms, record.store_time_ms)
        queues.record(record)
        index.record(record)
    end = max(scan.end, store.log.min_offset)
    progress("queues", 0, 0)
    queues.finish(end)
    _check_batch_queues(store, problems)
    index.finish()
    small.check_times(last_ms)
    seconds = time.monotonic() - begin
    return Verified(records, store.log.min_offset, end, len(store.queues()), index.entries, sealed, seconds)


def _check_names(store: OfflineStore, problems: Problems) -> None:
    for name, text in store.log.odd:
        level = problems.note if text.endswith("belong to the store") else problems.damage
        level("log-file", name, -1, f"this file {text}")
    for name, text in store.odd_queue_files:
        problems.note("foreign", name, -1, f"it {text}")
    for topic, queue_id, start, size in store.wrong_queue_sizes():
        text = f"has {size} bytes instead of {store.queue_file_bytes}"
        problems.damage("queue-file", f"consumequeue/{topic}/{queue_id}/{start:020d}", -1, text)


def _check_batch_queues(store: OfflineStore, problems: Problems) -> None:
    """Check that each unit of Apache's batch queues points to a batch of its queue."""
    topics = set()
    for topic, queue_id, path in batch_queue_files(store.paths.root):
        if topic not in topics:
            topics.add(topic)
            text = "queue.type=BatchCQ: this topic is not served here, its messages are kept as they are"
            problems.note("batch-queue", f"{DIRECTORY}/{topic}", -1, text)
        for position, unit in units_of(path):
            if unit.physical_offset < store.log.min_offset:
                continue
            record = store.raw.record_at(unit.physical_offset, unit.size)
            named = (topic, queue_id, unit.base_offset)
            if record is None or named != (record.topic, record.queue_id, record.queue_offset):
                text = f"the unit of message {unit.base_offset} points to {unit.physical_offset}, where no batch is"
                problems.damage("batch-queue", str(path.relative_to(store.paths.root)), position, text)


def _check_blocks(store: OfflineStore, problems: Problems, progress: Progress) -> int:
    """Compare sealed log files with their block checksums; return the number of these files."""
    checksums = BlockChecksums(store.paths, store.disk)
    segments = {segment.start: segment for segment in store.log.segments}
    starts = checksums.starts()
    sealed = done = 0
    total = len(starts) * store.log.segment_bytes
    for start in starts:
        name = f"rocketbox/blocks/{start:020d}"
        segment = segments.get(start)
        if segment is None:
            problems.note("blocks", name, -1, "its log file is gone")
            continue
        try:
            loaded = checksums.load(start)
        except CorruptFile as error:
            problems.damage("blocks", name, -1, f"the checksums of a log file cannot be used: {error}")
            continue
        if loaded is None:
            continue
        sealed += 1
        for step in mismatches(segment.fd, store.disk, *loaded):
            if step is None:
                done += 1 << 20
                progress("blocks", min(done, total), total)
            else:
                text = f"{step[1] - step[0]} bytes have changed since this file was closed"
                problems.damage("block", f"commitlog/{segment.path.name}", step[0], text)
    return sealed
