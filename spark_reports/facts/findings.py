"""Rows of the table FINDINGS: the parts of a day that could not be read. The same for both ways of counting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .day_files import DayFiles
from .delivered import Delivered
from .one_file import Range
from .tables import Row


def finding_rows(files: DayFiles, unread: Iterable[Range], delivered: Delivered, lowest: int | None) -> list[Row]:
    """Make the rows. unread: ranges, which may be repeated. lowest: physical offset of the day's first message, None
    without one."""
    counts: dict[tuple[str, str], list[int]] = {}
    for one in _once(unread, files.file_bytes):
        known = counts.setdefault((one.kind, f"{_begin_of_file(one.begin, files.file_bytes):020d}"), [0, 0])
        known[0] += 1
        known[1] += one.end - one.begin
    if files.begins_late:
        counts["log begins", ""] = [0, 0]
    if delivered.lost:
        counts["deliveries lost", ""] = [delivered.lost, 0]
    if delivered.gaps:
        counts["deliveries gap", ""] = [delivered.gaps, 0]
    if lowest is not None and (delivered.complete_from is None or delivered.complete_from > lowest):
        counts["deliveries begin", ""] = [0, 0]
    for group, answers in delivered.unknown.items():
        counts["deliveries unknown", group] = [answers, 0]
    return [(*key, *values) for key, values in sorted(counts.items())]


def _once(unread: Iterable[Range], file_bytes: int) -> list[Range]:
    """Merge repeated and adjoining ranges, and split them by file."""
    found: list[Range] = []
    for one in sorted(set(unread)):
        last = found[-1] if found else None
        if last is not None and last.kind == one.kind and one.begin <= last.end:
            found[-1] = last._replace(end=max(last.end, one.end))
        else:
            found.append(one)
    return [part for one in found for part in _by_file(one, file_bytes)]


def _by_file(one: Range, file_bytes: int) -> Iterator[Range]:
    begin = one.begin
    while begin < one.end:
        end = min(one.end, _begin_of_file(begin, file_bytes) + file_bytes) if file_bytes else one.end
        yield one._replace(begin=begin, end=end)
        begin = end


def _begin_of_file(offset: int, file_bytes: int) -> int:
    return offset - offset % file_bytes if file_bytes else offset
