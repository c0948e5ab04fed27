"""The disk, as all parts see it that promise something about their files: one object.

Tests replace it with a recording or a failing disk: the store, the journals and the tables call `os` for no file.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from . import file_sync
from .hotpath import cached_pages
from .named_tuple import NamedTuple
from .own_files import DIRECTORY_MODE, FILE_MODE

logger = logging.getLogger(__name__)

#: Linux: a read with this flag that would have to wait for the disk fails with EAGAIN (D2). 0 if the flag does not
#: exist, so that every read would wait.
RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
#: Errors of a file system (tmpfs, many network and FUSE ones) or a kernel without such reads. Source: preadv2(2);
#: ENOSYS before Linux 4.6, EINVAL from kernels that reject the flag as an argument.
NO_SUCH_READ = frozenset((errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL))

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SYS_CACHESTAT = 451  # the same on every architecture


def _make_cached_pages() -> Callable[[int, int, int], int]:
    """Return a function for cachestat(2): cached pages of a range, -1 if the kernel cannot say.

    PyDLL keeps the GIL: the call takes no longer than releasing it would.
    """
    if sys.platform != "linux":
        return lambda fd, position, size: -1
    import ctypes

    asked, answer = (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 5)()
    syscall = ctypes.PyDLL(None).syscall
    syscall.argtypes = [ctypes.c_long, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
    syscall.restype = ctypes.c_long
    asked_at, answer_at = ctypes.addressof(asked), ctypes.addressof(answer)

    def cached_pages(fd: int, position: int, size: int, keep: object = (asked, answer)) -> int:
        asked[0], asked[1] = position, size
        return answer[0] if syscall(_SYS_CACHESTAT, fd, asked_at, answer_at, 0) == 0 else -1

    return cached_pages


_cached_pages = cached_pages or _make_cached_pages()


def file_system(path: Path) -> str:
    """The kernel's name of the file system that a path is on; "" when it is not known."""
    best, kind = "", ""
    try:
        text = os.fsdecode(Path("/proc/self/mounts").read_bytes())
    except OSError:
        return ""
    for line in text.split("\n"):  # the kernel writes blanks, tabs and newlines of names as \040, and nothing else
        _, mount, name, *_ = [*line.split(" "), "", ""]
        mount = mount.replace("\\040", " ")
        if (str(path) + "/").startswith(mount.rstrip("/") + "/") and len(mount) >= len(best):
            best, kind = mount, name
    return kind


class DiskUsage(NamedTuple):
    """Usage of one file system, as this user sees it: blocks reserved for root are neither used nor free.

    Source of the rule: RocketMQ `UtilAll.getDiskPartitionSpaceUsedPercent`.
    """

    used_bytes: int
    free_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.used_bytes + self.free_bytes

    @property
    def share(self) -> float:
        """Share in use, 0 to 1."""
        return self.used_bytes / self.total_bytes if self.total_bytes else 0.0


def disk_usage(path: str | os.PathLike[str]) -> DiskUsage:
    """Return the usage of a path's file system. Raises OSError."""
    stat = os.statvfs(path)
    size = stat.f_frsize
    return DiskUsage((stat.f_blocks - stat.f_bfree) * size, stat.f_bavail * size)


@cache
def _syncfs() -> Callable[[int], int] | None:
    """Return syncfs(2) as a function that releases the GIL and returns 0 or an error number. None before Linux 5.8,
    where the call does not report failed writes."""
    if sys.platform != "linux" or tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2]) < (5, 8):
        return None
    import ctypes

    syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    return lambda fd: ctypes.get_errno() if syncfs(fd) else 0


