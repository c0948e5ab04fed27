"""CRCs of closed commit log files, block by block (D3). Apache's CRC covers a record's body; these cover every byte.

`DATA/rocketbox/blocks/<20 digits>`, named like the log file it belongs to:

    "RBXB" 4 | block size 4 | start 8 | file size 8 | one CRC-32 of 4 bytes a block | CRC-32 of all before 4

A file is sealed once it is closed and durable. Now and then it is scrubbed: read again, from the disk if the system
allows it, and compared. A mismatch is a finding, shown by health and by the window; the bytes stay as they are.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator

from zlib_ng.zlib_ng import crc32

from ...clock import Clock
from ...disk import Disk
from ...errors import CorruptFile
from ...service_thread import ServiceThread
from ..paths import StorePaths, segment_name, segment_offset
from ..publication import Publication
from ..store_files import StoreFiles
from .commit_log import CommitLog, Segment

logger = logging.getLogger(__name__)

MAGIC = b"RBXB"
_HEAD = struct.Struct(">4siqq")
#: 64 KiB: a wrong byte is narrowed down to this much; its CRC takes 1.2 us, less than a switch of threads.
BLOCK_BYTES = 64 * 1024
#: Bytes read at a time; the thread sleeps between two reads.
SLICE_BYTES = 1024 * 1024
#: Limits on reading, per second: from the page cache, which still holds a file that was just closed; from the disk, to
#: seal files that were there before the start; from the disk, to scrub.
CACHED_BYTES_PER_S = 256 * 1024 * 1024
SEAL_BYTES_PER_S = 32 * 1024 * 1024
SCRUB_BYTES_PER_S = 8 * 1024 * 1024
#: Time from the beginning of one scrub to the next, and from a start to its first scrub.
SCRUB_EVERY_S = 24 * 3600.0
SCRUB_DELAY_S = 600.0
#: Interval at which the thread looks for newly closed files.
LOOK_S = 2.0
RETRY_S = 30.0


def encode_checksums(start: int, file_bytes: int, checksums: list[int]) -> bytes:
    """Return the content of one checksum file. start: physical offset of the log file's first byte."""
    raw = _HEAD.pack(MAGIC, BLOCK_BYTES, start, file_bytes) + struct.pack(f">{len(checksums)}I", *checksums)
    return raw + crc32(raw).to_bytes(4, "big")


