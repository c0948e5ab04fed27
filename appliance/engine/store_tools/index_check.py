"""Checks index entries against records, both ways, in one pass: index files hold their entries in the order of the log.

Memory: the slots of one index file.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..protocol.record import Record
from ..store.dispatch import has_keys, keys_of
from ..store.index.index_keys import key_hash
from .offline_store import OfflineStore
from .problems import Problems

_NAME = re.compile(r"[0-9]{17}\Z", re.ASCII)
_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_DEFAULT_SLOTS, _DEFAULT_BYTES = 5_000_000, 420_000_040
#: A file smaller than the default one is from a test or a demonstration; its number of slots has to be found.
_SEARCHED_BYTES = 64 << 20
_READ_ENTRIES = 50_000


class IndexHeader(NamedTuple):
    """Times in ms, physical offsets. following: the number of the next entry; the first entry is 1."""

    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    slots_used: int
    following: int


class IndexEntry(NamedTuple):
    number: int
    hash: int
    physical: int
    seconds: int
    previous: int


class IndexReader:
    """One index file, opened for reading. problem: reason why it cannot be read, None when it can."""

    def __init__(self, path: Path, slots: int | None = None) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._file = open(path, "rb")  # noqa: SIM115 - closed by close()
        self.problem: str | None = None
        raw = self._file.read(_HEADER.size)
        self.header = IndexHeader(*_HEADER.unpack(raw)) if len(raw) == _HEADER.size else IndexHeader(0, 0, 0, 0, 0, 1)
        self.slots = 0
        if len(raw) < _HEADER.size:
            self.problem = f"it has {self.size} bytes, fewer than a header"
        else:
            self.slots = slots or self._find_slots()
            if not self.slots:
                self.problem = "its header and its entries contradict each other"

    @property
    def capacity(self) -> int:
        return (self.size - _HEADER.size - 4 * self.slots) // _ENTRY.size

    def _find_slots(self) -> int:
        """Return the number of hash slots that the file was made with; 0 when no number fits. With the right number the
        slot of the newest entry points to it, and the first entry points to the header's first offset."""
        following = self.header.following
        if self.size == _DEFAULT_BYTES:
            return _DEFAULT_SLOTS if following <= 1 or self._fits(_DEFAULT_SLOTS) else 0
        ratios = [slots for part in (84, 44, 24, 104) if (slots := (self.size - _HEADER.size) // part)]
        # 40 + 4 x slots + 20 x entries = size, so every fifth number is possible.
        first = (self.size - _HEADER.size) // 4 % 5
        every = range(first or 5, (self.size - _HEADER.size) // 4, 5) if self.size <= _SEARCHED_BYTES else ()
        if following <= 1:
            return ratios[0] if ratios else 0
        return next((slots for slots in (*ratios, *every) if slots and self._fits(slots)), 0)

    def _fits(self, slots: int) -> bool:
        newest = self.header.following - 1
        if self.header.following < 1 or _HEADER.size + 4 * slots + _ENTRY.size * (newest + 1) > self.size:
            return False
        entry = self.entry(newest, slots)
        first = self.entry(1, slots)
        self._file.seek(_HEADER.size + 4 * (entry.hash % slots))
        slot = int.from_bytes(self._file.read(4), "big", signed=True)
        return slot == newest and entry.hash >= 0 and first.physical == self.header.begin_offset

    def entry(self, number: int, slots: int | None = None) -> IndexEntry:
        self._file.seek(_HEADER.size + 4 * (slots or self.slots) + _ENTRY.size * number)
        return IndexEntry(number, *_ENTRY.unpack(self._file.read(_ENTRY.size)))

    def position(self, number: int) -> int:
        """Return where entry `number` begins in the file."""
        return _HEADER.size + 4 * self.slots + _ENTRY.size * number

    def entries(self) -> Iterator[IndexEntry]:
        """Yield all entries, in the order in which they were added."""
        number = 1
        end = min(self.header.following, self.capacity)
        while number < end:
            self._file.seek(self.position(number))
            data = self._file.read(_ENTRY.size * min(_READ_ENTRIES, end - number))
            for fields in _ENTRY.iter_unpack(data[: len(data) - len(data) % _ENTRY.size]):
                yield IndexEntry(number, *fields)
                number += 1
            if len(data) < _ENTRY.size:
                return

    def slot_table(self) -> array[int]:
        """Return for each slot the number of the entry that it points to."""
        table = array("i")
        self._file.seek(_HEADER.size)
        table.frombytes(self._file.read(4 * self.slots))
        table.byteswap()  # big-endian on disk
        return table

    def close(self) -> None:
        self._file.close()


def index_paths(store: OfflineStore) -> list[Path]:
    """Return the index files, oldest first."""
    try:
        return sorted(path for path in store.paths.index.iterdir() if _NAME.match(path.name) and path.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []


class IndexCheck:
    """Call `record()` for each record of the log, then `finish()`."""

    def __init__(
        self, store: OfflineStore, problems: Problems, is_damaged: Callable[[int], bool], unfinished: bool
    ) -> None:
        """is_damaged: True if the log is damaged at a physical offset, which is reported already. unfinished: the
        broker was killed or is running, so the newest file may hold anything: the next start rebuilds it."""
        self._problems = problems
        self._is_damaged = is_damaged
        self._unfinished = unfinished
        self._begin = store.log.min_offset
        self._paths = index_paths(store)
        self._walk = self._all_entries()
        self._next = next(self._walk, None)
        self._after = next(self._walk, None)
        self.entries = 0
        self.unindexed = 0
        self._first_unindexed = -1
        self.missing = 0
        self._first_missing = -1
        self._started = False

    def _tell(self, path: Path, at: int, text: str) -> None:
        tell = self._problems.note if self._unfinished and path == self._paths[-1] else self._problems.damage
        tell("index", f"index/{path.name}", at, text)

    def _all_entries(self) -> Iterator[tuple[IndexReader, IndexEntry]]:
        """Yield the entries of all files. Check each file's chains and header on the way."""
        for path in self._paths:
            reader = IndexReader(path)
            if reader.problem is not None:
                self._tell(path, -1, f"the index file cannot be read: {reader.problem}")
                reader.close()
                continue
            header = reader.header
            newest = array("i", bytes(4 * reader.slots))
            last = None
            for entry in reader.entries():
                slot = entry.hash % reader.slots if entry.hash >= 0 else -1
                if slot < 0 or entry.previous != newest[slot]:
                    text = f"entry {entry.number} points back to {entry.previous}, not to the last one of its slot"
                    self._tell(path, reader.position(entry.number), text)
                if slot >= 0:
                    newest[slot] = entry.number
                last = entry
                yield reader, entry
            self._check_end(reader, newest, last)
            if header.following > reader.capacity:
                text = f"its header counts {header.following} entries, but there is room for {reader.capacity}"
                self._tell(path, 36, text)
            reader.close()

    def _check_end(self, reader: IndexReader, newest: array[int], last: IndexEntry | None) -> None:
        header, path = reader.header, reader.path
        table = reader.slot_table()
        if table != newest:
            wrong = next(slot for slot in range(len(newest)) if slot >= len(table) or table[slot] != newest[slot])
            found = table[wrong] if wrong < len(table) else "nothing"
            text = f"hash slot {wrong} points to {found}, but its newest entry is {newest[wrong]}"
            self._tell(path, _HEADER.size + 4 * wrong, text)
        used = len(newest) - newest.count(0)
        if used != header.slots_used:
            self._tell(path, 32, f"its header counts {header.slots_used} slots in use, but there are {used}")
        if last is not None and last.physical != header.end_offset:
            text = f"its header ends at {header.end_offset}, but its last entry points to {last.physical}"
            self._tell(path, 24, text)

    # --- along the log

    def record(self, record: Record) -> None:
        if not has_keys(record.sys_flag):
            return
        wanted = [key_hash(record.topic, key) for key in keys_of(record.properties)]
        physical = record.physical_offset
        while self._next is not None:
            reader, entry = self._next
            if entry.physical > physical:
                after = self._after
                if after is None or after[1].physical > physical:
                    break
                self._stray(reader, entry)  # the next entry points to an earlier record, so this one is wrong
            elif entry.physical < physical:
                self._stray(reader, entry)
            elif entry.hash in wanted:
                wanted.remove(entry.hash)
                self._started = True
                self._check_time(reader, entry, record)
            else:
                text = f"entry {entry.number} has a hash that no key of the record at {physical} has"
                self._tell(reader.path, reader.position(entry.number), text)
            self._advance()
        if not wanted:
            return
        if self._started and self._next is not None:
            self.missing += 1
            self._first_missing = physical if self._first_missing < 0 else self._first_missing
        else:
            self.unindexed += 1
            self._first_unindexed = physical if self._first_unindexed < 0 else self._first_unindexed

    def _advance(self) -> None:
        self.entries += 1
        self._next, self._after = self._after, next(self._walk, None)

    def _stray(self, reader: IndexReader, entry: IndexEntry) -> None:
        if 0 <= entry.physical < self._begin or self._is_damaged(entry.physical):
            return  # its record has expired, or is lost
        text = f"entry {entry.number} points to {entry.physical}, where no record is"
        self._tell(reader.path, reader.position(entry.number), text)

    def _check_time(self, reader: IndexReader, entry: IndexEntry, record: Record) -> None:
        """Check an entry's time. The first entry's seconds are not checked: Apache writes them before it sets the
        file's first time."""
        header = reader.header
        seconds = max(0, (record.store_time_ms - header.begin_ms) // 1000) if header.begin_ms > 0 else 0
        if (entry.number > 1 and entry.seconds != seconds) or record.store_time_ms > header.end_ms:
            text = f"entry {entry.number} has another time than the record at {entry.physical}"
            self._tell(reader.path, reader.position(entry.number), text)

    def finish(self) -> None:
        """Check the entries that are left when the log has ended, and report records without entries."""
        while self._next is not None:
            self._stray(*self._next)
            self._advance()
        if self.missing:
            text = f"{self.missing} records with keys have no entry, the first is at {self._first_missing}"
            self._problems.damage("not-indexed", "index", -1, text)
        if self.unindexed and self._paths:
            text = f"{self.unindexed} records with keys are before or behind what the index covers, the first is at "
            self._problems.note("not-indexed", "index", -1, text + str(self._first_unindexed))
