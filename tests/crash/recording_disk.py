"""A disk in memory that records every change, so that a replayer can say what a crash may have left of them.

Files and directories are nodes with numbers; names are entries of directory nodes. The record is a list of tuples:

    ("entry", directory, name, node or None)      create, mkdir, link, unlink, rmdir
    ("rename", directory, old, new, node)
    ("write", file, position, bytes)   ("size", file, bytes)
    ("sync", node)                                fdatasync, fsync, sync_directory
    ("lost", file)                                a sync that failed: what was not durable never will be (ATC'20),
                                                  though a process goes on seeing it, until
    ("forget", file)                              the page cache let go of it
    ("mark", anything)                            what the driver of the store wants to know later
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.engine.disk import Disk, DiskUsage

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
        #: Node of a file -> its durable bytes, and the operations since.
        self._stored: dict[int, tuple[bytearray, list[Operation]]] = {}
        #: Called with the path after a sync has taken what it will make durable: what happens meanwhile is not in it.
        self.during_sync: Callable[[str], None] = lambda path: None
        #: Kind of every node there ever was: "file" or "directory".
        self.kinds: dict[int, str] = {ROOT: "directory"}
        #: Called with the call's name and its path before it changes anything; may raise OSError.
        self.fault: Callable[[str, str], None] = lambda call, path: None
        self._next = 1
        self._open: dict[int, tuple[int, str]] = {}
        self._next_fd = 3
        self._syncing = False
        for path, data in sorted((image or {}).items()):
            parent, name = self._parent(path)
            parent[name] = number = self._new("file" if data is not None else "directory")
            if data is not None:
                self.files[number][:] = data
                self._stored[number][0][:] = data

    def _new(self, kind: str) -> int:
        number = self._next
        self._next += 1
        self.kinds[number] = kind
        if kind == "file":
            self.files[number] = bytearray()
            self._stored[number] = (bytearray(), [])
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

    def identity(self, path: Path) -> object:
        return self._node(path)

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

    def file_names(self, path: Path) -> list[str]:
        return [name for name, node in self.directories[self._node(path)].items() if node not in self.directories]

    def _mkdir(self, path: Path) -> None:
        self.fault("mkdir", str(path))
        self._enter(path, self._new("directory"))

    def remove_directory(self, path: Path) -> None:
        self.fault("rmdir", str(path))
        if self.directories[self._node(path)]:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        self._enter(path, None)

    def unlink(self, path: Path) -> None:
        self.fault("unlink", str(path))
        self._node(path)
        self._enter(path, None)

    def link(self, old: Path, new: Path) -> None:
        """A second name of a file."""
        self.fault("link", str(new))
        self._enter(new, self._node(old))

    def rename(self, old: Path, new: Path) -> None:
        assert old.parent == new.parent, "the replayer knows renames within one directory only"
        self.fault("rename", str(new))
        directory, node = self._node(old.parent), self._node(old)
        entries = self.directories[directory]
        if entries.get(new.name) == node:  # two names of one file: POSIX leaves both
            return
        del entries[old.name]
        entries[new.name] = node
        self.record.append(("rename", directory, old.name, new.name, node))

    def open_directory(self, path: Path) -> int:
        fd = self._next_fd
        self._next_fd += 1
        self._open[fd] = (self._node(path), str(path))
        return fd

    def sync_file_system(self, fd: int) -> bool:
        """Every node, one after the other; when it fails, nothing of open queue files was stored."""
        try:
            self.fault("syncfs", self._open[fd][1])
        except OSError:
            for node in {node for node, path in self._open.values() if "consumequeue" in path and node in self.files}:
                self._stored[node][1].clear()
                self.record.append(("lost", node))
            raise
        for node, (stored, pending) in self._stored.items():
            if pending:
                for operation in pending:
                    apply(stored, operation)
                pending.clear()
                self.record.append(("sync", node))
        self.record.extend(("sync", node) for node in self.directories)
        return True

    def _sync_directory(self, path: Path) -> None:
        self.fault("sync_directory", str(path))
        self.record.append(("sync", self._node(path)))

    # --- files

    def open(self, path: Path, create: bool = False, read_only: bool = False) -> int:
        try:
            node = self._node(path)
        except FileNotFoundError:
            if not create:
                raise
            self.fault("create", str(path))
            node = self._new("file")
            self._enter(path, node)
        fd = self._next_fd
        self._next_fd += 1
        self._open[fd] = (node, str(path))
        return fd

    def lock(self, path: Path) -> int:
        return self.open(path, create=True)

    def make_private(self, fd: int) -> None:
        """Do nothing: there are no other users."""

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
        node, path = self._open[fd]
        raw = bytes(data)
        try:
            self.fault("pwrite", path)
        except OSError:
            self._change(("write", node, position, raw[: len(raw) // 2]))  # half of it got there
            raise
        self._change(("write", node, position, raw))
        return len(raw)

    def next_data(self, fd: int, position: int) -> int:
        data = self.files[self._open[fd][0]]
        rest = data[position:]
        return position + len(rest) - len(rest.lstrip(b"\0"))

    def forget_cached(self, fd: int) -> None:
        node = self._open[fd][0]
        stored, pending = self._stored[node]
        if not pending:
            self.files[node][:] = stored
            self.record.append(("forget", node))

    def gains_by_zeros(self, path: Path) -> bool:
        return True

    def forget_range(self, fd: int, position: int, size: int) -> None:
        """Do nothing: only clean pages would be dropped, and they can be read again."""

    def read_ahead(self, fd: int, wanted: bool) -> None:
        """There is none."""

    def _change(self, operation: Operation) -> None:
        """Do it to what a process sees, and remember it until the next sync."""
        apply(self.files[operation[1]], operation)
        self._stored[operation[1]][1].append(operation)
        self.record.append(operation)

    def allocate(self, fd: int, size: int) -> None:
        if self.size(fd) < size:
            self.truncate(fd, size)

    def truncate(self, fd: int, size: int) -> None:
        node, path = self._open[fd]
        self.fault("truncate", path)
        self._change(("size", node, size))

    def fdatasync(self, fd: int) -> None:
        node, path = self._open[fd]
        try:
            self.fault("fdatasync", path)
        except OSError:
            self._stored[node][1].clear()
            self.record.append(("lost", node))
            raise
        stored, pending = self._stored[node]
        for operation in pending:
            apply(stored, operation)
        pending.clear()
        self.record.append(("sync", node))
        if not self._syncing:
            self._syncing = True
            try:
                self.during_sync(path)
            finally:
                self._syncing = False

    fsync = fdatasync

    def usage(self, path: Path) -> DiskUsage:
        return DiskUsage(1 << 40, 1 << 40)

    def modified_ms(self, fd: int) -> int:
        return 0

    # --- for the driver

    def mark(self, event: Any) -> None:
        self.record.append(("mark", event))

    @property
    def open_count(self) -> int:
        return len(self._open)


def apply(data: bytearray, operation: Operation) -> None:
    """Do a "write" or a "size" to a file's bytes."""
    if operation[0] == "size":
        size = operation[2]
        del data[size:]
        data.extend(bytes(size - len(data)))
        return
    position, new = operation[2], operation[3]
    if len(data) < position:
        data.extend(bytes(position - len(data)))
    data[position : position + len(new)] = new
