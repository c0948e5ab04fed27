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
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from . import file_sync
from .clock import Clock
from .crc_lines import line_of, text_of
from .own_files import FILE_MODE, make_directory
from .service_thread import ServiceThread

logger = logging.getLogger(__name__)

#: Time-out of a wait for a sync; the entry may still become durable after it.
WAIT_S = 10.0
#: Largest journal, since it is read whole at a start: a larger one is refused there, and an entry beyond it here.
MOST_READ_BYTES = 256 << 20


class JournalCalls(Protocol):
    """The system calls of the journal; tests pass ones that fail or forget."""

    def exists(self, path: Path) -> bool: ...
    def make_directory(self, path: Path) -> None: ...
    def open(self, path: Path) -> int: ...
    def read(self, path: Path) -> bytes: ...
    def pwrite(self, fd: int, data: bytes, position: int) -> int: ...
    def truncate(self, fd: int, size: int) -> None: ...
    def fdatasync(self, fd: int) -> None: ...
    def forget_cached(self, fd: int) -> None: ...
    def close(self, fd: int) -> None: ...
    def rename(self, old: Path, new: Path) -> None: ...
    def sync_directory(self, path: Path) -> None: ...


class OsJournalCalls:
    """The operating system's calls."""

    def exists(self, path: Path) -> bool:
        return path.exists()

    def make_directory(self, path: Path) -> None:
        make_directory(path)

    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)

    def read(self, path: Path) -> bytes:
        if path.stat().st_size > MOST_READ_BYTES:
            raise OSError(errno.EFBIG, f"it is larger than {MOST_READ_BYTES >> 20} MiB, so not ours")
        return path.read_bytes()

    def pwrite(self, fd: int, data: bytes, position: int) -> int:
        return os.pwrite(fd, data, position)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        file_sync.sync_data(fd)

    def forget_cached(self, fd: int) -> None:
        """Make later reads come from the disk."""
        file_sync.forget_cached(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def sync_directory(self, path: Path) -> None:
        file_sync.sync_directory(path)


def write_all(calls: JournalCalls, fd: int, data: bytes, position: int) -> None:
    """Write all of `data`, which the kernel may take in pieces. Raises OSError."""
    done = 0
    while done < len(data):
        count = calls.pwrite(fd, data[done:], position + done)
        if count <= 0:
            raise OSError(f"{done} of {len(data)} bytes were written")
        done += count


def begin_file(calls: JournalCalls, path: Path, content: bytes) -> int:
    """Replace the file at `path` by a new one, durable on return. Return its descriptor. Raises OSError."""
    fresh = path.with_name(path.name + ".new")
    fd = calls.open(fresh)
    try:
        calls.truncate(fd, 0)
        write_all(calls, fd, content, 0)
        calls.fdatasync(fd)
        calls.rename(fresh, path)
        calls.sync_directory(path.parent)
    except OSError:
        calls.close(fd)
        raise
    return fd


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
        calls: JournalCalls | None = None,
        clock: Clock | None = None,
        most_bytes: int = MOST_READ_BYTES,
    ) -> None:
        """Open the journal and read it; a torn last line is cut. Raises OSError."""
        super().__init__("config-journal")
        # Constant after construction.
        self._most_bytes = most_bytes
        self._calls = OsJournalCalls() if calls is None else calls
        self._clock = clock or Clock()
        self._path = path
        #: Functions that save the tables' JSON files after a failed sync, so that these have the journal's entries.
        #: Filled before start().
        self.when_broken: list[Callable[[], None]] = []
        self._calls.make_directory(path.parent)
        new = not self._calls.exists(path)
        self._fd = self._calls.open(path)
        if new:
            self._calls.sync_directory(path.parent)
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._end = 0
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
        # A process that died may not have synced its last entries; then the page cache has entries that the disk lacks.
        # From here on everything that is read is relied on, so it must be on the disk.
        self._calls.fdatasync(self._fd)
        self._calls.forget_cached(self._fd)
        raw = self._calls.read(self._path)
        lines = raw.split(b"\n")
        good: list[bytes] = []
        for line in lines[:-1]:
            entry = decode_line(line)
            if entry is None:
                logger.error("config journal: damaged line left out path=%s line=%r", self._path, line[:200])
                continue
            good.append(line + b"\n")
            self._written += 1
            self._last_entry[entry["table"]] = self._written
            self._replay.setdefault(entry["table"], []).append(entry)
        if lines[-1]:
            logger.warning("config journal: torn tail cut path=%s bytes=%d", self._path, len(lines[-1]))
        content = b"".join(good)
        if content != raw:
            # Otherwise a new entry, written over a part of a damaged line, could make the rest look like an entry.
            self._begin_new_file(content)
        self._end = len(content)
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
            if self._end + len(line) > self._most_bytes:
                raise OSError(errno.EFBIG, "it is full until the tables are saved", str(self._path))
            try:
                write_all(self._calls, self._fd, line, self._end)
            except OSError:
                # Only tidies up: a rest of the entry would be read as a torn tail, or overwritten by the next entry.
                with suppress(OSError):
                    self._calls.truncate(self._fd, self._end)
                raise
            self._end += len(line)
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
            if not self._end and self._broken is None:
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
                    self._calls.truncate(self._fd, 0)
                else:
                    self._begin_new_file()
            except OSError as error:
                logger.error("config journal: cannot be emptied path=%s: %s", self._path, error)
                return
            self._end = 0
            self._broken = None
            durable = self._written
        with self._state:
            self._durable = max(self._durable, durable)
            assert self._durable <= self._written, "no entry is durable before it was written"
            self._state.notify_all()

    def _begin_new_file(self, content: bytes = b"") -> None:
        """Replace the file by a new one, durable on return. While the thread runs, only after a failed sync: then no
        thread syncs the old one."""
        fd = begin_file(self._calls, self._path, content)
        old, self._fd = self._fd, fd
        self._calls.close(old)

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
            self._calls.fdatasync(self._fd)
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
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._calls.close(fd)
        return ended
