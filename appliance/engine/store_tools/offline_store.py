"""A store directory opened for reading only: its log files, its queue files, its lock, and how it was stopped.

Sizes are taken from the files themselves, so no configuration is needed: all files of the log have one size, and all
consume queue files have one size. The lock is tested, never taken.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ..disk import Disk, holder_of
from ..errors import StartError
from ..store.log.raw_log import RawLog
from ..store.paths import StorePaths, queue_id_of, segment_offset
from ..store.queues.queue_files import QueueFiles

#: Most queue files that are open at a time.
DESCRIPTORS = 256
_DEFAULT_QUEUE_FILE_BYTES = 6_000_000


class ReadOnlyDisk(Disk):
    """Opens every file for reading only, so that a write fails with EBADF. Changing a directory is a bug of the
    caller."""

    def open(self, path: Path, create: bool = False, read_only: bool = False) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _mkdir(self, path: Path) -> None:
        raise AssertionError(path)

    def rename(self, old: Path, new: Path) -> None:
        raise AssertionError(old)

    def unlink(self, path: Path) -> None:
        raise AssertionError(path)

    def remove_directory(self, path: Path) -> None:
        raise AssertionError(path)

    def sync_directory(self, path: Path) -> None:
        """Nothing was written, so nothing has to be synced."""


class LogFile(NamedTuple):
    """One file of the log, open for reading. start, end: physical offsets of its first byte and of the byte behind
    it."""

    path: Path
    fd: int
    start: int
    end: int


class OfflineLog:
    """The log's files. odd: (name, what is wrong) of files that do not fit."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.segments: list[LogFile] = []
        self.odd: list[tuple[str, str]] = []
        found = _numbered(directory, disk, self.odd)
        starts = [start for start, _, _ in found]
        steps = Counter(after - before for before, after in pairwise(starts))
        sizes = Counter(size for _, _, size in found if size)
        self.segment_bytes = (steps or sizes or Counter({0: 1})).most_common(1)[0][0]
        if self.segment_bytes not in sizes and sizes:
            self.segment_bytes = sizes.most_common(1)[0][0]
        for start, path, size in found:
            name = f"commitlog/{path.name}"
            if start % self.segment_bytes if self.segment_bytes else start:
                self.odd.append((name, f"does not start at a multiple of the file size {self.segment_bytes}"))
                continue
            if self.segments and self.segments[-1].end != start:
                self.odd.append((name, f"does not follow {self.segments[-1].path.name}: files in between are missing"))
            if size != self.segment_bytes:
                self.odd.append((name, f"has {size} bytes instead of {self.segment_bytes}"))
            self.segments.append(LogFile(path, disk.open(path), start, start + self.segment_bytes))

    @property
    def min_offset(self) -> int:
        return self.segments[0].start if self.segments else 0

    @property
    def end(self) -> int:
        """Physical offset behind the last file."""
        return self.segments[-1].end if self.segments else 0

    def segment_at(self, offset: int) -> LogFile | None:
        """Return the file that holds a physical offset; None in a gap."""
        at = bisect_right(self.segments, offset, key=lambda one: one.end)
        return self.segments[at] if at < len(self.segments) and self.segments[at].start <= offset else None


