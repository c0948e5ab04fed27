"""Facts of all days on disk: for the reports, and for the operator's own Spark jobs.

    FACTS/TABLE/day=YYYY-MM-DD/facts.parquet   spark.read.parquet("FACTS/traffic") gives the table with a further column
                                               `day`
    FACTS/plain/YYYY-MM-DD.jsonl.gz            of days that were counted where pyarrow is missing: [table, row] a line
    FACTS/.writing/  FACTS/.ready-YYYY-MM-DD/  a day on its way

A day replaces the one that was there. It is written beside and synced; then one rename makes it valid. If a run ends
before the steps after that, the next call does them (`settle`). One run at a time.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from gzip import BadGzipFile
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.engine.file_sync import replace_file, sync_data, sync_directory
from appliance.engine.protocol.names import DLQ_PREFIX

from .tables import ADDED, CONTENTS, LATENCY, QUEUES, TABLES, TRAFFIC, DayFacts, Row, Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

PLAIN, FILE = "plain", "facts.parquet"
_WRITING, _READY, _SUFFIX = ".writing", ".ready-", ".jsonl.gz"
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z", re.ASCII)
_CONTENTS = frozenset(table.name for table in CONTENTS)
#: Days of which delivery times are read: this one, and a week before it.
TIMED_DAYS = 8


def has_parquet() -> bool:
    """True if Parquet can be written here. Imports pyarrow, which takes 0.2 s and some 50 MB."""
    try:
        import pyarrow.parquet
    except ImportError:
        return False
    return bool(pyarrow.parquet)


def to_parquet(facts_dir: Path) -> None:
    """Write the days in Parquet that are lines of JSON. A day that cannot be read stays as it is. Raises OSError."""
    for name in _names(facts_dir / PLAIN):
        day = name.removesuffix(_SUFFIX)
        if name.endswith(_SUFFIX) and _DAY.match(day):
            try:
                facts = _read_plain(facts_dir, day)
                if facts is not None:
                    _write_parquet(facts_dir, day, facts)
            except (EOFError, ValueError, KeyError, TypeError, BadGzipFile) as error:
                logger.warning("the facts of %s in %s cannot be read: %s", day, facts_dir, error)


def write(facts_dir: Path, day: str, facts: Mapping[str, DataFrame | list[Row]], as_parquet: bool = False) -> None:
    """Write all tables of a day, in place of the old ones; as Parquet if one of them is a frame, or with as_parquet.
    Raises OSError, and whatever Spark raises while it counts: the old day is whole then."""
    if _DAY.match(day) is None:
        raise ValueError(f"{day!r} is no day like 2026-01-31")
    facts_dir.mkdir(parents=True, exist_ok=True)
    settle(facts_dir)
    rows = {name: one for name, one in facts.items() if isinstance(one, list)}
    if as_parquet or len(rows) < len(facts):
        _write_parquet(facts_dir, day, facts)
    else:
        _write_plain(facts_dir, day, rows)


def read(facts_dir: Path, days: Iterable[str]) -> dict[str, DayFacts]:
    """Return all tables of those days that exist and can be read. Days in Parquet need pyarrow: without it they are
    left out. A day of an older version has no key for the tables that it did not count.

    Only the last of the days is whole, so that a month of a broker with ten thousand topics fits into memory. Trends
    need less of the others: TRAFFIC has one row a topic, with queue and hour -1; QUEUES has the queues of dead letters,
    and of topics whose ends are those of the last day; CONTENTS are empty before the last two days, and LATENCY has one
    row, with bucket 0, for each group, topic and kind before the last TIMED_DAYS."""
    settle(facts_dir)
    wanted = sorted(days, reverse=True)
    found: dict[str, DayFacts] = {}
    ends: _Ends | None = None
    for ago, day in enumerate(wanted):
        left_out = frozenset() if ago < 2 else _CONTENTS
        try:
            facts = _read_plain(facts_dir, day, left_out) or _read_parquet(facts_dir, day, left_out)
        # NotImplementedError: a column of a kind that pyarrow converts to no number or text.
        except (OSError, EOFError, ValueError, KeyError, TypeError, NotImplementedError) as error:
            logger.warning("the facts of %s in %s cannot be read: %s", day, facts_dir, error)
            continue
        if facts is None:
            continue
        if not ago:
            ends = _Ends(facts[QUEUES.name])
        else:
            facts[TRAFFIC.name] = _summed_up(facts[TRAFFIC.name], 1, (-1, -1))
            if ends is not None:
                facts[QUEUES.name] = ends.same(facts[QUEUES.name])
            if ago >= TIMED_DAYS:
                facts[LATENCY.name] = _summed_up(facts[LATENCY.name], 3, (0,))
        found[day] = facts
    return dict(sorted(found.items()))


class _Ends:
    """The ends of a day's queues, with which those of earlier days are compared. Equal rows become one object."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = {row: row for row in rows}
        self._of = {topic: _ends_of(queues) for topic, queues in _by_topic(rows)}

    def same(self, rows: list[Row]) -> list[Row]:
        """Return the rows of topics whose ends are the same, and of dead letters."""
        return [
            self._rows.get(row, row)
            for topic, queues in _by_topic(rows)
            if topic.startswith(DLQ_PREFIX) or _ends_of(queues) == self._of.get(topic)
            for row in queues
        ]


