"""Which files of the log hold a day's messages: known from the first record of each file. Plain Python.

    file      1        2        3        4        5
    begins    Mon      Mon      Tue      Tue      Wed        Tuesday is read from 2 to 4

Store times do not go back, so a file is left out when a later one begins before the day, or when it or an earlier one
begins behind the day. Files that went after T0 are gaps, as far as they may have held something of the day.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from appliance.engine.store.paths import segment_offset

from ..snapshot import Snapshot
from .one_file import OneFile, Part, Range


class DayFiles(NamedTuple):
    """parts: in the log's order. gaps: what is missing of [begin, end), which holds the whole day. begins_late: the day
    began before the oldest file, so messages of it may have been deleted by T0. file_bytes: of each file, or 0."""

    parts: tuple[Part, ...]
    gaps: tuple[Range, ...]
    begin: int
    end: int
    begins_late: bool
    file_bytes: int

    @property
    def size(self) -> int:
        """In bytes, of what is there."""
        return sum(part.end - part.start for part in self.parts)


def day_files(snapshot: Snapshot) -> DayFiles:
    """Raises OSError when the directory cannot be read."""
    files, file_bytes = _files(Path(snapshot.store_dir) / "commitlog", snapshot.log_min, snapshot.log_end)
    first, last = None, len(files)
    for i, file in enumerate(files):
        store_ms = _first_store_ms(file)
        if store_ms is not None and store_ms < snapshot.from_ms:
            first = i
        if store_ms is not None and store_ms >= snapshot.to_ms:
            last = i
            break
    begin = snapshot.log_min if first is None else files[first].start
    end = snapshot.log_end if last == len(files) else files[last].start
    parts = files[first or 0 : last]
    return DayFiles(
        parts=tuple(parts),
        gaps=tuple(_gaps(parts, begin, end)),
        begin=begin,
        end=end,
        begins_late=first is None and 0 < snapshot.log_min < snapshot.log_end,
        file_bytes=file_bytes,
    )


def _gaps(parts: list[Part], begin: int, end: int) -> Iterator[Range]:
    for part in parts:
        if begin < part.start:
            yield Range("gap", begin, part.start)
        begin = part.end
    if begin < end:
        yield Range("gap", begin, end)


def _files(directory: Path, log_min: int, log_end: int) -> tuple[list[Part], int]:
    """Those that hold something of [log_min, log_end), and the size of each."""
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
    """All files have one size; but one may have been cut off, or be missing in between."""
    largest = 0
    for _, path in found:
        try:
            largest = max(largest, os.stat(path).st_size)
        except FileNotFoundError:
            pass
    return min([largest, *(after[0] - before[0] for before, after in pairwise(found))])


def _first_store_ms(part: Part) -> int | None:
    """None when the file does not begin with a record, or has gone."""
    try:
        file = OneFile(part)
    except FileNotFoundError:
        return None
    try:
        record = file.record_at(part.start)
        return None if record is None else record.store_time_ms
    finally:
        file.close()
