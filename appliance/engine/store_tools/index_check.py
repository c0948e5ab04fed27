"""Index entries against records, both ways: one walk along the log and along the index files, which name records in
the log's order. Memory: the slots of one index file.
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
#: Smaller files than the default are of tests and demonstrations: their number of slots is searched for.
_SEARCHED_BYTES = 64 << 20
_READ_ENTRIES = 50_000


class IndexHeader(NamedTuple):
    """Times in ms, physical offsets; following: number of the next entry, the first is 1."""

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
    """One index file, read only. `problem`: why it cannot be read as one, None when it can."""

    def __init__(self, path: Path, slots: int | None = None) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._file = open(path, "rb")  # noqa: SIM115 - closed by close()
        self.problem: str | None = None
        raw = self._file.read(_HEADER.size)
        self.header = IndexHeader(*_HEADER.unpack(raw)) if len(raw) == _HEADER.size else IndexHeader(0, 0, 0, 0, 0, 1)
        self.slots = 0
        if len(raw) < _HEADER.size:
            self.problem = f"it has {self.size} bytes, less than a header"
        else:
            self.slots = slots or self._find_slots()
            if not self.slots:
                self.problem = "its header and its entries contradict each other"

    @property
    def capacity(self) -> int:
        return (self.size - _HEADER.size - 4 * self.slots) // _ENTRY.size

    def _find_slots(self) -> int:
        """How many hash slots the file was made with; 0 when no number fits. The newest entry tells: its slot names it,
        and it names the header's last offset."""
        following = self.header.following
        if self.size == _DEFAULT_BYTES:
            return _DEFAULT_SLOTS if following <= 1 or self._fits(_DEFAULT_SLOTS) else 0
        ratios = [slots for part in (84, 44, 24, 104) if (slots := (self.size - _HEADER.size) // part)]
        # 40 + 4 slots + 20 entries = size: every fifth number.
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
        """Where entry `number` begins in the file."""
        return _HEADER.size + 4 * self.slots + _ENTRY.size * number

    def entries(self) -> Iterator[IndexEntry]:
        """All of them, in the order they were made."""
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
        """What each slot names."""
        table = array("i")
        self._file.seek(_HEADER.size)
        table.frombytes(self._file.read(4 * self.slots))
        table.byteswap()  # big-endian on disk
        return table

    def close(self) -> None:
        self._file.close()


def index_paths(store: OfflineStore) -> list[Path]:
    """Index files, oldest first."""
    try:
        return sorted(path for path in store.paths.index.iterdir() if _NAME.match(path.name) and path.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []


class IndexCheck:
    """`record()` for each record of the log, then `finish()`."""

    def __init__(
        self, store: OfflineStore, problems: Problems, is_damaged: Callable[[int], bool], unfinished: bool
    ) -> None:
        """is_damaged: whether the log is, at a physical offset; that was told. unfinished: the broker was killed or
        runs; then the newest file may say anything, a start makes it anew."""
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
        """Entries of all files; each file's chains and header are checked on the way."""
        for path in self._paths:
            reader = IndexReader(path)
            if reader.problem is not None:
                self._tell(path, -1, f"this index file cannot be read: {reader.problem}")
                reader.close()
                continue
            header = reader.header
            newest = array("i", bytes(4 * reader.slots))
            last = None
            for entry in reader.entries():
                slot = entry.hash % reader.slots if entry.hash >= 0 else -1
                if slot < 0 or entry.previous != newest[slot]:
                    said = f"entry {entry.number} continues {entry.previous}"
                    self._tell(path, reader.position(entry.number), f"{said}, which is not the newest of its slot")
                if slot >= 0:
                    newest[slot] = entry.number
                last = entry
                yield reader, entry
            self._check_end(reader, newest, last)
            if header.following > reader.capacity:
                self._tell(path, 36, f"its header counts {header.following} entries, it has room for {reader.capacity}")
            reader.close()

    def _check_end(self, reader: IndexReader, newest: array[int], last: IndexEntry | None) -> None:
        header, path = reader.header, reader.path
        table = reader.slot_table()
        if table != newest:
            wrong = next(slot for slot in range(len(newest)) if slot >= len(table) or table[slot] != newest[slot])
            said = table[wrong] if wrong < len(table) else "nothing"
            text = f"hash slot {wrong} names {said}, its newest entry is {newest[wrong]}"
            self._tell(path, _HEADER.size + 4 * wrong, text)
        used = len(newest) - newest.count(0)
        if used != header.slots_used:
            self._tell(path, 32, f"its header counts {header.slots_used} slots in use, there are {used}")
        if last is not None and last.physical != header.end_offset:
            self._tell(path, 24, f"its header ends at {header.end_offset}, its last entry names {last.physical}")

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
                self._stray(reader, entry)  # the entry behind it names an earlier record: this one is wrong
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
        text = f"entry {entry.number} names no record at {entry.physical}"
        self._tell(reader.path, reader.position(entry.number), text)

    def _check_time(self, reader: IndexReader, entry: IndexEntry, record: Record) -> None:
        """Apache writes the first entry of a file before it knows when the file begins."""
        header = reader.header
        seconds = max(0, (record.store_time_ms - header.begin_ms) // 1000) if header.begin_ms > 0 else 0
        if (entry.number > 1 and entry.seconds != seconds) or record.store_time_ms > header.end_ms:
            text = f"entry {entry.number} has another time than the record at {entry.physical}"
            self._tell(reader.path, reader.position(entry.number), text)

    def finish(self) -> None:
        """The log has ended."""
        while self._next is not None:
            self._stray(*self._next)
            self._advance()
        if self.missing:
            text = f"{self.missing} records with keys have no entry, the first lies at {self._first_missing}"
            self._problems.damage("not-indexed", "index", -1, text)
        if self.unindexed and self._paths:
            text = f"{self.unindexed} records with keys lie before or behind what the index covers, the first at "
            self._problems.note("not-indexed", "index", -1, text + str(self._first_unindexed))
