"""What the tables of topics and of groups have in common: a JSON file of Apache's, a version, the journal.

A change is: next version, one journal entry, then the table. It is durable when `wait_durable` has returned; the JSON
file follows within a second. At start the file is read, then what the journal has on top of it.
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
from ..errors import RefusedRequest
from ..fastjson import encode_pretty, encode_text, pretty_document
from ..hotpath import TableState
from ..json_file import OS_FILE_CALLS, FileCalls, load_at_start, save_json_atomically
from ..protocol.codes import ResponseCode
from ..protocol.data_version import DataVersion
from ..shares import LastingShares
from .table_saver import TableSaver

logger = logging.getLogger(__name__)

SAVE_INTERVAL_S = 1.0


#: Of what a table may hold, what is made only by administrators: 1 / so much.
KEPT_FOR_ADMINISTRATORS = 8


class TooMany(RefusedRequest):
    """The table holds as much as it may, or as much as clients, or those of one address, may have made."""


T = TypeVar("T", bound=msgspec.Struct)


class ConfigTable(TableState, Generic[T]):
    """name -> frozen T. Read by any thread without a lock; changed under `_lock`.

    generation: grows with every change; what was derived from the table is stale when it differs.
    on_change: called with the new values after a change, outside the lock, by the thread that made it; must not block.
    """

    #: The journal's name for the table, and its field in the JSON file.
    table = ""
    field = ""
    #: Entries that may be made; what a file brings is taken whatever its number. Ours: Apache has no such bound.
    most = 0

    def __init__(self, path: Path, journal: ConfigJournal, clock: Clock, files: FileCalls = OS_FILE_CALLS) -> None:
        # Constant after construction.
        self._path = path
        self._files = files
        self._journal = journal
        self._clock = clock
        #: Who had entries made since the start; guarded by _lock.
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
        """A checked value from JSON; raises ValueError or msgspec.ValidationError."""
        raise NotImplementedError

    def _is_legal_name(self, name: str) -> bool:
        raise NotImplementedError

    def _other_fields(self) -> dict[str, Any]:
        """Fields the file has beside the version and the table."""
        return {}

    def _take_other_fields(self, document: dict[str, Any]) -> None:
        """The same, read."""

    # --- reading

    def get(self, name: str) -> T | None:
        return self._configs.get(name)

    def note_heard(self, name: str) -> None:
        """It was in use until now."""
        if name in self._configs:
            self._heard_at[name] = self._clock.monotonic()

    def quiet_s(self, name: str) -> float:
        """How long nothing was heard of it: since it was made, changed or in use, or since the table was loaded."""
        return self._clock.monotonic() - self._heard_at.get(name, self._loaded_at)

    def all(self) -> list[T]:
        """A copy, made in one call."""
        return list(self._configs.values())

    def encode_table(self) -> bytearray:
        """`{"name":{...},...}` as answers carry it: compact, every field given."""
        encode = msgspec.json.encode
        text = bytearray(b"{")
        for config in self.all():
            if len(text) > 1:
                text += b","
            text += encode(self._name_of(config)) + b":" + encode(config)
        text += b"}"
        return text

    def _name_of(self, config: T) -> str:
        raise NotImplementedError

    # --- start and stop

    def load(self, from_the_start: dict[str, T]) -> None:
        """Read the file and the journal, then add what every broker has and they lack. Raises StartError."""
        load_at_start(self._path, self.field, self._take_document, self._files)
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
        """Apply the journal. An entry the file already has in itself, or something newer, changes nothing.

        The last entry of a name counts. It is applied when it is newer than the file. An older one is in the file, with
        one exception: Apache may have run on this directory after a crash of ours and never seen it. So a value whose
        name the file lacks is taken, too.
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

    def start(self) -> None:
        self._saver.start()

    def stop(self) -> None:
        """End the thread and save."""
        self._saver.stop()

    @property
    def failure(self) -> str | None:
        """Why the file could not be saved the last time, if so."""
        return self._saver.failure

    # --- changing

    def wait_durable(self, ticket: int) -> None:
        """Return when the change with that ticket survives a power cut. Refuses with 1 when it may not."""
        try:
            self._journal.make_durable(ticket)
        except OSError as error:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the change may be lost again: {error}") from None

    def _change_locked(self, name: str, config: T | None, waits: bool = False, peer: bytes | None = None) -> int:
        """Journal and apply one change (None deletes); returns its ticket. When refused, nothing changed: with 1, and
        where the journal cannot take what comes with a client's message, with 14, as the log refuses the message.

        waits: the caller calls `wait_durable` next, as an administrator's acts do. peer: the client that has it made,
        see `LastingShares`; None for administrators and the broker itself.
        """
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
        """Forget an entry; it is durable with the next `make_durable`. Refuses with 1 when it cannot be saved."""
        with self._lock:
            if name in self._configs:
                self._change_locked(name, None, waits=True)

    def touch(self) -> int:
        """Give the table a new version though no entry changed, since what others are told of it did; the ticket."""
        with self._lock:
            name, config = next(iter(self._configs.items()))
            return self._change_locked(name, config, waits=True)

    def take_copy(self, document: Any) -> bool:
        """Become what another broker's table is, as it answers requests for it; whether anything changed.

        Raises ValueError or msgspec.ValidationError for what is no table; RefusedRequest when it cannot be saved.
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
        """What was changed so far survives a power cut when this returns. Refuses with 1 when it may not."""
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
                if not self._dirty and self._journal.failure is None:  # a broken one waits for all files
                    return
                self._dirty = False
                written = self._journal.written
                version = self.data_version
                configs = list(self._configs.values())
                other = self._other_fields()
            try:
                save_json_atomically(self._path, self._document(configs, version, other), self._files)
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
        """Each entry is encoded once a change: a large table is a join of what is there."""
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
    """A struct as Java writes it: fields in alphabetical order, those without a value left out."""
    return _in_order(msgspec.to_builtins(value))


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value) if value[key] is not None}
    if isinstance(value, list):
        return [_in_order(item) for item in value]
    return value


def without_nulls(value: Any) -> Any:
    """JSON as Java reads it: a null field is a missing one."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value
