"""Entries of the schedule index, and the files that hold them in order: runs.

An entry stands for one record of the timer topic. Its 32 bytes sort in the order in which delivery meets them:

    due time, wall ms 8 | order 8 | lane 1 | physical offset 7 | record size 4 | CRC-32 of these 28 bytes 4

order: 2**62 plus the queue offset for a message, the queue offset alone for a mark. A mark cancels messages, or says
that a message was rolled; so it comes before the messages of its time. All big-endian.

lane: from the topic that the message is for (`lane_of`), so that delivery can take due messages from the lanes in turns
and a crowd of one topic holds up no other. A message and its marks have one lane. Entries of older versions are in
lane 0.

A run file is a header of 32 bytes and then the entries of one lane after the other, each lane sorted: a `Run` is one
lane of a `RunFile`. The index's state file holds where a run lies, and how many entries at its front are done with.
Format page: docs/formats/timers.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from zlib import crc32

from ...disk import Disk
from ...errors import CorruptFile
from ...named_tuple import NamedTuple

ENTRY_BYTES = 32
HEADER = b"rocketbox timers run 1\n".ljust(ENTRY_BYTES, b"\0")
_BODY = struct.Struct(">QQQI")
_PLACE = struct.Struct(">QQ")
_CRC = struct.Struct(">I")
_MESSAGE = 1 << 62
#: Lanes of topics are 1 to LANES. Two topics in one lane wait for each other, which is so for one pair in 127.
LANES = 127
_LANE_AT, _LANE_BIT = 16, 56
_PHYSICAL = (1 << _LANE_BIT) - 1
#: Entries of a lane that delivery reads at a time, at first and at most; entries that `walk` reads at a time.
_FIRST_BLOCK, _BLOCK = 32, 128
_LONG_BLOCK = 2048


class TimerEntry(NamedTuple):
    """One entry. is_mark, lane: as described above. due_ms: by the wall clock."""

    due_ms: int
    is_mark: bool
    queue_offset: int
    physical_offset: int
    size: int
    lane: int = 0


def pack_entry(entry: TimerEntry) -> bytes:
    """Return the entry's 32 bytes, which sort as described above."""
    order = entry.queue_offset if entry.is_mark else entry.queue_offset | _MESSAGE
    body = _BODY.pack(entry.due_ms, order, entry.lane << _LANE_BIT | entry.physical_offset, entry.size)
    return body + _CRC.pack(crc32(body))


def unpack_entry(data: bytes) -> TimerEntry:
    """Return the entry in 32 bytes that were checked."""
    due_ms, order, physical, size = _BODY.unpack_from(data)
    lane, physical = physical >> _LANE_BIT, physical & _PHYSICAL
    return TimerEntry(due_ms, order < _MESSAGE, order & (_MESSAGE - 1), physical, size, lane)


def lane_of(key: str) -> int:
    """Return the lane of a topic, or of the topic in `topic+unique key`."""
    return 1 + crc32(key.partition("+")[0].encode("utf-8", "replace")) % LANES


def lane_of_bytes(data: bytes) -> int:
    """Return the lane in an entry's bytes, without unpacking the rest."""
    return data[_LANE_AT]


def place_of(due_ms: int, is_mark: bool, queue_offset: int) -> bytes:
    """Return the 16 bytes with which the entry of a record begins."""
    return _PLACE.pack(due_ms, queue_offset if is_mark else queue_offset | _MESSAGE)


def is_mark(data: bytes) -> bool:
    """True if an entry's bytes are those of a mark."""
    return data[8] < 0x40


def due_of_bytes(data: bytes) -> int:
    """Return the due time in an entry's bytes, without unpacking the rest."""
    return int.from_bytes(data[:8], "big")


def is_whole(data: bytes) -> bool:
    """True if these bytes are one entry that matches its CRC."""
    return len(data) == ENTRY_BYTES and _CRC.pack(crc32(data[:28])) == data[28:]


def split_entries(data: bytes) -> list[bytes]:
    """Return the entries in some bytes, 32 bytes each. Raises CorruptFile if one is damaged."""
    found = [data[at : at + ENTRY_BYTES] for at in range(0, len(data), ENTRY_BYTES)]
    if not all(map(is_whole, found)):
        raise CorruptFile("timers: a damaged entry")
    return found


