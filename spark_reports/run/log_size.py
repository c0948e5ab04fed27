"""How much a run's log may become: Spark and Python say the same thing again and again when a disk is ill."""

from __future__ import annotations

import os
from pathlib import Path

#: From there on its begin is left out.
MOST = 4 << 20
#: So much of its end stays then.
KEPT = 1 << 20


def bound(path: Path) -> None:
    """Of a log that others append to. What they write within this very moment may be lost."""
    try:
        with open(path, "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if size <= MOST:
                return
            file.seek(size - KEPT)
            tail = file.read(KEPT).partition(b"\n")[2]
            file.truncate(0)
        with open(path, "ab") as file:
            file.write(b"[%d bytes before this were left out]\n" % (size - len(tail)) + tail)
    except OSError:  # not there: it is a terminal; or the disk is full, which others tell
        return
