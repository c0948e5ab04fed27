"""One index file: a header, hash slots, entries in the order they came. docs/formats/index-file.md draws it.

Apache's format to the byte, header quirks included, so that either broker can continue the other's files. All numbers
are big-endian. Entry 0 is never used, so `count`, the number of the next entry, starts at 1.

Entries and header are written with one pwrite each per run. While few keys come, slots are written one by one and take
no memory. While many come, they live in a table of native ints that `checkpoint` writes out. Until then the file's
slots are older than its entries, and after a crash they are rebuilt from these (`rebuild_slots`).
Source: RocketMQ `IndexFile`, `IndexHeader`.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from ...disk import Disk
from ...hotpath import COMPILED, Keys, chain_cached, link_entries, put_keys, take_back
from ...hotpath.pure_index import ENTRY, FIRST_ENTRY, entry_seconds
from ...named_tuple import NamedTuple
from .index_keys import IndexKey

HEADER = struct.Struct(">qqqqii")
SLOT_BYTES = 4
#: Disk space is allocated this far ahead, so that a full disk shows before an entry is written.
AHEAD_BYTES = 4 * 1024 * 1024
#: Slots that are written, read or rebuilt at a time, so that no step holds the GIL long.
PIECE = 32 * 1024
#: Entries read at a time when slots are rebuilt; takes 1 ms at most.
REBUILD = 20_000 if COMPILED else 2000
_SLOT = struct.Struct(">i")


def file_bytes(slots: int, entries: int) -> int:
    """Return the size of a file; `entries` is maxIndexNum, one more than it can hold."""
    return HEADER.size + slots * SLOT_BYTES + entries * ENTRY.size


class IndexHeader(NamedTuple):
    """begin_*, end_*: store time in ms and physical offset of the first and last entry. used: slots with an entry.
    next_number: number of the next entry."""

    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    used: int
    next_number: int


class IndexFile:
    """Used under the index service's lock. After an OSError, entries that were not written do not count."""

    def __init__(self, path: Path, disk: Disk, slots: int, entries: int, create: IndexHeader | None = None) -> None:
        """Open `path`, or create it with the header `create`."""
        self.path = path
        self.slot_count = slots
        self.max_entries = entries
        self._disk = disk
        self._reads_compiled = chain_cached is not None and type(disk) is Disk
        self._entries_at = HEADER.size + slots * SLOT_BYTES
        self._table: memoryview | None = None
        #: Number of the first entry whose slot in the file may not be written yet.
        self.slots_count = FIRST_ENTRY
        self.closed = False
        self.fd = disk.open(path, create=create is not None)
        try:
            if create is None:
                raw = disk.pread(self.fd, HEADER.size, 0)
                header = IndexHeader(*HEADER.unpack(raw.ljust(HEADER.size, b"\0")))
                self._allocated = disk.size(self.fd)
            else:
                header = create
                self._allocate(self._entries_at)
                disk.write_all(self.fd, HEADER.pack(*header), 0)
        except BaseException:
            disk.close(self.fd)
            raise
        self._take(header)
        self.slots_count = self.count

    def _take(self, header: IndexHeader) -> None:
        self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.used, self.count = header

    @property
    def header(self) -> IndexHeader:
        return IndexHeader(self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.used, self.count)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def full(self) -> bool:
        return self.count >= self.max_entries

    @property
    def size(self) -> int:
        return self._disk.size(self.fd)

    @property
    def in_memory(self) -> bool:
        return self._table is not None

    def fault(self) -> str | None:
        """Return why this is no index file of these sizes or its header contradicts itself; None if it is sound."""
        expected = file_bytes(self.slot_count, self.max_entries)
        if self.size != expected:
            return f"{self.size} bytes instead of {expected}"
        # An Apache file without entries counts from 0 or 1.
        if not 0 <= self.count <= self.max_entries:
            return f"{self.count} entries of {self.max_entries}"
        if self.count > FIRST_ENTRY and not (
            0 <= self.begin_offset <= self.end_offset and 0 <= self.used <= min(self.slot_count, self.count)
        ):
            return f"a header that contradicts itself: {self.header}"
        return None

    # --- putting

    def put(self, keys: Keys, begin: int) -> int:
        """Add keys from `keys[begin]` on, as far as there is room, in one write; return how many were added."""
        number = max(self.count, FIRST_ENTRY)
        count = min(len(keys) - begin, self.max_entries - number)
        if count <= 0:
            return 0
        table = self._table
        if table is None:
            return self._put_few(keys[begin : begin + count], number)
        entries, used = put_keys(table, keys, begin, count, number, self.used, self.begin_ms)
        try:
            self._write(entries, number, keys[begin], keys[begin + count - 1], used)
        except OSError:
            take_back(table, entries)
            raise
        return count

    def _put_few(self, keys: list[IndexKey], number: int) -> int:
        """Like `put`, with slots in the file. A chain that a crash left short is made again."""
        first, used, begin_ms = number, self.used, self.begin_ms
        slots: dict[int, int] = {}
        entries = []
        for code, physical, time_ms in keys:
            slot = code % self.slot_count
            previous = slots.get(slot)
            if previous is None:
                previous = self.slot(slot)
            if previous <= 0 or previous > number:
                previous = 0
                used += 1
            entries.append(ENTRY.pack(code, physical, entry_seconds(begin_ms, time_ms), previous))
            slots[slot] = number
            if number == FIRST_ENTRY:
                begin_ms = time_ms
            number += 1
        self._write(b"".join(entries), first, keys[0], keys[-1], used)
        for slot, value in slots.items():
            self._disk.write_all(self.fd, _SLOT.pack(value), HEADER.size + slot * SLOT_BYTES)
        self.slots_count = self.count
        self.write_header()
        return len(keys)

    def _write(self, entries: bytes, first: int, begin: IndexKey, end: IndexKey, used: int) -> None:
        """Write entries from number `first` on. begin, end: the keys of the first and the last one."""
        position = self._entries_at + first * ENTRY.size
        behind = position + len(entries)
        if behind > self._allocated:
            ahead = min(max(behind, self._allocated + AHEAD_BYTES), file_bytes(self.slot_count, self.max_entries))
            self._allocate(ahead)
        self._disk.write_all(self.fd, entries, position)
        if first == FIRST_ENTRY:
            _, self.begin_offset, self.begin_ms = begin
        _, self.end_offset, self.end_ms = end
        self.used = used
        self.count = first + len(entries) // ENTRY.size

    def _allocate(self, size: int) -> None:
        """Allocate disk for the first `size` bytes; the file keeps its full length."""
        self._disk.allocate(self.fd, size)
        self._disk.truncate(self.fd, file_bytes(self.slot_count, self.max_entries))
        self._allocated = size

    # --- slots

    def slot(self, slot: int) -> int:
        """Return the number of a slot's newest entry; 0 if it has none."""
        if self._table is not None:
            return self._table[slot]
        raw = self._disk.pread(self.fd, SLOT_BYTES, HEADER.size + slot * SLOT_BYTES)
        value = int.from_bytes(raw, "big", signed=True)
        return value if value <= self.count else 0

    def new_table(self) -> None:
        """Keep the slots of a file without entries in memory."""
        assert self.count <= FIRST_ENTRY
        self._table = _new_table(self.slot_count)

    def load_table(self) -> Iterator[None]:
        """Read the slots into memory, one piece a step. No key may be put meanwhile."""
        table = _new_table(self.slot_count)
        for begin in range(0, self.slot_count, PIECE):
            count = min(PIECE, self.slot_count - begin)
            raw = self._disk.pread(self.fd, count * SLOT_BYTES, HEADER.size + begin * SLOT_BYTES)
            if raw.count(0) != len(raw):
                piece = array("i", raw.ljust(count * SLOT_BYTES, b"\0"))
                if sys.byteorder == "little":
                    piece.byteswap()
                table[begin : begin + count] = memoryview(piece)
            yield
        self._table = table

    def rebuild_slots(self) -> Iterator[None]:
        """Build the slots anew from the entries, in memory, one piece a step. No key may be put meanwhile."""
        table = _new_table(self.slot_count)
        used = 0
        number = FIRST_ENTRY
        while number < self.count:
            raw = self.entries(number, min(REBUILD, self.count - number))
            used += link_entries(table, raw, number)
            number += len(raw) // ENTRY.size
            yield
            if not raw:
                break
        self._table, self.used, self.slots_count = table, used, FIRST_ENTRY

    def write_slots(self) -> Iterator[None]:
        """Write the slots of entries below `count` to the file, one piece a step; keys may be put between steps."""
        table = self._table
        if table is None or self.slots_count == self.count:
            return
        count = self.count
        if self.slots_count > FIRST_ENTRY and count - self.slots_count < self.slot_count // 1000:
            raw = self.entries(self.slots_count, count - self.slots_count)
            for slot in {code % self.slot_count for code, _, _, _ in ENTRY.iter_unpack(raw)}:
                self._disk.write_all(self.fd, _SLOT.pack(table[slot]), HEADER.size + slot * SLOT_BYTES)
        else:
            for begin in range(0, self.slot_count, PIECE):
                piece = array("i")
                piece.frombytes(table[begin : begin + PIECE].cast("B"))
                if sys.byteorder == "little":
                    piece.byteswap()
                self._disk.write_all(self.fd, memoryview(piece).cast("B"), HEADER.size + begin * SLOT_BYTES)
                yield
        self.slots_count = count

    def drop_table(self) -> None:
        """Free the table's memory; the slots in the file must be complete."""
        assert self.slots_count == self.count
        self._table = None

    def write_header(self) -> None:
        self._disk.write_all(self.fd, HEADER.pack(*self.header), 0)

    def sync(self) -> None:
        self._disk.fdatasync(self.fd)

    # --- reading

    def entries(self, number: int, count: int) -> bytes:
        """Return the whole entries from `number` on, at most `count` of them."""
        count = min(count, self.count - number)
        if count <= 0:
            return b""
        raw = self._disk.pread(self.fd, count * ENTRY.size, self._entries_at + number * ENTRY.size)
        return raw[: len(raw) // ENTRY.size * ENTRY.size]

    def chain(self, code: int, number: int | None, steps: int) -> tuple[list[tuple[int, int]], int]:
        """Return ([(physical offset, time in ms)] of entries with this hash, newest first; number to go on at).

        number: None to begin. Follows at most `steps` entries; a returned number of 0 means that the chain has ended.
        """
        number = self.slot(code % self.slot_count) if number is None else number
        found: list[tuple[int, int]] = []
        while 0 < number < self.count and steps > 0:
            raw = self.entries(number, 1)
            if len(raw) < ENTRY.size:
                return found, 0
            stored, physical, seconds, previous = ENTRY.unpack(raw)
            if stored == code and seconds >= 0:
                found.append((physical, self._time_of(number, seconds)))
            # Entries point back; one that does not is damage, and would close a circle.
            number = previous if previous < number else 0
            steps -= 1
        return found, number if number > 0 and number < self.count else 0

    def chain_now(self, code: int, steps: int) -> list[tuple[int, int]] | None:
        """Return the whole chain as `chain` does, without waiting for the disk. None if some of it is not in the page
        cache, or it has more than `steps` entries, of any hash."""
        slot = code % self.slot_count
        number = self._table[slot] if self._table is not None else -1
        slot_at = HEADER.size + slot * SLOT_BYTES
        if self._reads_compiled:
            found: list[tuple[int, int]] | None = chain_cached(
                self.fd, slot_at, number, self._entries_at, self.count, self.begin_ms, code & 0xFFFFFFFF, steps
            )
            return found
        raw = bytearray(ENTRY.size)
        try:
            if number < 0:
                if self._disk.read_nowait(self.fd, memoryview(raw)[:SLOT_BYTES], slot_at) != SLOT_BYTES:
                    return None
                number = int.from_bytes(raw[:SLOT_BYTES], "big", signed=True)
                number = number if number <= self.count else 0
            found = []
            while 0 < number < self.count:
                if steps <= 0:
                    return None
                steps -= 1
                if self._disk.read_nowait(self.fd, memoryview(raw), self._entries_at + number * ENTRY.size) != len(raw):
                    return None
                stored, physical, seconds, previous = ENTRY.unpack(raw)
                if seconds >= 0 and stored == code:
                    found.append((physical, self._time_of(number, seconds)))
                number = previous if previous < number else 0
        except OSError:  # it is not cached, or the file system cannot tell
            return None
        return found

    def _time_of(self, number: int, seconds: int) -> int:
        """Return an entry's time in ms. The first entry's counts from the end of the file before."""
        return self.begin_ms + (seconds * 1000 if number > FIRST_ENTRY else 0)

    def first_behind(self, offset: int) -> int:
        """Return the number of the first entry whose record lies at or behind `offset`; physical offsets ascend."""

        def is_behind(number: int) -> bool:
            raw = self.entries(number, 1)
            return len(raw) != ENTRY.size or ENTRY.unpack(raw)[1] >= offset

        return FIRST_ENTRY + bisect_left(range(FIRST_ENTRY, self.count), True, key=is_behind)

    def entries_of_last(self) -> int:
        """Return how many entries belong to the last entry's record."""
        return self.count - self.first_behind(self.end_offset)

    def cut(self, count: int) -> None:
        """Remove the entries from number `count` on. The slots have to be rebuilt afterwards."""
        self.count = max(count, FIRST_ENTRY)
        self._table = None
        self.slots_count = FIRST_ENTRY
        if self.count == FIRST_ENTRY:
            self.end_ms, self.end_offset, self.used = self.begin_ms, self.begin_offset, 0
            return
        _, self.end_offset, seconds, _ = ENTRY.unpack(self.entries(self.count - 1, 1))
        self.end_ms = self.begin_ms + seconds * 1000

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._disk.close(self.fd)


def _new_table(slots: int) -> memoryview:
    """Return zeroed memory, which the system provides only as it is touched."""
    return memoryview(bytearray(slots * SLOT_BYTES)).cast("i")
