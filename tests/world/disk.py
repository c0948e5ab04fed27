"""A disk whose files lie in memory, and of which a crash leaves what a crash may leave.

Each file is a memfd, so its descriptors are real and the compiled parts read and send from them as they do elsewhere.
`tests/crash/replayer.py` works out the files that a crash leaves from the record of every change.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.engine.disk import Disk, DiskUsage
from tests.crash.recording_disk import ROOT, Operation, RecordingDisk
from tests.crash.replayer import CrashedDisk
from tests.world.threads import Killed

CAPACITY = 1 << 30
#: New files and directories between two looks for those that have gone.
SWEPT_EVERY = 100


class _Followed:
    """Takes the place of RecordingDisk's list of operations: each goes to the crashed disk at once."""

    def __init__(self, crashed: CrashedDisk) -> None:
        self._crashed = crashed

    def append(self, operation: Operation) -> None:
        self._crashed.follow(operation)

    def extend(self, operations: Any) -> None:
        for operation in operations:
            self._crashed.follow(operation)


class WorldDisk(RecordingDisk):
    """One process's view of the disk: its descriptors, and what happens to it. The next process gets its own from
    `next_life`; files and names go on.

    kill_in: so many changes from now the process ends; -1 for never. used: bytes that others have taken of CAPACITY, so
    that a test makes it full.
    """

    def __init__(self, wall_ms: Callable[[], float], pause: Callable[[], None]) -> None:
        """pause: is called inside each sync, so that others run meanwhile."""
        self._wall_ms = wall_ms
        self._modified: dict[int, float] = {}
        self._memory: dict[int, int] = {}
        #: Path -> node, of all that was found since a name changed.
        self._found: dict[str, int] = {}
        super().__init__()
        self._crashed = CrashedDisk(None, self.kinds)
        self._begin(pause)

    def _begin(self, pause: Callable[[], None]) -> None:
        self.kill_in = -1
        self.dead = False
        self.used = CAPACITY // 10
        self.record = _Followed(self._crashed)
        self.fault = self._count
        self.during_sync = lambda path: pause()
        self._swept = 0
        #: Seconds that a sync takes; 0.0 for next to nothing.
        self.slow_s = 0.0
        #: Calls that fail: (name of the call, part of the path), how many first go well, how many fail, with what.
        self._failing: list[tuple[str, str, int, int, int]] = []
        self.has_failed = False

    def fail(self, call: str, part: str, after: int, times: int, error: int) -> None:
        """So many calls of a kind fail. part: of the path."""
        self._failing.append((call, part, after, times, error))

    def heal(self) -> None:
        """No call fails from now on."""
        self._failing.clear()
        self.slow_s = 0.0

    def _may_fail(self, call: str, path: str) -> None:
        for at, (name, part, after, times, error) in enumerate(self._failing):
            if name == call and part in path:
                self._failing[at] = (name, part, after - 1, times - (after <= 0), error)
                if after <= 0:
                    if times <= 1:
                        del self._failing[at]
                    self.has_failed = True
                    raise OSError(error, os.strerror(error), path)

    def _count(self, call: str, path: str) -> None:
        if self.dead:
            raise Killed
        if self._failing:
            self._may_fail(call, path)
        if self.kill_in >= 0:
            self.kill_in -= 1
            if self.kill_in < 0:
                self.dead = True
                raise Killed

    def crash(self, mode: str, chance: random.Random) -> None:
        """Cut the machine's power, or (for "all") end the process only: then unsynced changes are still there, until
        the power goes. After this no call of this disk works."""
        self.dead = True
        if mode == "all":
            return
        self._found.clear()
        for node in self._crashed.settle(mode, chance):
            if node in self.directories:
                self.directories[node] = dict(self._crashed.entries(node))
            elif node in self._memory:
                self._fill(node)

    def _fill(self, node: int) -> None:
        """A process sees the durable bytes."""
        os.ftruncate(self._memory[node], 0)
        os.pwrite(self._memory[node], self._crashed.data(node), 0)

    def next_life(self, pause: Callable[[], None]) -> WorldDisk:
        """Return the same disk for the next process. Descriptors of this one stop working."""
        self._close_open()
        following = WorldDisk.__new__(WorldDisk)
        following.__dict__ = self.__dict__ | {"_open": {}}
        following._begin(pause)
        following.used = self.used
        following._sweep()
        return following

    def _close_open(self) -> None:
        for fd in self._open:
            os.close(fd)
        self._open.clear()

    def _sweep(self) -> None:
        """Let go of files that no crash brings back."""
        there = self._crashed.named() | {node for node, _ in self._open.values()}
        for entries in self.directories.values():
            there.update(entries.values())
        gone = set(self.kinds) - there
        for node in gone:
            del self.kinds[node]
            self._modified.pop(node, None)
            self.directories.pop(node, None)
            if node in self._memory:
                os.close(self._memory.pop(node))
        self._crashed.drop(gone)
        self._swept = self._next

    def close_all(self) -> None:
        self._close_open()
        for fd in self._memory.values():
            os.close(fd)
        self._memory.clear()

    # --- names

    def _node(self, path: Path | str) -> int:
        text = str(path)
        node = self._found.get(text)
        if node is None:
            node = self._found[text] = super()._node(text)
        return node

    def _enter(self, path: Path, node: int | None) -> None:
        super()._enter(path, node)
        self._found.clear()

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        self._found.clear()

    # --- what RecordingDisk keeps in byte arrays

    def _new(self, kind: str) -> int:
        if self._next > self._swept + SWEPT_EVERY:
            self._sweep()
        number = self._next
        self._next += 1
        self.kinds[number] = kind
        if kind == "file":
            self._memory[number] = os.memfd_create("world")
            self._modified[number] = self._wall_ms()
        else:
            self.directories[number] = {}
        return number

    def open(self, path: Path, create: bool = False, read_only: bool = False) -> int:
        try:
            node = self._node(path)
        except FileNotFoundError:
            if not create:
                raise
            self.fault("create", str(path))
            node = self._new("file")
            self._enter(path, node)
        if node in self.directories:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        fd = os.dup(self._memory[node])
        self._open[fd] = (node, str(path))
        return fd

    def open_directory(self, path: Path) -> int:
        node = self._node(path)
        fd = os.open("/", os.O_RDONLY)
        self._open[fd] = (node, str(path))
        return fd

    def close(self, fd: int) -> None:
        if self._open.pop(fd, None) is not None:
            os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return os.pread(fd, size, position)

    def read_nowait(self, fd: int, buffer: memoryview, position: int) -> int:
        return os.preadv(fd, [buffer], position)

    def is_resident(self, fd: int, position: int, size: int) -> bool:
        return True

    def next_data(self, fd: int, position: int) -> int:
        return Disk.next_data(self, fd, position)

    def forget_cached(self, fd: int) -> None:
        node = self._open[fd][0]
        if self._crashed.is_lost(node):
            self._fill(node)
            self.record.append(("forget", node))

    def _change(self, operation: Operation) -> None:
        node = operation[1]
        self._modified[node] = self._wall_ms()
        if operation[0] == "size":
            os.ftruncate(self._memory[node], operation[2])
        else:
            os.pwrite(self._memory[node], operation[3], operation[2])
        self.record.append(operation)

    def modified_ms(self, fd: int) -> int:
        return int(self._modified[self._open[fd][0]])

    def fdatasync(self, fd: int) -> None:
        node, path = self._open[fd]
        try:
            self.fault("fdatasync", path)
        except OSError:
            self.record.append(("lost", node))
            raise
        last = self._crashed.last(node)
        self.during_sync(path)  # the power may go meanwhile, and take all of it
        self._crashed.sync(node, last)

    fsync = fdatasync

    def sync_file_system(self, fd: int) -> bool:
        self.fault("syncfs", self._open[fd][1])
        begun = self._crashed.unsynced()
        self.during_sync("/")
        for node, last in begun:
            self._crashed.sync(node, last)
        return True

    def usage(self, path: Path) -> DiskUsage:
        return DiskUsage(self.used, CAPACITY - self.used)

    # --- what is no part of Disk

    def copy_to(self, place: Path, root: Path) -> None:
        """Write what is below `root` into a directory of the system: as another process sees it, durable or not."""
        node = self._node(root)
        if node not in self.directories:
            place.write_bytes(self.read(root))
            return
        place.mkdir(exist_ok=True)
        for name in sorted(self.directories[node]):
            self.copy_to(place / name, root / name)

    def copy_from(self, place: Path, root: Path) -> None:
        """Have what is below a directory of the system below `root`, durably."""
        for path in sorted(place.iterdir()):
            if path.is_dir():
                self.make_directory(root / path.name)
                self.copy_from(path, root / path.name)
            else:
                fd = self.open(root / path.name, create=True)
                self.pwrite(fd, path.read_bytes(), 0)
                self.fdatasync(fd)
                self.close(fd)
        self.sync_directory(root)


assert ROOT == 0
