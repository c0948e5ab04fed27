"""A disk in memory that records every change, so that a replayer can say what a crash may have left of them.

Files and directories are nodes with numbers; names are entries of directory nodes. The record is a list of tuples:

    ("entry", directory, name, node or None)      create, mkdir, rename (two entries in one step), unlink, rmdir
    ("rename", directory, old, new, node)
    ("write", file, position, bytes)   ("size", file, bytes)
    ("sync", node)                                fdatasync, fsync, sync_directory
    ("mark", anything)                            what the driver of the store wants to know later
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.engine.store.disk import Disk

ROOT = 0
Operation = tuple[Any, ...]
#: path -> bytes of a file, None for a directory.
Image = dict[str, bytes | None]


class RecordingDisk(Disk):
    """One process's view: everything it did is there at once. `record` has the order in which it was done."""

    def __init__(self, image: Image | None = None) -> None:
        self.record: list[Operation] = []
        self.files: dict[int, bytearray] = {}
        self.directories: dict[int, dict[str, int]] = {ROOT: {}}
        #: Called with the path after a sync has taken what it will make durable: what happens meanwhile is not in it.
        self.during_sync: Callable[[str], None] = lambda path: None
        #: Of every node there ever was: "file" or "directory".
        self.kinds: dict[int, str] = {ROOT: "directory"}
        self._next = 1
        self._open: dict[int, tuple[int, str]] = {}
        self._next_fd = 3
        self._syncing = False
        for path, data in sorted((image or {}).items()):
            parent, name = self._parent(path)
            parent[name] = number = self._new("file" if data is not None else "directory")
            if data is not None:
                self.files[number][:] = data

    def _new(self, kind: str) -> int:
        number = self._next
        self._next += 1
        self.kinds[number] = kind
        if kind == "file":
            self.files[number] = bytearray()
        else:
            self.directories[number] = {}
        return number

    # --- names

    def _node(self, path: Path | str) -> int:
        node = ROOT
        for name in str(path).strip("/").split("/"):
            if not name:
                continue
            entries = self.directories.get(node)
            if entries is None or name not in entries:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            node = entries[name]
        return node

    def _parent(self, path: Path | str) -> tuple[dict[str, int], str]:
        head, _, name = str(path).rstrip("/").rpartition("/")
        return self.directories[self._node(head)], name

    def _enter(self, path: Path, node: int | None) -> None:
        head, _, name = str(path).rpartition("/")
        directory = self._node(head)
        if node is None:
            del self.directories[directory][name]
        else:
            self.directories[directory][name] = node
        self.record.append(("entry", directory, name, node))

    def exists(self, path: Path) -> bool:
        try:
            self._node(path)
        except FileNotFoundError:
            return False
        return True

    def is_directory(self, path: Path) -> bool:
        return self.exists(path) and self._node(path) in self.directories

    def names(self, path: Path) -> list[str]:
        return sorted(self.directories[self._node(path)])

    def _mkdir(self, path: Path) -> None:
        self._enter(path, self._new("directory"))

    def remove_directory(self, path: Path) -> None:
        if self.directories[self._node(path)]:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        self._enter(path, None)

    def unlink(self, path: Path) -> None:
        self._node(path)
        self._enter(path, None)

    def rename(self, old: Path, new: Path) -> None:
        assert old.parent == new.parent, "the replayer knows renames within one directory only"
        directory, node = self._node(old.parent), self._node(old)
        entries = self.directories[directory]
        del entries[old.name]
        entries[new.name] = node
        self.record.append(("rename", directory, old.name, new.name, node))

    def sync_directory(self, path: Path) -> None:
        self.record.append(("sync", self._node(path)))

    # --- files

    def open(self, path: Path, create: bool = False, read_only: bool = False) -> int:
        try:
            node = self._node(path)
        except FileNotFoundError:
            if not create:
                raise
            node = self._new("file")
            self._enter(path, node)
        fd = self._next_fd
        self._next_fd += 1
        self._open[fd] = (node, str(path))
        return fd

    def lock(self, path: Path) -> int:
        return self.open(path, create=True)

    def close(self, fd: int) -> None:
        del self._open[fd]

    def size(self, fd: int) -> int:
        return len(self.files[self._open[fd][0]])

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return bytes(self.files[self._open[fd][0]][position : position + size])

    def read_nowait(self, fd: int, buffer: memoryview, position: int) -> int:
        data = self.pread(fd, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        node = self._open[fd][0]
        raw = bytes(data)
        write(self.files[node], position, raw)
        self.record.append(("write", node, position, raw))
        return len(raw)

    def next_data(self, fd: int, position: int) -> int:
        data = self.files[self._open[fd][0]]
        rest = data[position:]
        return position + len(rest) - len(rest.lstrip(b"\0"))

    def forget_cached(self, fd: int) -> None:
        pass

    def allocate(self, fd: int, size: int) -> None:
        if self.size(fd) < size:
            self.truncate(fd, size)

    def truncate(self, fd: int, size: int) -> None:
        node = self._open[fd][0]
        resize(self.files[node], size)
        self.record.append(("size", node, size))

    def fdatasync(self, fd: int) -> None:
        node, path = self._open[fd]
        self.record.append(("sync", node))
        if not self._syncing:
            self._syncing = True
            try:
                self.during_sync(path)
            finally:
                self._syncing = False

    fsync = fdatasync

    def free_bytes(self, path: Path) -> int:
        return 1 << 40

    # --- for the driver

    def mark(self, event: Any) -> None:
        self.record.append(("mark", event))

    @property
    def open_count(self) -> int:
        return len(self._open)


def write(data: bytearray, position: int, new: bytes) -> None:
    if len(data) < position:
        data.extend(bytes(position - len(data)))
    data[position : position + len(new)] = new


def resize(data: bytearray, size: int) -> None:
    if len(data) > size:
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))
