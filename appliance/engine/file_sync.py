"""Syncing files and directories: store, journal and tables all reach the disk through these calls."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def sync_data(fd: int) -> None:
    """Make a file's bytes and length durable. Raises OSError."""
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
    """Make later reads of a range come from the disk: after a failed sync the page cache holds what the disk does not.

    size 0: to the end of the file.
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)
