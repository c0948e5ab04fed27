"""The published reports: DATA/rocketbox/reports/days/YYYY-MM-DD/. A day's reports are put there all at once."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from spark_reports.run import plan as files

from ...engine.file_sync import replace_file, sync_directory
from ...engine.own_files import make_directory
from . import document_files
from .document_files import DamagedReport
from .records import RunRecord, directory

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z", re.ASCII)
_REPORT = re.compile(r"[a-z0-9][a-z0-9-]{0,60}\Z", re.ASCII)
_MADE = "made.json"


@dataclass(frozen=True, slots=True)
class Made:
    """The run that made a day's reports, and the times of its data. whole: the day was over by then."""

    run_id: str
    t0_ms: int
    from_ms: int
    to_ms: int
    whole: bool
    engine: str


def _is_day(name: str) -> bool:
    try:
        return _DAY.match(name) is not None and date.fromisoformat(name) is not None
    except ValueError:
        return False


def _days_dir() -> Path:
    return directory() / "days"


def days() -> list[str]:
    """Return the days that have reports, newest first."""
    try:
        with os.scandir(_days_dir()) as found:
            return sorted((one.name for one in found if _is_day(one.name) and one.is_dir()), reverse=True)
    except OSError:
        return []


def made(day: str) -> Made | None:
    """Return how a day's reports were made; None if the day has none."""
    return files.read(_days_dir() / day / _MADE, Made) if _DAY.match(day) else None


def document(day: str, report: str) -> dict[str, Any] | None:
    """Return a report as data (`spark_reports/reports/document.py`); None if there is none. Raises DamagedReport."""
    if not _DAY.match(day) or not _REPORT.match(report):
        return None
    return document_files.document(_days_dir() / day / f"{report}.json", day, report)


def kept(day: str, names: Iterable[str]) -> list[str]:
    """Return those of the reports' names that a day has: older versions made fewer."""
    try:
        found = set(os.listdir(_days_dir() / day)) if _DAY.match(day) else set()
    except OSError:
        return []
    return [name for name in names if f"{name}.json" in found]


def publish(record: RunRecord, run_folder: Path, facts: Made) -> None:
    """Replace a day's reports by those of a run, with two renames; between them a reader finds no reports. The new ones
    are synced before, so that a power cut leaves either the new or the old ones whole. Raises OSError; then the old
    ones stay."""
    make_directory(_days_dir())
    fresh = _days_dir() / f".{record.day}.{record.id}"
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        make_directory(fresh)
        for path in (run_folder / files.REPORTS).iterdir():
            replace_file(fresh / path.name, path.read_bytes())
        files.write(fresh / _MADE, facts, durable=True)
    except OSError:  # gives the room back to a full disk
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    place, old = _days_dir() / record.day, _days_dir() / f".{record.day}.old"
    shutil.rmtree(old, ignore_errors=True)
    with suppress(FileNotFoundError):
        os.rename(place, old)
    try:
        os.rename(fresh, place)
    except OSError:
        with suppress(FileNotFoundError):
            os.rename(old, place)
        raise
    sync_directory(_days_dir())
    shutil.rmtree(old, ignore_errors=True)


def tidy(keep_days: int, last: str, just_made: str = "", *, future_too: bool) -> None:
    """Remove the reports of all but the newest `keep_days` days, and finish what a kill between two renames left.

    Days later than `last` do not count: they were made while the clock was wrong, or it is wrong now. future_too: the
    clock is right now, so remove them. just_made: a day that stays however old it is, since a run has just made it."""
    try:
        names = os.listdir(_days_dir())
    except FileNotFoundError:
        return
    for name in names:
        day = name.removeprefix(".").removesuffix(".old")
        if name.startswith(".") and name.endswith(".old") and _DAY.match(day) and day not in names:
            with suppress(OSError):
                os.rename(_days_dir() / name, _days_dir() / day)
                continue
        if name.startswith("."):
            shutil.rmtree(_days_dir() / name, ignore_errors=True)
    found = days()
    gone = {*[day for day in found if day <= last][keep_days:], *(day for day in found if future_too and day > last)}
    for day in gone - {just_made}:
        shutil.rmtree(_days_dir() / day, ignore_errors=True)


def figures(before: str, most: int) -> dict[str, dict[str, int | None]]:
    """Return the figures in the digests of the `most` newest days before `before`, by day."""
    found: dict[str, dict[str, int | None]] = {}
    for day in [day for day in days() if day < before][:most]:
        how = made(day)
        if how is not None and not how.whole:  # part of a day cannot be compared with a whole one
            continue
        try:
            digest = document(day, "digest")
        except DamagedReport:
            continue
        if digest is not None and isinstance(digest.get("figures"), dict):
            found[day] = digest["figures"]
    return found
