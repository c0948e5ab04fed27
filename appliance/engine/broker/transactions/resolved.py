"""The ends of transactions: 56 bytes each, in a ring of files.

    DATA/rocketbox/transactions/resolved/0000000001 ...

remoting-io packs an entry and leaves it in memory. A thread of its own appends the waiting entries once a second, and
each reader does so before it reads. Nothing here is ever synced, and nothing depends on it: the log alone says which
half messages are open. After a power cut an entry may be of an end that the log has lost, so code that shows entries
looks there. Format page: docs/formats/transactions.md.
"""

from __future__ import annotations

import enum
import logging
import struct
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from ...disk import Disk
from ...journal_file import NumberedFiles
from ...named_tuple import NamedTuple

logger = logging.getLogger(__name__)

MAGIC = b"RBTRANS1"
_BODY = struct.Struct(">qqqIBBBB20s")
_CRC = struct.Struct(">I")
ENTRY_BYTES = _BODY.size + _CRC.size
HEADER = MAGIC + bytes(ENTRY_BYTES - len(MAGIC))
#: Size of one file; the deletion of a file takes that much of the past.
FILE_BYTES = ENTRY_BYTES * (1 + 65_536)
#: 1 million transactions, 56 MiB.
MOST_FILES = 16
#: Most entries that wait for the disk; more are dropped and counted.
MOST_WAITING = 65_536
#: Entries looked at in one go: searching keeps the GIL.
_PIECE = ENTRY_BYTES * 4096
_MOST_AGE_MS = (1 << 32) - 1

_pack = _BODY.pack


class How(enum.IntEnum):
    """The way in which a transaction ended."""

    COMMITTED = 1
    ROLLED_BACK = 2
    DISCARDED = 3
    #: Its half message can no longer be read.
    LOST = 4


class By(enum.IntEnum):
    """The party that ended it."""

    PRODUCER = 1
    #: A producer that was asked.
    CHECK = 2
    ADMINISTRATOR = 3
    #: It was not decided in time, or is lost.
    BROKER = 4


class Resolved(NamedTuple):
    """One transaction. half_offset: in the half queue. physical_offset: of the half message, -1 where it is not known.
    at_ms: wall clock. age_ms: since the half message was stored. checks: questions to its producers until then. host:
    the producer's, 8 or 20 bytes as records have it, or none."""

    half_offset: int
    physical_offset: int
    at_ms: int
    age_ms: int
    how: How
    by: By
    checks: int
    host: bytes


class EntryPlace(NamedTuple):
    """Place of an entry: the number of its file, and its index among that file's entries."""

    file: int
    at: int


