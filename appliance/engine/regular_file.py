"""Files that options name: a pipe in their place would have the start wait for ever, and a device has no end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file for reading. Raises OSError, also for one that is not regular."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it is no regular file")


def require_regular(*paths: str | Path) -> None:
    """Raise OSError if a file, which a library is to open, cannot be opened or is not regular. "" is none."""
    for path in paths:
        if path:
            open_regular(path).close()
