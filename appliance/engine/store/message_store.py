"""The store: its parts put together, and the life of a tick.

    log         CommitLog, FlushCommitLogService        the only bytes that cannot be rebuilt
    queues      ConsumeQueueTable, FlushConsumeQueueService, QueueLedger, QueueRepair
    index       IndexService
    files       StoreFiles: lock, abort, checkpoint, recovery position, findings
    retention   CleanService
    sealing     BlockChecksumService

None of them imports this module; each is given the others it works with. A tick is the unit of publication (D1). Its
records are staged by `put`, written by `end_tick`, and published whole and in order once `publication.limit()` has
reached their end: at once in async flush, after the sync in sync flush. Readers see published entries only.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from ..clock import SYSTEM, Clock
from ..disk import Disk
from ..errors import QueueBroken, StartError, StoreBroken
from ..loop_calls import run_on_loop
from .appender import Appender, Tick
from .clock_steps import NAME as CLOCK_STEPS
from .clock_steps import ClockSteps
from .cold_reader import ColdReader
from .index.index_recovery import IndexSettings
from .index.index_service import IndexService
from .log.block_checksums import BlockChecksumService
from .log.commit_log import CommitLog
from .log.flush import FlushCommitLogService
from .log.log_repair import LogRepair
from .log.raw_log import RawLog
from .message_reader import MessageReader
from .paths import StorePaths
from .publication import Publication
from .queues.consume_queue import ENTRY_BYTES, ConsumeQueue
from .queues.consume_queue_table import ConsumeQueueTable
from .queues.flush_queues import FlushConsumeQueueService, TopicDeletion
from .queues.queue_extension import QueueExtension
from .queues.queue_ledger import QueueLedger
from .queues.queue_repair import QueueRepair
from .record_reader import RecordReader
from .recovery import Parts, recover
from .retention.clean_service import CleanService
from .retention.deleted_topics import Begin, Deletion
from .settings import Scheduler, Service, StoreSettings
from .store_files import StoreFiles
from .store_format import check_format, write_format
from .tick_gaps import TickGaps
from .time_order import NAME as TIME_ORDER
from .time_order import TimeOrder

logger = logging.getLogger(__name__)

#: Unsynced bytes above which producers are not read from (D6), and below which reading resumes.
UNSYNCED_HIGH_BYTES = 64 * 1024 * 1024
UNSYNCED_LOW_BYTES = 32 * 1024 * 1024
#: Bytes of queue entries not yet in files above which the same happens (D5).
TAIL_HIGH_BYTES = 32 * 1024 * 1024


class MessageStore(Appender):
    """Appending, publication and reading belong to remoting-io; any thread may read the numbers."""

    def __init__(
        self,
        settings: StoreSettings,
        paths: StorePaths,
        disk: Disk,
        scheduler: Scheduler,
        store_host: bytes,
        clock: Clock = SYSTEM,
        replicated: Callable[[], int] | None = None,
    ) -> None:
        """replicated: returns the offset up to which slaves have the log; None if nothing waits for them."""
        log = CommitLog(paths.commit_log, disk, settings.segment_bytes, clock)
        super().__init__(log, scheduler, store_host)
        # Constant after construction, but for the settings: those are replaced whole.
        self.settings = settings
        self.paths = paths
        #: True once `open` has succeeded.
        self.opened = False
        self.disk = disk
        watermarks = {"written": lambda: log.written, "durable": lambda: log.durable}
        if not settings.synchronous:
            del watermarks["durable"]
        log.writes_zeros = settings.synchronous
        #: Returns the offset up to which the log survives a crash of this process, or of the machine in sync flush. The
        #: log is sent to other brokers only up to there.
        self.kept = watermarks["durable" if settings.synchronous else "written"]
        #: Called when `kept` has moved, on remoting-io or flush-commitlog; None if unused. Set before start().
        self.on_kept: Callable[[], None] | None = None
        if replicated is not None:
            watermarks["replicated"] = replicated
        self.publication = publication = Publication(watermarks)
        #: Differences of the clocks that stamped the log.
        self.clock_steps = ClockSteps(paths.own / CLOCK_STEPS, disk)
        #: Ticks around steps of the clock.
        self.tick_gaps = TickGaps()
        #: Physical offset from which on store times do not go back.
        self.time_order = TimeOrder(paths.own / TIME_ORDER, disk)
        self.files = files = StoreFiles(paths, disk, lambda: scheduler.wall_ms)
        self.queues = queues = ConsumeQueueTable(paths, disk, settings.queue_file_bytes, settings.queue_descriptors)
        self.ledger = QueueLedger(paths, disk, queues.files.file_bytes)
        self.records = RecordReader(log, publication, clock.monotonic)
        self._clock = clock
        self._monotonic = clock.monotonic
        self._log_repair = LogRepair(RawLog(log, disk), paths, disk, files)
        # The threads.
        self._flush = FlushCommitLogService(log, settings.synchronous, self._synced, clock)
        self._flush_queues = writer = FlushConsumeQueueService(
            log, publication, queues, self.ledger, files, scheduler, self.tail_written, clock
        )
        writer.repair = QueueRepair(
            self._log_repair, queues, writer.files, files, settings.delay_levels_ms, writer, clock
        )
        queues.on_broken = writer.repair.ask
        self.blocks = BlockChecksumService(log, publication, paths, disk, files, clock)
        self.cleaner = CleanService(
            log, publication, queues, self.records, writer, files, self.clock_steps, scheduler, clock
        )
        self.index = IndexService(
            log,
            publication,
            paths,
            disk,
            files,
            IndexSettings(settings.index_enabled, settings.index_slots, settings.index_entries),
            clock,
        )
        #: Services started after the flush threads, in this order. Complete before start().
        self.services: list[Service] = [self.blocks, self.cleaner, self.index]
        #: Called by the cleaner's thread with the log's new minimum offset once files are gone.
        self.on_removed = self.cleaner.on_removed
        self.on_removed += [self.blocks.removed, self.index.removed]
        reader = MessageReader(
            log, queues, QueueExtension(paths, disk), lambda: self.settings, lambda: publication.published
        )
        # As attributes, so that a pull costs no call in between.
        self.get = reader.get
        self._scan_count = reader.scan_count
        #: Evaluates filters that read records, on remoting-io.
        self.settling = reader.settling
        self.find_queue = reader.find_queue
        self.offset_range = reader.offset_range
        self.end_of = reader.end_of
        self.min_offset = reader.min_offset
        self.max_offset = reader.max_offset
        self.young_offset = reader.young_offset
        self.earliest_time_ms = reader.earliest_time_ms
        # Set by the owner before start().
        self.on_written: Callable[[Tick], None] = lambda tick: None
        self.on_published: Callable[[Tick], None] = lambda tick: None
        self.on_failed: Callable[[Tick, str], None] = lambda tick, reason: None
        self.on_pressure: Callable[[bool], None] = lambda high: None
        # Owned by remoting-io.
        #: Ticks that are written and wait for other watermarks.
        self.pending: deque[Tick] = deque()
        self._pressure = False
        self._tail_bytes = 0
        #: Queue -> end of the entries that were staged and never published because the log broke.
        self._failed_to: dict[ConsumeQueue, int] = {}
        #: Counter, written by remoting-io.
        self.put_bytes = 0

    @property
    def published(self) -> int:
        """Offset up to which readers see the log."""
        return self.publication.published

    @property
    def lasting(self) -> int:
        """Offset below which nothing of the log can be taken back: durable here, and on all replicas that are waited
        for. Recorded progress may only refer to what lies below (D7), else it could be ahead of the copies."""
        return min(self.log.durable, self.publication.published)

    @property
    def last_record_offset(self) -> int:
        return self.publication.last_record_offset

    @property
    def put_count(self) -> int:
        """Number of messages published since the start."""
        return self.publication.messages

    @property
    def on_repaired(self) -> Callable[[ConsumeQueue], None]:
        """Called on remoting-io when a queue whose files lacked entries is whole again. Set before start()."""
        return self._flush_queues.repair.on_repaired

    @on_repaired.setter
    def on_repaired(self, listener: Callable[[ConsumeQueue], None]) -> None:
        self._flush_queues.repair.on_repaired = listener

    @property
    def failed_puts(self) -> int:
        """Number of messages that the log refused, or that were staged and not stored. Any thread."""
        lost = sum(end - queue.max_offset for queue, end in list(self._failed_to.items()))
        return self.log.not_taken + lost

    # --- life

    def open(self) -> None:
        """Lock, load and recover the store. Raises StartError; then nothing was changed."""
        self.files.lock_and_check()
        try:
            check_format(self.paths, self.disk)
            self.log.load()
            levels = self.settings.delay_levels_ms
            found = recover(
                Parts(self.log, self._log_repair, self.queues, self.ledger, self.files, levels, self._clock)
            )
            self.log.start(found.end)
            self.tick_gaps.start(found.end)
            write_format(self.paths, self.disk)
            self.files.mark_running()
            self.index.open(found.end)
            self.clock_steps.load(self.log.min_offset, found.end)
            self.time_order.load(self.log.min_offset, found.end, found.ascends_from)
        except BaseException as error:
            self._close_as_it_is()
            if isinstance(error, OSError):
                raise StartError(f"The store in {self.paths.root} cannot be opened: {error}.") from error
            raise
        self.disk.find_out_about_reads(self.log.segments[-1].fd)
        self.files.checkpoint.limit(found.last_time_ms)
        self.publication.begin(found.end, found.last_offset)
        self.store_ms = found.last_time_ms
        if found.last_offset >= 0:
            self.cleaner.seen_ms = found.last_time_ms + self.clock_steps.ahead_ms(found.last_offset)
        for queue in found.touched:
            self.queues.touch(queue)
            self._tail_bytes += len(queue.tail)
        if self._tail_bytes:
            self._flush_queues.published(self._tail_bytes)
        if not found.from_position and not found.waits:
            self._flush_queues.save_recovered()
        if not found.checked:
            self._flush_queues.repair.check_all()
        self.opened = True

    def new_cold_reader(self) -> ColdReader:
        """Return a reader of queue entries for `get`, for a thread that may wait for the disk. The caller closes it."""
        return ColdReader(self.log, self.queues, QueueExtension(self.paths, self.disk), self._scan_count)

    def let_go(self) -> None:
        """Close everything as it is, if the store is open."""
        if self.opened:
            self._close_as_it_is()

    def _close_as_it_is(self) -> None:
        self.opened = False
        self.log.close()
        self.queues.close()
        self.ledger.close()
        self.index.close()
        self.files.close(clean=False)

    def sync_first(self, before_sync: Callable[[], None], is_due: Callable[[], bool]) -> None:
        """Call `before_sync` before each sync of the log, on the syncing thread, to make durable what acknowledgements
        rely on besides the log. It may wait and must not raise. is_due: false if it would do nothing; any thread.
        Before start()."""
        self.log.before_sync, self.log.owes_before_sync = before_sync, is_due

    @property
    def sync_times(self) -> tuple[int, float]:
        """(number of syncs since the start, seconds they took in all) of the log."""
        return self._flush.sync_times

    @property
    def sync_age(self) -> float:
        """Seconds since the current sync of the log began; 0.0 if there is none. Any thread."""
        since = self._flush.syncing_since
        return self._monotonic() - since if since else 0.0

    def start(self) -> None:
        """Start the flush threads and services. The event loop must already run."""
        self._flush.wake_by(self.scheduler.new_wake_fd)
        self._flush.start()
        self._flush_queues.start()
        for service in self.services:
            service.start()

    def stop(self, settle: Callable[[], None] = lambda: None) -> None:
        """Write and sync everything, after the event loop has ended. The abort file is removed only after a clean stop.

        settle: for a loop that goes on for other stores and gets nothing new from this one; waits until the loop has
        run the callbacks it was given before.
        """
        clean = self._flush.stop()
        settle()
        if self.log.broken is None:
            try:
                self.log.write()
                self.log.sync()
                self._publish_durable()
            except StoreBroken as error:
                logger.error("store: last flush failed: %s", error)
        for service in self.services:
            clean = service.stop() and clean
        flushed = self._flush_queues.stop()
        settle()
        if flushed:
            clean = self._flush_queues.flush_now() and clean
        else:
            clean = False  # it is still writing, so its files must stay open
        # Records that no replica confirmed have no entries in files: the next start makes them, as after a crash.
        clean = clean and self.log.broken is None and self.published == self.log.written
        self._flush.close()
        self.log.close()
        self.queues.close()
        self.ledger.close()
        self.files.close(clean)

    def publish_no_more(self) -> None:
        """From now on publish nothing, not even pending ticks, since another broker may lead now. Any thread."""
        publication = self.publication
        publication.watermarks = {**publication.watermarks, "fenced": lambda: -1}

    def fail_waiting(self, reason: str) -> None:
        """Fail all waiting puts, which are not guaranteed to be kept. On remoting-io, after `publish_no_more`. Staged
        records are still written; the next start finds them."""
        for tick in (self.tick, *self.pending):
            self.on_failed(tick, reason)
        self._set_pressure(False)

    # --- the end of a tick

    def end_tick(self) -> None:
        """Write the staged records; publish them, or have them synced first. Never raises."""
        if self.pending and self.pending[0].end <= self.log.durable:  # flush-commitlog may wake the loop and no more
            self._publish_durable()
        tick = self.tick
        if tick.last_offset < 0:
            return
        self.tick = Tick()
        log = self.log
        try:
            log.write()
        except StoreBroken as error:
            self._fail(tick, str(error))
            return
        log.after_write()
        tick.end = log.written
        tick.written_at = self._monotonic()
        self.tick_gaps.ended(self.scheduler.wall_ms, tick.end, tick.written_at)
        if tick.early:
            self.on_written(tick)
        self._flush.tick_written(self.on_kept is None)
        if self.on_kept is not None:
            self.on_kept()
        if log.written - log.durable > UNSYNCED_HIGH_BYTES:
            self._set_pressure(True)
        if not self.publication.allows(tick.end):
            self.pending.append(tick)
            return
        if self.pending:  # those that end before it may be published too, and go first
            self._publish_ready()
        self._publish(tick)
        if self._pressure:  # nothing is left that the next wake-up would publish
            self._look_at_pressure()

    def fail_tick(self, reason: str) -> None:
        """Fail all puts of the current tick, which cannot be written."""
        tick, self.tick = self.tick, Tick()
        self._fail(tick, reason)

    def _fail(self, tick: Tick, reason: str) -> None:
        failed = [tick, *self.pending]
        self.pending.clear()
        for one in failed:
            for queue, end in one.touched.items():
                self._failed_to[queue] = max(end, self._failed_to.get(queue, 0))
            self.on_failed(one, reason)
        # Held-back sends are refused now; otherwise nothing would lower the pressure.
        self._set_pressure(False)

    def _publish(self, tick: Tick) -> None:
        count = 0
        for queue, offset in tick.touched.items():
            assert queue.tail_base <= queue.max_offset <= offset <= queue.next_offset, (queue, offset)
            count += offset - queue.max_offset
            queue.max_offset = offset
            if not queue.dirty:
                queue.dirty = True
                self.queues.dirty.append(queue)
        self._tail_bytes += count * ENTRY_BYTES
        publication = self.publication
        self.put_bytes += tick.end - publication.published
        publication.advance(tick.end, tick.last_offset, count)
        self._flush_queues.published(self._tail_bytes)
        self.index.published()
        if self._tail_bytes > TAIL_HIGH_BYTES:
            self._set_pressure(True)
        self.on_published(tick)

    def _synced(self) -> None:
        """Handle a new durable position, or a broken log. On flush-commitlog."""
        if self.on_kept is not None:
            self.on_kept()
        self.scheduler.call_soon(self._publish_durable)

    def watermark_moved(self) -> None:
        """Handle a new value of a watermark from outside the store. Any thread."""
        self.scheduler.call_soon(self._publish_durable)

    def _publish_durable(self) -> None:
        log = self.log
        if log.broken is not None:
            self._fail(Tick(), log.broken)
            return
        self._publish_ready()
        self._look_at_pressure()

    def _publish_ready(self) -> None:
        """Publish the ticks that every watermark has reached."""
        pending, limit = self.pending, self.publication.limit()
        while pending and pending[0].end <= limit:
            self._publish(pending.popleft())

    def tail_written(self, count: int) -> None:
        """Subtract `count` bytes of queue entries that left the tails. On remoting-io."""
        self._tail_bytes -= count
        self._look_at_pressure()

    @property
    def under_pressure(self) -> bool:
        """True while the store must sync or write before it takes more. Any thread."""
        return self._pressure

    def _look_at_pressure(self) -> None:
        if (
            self._pressure
            and self.log.written - self.log.durable < UNSYNCED_LOW_BYTES
            and self._tail_bytes < TAIL_HIGH_BYTES // 2
        ):
            self._set_pressure(False)

    def _set_pressure(self, high: bool) -> None:
        if high != self._pressure:
            self._pressure = high
            logger.warning(
                "store: back-pressure %s unsynced=%d", "on" if high else "off", self.log.written - self.log.durable
            )
            self.on_pressure(high)

    # --- deleting a topic

    def delete_topic(self, topic: str) -> None:
        """Remove a topic's queues and delete their files; its records stay in the log until they expire.

        Blocks; from any thread but remoting-io. Recovery will not restore the queues. Raises OSError when files could
        not be deleted; the deletion is then repeated until they are.
        """
        deletion = TopicDeletion(topic)

        def forget() -> None:
            self.forget_topic(deletion)

        self.scheduler.call_soon(forget)
        self.wait_deleted(deletion)

    def has_queues(self, topic: str) -> bool:
        """True if there are queues of a topic, also of one that is in no table. Any thread."""
        return bool(self.queues.of_topic(topic))

    def wait_deleted(self, deletion: TopicDeletion) -> None:
        """Wait until the files of a forgotten topic are gone; from any thread but remoting-io. Raises OSError."""
        self._flush_queues.wait_deleted(deletion)

    def forget_topic(self, deletion: TopicDeletion) -> None:
        """Remove a topic's queues. A new topic of its name gets no file before the old ones are gone, and continues
        with the offsets behind theirs. On remoting-io."""
        deletion.offset = self.log.written + self.log.staged
        deletion.queues = self.queues.of_topic(deletion.topic)
        deletion.ends = dict(self.queues.begins_of(deletion.topic))
        for queue in deletion.queues:
            if queue.next_offset:
                deletion.ends[queue.queue_id] = Begin(queue.next_offset, deletion.offset)
        self._forget_queues(deletion)

    def begin_queue_anew(self, topic: str, queue_id: int) -> None:
        """Begin a queue again, because the log repeats its offsets, as Apache's brokers do after a topic was deleted
        and made again. The fate of the topic's other queues is unknown, so they stay. On remoting-io."""
        deletion = TopicDeletion(topic)
        for queue in self.queues.of_topic(topic):
            (deletion.queues if queue.queue_id == queue_id else deletion.stay).append(queue)
        if self.queues.begin_of(topic, queue_id):
            deletion.ends[queue_id] = Begin(0, 0)
        self._forget_queues(deletion)

    def take_deletions(self, deletions: Sequence[Deletion]) -> None:
        """Delete queues of topics that the broker which this log is copied from has deleted. Entries of records behind
        the deletion stay.

        Blocks; from any thread but remoting-io. Durable when it returns. Raises OSError like `delete_topic`.
        """
        taken: list[TopicDeletion] = []

        def take() -> None:
            taken.extend(self._take_deletion(deletion) for deletion in deletions)

        run_on_loop(self.scheduler.call_soon, take, lambda: False)
        for deletion in taken:
            self._flush_queues.wait_deleted(deletion)

    def _take_deletion(self, told: Deletion) -> TopicDeletion:
        deletion = TopicDeletion(told.topic, told.below)
        deletion.ends = dict(told.ends)
        for queue in self.queues.of_topic(told.topic):
            end = deletion.ends[queue.queue_id].offset if queue.queue_id in deletion.ends else 0
            if (queue.next_offset <= end) if end else (self._last_physical(queue) < told.below):
                deletion.queues.append(queue)
                continue
            deletion.stay.append(queue)
            if queue.min_offset < end:
                queue.min_offset = min(end, queue.max_offset)
                self.queues.touch(queue)
        if deletion.stay:
            deletion.late, deletion.offset = deletion.offset, 0  # recovery would take all its records for deleted
        self._forget_queues(deletion)
        return deletion

    def _last_physical(self, queue: ConsumeQueue) -> int:
        """Return the physical offset of a queue's last record; the log's end if that cannot be read."""
        if queue.next_offset > queue.tail_base:
            return int.from_bytes(queue.tail[-ENTRY_BYTES:][:8], "big")
        try:
            entry = self.queues.read_entries(queue, queue.max_offset - 1, 1)
        except (QueueBroken, OSError):
            entry = b""
        return int.from_bytes(entry[:8], "big") if len(entry) == ENTRY_BYTES else self.log.written

    def begin_queues(self, topics: Iterable[str]) -> None:
        """Create queues of existing topics at the offsets where queues of deleted topics with their names ended, so
        that their beginning is visible. On remoting-io, or before it runs."""
        for topic in topics:
            for queue_id in self.queues.begins_of(topic):
                self.queues.get_or_create(topic, queue_id)

    def _forget_queues(self, deletion: TopicDeletion) -> None:
        ticks = [*self.pending, self.tick]
        self.files.deleted_topics.begin(deletion.topic, deletion.offset or deletion.late, self.log.min_offset)
        self.queues.take_begins({deletion.topic: deletion.ends})
        self.queues.remove_queues(deletion.topic, deletion.queues)
        for queue in deletion.queues:
            queue.dirty = True  # keeps it off the list of dirty queues from now on
            if queue in self.queues.dirty:
                self.queues.dirty.remove(queue)
            for tick in ticks:
                tick.touched.pop(queue, None)
            self._tail_bytes -= queue.trim(queue.max_offset)
        self._look_at_pressure()
        self._flush_queues.delete_later(deletion)
