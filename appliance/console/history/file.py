"""The file with the measured figures, DATA/rocketbox/history.sqlite3, whose size is limited.

A series is a name and a label ("group_lag", "billing"). `fine` has a row for each hour of a series: one code for each
30 seconds. `coarse` has a row for each day: average, lowest and highest of each quarter of an hour. Both tables are
compressed. `fine_spans` and `coarse_spans` hold, for each hour or day, the moments that were measured at all, and a bit
for each series that was zero all the time: it has no row, so idle topics and groups take no room.

Spans are kept by number, not by age: the newest 7 days of hours and 13 months of days that hold something. So a clock
that was wrong for a while drops no figures.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ...engine.own_files import FILE_MODE
from .codes import NONE, decode

NAME = "history.sqlite3"
#: Most bytes of the file that may be in use.
MAX_BYTES = 256 << 20
#: Share of MAX_BYTES for fine rows; the rest is for coarse ones.
FINE_SHARE = 0.5

FINE_MS = 30_000
FINE_SLOTS = 120
HOUR_MS = FINE_MS * FINE_SLOTS
COARSE_MS = 900_000
COARSE_SLOTS = 96
DAY_MS = COARSE_MS * COARSE_SLOTS
HOURS_OF_A_DAY = DAY_MS // HOUR_MS

HOURS_KEPT = 7 * 24 + 1
DAYS_KEPT = 396
_PAGE = 4096
_VERSION = 1


class Span(NamedTuple):
    """taken: a byte for each slot, 1 if figures were measured in it. zeros: a bit for each series, 1 if it was zero in
    all of those slots."""

    taken: bytes
    zeros: bytes

    def is_zero(self, series: int) -> bool:
        place = series >> 3
        return place < len(self.zeros) and bool(self.zeros[place] >> (series & 7) & 1)


def set_aside(directory: Path) -> Path:
    """Rename the damaged file, replacing an older damaged one; return its new path. Raises OSError."""
    aside = directory / f"{NAME}.damaged"
    os.replace(directory / NAME, aside)
    for journal in ("-wal", "-shm"):  # SQLite would use them for the new file
        (directory / f"{NAME}{journal}").unlink(missing_ok=True)
    return aside


def bits(numbers: Iterable[int]) -> bytes:
    """Return a bit field in which the bits with these numbers are set."""
    numbers = list(numbers)
    made = bytearray((max(numbers) >> 3) + 1 if numbers else 0)
    for number in numbers:
        made[number >> 3] |= 1 << (number & 7)
    return bytes(made)


class HistoryFile:
    """One connection to the file, of one thread. Raises sqlite3.Error."""

    def __init__(self, directory: Path, max_bytes: int = MAX_BYTES, *, reading: bool = False) -> None:
        """reading: open a second connection, for one thread at a time, which sees committed data; the file must
        exist."""
        path = directory / NAME
        if not reading:  # made before SQLite does, for this user only: its journals take its mode
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        self._max_bytes = max_bytes
        self.db = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=not reading)
        self.db.execute("PRAGMA cache_size = -1024")
        if not reading:
            self._prepare()

    def _prepare(self) -> None:
        self.db.execute(f"PRAGMA page_size = {_PAGE}")
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        self.db.execute("PRAGMA journal_size_limit = 4194304")
        if self.db.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
            self._make_tables()
        # Above the limit of make_room(). If the file cannot grow further, writes fail, and nothing is lost.
        self.db.execute(f"PRAGMA max_page_count = {self._max_bytes // _PAGE + 4096}")

    def _make_tables(self) -> None:
        from sqlite_utils import Database  # 5 MB of memory; not needed if the file has its tables

        made = Database(self.db)
        made.table("series").create({"id": int, "name": str, "label": str}, pk="id", if_not_exists=True)
        made.table("series").create_index(["name", "label"], unique=True, if_not_exists=True)
        for table in ("fine", "coarse"):
            made.table(f"{table}_spans").create(
                {"span": int, "taken": bytes, "zeros": bytes}, pk="span", if_not_exists=True
            )
            # Rows are ordered by time, so that expired ones free whole pages. sqlite-utils has no WITHOUT ROWID.
            self.db.execute(
                f"CREATE TABLE IF NOT EXISTS {table} (span INTEGER NOT NULL, series INTEGER NOT NULL, "
                "data BLOB NOT NULL, PRIMARY KEY (span, series)) WITHOUT ROWID"
            )
        self.db.execute(f"PRAGMA user_version = {_VERSION}")

    def close(self) -> None:
        self.db.close()

    @property
    def used_bytes(self) -> int:
        """Bytes of the file's pages that are in use."""
        pages = self.db.execute("PRAGMA page_count").fetchone()[0]
        free = self.db.execute("PRAGMA freelist_count").fetchone()[0]
        return int((pages - free) * _PAGE)

    # --- series

    def all_series(self) -> list[tuple[int, str, str]]:
        """Return (id, name, label) of each series."""
        return self.db.execute("SELECT id, name, label FROM series").fetchall()

    def series_id(self, name: str, label: str) -> int | None:
        row = self.db.execute("SELECT id FROM series WHERE name = ? AND label = ?", (name, label)).fetchone()
        return None if row is None else int(row[0])

    def labels(self, name: str) -> list[str]:
        rows = self.db.execute("SELECT label FROM series WHERE name = ? ORDER BY label", (name,))
        return [label for (label,) in rows]

    def add_series(self, made: Iterable[tuple[int, str, str]]) -> None:
        self.db.executemany("INSERT INTO series (id, name, label) VALUES (?, ?, ?)", made)

    # --- spans

    def span(self, table: str, span: int) -> Span | None:
        row = self.db.execute(f"SELECT taken, zeros FROM {table}_spans WHERE span = ?", (span,)).fetchone()
        return None if row is None else Span(row[0], zlib.decompress(row[1]))

    def spans(self, table: str, first: int, last: int) -> dict[int, Span]:
        rows = self.db.execute(
            f"SELECT span, taken, zeros FROM {table}_spans WHERE span BETWEEN ? AND ? ORDER BY span", (first, last)
        )
        return {span: Span(taken, zlib.decompress(zeros)) for span, taken, zeros in rows}

    def span_numbers(self, table: str) -> list[int]:
        return [span for (span,) in self.db.execute(f"SELECT span FROM {table}_spans ORDER BY span")]

    def put(self, table: str, span: int, facts: Span, rows: Iterable[tuple[int, bytes]]) -> None:
        """Replace a span's facts, and the rows of the given series. In the transaction of the caller."""
        self.db.execute(
            f"INSERT OR REPLACE INTO {table}_spans (span, taken, zeros) VALUES (?, ?, ?)",
            (span, facts.taken, zlib.compress(facts.zeros)),
        )
        self.put_rows(table, span, rows)

    def put_rows(self, table: str, span: int, rows: Iterable[tuple[int, bytes]]) -> None:
        """Replace the rows of more series of a span. In the transaction of the caller."""
        self.db.executemany(
            f"INSERT OR REPLACE INTO {table} (span, series, data) VALUES (?, ?, ?)",
            ((span, series, data) for series, data in rows),
        )

    def row(self, table: str, span: int, series: int) -> bytes | None:
        row = self.db.execute(f"SELECT data FROM {table} WHERE span = ? AND series = ?", (span, series)).fetchone()
        return None if row is None else row[0]

    def rows(self, table: str, span: int) -> Iterator[tuple[int, bytes]]:
        yield from self.db.execute(f"SELECT series, data FROM {table} WHERE span = ?", (span,))

    def rows_of(self, table: str, series: int, first: int, last: int) -> dict[int, bytes]:
        """Return a series' rows by span, for the spans from `first` to `last` that exist."""
        found = self.db.execute(
            f"SELECT s.span, d.data FROM {table}_spans s JOIN {table} d ON d.span = s.span AND d.series = ? "
            "WHERE s.span BETWEEN ? AND ?",
            (series, first, last),
        )
        return dict(found)

    def drop(self, table: str, spans: Iterable[int]) -> None:
        for span in spans:
            with self.db:
                self.db.execute("BEGIN")
                self.db.execute(f"DELETE FROM {table} WHERE span = ?", (span,))
                self.db.execute(f"DELETE FROM {table}_spans WHERE span = ?", (span,))

    # --- the end of a day, and the fixed size

    def days_to_make(self, before_day: int) -> list[int]:
        """Return the days before `before_day` that have fine spans but no coarse one yet."""
        hours = self.span_numbers("fine")
        made = set(self.span_numbers("coarse"))
        days = {hour // HOURS_OF_A_DAY for hour in hours}
        return sorted(day for day in days if day < before_day and day not in made)

    def make_room(self, hour: int, keep_until: int, is_believed: bool = True) -> list[str]:
        """Drop spans that have expired, and the oldest ones while the file is too large. Return what was dropped, in
        words for the log.

        hour: the present one. Fine hours from keep_until on do not expire: no coarse day was made of them yet.
        is_believed: False while the clock may be wrong. Spans ahead of it stay then, except coarse days that can be
        made again.
        """
        dropped = []
        for table, kept, now in (("fine", HOURS_KEPT, hour), ("coarse", DAYS_KEPT, hour // HOURS_OF_A_DAY)):
            numbers = self.span_numbers(table)
            # Spans ahead of the present one: the clock was wrong. A coarse day is made only when the day is over.
            ahead = [span for span in numbers if span > now + 1 or (table == "coarse" and span >= now)]
            if not is_believed:
                of_hours = {fine // HOURS_OF_A_DAY for fine in self.span_numbers("fine")} if ahead else set()
                ahead = [span for span in ahead if table == "coarse" and span in of_hours]
            old = [span for span in numbers[:-kept] if table == "coarse" or span < keep_until]
            if ahead or old:
                self.drop(table, [*ahead, *old])
                dropped.append(f"{table}: {len(ahead)} ahead, {len(old)} old")
        while self.used_bytes > self._max_bytes * 0.95:
            hours, days = self.span_numbers("fine"), self.span_numbers("coarse")
            fine = self._bytes_of("fine") > self._max_bytes * FINE_SHARE
            if fine and len(hours) > 2:
                self.drop("fine", hours[: max(1, len(hours) // 20)])
                dropped.append("fine: too large")
            elif len(days) > 1:
                self.drop("coarse", days[: max(1, len(days) // 20)])
                dropped.append("coarse: too large")
            elif len(hours) > 2:
                self.drop("fine", hours[:1])
            else:
                break
        return dropped

    def _bytes_of(self, table: str) -> int:
        return int(self.db.execute(f"SELECT coalesce(sum(length(data) + 16), 0) FROM {table}").fetchone()[0])

    def forget_series(self, living: Iterable[int]) -> list[int]:
        """Delete series without rows, as of deleted topics and groups, unless they are in `living`. Return their ids.

        The highest id stays, so that no id is given twice: bits of `zeros` would then stand for another series.
        """
        rows = self.db.execute(
            "SELECT id FROM series WHERE id < (SELECT max(id) FROM series) AND id NOT IN "
            "(SELECT series FROM fine UNION SELECT series FROM coarse)"
        )
        gone = sorted({number for (number,) in rows} - set(living))
        with self.db:
            self.db.execute("BEGIN")
            self.db.executemany("DELETE FROM series WHERE id = ?", ((number,) for number in gone))
        return gone


def coarse_of(hours: Mapping[int, array[int]], day: int) -> tuple[list[float | None], ...]:
    """Return three lists, the averages, lows and highs of each quarter of an hour of a day; None for a quarter in which
    nothing was measured. hours: hour -> its codes."""
    averages: list[float | None] = [None] * COARSE_SLOTS
    lows: list[float | None] = [None] * COARSE_SLOTS
    highs: list[float | None] = [None] * COARSE_SLOTS
    each = COARSE_MS // FINE_MS
    for hour, codes in hours.items():
        base = (hour - day * HOURS_OF_A_DAY) * (HOUR_MS // COARSE_MS)
        for n in range(0, FINE_SLOTS, each):
            part = [code for code in codes[n : n + each] if code != NONE]
            if part:
                slot = base + n // each
                low, high = min(part), max(part)
                lows[slot], highs[slot] = decode(low), decode(high)
                averages[slot] = decode(low) if low == high else sum(decode(code) or 0.0 for code in part) / len(part)
    return averages, lows, highs
