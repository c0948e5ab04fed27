"""Builds the key index behind the published log, in slices, and owns the list of index files (D8).

    position on disk (index-position) <= position <= published

The log between the first two is indexed again after a crash; the part between the last two is indexed next. Sends pay
only processor time for it: a record is published first, and its keys follow within INTERVAL_S. A query indexes the
missing part itself, so that it finds everything published before it (`index_query.py`).

Where the hot path is compiled, the index lags by at most MAX_LAG_S at rates up to MAX_RATE keys a second, as long as
records are usual (`index_keys.py`) and the disk syncs a checkpoint within half of that. The lag has three parts:
records gather for INTERVAL_S; slices rest, the less the further the index is behind, and hardly at the last of _RESTS;
a checkpoint stops the thread for a sync, and comes after CHECKPOINT_KEYS already, so that this is short. The pure twin
keeps up with the single sends that it can take itself, and falls behind during large batches.
Source: RocketMQ `IndexService`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

from ...clock import Clock
from ...disk import Disk
from ...hotpath import COMPILED, Keys
from ...protocol.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, SIZE_MAGIC
from ...service_thread import ServiceThread
from ..log.commit_log import CommitLog
from ..log.raw_log import RawLog
from ..paths import StorePaths
from ..publication import Publication
from ..store_files import StoreFiles
from .index_file import FIRST_ENTRY, IndexFile, IndexHeader
from .index_keys import LEFT, KeyScanner, key_scanner
from .index_recovery import FoundLog, IndexPosition, IndexPositionFile, IndexSettings, open_index, summary_of

logger = logging.getLogger(__name__)

#: Time that records gather before they are indexed.
INTERVAL_S = 0.1
#: Records per slice: it takes well under 1 ms, and the lock is held no longer (D10).
SLICE = 400
#: Like SLICE, with a compiled hot path and slots in memory. The GIL is released meanwhile; the cost of a slice is then
#: waiting to get it back.
FAST_SLICE = 4000 if COMPILED else SLICE
#: Bytes read at a time. Pure: below the 128 KiB from which malloc maps new memory each time, which doubled the cost of
#: a record.
WINDOW_BYTES = 1024 * 1024 if COMPILED else 120 * 1024
#: Rest after a slice, as a multiple of the time it took, by the bytes that the index is behind. In the pure twin a
#: slice delays the sends themselves.
_RESTS = (
    ((32 << 20, 1.0), (64 << 20, 0.5), (1 << 62, 0.0))
    if COMPILED
    else ((32 << 20, 2.0), (256 << 20, 1.0), (1 << 62, 0.5))
)
_REST_MIN_S = 0.0002
#: Slots are kept in memory (20 MB with Apache's number of them) above this many keys per interval over a second, or
#: bytes to index at the beginning of a round: with slots in the file, the two calls per key cost other threads the GIL
#: as often. The memory is freed when no key has come for half of IDLE_S.
TABLE_AT = 300
TABLE_WINDOW_S = 1.0
TABLE_AT_BYTES = 256 * 1024
#: Longest time between two checkpoints while keys come; one more follows when they stop.
CHECKPOINT_S = 30.0
#: A checkpoint is also due after this many keys: 80 MB to sync, besides the slots.
CHECKPOINT_KEYS = 4_000_000
#: The limit on the lag described above; tests check it.
MAX_LAG_S, MAX_RATE = 2.0, 700_000
IDLE_S = 20.0
RETRY_S = 1.0
#: Time for the index to catch up at a stop; the rest is indexed after the next start.
STOP_S = 2.0
_MAGIC_BEGIN = MAGIC_V1.to_bytes(4, "big")[:3]


class IndexService(ServiceThread):
    """The thread `index`. Any thread may query; only this one, and a query under the lock, puts keys."""

    def __init__(
        self,
        log: CommitLog,
        publication: Publication,
        paths: StorePaths,
        disk: Disk,
        files: StoreFiles,
        settings: IndexSettings,
        clock: Clock,
    ) -> None:
        super().__init__("index", clock)
        # Constant after construction.
        self._log = log
        self._publication = publication
        self._directory = paths.index
        self._disk = disk
        self._small_files = files
        self._position_file = IndexPositionFile(paths, disk)
        self.enabled = settings.enabled
        self._settings = settings
        #: Held for a slice, for a step of a query, and while the list of files changes; never during a sync.
        self.lock = threading.Lock()
        # Guarded by lock; the list is replaced, never changed.
        self.files: list[IndexFile] = []
        self.position = 0
        self._skip = 0
        self._scanner = key_scanner()
        self._found = Keys()
        self._window = (b"", 0)
        #: Full files that are not synced yet.
        self._unsynced: list[IndexFile] = []
        self._new_names = False
        #: True once slots match the entries; before, chains may be short and no key is put.
        self.ready = False
        self._keys_put = 0
        # Owned by the thread: time and number of keys at which the current window of the key rate began.
        self._window_at, self._counted = 0.0, 0
        self._saving = threading.Lock()
        # Owned by the thread; the saved state by the holder of _saving.
        self._stale_slots = False
        self._saved_at = 0.0
        self._saved_keys = 0
        self._saved_position = -1
        self._put_at = 0.0
        # Written by remoting-io and the thread.
        self._dirty = False
        #: Reason that indexing has stopped for now, shown by health. It is retried.
        self.failure: str | None = None

    # --- life

    def open(self, end: int) -> None:
        """Open the files after recovery, with the log's end at `end`. Raises OSError."""
        checkpoint = self._small_files.checkpoint
        left_clean, synced_ms = self._small_files.left_clean, checkpoint.index_time_ms
        log = FoundLog(RawLog(self._log, self._disk), self._log.min_offset, end, left_clean, synced_ms)
        opened = open_index(self._directory, self._disk, self._settings, self._position_file.load(), log)
        self.files, self.position, self._skip = opened.files, opened.position, opened.skip
        self._stale_slots = opened.stale_slots
        checkpoint.index_time_ms = min(checkpoint.index_time_ms, self.files[-1].end_ms if self.files else 0)
        if self.enabled:
            # Saved before anything is written. Otherwise entries that were cut with the log's end would be trusted
            # again once the log has grown past it with other records.
            state = IndexPosition(opened.summaries(), self.position, False)
            if self._position_file.load() != state:
                self._position_file.save(state)
            self._dirty = True
        self.ready = not self._stale_slots

    @property
    def target(self) -> int:
        """Offset up to which the log is to be indexed."""
        return self._publication.published

    @property
    def behind(self) -> int:
        """Bytes of the published log that are not indexed yet."""
        return max(0, self._publication.published - self.position) if self.enabled else 0

    def published(self) -> None:
        """Wake the thread after a tick was published. On remoting-io."""
        if not self._dirty:
            self._dirty = True
            self.wakeup()

    def removed(self, min_offset: int) -> None:
        """Delete the files but the last whose records lie below `min_offset`. On the cleaner's thread."""
        gone = []
        with self.lock:
            # A file that still waits for its sync is deleted the next time.
            while len(self.files) > 1 and self.files[0].end_offset < min_offset and self.files[0] not in self._unsynced:
                gone.append(self.files[0])
                self.files = self.files[1:]
            for file in gone:
                file.close()
        for file in gone:
            try:
                self._disk.unlink(file.path)
                logger.info("index: file deleted, its records have expired file=%s", file.name)
            except OSError as error:
                logger.error("index: %s cannot be deleted: %s", file.path, error)

    def run(self) -> None:
        if not self.enabled:
            return
        if self.behind > TABLE_AT_BYTES:
            logger.info("index: %d bytes of the log are to be indexed", self.behind)
        while not self.stopped:
            # A wake-up during the last round does not shorten the time that records gather for this one.
            self.wait(0.0 if self._dirty else self._until_checkpoint())
            if self._dirty and self.ready and not self.stopped:
                self.wait(INTERVAL_S)
            self._dirty = False
            if not self.stopped and not self._round():
                self._dirty = True
                self.wait(RETRY_S)

    def _until_checkpoint(self) -> float | None:
        """Return the seconds until something is due without a new record; None if nothing is."""
        if self._saved_position == self.position and not (self.files and self.files[-1].in_memory):
            return None
        return IDLE_S

    def _round(self) -> bool:
        """Catch up, and checkpoint if one is due; False after a disk error."""
        try:
            self._prepare()
            if not self.ready:
                return True
            before = self._keys_put
            if self.behind > TABLE_AT_BYTES:
                self._hold_slots()
            while not self.stopped:
                begin, target = self.clock.monotonic(), self.target
                if not self.work():
                    break
                now = self.clock.monotonic()
                self._look_at_rate(now)
                if self.position >= target:
                    # New records gather first: slices of a few records cost other threads the GIL as often.
                    self._dirty = self._dirty or self.behind > 0
                    break
                if self._checkpoint_due(now):
                    self._dirty = True
                    break
                self._rest(now - begin)
            now = self.clock.monotonic()
            if self._keys_put != before:
                self._put_at = now
            idle = now - self._put_at > IDLE_S / 2
            if self._saved_position != self.position and (idle or self._checkpoint_due(now)):
                self.checkpoint()
            if idle and self._saved_position == self.position:
                self._release_slots()
            if self.failure is not None:
                logger.info("index: goes on")
                self.failure = None
        except OSError as error:
            self._fail(error)
            return False
        return True

    def _checkpoint_due(self, now: float) -> bool:
        return now - self._saved_at > CHECKPOINT_S or self._keys_put - self._saved_keys > CHECKPOINT_KEYS

    def _look_at_rate(self, now: float) -> None:
        """Load the slots into memory when many keys come within a window."""
        if self._keys_put - self._counted > TABLE_AT * max(TABLE_WINDOW_S, now - self._window_at) / INTERVAL_S:
            self._hold_slots()
        if now - self._window_at >= TABLE_WINDOW_S:
            self._window_at, self._counted = now, self._keys_put

    def _fail(self, error: OSError) -> None:
        text = f"the index cannot be written: {error.strerror or error}"
        if text != self.failure:
            logger.error("index: %s", text)
        self.failure = text

    def stop(self, deadline: float = 5.0) -> bool:
        """Catch up for a moment, write and close. Missing entries are made after the next start."""
        ended = super().stop(deadline)
        try:
            if self.enabled and ended and self.ready:
                end = self.clock.monotonic() + STOP_S
                while self.clock.monotonic() < end and self.work():
                    pass
                self.checkpoint(stopped=True)
        except OSError as error:
            self._fail(error)
        if ended:  # else it still writes, and its descriptors must not be reused
            self.close()
        return ended

    def abandon(self) -> None:
        """End like a killed process, without writing anything."""
        super().stop()
        self.close()

    def close(self) -> None:
        """Close the files as they are."""
        with self.lock:
            self.ready = False
            for file in self.files:
                file.close()
            self.files = []

    # --- building

    def work(self) -> bool:
        """Index the next slice of the log; False if there is nothing to do that can be done now. Raises OSError."""
        if not self.enabled:
            return False
        with self.lock:
            limit = self._publication.published
            if not self.ready or self.position >= limit:
                return False
            begin = self._log.min_offset
            if self.position < begin:
                self.position, self._skip = begin, 0
            found, records = self._found, self._slice()
            found.clear()
            left = self._scanner.left
            following = self._collect(self.position, limit, found, records)
            while len(found) < records and following < limit and self._scanner.left - left < LEFT:
                following = self._collect(following, limit, found, records)
            begin = 0
            while begin < min(self._skip, len(found)) and found[begin][1] == self.position:
                begin += 1
            self._put(found, begin)
            self.position, self._skip = following, 0
            return True

    def _slice(self) -> int:
        """Return how many records to take at a time."""
        in_memory = self.files[-1].in_memory if self.files else self.behind > TABLE_AT_BYTES
        return FAST_SLICE if in_memory else SLICE

    def _collect(self, position: int, limit: int, found: Keys, records: int) -> int:
        """Collect the keys of up to `records` records from `position` on; return the offset of the next record."""
        data, base = self._window
        at = position - base
        if 0 <= at < len(data):
            stop = self._scanner.scan(data, at, base, found, records)
            if stop > at:
                return base + stop
        log = self._log
        segment = log.segment_at(position)
        if segment is None:
            return limit
        room = min(segment.end, limit) - position
        data = log.read(position, min(WINDOW_BYTES, room))
        if not data:  # its file was removed meanwhile
            return min(limit, max(log.min_offset, position + 1))
        if len(data) >= 8:
            size, magic = SIZE_MAGIC.unpack_from(data)
            if magic == MAGIC_BLANK and position + size == segment.end:
                return segment.end
            if magic in (MAGIC_V1, MAGIC_V2) and len(data) < size <= room:
                data = log.read(position, size)
        self._window = (data, position)
        stop = self._scanner.scan(data, 0, position, found, records)
        if stop:
            return position + stop
        # No record begins here: it is damage that recovery stepped over, or the end of a file.
        return self._next_record(data, position) or min(segment.end, limit, position + max(len(data) - 7, 1))

    def _next_record(self, data: bytes, position: int) -> int:
        """Return the offset of the next record behind `position` in `data`; 0 if there is none."""
        at = data.find(_MAGIC_BEGIN, 5)
        while at >= 0:
            probe = Keys()
            if KeyScanner().scan(data, at - 4, position, probe, 1) > at - 4:
                return position + at - 4
            at = data.find(_MAGIC_BEGIN, at + 1)
        return 0

    def _put(self, keys: Keys, begin: int) -> None:
        """Add keys from `keys[begin]` on to the last file, and to new ones as each gets full.

        The keys before are in the last file already. After an OSError, `position` is the offset to continue at.
        """
        done = begin
        try:
            while done < len(keys):
                if not self.files or self.files[-1].full:
                    self._add_file()
                done += self.files[-1].put(keys, done)
                if self.files[-1].full:
                    self._unsynced = [*self._unsynced, self.files[-1]]
        except OSError:
            first, physical = done, keys[done][1]
            while first and keys[first - 1][1] == physical:
                first -= 1
            self.position, self._skip = physical, done - first
            raise
        self._keys_put += done - begin

    def _add_file(self) -> None:
        """Make the next file. Its header begins with the last file's end, as Apache's does."""
        disk, directory = self._disk, self._directory
        last = self.files[-1] if self.files else None
        disk.make_directory(directory)
        header = IndexHeader(0, 0, 0, 0, 0, FIRST_ENTRY)
        if last is not None:
            header = IndexHeader(last.end_ms, last.end_ms, last.end_offset, last.end_offset, 0, FIRST_ENTRY)
        path = directory / _new_name(self.clock.wall_ms(), last.name if last else "")
        try:
            file = IndexFile(path, disk, self._settings.slots, self._settings.entries, header)
        except OSError:
            try:
                disk.unlink(path)
            except OSError:
                logger.warning("index: half-made file stays path=%s", path)
            raise
        if self.behind > TABLE_AT_BYTES or (last is not None and last.in_memory):
            file.new_table()
        self.files = [*self.files, file]
        self._new_names = True
        logger.info("index: created file=%s", path.name)

    def _prepare(self) -> None:
        """Rebuild the last file's slots if they cannot be trusted; no key is put before."""
        if self._stale_slots:
            if not self._run_steps(self.files[-1].rebuild_slots(), abandon=True):
                return
            self._stale_slots = False
        self.ready = True

    def _hold_slots(self) -> None:
        """Keep the slots of the last file in memory from now on."""
        file = self.files[-1] if self.files else None
        if file is not None and not file.in_memory and not file.full:
            self.ready = False
            try:
                self._run_steps(file.load_table())
            finally:
                self.ready = True

    def _release_slots(self) -> None:
        with self.lock:
            if self.files and self.files[-1].in_memory and self.files[-1].slots_count == self.files[-1].count:
                self.files[-1].drop_table()

    def _run_steps(self, steps: Iterator[None], abandon: bool = False) -> bool:
        """Take the steps one by one, resting in between. abandon: a stop ends it, and it returns False."""
        begin = self.clock.monotonic()
        for _ in steps:
            if abandon and self.stopped:
                return False
            self._rest(self.clock.monotonic() - begin)
            begin = self.clock.monotonic()
        return True

    def _rest(self, spent: float) -> None:
        """Rest, so that other threads get the GIL; the further the index is behind, the shorter."""
        if not self.stopped:
            share = next(share for bytes_, share in _RESTS if self.behind < bytes_)
            self.clock.sleep(max(_REST_MIN_S, spent * share))

    # --- on disk

    def checkpoint(self, stopped: bool = False) -> None:
        """Bring the files, the saved position and Apache's checkpoint up to date. Raises OSError.

        A file whose sync failed is made again: the kernel's pages of it cannot be trusted (D6).
        """
        with self._saving:
            while not self._checkpoint(stopped):
                pass

    def _checkpoint(self, stopped: bool) -> bool:
        """Make one attempt; False if the list of files changed meanwhile, and nothing was saved."""
        with self.lock:
            position, files, finished = self.position, self.files, self._unsynced
        current = files[-1] if files and files[-1] not in finished else None
        for file in [*finished, *([current] if current else [])]:
            self._run_steps(file.write_slots())
            with self.lock:
                if self.files is not files:
                    return False
                position = self.position if file is current else position
                file.write_header()
                summaries = [summary_of(file) for file in files]
            try:
                file.sync()
            except OSError:
                self._drop_from(file)
                raise
        if finished or self._new_names:
            self._new_names = False
            self._disk.sync_directory(self._directory)
        self._position_file.save(IndexPosition(summaries if files else [], position, stopped))
        synced = files if stopped else files[: len(files) - (current is not None)]
        if synced:
            self._small_files.checkpoint.save_index(synced[-1].end_ms)
        with self.lock:
            self._unsynced = [file for file in self._unsynced if file not in finished]
            for file in finished:
                if file.in_memory:
                    file.drop_table()
        self._saved_position, self._saved_at, self._saved_keys = position, self.clock.monotonic(), self._keys_put
        return True

    def _drop_from(self, file: IndexFile) -> None:
        """Delete a file and those behind it; they are made again."""
        with self.lock:
            index = self.files.index(file)
            gone, self.files = self.files[index:], self.files[:index]
            self._unsynced = [other for other in self._unsynced if other in self.files]
            self.position = self.files[-1].end_offset if self.files else self._log.min_offset
            self._skip = self.files[-1].entries_of_last() if self.files else 0
            for other in gone:
                other.close()
        for other in gone:
            self._disk.unlink(other.path)


def _new_name(now_ms: int, after: str) -> str:
    """Return yyyyMMddHHmmssSSS of now, or a name later than `after` if the clock is not."""
    name = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"
    return name if name > after else f"{int(after) + 1:017d}"