class ResolvedTransactions(NumberedFiles):
    """`note` belongs to remoting-io; any thread may call the rest."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        super().__init__(directory, disk)
        self._waiting: deque[bytes] = deque()
        #: Number of entries not kept since the start: memory was full, or the disk did not take them.
        self.lost = 0
        # Held by whoever writes.
        self._writing = threading.Lock()
        #: Reason why the last write failed; None if it did not.
        self.failure: str | None = None

    # --- remoting-io

    def note(self, one: Resolved) -> None:
        """Add a transaction that ended."""
        if len(self._waiting) >= MOST_WAITING:
            self.lost += 1
            return
        assert len(one.host) in (0, 8, 20), "a host as records have it"
        age_ms = min(max(0, one.age_ms), _MOST_AGE_MS)
        self._waiting.append(_pack(*one[:3], age_ms, one.how, one.by, min(one.checks, 255), len(one.host), one.host))

    # --- writing

    def write(self) -> None:
        """Append the waiting entries. Those that the disk does not take are dropped and counted: nothing needs them."""
        with self._writing:
            while self._waiting:
                taken: list[bytes] = []
                while self._waiting and len(taken) < MOST_WAITING:
                    body = self._waiting.popleft()
                    taken.append(body + _CRC.pack(crc32(body)))
                try:
                    self._append(taken)
                except OSError as error:
                    if self.failure is None:
                        logger.error("transactions: how they ended cannot be written down: %s", error)
                    self.failure = error.strerror or str(error)
                    self.lost += len(taken)
                    self._close()
                    return
                self.failure = None

    def _append(self, entries: list[bytes]) -> None:
        if self._fd < 0:
            self._open()
        while entries:
            room = (FILE_BYTES - self._end) // ENTRY_BYTES
            if room <= 0:
                self._begin()
                continue
            self._add(b"".join(entries[:room]))
            entries = entries[room:]

    def _open(self) -> None:
        """Go on behind the last whole entry of the newest file."""
        self._disk.make_directory(self.directory)
        self._number = max(self.numbers(), default=0)
        if self._number:
            self._open_newest()
            if self._disk.pread(self._fd, ENTRY_BYTES, 0) == HEADER and self._end <= FILE_BYTES:
                self._cut(self._end // ENTRY_BYTES * ENTRY_BYTES)
                return
        self._begin()  # a file that RocketBox did not write, or that is damaged, is left as it is

    def _begin(self) -> None:
        """Begin another file; delete the oldest one if there are too many."""
        self._begin_file(HEADER)
        for old in self.numbers()[:-MOST_FILES]:
            self._disk.unlink(self._path(old))

    def close(self) -> None:
        """Write the rest and close the file, after the loop has ended."""
        self.write()
        with self._writing:
            self._close()

    # --- reading

    def newest_first(self, before: EntryPlace | None = None) -> Iterator[tuple[EntryPlace, Resolved]]:
        """Yield the entries, or those before a place, the newest first, without damaged ones. Raises OSError."""
        self.write()
        for number, first, piece in self._pieces(before):
            for at in range(len(piece) - ENTRY_BYTES, -1, -ENTRY_BYTES):
                found = decode(piece, at)
                if found is not None:
                    yield EntryPlace(number, first + at // ENTRY_BYTES), found

    def find(self, half_offset: int, physical: int) -> Resolved | None:
        """Return the last entry of one half message; None without one. Raises OSError."""
        self.write()
        wanted = struct.pack(">qq", half_offset, physical)
        for _, _, piece in self._pieces(None):
            at = piece.rfind(wanted)
            while at >= 0:
                if at % ENTRY_BYTES == 0 and (found := decode(piece, at)) is not None:
                    return found
                at = piece.rfind(wanted, 0, at + len(wanted) - 1)
        return None

    def oldest_ms(self) -> int | None:
        """Return when the oldest kept transaction ended; None without any. Raises OSError."""
        for number in self.numbers():
            try:
                fd = self._disk.open(self._path(number), read_only=True)
            except FileNotFoundError:
                continue
            try:
                found = decode(self._disk.pread(fd, ENTRY_BYTES, len(HEADER)), 0)
            finally:
                self._disk.close(fd)
            if found is not None:
                return found.at_ms
        return None

    def _pieces(self, before: EntryPlace | None) -> Iterator[tuple[int, int, bytes]]:
        """Yield (number of the file, index of the first entry, bytes) of all that is kept, the newest first."""
        for number in reversed(self.numbers()):
            if before is not None and number > before.file:
                continue
            try:
                fd = self._disk.open(self._path(number), read_only=True)
            except FileNotFoundError:
                continue  # it was deleted meanwhile
            try:
                size = min(self._disk.size(fd), FILE_BYTES)
                end = len(HEADER) + (size - len(HEADER)) // ENTRY_BYTES * ENTRY_BYTES
                if before is not None and number == before.file:
                    end = min(end, len(HEADER) + before.at * ENTRY_BYTES)
                if self._disk.pread(fd, len(HEADER), 0) != HEADER:
                    continue
                while end > len(HEADER):
                    begin = max(len(HEADER), end - _PIECE)
                    yield number, (begin - len(HEADER)) // ENTRY_BYTES, self._disk.pread(fd, end - begin, begin)
                    end = begin
            finally:
                self._disk.close(fd)


def decode(data: bytes, at: int) -> Resolved | None:
    """Return the entry at a position; None if it is damaged."""
    end = at + _BODY.size
    if end + _CRC.size > len(data) or _CRC.unpack_from(data, end)[0] != crc32(data[at:end]):
        return None
    half_offset, physical, at_ms, age_ms, how, by, checks, length, host = _BODY.unpack_from(data, at)
    try:
        return Resolved(half_offset, physical, at_ms, age_ms, How(how), By(by), checks, host[:length])
    except ValueError:
        return None
