"""Rows of the tables LAG and INCIDENTS, from the console's measurements of every 30 seconds
(DATA/rocketbox/history.sqlite3).

The console writes its file every few minutes, so the last minutes of a day that is not over are missing. For times more
than seven days ago the file has only values of quarters of an hour, and no rows are made of those.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.console.history import codes
from appliance.console.history.file import FINE_MS, HOUR_MS, NAME, HistoryFile

from ..facts.hours import stretches
from ..facts.tables import INCIDENTS, LAG, Row, Table

if TYPE_CHECKING:
    from ..snapshot import Snapshot

_BEHIND, _REBALANCES = "group_lag_ms", "group_rebalances"
_COUNTS = ("refused_sends", "forced_deletions", "starts", "role_changes")
#: Samples that may be missing one after another while the broker runs: a busy machine may leave one out.
_MISSED = 1
#: A broker that was down for longer is not looked for; the history has samples of each 30 s for seven days.
_LONGEST_HOURS = 7 * 24


def write_lag(target: Path, history_dir: Path, snapshot: Snapshot) -> int:
    """Write lag.jsonl, whole; return the number of rows. A history that is missing or damaged gives none."""
    return _write(target, LAG, history_dir, lambda file: rows_of(file, snapshot))


def write_incidents(target: Path, history_dir: Path, snapshot: Snapshot) -> int:
    """Write incidents.jsonl, whole; return the number of rows. A history that is missing or damaged gives none."""
    return _write(target, INCIDENTS, history_dir, lambda file: incidents_of(file, snapshot))


def _write(target: Path, table: Table, history_dir: Path, make: Callable[[HistoryFile], Iterable[Row]]) -> int:
    rows: list[Row] = []
    if (history_dir / NAME).exists():
        try:
            file = HistoryFile(history_dir, reading=True)
            try:
                rows = list(make(file))
            finally:
                file.close()
        except (sqlite3.Error, OSError, zlib.error, ValueError, IndexError) as error:
            print(f"what was measured cannot be read, so the table {table.name} is empty: {error}", flush=True)
            rows = []
    names = [name for name, _ in table.columns]
    fresh = target.with_name(f".{target.name}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as out:
        for row in rows:
            out.write(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n")
    os.replace(fresh, target)
    return len(rows)


def rows_of(file: HistoryFile, snapshot: Snapshot) -> Iterator[Row]:
    """Yield the rows of all groups that were measured, in the order of the table's keys. One that did not exist at T0
    has no known limit, so it was never above it. Raises sqlite3.Error."""
    limits = {group.name: group.limit_ms for group in snapshot.groups}
    series = {number: (name, label) for number, name, label in file.all_series() if name in (_BEHIND, _REBALANCES)}
    parts = stretches(snapshot.from_ms, snapshot.to_ms, snapshot.zone)
    begins = [part.from_ms for part in parts]
    behind: dict[tuple[str, int], list[int]] = defaultdict(list)
    rebalances: dict[tuple[str, int], float] = defaultdict(float)
    first, last = snapshot.from_ms // HOUR_MS, (snapshot.to_ms - 1) // HOUR_MS
    for number, name, label, values in _figures(file, series, first, last):
        for slot, value in enumerate(values):
            at_ms = number * HOUR_MS + slot * FINE_MS
            if value is None or not snapshot.from_ms <= at_ms < snapshot.to_ms:
                continue
            place = (label, parts[bisect_right(begins, at_ms) - 1].hour(at_ms))
            if name == _BEHIND:
                behind[place].append(round(value))
            else:
                rebalances[place] += value
    for group, hour_ms in sorted(behind.keys() | {place for place, count in rebalances.items() if count}):
        found = sorted(behind.get((group, hour_ms), []))
        over = sum(value > limits.get(group, value) for value in found) * FINE_MS
        count = round(rebalances.get((group, hour_ms), 0.0))
        yield group, hour_ms, len(found), _p95(found), found[-1] if found else -1, over, count


def incidents_of(file: HistoryFile, snapshot: Snapshot) -> Iterator[Row]:
    """Yield the rows of the day's incidents, in the order of the table's keys. Raises sqlite3.Error."""
    parts = stretches(snapshot.from_ms, snapshot.to_ms, snapshot.zone)
    begins = [part.from_ms for part in parts]
    counts: dict[tuple[str, int], float] = defaultdict(float)

    def count(what: str, at_ms: int, value: float) -> None:
        if snapshot.from_ms <= at_ms < snapshot.to_ms:
            counts[what, parts[bisect_right(begins, at_ms) - 1].hour(at_ms)] += value

    first, last = snapshot.from_ms // HOUR_MS, (snapshot.to_ms - 1) // HOUR_MS
    before: int | None = None
    begin: int | None = None
    for hour, span in file.spans("fine", first - _LONGEST_HOURS, last + _LONGEST_HOURS).items():
        for slot, taken in enumerate(span.taken):
            if not taken:
                continue
            at_ms = hour * HOUR_MS + slot * FINE_MS
            count("measured", at_ms, FINE_MS)
            if before is not None and at_ms - before > (1 + _MISSED) * FINE_MS:
                for missed in range(max(before + FINE_MS, snapshot.from_ms), min(at_ms, snapshot.to_ms), FINE_MS):
                    count("down", missed, FINE_MS)
            before = at_ms
            begin = at_ms if begin is None else begin
    series = {number: (name, label) for number, name, label in file.all_series() if name in _COUNTS}
    for hour, name, _, values in _figures(file, series, first, last):
        for slot, value in enumerate(values):
            at_ms = hour * HOUR_MS + slot * FINE_MS
            # The start with which a history begins is that of a new installation.
            if value and (name != "starts" or at_ms != begin):
                count(name, at_ms, value)
    for (what, hour_ms), value in sorted(counts.items()):
        yield what, hour_ms, round(value)


def _figures(
    file: HistoryFile, series: dict[int, tuple[str, str]], first: int, last: int
) -> Iterator[tuple[int, str, str, list[float | None]]]:
    """Yield (hour, name, label, a value for each 30 s) of the series; None for a time that was not measured."""
    for hour, span in file.spans("fine", first, last).items():
        zero = [0.0 if taken else None for taken in span.taken]
        seen = set()
        for number, data in file.rows("fine", hour):
            if number in series:
                seen.add(number)
                yield hour, *series[number], [codes.decode(code) for code in codes.unpack(data)]
        for number, (name, label) in series.items():
            if number not in seen and span.is_zero(number):
                yield hour, name, label, list(zero)


def _p95(values: list[int]) -> int:
    """Return the 95th percentile by the nearest rank, -1 without values. values: sorted."""
    return values[math.ceil(len(values) * 0.95) - 1] if values else -1
