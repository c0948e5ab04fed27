"""Checks the small files: checkpoint, recovery position, deleted topics, configuration and its journal, findings."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from .. import fastjson
from ..config_journal import decode_line
from ..errors import StartError
from ..store import store_format
from ..store.checkpoint import SLOT_BYTES, RecoveryPosition, RecoveryPositionFile
from ..store.findings import Finding, Findings
from ..store.index import index_recovery
from ..store.queues.queue_ledger import PREFIX, LedgerPlace, ledger_matches
from ..store.retention import deleted_topics, purged_queues
from .offline_store import OfflineStore
from .problems import Problems

_CHECKPOINT = struct.Struct(">qqq")
#: Files in config/ that are JSON although their names do not end in .json.
_JSON_NAMES = ("timermetrics", "transactionMetrics")
_SLOT_BYTES, _SLOT_DISTANCE = SLOT_BYTES, 4096


def checkpoint_times(store: OfflineStore) -> tuple[int, int, int] | None:
    """Return the store times in ms of the last flush of log, queues and index; None without a whole checkpoint."""
    try:
        raw = store.paths.checkpoint.read_bytes()
    except OSError:
        return None
    return _CHECKPOINT.unpack_from(raw) if len(raw) >= 40 else None


def recovery_position(store: OfflineStore) -> tuple[RecoveryPosition | None, int]:
    """Return (the saved recovery position, the physical offset below which the log was durable, or -1)."""
    if not store.paths.recovery_position.exists():
        return None, -1
    file = RecoveryPositionFile(store.paths.recovery_position, store.disk)
    file.close()
    return file.position, file.durable


def position_matches(store: OfflineStore, position: RecoveryPosition) -> bool:
    """True if the record at a recovery position is still the one that it was."""
    return position.is_true(store.raw.record_at(position.record_offset, position.record_size))


def table_in(raw: bytes) -> dict[str, Any]:
    """Return the object that a file of config/ holds. Raises ValueError; so does a start then."""
    found = fastjson.loads(raw)
    if not isinstance(found, dict):
        raise ValueError("it holds no object")
    return found


def known_deletions(store: OfflineStore) -> dict[str, int]:
    """Return topic -> physical offset below which its records have no queue entries. Raises ValueError."""
    return _noted(store)[0]


def _noted(store: OfflineStore) -> tuple[dict[str, int], deleted_topics.Ends]:
    try:
        raw = (store.paths.own / deleted_topics.NAME).read_bytes()
    except FileNotFoundError:
        return {}, {}
    try:
        return deleted_topics.decode(fastjson.loads_plain(raw))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it lacks {error}") from None


def saved_findings(store: OfflineStore) -> list[Finding]:
    """Return the findings of earlier starts, and of the checks of closed log files."""
    return Findings(store.paths, store.disk).all()


def config_files(store: OfflineStore) -> list[Path]:
    """Return the files in config/, by name."""
    try:
        return sorted(path for path in store.paths.config.iterdir() if path.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_json(path: Path) -> bool:
    name = path.name.removesuffix(".bak")
    return name.endswith(".json") or name in _JSON_NAMES


class SmallFilesCheck:
    """`run()` checks all small files. deleted, ends, durable, position: read on the way, for the checks that follow."""

    def __init__(self, store: OfflineStore, problems: Problems, unfinished: bool) -> None:
        self._store = store
        self._problems = problems
        self._unfinished = unfinished
        self.deleted: dict[str, int] = {}
        self.ends: deleted_topics.Ends = {}
        self.position: RecoveryPosition | None = None
        self.durable = -1

    def run(self) -> None:
        self._format()
        self._checkpoint()
        self._recovery_position()
        self._deleted_topics()
        self._purged_queues()
        self._index_position()
        self._config()
        self._journal()
        self._options()
        self._findings()

    def _format(self) -> None:
        try:
            store_format.check_format(self._store.paths, self._store.disk)
        except StartError as error:
            self._problems.damage("format", f"rocketbox/{store_format.NAME}", -1, str(error).rstrip("."))

    def _checkpoint(self) -> None:
        path = self._store.paths.checkpoint
        if not path.exists():
            if self._store.log.segments:
                self._problems.note("checkpoint", "checkpoint", -1, "it is missing; the next start makes a new one")
        elif checkpoint_times(self._store) is None:
            self._problems.damage("checkpoint", "checkpoint", -1, f"it has {path.stat().st_size} bytes instead of 4096")

    def check_times(self, last_ms: int) -> None:
        """Report checkpoint times that are later than the last record's store time, `last_ms`."""
        times = checkpoint_times(self._store)
        if times is None:
            return
        tell = self._problems.note if self._unfinished else self._problems.damage
        for at, (name, time_ms) in enumerate(zip(("log", "queues", "index"), times, strict=True)):
            if time_ms < 0 or time_ms > max(last_ms, 0):
                text = f"the last flush of the {name}, {time_ms}, is later than the last record, {last_ms}"
                tell("checkpoint", "checkpoint", 8 * at, text)

    def _recovery_position(self) -> None:
        name, path = "rocketbox/recovery-position", self._store.paths.recovery_position
        if not path.exists():
            return
        raw = path.read_bytes()
        self.position, self.durable = recovery_position(self._store)
        bad = []
        for slot in (0, 1):
            part = raw[slot * _SLOT_DISTANCE : slot * _SLOT_DISTANCE + _SLOT_BYTES]
            whole = len(part) == _SLOT_BYTES
            matches = whole and deleted_topics.crc32(part[:-4]) == int.from_bytes(part[-4:], "big")
            if part.strip(b"\0") and not matches:
                bad.append(slot * _SLOT_DISTANCE)
        if len(raw) < _SLOT_DISTANCE + _SLOT_BYTES:
            text = f"it has {len(raw)} bytes, too few for its two slots"
            self._problems.damage("recovery-position", name, -1, text)
        for at in bad:
            level = self._problems.note if self._unfinished and self.durable >= 0 else self._problems.damage
            level("recovery-position", name, at, "this slot does not match its checksum; the other one is used")
        if self.durable < 0:
            text = "neither slot is whole; the next start scans the whole log"
            self._problems.damage("recovery-position", name, -1, text)
        elif self.position is not None and not position_matches(self._store, self.position):
            text = f"the record at {self.position.record_offset} is another one: another program wrote here since"
            self._problems.note("recovery-position", name, -1, text)
        if self.position is not None and self.position.ledger_generation:
            place = LedgerPlace(*self.position.ledger)
            if not ledger_matches(place, self._store.paths, self._store.disk):
                text = "it does not match the recovery position; the next start opens every queue file instead"
                self._problems.damage("queue-ledger", f"rocketbox/{PREFIX}{place.generation:08d}", -1, text)

    def _deleted_topics(self) -> None:
        try:
            self.deleted, self.ends = _noted(self._store)
        except ValueError as error:
            text = f"it cannot be read, so messages of deleted topics may appear again: {error}"
            self._problems.damage("deleted-topics", f"rocketbox/{deleted_topics.NAME}", -1, text)

    def _purged_queues(self) -> None:
        name = f"rocketbox/{purged_queues.NAME}"
        try:
            purged_queues.decode((self._store.paths.own / purged_queues.NAME).read_bytes())
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            text = f"it cannot be read, so purged messages may appear again: {error}"
            self._problems.damage("purged-queues", name, -1, text)

    def _index_position(self) -> None:
        name = index_recovery.NAME
        file = index_recovery.IndexPositionFile(self._store.paths, self._store.disk)
        if (self._store.paths.own / name).exists() and file.load() is None:
            text = "it does not match its checksum; the headers of the index files are used instead"
            self._problems.damage("index-position", f"rocketbox/{name}", -1, text)

    def _config(self) -> None:
        for path in config_files(self._store):
            if path.name.endswith(".damaged"):
                self._problems.note("set-aside", f"config/{path.name}", -1, "it was damaged and set aside")
            elif is_json(path):
                self._parse(path, f"config/{path.name}")

    def _parse(self, path: Path, name: str) -> None:
        raw = path.read_bytes()
        if not raw.strip():
            if name.endswith(".bak") or (path.with_name(path.name + ".bak")).exists():
                self._problems.note("config", name, -1, "it is empty; the copy beside it is used")
            else:
                self._problems.damage("config", name, -1, "it is empty, and there is no copy")
            return
        try:
            table_in(raw)
        except ValueError as error:
            self._problems.damage("config", name, -1, f"it cannot be read: {error}")

    def _journal(self) -> None:
        path = self._store.paths.own / "config.journal"
        if not path.exists():
            return
        raw = path.read_bytes()
        at = 0
        for line in raw.split(b"\n")[:-1]:
            if decode_line(line) is None:
                self._problems.damage("journal", "rocketbox/config.journal", at, "this line does not match its CRC")
            at += len(line) + 1
        if at < len(raw):
            tell = self._problems.note if self._unfinished else self._problems.damage
            tell("journal", "rocketbox/config.journal", at, "the last line is torn; the next start cuts it")

    def _options(self) -> None:
        for path in sorted(self._store.paths.own.glob("**/*.json")) if self._store.paths.own.is_dir() else ():
            if path.name in (deleted_topics.NAME, purged_queues.NAME):
                continue
            self._parse(path, f"rocketbox/{path.relative_to(self._store.paths.own)}")

    def _findings(self) -> None:
        path = self._store.paths.quarantine / "findings.jsonl"
        if not path.exists():
            return
        for line in path.read_bytes().splitlines():
            try:
                Finding(**fastjson.loads_plain(line))
            except (ValueError, TypeError):
                if line.strip():
                    text = "a line cannot be read"
                    self._problems.note("findings", "rocketbox/quarantine/findings.jsonl", -1, text)
