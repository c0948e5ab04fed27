"""Limits the size of a run's log: Spark and Python repeat the same lines again and again when a disk fails."""

from __future__ import annotations

import os
from pathlib import Path

#: Size in bytes above which the log's begin is cut off.
MOST = 4 << 20
#: Bytes of its end that stay then.
KEPT = 1 << 20


def bound(path: Path) -> None:
    """Shorten a log to which other processes append, if it is too long. Lines written meanwhile may be lost."""
    try:
        with open(path, "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size <= MOST:
                return
            file.seek(size - KEPT)
            tail = file.read(KEPT).partition(b"\n")[2]
            # Before the cut: a line that is appended behind it would come first.
            file.seek(0)
            file.write(b"[%d bytes before this were left out]\n" % (size - len(tail)) + tail)
            file.truncate()
    except OSError:  # there is no log, as at a terminal; or the disk is full, which is reported elsewhere
        return