def _numbered(directory: Path, disk: Disk, odd: list[tuple[str, str]]) -> list[tuple[int, Path, int]]:
    """Return (start, path, size) of the files in a directory whose names are offsets. Others go to `odd`."""
    found = []
    try:
        names = disk.names(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    for name in names:
        path = directory / name
        start = segment_offset(name)
        if start is None or disk.is_directory(path):
            odd.append((f"{directory.name}/{name}", "does not belong to the store"))
        else:
            found.append((start, path, path.stat().st_size))
    return found


class OfflineStore:
    """The parts of a store that the tools read. For one thread; `close()` when done."""

    def __init__(self, store_dir: Path, own_dir: Path) -> None:
        """Raises StartError when there is no store, or it cannot be read."""
        if not (store_dir / "commitlog").is_dir():
            raise StartError(f"There is no store in {store_dir}: it has no directory commitlog.")
        self.paths = StorePaths(store_dir, own_dir)
        self.disk = ReadOnlyDisk()
        try:
            self.log = OfflineLog(self.paths.commit_log, self.disk)
        except OSError as error:
            raise StartError(f"The store in {store_dir} cannot be read: {error}.") from None
        self.odd_queue_files: list[tuple[str, str]] = []
        self._queues = self._find_queues()
        self.queue_file_bytes = self._queue_file_size()
        self.files = QueueFiles(self.paths, self.disk, self.queue_file_bytes, DESCRIPTORS)
        self.raw = RawLog(self.log, self.disk)

    # --- who has it open, and how it was stopped

    @property
    def was_killed(self) -> bool:
        return self.paths.abort.exists()

    def lock_holder(self) -> int | None:
        """Return the id of the process that has the store open; None when none has."""
        return holder_of(self.paths.lock)

    # --- queues

    def _find_queues(self) -> dict[tuple[str, int], list[tuple[int, int]]]:
        """Return (topic, queue id) -> (start, size) of its files."""
        found: dict[tuple[str, int], list[tuple[int, int]]] = {}
        top = self.paths.consume_queues
        try:
            topics = self.disk.names(top)
        except (FileNotFoundError, NotADirectoryError):
            return found
        for topic in topics:
            if not (top / topic).is_dir():
                self.odd_queue_files.append((f"consumequeue/{topic}", "is not a topic's directory"))
                continue
            for name in self.disk.names(top / topic):
                place = f"consumequeue/{topic}/{name}"
                queue_id = queue_id_of(name)
                if queue_id is None or not (top / topic / name).is_dir():
                    self.odd_queue_files.append((place, "is not a queue's directory"))
                    continue
                odd: list[tuple[str, str]] = []
                files = _numbered(top / topic / name, self.disk, odd)
                self.odd_queue_files += [(f"{place}/{one.partition('/')[2]}", text) for one, text in odd]
                found[topic, queue_id] = [(start, size) for start, _, size in files]
        return found

    def _queue_file_size(self) -> int:
        sizes = Counter(size for files in self._queues.values() for _, size in files if size)
        for size, _ in sizes.most_common():
            if size % 20 == 0 and all(start % size == 0 for files in self._queues.values() for start, _ in files):
                return size
        return _DEFAULT_QUEUE_FILE_BYTES

    def queues(self) -> list[tuple[str, int]]:
        """Return the (topic, queue id) of every queue directory."""
        return list(self._queues)

    def queue_numbers(self, topic: str, queue_id: int) -> list[int]:
        """Return the numbers of a queue's files."""
        return sorted(start // self.queue_file_bytes for start, _ in self._queues.get((topic, queue_id), ()))

    def wrong_queue_sizes(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield (topic, queue id, start, size) of queue files that do not have the size of the others."""
        for (topic, queue_id), files in self._queues.items():
            for start, size in files:
                if size != self.queue_file_bytes or start % self.queue_file_bytes:
                    yield topic, queue_id, start, size

    def close(self) -> None:
        self.files.close()
        for segment in self.log.segments:
            self.disk.close(segment.fd)
        self.log.segments = []


def find_store(directory: Path, own_dir: Path | None = None) -> OfflineStore:
    """Return the store of a data directory (`DATA`, with `store` and `rocketbox` in it) or of Apache's
    storePathRootDir.

    own_dir: the directory `rocketbox`, if it is elsewhere. Raises StartError when there is no store.
    """
    directory = Path(os.path.abspath(directory))
    if not directory.is_dir():
        raise StartError(f"There is no directory {directory}.")
    if not (directory / "commitlog").is_dir() and (directory / "store").is_dir():
        return OfflineStore(directory / "store", own_dir or directory / "rocketbox")
    return OfflineStore(directory, own_dir or directory.parent / "rocketbox")
