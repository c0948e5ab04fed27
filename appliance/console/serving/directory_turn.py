"""A lock on a directory: one process at a time works on its files, the server or a command beside it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn_in(directory: Path) -> Iterator[None]:
    """Wait for the directory's lock and hold it. Do not nest: the lock belongs to the descriptor. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
