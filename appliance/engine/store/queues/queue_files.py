"""The files behind consume queues: a bounded set of open descriptors, reads, writes, syncs.

Each thread that uses queue files has its own QueueFiles, so that no descriptor is closed while it is read from.
"""

from __future__ import annotations

import errno
import logging
from collections import OrderedDict
from collections.abc import Container
from pathlib import Path

from ...disk import Disk
from ...errors import StartError
from ...protocol.record import Record
from ..paths import StorePaths, queue_id_of, segment_name, segment_offset
from .consume_queue import ENTRY, ENTRY_BYTES
from .queue_extension import EXTENSION_DIRECTORY

logger = logging.getLogger(__name__)

#: From this many files and directories on, the whole file system is synced instead.
MANY = 64

_Key = tuple[str, int, int]  # topic, queue id, file number


class QueueFiles:
    """Open descriptors of queue files; beyond `capacity` the least recently used is closed. Belongs to one thread."""

    def __init__(
        self, paths: StorePaths, disk: Disk, file_bytes: int, capacity: int, deletions: list[int] | None = None
    ) -> None:
        """deletions: a count that grows with each deletion of files; all descriptors are closed when it has changed."""
        self._paths = paths
        self._disk = disk
        self._entries_per_file = file_bytes // ENTRY_BYTES
        self.file_bytes = self._entries_per_file * ENTRY_BYTES
        self._capacity = capacity
        self._open: OrderedDict[_Key, int] = OrderedDict()
        # In the order they were written.
        self._unsynced: dict[_Key, None] = {}
        # Descriptor of the queues' directory, opened before the first write. It may be on a disk of its own.
        self._top_fd = -1
        # Directories with new names in them.
        self._unsynced_names: dict[Path, None] = {}
        # Files whose sync failed: what was not durable is lost, including their length (D6).
        self._refused: set[_Key] = set()
        #: (topic, queue id) of files in which `write` found nothing before its entries, though there should be.
        self.incomplete: set[tuple[str, int]] = set()
        #: (topic, queue id) of queues that had no directory, so that nothing lies behind what was written here. Only
        #: filled if there is a set.
        self.new: set[tuple[str, int]] | None = None
        self._deletions = deletions or [0]
        self._deletions_seen = self._deletions[0]

    def _path(self, key: _Key) -> Path:
        return self._paths.queue_dir(key[0], key[1]) / segment_name(key[2] * self.file_bytes)

    def _fd(self, key: _Key, create: bool, index: int = 0) -> int:
        """Return a file's descriptor. index: entries that it should already hold if it is made or lengthened here."""
        if self._deletions_seen != self._deletions[0]:
            self._deletions_seen = self._deletions[0]
            while self._open:
                self._close_oldest()
        fd = self._open.get(key)
        if fd is not None:
            self._open.move_to_end(key)
            return fd
        while len(self._open) >= self._capacity:
            self._close_oldest()
        path = self._path(key)
        if create:
            self._disk.sync_owed(path.parent)
        try:
            fd = self._disk.open(path)
        except FileNotFoundError:
            if not create:
                raise
            # Names are synced together with the entries, since many new queues share their directories.
            made = self._disk.make_directories(path.parent)
            self._unsynced_names.update(dict.fromkeys(made))
            self._unsynced_names[path.parent] = None
            if made and self.new is not None:
                self.new.add(key[:2])
            fd = self._disk.open(path, create=True)
        size = self._disk.size(fd)
        if size < self.file_bytes:
            if size < index * ENTRY_BYTES:
                self.incomplete.add(key[:2])
            if not create:
                self._disk.close(fd)
                raise FileNotFoundError(errno.ENOENT, "cut short", str(path))
            try:
                self._disk.truncate(fd, self.file_bytes)
            except OSError:
                self._disk.close(fd)
                raise
        self._open[key] = fd
        return fd

    def let_go(self, queues: Container[tuple[str, int]]) -> None:
        """Close the files of some queues, so that the next write checks their lengths."""
        for key in [key for key in self._open if key[:2] in queues]:
            self._open.move_to_end(key, last=False)
            self._close_oldest()

    def _close_oldest(self) -> None:
        key, fd = self._open.popitem(last=False)
        try:
            # Where more queues are written than descriptors may be open, a sync of each file alone takes minutes.
            if key in self._unsynced and not (len(self._unsynced) >= MANY and self._sync_all()):
                self._sync_file(key, fd)
        finally:
            self._disk.close(fd)

    def read(self, topic: str, queue_id: int, offset: int, count: int) -> bytes:
        """Return up to `count` entries of one file from `offset` on; empty if it is not there in full. May wait."""
        number, index = divmod(offset, self._entries_per_file)
        count = min(count, self._entries_per_file - index)
        try:
            fd = self._fd((topic, queue_id, number), create=False)
        except FileNotFoundError:
            return b""
        data = self._disk.pread(fd, count * ENTRY_BYTES, index * ENTRY_BYTES)
        return data[: len(data) - len(data) % ENTRY_BYTES]  # the file may have been cut short within an entry

    def names(self, record: Record) -> bool:
        """True if the entry at a record's queue offset points to it. Raises OSError."""
        entry = self.read(record.topic, record.queue_id, record.queue_offset, 1)
        return len(entry) == ENTRY_BYTES and ENTRY.unpack(entry)[:2] == (record.physical_offset, record.size)

    def read_nowait(self, topic: str, queue_id: int, offset: int, count: int) -> bytes | None:
        """Like `read`, but None if that would have to wait for the disk, or the system cannot say (D2)."""
        if not self._disk.reads_without_waiting:
            return None
        number, index = divmod(offset, self._entries_per_file)
        count = min(count, self._entries_per_file - index)
        try:
            fd = self._fd((topic, queue_id, number), create=False)
            buffer = bytearray(count * ENTRY_BYTES)
            got = self._disk.read_nowait(fd, memoryview(buffer), index * ENTRY_BYTES)
        except FileNotFoundError:
            return b""
        except OSError:
            return None
        if got < len(buffer) and self._disk.size(fd) < index * ENTRY_BYTES + len(buffer):
            return bytes(buffer[: got - got % ENTRY_BYTES])  # the file was cut short: the disk has no more of it
        return bytes(buffer[:got]) if got == len(buffer) else None

    def write(self, topic: str, queue_id: int, offset: int, entries: bytes) -> None:
        """Write entries from `offset` on, into as many files as needed; `sync` makes them durable."""
        if self._top_fd < 0:
            top = self._paths.consume_queues
            self._unsynced_names.update(dict.fromkeys(self._disk.make_directories(top)))
            self._top_fd = self._disk.open_directory(top)
        view = memoryview(entries)
        while view:
            number, index = divmod(offset, self._entries_per_file)
            part = view[: (self._entries_per_file - index) * ENTRY_BYTES]
            key = (topic, queue_id, number)
            fd = self._fd(key, create=True, index=index)
            if key in self._refused:
                self._disk.truncate(fd, self.file_bytes)
                self._refused.discard(key)
            self._unsynced[key] = None
            self._disk.write_all(fd, part, index * ENTRY_BYTES)
            offset += len(part) // ENTRY_BYTES
            view = view[len(part) :]

    def sync(self) -> None:
        """Make all writes since the last sync durable, and the names of new files."""
        if len(self._unsynced) + len(self._unsynced_names) >= MANY and self._sync_all():
            return
        for directory in list(self._unsynced_names):
            try:
                self._disk.sync_directory(directory)
            except FileNotFoundError:  # removed by someone: its files are found missing at the next start
                pass
            del self._unsynced_names[directory]
        for key in list(self._unsynced):
            self._sync_file(key, self._fd(key, create=True))

    def _sync_all(self) -> bool:
        """Sync all of it in one call; False if the kernel has no such call that reports errors."""
        try:
            if self._top_fd < 0 or not self._disk.sync_file_system(self._top_fd):
                return False
        except OSError:
            self._refused.update(self._unsynced)
            raise
        self._unsynced_names.clear()
        self._unsynced.clear()
        return True

    def _sync_file(self, key: _Key, fd: int) -> None:
        try:
            self._disk.fdatasync(fd)
        except OSError:
            self._refused.add(key)
            raise
        self._unsynced.pop(key, None)

    def numbers(self, topic: str, queue_id: int) -> list[int]:
        """Return the numbers of a queue's files, in order. Raises StartError when a name does not fit the file size."""
        found = []
        directory = self._paths.queue_dir(topic, queue_id)
        for name in self._disk.names(directory):
            start = segment_offset(name)
            if start is None:
                logger.warning("consume queue: foreign file left alone path=%s", directory / name)
            elif start % self.file_bytes:
                raise StartError(f"{directory / name} does not begin at a multiple of mappedFileSizeConsumeQueue.")
            else:
                found.append(start // self.file_bytes)
        return found

    def check_size(self, topic: str, queue_id: int, number: int) -> None:
        """Raise StartError when a file is larger than configured, since its rest would be taken for the next file's."""
        key = (topic, queue_id, number)
        try:
            size = self._disk.size(self._fd(key, create=False))
        except FileNotFoundError:
            return
        if size > self.file_bytes:
            raise StartError(
                f"{self._path(key)} has {size} bytes, but mappedFileSizeConsumeQueue is {self.file_bytes}: "
                "set it to the size the store was made with."
            )

    def next_data(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the first entry from `offset` on, within its file, that may not be zero; the file's end if none is."""
        number, index = divmod(offset, self._entries_per_file)
        try:
            fd = self._fd((topic, queue_id, number), create=False)
        except FileNotFoundError:
            return (number + 1) * self._entries_per_file
        found = min(self._disk.next_data(fd, index * ENTRY_BYTES) // ENTRY_BYTES, self._entries_per_file)
        return number * self._entries_per_file + max(index, found)

    @property
    def entries_per_file(self) -> int:
        return self._entries_per_file

    def unlink(self, topic: str, queue_id: int, number: int) -> None:
        """Delete one file."""
        key = (topic, queue_id, number)
        self._forget(key)
        self._disk.unlink(self._path(key))

    def sync_directory(self, topic: str, queue_id: int) -> None:
        """Make the names of a queue's files durable, and the removal of deleted ones."""
        self._disk.sync_directory(self._paths.queue_dir(topic, queue_id))

    def remove_topic(self, topic: str) -> None:
        """Delete a topic's files durably, including Apache's extension files; foreign files stay. Raises OSError; a
        repeated call finishes the rest."""
        self.forget_topic(topic)
        for top in (self._paths.consume_queues, self._paths.root / EXTENSION_DIRECTORY):
            _remove_numbered_files(self._disk, top / topic)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Delete one queue's files in the same way."""
        directory = self._paths.queue_dir(topic, queue_id)
        self._unsynced_names.pop(directory, None)
        for key in [key for key in self._open if key[:2] == (topic, queue_id)]:
            self._forget(key)
        for top in (self._paths.consume_queues, self._paths.root / EXTENSION_DIRECTORY):
            if self._disk.is_directory(top / topic / str(queue_id)):
                _remove_queue_files(self._disk, top / topic / str(queue_id))
                self._disk.sync_directory(top / topic)

    def _forget(self, key: _Key) -> None:
        self._unsynced.pop(key, None)
        self._refused.discard(key)
        fd = self._open.pop(key, None)
        if fd is not None:
            self._disk.close(fd)

    def forget_topic(self, topic: str) -> None:
        """Close the files of a topic that is being deleted."""
        top = self._paths.consume_queues / topic
        for directory in [path for path in self._unsynced_names if path == top or path.parent == top]:
            del self._unsynced_names[directory]
        for key in [key for key in self._open if key[0] == topic]:
            self._forget(key)

    def close(self) -> None:
        for fd in self._open.values():
            self._disk.close(fd)
        self._open.clear()
        if self._top_fd >= 0:
            self._disk.close(self._top_fd)
            self._top_fd = -1


def _remove_numbered_files(disk: Disk, top: Path) -> None:
    if not disk.is_directory(top):
        return
    for name in disk.names(top):
        if queue_id_of(name) is None:
            continue
        _remove_queue_files(disk, top / name)
    disk.sync_directory(top)
    _remove_if_empty(disk, top)
    disk.sync_directory(top.parent)


def _remove_queue_files(disk: Disk, directory: Path) -> None:
    for file in disk.names(directory):
        if segment_offset(file) is not None:
            disk.unlink(directory / file)
    _remove_if_empty(disk, directory)


def _remove_if_empty(disk: Disk, directory: Path) -> None:
    if disk.names(directory):
        disk.sync_directory(directory)
        logger.warning("consume queue: foreign files left alone in %s", directory)
    else:
        disk.remove_directory(directory)
