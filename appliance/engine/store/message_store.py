"""The store's face: put, get, the end of a tick, and what other parts ask of it.

A tick is the unit of publication (D1). Its records are staged by `put`, written by `end_tick`, and published whole and
in order: at once in async flush, when the durable position has reached their end in sync flush. Readers see published
entries only.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

from ..errors import StartError, StoreBroken
from .appender import Appender, Tick
from .cold_reader import ColdReader
from .disk import Disk
from .index.index_service import IndexService
from .log.block_checksums import BlockChecksumService
from .log.commit_log import CommitLog
from .log.flush import FlushCommitLogService
from .message_reader import MessageReader
from .paths import StorePaths
from .queues.consume_queue import ENTRY_BYTES, ConsumeQueue
from .queues.consume_queue_table import ConsumeQueueTable
from .queues.flush_queues import FlushConsumeQueueService, TopicDeletion
from .queues.queue_extension import QueueExtension
from .queues.queue_ledger import QueueLedger
from .retention.clean_service import CleanService
from .settings import Scheduler, Service, StoreSettings
from .store_files import StoreFiles
from .store_format import check_format, write_format

logger = logging.getLogger(__name__)

#: Un-synced bytes beyond which producers are not read from (D6), and where reading resumes.
UNSYNCED_HIGH_BYTES = 64 * 1024 * 1024
UNSYNCED_LOW_BYTES = 32 * 1024 * 1024
#: Queue entries not yet in files beyond which the same happens (D5).
TAIL_HIGH_BYTES = 32 * 1024 * 1024


class MessageStore(Appender):
    """Appending, publication and reading belong to remoting-io; numbers may be read by anyone."""

    def __init__(
        self, settings: StoreSettings, paths: StorePaths, disk: Disk, scheduler: Scheduler, store_host: bytes
    ) -> None:
        super().__init__(CommitLog(paths.commit_log, disk, settings.segment_bytes), scheduler, store_host)
        # Constant after construction.
        self.settings = settings
        self.paths = paths
        self.disk = disk
        self.queues = ConsumeQueueTable(paths, disk, settings.queue_file_bytes, settings.queue_descriptors)
        self.ledger = QueueLedger(paths, disk, self.queues.files.file_bytes)
        self.files = StoreFiles(paths, disk)
        reader = MessageReader(
            self.log, self.queues, QueueExtension(paths, disk), lambda: self.settings, lambda: self.published
        )
        # As attributes, so that a pull pays for no call between them.
        self.get = reader.get
        self._scan_count = reader.scan_count
        self.find_queue = reader.find_queue
        self.offset_range = reader.offset_range
        self.min_offset = reader.min_offset
        self.max_offset = reader.max_offset
        self.young_offset = reader.young_offset
        self.earliest_time_ms = reader.earliest_time_ms
        self._flush = FlushCommitLogService(self.log, settings.synchronous, self._synced)
        self._flush_queues = FlushConsumeQueueService(self)
        self.queues.on_broken = self._flush_queues.repair.ask
        # Set by the owner before start().
        self.on_written: Callable[[Tick], None] = lambda tick: None
        self.on_published: Callable[[Tick], None] = lambda tick: None
        self.on_failed: Callable[[Tick, str], None] = lambda tick, reason: None
        self.on_pressure: Callable[[bool], None] = lambda high: None
        self.cleaner = CleanService(self)
        #: On remoting-io: a queue whose files lacked entries is whole again.
        self.on_repaired: Callable[[ConsumeQueue], None] = lambda queue: None
        #: Further threads of the store, in the order they start. Before start().
        self.services: list[Service] = []
        #: Called by the cleaner's thread with the log's new minimum offset once files are gone.
        self.on_removed: list[Callable[[int], None]] = []
        self.blocks = BlockChecksumService(self)
        self.services.append(self.blocks)
        self.services.append(self.cleaner)
        self.on_removed.append(self.blocks.removed)
        self.index = IndexService(self)
        self.services.append(self.index)
        self.on_removed.append(self.index.removed)
        # Owned by remoting-io.
        self.pending: deque[Tick] = deque()
        self.published = 0
        self.last_record_offset = -1
        self._pressure = False
        self._tail_bytes = 0
        #: Queue -> the end of what was staged and never published: the log is broken.
        self._failed_to: dict[ConsumeQueue, int] = {}
        # Counters, written by remoting-io.
        self.put_count = 0
        self.put_bytes = 0

    @property
    def failed_puts(self) -> int:
        """Messages that were refused for the log's sake, or staged and not stored. Any thread."""
        lost = sum(end - queue.max_offset for queue, end in list(self._failed_to.items()))
        return self.log.not_taken + lost

    # --- life

    def open(self) -> None:
        """Lock, load and recover. Raises StartError; nothing was changed then."""
        from .recovery import recover

        self.files.lock_and_check()
        try:
            check_format(self.paths, self.disk)
            self.log.load()
            found = recover(self)
            self.log.start(found.end)
            write_format(self.paths, self.disk)
            self.files.mark_running()
            self.index.open(found.end)
        except BaseException as error:
            self._let_go()
            if isinstance(error, OSError):
                raise StartError(f"The store in {self.paths.root} cannot be opened: {error}.") from error
            raise
        self.disk.find_out_about_reads(self.log.segments[-1].fd)
        self.files.checkpoint.limit(found.last_time_ms)
        self.published = found.end
        self.last_record_offset = found.last_offset
        self.store_ms = found.last_time_ms
        for queue in found.touched:
            self.queues.touch(queue)
        if not found.from_position:
            self._flush_queues.save_recovered()
        if not found.checked:
            self._flush_queues.repair.check_all()

    def new_cold_reader(self) -> ColdReader:
        """Reads queue entries for `get` on a thread that may wait for the disk; it is closed by who asked for it."""
        return ColdReader(self.log, self.queues, QueueExtension(self.paths, self.disk), self._scan_count)

    def _let_go(self) -> None:
        """Close everything as it is."""
        self.log.close()
        self.queues.close()
        self.ledger.close()
        self.index.close()
        self.files.close(clean=False)

    def sync_first(self, before_sync: Callable[[], None]) -> None:
        """Have `before_sync` run before each sync of the log, on its thread: what an acknowledgement relies on beside
        the log. It may wait and must not raise. Before start()."""
        self.log.before_sync = before_sync

    def start(self) -> None:
        """Start the flush threads; the event loop runs by now."""
        self._flush.start()
        self._flush_queues.start()
        for service in self.services:
            service.start()

    def stop(self) -> None:
        """Write and sync everything; after the event loop has ended. The abort file goes only when all was well."""
        clean = self._flush.stop()
        if self.log.broken is None:
            try:
                self.log.write()
                self.log.sync()
                self._publish_durable()
            except StoreBroken as error:
                logger.error("store: last flush failed: %s", error)
        for service in self.services:
            clean = service.stop() and clean
        if self._flush_queues.stop():
            clean = self._flush_queues.flush_now() and clean
        else:
            clean = False  # it still writes: its files are its own
        clean = clean and self.log.broken is None
        self.log.close()
        self.queues.close()
        self.ledger.close()
        self.files.close(clean)

    # --- the end of a tick

    def end_tick(self) -> None:
        """Write what was staged; publish it, or have it synced first. Never raises."""
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
        tick.written_at = time.monotonic()
        if tick.early:
            self.on_written(tick)
        self._flush.tick_written()
        if log.written - log.durable > UNSYNCED_HIGH_BYTES:
            self._set_pressure(True)
        if self.settings.synchronous:
            self.pending.append(tick)
            return
        self._publish(tick)

    def fail_tick(self, reason: str) -> None:
        """The current tick cannot be written: tell everyone in it."""
        tick, self.tick = self.tick, Tick()
        self._fail(tick, reason)

    def _fail(self, tick: Tick, reason: str) -> None:
        failed = [tick, *self.pending]
        self.pending.clear()
        for one in failed:
            for queue, end in one.touched.items():
                self._failed_to[queue] = max(end, self._failed_to.get(queue, 0))
            self.on_failed(one, reason)
        # What was held back is refused now; nothing would ever lower the pressure.
        self._set_pressure(False)

    def _publish(self, tick: Tick) -> None:
        count = 0
        for queue, offset in tick.touched.items():
            count += offset - queue.max_offset
            queue.max_offset = offset
            if not queue.dirty:
                queue.dirty = True
                self.queues.dirty.append(queue)
        self._tail_bytes += count * ENTRY_BYTES
        self.put_count += count
        self.put_bytes += tick.end - self.published
        self.published = tick.end
        self.last_record_offset = tick.last_offset
        self._flush_queues.published(self._tail_bytes)
        self.index.published()
        if self._tail_bytes > TAIL_HIGH_BYTES:
            self._set_pressure(True)
        self.on_published(tick)

    def _synced(self) -> None:
        """On flush-commitlog: the durable position moved, or the log broke."""
        self.scheduler.call_soon(self._publish_durable)

    def _publish_durable(self) -> None:
        log = self.log
        if log.broken is not None:
            self._fail(Tick(), log.broken)
            return
        pending = self.pending
        durable = log.durable
        while pending and pending[0].end <= durable:
            self._publish(pending.popleft())
        self._look_at_pressure()

    def tail_written(self, count: int) -> None:
        """On remoting-io: `count` bytes of queue entries left the tails."""
        self._tail_bytes -= count
        self._look_at_pressure()

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
        """Forget a topic's queues and delete their files; its records stay in the log until they expire.

        Blocks; from any thread but remoting-io. Recovery will not bring its queues back. Raises OSError when files
        could not be deleted: it is tried again until they are.
        """
        deletion = TopicDeletion(topic)

        def forget() -> None:
            self.forget_topic(deletion)

        self.scheduler.call_soon(forget)
        self._flush_queues.wait_deleted(deletion)

    def forget_topic(self, deletion: TopicDeletion) -> None:
        """On remoting-io: from here on the topic has no queues; a new one of its name gets no file before the old
        ones are gone."""
        deletion.offset = self.log.written + self.log.staged
        ticks = [*self.pending, self.tick]
        deletion.queues = self.queues.remove_topic(deletion.topic)
        for queue in deletion.queues:
            queue.dirty = True  # nobody writes it any more
            if queue in self.queues.dirty:
                self.queues.dirty.remove(queue)
            for tick in ticks:
                tick.touched.pop(queue, None)
            self._tail_bytes -= queue.trim(queue.max_offset)
        self._look_at_pressure()
        self._flush_queues.delete_later(deletion)