def decode_checksums(raw: bytes) -> tuple[int, int, int, tuple[int, ...]]:
    """Return (start, file size, block size, checksums). Raises CorruptFile."""
    if len(raw) < _HEAD.size + 4 or crc32(raw[:-4]) != int.from_bytes(raw[-4:], "big"):
        raise CorruptFile("its own checksum does not match")
    magic, block_bytes, start, file_bytes = _HEAD.unpack_from(raw)
    count = (len(raw) - _HEAD.size - 4) // 4
    if magic != MAGIC or block_bytes <= 0 or count != -(-file_bytes // block_bytes):
        raise CorruptFile("it is of no kind that is known here")
    return start, file_bytes, block_bytes, struct.unpack_from(f">{count}I", raw, _HEAD.size)


class BlockChecksums:
    """The checksum files, without a thread: read, written and removed by the log file they belong to."""

    def __init__(self, paths: StorePaths, disk: Disk) -> None:
        self.directory = paths.own / "blocks"
        self._disk = disk

    def starts(self) -> list[int]:
        """Return the physical offsets at which the sealed log files begin."""
        try:
            names = self._disk.names(self.directory)
        except FileNotFoundError:
            return []
        return [start for name in names if (start := segment_offset(name)) is not None]

    def load(self, start: int) -> tuple[int, tuple[int, ...]] | None:
        """Return (block size, checksums) of one log file; None if it is not sealed. Raises CorruptFile, OSError."""
        raw = self._disk.read_if_any(self.directory / segment_name(start))
        if raw is None:
            return None
        named, _, block_bytes, checksums = decode_checksums(raw)
        if named != start:
            raise CorruptFile(f"it belongs to the file that begins at {named}")
        return block_bytes, checksums

    def save(self, start: int, file_bytes: int, checksums: list[int]) -> None:
        """Seal one log file. A torn checksum file is made again after the next start. Raises OSError."""
        self._disk.make_directory(self.directory)
        self._disk.replace(self.directory / segment_name(start), encode_checksums(start, file_bytes, checksums))

    def remove(self, start: int) -> None:
        """Unseal one log file, if it is sealed. Raises OSError."""
        try:
            self._disk.unlink(self.directory / segment_name(start))
        except FileNotFoundError:
            pass


def mismatches(
    fd: int,
    disk: Disk,
    block_bytes: int,
    checksums: tuple[int, ...],
    read: Callable[[int, int, int], bytes] | None = None,
) -> Iterator[tuple[int, int] | None]:
    """Yield (begin, end) in the file of each run of blocks that do not match; None after each SLICE_BYTES read.

    read(fd, size, position): replaces the disk's own read.
    """
    read = read or disk.pread
    begin = -1
    position = 0
    per_slice = max(1, SLICE_BYTES // block_bytes)
    for first in range(0, len(checksums), per_slice):
        wanted = checksums[first : first + per_slice]
        data = memoryview(read(fd, len(wanted) * block_bytes, first * block_bytes))
        for index, checksum in enumerate(wanted):
            block = data[index * block_bytes : (index + 1) * block_bytes]
            position = (first + index) * block_bytes
            if crc32(block) != checksum:
                begin = position if begin < 0 else begin
            elif begin >= 0:
                yield begin, position
                begin = -1
        yield None
    if begin >= 0:
        yield begin, min(position + block_bytes, disk.size(fd))


class BlockChecksumService(ServiceThread):
    """The thread `checksum-blocks`: seals closed files, scrubs sealed ones. Owns the directory `blocks`."""

    def __init__(
        self, log: CommitLog, publication: Publication, paths: StorePaths, disk: Disk, files: StoreFiles, clock: Clock
    ) -> None:
        super().__init__("checksum-blocks", clock)
        # Constant after construction.
        self._log = log
        self._publication = publication
        self._disk = disk
        self._files = files
        self.checksums = BlockChecksums(paths, disk)
        # Owned by this thread.
        self._next_scrub = 0.0
        # Physical offsets at which sealed files begin.
        self._known: set[int] = set()
        self._was_cached = True
        # Written by this thread, read by anyone.
        self.sealed = 0
        #: (file name, begin, end) of each physical range whose bytes differ from the sealed ones.
        self.damaged: tuple[tuple[str, int, int], ...] = ()
        #: Reason that a file could not be sealed or read; None while all is well.
        self.failure: str | None = None

    def run(self) -> None:
        self._next_scrub = self.clock.monotonic() + SCRUB_DELAY_S
        self.guarded(self.forget_strangers)
        while not self.stopped:
            well = self.guarded(self.seal_closed)
            if well and self.clock.monotonic() >= self._next_scrub and not self.stopped:
                self._next_scrub = self.clock.monotonic() + SCRUB_EVERY_S
                well = self.guarded(self.scrub)
            self.wait(LOOK_S if well else RETRY_S)

    def guarded(self, step: Callable[[], None]) -> bool:
        """Run one of the steps below; True if it succeeded. A disk error is kept in `failure`, for a later retry."""
        try:
            step()
        except OSError as error:
            self.failure = f"reading or sealing closed log files failed: {error.strerror or error}"
            logger.error("block checksums: %s", self.failure)
            return False
        self.failure = None
        return True

    # --- sealing

    def closed(self) -> list[Segment]:
        """Return the log files that are durable and published to their end: nothing is written to them again."""
        end = min(self._log.durable, self._publication.published)
        return [segment for segment in self._log.segments if segment.end <= end]

    def forget_strangers(self) -> None:
        """At the start, remove checksums of files that are gone, or open again because the log's end was cut back."""
        closed = {segment.start for segment in self.closed()}
        for start in self.checksums.starts():
            if start not in closed:
                self.checksums.remove(start)
                continue
            try:
                self.checksums.load(start)
            except CorruptFile as error:
                logger.warning("block checksums: %s is made again: %s", segment_name(start), error)
                self.checksums.remove(start)
        self._known = set(self.checksums.starts())
        self.sealed = len(self._known)

    def seal_closed(self) -> None:
        """Give every closed file its checksums, oldest first. Raises OSError."""
        for segment in self.closed():
            if segment.start not in self._known and not self.stopped:
                self._seal(segment)

    def _seal(self, segment: Segment) -> None:
        size = segment.end - segment.start
        found: list[int] = []
        fd = self._open(segment)
        if fd < 0:
            return
        try:
            for position in range(0, size, SLICE_BYTES):
                data = memoryview(self._read(fd, min(SLICE_BYTES, size - position), position))
                if len(data) < min(SLICE_BYTES, size - position):
                    raise OSError(0, f"{segment.path.name} is shorter than it was")
                found += [crc32(data[at : at + BLOCK_BYTES]) for at in range(0, len(data), BLOCK_BYTES)]
                if self._pause(SEAL_BYTES_PER_S):
                    return
        finally:
            self._disk.close(fd)
        self.checksums.save(segment.start, size, found)
        self._known.add(segment.start)
        self.sealed = len(self._known)
        logger.info("block checksums: sealed file=%s blocks=%d", segment.path.name, len(found))

    def _open(self, segment: Segment) -> int:
        """Return a descriptor for this thread alone, which no other thread can close; -1 if the file is gone."""
        try:
            return self._disk.open(segment.path, read_only=True)
        except FileNotFoundError:
            return -1

    def _read(self, fd: int, size: int, position: int) -> bytes:
        """Read a slice of a file, and drop it from the page cache again if it was not there before."""
        self._was_cached = self._disk.is_resident(fd, position, size)
        data = self._disk.pread(fd, size, position)
        if not self._was_cached:
            self._disk.forget_range(fd, position, size)
        return data

    def _pause(self, bytes_per_s: int) -> bool:
        """Sleep after a slice, at a rate of `bytes_per_s` if it came from the disk; True if the thread has to stop."""
        if not self.stopped:
            self.wait(SLICE_BYTES / (CACHED_BYTES_PER_S if self._was_cached else bytes_per_s))
        return self.stopped

    # --- scrubbing

    def scrub(self) -> None:
        """Read every sealed file once and compare. Raises OSError."""
        closed = {segment.start: segment for segment in self.closed()}
        damaged: list[tuple[str, int, int]] = []
        for start in self.checksums.starts():
            segment = closed.get(start)
            if segment is not None:
                damaged += [(segment.path.name, begin, end) for begin, end in self._scrub_file(segment)]
            if self.stopped:
                return
        self.damaged = tuple(damaged)

    def _scrub_file(self, segment: Segment) -> list[tuple[int, int]]:
        """Return the physical ranges of a file whose bytes differ from the sealed ones."""
        try:
            sealed = self.checksums.load(segment.start)
        except CorruptFile as error:
            logger.warning("block checksums: %s is made again: %s", segment.path.name, error)
            self.checksums.remove(segment.start)
            self._known.discard(segment.start)
            return []
        fd = self._open(segment)
        if sealed is None or fd < 0:
            return []
        found: list[tuple[int, int]] = []
        try:
            for step in mismatches(fd, self._disk, *sealed, self._read):
                if step is None:
                    if self._pause(SCRUB_BYTES_PER_S):
                        return found
                else:
                    found.append((segment.start + step[0], segment.start + step[1]))
                    self._tell(segment, *found[-1])
        finally:
            self._disk.close(fd)
        return found

    def _tell(self, segment: Segment, begin: int, end: int) -> None:
        reason = "These bytes are not the ones that were sealed: the disk or another program altered them."
        file = f"commitlog/{segment.path.name}"
        logger.error("block checksums: %s [%d, %d): %s", file, begin, end, reason)
        self._files.report("blocks", file, reason, begin, end)

    # --- removal

    def removed(self, begin: int) -> None:
        """Remove the checksums of files before `begin`, the log's new first offset. On the cleaner's thread."""
        for start in self.checksums.starts():
            if start < begin:
                self.checksums.remove(start)
