"""Parts of the log that could not be read: how they are counted, and how the counts get out of Spark's tasks.

Accumulators do not work in Python data sources. So each task writes one small file into the directory that the option
`findings` names, on a file system that the driver sees, too. Its name is that of the task's range, so a task that runs
twice counts once. Plain Python: no pyspark.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .options import OptionError

CORRUPT, GAP = "corrupt", "gap"
#: Nothing is missing: the range was read whole although times were given, since store times may not ascend there.
WHOLE = "whole"


class DataLoss(Exception):
    """A part cannot be read. `str(error)` says what, where, and how to go on without it."""


class Finding(NamedTuple):
    """kind: "corrupt": bytes that are no record; "gap": a part that was deleted or cut off; "whole": see WHOLE. [begin,
    end): physical offsets of the log, or offsets of a queue if `place` names one, as "broker/topic-queue"; `place` is
    empty for the log."""

    kind: str
    begin: int
    end: int
    place: str = ""


class Ledger:
    """The findings of one task, in their order. Belongs to it."""

    def __init__(self, fails: bool) -> None:
        """fails: failOnDataLoss."""
        self._fails = fails
        self.found: list[Finding] = []

    def add(self, kind: str, begin: int, end: int, why: str, place: str = "") -> None:
        """Add a finding, or raise DataLoss if the option says so. why: a sentence without its full stop."""
        if self._fails:
            raise DataLoss(f"{why}. With the option failOnDataLoss=false that is left out and counted.")
        self.note(kind, begin, end, place)

    def note(self, kind: str, begin: int, end: int, place: str = "") -> None:
        """Add a finding that does not end the reading."""
        last = self.found[-1] if self.found else None
        if last is not None and (last.kind, last.place, last.end) == (kind, place, begin):
            self.found[-1] = last._replace(end=end)
        else:
            self.found.append(Finding(kind, begin, end, place))


def write(directory: str, name: str, found: Iterable[Finding], bytes_read: int, rows: int) -> None:
    """Write one task's file, whole or not at all. name: the same each time that the task runs. Raises OptionError."""
    text = json.dumps({"findings": list(found), "bytes_read": bytes_read, "rows": rows})
    temporary = Path(directory, f".{name}.{os.getpid()}")
    try:
        os.makedirs(directory, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.rename(Path(directory, f"{name}.json"))
    except OSError as error:
        raise OptionError(f"The option findings: {directory} cannot be written: {error.strerror}.") from None


def read(directory: str | os.PathLike[str]) -> list[Finding]:
    """Return the findings of all tasks, sorted; adjoining ranges are merged."""
    found: list[Finding] = []
    for one in sorted({Finding(*one) for task in _tasks(directory) for one in task["findings"]}, key=_order):
        last = found[-1] if found else None
        if last is not None and (last.kind, last.place) == (one.kind, one.place) and one.begin <= last.end:
            found[-1] = last._replace(end=max(last.end, one.end))
        else:
            found.append(one)
    return found


def bytes_read(directory: str | os.PathLike[str]) -> int:
    """Return how many bytes of the log all tasks have read."""
    return sum(task["bytes_read"] for task in _tasks(directory))


def _order(one: Finding) -> tuple[str, str, int, int]:
    return one.place, one.kind, one.begin, one.end


def _tasks(directory: str | os.PathLike[str]) -> list[dict]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(directory).glob("*.json"))]
