"""What makes files last, once for everybody: store, journal and tables reach the disk through these calls."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def sync_data(fd: int) -> None:
    """Have the drive store a file's bytes and length. Raises OSError."""
    if sys.platform == "darwin":  # fsync(2) there ends at the drive's cache
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def forget_cached(fd: int, position: int = 0, size: int = 0) -> None:
    """Have later reads of a range ask the disk: after a failed sync the page cache shows what was never stored.

    size 0: up to the file's end.
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)
