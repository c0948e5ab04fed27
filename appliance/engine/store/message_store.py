"""The store's face: put, get, the end of a tick, and what other parts ask of it.

A tick is the unit of publication (D1). Its records are staged by `put`, written by `end_tick`, and published whole and
in order: at once in async flush, when the durable position has reached their end in sync flush. Readers see published
entries only.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from zlib_ng.zlib_ng import crc32

from ..errors import StartError, StoreBroken
from ..protocol.record import (
    FIXED_BYTES,
    HEAD_IPV4,
    IPV6_EXTRA_BYTES,
    MAGIC_V1,
    SYS_BORN_IPV6,
    SYS_STORE_IPV6,
    store_time_ms,
)
from .commit_log import CommitLog
from .consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE, ConsumeQueue, split_entries
from .consume_queue_table import ConsumeQueueTable
from .disk import Disk
from .flush import FlushCommitLogService
from .flush_queues import FlushConsumeQueueService, TopicDeletion
from .paths import StorePaths
from .results import GetResult, GetStatus
from .store_files import StoreFiles

logger = logging.getLogger(__name__)

#: Un-synced bytes beyond which producers are not read from (D6), and where reading resumes.
UNSYNCED_HIGH_BYTES = 64 * 1024 * 1024
UNSYNCED_LOW_BYTES = 32 * 1024 * 1024
#: Queue entries not yet in files beyond which the same happens (D5).
TAIL_HIGH_BYTES = 32 * 1024 * 1024
#: Written this recently, a record is certainly in the page cache.
HOT_BYTES = 64 * 1024 * 1024


class StoreSettings(NamedTuple):
    """What the store needs of the configuration; sizes in bytes."""

    synchronous: bool
    segment_bytes: int
    queue_file_bytes: int
    max_bytes_in_memory: int
    max_count_in_memory: int
    max_bytes_on_disk: int
    max_count_on_disk: int
    max_scan_bytes: int
    memory_bytes: int
    delay_levels_ms: list[int]


class Scheduler(Protocol):
    """The part of the event loop the store uses."""

    wall_ms: int

    def call_soon(self, callback: Callable[[], None]) -> None: ...


class Tick:
    """What one tick staged.

    acks: whatever the caller wants back when the tick is published or has failed. early: the same for senders that do
    not wait for the sync (WAIT=false): they come back when the tick is written.
    """

    __slots__ = ("acks", "early", "end", "last_offset", "touched", "written_at_ms")

    def __init__(self) -> None:
        self.end = 0
        self.last_offset = -1
        self.touched: dict[ConsumeQueue, int] = {}
        self.acks: list[Any] = []
        self.early: list[Any] = []
        self.written_at_ms = 0


class MessageStore:
    """Appending, publication and reading belong to remoting-io; numbers may be read by anyone."""

    def __init__(
        self, settings: StoreSettings, paths: StorePaths, disk: Disk, scheduler: Scheduler, store_host: bytes
    ) -> None:
        # Constant after construction.
        self.settings = settings
        self.paths = paths
        self.disk = disk
        self._scheduler = scheduler
        self._store_host = store_host
        self._store_flag = SYS_STORE_IPV6 if len(store_host) == 20 else 0
        self.log = CommitLog(paths.commit_log, disk, settings.segment_bytes)
        self.queues = ConsumeQueueTable(paths, disk, settings.queue_file_bytes)
        self.files = StoreFiles(paths, disk)
        self._flush = FlushCommitLogService(self.log, settings.synchronous, self._synced)
        self._flush_queues = FlushConsumeQueueService(self)
        # Set by the owner before start().
        self.on_written: Callable[[Tick], None] = lambda tick: None
        self.on_published: Callable[[Tick], None] = lambda tick: None
        self.on_failed: Callable[[Tick, str], None] = lambda tick, reason: None
        self.on_pressure: Callable[[bool], None] = lambda high: None
        # Owned by remoting-io.
        self.tick = Tick()
        self.pending: deque[Tick] = deque()
        self.published = 0
        self.last_record_offset = -1
        self.store_ms = 0
        self._pressure = False
        self._tail_bytes = 0
        #: Sum of all queues' maximum offsets, less `put_count`.
        self._entries_base = 0
        # Counters, written by remoting-io.
        self.put_count = 0
        self.put_bytes = 0

    # --- life

    def open(self) -> None:
        """Lock, load and recover. Raises StartError; nothing was changed then."""
        from .recovery import recover

        self.files.lock_and_check()
        try:
            self.log.load()
            end, last_offset, last_time_ms = recover(self)
            self.log.start(end)
            self.files.mark_running()
        except BaseException as error:
            self._let_go()
            if isinstance(error, OSError):
                raise StartError(f"The store in {self.paths.root} cannot be opened: {error}.") from error
            raise
        self.files.checkpoint.limit(last_time_ms)
        self.published = end
        self.last_record_offset = last_offset
        self.store_ms = last_time_ms
        self._entries_base = sum(queue.max_offset for queue in self.queues.all())

    def _let_go(self) -> None:
        """Close everything as it is."""
        self.log.close()
        self.queues.close()
        self.files.close(clean=False)

    def sync_first(self, before_sync: Callable[[], None]) -> None:
        """Have `before_sync` run before each sync of the log, on its thread: what an acknowledgement relies on beside
        the log. It may wait and must not raise. Before start()."""
        self.log.before_sync = before_sync

    def start(self) -> None:
        """Start the flush threads; the event loop runs by now."""
        self._flush.start()
        self._flush_queues.start()

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
        if self._flush_queues.stop():
            clean = self._flush_queues.flush_now() and clean
        else:
            clean = False  # it still writes: its files are its own
        clean = clean and self.log.broken is None
        self.log.close()
        self.queues.close()
        self.files.close(clean)

    # --- appending

    def put(
        self,
        queue: ConsumeQueue,
        topic_field: bytes,
        body: memoryview | bytes,
        properties: bytes,
        tag_code: int,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> int:
        """Stage one message for `queue` in this tick; returns its physical offset.

        topic_field: length byte and topic. properties: the stored text. born_host: 8 or 20 bytes. Numbers must fit
        their fields (struct.error otherwise, and nothing is staged). Raises StoreBroken when the log cannot take it.
        """
        log = self.log
        now = self._scheduler.wall_ms
        if now > self.store_ms:
            self.store_ms = now  # never back: searches by time rely on it
        body_size = len(body)
        tail = topic_field + len(properties).to_bytes(2, "big") + properties
        size = FIXED_BYTES - 3 + body_size + len(tail)
        store_host = self._store_host
        if len(born_host) != 8 or len(store_host) != 8:
            return self._put_ipv6(queue, tail, body, tag_code, flag, sys_flag, born_ms, born_host, reconsume_times)
        at = log.reserve(size)
        stage = log.stage
        physical = log.stage_base + at
        offset = queue.next_offset
        try:
            HEAD_IPV4.pack_into(
                stage,
                at,
                size,
                MAGIC_V1,
                crc32(body) & 0x7FFFFFFF,
                queue.queue_id,
                flag,
                offset,
                physical,
                sys_flag,
                born_ms,
                born_host,
                self.store_ms,
                store_host,
                reconsume_times,
                0,
                body_size,
            )
        except BaseException:
            log.staged = at
            raise
        p = at + FIXED_BYTES - 3
        q = p + body_size
        stage[p:q] = body
        stage[q : at + size] = tail
        queue.tail += ENTRY.pack(physical, size, tag_code)
        queue.next_offset = offset + 1
        tick = self.tick
        tick.touched[queue] = offset + 1
        tick.last_offset = physical
        return physical

    def _put_ipv6(
        self,
        queue: ConsumeQueue,
        tail: bytes,
        body: memoryview | bytes,
        tag_code: int,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> int:
        """`put` when a host takes 20 bytes: the same record, joined from parts."""
        from ..protocol.record import HEAD, TAIL

        sys_flag |= self._store_flag | (SYS_BORN_IPV6 if len(born_host) == 20 else 0)
        rest = b"".join(
            (
                born_host,
                self.store_ms.to_bytes(8, "big"),
                self._store_host,
                TAIL.pack(reconsume_times, 0, len(body)),
                body,
                tail,
            )
        )
        size = HEAD.size + len(rest)
        crc = crc32(body) & 0x7FFFFFFF
        offset = queue.next_offset
        HEAD.pack(
            size, MAGIC_V1, crc, queue.queue_id, flag, offset, 0, sys_flag, born_ms
        )  # struct.error before reserve
        log = self.log
        at = log.reserve(size)
        physical = log.stage_base + at
        head = HEAD.pack(size, MAGIC_V1, crc, queue.queue_id, flag, offset, physical, sys_flag, born_ms)
        log.stage[at : at + size] = head + rest
        queue.append(physical, size, tag_code)
        self.tick.touched[queue] = offset + 1
        self.tick.last_offset = physical
        return physical

    def put_batch(
        self,
        queue: ConsumeQueue,
        topic_field: bytes,
        messages: list[tuple[int, memoryview, bytes, int]],
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> list[int]:
        """Stage messages (flag, body, properties, tag code) at consecutive offsets, all in one file and one write.

        Returns their physical offsets. Otherwise as `put`: all of them are staged, or none.
        """
        log = self.log
        overhead = FIXED_BYTES - 3 + len(topic_field) + 2
        total = sum(overhead + len(body) + len(properties) for _, body, properties, _ in messages)
        store_host = self._store_host
        if len(born_host) != 8 or len(store_host) != 8:
            log.staged = log.reserve(total + 2 * IPV6_EXTRA_BYTES * len(messages))
            return [
                self.put(queue, topic_field, body, text, code, flag, sys_flag, born_ms, born_host, reconsume_times)
                for flag, body, text, code in messages
            ]
        now = self._scheduler.wall_ms
        if now > self.store_ms:
            self.store_ms = now
        begin = at = log.reserve(total)
        stage, queue_id, store_ms = log.stage, queue.queue_id, self.store_ms
        physical = log.stage_base + at
        offset = queue.next_offset
        entries = bytearray()
        found = []
        try:
            for flag, body, properties, code in messages:
                body_size = len(body)
                size = overhead + body_size + len(properties)
                HEAD_IPV4.pack_into(
                    stage,
                    at,
                    size,
                    MAGIC_V1,
                    crc32(body) & 0x7FFFFFFF,
                    queue_id,
                    flag,
                    offset,
                    physical,
                    sys_flag,
                    born_ms,
                    born_host,
                    store_ms,
                    store_host,
                    reconsume_times,
                    0,
                    body_size,
                )
                p = at + FIXED_BYTES - 3
                q = p + body_size
                at += size
                stage[p:q] = body
                stage[q:at] = topic_field + len(properties).to_bytes(2, "big") + properties
                entries += ENTRY.pack(physical, size, code)
                found.append(physical)
                offset += 1
                physical += size
        except BaseException:
            log.staged = begin
            raise
        queue.tail += entries
        queue.next_offset = offset
        self.tick.touched[queue] = offset
        self.tick.last_offset = found[-1]
        return found

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
        tick.written_at_ms = self._scheduler.wall_ms
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
        self.on_failed(tick, reason)
        while self.pending:
            self.on_failed(self.pending.popleft(), reason)
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
        if self._tail_bytes > TAIL_HIGH_BYTES:
            self._set_pressure(True)
        self.on_published(tick)

    def _synced(self) -> None:
        """On flush-commitlog: the durable position moved, or the log broke."""
        self._scheduler.call_soon(self._publish_durable)

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

    # --- reading, on remoting-io

    def get(
        self, queue: ConsumeQueue | None, offset: int, max_count: int, codes: frozenset[int] | None
    ) -> GetResult | None:
        """Find up to `max_count` messages of a queue from `offset` whose tag code is in `codes` (None: all).

        Never waits for the disk: None says that the queue's file is not in the page cache.
        Source: RocketMQ `DefaultMessageStore.getMessage`; statuses and limits of 5.3.3.
        """
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [], 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high, [], 0, 0)
        if offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high, [], 0, 0)
        if offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high, [], 0, 0)
        if offset > high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high, [], 0, 0)
        settings = self.settings
        scan = max(settings.max_scan_bytes // ENTRY_BYTES, max_count) if codes is not None else max(max_count, 1)
        scan = min(scan, high - offset)
        if offset >= queue.tail_base:
            entries = queue.tail_entries(offset, scan)
        else:
            in_files = queue.tail_base - offset
            found = self.queues.files.read_nowait(queue.topic, queue.queue_id, offset, min(scan, in_files))
            if found is None:
                return None
            entries = found
            if scan > in_files and len(found) == in_files * ENTRY_BYTES:
                entries += queue.tail_entries(queue.tail_base, scan - in_files)
        return self._select(queue, offset, max_count, codes, entries)

    def _select(
        self, queue: ConsumeQueue, offset: int, max_count: int, codes: frozenset[int] | None, entries: bytes
    ) -> GetResult:
        """Pick the matching entries and join adjacent records into runs."""
        settings = self.settings
        low, high = queue.min_offset, queue.max_offset
        runs: list[tuple[int, int]]
        if not entries:
            per_file = self.queues.files.entries_per_file
            following = min((offset // per_file + 1) * per_file, high)
            return GetResult(GetStatus.OFFSET_FOUND_NULL, following, low, high, [], 0, 0)
        log_end = self.published
        log_begin = self.log.min_offset
        limit_bytes, limit_count = settings.max_bytes_in_memory, settings.max_count_in_memory
        if log_end - int.from_bytes(entries[:8], "big") > settings.memory_bytes:
            limit_bytes, limit_count = settings.max_bytes_on_disk, settings.max_count_on_disk
        limit_count = max(1, min(max_count, limit_count))
        if codes is None:
            count = min(len(entries) // ENTRY_BYTES, limit_count)
            offsets, sizes = split_entries(entries, count)
            total = sum(sizes)
            if total <= limit_bytes and min(sizes) > 0 and max(sizes) < HOLE_SIZE and offsets[0] >= log_begin:
                if offsets[-1] + sizes[-1] - offsets[0] == total:
                    runs = [(offsets[0], total)]
                else:
                    runs = list(zip(offsets, sizes, strict=True))
                return GetResult(GetStatus.FOUND, offset + count, low, high, runs, count, total)
        runs = []
        run_begin = run_end = -1
        count = total = scanned = 0
        removed = False
        for physical, size, code in ENTRY.iter_unpack(entries):
            if codes is None or code in codes:
                if not 0 < size < HOLE_SIZE or physical < log_begin:  # a hole left by damage, or deleted with its file
                    removed = True
                    scanned += 1
                    continue
                if count and (count >= limit_count or total + size > limit_bytes):
                    break
                count += 1
                total += size
                if physical == run_end:
                    run_end += size
                else:
                    if run_end >= 0:
                        runs.append((run_begin, run_end - run_begin))
                    run_begin, run_end = physical, physical + size
            scanned += 1
        if run_end >= 0:
            runs.append((run_begin, run_end - run_begin))
            status = GetStatus.FOUND
        else:
            status = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, offset + scanned, low, high, runs, count, total)

    # --- questions, from any thread

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self.queues.find(topic, queue_id)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue; 0 for one never written."""
        queue = self.queues.find(topic, queue_id)
        return queue.min_offset if queue else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset behind the last published message; 0 for an unknown queue."""
        queue = self.queues.find(topic, queue_id)
        return queue.max_offset if queue else 0

    def is_hot(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the message at `offset` exists and is recent enough to be in memory (4.9's rule of 40 % of RAM)."""
        queue = self.queues.find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return False
        entries = self.queues.read_entries(queue, offset, 1)
        return bool(entries) and self.published - int.from_bytes(entries[:8], "big") <= self.settings.memory_bytes

    def earliest_time_ms(self) -> int:
        """Store time of the log's first record; -1 when there is none."""
        begin = self.log.min_offset
        if self.published <= begin:
            return -1
        head = self.log.read(begin, 76)
        return store_time_ms(head)

    # --- deleting a topic

    def delete_topic(self, topic: str) -> None:
        """Forget a topic's queues and delete their files; its records stay in the log until they expire.

        Blocks; from any thread but remoting-io. Recovery will not bring its queues back. Raises OSError when files
        could not be deleted: it is tried again until they are.
        """
        deletion = TopicDeletion(topic)

        def forget() -> None:
            self.forget_topic(deletion)

        self._scheduler.call_soon(forget)
        self._flush_queues.wait_deleted(deletion)

    def forget_topic(self, deletion: TopicDeletion) -> None:
        """On remoting-io: from here on the topic has no queues; a new one of its name gets no file before the old
        ones are gone."""
        deletion.offset = self.log.written + self.log.staged
        ticks = [*self.pending, self.tick]
        for queue in self.queues.remove_topic(deletion.topic):
            queue.dirty = True  # nobody writes it any more
            if queue in self.queues.dirty:
                self.queues.dirty.remove(queue)
            for tick in ticks:
                tick.touched.pop(queue, None)
            self._entries_base -= queue.max_offset
            self._tail_bytes -= queue.trim(queue.max_offset)
        self._look_at_pressure()
        self._flush_queues.delete_later(deletion)

    @property
    def entries(self) -> int:
        """The sum of all queues' maximum offsets, on remoting-io."""
        return self._entries_base + self.put_count