def holder_of(lock: Path) -> int | None:
    """Return the id of the process that has a lock of `Disk.lock`; None when none has."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # struct flock of 64-bit Linux: type, whence, start, length, pid. Testing a lock needs no right to write.
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    except OSError:
        return None
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else pid


class Disk:
    """The real disk. Errors are OSError, as the kernel reports them."""

    #: True while reads that never wait are taken to work here. Changes only from True to False: by
    #: `find_out_about_reads`, or by the first read that fails for lack of them.
    reads_without_waiting = RWF_NOWAIT != 0
    #: Directories whose sync failed; replaced, never changed.
    _owed: frozenset[Path] | set[Path] = frozenset()
    _private: Path | None = None

    def __init__(self, private: Path | None = None) -> None:
        """private: files made at or below it are for this user only; None for none."""
        self._private = private

    def open(self, path: Path, create: bool = False, read_only: bool = False) -> int:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if not create:
            return os.open(path, flags | os.O_CLOEXEC)
        return os.open(path, flags | os.O_CLOEXEC | os.O_CREAT, FILE_MODE if self._is_private(path) else 0o644)

    def _is_private(self, path: Path) -> bool:
        return self._private is not None and path.is_relative_to(self._private)

    def lock(self, path: Path) -> int:
        """Take Apache's lock of a store directory: bytes 0..1 of `path`. BlockingIOError if another process has it."""
        fd = self.open(path, create=True)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            self.write_all(fd, b"lock", 0)
        except OSError:
            os.close(fd)
            raise
        return fd

    def make_private(self, fd: int) -> None:
        """Leave a file to this user only, whoever made it."""
        os.fchmod(fd, FILE_MODE)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        return os.pwrite(fd, data, position)

    def write_all(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data`, which the kernel may take in pieces."""
        view = memoryview(data)
        done = 0
        while done < len(view):
            count = self.pwrite(fd, view[done:], position + done)
            if count <= 0:
                raise OSError(errno.EIO, "a write of 0 bytes")
            done += count

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return os.pread(fd, size, position)

    def write_new(self, path: Path, pieces: Iterable[bytes]) -> None:
        """Write a file of these pieces; its bytes are on the disk on return, its name may not be. Raises OSError."""
        fd = self.open(path, create=True)
        try:
            self.truncate(fd, 0)
            at = 0
            for piece in pieces:
                self.write_all(fd, piece, at)
                at += len(piece)
            self.fsync(fd)
        finally:
            self.close(fd)

    def read(self, path: Path, most_bytes: int | None = None) -> bytes:
        """Return the bytes of a file, at most the first `most_bytes`. Raises OSError."""
        fd = self.open(path, read_only=True)
        try:
            size = self.size(fd)
            return self.pread(fd, size if most_bytes is None else min(size, most_bytes), 0)
        finally:
            self.close(fd)

    def read_if_any(self, path: Path, most_bytes: int | None = None) -> bytes | None:
        """Like `read`, but return None if there is no such file."""
        try:
            return self.read(path, most_bytes)
        except FileNotFoundError:
            return None

    def send_to(self, sock: socket.socket, fd: int, position: int, size: int) -> int:
        """Send bytes of a file without copying; return how many the socket took. BlockingIOError when it takes none."""
        return os.sendfile(sock.fileno(), fd, position, size)

    def read_nowait(self, fd: int, buffer: memoryview, position: int) -> int:
        """Read from the page cache. Raises BlockingIOError if that would have to wait for the disk, another OSError
        where such reads do not work; `reads_without_waiting` is False from then on."""
        if not self.reads_without_waiting:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        try:
            return os.preadv(fd, [buffer], position, RWF_NOWAIT)
        except OSError as error:
            if error.errno in NO_SUCH_READ:
                self.reads_without_waiting = False
                self.tell_of_slow_reads(error)
            raise

    def tell_of_slow_reads(self, error: OSError) -> None:
        """Log that reads which never wait do not work here. Called once."""
        logger.warning(
            "store: this file system does not tell what the page cache holds (%s): messages older than the last 64 MiB "
            "and all queue files are read by the thread pool-pull-cold. Nothing is lost by that; ext4 and xfs are read "
            "faster",
            error.strerror,
        )

    def find_out_about_reads(self, fd: int) -> bool:
        """True if reads that never wait work for a file, which may be empty."""
        try:
            self.read_nowait(fd, memoryview(bytearray(1)), 0)
        except OSError:  # EAGAIN means that they work
            pass
        return self.reads_without_waiting

    def is_resident(self, fd: int, position: int, size: int) -> bool:
        """True if the page cache holds all of a range, by cachestat(2) of Linux 6.5; False if that is not known."""
        return _cached_pages(fd, position, size) == (position + size - 1) // PAGE_BYTES - position // PAGE_BYTES + 1

    def allocate(self, fd: int, size: int) -> None:
        """Allocate `size` bytes of disk to the file now, so that a full disk shows here and not in a write."""
        if sys.platform == "linux":
            os.posix_fallocate(fd, 0, size)
        else:
            os.ftruncate(fd, size)

    def gains_by_zeros(self, path: Path) -> bool:
        """True if syncing bytes of a file in `path` is cheaper where something was written before than where space was
        only allocated, and writing twice is no loss as with copies on write."""
        return file_system(path) == "ext4"

    def next_data(self, fd: int, position: int) -> int:
        """Return the first position from `position` on that may not be zero; the file's size if only a hole is left."""
        seek_data = getattr(os, "SEEK_DATA", None)
        if seek_data is None:
            return position
        try:
            return os.lseek(fd, position, seek_data)
        except OSError as error:
            return self.size(fd) if error.errno == errno.ENXIO else position

    def forget_cached(self, fd: int) -> None:
        """Make later reads go to the disk: after a failed sync the page cache holds bytes that were never stored."""
        file_sync.forget_cached(fd)

    def read_ahead(self, fd: int, wanted: bool) -> None:
        """Turn read-ahead into the page cache on or off. On ext4, cached pages of a part that was allocated and never
        written count as data for `next_data`."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_NORMAL if wanted else os.POSIX_FADV_RANDOM)

    def forget_range(self, fd: int, position: int, size: int) -> None:
        """Free the page cache's memory of a range."""
        file_sync.forget_cached(fd, position, size)

    def truncate(self, fd: int, size: int) -> None:
        """Set the file's length, sparse."""
        os.ftruncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        file_sync.sync_data(fd)

    def fsync(self, fd: int) -> None:
        file_sync.sync_file(fd)

    def open_directory(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync_file_system(self, fd: int) -> bool:
        """Make a whole file system durable in one call; False where that would not report errors.

        fd: of a directory, opened before the writes in question: the call reports errors since then.
        """
        syncfs = _syncfs()
        if syncfs is None:
            return False
        if number := syncfs(fd):
            raise OSError(number, os.strerror(number))
        return True

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        try:
            self._sync_directory(path)
        except OSError:
            self._owed = {*self._owed, path}
            raise
        if path in self._owed:
            self._owed = self._owed - {path}

    def _sync_directory(self, path: Path) -> None:
        file_sync.sync_directory(path)

    def sync_owed(self, path: Path) -> None:
        """Sync those of a directory and its parents whose last sync failed, since names in them are not durable yet."""
        if self._owed:
            for directory in (path, *path.parents):
                if directory in self._owed:
                    self.sync_directory(directory)

    def identity(self, path: Path) -> object:
        """Return a value that no other directory of this name will have later. Raises OSError if there is none."""
        stat = os.stat(path)
        return stat.st_dev, stat.st_ino

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def names(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted. Raises FileNotFoundError if there is none."""
        return sorted(os.listdir(path))

    def file_names(self, path: Path) -> list[str]:
        """Return the names of the regular files in a directory. Raises OSError."""
        with os.scandir(path) as entries:
            return [one.name for one in entries if one.is_file(follow_symlinks=False)]

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents; sync the parent of each new one, so that a crash cannot undo it."""
        for directory in self._make_missing(path):
            self.sync_directory(directory.parent)

    def make_directories(self, path: Path) -> list[Path]:
        """Like make_directory, but return the directories to sync, which the caller must do."""
        return [directory.parent for directory in self._make_missing(path)]

    def _make_missing(self, path: Path) -> Iterator[Path]:
        missing = []
        existing = path
        while not self.is_directory(existing):
            missing.append(existing)
            existing = existing.parent
        self.sync_owed(existing)
        for directory in reversed(missing):
            self._mkdir(directory)
            yield directory

    def _mkdir(self, path: Path) -> None:
        os.mkdir(path, DIRECTORY_MODE if self._is_private(path) else 0o777)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def link(self, old: Path, new: Path) -> None:
        """Give a file a second name."""
        os.link(old, new)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def replace(self, path: Path, data: bytes, durable: bool = True) -> None:
        """Replace a small file by `data`, whole or not at all. Only one thread at a time for each path. durable: on the
        disk when this returns."""
        self.close(self.replace_and_open(path, data, path.with_suffix(".tmp"), durable))

    def replace_and_open(
        self, path: Path, data: bytes, temporary: Path, durable: bool = True, aside: Path | None = None
    ) -> int:
        """Do what `replace` does, through a file `temporary`; return the new file's descriptor. aside: name that the
        file before gets, if there is one; after an error it has its own again."""
        fd = self.open(temporary, create=True)
        is_aside = False
        try:
            self.truncate(fd, 0)
            self.write_all(fd, data, 0)
            if durable:
                self.fdatasync(fd)
            if aside is not None and self.exists(path):
                self.rename(path, aside)
                is_aside = True
                self.sync_directory(path.parent)  # a crash must not leave the second rename without the first
            self.rename(temporary, path)
            if durable:
                self.sync_directory(path.parent)
        except BaseException:
            self.close(fd)
            if is_aside and aside is not None:
                with suppress(OSError):
                    self.rename(aside, path)
            raise
        return fd

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def modified_ms(self, fd: int) -> int:
        """Return when the file was last written, in ms since the epoch by the clock at that time."""
        return os.fstat(fd).st_mtime_ns // 1_000_000

    def free_bytes(self, path: Path) -> int:
        return self.usage(path).free_bytes

    def usage(self, path: Path) -> DiskUsage:
        """Return the usage of the file system that `path` is on. Raises OSError."""
        return disk_usage(path)
