"""The console's backups: their directory, how often one is made, and how many are kept.

They are tar files in `DATA/rocketbox/backups/`. To survive the loss of this disk, mount another one there, or download
them. A file with a backup's name is complete: it is written under another name first.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from ... import runtime
from ...engine.errors import NotFound
from ...engine.lazy_dataclass import dataclass
from ...engine.own_files import make_directory
from ..models import Setting, now_ms

KIND = "backup"
CHECK_KIND = "backup-check"
MOST_KEPT = 100
MOST_HOURS = 24 * 31
_SETTING = "backups"
_NAME = re.compile(r"rocketbox-\d{8}-\d{6}\.tar\Z", re.ASCII)
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Backup:
    """A complete backup. made_at_ms: when it was finished."""

    name: str
    bytes: int
    made_at_ms: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """every_hours: hours between two backups; 0: none are made by themselves. keep: number of backups to keep; older
    ones are deleted after each backup, also after one made by hand."""

    every_hours: int = 0
    keep: int = 7


def directory() -> Path:
    return runtime.place().directory / "backups"


def made_directory() -> Path:
    """Return the directory of the backups; create it if needed. Raises OSError."""
    found = directory()
    make_directory(found)
    return found


def new_name() -> str:
    return time.strftime("rocketbox-%Y%m%d-%H%M%S.tar", time.gmtime())


def listing() -> list[Backup]:
    """Return all backups, newest first."""
    found = []
    try:
        paths = [path for path in directory().iterdir() if _NAME.match(path.name)]
    except FileNotFoundError:
        return []
    for path in paths:
        try:
            status = path.lstat()
        except OSError:
            continue
        found.append(Backup(path.name, status.st_size, int(status.st_mtime * 1000)))
    return sorted(found, key=lambda one: (one.made_at_ms, one.name), reverse=True)


def path_of(name: str) -> Path:
    """Return the path of a backup. Raises NotFound."""
    path = directory() / name
    if not _NAME.match(name) or path.is_symlink() or not path.is_file():
        raise NotFound("backup", name)
    return path


def prune(keep: int, made: str = "") -> list[str]:
    """Delete all but the newest `keep` backups, and return their names. made: a backup that stays, even if wrong clocks
    made others look newer."""
    gone = []
    found = listing()
    found.sort(key=lambda one: one.name != made)
    for one in found[max(1, keep) :]:
        (directory() / one.name).unlink(missing_ok=True)
        gone.append(one.name)
    return gone


def schedule() -> Schedule:
    found = Setting.objects.filter(key=_SETTING).values_list("value", flat=True).first()
    values: dict[str, Any] = found if isinstance(found, dict) else {}
    every, keep = values.get("every_hours"), values.get("keep")
    return Schedule(
        every if isinstance(every, int) and 0 <= every <= MOST_HOURS else 0,
        keep if isinstance(keep, int) and 1 <= keep <= MOST_KEPT else 7,
    )


def save_schedule(wanted: Schedule) -> None:
    values = {"every_hours": wanted.every_hours, "keep": wanted.keep}
    Setting.objects.update_or_create(key=_SETTING, defaults={"value": values})


def next_at_ms(wanted: Schedule) -> int | None:
    """Return the time at which the next scheduled backup is due, in ms; None if none are scheduled."""
    if not wanted.every_hours:
        return None
    # A backup from the future was made while the clock was wrong; it does not count.
    newest = next((one for one in listing() if one.made_at_ms <= now_ms() + MINUTE_MS), None)
    return now_ms() if newest is None else newest.made_at_ms + wanted.every_hours * HOUR_MS
