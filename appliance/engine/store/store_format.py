"""Format version of RocketBox's own files: `DATA/rocketbox/format`, one line, `rocketbox 1`.

It is raised when such a file changes so that an older version would misread it. Apache's files have no such mark and
need none: their formats are fixed.
"""

from __future__ import annotations

import re

from ..disk import Disk
from ..errors import StartError
from .paths import StorePaths

FORMAT = 1
NAME = "format"
_LINE = re.compile(rb"rocketbox ([0-9]{1,9})\s*\Z")


def check_format(paths: StorePaths, disk: Disk) -> None:
    """Raise StartError when a newer version wrote here; nothing was changed then. The file may be missing or empty."""
    line = disk.read_if_any(paths.own / NAME, 100)
    if line is None:
        return
    found = _LINE.match(line)
    if found is None:
        if line.strip(b"\0 \n"):
            raise StartError(f"{paths.own / NAME} does not say which format the files there have: {line[:40]!r}.")
        return
    if int(found[1]) > FORMAT:
        raise StartError(
            f"{paths.own} was written by a newer version of RocketBox (format {int(found[1])}, this one knows "
            f"{FORMAT}): start that version again, or a newer one."
        )


def write_format(paths: StorePaths, disk: Disk) -> None:
    """Write the format version, unless the file has it; durable with the directory's next sync."""
    line = b"rocketbox %d\n" % FORMAT
    if disk.read_if_any(paths.own / NAME, len(line) + 1) != line:
        disk.write_new(paths.own / NAME, (line,))
