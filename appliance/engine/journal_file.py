"""Files that grow at their end: what journals of lines with checksums (`crc_lines.py`) share, and what rings share.

A torn last line of a journal was never relied on, and is cut at the start. Its end may have come to the disk before its
beginning, which is zeros then. What a damaged line means is up to each journal. A new file takes the old one's place
through `NAME.new`.
"""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .disk import Disk

logger = logging.getLogger(__name__)

#: Damaged lines that are logged one by one.
_TOLD = 10
#: Largest file that is read, since it is read whole at a start.
MOST_READ_BYTES = 256 << 20
_NUMBER = re.compile(r"[0-9]{10}\Z", re.ASCII)


class AppendedLines:
    """One thread at a time, but for `sync`."""

    def __init__(self, name: str, path: Path, disk: Disk | None = None, create: bool = True) -> None:
        """Open the file, or, with `create`, make it. name: for the log. disk: None for a private file of its own.
        Raises OSError."""
        # Constant after construction.
        self.name = name
        self.path = path
        self.disk = disk = Disk(path.parent) if disk is None else disk
        if create:
            disk.make_directory(path.parent)
        new = create and not disk.exists(path)
        #: Descriptor, -1 once it is closed.
        self.fd = disk.open(path, create=create)
        #: Bytes in the file, behind which the next lines go.
        self.size = disk.size(self.fd)
        if new:
            disk.sync_directory(path.parent)

    def read(self, most_bytes: int) -> bytes:
        """Return the file as it is on the disk, one byte more than `most_bytes` if it is longer. Raises OSError."""
        # Lines of a process that died, or of a failed sync, may be in the page cache and not on the disk; from here on
        # all that is read is relied on.
        self.sync()
        self.disk.forget_cached(self.fd)
        return self.disk.read(self.path, most_bytes + 1)

    def load(self, take: Callable[[bytes], bool]) -> bool:
        """Pass each line to `take`, which returns True if the line is whole. Return True if the file has to be written
        anew before anything is appended, because of other lines or a torn last one. Raises OSError."""
        raw = self.read(MOST_READ_BYTES)
        if len(raw) > MOST_READ_BYTES:
            raise OSError(errno.EFBIG, f"it is larger than {MOST_READ_BYTES >> 20} MiB, so not ours")
        lines = raw.split(b"\n")
        if raw.endswith(b"\n") and b"\0" in lines[-2]:  # its beginning is not there
            lines.pop()
        damaged = 0
        for line in lines[:-1]:
            if take(line):
                continue
            damaged += 1
            if damaged <= _TOLD:
                logger.error("%s: damaged line left out path=%s line=%r", self.name, self.path, line[:200])
        if damaged > _TOLD:
            logger.error("%s: damaged lines left out path=%s lines=%d", self.name, self.path, damaged)
        if lines[-1]:
            logger.warning("%s: torn tail cut path=%s bytes=%d", self.name, self.path, len(lines[-1]))
        self.size = len(raw)
        return bool(damaged or lines[-1])

    def append(self, data: bytes, sync: bool = True) -> None:
        """Append lines; durable on return with `sync`. Raises OSError, and then none of them is in the file; after a
        failed sync the disk may have them."""
        try:
            self.disk.write_all(self.fd, data, self.size)
            if sync:
                self.sync()
        except OSError:
            # Only tidies up: the rest of a line would be read as a torn tail, or overwritten by the next line.
            with suppress(OSError):
                self.disk.truncate(self.fd, self.size)
            raise
        self.size += len(data)

    def sync(self) -> None:
        """Make all that was appended durable. Raises OSError."""
        self.disk.fdatasync(self.fd)

    def cut(self, size: int) -> None:
        """Cut the file behind its first `size` bytes. Raises OSError."""
        self.disk.truncate(self.fd, size)
        self.size = size

    def begin(self, content: bytes, aside: Path | None = None) -> None:
        """Replace the file by a new one; durable on return. aside: name that the file before gets. Raises OSError."""
        fresh = self.path.with_name(self.path.name + ".new")
        fd = self.disk.replace_and_open(self.path, content, fresh, aside=aside)
        old, self.fd = self.fd, fd
        self.disk.close(old)
        self.size = len(content)

    def close(self) -> None:
        """Close the file."""
        if self.fd >= 0:
            self.disk.close(self.fd)
            self.fd = -1


class JournalFile(AppendedLines):
    """The file of a journal whose owner can write all of it anew. After a failed write or sync the content of the disk
    is unknown, so the file is written anew before anything else. Any thread but remoting-io; one at a time."""

    def __init__(
        self, name: str, path: Path, most_bytes: int, content: Callable[[], bytes], disk: Disk | None = None
    ) -> None:
        """Open the file. name: as in "the journal of <name>". content: returns the file as the owner would write it
        now. Raises OSError."""
        super().__init__(name, path, disk)
        # Constant after construction.
        self._most_bytes = most_bytes
        self._content = content
        #: True if it has to be written anew before anything else.
        self.is_broken = False
        #: Reason if the last write failed, else None.
        self.failure: str | None = None

    def load(self, take: Callable[[bytes], bool]) -> bool:
        """Like `AppendedLines.load`, and write the file anew if it has to be."""
        untidy = super().load(take)
        if untidy:
            self.begin_anew()
        return untidy

    def append(self, data: bytes, sync: bool = True, anew: bool = False, at_once: bool = False) -> None:
        """Append lines; durable on return with `sync`. anew: first write the file anew, without lines that the owner no
        longer keeps. at_once: replace the file by one that has them, so that a power cut leaves all of them or none.
        Raises OSError, and then none of the lines counts."""
        try:
            if self.fd < 0:
                raise OSError("the broker is stopping")
            if anew or self.is_broken:
                self.begin_anew()
            if self.size + len(data) > self._most_bytes:
                raise OSError(f"the journal of {self.name} is full")
            self.is_broken = True
            if at_once:
                self.begin(self._content() + data)
            else:
                super().append(data, sync)
            self.is_broken = False
        except OSError as error:
            self.failure = error.strerror or str(error)
            raise
        self.failure = None

    def begin_anew(self) -> None:
        """Replace the file by the owner's present content; durable on return. Raises OSError."""
        self.is_broken = True  # if this fails, the open file may have lost its name, and lines in it would be gone
        self.begin(self._content())
        self.is_broken = False


class NumberedFiles:
    """A ring: files 0000000001 ... in a directory. The newest one grows, the oldest are deleted, and nothing is ever
    synced. Foreign names, and entries that are no files, are left alone.

    Any thread may ask for `numbers`; the rest belongs to whoever writes.
    """

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
        return sorted(int(name) for name in names if _NUMBER.match(name))

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
