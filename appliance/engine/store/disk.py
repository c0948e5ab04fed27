"""Every call of the store that touches the disk, behind one object.

Tests put a recording or a failing disk in its place; nothing in the store calls `os` for files otherwise.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: Linux: a read that would have to wait for the disk answers EAGAIN instead (D2).
RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class Disk:
    """The real disk. Errors are OSError, as the kernel gives them."""

    def open(self, path: Path, create: bool = False, read_only: bool = False) -> int:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        return os.open(path, flags | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        return os.pwrite(fd, data, position)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return os.pread(fd, size, position)

    def read_nowait(self, fd: int, buffer: memoryview, position: int) -> int:
        """Read what the page cache has; BlockingIOError when the disk would have to be asked."""
        return os.preadv(fd, [buffer], position, RWF_NOWAIT)

    def allocate(self, fd: int, size: int) -> None:
        """Give the file `size` bytes of disk now, so that a full disk shows here and not in a write."""
        if sys.platform == "linux":
            os.posix_fallocate(fd, 0, size)
        else:
            os.ftruncate(fd, size)

    def truncate(self, fd: int, size: int) -> None:
        """Set the length, sparse."""
        os.ftruncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        if sys.platform == "darwin":
            import fcntl

            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(fd)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it; sync each one that is new, so that a crash cannot take it back."""
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for directory in reversed(missing):
            os.mkdir(directory)
            self.sync_directory(directory.parent)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def free_bytes(self, path: Path) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize
