"""Reading: which messages of a queue an answer may hold, and queries about queues."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..filter.message_filter import EVERYTHING, MessageFilter
from ..hotpath import pick_entries as pick_compiled
from ..protocol.fields import I64_MAX
from ..protocol.record import store_time_ms
from .log.commit_log import CommitLog
from .queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE, ConsumeQueue, split_entries
from .queues.consume_queue_table import ConsumeQueueTable
from .queues.queue_extension import MIN_CODE, QueueExtension
from .results import GetResult, GetStatus
from .settings import StoreSettings
from .settling import SETTLED, Settling

#: Limits on the records that the I/O thread filters for one pull, and on their bytes: it takes about 0.1 ms. Limit on
#: their properties: an expression that is not costly may search them twenty times, which takes 0.4 ms.
_RECORDS_AT_ONCE = 16
_BYTES_AT_ONCE = 64 * 1024
_PROPERTY_BYTES_AT_ONCE = 8 * 1024

#: (runs of adjacent records as (physical offset, size), number of matches, their bytes, number of entries looked
#: through, True if the records of some are gone, True if an entry has no size)
Picked = tuple[list[tuple[int, int]], int, int, int, bool, bool]


class MessageReader:
    """The reading half of a store. `get` belongs to remoting-io; any thread may call the rest.

    settings, published: return the present values, called for each read. No record at `published` or behind is read.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueTable,
        extension: QueueExtension,
        settings: Callable[[], StoreSettings],
        published: Callable[[], int],
    ) -> None:
        # Constant after construction.
        self._log = log
        self._queues = queues
        self._settings = settings
        self._published = published
        # Owned by remoting-io.
        self._extension = extension
        self.settling = Settling(self._read_now, most_bytes=_PROPERTY_BYTES_AT_ONCE)

    def scan_count(self, max_count: int, wanted: MessageFilter) -> int:
        """Return how many entries a read may look through: at most what an answer may hold, whatever was asked for."""
        return _scan_count(self._settings(), max_count, wanted.codes is not None or wanted.reads_records)

    def get(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        max_count: int,
        wanted: MessageFilter = EVERYTHING,
        read: bytes | None = None,
    ) -> GetResult | None:
        """Find up to `max_count` messages of a queue, from `offset` on, that match `wanted`.

        Never waits for the disk. Returns None if the queue's file is not in the page cache, or the filter has to read
        more records than can be read at once. A ColdReader then reads the entries to pass as `read`, and the result is
        not None.
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
        settings = self._settings()
        if wanted.reads_records:
            if read is None:
                read = self._settled_now(queue, offset, max_count, wanted)
            if not read:
                return None if read is None else _nothing_yet(queue, offset)
            return self._select(queue, offset, max_count, SETTLED.codes, read, settings)
        scan = _scan_count(settings, max_count, wanted.codes is not None)
        if scan > high - offset:
            scan = high - offset
        if offset >= queue.tail_base:
            entries = queue.tail_entries(offset, scan)
        else:
            if queue.broken:
                return _nothing_yet(queue, offset)
            in_files = queue.tail_base - offset
            found = read
            if found is None:
                found = self._queues.files.read_nowait(queue.topic, queue.queue_id, offset, min(scan, in_files))
                if found is None:
                    return None
                if not found:
                    self._queues.on_broken(queue)
            if not found:
                return _nothing_yet(queue, offset)
            entries = found
            if scan > in_files and len(found) == in_files * ENTRY_BYTES:
                entries += queue.tail_entries(queue.tail_base, scan - in_files)
        return self._select(queue, offset, max_count, wanted.codes, entries, settings)

    def _settled_now(self, queue: ConsumeQueue, offset: int, max_count: int, wanted: MessageFilter) -> bytes | None:
        """Filter the last few records of a queue, in the page cache; None if that takes too long, for a ColdReader."""
        if wanted.costly or offset < queue.tail_base or queue.max_offset - offset > _RECORDS_AT_ONCE:
            return None
        entries = queue.tail_entries(offset, _RECORDS_AT_ONCE)
        if sum(split_entries(entries, len(entries) // ENTRY_BYTES)[1]) > _BYTES_AT_ONCE:
            return None
        return self.settling.settle(entries, wanted, max_count)

    def _read_now(self, offset: int, size: int) -> bytes | None:
        """Return bytes of the log from the page cache, for `settling`; None if they are not in it."""
        segment = self._log.segment_at(offset)
        if segment is None:
            return b""
        data = bytearray(min(size, segment.end - offset))
        return bytes(data) if self._log.read_nowait(offset, memoryview(data)) else None

    def _select(
        self,
        queue: ConsumeQueue,
        offset: int,
        max_count: int,
        codes: frozenset[int] | None,
        entries: bytes,
        settings: StoreSettings,
    ) -> GetResult:
        """Return the result for the entries that were read."""
        low, high = queue.min_offset, queue.max_offset
        if not entries:
            per_file = self._queues.files.entries_per_file
            following = min((offset // per_file + 1) * per_file, high)
            return GetResult(GetStatus.OFFSET_FOUND_NULL, following, low, high, [], 0, 0)
        log_end = self._published()
        log_begin = self._log.min_offset
        limit_bytes, limit_count = settings.max_bytes_in_memory, settings.max_count_in_memory
        in_memory = log_end - int.from_bytes(entries[:8], "big") <= settings.memory_bytes
        if not in_memory:
            limit_bytes, limit_count = settings.max_bytes_on_disk, settings.max_count_on_disk
        limit_count = max(1, min(max_count, limit_count))
        picked = None if pick_compiled is None else pick_compiled(entries, codes, log_begin, limit_count, limit_bytes)
        if picked is None:
            matches_behind = None if codes is None else partial(self._matches_behind, queue, codes)
            picked = pick_entries(entries, codes, log_begin, limit_count, limit_bytes, matches_behind)
        runs, count, size, scanned, removed, damaged = picked
        if damaged:  # the file lost entries
            self._queues.on_broken(queue)
            if not scanned:
                return _nothing_yet(queue, offset)
        if runs:
            status = GetStatus.FOUND
        else:
            status = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
        elsewhere = settings.slave_reads and not in_memory
        return GetResult(status, offset + scanned, low, high, runs, count, size, elsewhere)

    def _matches_behind(self, queue: ConsumeQueue, codes: frozenset[int], address: int) -> bool:
        """True if the extension unit of an entry that Apache wrote has one of the codes.

        Also True if it cannot be read at once: the client compares the tag again.
        """
        unit = self._extension.read_nowait(queue.topic, queue.queue_id, address)
        return unit is None or unit.tag_code in codes

    # --- questions, from any thread

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.find(topic, queue_id)

    def offset_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return a queue's first offset, and the one behind its last published message. If the queue was never written,
        both are the offset that it will begin with."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            begin = self._queues.begin_of(topic, queue_id)
            return begin, begin
        return queue.min_offset, queue.max_offset

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first of `offset_range`."""
        return self.offset_range(topic, queue_id)[0]

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the second of `offset_range`."""
        return self.offset_range(topic, queue_id)[1]

    def end_of(self, topic: str, queue_id: int) -> int:
        """Like `max_offset`, but the largest number while a queue is being rebuilt, since its entries are unknown."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return self._queues.begin_of(topic, queue_id)
        return I64_MAX if queue.broken else queue.max_offset

    def young_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue that lost nothing to age, if it is recent enough to be in memory from
        there on (4.9's rule of 40 % of RAM); -1 for any other queue. On remoting-io.

        A queue lost nothing to age if it has its first message, or no file has ever left the log; entries lost to
        damage do not count. Raises QueueBroken while the queue is being rebuilt, OSError when the disk fails.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or queue.min_offset >= queue.max_offset:
            return -1
        if self._log.min_offset > 0 and queue.min_offset > self._queues.begin_of(topic, queue_id):
            return -1
        entries = self._queues.read_entries(queue, queue.min_offset, 1)
        if len(entries) < ENTRY_BYTES:
            return -1
        behind = self._published() - int.from_bytes(entries[:8], "big")
        return queue.min_offset if behind <= self._settings().memory_bytes else -1

    def earliest_time_ms(self) -> int:
        """Return the store time of the log's first record; -1 if there is none."""
        begin = self._log.min_offset
        if self._published() <= begin:
            return -1
        head = self._log.read(begin, 76)
        return store_time_ms(head)


def pick_entries(
    entries: bytes,
    codes: frozenset[int] | None,
    log_begin: int,
    limit_count: int,
    limit_bytes: int,
    matches_behind: Callable[[int], bool] | None,
) -> Picked:
    """Pick the matching entries and join adjacent records into runs.

    codes: None for all. Records below `log_begin` are gone. Picks at most `limit_count` records of `limit_bytes`
    together, but always one. matches_behind: looks up the extension unit of an Apache entry; unused without codes.
    """
    runs: list[tuple[int, int]]
    if codes is None:
        count = min(len(entries) // ENTRY_BYTES, limit_count)
        offsets, sizes = split_entries(entries, count)
        total = sum(sizes)
        if total <= limit_bytes and min(sizes) > 0 and max(sizes) < HOLE_SIZE and offsets[0] >= log_begin:
            if offsets[-1] + sizes[-1] - offsets[0] == total:
                runs = [(offsets[0], total)]
            else:
                runs = list(zip(offsets, sizes, strict=True))
            return runs, count, total, count, False, False
    runs = []
    run_begin = run_end = -1
    count = total = scanned = 0
    removed = damaged = False
    for physical, size, code in ENTRY.iter_unpack(entries):
        if size <= 0:
            damaged = True
            break
        if codes is None or code in codes or (code < MIN_CODE and matches_behind and matches_behind(code)):
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
    return runs, count, total, scanned, removed, damaged


def _scan_count(settings: StoreSettings, max_count: int, filtered: bool) -> int:
    if not 0 < max_count <= settings.max_count_in_memory:
        max_count = max(1, min(max_count, max(settings.max_count_in_memory, settings.max_count_on_disk)))
    return max(settings.max_scan_bytes // ENTRY_BYTES, max_count) if filtered else max_count


def _nothing_yet(queue: ConsumeQueue, offset: int) -> GetResult:
    """Return the result of a queue without news: the client asks for this offset again, when the files may be whole."""
    return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, queue.min_offset, queue.max_offset, [], 0, 0)
