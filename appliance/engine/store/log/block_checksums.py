"""CRCs of closed commit log files, block by block (D3): Apache's CRC covers a record's body only, these every byte.

`DATA/rocketbox/blocks/<20 digits>`, named as the log file it belongs to:

    "RBXB" 4 | block size 4 | start 8 | file size 8 | one CRC-32 of 4 bytes a block | CRC-32 of all before 4

A file is sealed once it is closed and durable, and scrubbed now and then: read again, from the disk if the system lets
us, and compared. What does not match is a finding and shows in health and in the window; the bytes stay as they are.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from zlib_ng.zlib_ng import crc32

from ...errors import CorruptFile
from ...service_thread import ServiceThread
from ..disk import Disk
from ..findings import Finding
from ..paths import StorePaths, segment_name, segment_offset

if TYPE_CHECKING:
    from ..message_store import MessageStore
    from .commit_log import Segment

logger = logging.getLogger(__name__)

MAGIC = b"RBXB"
_HEAD = struct.Struct(">4siqq")
#: 64 KiB: a wrong byte is narrowed down to this much; its CRC takes 1.2 us, less than a switch of threads.
BLOCK_BYTES = 64 * 1024
#: Read in one go; between two of them the thread sleeps.
SLICE_BYTES = 1024 * 1024
#: What may be read a second: from the page cache, where a file that was just closed is; from the disk, to seal files
#: that were there before; from the disk, to scrub.
CACHED_BYTES_PER_S = 256 * 1024 * 1024
SEAL_BYTES_PER_S = 32 * 1024 * 1024
SCRUB_BYTES_PER_S = 8 * 1024 * 1024
#: A scrub begins so long after the last one began, and so long after a start.
SCRUB_EVERY_S = 24 * 3600.0
SCRUB_DELAY_S = 600.0
#: How often the thread looks for a file that has been closed.
LOOK_S = 2.0
RETRY_S = 30.0


def encode_checksums(start: int, file_bytes: int, checksums: list[int]) -> bytes:
    """A whole file. start: physical offset of the log file's first byte."""
    raw = _HEAD.pack(MAGIC, BLOCK_BYTES, start, file_bytes) + struct.pack(f">{len(checksums)}I", *checksums)
    return raw + crc32(raw).to_bytes(4, "big")


