"""Numbered files in a directory, 0000000001 ...: the newest one grows, the oldest are deleted. Nothing is ever synced.

Foreign names, and entries that are no files, are left alone.
"""

from __future__ import annotations

import re
from pathlib import Path

from .disk import Disk

_NAME = re.compile(r"[0-9]{10}\Z", re.ASCII)


class NumberedFiles:
    """Any thread may ask for `numbers`; the rest belongs to whoever writes."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        # Constant after construction.
        self.directory = directory
        self._disk = disk
        # Owned by whoever writes: the newest file's descriptor (-1: closed), its number (0: there is none), its end.
        self._fd = -1
        self._number = 0
        self._end = 0

    def numbers(self) -> list[int]:
        """Return the numbers of the files, oldest first."""
        try:
            names = self._disk.file_names(self.directory)
        except OSError:
            return []
        return sorted(int(name) for name in names if _NAME.match(name))

    def _path(self, number: int) -> Path:
        return self.directory / f"{number:010d}"

    def _open_newest(self) -> None:
        """Go on behind the end of the file `_number`. Raises OSError."""
        self._fd = self._disk.open(self._path(self._number))
        self._end = self._disk.size(self._fd)

    def _cut(self, end: int) -> None:
        """Go on at `end`, and cut what is behind it. Raises OSError."""
        if end != self._end:
            self._disk.truncate(self._fd, end)
            self._end = end

    def _begin_file(self, header: bytes) -> None:
        """Begin another file. Raises OSError; the one before stays open then."""
        names = set(self._disk.names(self.directory))
        number = self._number + 1
        while f"{number:010d}" in names:  # something else of that name
            number += 1
        fd = self._disk.open(self._path(number), create=True)
        try:
            self._disk.write_all(fd, header, 0)
        except OSError:
            self._disk.close(fd)
            raise
        self._close()
        self._fd, self._number, self._end = fd, number, len(header)

    def _add(self, data: bytes) -> None:
        """Write behind the end. Raises OSError."""
        self._disk.write_all(self._fd, data, self._end)
        self._end += len(data)

    def _close(self) -> None:
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1
