"""The journal of configuration changes: topics and groups that changed since their JSON files were last saved (D9).

One line for each change, in `DATA/rocketbox/config.journal`; format page: docs/formats/config.md.

    6f0a7c1e {"table":"topics","name":"T","value":{...},"version":{"counter":3,"timestamp":1700000000000}}\n

The CRC-32 of the JSON text as eight hex digits, a blank, the text. `value` is null for a deletion.

The thread that makes a change writes its entry without a sync: from then on the change survives the process. A thread
that has to wait for the disk syncs all entries written so far itself (`make_durable`), also for other waiting threads;
the journal's thread syncs the entries that no thread waits for. When `make_durable` or `wait_durable` returns, the
change survives a power cut. Once the JSON files of all tables are saved and hold all entries, the journal is emptied.

Positions are numbers of entries, counted over the journal's life and never reset:

    durable <= written
    an entry is in this file, or in the saved JSON file of its table, or in both

After a failed sync the state of its pages on the disk is unknown. So no entries are accepted until the JSON files hold
everything, and then a new file replaces this one (D6).
"""

from __future__ import annotations

import errno
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from .clock import Clock
from .crc_lines import line_of, text_of
from .disk import Disk
from .journal_file import MOST_READ_BYTES, AppendedLines
from .service_thread import ServiceThread

logger = logging.getLogger(__name__)

#: Time-out of a wait for a sync; the entry may still become durable after it.
WAIT_S = 10.0


def encode_entry(entry: dict[str, Any]) -> bytes:
    """Return the line of one entry with its newline."""
    return line_of(msgspec.json.encode(entry))


def decode_line(line: bytes) -> dict[str, Any] | None:
    """Return the entry of a line (without its newline); None if the line is damaged."""
    text = text_of(line)
    try:
        if text is None:
            return None
        entry = json.loads(text)
    except ValueError:
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("table"), str) or not isinstance(entry.get("name"), str):
        return None
    return entry


