"""Reads documents from files of the data directory, within bounds, and checks them before they are shown.

RocketBox wrote these files, but one may have been cut off, copied from elsewhere, or written by a later version. Such a
file is rejected here with one sentence, before it takes much memory of the broker's process.
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from django.utils.translation import gettext as _

from spark_reports.reports.document import FORMAT

from ...engine.errors import Unavailable

#: Reports of thousands of groups have some hundred KB.
MOST_BYTES = 16 << 20
_HALVES = re.compile("[\ud800-\udfff]")
#: Name of a part -> keys that each of its members must have, with their types.
_MEMBERS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "tiles": {"key": str, "unit": str, "value": (int, str, type(None))},
    "plots": {"key": str, "table": str},
    "tables": {"key": str, "columns": list, "rows": list},
    "notes": {"key": str, "values": list},
}


class DamagedReport(Unavailable):
    """The file exists but does not have the shape of a report."""

    def __init__(self, why: str) -> None:
        super().__init__(_("The file of this report is damaged: %(why)s") % {"why": why})


def read(path: Path) -> bytes | None:
    """Return a file's bytes; None if it cannot be read. Raises DamagedReport if it is too long."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # opening a pipe would wait for a writer
    except OSError:
        return None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            return None
        if found.st_size > MOST_BYTES:
            raise DamagedReport(f"it has {found.st_size} bytes")
        with open(handle, "rb", closefd=False) as file:
            return file.read(MOST_BYTES)
    except OSError:
        return None
    finally:
        os.close(handle)


def document(path: Path, day: str, report: str) -> dict[str, Any] | None:
    """Return a report as data; None if there is no file. Raises DamagedReport."""
    data = read(path)
    if data is None:
        return None
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedReport(str(error)) from None
    why = _complaint(found, day, report)
    if why:
        raise DamagedReport(why)
    return _whole_characters(found) if b"\\ud" in data.lower() else found


def _complaint(found: Any, day: str, report: str) -> str:
    """Return what is wrong with a document; "" if it is valid."""
    if not isinstance(found, dict):
        return "it is no document"
    if found.get("format", FORMAT) != FORMAT:
        return f"its format is {found['format']!r:.20}, and this version knows {FORMAT}"
    if found.get("day") != day or found.get("report") != report:
        return "it is of another day or report"
    for name, members in _MEMBERS.items():
        part = found.get(name)
        if not isinstance(part, list):
            return f"no {name}"
        for one in part:
            if not isinstance(one, dict) or not all(isinstance(one.get(key), kind) for key, kind in members.items()):
                return f"one of its {name}"
    figures = found.get("figures", {})
    if not isinstance(figures, dict) or not all(isinstance(one, int | None) for one in figures.values()):
        return "its figures"
    return next((f"table {one['key'][:40]}" for one in found["tables"] if not _is_table(one)), "")


def _is_table(one: dict[str, Any]) -> bool:
    columns = one["columns"]
    return all(
        isinstance(column, list) and len(column) == 2 and all(isinstance(part, str) for part in column)
        for column in columns
    ) and all(
        isinstance(row, list)
        and len(row) == len(columns)
        and all(value is None or isinstance(value, int | str) for value in row)
        for row in one["rows"]
    )


def _whole_characters(found: Any) -> Any:
    """Return the same data with U+FFFD instead of lone surrogates: names in stores of other programs may have them, but
    no page can show them."""
    if isinstance(found, str):
        return _HALVES.sub("\ufffd", found)
    if isinstance(found, list):
        return [_whole_characters(one) for one in found]
    if isinstance(found, dict):
        return {_whole_characters(key): _whole_characters(value) for key, value in found.items()}
    return found