def _by_topic(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows of each topic. rows: of QUEUES, sorted."""
    return ((str(topic), list(queues)) for topic, queues in groupby(rows, itemgetter(0)))


def _ends_of(queues: list[Row]) -> list[tuple[str | int, str | int]]:
    return [(queue_id, max_offset) for _, queue_id, _, max_offset in queues]


def _summed_up(rows: list[Row], kept: int, others: Row) -> list[Row]:
    """Return the sums of the values by the first `kept` columns. others: in place of the other key columns."""
    sums: dict[Row, list[int]] = {}
    behind = kept + len(others)
    values = range(behind, len(rows[0]) if rows else behind)
    for row in rows:
        key = row[:kept]
        known = sums.get(key)
        if known is None:
            known = sums[key] = [0] * len(values)
        for at, column in enumerate(values):
            known[at] += row[column]  # type: ignore[operator]
    return [(*key, *others, *values) for key, values in sorted(sums.items())]


def days(facts_dir: Path) -> list[str]:
    """Return all days that are kept, oldest first."""
    found = {name.removesuffix(_SUFFIX) for name in _names(facts_dir / PLAIN) if name.endswith(_SUFFIX)}
    for table in TABLES:
        found |= {name.removeprefix("day=") for name in _names(facts_dir / table.name)}
    return sorted(day for day in found if _DAY.match(day))


def prune(facts_dir: Path, keep_days: int, last: str = "9999-12-31") -> list[str]:
    """Delete all but the newest `keep_days` of the days up to `last`, however old those are. Later days stay, so that
    the facts of an old day are kept until its reports are made. Return the deleted days. Raises OSError."""
    settle(facts_dir)
    found = [day for day in days(facts_dir) if day <= last]
    gone = found[:-keep_days] if keep_days > 0 else []
    for day in gone:
        _remove_parquet(facts_dir, day)
        _plain(facts_dir, day).unlink(missing_ok=True)
    return gone


def settle(facts_dir: Path) -> None:
    """Finish the writing that a killed run had begun, or discard it. Raises OSError."""
    for name in _names(facts_dir):
        if name.startswith(_READY) and _DAY.match(day := name.removeprefix(_READY)):
            _take_in(facts_dir, day)
    shutil.rmtree(facts_dir / _WRITING, ignore_errors=True)
    for name in _names(facts_dir / PLAIN):
        if name.startswith("."):
            (facts_dir / PLAIN / name).unlink(missing_ok=True)
        elif name.endswith(_SUFFIX) and _DAY.match(day := name.removesuffix(_SUFFIX)):
            _remove_parquet(facts_dir, day)


# --- Parquet


def _write_parquet(facts_dir: Path, day: str, facts: Mapping[str, DataFrame | list[Row]]) -> None:
    import pyarrow.parquet as pq

    writing = facts_dir / _WRITING
    writing.mkdir()
    try:
        for table in _tables_of(facts):
            path = writing / table.name
            pq.write_table(_arrow_table(table, facts[table.name]), path)
            _sync_file(path)
        sync_directory(writing)
        os.rename(writing, facts_dir / f"{_READY}{day}")
    finally:  # gives the room back if the disk is full
        shutil.rmtree(writing, ignore_errors=True)
    sync_directory(facts_dir)
    _take_in(facts_dir, day)


def _take_in(facts_dir: Path, day: str) -> None:
    """Move the tables of a day that is ready, each to its place."""
    ready = facts_dir / f"{_READY}{day}"
    for name in _names(ready):
        place = _parquet(facts_dir, name, day)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(ready / name, place)
        sync_directory(place.parent)
        sync_directory(place.parent.parent)
    _plain(facts_dir, day).unlink(missing_ok=True)
    ready.rmdir()
    sync_directory(facts_dir)


def _read_parquet(facts_dir: Path, day: str, left_out: frozenset[str] = frozenset()) -> DayFacts | None:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        return None
    found: DayFacts = {}
    for table in TABLES:
        path = _parquet(facts_dir, table.name, day)
        if table.name in left_out:
            found[table.name] = []
            continue
        if not path.exists():
            if table.name not in ADDED or not found:
                return None
            continue
        names = [name for name, _ in table.columns]
        columns = pq.ParquetFile(path).read(columns=names).select(names).cast(_schema(table))
        if any(column.null_count for column in columns.columns):
            raise ValueError(f"{path} has rows without values")
        found[table.name] = list(zip(*map(_values, columns.columns), strict=True))
    return found


def _values(column: pa.ChunkedArray) -> list[str] | list[int]:
    """Return the values; equal texts become one object, since most are in many rows."""
    known: dict[str, str] = {}
    return [known.setdefault(one, one) if isinstance(one, str) else one for one in column.to_pylist()]


def _remove_parquet(facts_dir: Path, day: str) -> None:
    for table in TABLES:
        path = _parquet(facts_dir, table.name, day)
        path.unlink(missing_ok=True)
        try:
            path.parent.rmdir()
        except OSError:
            pass  # not there, or with something else in it


def _arrow_table(table: Table, facts: DataFrame | list[Row]) -> pa.Table:
    """Return the rows as an Arrow table, sorted by the keys."""
    import pyarrow as pa

    schema = _schema(table)
    if isinstance(facts, list):
        columns = list(zip(*facts, strict=True)) or [()] * len(schema)
        return pa.Table.from_arrays([pa.array(*one) for one in zip(columns, schema.types, strict=True)], schema=schema)
    found = facts.toArrow().cast(schema)
    return found.sort_by([(name, "ascending") for name in table.keys]) if table.keys else found


def _schema(table: Table) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, pa.string() if kind == "string" else pa.int64()) for name, kind in table.columns])


def _parquet(facts_dir: Path, table: str, day: str) -> Path:
    return facts_dir / table / f"day={day}" / FILE


# --- JSON lines


def _write_plain(facts_dir: Path, day: str, facts: DayFacts) -> None:
    lines = [
        json.dumps([table.name, row], ensure_ascii=False, separators=(",", ":"))
        for table in _tables_of(facts)
        for row in facts[table.name]
    ]
    data = gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)
    (facts_dir / PLAIN).mkdir(exist_ok=True)
    replace_file(_plain(facts_dir, day), data)
    _remove_parquet(facts_dir, day)


def _read_plain(facts_dir: Path, day: str, left_out: frozenset[str] = frozenset()) -> DayFacts | None:
    path = _plain(facts_dir, day)
    if not path.exists():
        return None
    found: dict[str, list[Row]] = {table.name: [] for table in TABLES}
    is_older = True
    kinds = {table.name: [str if kind == "string" else int for _, kind in table.columns] for table in TABLES}
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                name, row = json.loads(line)
                if list(map(type, row)) != kinds[name] or any(
                    type(one) is int and one >> 63 not in (0, -1) for one in row
                ):
                    raise ValueError(f"a row of {name} does not fit its columns")
                is_older = is_older and name not in ADDED
                if name not in left_out:
                    found[name].append(tuple(row))
    except zlib.error as error:
        raise ValueError(f"{error}") from None
    if is_older:
        # A table without rows leaves no line. A day that was counted now has lines of some of them: the broker ran.
        return {name: rows for name, rows in found.items() if name not in ADDED}
    return found


def _tables_of(facts: Mapping[str, object]) -> list[Table]:
    """Return the tables to write: all, except for those that an older version did not count."""
    return [table for table in TABLES if table.name not in ADDED or table.name in facts]


def _plain(facts_dir: Path, day: str) -> Path:
    return facts_dir / PLAIN / f"{day}{_SUFFIX}"


# --- files


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_data(fd)
    finally:
        os.close(fd)