class ConfigJournal(ServiceThread):
    """The thread `config-journal` syncs; any thread appends."""

    def __init__(
        self,
        path: Path,
        disk: Disk | None = None,
        clock: Clock | None = None,
        most_bytes: int = MOST_READ_BYTES,
    ) -> None:
        """Open the journal and read it; a torn last line is cut. most_bytes: an entry beyond it is refused. Raises
        OSError."""
        super().__init__("config-journal")
        # Constant after construction.
        self._most_bytes = most_bytes
        self._clock = clock or Clock()
        self._path = path
        self._file = AppendedLines("config journal", path, disk)
        #: Functions that save the tables' JSON files after a failed sync, so that these have the journal's entries.
        #: Filled before start().
        self.when_broken: list[Callable[[], None]] = []
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._written = 0
        self._last_entry: dict[str, int] = {}
        self._saved: dict[str, int] = {}
        self._broken: str | None = None
        # Held during a sync; _lock and _state are taken inside.
        self._syncing = threading.Lock()
        # Guarded by _state.
        self._state = threading.Condition()
        self._durable = 0
        self._failed = 0
        self._replay: dict[str, list[dict[str, Any]]] = {}
        self._load()

    def _load(self) -> None:
        good: list[bytes] = []

        def take(line: bytes) -> bool:
            entry = decode_line(line)
            if entry is None:
                return False
            good.append(line + b"\n")
            self._written += 1
            self._last_entry[entry["table"]] = self._written
            self._replay.setdefault(entry["table"], []).append(entry)
            return True

        if self._file.load(take):
            # Otherwise a new entry, written over a part of a damaged line, could make the rest look like an entry.
            self._file.begin(b"".join(good))
        self._durable = self._written

    def take(self, table: str) -> list[dict[str, Any]]:
        """Return the entries of `table` that were found at start, oldest first, and forget them."""
        return self._replay.pop(table, [])

    # --- any thread

    @property
    def durable(self) -> int:
        """The number of the last entry that survives a power cut."""
        return self._durable

    @property
    def written(self) -> int:
        """The number of the last entry; for `saved`."""
        return self._written

    def append(self, entry: dict[str, Any], wake: bool = True) -> int:
        """Write one entry; return its number, for `make_durable`. Never syncs.

        entry: JSON values, with `table` and `name`. wake: have the thread sync it; False if the caller calls
        `make_durable` next (without that call, it is synced when its table is saved, a second later). Raises OSError if
        it cannot be written; nothing has changed then.
        """
        line = encode_entry(entry)
        with self._lock:
            if self._broken is not None:
                raise OSError(self._broken)
            if self._file.size + len(line) > self._most_bytes:
                raise OSError(errno.EFBIG, "it is full until the tables are saved", str(self._path))
            self._file.append(line, sync=False)
            self._written += 1
            self._last_entry[entry["table"]] = ticket = self._written
        if wake:
            self.wakeup()
        return ticket

    def make_durable(self, ticket: int) -> None:
        """As `wait_durable`, but sync in this thread unless another sync is under way: saves two hand-overs. Blocks."""
        if self._durable < ticket and self._syncing.acquire(timeout=WAIT_S):
            try:
                self._sync_locked()
            finally:
                self._syncing.release()
        self.wait_durable(ticket, 0.0)

    def wait_durable(self, ticket: int, timeout_s: float = WAIT_S) -> None:
        """Return when entry `ticket` is durable. Raises OSError when its sync failed or takes too long."""
        deadline = self._clock.monotonic() + timeout_s
        with self._state:
            while self._durable < ticket:
                if self._failed >= ticket:
                    raise OSError(self._broken or f"{self._path} could not be synced")
                left = deadline - self._clock.monotonic()
                if left <= 0 or self.stopped:
                    raise OSError(f"{self._path} was not synced in time")
                self._state.wait(left)

    @property
    def owes_a_sync(self) -> bool:
        """True if entries were written that are not durable yet. Any thread."""
        return self._written > self._durable

    def sync_written(self) -> None:
        """Make all entries written so far durable, here or in the tables' files, if the disk works. Blocks.

        A failure is logged and shows in `failure`.
        """
        ticket = self._written
        if ticket > self._durable:
            try:
                self.make_durable(ticket)
            except OSError as error:
                logger.error("config journal: cannot be synced, saving the tables instead: %s", error)
                for save in self.when_broken:
                    save()

    @property
    def failure(self) -> str | None:
        """The reason why entries are refused; None while they are accepted."""
        return self._broken

    def saved(self, table: str, written: int) -> None:
        """Note that the JSON file of `table` is durable and holds every entry of the table up to number `written`."""
        with self._lock:
            self._saved[table] = max(written, self._saved.get(table, 0))
        self._empty_if_saved()

    def _empty_if_saved(self) -> None:
        """Empty the journal if the JSON files hold all of it. After a failed sync it then accepts entries again."""
        with self._lock:
            if not self._file.size and self._broken is None:
                return
            if any(self._saved.get(name, 0) < last for name, last in self._last_entry.items()):
                return
            if self._broken is None and self._durable < self._written:
                # The entries must be durable first: a power cut could keep the entry that made a topic and lose the one
                # that deleted it.
                self.wakeup()
                return
            try:
                if self._broken is None:
                    self._file.cut(0)
                else:  # then no thread syncs the old file
                    self._file.begin(b"")
            except OSError as error:
                logger.error("config journal: cannot be emptied path=%s: %s", self._path, error)
                return
            self._broken = None
            durable = self._written
        with self._state:
            self._durable = max(self._durable, durable)
            assert self._durable <= self._written, "no entry is durable before it was written"
            self._state.notify_all()

    # --- the thread

    def run(self) -> None:
        while not self.stopped:
            self.wait(None)
            self.work()

    def work(self) -> None:
        """Sync the written entries, and empty the file if the tables hold all of it."""
        self._sync()
        self._empty_if_saved()

    def _sync(self) -> None:
        """Sync all entries written before this call."""
        with self._syncing:
            self._sync_locked()

    def _sync_locked(self) -> None:
        target = self._written
        if target <= self._durable or self._broken is not None:
            return
        try:
            self._file.sync()
        except OSError as error:
            # The kernel may have dropped the pages it could not write, and the next sync would then report success. So
            # no entry is taken until the JSON files hold everything.
            logger.error("config journal: sync failed path=%s: %s", self._path, error)
            with self._lock:
                self._broken = f"{self._path} could not be synced: {error}"
                failed = self._written
            with self._state:
                self._failed = failed
                self._state.notify_all()
            return
        with self._state:
            self._durable = max(self._durable, target)
            self._state.notify_all()

    def stop(self, deadline: float = 5.0) -> bool:
        """End the thread, sync the rest, close the file."""
        ended = super().stop(deadline)
        self.work()
        self._file.close()
        return ended
