"""The common part of the tables of topics and of groups: Apache's JSON file, a version, the journal.

A change makes the next version, one journal entry, then the entry of the table. It is durable when `wait_durable` has
returned; the JSON file follows within a second. At start the file is read, then the journal is applied to it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from ..clock import Clock
from ..config_journal import ConfigJournal
from ..disk import Disk
from ..errors import RefusedRequest
from ..fastjson import encode_pretty, encode_text, pretty_document
from ..hotpath import TableState
from ..json_file import load_at_start, save_json_atomically
from ..protocol.codes import ResponseCode
from ..protocol.data_version import DataVersion
from ..shares import LastingShares
from .table_saver import SavedTable, TableSaver

logger = logging.getLogger(__name__)

SAVE_INTERVAL_S = 1.0


#: The part of a table's entries that only administrators may make: 1 / this number.
KEPT_FOR_ADMINISTRATORS = 8


class TooMany(RefusedRequest):
    """The table is full, or clients together, or those of one address, have had as many entries made as they may."""


T = TypeVar("T", bound=msgspec.Struct)


class ConfigTable(SavedTable, TableState, Generic[T]):
    """name -> frozen T. Read by any thread without a lock; changed under `_lock`.

    generation: grows with every change; what was derived from the table is stale when it differs.
    on_change: called with the new values after a change, outside the lock, by the thread that made it; must not block.
    """

    #: The journal's name for the table, and its field in the JSON file.
    table = ""
    field = ""
    #: Entries that may be made; those of a file are all taken, whatever their number. Apache has no such limit.
    most = 0

    def __init__(self, path: Path, journal: ConfigJournal, clock: Clock, disk: Disk | None = None) -> None:
        # Constant after construction.
        self._path = path
        self._disk = disk
        self._journal = journal
        self._clock = clock
        #: Entries that each client had made since the start; guarded by _lock.
        self.shares = LastingShares(clock)
        self._saver = TableSaver(self.table, self.persist, SAVE_INTERVAL_S)
        journal.when_broken.append(self._saver.save_now)
        self.on_change: list[Callable[[list[T]], None]] = []
        # Guarded by _lock; readers take single values without it. The journal's lock is taken inside.
        self._lock = threading.Lock()
        self._configs: dict[str, T] = {}
        self.data_version = DataVersion(clock.wall_ms())
        self.generation = 0
        self._dirty = False
        # Any thread; each step is one C call. Name -> when it was made, changed, or last in use, monotonic s.
        self._heard_at: dict[str, float] = {}
        self._loaded_at = clock.monotonic()
        # Guarded by _save_lock: name -> (value, the same as the file holds it).
        self._save_lock = threading.Lock()
        self._encoded: dict[str, tuple[T, bytes]] = {}

    # --- what a subclass says

    def _decode(self, name: str, value: Any) -> T:
        """Return the checked value of a JSON value. Raises ValueError or msgspec.ValidationError."""
        raise NotImplementedError

    def _is_legal_name(self, name: str) -> bool:
        raise NotImplementedError

    def _other_fields(self) -> dict[str, Any]:
        """Return the fields that the file has beside the version and the table."""
        return {}

    def _take_other_fields(self, document: dict[str, Any]) -> None:
        """Take these fields from a file that was read."""

    # --- reading

    def get(self, name: str) -> T | None:
        return self._configs.get(name)

    def note_heard(self, name: str) -> None:
        """Note that an entry was in use until now."""
        if name in self._configs:
            self._heard_at[name] = self._clock.monotonic()

    def quiet_s(self, name: str) -> float:
        """Return the seconds since an entry was made, changed or last in use; else since the table was loaded."""
        return self._clock.monotonic() - self._heard_at.get(name, self._loaded_at)

    def all(self) -> list[T]:
        """Return a copy of the entries, made in one call."""
        return list(self._configs.values())

    def encode_table(self, shown: Callable[[str], bool] | None = None) -> bytearray:
        """Return the table as answers carry it, `{"name":{...},...}`: compact, with every field. shown: tells the names
        that are in it; None: all."""
        encode = msgspec.json.encode
        text = bytearray(b"{")
        for config in self.all():
            name = self._name_of(config)
            if shown is not None and not shown(name):
                continue
            if len(text) > 1:
                text += b","
            text += encode(name) + b":" + encode(config)
        text += b"}"
        return text

    def _name_of(self, config: T) -> str:
        raise NotImplementedError

    # --- start and stop

    def load(self, from_the_start: dict[str, T]) -> None:
        """Read the file and the journal, then add the entries of every broker that they lack. Raises StartError."""
        load_at_start(self._path, self.field, self._take_document, self._disk)
        self._replay()
        for name, config in from_the_start.items():
            if name not in self._configs:
                self._configs[name] = config
                self._dirty = True

    def _take_document(self, document: dict[str, Any]) -> None:
        for name, value in document[self.field].items():
            if not self._is_legal_name(name):
                logger.warning("%s: illegal name left out: %r", self._path.name, name[:300])
                self._dirty = True
                continue
            self._configs[name] = self._decode(name, value)
        if document.get("dataVersion") is not None:
            self.data_version = DataVersion.decode(document["dataVersion"])
        self._take_other_fields(document)

    def _replay(self) -> None:
        """Apply the journal. An entry changes nothing if the file has it already, or something newer.

        The last entry of a name counts. It is applied if it is newer than the file. An older one is in the file, with
        one exception: Apache may have run on this directory after a crash of RocketBox, without seeing the entry. So a
        value whose name the file lacks is taken, too.
        """
        entries = self._journal.take(self.table)
        file_version = self.data_version
        version = file_version
        for name, entry in {entry["name"]: entry for entry in entries}.items():
            try:
                entry_version = DataVersion.decode(entry.get("version"))
                value = entry.get("value")
                config = None if value is None else self._decode(name, value)
            except (ValueError, msgspec.ValidationError) as error:
                logger.error("%s: journal entry skipped name=%r: %s", self._path.name, name, error)
                continue
            newer = entry_version.is_newer_than(file_version)
            if config is None:
                if newer:
                    self._configs.pop(name, None)
            elif newer or name not in self._configs:
                self._configs[name] = config
            if entry_version.is_newer_than(version):
                version = entry_version
        if entries:
            self.data_version = version
            self._dirty = True
            logger.info("%s: %d journal entries applied", self._path.name, len(entries))

    # --- changing

    def wait_durable(self, ticket: int) -> None:
        """Wait until the change with that ticket survives a power cut. Refuses with 1 if it may not."""
        try:
            self._journal.make_durable(ticket)
        except OSError as error:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the change may be lost again: {error}") from None

    def _change_locked(self, name: str, config: T | None, waits: bool = False, peer: bytes | None = None) -> int:
        """Journal and apply one change (None deletes); return its ticket. Refuses with 1; with 14, as the log refuses a
        message, if the journal cannot take a change that a client's message causes. Nothing is changed then.

        waits: the caller calls `wait_durable` next, as an administrator's acts do. peer: the client that has it made,
        see `LastingShares`; None for administrators and the broker itself.
        """
        assert self._lock.locked(), "the journal has changes in the order in which the table takes them"
        if config is not None and name not in self._configs:
            count = len(self._configs)
            if count >= self.most:
                raise TooMany(
                    ResponseCode.SYSTEM_ERROR, f"there are {count} {self.table}, at most {self.most} are made"
                )
            kept = 0 if peer is None else self.most // KEPT_FOR_ADMINISTRATORS
            if not self.shares.take(peer, self.most - kept - count):
                raise TooMany(
                    ResponseCode.SYSTEM_ERROR,
                    f"clients of this address have had as many {self.table} made as they may, of {count}; "
                    "an administrator may make more",
                )
        version = self.data_version.following(self._clock.wall_ms())
        entry = {
            "table": self.table,
            "name": name,
            "value": config,
            "version": {"counter": version.counter, "timestamp": version.timestamp},
        }
        try:
            ticket = self._journal.append(entry, wake=not waits)
        except OSError as error:
            code = ResponseCode.SYSTEM_ERROR if waits else ResponseCode.SERVICE_NOT_AVAILABLE
            raise RefusedRequest(code, f"the change cannot be saved: {error}") from None
        except (UnicodeEncodeError, OverflowError) as error:  # half a surrogate pair, a number over 64 bits
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the change cannot be saved: {error}") from None
        if config is None:
            self._configs.pop(name, None)
            self._heard_at.pop(name, None)
        else:
            self._configs[name] = config
            self._heard_at[name] = self._clock.monotonic()
        self.data_version = version
        self.generation += 1
        self._dirty = True
        return ticket

    def remove_now(self, name: str) -> None:
        """Remove an entry; that is durable with the next `make_durable`. Refuses with 1 if it cannot be saved."""
        with self._lock:
            if name in self._configs:
                self._change_locked(name, None, waits=True)

    def touch(self) -> int:
        """Give the table a new version without a changed entry, because its registered form changes; return the
        ticket."""
        with self._lock:
            name, config = next(iter(self._configs.items()))
            return self._change_locked(name, config, waits=True)

    def take_copy(self, document: Any) -> bool:
        """Replace the entries by those of another broker's table, in the form of its answer. False if this table has
        that version already.

        Raises ValueError or msgspec.ValidationError for a document that is no table; RefusedRequest if it cannot be
        saved.
        """
        if not isinstance(document, dict) or not isinstance(document.get(self.field), dict):
            raise ValueError(f"there is no {self.field}")
        version = DataVersion.decode(document.get("dataVersion"))
        if version == self.data_version:
            return False
        wanted = {n: self._decode(n, v) for n, v in document[self.field].items() if self._is_legal_name(n)}
        with self._lock:
            changed = [config for name, config in wanted.items() if self._configs.get(name) != config]
            for name in [name for name in self._configs if name not in wanted]:
                self._change_locked(name, None)
            for config in changed:
                self._change_locked(self._name_of(config), config)
            self.data_version = version
            self.generation += 1
            self._dirty = True
        self._announce(changed)
        return True

    def make_durable(self) -> None:
        """Wait until all changes so far survive a power cut. Refuses with 1 if they may not."""
        self.wait_durable(self._journal.written)

    def _announce(self, changed: list[T]) -> None:
        for listener in self.on_change:
            listener(changed)

    # --- the file

    def persist(self) -> None:
        """Rewrite the file if the table changed since the last time, or the journal is broken; durable when this
        returns. Raises OSError."""
        with self._save_lock:
            with self._lock:
                if not self._dirty and self._journal.failure is None:  # a broken journal needs all files saved
                    return
                self._dirty = False
                written = self._journal.written
                version = self.data_version
                configs = list(self._configs.values())
                other = self._other_fields()
            try:
                save_json_atomically(self._path, self._document(configs, version, other), self._disk)
            except BaseException:
                with self._lock:
                    self._dirty = True
                raise
            self._journal.saved(self.table, written)

    def _document(self, configs: list[T], version: DataVersion, other: dict[str, Any]) -> Iterator[bytes]:
        fields: dict[str, Any] = {name: encode_pretty(value, 1).encode() for name, value in other.items()}
        fields["dataVersion"] = encode_pretty(version.as_dict(), 1).encode()
        fields[self.field] = self._entries(configs)
        return pretty_document(sorted(fields.items()))

    def _entries(self, configs: list[T]) -> Iterator[bytes]:
        """Yield the entries as the file holds them. Each is encoded once after a change, so that saving a large table
        is mostly a join."""
        encoded = self._encoded
        if len(encoded) > 2 * len(configs):
            encoded.clear()
        for config in configs:
            name = self._name_of(config)
            known = encoded.get(name)
            if known is None or known[0] is not config:
                text = f"{encode_text(name)}:{encode_pretty(_sorted_fields(config), 2)}"
                known = encoded[name] = (config, text.encode())
            yield known[1]


def _sorted_fields(value: Any) -> Any:
    """Return a struct as Java writes it: fields in alphabetical order, those without a value left out."""
    return _in_order(msgspec.to_builtins(value))


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value) if value[key] is not None}
    if isinstance(value, list):
        return [_in_order(item) for item in value]
    return value


def without_nulls(value: Any) -> Any:
    """Return JSON as Java reads it: a null field is a missing one."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value
