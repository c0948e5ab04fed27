"""The journal of acts that are under way, beside the settings database: each is recorded, durably, before it is done.

`middleware.Access` begins one for every request that may change something, and ends it with the answer. An entry that
the database does not take (another program locks it, the disk is full) waits here until it does. A request that a crash
cut off stays in the journal and becomes an entry at the next start. So there is no act without an entry.

The file has its full length from the beginning, so that it can be written even on a full disk.
"""

from __future__ import annotations

import json
import logging
import threading
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...engine.disk import Disk

logger = logging.getLogger(__name__)

FILE = "acts-under-way"
SLOTS, SLOT_BYTES = 128, 4096
# Slots that requests leave free for entries that wait.
_FOR_LATE = 32
_EMPTY = bytes(SLOT_BYTES)

#: The content of a slot: an entry's fields, and "began" if it is only the trace of a request under way.
Fields = dict[str, Any]


class NoRoom(Exception):
    """So many entries wait for the database that no other act can be recorded."""


class ActJournal:
    """The journal's file, one slot for each act. Any thread."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        """Open the journal; what an earlier process left in it counts as late. Raises OSError."""
        self._disk = disk = disk or Disk(directory)
        self._fd = disk.open(directory / FILE, create=True)
        self._lock = threading.Lock()
        # Guarded by _lock: number -> what waits for the database; numbers that are taken by requests.
        self._late: dict[int, Fields] = {}
        self._under_way: set[int] = set()
        if disk.size(self._fd) < SLOTS * SLOT_BYTES:
            disk.write_all(self._fd, bytes(SLOTS * SLOT_BYTES), 0)
            disk.fsync(self._fd)
            disk.sync_directory(directory)
        for number in range(SLOTS):
            found = _unpacked(disk.pread(self._fd, SLOT_BYTES, number * SLOT_BYTES))
            if found is not None:
                self._late[number] = found

    def close(self) -> None:
        self._disk.close(self._fd)

    def begin(self, fields: Fields) -> int:
        """Record a request that may change something, and return its number; durable when this returns. Raises OSError
        and NoRoom."""
        return self._write(fields | {"began": True}, SLOTS - _FOR_LATE, late=False)

    def end(self, number: int) -> None:
        """Remove a request that was answered: its entries are in the audit log, or wait for it."""
        self._clear(number)
        with self._lock:
            self._under_way.discard(number)

    def keep(self, fields: Fields) -> None:
        """Store an entry that the database did not take; durable when this returns. Raises OSError and NoRoom."""
        self._write(fields, SLOTS, late=True)

    def late(self) -> list[tuple[int, Fields]]:
        """Return (number, fields) of the entries that wait for the database, oldest first."""
        with self._lock:
            return sorted(self._late.items(), key=lambda one: int(one[1].get("at_ms", 0)))

    def taken(self, numbers: Iterable[int]) -> None:
        """Remove entries that the database has taken."""
        for number in numbers:
            self._clear(number)
            with self._lock:
                self._late.pop(number, None)

    def _write(self, fields: Fields, below: int, late: bool) -> int:
        data = _packed(fields)
        with self._lock:
            number = next((n for n in range(below) if n not in self._late and n not in self._under_way), None)
            if number is None:
                raise NoRoom
            if late:
                self._late[number] = fields
            else:
                self._under_way.add(number)
        try:
            self._disk.write_all(self._fd, data, number * SLOT_BYTES)
            self._disk.fdatasync(self._fd)
        except OSError:
            with self._lock:
                self._late.pop(number, None)
                self._under_way.discard(number)
            raise
        return number

    def _clear(self, number: int) -> None:
        """Empty a slot. This is not synced: if a crash brings the slot back, its `request_id` shows that the audit log
        has the entry."""
        try:
            self._disk.write_all(self._fd, _EMPTY, number * SLOT_BYTES)
        except OSError as error:
            logger.warning("audit log: the file of acts under way cannot be written: %s", error)


def _packed(fields: Fields) -> bytes:
    """Return a slot's bytes. If the fields are too long for it, `before` and `after` are left out."""
    for lighter in (fields, fields | {"before": None, "after": {"left_out": True}}):
        data = json.dumps(lighter).encode()
        if len(data) <= SLOT_BYTES - 8:
            break
    else:
        raise ValueError("an entry's other fields are short")
    return b"%08x" % zlib.crc32(data) + data.ljust(SLOT_BYTES - 8, b"\0")


def _unpacked(data: bytes) -> Fields | None:
    text = data[8:].rstrip(b"\0")
    if not text:
        return None
    try:
        if int(data[:8], 16) != zlib.crc32(text):
            raise ValueError
        found = json.loads(text)
    except (ValueError, RecursionError):
        logger.warning("audit log: the file of acts under way has a damaged line")
        return None
    return found if isinstance(found, dict) else None


_journal: ActJournal | None = None


def use(directory: Path | None) -> None:
    """Open the journal of this process; directory: None for none, as in commands and tests. Raises OSError."""
    global _journal
    if _journal is not None:
        _journal.close()
    _journal = None if directory is None else ActJournal(directory)


def journal() -> ActJournal | None:
    return _journal
