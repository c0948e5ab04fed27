"""The file of a journal whose owner can write all of it anew: lines with checksums (`crc_lines.py`) that are appended.

After a failed write or sync the content of the disk is unknown, so the file is written anew before anything else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .config_journal import JournalCalls, OsJournalCalls, begin_file, write_all

logger = logging.getLogger(__name__)

#: Damaged lines that are logged one by one.
_TOLD = 10


class JournalFile:
    """Any thread but remoting-io; one at a time."""

    def __init__(
        self, name: str, path: Path, most_bytes: int, content: Callable[[], bytes], calls: JournalCalls | None = None
    ) -> None:
        """Open the file. name: as in "the journal of <name>". content: returns the file as the owner would write it
        now. Raises OSError."""
        # Constant after construction.
        self._name = name
        self._path = path
        self._most_bytes = most_bytes
        self._content = content
        self.calls = calls = OsJournalCalls() if calls is None else calls
        #: Bytes in the file.
        self.size = 0
        #: True if it has to be written anew before anything else.
        self.is_broken = False
        #: Reason if the last write failed, else None.
        self.failure: str | None = None
        calls.make_directory(path.parent)
        new = not calls.exists(path)
        self._fd = calls.open(path)
        if new:
            calls.sync_directory(path.parent)

    def load(self, take: Callable[[bytes], bool]) -> None:
        """Pass each line to `take`, which returns True if the line is whole. A file with other lines, or with a torn
        last line, is then written anew. Raises OSError."""
        # Lines of a process that died may not be on the disk; from here on all that is read is relied on.
        self.calls.fdatasync(self._fd)
        self.calls.forget_cached(self._fd)
        raw = self.calls.read(self._path)
        lines = raw.split(b"\n")
        damaged = 0
        for line in lines[:-1]:
            if take(line):
                continue
            damaged += 1
            if damaged <= _TOLD:
                logger.error("%s: damaged line left out path=%s line=%r", self._name, self._path, line[:200])
        if damaged > _TOLD:
            logger.error("%s: damaged lines left out path=%s lines=%d", self._name, self._path, damaged)
        if lines[-1]:
            logger.warning("%s: torn tail cut path=%s bytes=%d", self._name, self._path, len(lines[-1]))
        self.size = len(raw)
        if damaged or lines[-1]:
            self.begin_anew()

    def append(self, data: bytes, sync: bool = True, anew: bool = False) -> None:
        """Append lines; durable on return with `sync`. anew: first write the file anew, without lines that the owner no
        longer keeps. Raises OSError, and then none of the lines counts."""
        try:
            if self._fd < 0:
                raise OSError("the broker is stopping")
            if anew or self.is_broken:
                self.begin_anew()
            if self.size + len(data) > self._most_bytes:
                raise OSError(f"the journal of {self._name} is full")
            try:
                write_all(self.calls, self._fd, data, self.size)
                if sync:
                    self.calls.fdatasync(self._fd)
            except OSError:
                self.is_broken = True
                with suppress(OSError):
                    self.calls.truncate(self._fd, self.size)
                raise
        except OSError as error:
            self.failure = error.strerror or str(error)
            raise
        self.size += len(data)
        self.failure = None

    def begin_anew(self) -> None:
        """Replace the file by the owner's present content; durable on return. Raises OSError."""
        content = self._content()
        fd = begin_file(self.calls, self._path, content)
        old, self._fd = self._fd, fd
        self.calls.close(old)
        self.size = len(content)
        self.is_broken = False

    def close(self) -> None:
        """Close the file; later writes are refused."""
        if self._fd >= 0:
            self.calls.close(self._fd)
            self._fd = -1
