"""The only appender of records: a row of files of equal size, written with one pwrite per tick.

    00000000000000000000              00000000001073741824              00000000002147483648
    | record | record | ... | blank | | record | record | zeros ... | | zeros ...  made ahead |
    ^ min_offset                            durable ^  ^ written

A physical offset counts bytes from the first file ever; a file's name is the offset of its first byte. A record never
crosses files: the rest of a file becomes a blank record, 4 bytes of its size and the 4 bytes 0xCBD43194.

Records are packed into a staging buffer whose first byte will lie at `stage_base`; `write` puts the buffer into the
file with one pwrite and moves `written`. Invariants: durable <= written == stage_base between ticks, every byte below
`written` was written, and every byte below `durable` synced. After a failed write or sync no position moves and the log
is read-only (`broken`) until a restart, because the kernel's cached pages cannot be trusted then.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...clock import SYSTEM, Clock
from ...disk import Disk, DiskUsage
from ...errors import MessageTooLarge, StartError, StoreBroken
from ...hotpath import StageState, values_of
from ...protocol.record import BLANK_BYTES, MAGIC_BLANK, SIZE_MAGIC
from ..paths import segment_name, segment_offset
from ..queues.consume_queue import ENTRY_BYTES
from .segments import WARM_BYTES, Segment, SegmentAllocator

logger = logging.getLogger(__name__)

#: A tick writes at most this much at once (D6), one larger record or batch excepted.
STAGE_BYTES = 1024 * 1024
#: Kept free beside a new file, for queue files, tables and the journal; one file's size if that is less.
RESERVE_BYTES = 16 * 1024 * 1024
#: A disk of this many files keeps two files' room free instead, for records that let an old file go: copies of all that
#: waits in a file can be larger than the file.
_MANY_FILES = 20
#: A `stage_room` that no record fits, even at the beginning of the stage, so that `reserve` checks `refused`.
_NO_ROOM = -(1 << 62)
#: Size of the log's end that counts as cached where the file system cannot say (D2): it was written a moment ago.
RECENT_BYTES = 64 * 1024 * 1024
#: In sync flush, zeros are kept written so far ahead of the log's end on file systems that gain by it: a sync of bytes
#: that were allocated and never written also waits for the file system's journal. Measured on ext4 only.
ZERO_BYTES = 1024 * 1024
#: Syncs of more than this are left alone: for them, writing every byte twice costs more.
ZERO_MOST_BYTES = 128 * 1024
_NEVER = 1 << 62
#: The next file is prepared when this share of the current one is used.
PREPARE_AT = 0.5


class CommitLog(StageState):
    """Append, write and read. Appending belongs to the remoting-io thread; any thread may read below `written`."""

    def __init__(self, directory: Path, disk: Disk, segment_bytes: int, clock: Clock = SYSTEM) -> None:
        # Constant after construction.
        self.directory = directory
        self.segment_bytes = segment_bytes
        #: Disk space that stays free beside a new file; load() knows better, from the disk's size.
        self.kept_bytes = min(segment_bytes, RESERVE_BYTES)
        self._disk = disk
        # Written by remoting-io (start() before it runs), read by anyone; the list is replaced, never changed.
        self.segments: list[Segment] = []
        self.written = 0
        # Written by the flush-commitlog thread, read by anyone; only grows.
        self.durable = 0
        #: Write zeros ahead of the log's end if that makes syncs cheaper. Set before start().
        self.writes_zeros = False
        #: Makes durable what must be so before the log is. Each `sync` calls it, on its own thread. Set before start().
        self.before_sync: Callable[[], None] = lambda: None
        #: True if that has something to do. Any thread; set before start().
        self.owes_before_sync: Callable[[], bool] = lambda: False
        # Held while zeros are written, and while records go beyond `_zeroed`.
        self._zeroing = threading.Lock()
        # Guarded by _zeroing; only grows. Zeros are written at and behind this position, records without the lock below
        # it only: so zeros never replace a record.
        self._zeroed = _NEVER
        #: Owned by flush-commitlog: the end up to which a sync need not look at zeros.
        self.sync_usual_to = _NEVER
        #: Called when the next file could not be made, to have old ones removed. Any thread; set before start().
        self.on_no_room: Callable[[], None] = lambda: None
        #: Called when a file was made. Any thread; set before start().
        self.on_made: Callable[[], None] = lambda: None
        # Written once, by the thread that meets the failure.
        self.broken: str | None = None
        #: Identity of the directory that load() opened.
        self._place: object = None
        # Owned by remoting-io.
        self.stage = bytearray(STAGE_BYTES)
        self.staged = 0
        self.stage_base = 0
        self.stage_room = STAGE_BYTES
        self.kept = self.kept_end = 0
        #: Reason that no records are taken for now. The stage has no room then, which is how `reserve` comes to see it.
        self.refused: str | None = None
        #: Reasons for refusing records, by the part that refuses.
        self._refusals: dict[str, str] = {}
        self._is_freeing = False
        #: True from when the room kept free was used until it is free again: only records that let a file go are taken.
        #: Read by anyone.
        self.is_low = False
        #: Number of appends, each of a record or a batch, that the log did not take.
        self.not_taken = 0
        self.segment_end = 0
        self._allocator = SegmentAllocator(self, clock)

    # --- opening

    def load(self) -> None:
        """Open the files that are there. Raises StartError when their names or sizes do not form a log."""
        self._disk.make_directory(self.directory)
        self._place = self._disk.identity(self.directory)
        if self.usage().total_bytes >= _MANY_FILES * self.segment_bytes:
            self.kept_bytes = 2 * self.segment_bytes
        # A process that died may have left names that it had not synced yet.
        self._disk.sync_directory(self.directory)
        found: list[Segment] = []
        self.segments = found
        for name in self._disk.names(self.directory):
            path = self.directory / name
            start = segment_offset(name)
            if start is None or self._disk.is_directory(path):
                logger.warning("commit log: foreign file left alone path=%s", path)
                continue
            if found and found[-1].end != start:
                raise StartError(f"The commit log has a gap: {path.name} does not follow {found[-1].path.name}.")
            fd = self._disk.open(path)
            found.append(Segment(path, fd, start, self.segment_bytes, self._disk))
            size = self._disk.size(fd)
            if size != self.segment_bytes:
                if size == 0 or self._is_blank(fd, size):
                    # A crash cut the allocation of this file short: nothing in it was ever acknowledged.
                    self._disk.allocate(fd, self.segment_bytes)
                    self._disk.fsync(fd)
                else:
                    raise StartError(
                        f"{path} has {size} bytes, but mappedFileSizeCommitLog is {self.segment_bytes}: "
                        "set it to the size the store was made with."
                    )

    def _is_blank(self, fd: int, size: int) -> bool:
        position = 0
        while position < size:
            chunk = self._disk.pread(fd, 1 << 20, position)
            if not chunk or chunk.strip(b"\0"):
                return not chunk
            position += len(chunk)
        return True

    def start(self, end: int) -> None:
        """Begin appending at `end`, where recovery found the log's end; make the first file of an empty store."""
        self.written = self.durable = self.stage_base = end
        if not self.segments or self.segments[-1].end == end:
            start = self.segments[-1].end if self.segments else end - end % self.segment_bytes
            self.add_segment(self.create_segment(start))
        self.segment_end = next(s.end for s in self.segments if s.end > end)
        if self.writes_zeros and self._disk.gains_by_zeros(self.directory):
            self._zeroed = self.sync_usual_to = end
        self._allocator.start()
        self._prepare_ahead()
        if self.kept_bytes >= self.segment_bytes:
            self._look_at_room()

    @property
    def room_bytes(self) -> int:
        """Disk space that must be free before the next file is made."""
        return self.segment_bytes + self.kept_bytes

    def create_segment(self, start: int, frees: bool = False) -> Segment:
        """Make one file at its full size and sync it and its directory. Raises OSError when the disk has no room.
        frees: use the room kept free, too."""
        path = self.directory / segment_name(start)
        self.check_place()
        # Free space is checked first: even an allocation that fails takes the space of others for a moment.
        if self._disk.free_bytes(self.directory) < (self.segment_bytes if frees else self.room_bytes):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        fd = self._disk.open(path, create=True)
        try:
            self._disk.allocate(fd, self.segment_bytes)
            self._disk.fsync(fd)
            self._disk.sync_directory(self.directory)
        except OSError:
            self._disk.close(fd)
            try:
                self._disk.unlink(path)
            except OSError as error:
                logger.warning("commit log: half-made file stays path=%s: %s", path, error)
            raise
        logger.info("commit log: created file=%s size_bytes=%d", path.name, self.segment_bytes)
        self.on_made()
        return Segment(path, fd, start, self.segment_bytes, self._disk)

    def check_place(self) -> None:
        """Break the log and raise OSError if its directory is not the one that load() opened. Any thread.

        An unmounted disk leaves a directory of that name; a file made there would be missing in the log.
        """
        try:
            if self._disk.identity(self.directory) == self._place:
                return
            reason = "it is another directory now"
        except OSError as error:
            reason = error.strerror or str(error)
        self.fail(f"the directory {self.directory} has vanished: {reason}")
        raise OSError(errno.ESTALE, f"it has vanished: {reason}", str(self.directory))

    def add_segment(self, segment: Segment) -> None:
        self.segments = [*self.segments, segment]

    # --- appending, on remoting-io

    def reserve(self, size: int) -> int:
        """Reserve room for one record of `size` bytes in `stage`; return its index there.

        The record's physical offset is `stage_base` + index. Writes and rolls first when it does not fit. Raises
        StoreBroken when the log cannot take it, or fails now; MessageTooLarge when it would not fit any file.
        """
        at = self.staged
        if at + size > self.stage_room or self.stage_base + at + size + BLANK_BYTES > self.segment_end:
            try:
                at = self._make_room(size)
            except StoreBroken:
                self.not_taken += 1
                raise
        self.staged = at + size
        return at

    def _make_room(self, size: int) -> int:
        if self.refused is not None:
            raise StoreBroken(self.refused)
        if size + BLANK_BYTES > self.segment_bytes:
            raise MessageTooLarge(f"{size} bytes do not fit a commit log file of {self.segment_bytes}")
        self.write()
        if self.written + size + BLANK_BYTES > self.segment_end:
            self._roll()
        self.stage_room = max(size, STAGE_BYTES)
        if len(self.stage) != self.stage_room:
            self.stage = bytearray(self.stage_room)
            self.kept_end = 0
        return 0

    def unstage(self, at: int) -> None:
        """Take back what was reserved from `at` on: its bytes could not be made, or not all of them."""
        self.staged = at
        self.kept_end = 0

    def write(self) -> None:
        """Write the staged bytes to the file. Raises StoreBroken; then none of them count as written."""
        if self.broken is not None:
            self.unstage(0)
            raise StoreBroken(self.broken)
        size = self.staged
        if not size:
            return
        segment = self.segment_at(self.stage_base)
        assert segment is not None
        assert self.stage_base + size + BLANK_BYTES <= segment.end
        self._write_all(segment, memoryview(self.stage)[:size], self.stage_base)
        self.kept = self.stage_base
        self.written = self.stage_base = self.kept_end = self.stage_base + size
        self.staged = 0

    def _write_all(self, segment: Segment, data: memoryview, offset: int) -> None:
        if offset + len(data) > self._zeroed:
            with self._zeroing:
                self._zeroed = max(self._zeroed, offset + len(data))
        try:
            self._disk.write_all(segment.fd, data, offset - segment.start)
        except OSError as error:
            self.unstage(0)
            self.fail(f"writing {segment.path.name} failed: {error.strerror or error}")
            raise StoreBroken(self.broken) from None

    def append_copy(self, data: bytes | memoryview) -> None:
        """Stage whole records of another broker's log, which lie at the same physical offset there. They must fit the
        current file and leave room for a blank record. Raises StoreBroken."""
        at = self.staged
        if at + len(data) > len(self.stage):
            self.write()
            at = 0
            if len(data) > len(self.stage):
                self.stage = bytearray(len(data))
                self.kept_end = 0
        assert self.stage_base + at + len(data) + BLANK_BYTES <= self.segment_end
        self.stage[at : at + len(data)] = data
        self.staged = at + len(data)

    def roll_copy(self, blank: bytes) -> None:
        """Close the current file as another broker closed its own, and continue in the next one. blank: all bytes of
        that broker's file from there to its end. Uses the room kept free: its leader had room for what it stored.
        Raises StoreBroken."""
        self.write()
        assert len(blank) == self.segment_end - self.written
        self._roll(blank.rstrip(b"\0"), frees=True)  # the file holds zeros already

    def begin_at(self, start: int) -> None:
        """Let an empty log begin with the file that begins at `start`. Raises StoreBroken."""
        assert self.written == self.segments[0].start
        assert not self.staged
        gone, self.segments = self.segments, []
        try:
            # In this order: after a crash in between, the log has no files, but never a gap.
            for segment in gone:
                self.unlink(segment)
            self.sync_directory()
            self.segments = [self.create_segment(start)]
        except OSError as error:
            self.fail(f"the log cannot begin at {start}: {error.strerror or error}")
            raise StoreBroken(self.broken) from None
        finally:
            for segment in gone:
                segment.release()
        self.written = self.durable = self.stage_base = start
        self.kept_end = 0
        self.segment_end = start + self.segment_bytes

    def _roll(self, blank: bytes = b"", frees: bool = False) -> None:
        """Close the current file with a blank record, the given one or a new one, and continue in the next file. frees:
        as `create_segment`'s."""
        current = self.segment_at(self.written)
        assert current is not None
        following = self.segment_at(current.end)
        if following is None:
            try:
                following = self._allocator.obtain(current.end, frees or self._is_freeing)
            except OSError as error:
                # Nothing was written: the log stays usable and tries again at the next record.
                self.on_no_room()
                raise StoreBroken(f"no room for the next commit log file: {error.strerror or error}") from None
            self.add_segment(following)
            if self._is_freeing:
                self._look_at_room()
        left = current.end - self.written
        blank = blank or SIZE_MAGIC.pack(left, MAGIC_BLANK)
        self._write_all(current, memoryview(blank), self.written)
        self.written = self.stage_base = following.start
        self.segment_end = following.end
        logger.info("commit log: rolled file=%s", following.path.name)

    def _prepare_ahead(self) -> None:
        """Ask for the next file when half of this one is used."""
        if self.segment_end - self.written < self.segment_bytes * (1 - PREPARE_AT):
            last = self.segments[-1]
            if last.end == self.segment_end:
                self._allocator.prepare(last.end)

    def after_write(self) -> None:
        """Prepare the next file and pages if they are due. Called once a tick, after `write`."""
        if self.segment_end - self.written < self.segment_bytes * (1 - PREPARE_AT):
            self._prepare_ahead()
        if self._allocator.warmed - self.written < WARM_BYTES // 2:
            self._allocator.keep_warm()

    def fail(self, reason: str) -> None:
        """Take no appends from now on: the kernel's pages cannot be trusted after a failed write or sync (D6)."""
        if self.broken is None:
            self.broken = reason
            logger.error("commit log: read-only from now on: %s", reason)

    # --- removing, on remoting-io

    def refuse(self, reason: str | None, by: str = "disk") -> None:
        """Refuse further records on behalf of `by`, for a temporary reason. None withdraws it: the log takes records
        again unless another part refuses them. Staged records are still written."""
        if reason is None:
            self._refusals.pop(by, None)
            if by == "disk" and self.is_low:
                self._look_at_room()
        else:
            self._refusals[by] = reason
        self._refuse_or_take()

    def _look_at_room(self) -> None:
        """Refuse ordinary records while the room kept free is not there: they would use what is left of it."""
        try:
            self.is_low = self._disk.free_bytes(self.directory) < self.kept_bytes
        except OSError as error:
            logger.warning("commit log: the room on its disk is not known: %s", error)
        if self.is_low:
            self._refusals.setdefault("disk", "the broker's disk has only the room to store waiting messages again")
        self._refuse_or_take()

    def _refuse_or_take(self) -> None:
        reason = None if self._is_freeing else next(iter(self._refusals.values()), None)
        if reason != self.refused:
            self.refused = reason
            self.stage_room = _NO_ROOM if reason is not None else len(self.stage)

    @contextmanager
    def freeing(self) -> Iterator[None]:
        """Within it, take records even from a full disk and use the space kept free for the next file. For records that
        allow an old file to be removed. Changes nothing while another part than the disk refuses records."""
        if self._refusals.keys() - {"disk"}:
            yield
            return
        self._is_freeing = True
        self._refuse_or_take()
        try:
            yield
        finally:
            self._is_freeing = False
            self._refuse_or_take()

    def not_taking(self) -> str | None:
        """Return the reason that no record is taken now, and count one as not taken; None if records are taken. Asked
        before work that would be in vain."""
        reason = self.broken or self.refused
        self.not_taken += reason is not None
        return reason

    def refused_by(self, by: str) -> str | None:
        """Return the reason that `by` refuses records, None if it does not. Any thread."""
        return self._refusals.get(by)

    def remove_before(self, offset: int) -> list[Segment]:
        """Remove the files that end at or below `offset`; the caller unlinks and releases them, in order.

        The file being written stays, and so do files that are not durable. New readers find nothing below the new
        `min_offset`; those in the middle of a removed file hold it.
        """
        limit = min(offset, self.durable)
        gone = [segment for segment in self.segments[:-1] if segment.end <= limit]
        if gone:
            self.segments = self.segments[len(gone) :]
        return gone

    def usage(self) -> DiskUsage:
        """Return the usage of the log's disk. Raises OSError."""
        return self._disk.usage(self.directory)

    def modified_ms(self, segment: Segment) -> int:
        """Return the time of the last write to a file, by the file system's clock. Raises OSError."""
        return self._disk.modified_ms(segment.fd)

    def unlink(self, segment: Segment) -> None:
        """Delete a file that has left the log; durable with `sync_directory`. Raises OSError."""
        self._disk.unlink(segment.path)

    def sync_directory(self) -> None:
        self._disk.sync_directory(self.directory)

    # --- reading, from any thread

    @property
    def min_offset(self) -> int:
        segments = self.segments
        return segments[0].start if segments else 0

    def segment_at(self, offset: int) -> Segment | None:
        """Return the file that holds physical offset `offset`; None if there is none."""
        segments = self.segments
        if not segments:
            return None
        index = (offset - segments[0].start) // self.segment_bytes
        return segments[index] if 0 <= index < len(segments) else None

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes below `written`; may wait for the disk. Empty when no file holds the offset."""
        segment = self.segment_at(offset)
        if segment is None or not segment.hold():
            return b""
        try:
            size = min(size, segment.end - offset, self.written - offset)
            return self._disk.pread(segment.fd, size, offset - segment.start) if size > 0 else b""
        finally:
            segment.release()

    def send_to(self, sock: socket.socket, segment: Segment, offset: int, size: int) -> int:
        """Send bytes below `written` of a file that the caller holds; return how many the socket took at once. May wait
        for the disk. Raises BlockingIOError when the socket takes none."""
        return self._disk.send_to(sock, segment.fd, offset - segment.start, size)

    def property_values(self, entries: bytes, first: int, most: int, names: tuple[bytes, ...]) -> list[bytes | None]:
        """Return what `filter/projection.py` finds in the records of up to `most` queue entries, from entry number
        `first` on: fewer where a file ends, none if no file holds the first. May wait for the disk, without the GIL.

        Only allowed if `reads_values`. Raises OSError.
        """
        at = first * ENTRY_BYTES
        segment = self.segment_at(int.from_bytes(entries[at : at + 8], "big", signed=True))
        if segment is None or not segment.hold():
            return []
        try:
            found: list[bytes | None] = values_of(segment.fd, segment.start, segment.end, entries, first, most, names)
            return found
        finally:
            segment.release()

    @property
    def reads_values(self) -> bool:
        """True if `property_values` may be called: the hot path is compiled and the disk is the real one."""
        return values_of is not None and self.on_real_disk

    def read_nowait(self, offset: int, buffer: memoryview) -> bool:
        """Fill `buffer` from the page cache; False if that would have to wait or no file holds it. On remoting-io.

        The records written last come from the stage, as long as it holds them: pulls that they wake want them.
        Where the file system cannot say what is cached, the log's last RECENT_BYTES count as cached (D2).
        """
        if self.kept <= offset and offset + len(buffer) <= self.kept_end and not self.staged:
            at = offset - self.kept
            buffer[:] = memoryview(self.stage)[at : at + len(buffer)]
            return True
        segment = self.segment_at(offset)
        if segment is None:
            return False
        try:
            return self._disk.read_nowait(segment.fd, buffer, offset - segment.start) == len(buffer)
        except OSError:
            return self._is_recent(offset) and self._read_recent(segment, offset, buffer)

    def _is_recent(self, offset: int) -> bool:
        """True if an offset counts as cached because the file system cannot say what is."""
        return not self._disk.reads_without_waiting and offset >= self.written - RECENT_BYTES

    def _read_recent(self, segment: Segment, offset: int, buffer: memoryview) -> bool:
        try:
            data = self._disk.pread(segment.fd, len(buffer), offset - segment.start)
        except OSError:
            return False
        buffer[: len(data)] = data
        return len(data) == len(buffer)

    def resident(self, offset: int, size: int) -> tuple[int, int] | None:
        """Return (descriptor, position in the file) of a range of one file that the page cache is known to hold.

        On remoting-io, and valid for the current call only: the file may be removed later. A file system without reads
        that never wait may wait for more than a disk (a network server): there only the log's end counts as cached.
        """
        segment = self.segment_at(offset)
        if segment is None or offset + size > segment.end:
            return None
        disk = self._disk
        if not disk.reads_without_waiting and not self._is_recent(offset):
            return None
        position = offset - segment.start
        return (segment.fd, position) if disk.is_resident(segment.fd, position, size) else None

    # --- syncing, on flush-commitlog

    def sync(self) -> int:
        """Make everything written so far durable; return the new durable position. Raises StoreBroken."""
        target = self.written  # read before the sync is called (D6)
        self.before_sync()
        if self.broken is not None:
            raise StoreBroken(self.broken)
        if target > self.durable:
            if target > self.sync_usual_to:
                self._write_zeros(target)
            for segment in self.segments:
                if segment.end > self.durable and segment.start < target:
                    try:
                        self._disk.fdatasync(segment.fd)
                    except OSError as error:
                        self.sync_failed(segment, error.strerror or str(error))
                        raise StoreBroken(self.broken) from None
            assert target <= self.written
            # A stop syncs too, perhaps while the thread waits for a slow disk: neither may move `durable` back.
            self.durable = max(self.durable, target)
        return target

    def sync_failed(self, segment: Segment, reason: str) -> None:
        """Break the log, since a sync of one of its files failed."""
        self.fail(f"syncing {segment.path.name} failed: {reason}")

    def _write_zeros(self, target: int) -> None:
        """Write zeros behind the log's end, which the sync of `target` includes. The file holds zeros there already,
        but as extents that the file system's journal has to mark as written with each sync."""
        self.sync_usual_to = target + ZERO_BYTES // 2
        if target - self.durable > ZERO_MOST_BYTES:
            return
        with self._zeroing:
            begin = self._zeroed
            segment = self.segment_at(begin)
            end = min(target + ZERO_BYTES, segment.end) if segment is not None else 0
            if segment is None or begin >= end:
                return
            try:
                # As many as the disk takes at once: the loop may wait for the lock.
                self._zeroed = begin + self._disk.pwrite(segment.fd, bytes(end - begin), begin - segment.start)
            except OSError as error:
                logger.warning("commit log: zeros ahead of the end cannot be written, so none will be: %s", error)
                self._zeroed = self.sync_usual_to = _NEVER

    @property
    def on_real_disk(self) -> bool:
        return type(self._disk) is Disk

    def close(self) -> None:
        """Stop preparing files and close all. The prepared file stays on the disk, as Apache's does."""
        self._allocator.stop()
        prepared = self._allocator.take_any()
        for segment in [*self.segments, *([prepared] if prepared else [])]:
            segment.release()
        self.segments = []
