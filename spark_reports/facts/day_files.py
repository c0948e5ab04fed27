"""Finds the files of the log that hold a day's messages, by the first record of each file. Plain Python.

    file      1        2        3        4        5
    begins    Mon      Mon      Tue      Tue      Wed        Tuesday is read from 2 to 4

Where store times do not go back (from `Snapshot.ascends_from` on), a file is left out if a later one begins before the
day, or if it or an earlier one begins after the day; before that offset all files are read. Files that were deleted
after T0 are gaps, as far as they may have held messages of the day.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from appliance.engine.store.paths import segment_offset

from ..snapshot import Snapshot
from ..source import times
from .one_file import OneFile, Part, Range


class DayFiles(NamedTuple):
    """parts: in the log's order. [begin, end): physical offsets that contain the whole day. gaps: missing ranges of it
    that may have held messages of the day. begins_late: the day began before the oldest file, so messages of it may
    have been deleted by T0. file_bytes: of each file, or 0."""

    parts: tuple[Part, ...]
    gaps: tuple[Range, ...]
    begin: int
    end: int
    begins_late: bool
    file_bytes: int

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.end - part.start for part in self.parts)


def day_files(snapshot: Snapshot) -> DayFiles:
    """Find the files of the snapshot's day. Raises OSError when the directory cannot be read."""
    files, file_bytes = _files(Path(snapshot.store_dir) / "commitlog", snapshot.log_min, snapshot.log_end)
    begins = {file.start: _first_store_ms(file) for file in files}
    known = min(max(snapshot.ascends_from, snapshot.log_min), snapshot.log_end), snapshot.log_end
    of_day = times.within(known, list(begins), snapshot.from_ms, snapshot.to_ms, begins.get)
    read = times.ranges(snapshot.log_min, snapshot.log_end, known, of_day) or [(of_day[0], of_day[0])]
    is_early = any(store_ms is not None and store_ms < snapshot.from_ms for store_ms in begins.values())
    return DayFiles(
        parts=tuple(file for file in files if any(file.start < end and file.end > begin for begin, end in read)),
        gaps=tuple(gap for begin, end in read for gap in _gaps(files, begin, end)),
        begin=read[0][0],
        end=read[-1][1],
        begins_late=not is_early and 0 < snapshot.log_min < snapshot.log_end,
        file_bytes=file_bytes,
    )


def _gaps(parts: list[Part], begin: int, end: int) -> Iterator[Range]:
    for part in parts:
        if part.end <= begin or part.start >= end:
            continue
        if begin < part.start:
            yield Range("gap", begin, part.start)
        begin = part.end
    if begin < end:
        yield Range("gap", begin, end)


def _files(directory: Path, log_min: int, log_end: int) -> tuple[list[Part], int]:
    """Return the files that hold something of [log_min, log_end), and the size of each."""
    found = sorted(
        (start, one.path) for one in os.scandir(directory) if (start := segment_offset(one.name)) is not None
    )
    size = _file_size(found)
    parts = [
        Part(path, start, min(start + size, log_end), start + size)
        for start, path in found
        if start < log_end and start + size > log_min
    ]
    return parts, size


def _file_size(found: list[tuple[int, str]]) -> int:
    """Return the size that all files have; a single one may have been cut off, or be missing in between."""
    largest = 0
    for _, path in found:
        try:
            largest = max(largest, os.stat(path).st_size)
        except FileNotFoundError:
            pass
    return min([largest, *(after[0] - before[0] for before, after in pairwise(found))])


def _first_store_ms(part: Part) -> int | None:
    """Return the store time of a file's first record; None if it does not begin with one, or has been deleted."""
    try:
        file = OneFile(part)
    except FileNotFoundError:
        return None
    try:
        record = file.record_at(part.start)
        return None if record is None else record.store_time_ms
    finally:
        file.close()