def decode_checksums(raw: bytes) -> tuple[int, int, int, tuple[int, ...]]:
    """(start, file size, block size, checksums). Raises CorruptFile."""
    if len(raw) < _HEAD.size + 4 or crc32(raw[:-4]) != int.from_bytes(raw[-4:], "big"):
        raise CorruptFile("its own checksum does not match")
    magic, block_bytes, start, file_bytes = _HEAD.unpack_from(raw)
    count = (len(raw) - _HEAD.size - 4) // 4
    if magic != MAGIC or block_bytes <= 0 or count != -(-file_bytes // block_bytes):
        raise CorruptFile("it is of no kind that is known here")
    return start, file_bytes, block_bytes, struct.unpack_from(f">{count}I", raw, _HEAD.size)


class BlockChecksums:
    """The files, without a thread: which log files are sealed, and with what."""

    def __init__(self, paths: StorePaths, disk: Disk) -> None:
        self.directory = paths.own / "blocks"
        self._disk = disk

    def starts(self) -> list[int]:
        """Where the sealed log files begin."""
        try:
            names = self._disk.names(self.directory)
        except FileNotFoundError:
            return []
        return [start for name in names if (start := segment_offset(name)) is not None]

    def load(self, start: int) -> tuple[int, tuple[int, ...]] | None:
        """(block size, checksums) of one log file; None when it is not sealed. Raises CorruptFile, OSError."""
        try:
            fd = self._disk.open(self.directory / segment_name(start), read_only=True)
        except FileNotFoundError:
            return None
        try:
            raw = self._disk.pread(fd, self._disk.size(fd), 0)
        finally:
            self._disk.close(fd)
        said, _, block_bytes, checksums = decode_checksums(raw)
        if said != start:
            raise CorruptFile(f"it belongs to the file that begins at {said}")
        return block_bytes, checksums

    def save(self, start: int, file_bytes: int, checksums: list[int]) -> None:
        """Seal one log file. A torn one is made anew after the next start. Raises OSError."""
        self._disk.make_directory(self.directory)
        self._disk.replace(self.directory / segment_name(start), encode_checksums(start, file_bytes, checksums))

    def remove(self, start: int) -> None:
        """Raises OSError."""
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
    """(begin, end) in the file of each row of blocks that do not match; None after each SLICE_BYTES read.

    read(fd, size, position): instead of the disk's own.
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

    def __init__(self, store: MessageStore) -> None:
        super().__init__("checksum-blocks")
        self._store = store
        self._disk = store.disk
        self.checksums = BlockChecksums(store.paths, store.disk)
        self._next_scrub = 0.0
        # Owned by this thread: where sealed files begin.
        self._known: set[int] = set()
        self._was_cached = True
        # Written by this thread, read by anyone.
        self.sealed = 0
        #: (file name, begin, end) of physical offsets whose bytes are not those that were sealed.
        self.damaged: tuple[tuple[str, int, int], ...] = ()
        #: Why a file could not be sealed or read; None when all is well.
        self.failure: str | None = None
        self.scrubbed_bytes = 0

    def run(self) -> None:
        self._next_scrub = time.monotonic() + SCRUB_DELAY_S
        self.guarded(self.forget_strangers)
        while not self.stopped:
            well = self.guarded(self.seal_closed)
            if well and time.monotonic() >= self._next_scrub and not self.stopped:
                self._next_scrub = time.monotonic() + SCRUB_EVERY_S
                well = self.guarded(self.scrub)
            self.wait(LOOK_S if well else RETRY_S)

    def guarded(self, step: Callable[[], None]) -> bool:
        """Run one of the steps below; a disk that refuses is told in `failure` and tried again."""
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
        """Files of the log that nothing will be written to any more, and that are durable."""
        log = self._store.log
        return [segment for segment in log.segments if segment.end <= min(log.durable, self._store.published)]

    def forget_strangers(self) -> None:
        """At the start: checksums of files that are gone, or open again because the log's end was cut back."""
        closed = {segment.start for segment in self.closed()}
        for start in self.checksums.starts():
            if start not in closed:
                self.checksums.remove(start)
                continue
            try:
                self.checksums.load(start)
            except CorruptFile as error:
                logger.warning("block checksums: %s is made anew: %s", segment_name(start), error)
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
        """A descriptor of our own, so that nobody closes it under us; -1 when the file is gone."""
        try:
            return self._disk.open(segment.path, read_only=True)
        except FileNotFoundError:
            return -1

    def _read(self, fd: int, size: int, position: int) -> bytes:
        """A slice of a file; what the page cache did not have is not left in it, others need the room."""
        self._was_cached = self._disk.is_resident(fd, position, size)
        data = self._disk.pread(fd, size, position)
        if not self._was_cached:
            self._disk.forget_range(fd, position, size)
        return data

    def _pause(self, bytes_per_s: int) -> bool:
        """Sleep after a slice, `bytes_per_s` of which may come from the disk; whether we were asked to stop."""
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
        """Physical ranges of a file that are not what was sealed."""
        try:
            sealed = self.checksums.load(segment.start)
        except CorruptFile as error:
            logger.warning("block checksums: %s is made anew: %s", segment.path.name, error)
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
                    self.scrubbed_bytes += SLICE_BYTES
                    if self._pause(SCRUB_BYTES_PER_S):
                        return found
                else:
                    found.append((segment.start + step[0], segment.start + step[1]))
                    self._tell(segment, *found[-1])
        finally:
            self._disk.close(fd)
        return found

    def _tell(self, segment: Segment, begin: int, end: int) -> None:
        reason = "These bytes are not the ones that were sealed: the disk altered them, or somebody else did."
        file = f"commitlog/{segment.path.name}"
        logger.error("block checksums: %s [%d, %d): %s", file, begin, end, reason)
        finding = Finding(int(time.time() * 1000), "blocks", file, begin, end, "", reason)
        if not any(other[1:5] == finding[1:5] for other in self._store.files.findings()):
            self._store.files.add_finding(finding)

    # --- removal

    def removed(self, begin: int) -> None:
        """The log begins at `begin` now: older checksums go. On the cleaner's thread."""
        for start in self.checksums.starts():
            if start < begin:
                self.checksums.remove(start)
