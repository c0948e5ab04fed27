"""The key index's part of the pure twin: entries and slots of keys. `store/index/index_keys.py` finds keys in records;
the compiled twin handles usual records for it."""

from __future__ import annotations

import struct
from itertools import islice

ENTRY = struct.Struct(">iqii")
FIRST_ENTRY = 1
MAX_SECONDS = (1 << 31) - 1

#: Collection of keys, (hash, physical offset, store time in ms) each; packed in the compiled twin.
Keys = list[tuple[int, int, int]]


def entry_seconds(begin_ms: int, time_ms: int) -> int:
    """Return the time field of an entry. A new file's first entry counts from the last file's end, as Apache's does."""
    return min(max((time_ms - begin_ms) // 1000, 0), MAX_SECONDS) if begin_ms > 0 else 0


def scan_keys(data: bytes, at: int, base: int, found: Keys, limit: int) -> tuple[int, int]:
    """Run `KeyScanner.scan` up to the first record that is unusual, not whole, or none; return (where it stopped in
    `data`, records of `limit` that are left). Here every record counts as unusual."""
    return at, limit


def put_keys(
    table: memoryview, keys: Keys, begin: int, count: int, number: int, used: int, begin_ms: int
) -> tuple[bytes, int]:
    """Return (the entries of `count` keys from `keys[begin]` on, slots in use then); the first gets `number`.

    table: native ints, the newest entry of each slot; it is updated. begin_ms: the header's.
    """
    slot_count = len(table)
    pack = ENTRY.pack
    entries = []
    last_ms, seconds = -1, 0
    for code, physical, time_ms in islice(keys, begin, begin + count):
        if time_ms != last_ms:
            seconds = entry_seconds(begin_ms, time_ms)
            last_ms = time_ms
        slot = code % slot_count
        previous = table[slot]
        if previous <= 0:
            previous = 0
            used += 1
        entries.append(pack(code, physical, seconds, previous))
        table[slot] = number
        if number == FIRST_ENTRY:
            begin_ms, last_ms = time_ms, -1
        number += 1
    return b"".join(entries), used


def take_back(table: memoryview, entries: bytes) -> None:
    """Undo `put_keys` for entries that were not written."""
    for code, _, _, previous in reversed(list(ENTRY.iter_unpack(entries))):
        table[code % len(table)] = previous


def link_entries(table: memoryview, entries: bytes, number: int) -> int:
    """Update the table with stored entries, the first of which has `number`; return how many slots were empty."""
    slot_count, empty = len(table), 0
    for code, _, _, _ in ENTRY.iter_unpack(entries):
        slot = code % slot_count
        empty += not table[slot]
        table[slot] = number
        number += 1
    return empty