class RunFile:
    """Entries of one file, in memory until `settle`, when the file is durable. Guarded by the index's lock, but for
    `Run.walk`.

    shift_ms: what the wall clock had jumped by when these records were stored; for an earlier life as `state` has it.
    """

    def __init__(
        self, disk: Disk, path: Path, number: int, shift_ms: int = 0, entries: Sequence[bytes] | None = None
    ) -> None:
        self._disk = disk
        self.path = path
        self.number = number
        self.shift_ms = shift_ms
        #: All entries while they are in memory, else None. They never change.
        self.entries = entries
        #: True if a file may be there under `path`, whole or in part, even after a save that failed.
        self.may_be_on_disk = entries is None
        self._fd = -1

    @property
    def is_in_memory(self) -> bool:
        return self.entries is not None

    def open(self, end: int) -> None:
        """Open the file. end: how many entries it has at least. Raises OSError; CorruptFile if it is no such file."""
        self._fd = self._disk.open(self.path, read_only=True)
        size = self._disk.size(self._fd)
        if size < ENTRY_BYTES * (end + 1) or self._disk.pread(self._fd, ENTRY_BYTES, 0) != HEADER:
            raise CorruptFile(f"timers: {self.path.name} is not what it was")

    def read(self, begin: int, count: int) -> list[bytes]:
        """Return `count` entries from position `begin` on. Raises OSError, CorruptFile."""
        if self.entries is not None:
            return list(self.entries[begin : begin + count])
        data = self._disk.pread(self._fd, count * ENTRY_BYTES, ENTRY_BYTES * (begin + 1))
        if len(data) < count * ENTRY_BYTES:
            raise CorruptFile(f"timers: {self.path.name} ends early")
        return split_entries(data)

    def settle(self) -> None:
        """Read from the file from now on, as it is durable, and drop the entries in memory."""
        self._fd = self._disk.open(self.path, read_only=True)
        self.entries = None

    def close(self) -> None:
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1


class Run:
    """The sorted entries of one lane of a file, from `begin` to `end`. Guarded by the index's lock, but for `walk`.

    begin: behind the entries that were taken. low_physical, low_offset: no entry's record lies before these.
    """

    __slots__ = ("_at", "_block", "begin", "end", "file", "lane", "low_offset", "low_physical")

    def __init__(self, file: RunFile, lane: int, begin: int, end: int, low_physical: int, low_offset: int) -> None:
        self.file = file
        self.lane = lane
        self.begin = begin
        self.end = end
        self.low_physical = low_physical
        self.low_offset = low_offset
        self._block: list[bytes] = []
        self._at = 0

    @property
    def left(self) -> int:
        return self.end - self.begin

    @property
    def shift_ms(self) -> int:
        return self.file.shift_ms

    def head(self) -> bytes | None:
        """Return the first entry that was not taken; None without any. Raises OSError, CorruptFile."""
        if self.begin >= self.end:
            return None
        if self._at >= len(self._block):
            # A lane from which nothing is taken keeps little in memory, as there may be many lanes.
            count = min(max(_FIRST_BLOCK, 2 * len(self._block)), _BLOCK, self.left)
            self._block, self._at = self.file.read(self.begin, count), 0
        return self._block[self._at]

    def pop(self) -> None:
        """Take the head, which `head` has returned."""
        self.begin += 1
        self._at += 1

    def between(self, begin: bytes, end: bytes) -> Iterator[bytes]:
        """Yield the entries in [begin, end) that were not taken. Raises OSError, CorruptFile."""
        low, high = self.begin, self.end
        while low < high:
            middle = (low + high) // 2
            if self.file.read(middle, 1)[0] < begin:
                low = middle + 1
            else:
                high = middle
        while low < self.end:
            piece = self.file.read(low, min(_BLOCK, self.end - low))
            for one in piece:
                if one >= end:
                    return
                yield one
            low += len(piece)

    def walk(self, begin: int) -> Iterator[list[bytes]]:
        """Yield the entries from position `begin` on, in pieces. The caller keeps the file from being closed."""
        while begin < self.end:
            piece = self.file.read(begin, min(_LONG_BLOCK, self.end - begin))
            yield piece
            begin += len(piece)


class RunWriter:
    """Writes one run file, which is durable when `finish` returns."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._fd = disk.open(path, create=True)
        self._end = ENTRY_BYTES
        disk.truncate(self._fd, 0)
        disk.write_all(self._fd, HEADER, 0)

    def add(self, entries: Sequence[bytes]) -> None:
        data = b"".join(entries)
        self._disk.write_all(self._fd, data, self._end)
        self._end += len(data)

    def finish(self) -> None:
        self._disk.fdatasync(self._fd)
        self._disk.close(self._fd)
        self._fd = -1

    def abandon(self) -> None:
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1


def merged(runs: Sequence[tuple[Run, int]]) -> Iterator[list[bytes]]:
    """Yield the entries of several runs, each from its given position on, in order and in pieces."""
    sources = [run.walk(begin) for run, begin in runs]
    rest: list[list[bytes]] = []
    live: list[Iterator[list[bytes]]] = []
    for source in sources:
        piece = next(source, None)
        if piece:
            rest.append(piece)
            live.append(source)
    while rest:
        # All entries up to the smallest last one have been read; the sort gets sorted pieces and merges them.
        bound = min(piece[-1] for piece in rest)
        ready: list[bytes] = []
        for n in range(len(rest) - 1, -1, -1):
            piece = rest[n]
            if piece[-1] == bound:
                ready += piece
                following = next(live[n], None)
                if following:
                    rest[n] = following
                else:
                    del rest[n], live[n]
            else:
                low, high = 0, len(piece)
                while low < high:
                    middle = (low + high) // 2
                    if piece[middle] <= bound:
                        low = middle + 1
                    else:
                        high = middle
                ready += piece[:low]
                rest[n] = piece[low:]
        ready.sort()
        yield ready
