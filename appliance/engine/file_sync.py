"""Syncing files and directories: store, journal and tables all reach the disk through these calls."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from .own_files import FILE_MODE


def sync_data(fd: int) -> None:
    """Make a file's bytes and length durable. Raises OSError."""
    if sys.platform == "darwin":
        sync_file(fd)
    else:
        os.fdatasync(fd)


def sync_file(fd: int) -> None:
    """Make a file durable with its times. Raises OSError."""
    if sys.platform == "darwin":  # fsync(2) there ends at the drive's cache
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes, durable: bool = True, prepare: Callable[[int], object] | None = None) -> None:
    """Write `data` as a private file, whole or not at all; it is 0600, whatever the umask. Raises OSError.

    Unlike `Disk.replace`, through a name for which no link can be prepared. A link at `path` is replaced, not
    followed. durable: on the disk when this returns. prepare: called with the descriptor before anything is written.
    """
    fresh = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        try:
            os.fchmod(fd, FILE_MODE)
            if prepare is not None:
                prepare(fd)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            if durable:
                sync_data(fd)
        finally:
            os.close(fd)
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def publish(path: Path, content: dict[str, object]) -> None:
    """Write a JSON object as a line for other programs of this user, whole from the start. Raises OSError."""
    import json

    replace_file(path, f"{json.dumps(content)}\n".encode(), durable=False)


def forget_cached(fd: int, position: int = 0, size: int = 0) -> None:
    """Make later reads of a range come from the disk: after a failed sync the page cache has bytes that the disk lacks.

    size 0: to the end of the file.
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)
