"""Checks the console's audit log, reading its database without Django and without changing it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from ..console.audit.seal import COVERED, Row, Seal
from .diagnosis import Diagnosis

_ADVICE = "find out why; then rocketbox audit accept takes the log as it is now"
_JSON = tuple(name in ("before", "after") for name in COVERED)
_COLUMNS = ", ".join(f'"{name}"' for name in COVERED)


class DatabaseFile:
    """The entries, read from the database file."""

    def __init__(self, path: Path) -> None:
        # Without a write-ahead log the database is not open, and SQLite must not make a file beside it.
        mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
        self._connection = sqlite3.connect(f"file:{path}?{mode}", uri=True)

    def rows(self, behind: int) -> Iterator[Row]:
        sql = f"SELECT id, digest, {_COLUMNS} FROM console_auditentry WHERE id > ? ORDER BY id"
        found = self._connection.execute(sql, (behind,))
        for entry, digest, *values in found:
            fields = (
                json.loads(one) if is_json and one is not None else one
                for one, is_json in zip(values, _JSON, strict=True)
            )
            yield Row(entry, digest, tuple(fields))

    def digest_at(self, entry: int) -> str | None:
        found = self._connection.execute("SELECT digest FROM console_auditentry WHERE id = ?", (entry,)).fetchone()
        return None if found is None else str(found[0])

    def count(self, upto: int) -> int:
        found = self._connection.execute("SELECT count(*) FROM console_auditentry WHERE id <= ?", (upto,)).fetchone()
        return int(found[0])

    def newest(self) -> tuple[int, str]:
        found = self._connection.execute(
            "SELECT id, digest FROM console_auditentry ORDER BY id DESC LIMIT 1"
        ).fetchone()
        return (0, "") if found is None else (int(found[0]), str(found[1]))

    def is_marked(self) -> bool:
        found = self._connection.execute("SELECT 1 FROM console_setting WHERE key = 'audit-seal'").fetchone()
        return found is not None

    def close(self) -> None:
        self._connection.close()


def look_at_audit_log(found: Diagnosis, directory: Path) -> None:
    """directory: DATA/rocketbox."""
    path = directory / "console.sqlite3"
    if not path.exists():
        found.ok("audit", "There is no audit log yet.")
        return
    try:
        table = DatabaseFile(path)
        try:
            verdict = Seal(directory).check(table, table.is_marked())
        finally:
            table.close()
    except (sqlite3.Error, OSError, ValueError) as error:
        found.warn("audit", f"The audit log cannot be read: {error}.", "run doctor as the user that RocketBox runs as")
        return
    if verdict.is_well:
        found.ok("audit", str(verdict))
    else:
        found.fail("audit", str(verdict), _ADVICE)
