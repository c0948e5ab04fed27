"""One process at a time works on the files of a directory: a server, and the commands beside it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn_in(directory: Path) -> Iterator[None]:
    """Wait for the directory, and hold it. Not to be nested: the lock belongs to the descriptor. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
