"""Runs of the reports, in their directories: DATA/rocketbox/reports/runs/ID/ has the record, record.json, and the files
of the run's own processes (`spark_reports/run/plan.py`)."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spark_reports.run import plan as files
from spark_reports.run.plan import Outcome, Progress

from ...engine.errors import NotFound
from ...engine.own_files import make_directory
from ..jobs.job import ENDED, ID, ids_in
from ..models import now_ms
from .wanted import directory

RECORD = "record.json"
#: Number of runs that are kept, the newest ones.
KEPT = 30
LOG_BYTES = 64 << 10
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class RunRecord:
    """state: waiting, running, done, failed, cancelled or interrupted (RocketBox ended). who: the user who started it,
    or "schedule". engine: "spark" or "python", "" until that is decided. error: one sentence, or ""; why and values:
    its key and values, for other languages (`spark_reports/run/failures.py`). inputs: the bounds of what was read, as
    `inputs.inputs_of` returns them. The rest is as in Outcome."""

    id: str
    day: str
    state: str
    started_ms: int
    ended_ms: int | None
    who: str
    engine: str
    error: str = ""
    steps: tuple[tuple[str, int], ...] = ()
    rows: int = 0
    bytes_read: int = 0
    gaps: int = 0
    corrupt: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    peak_mib: int = 0
    who_kind: str = "system"
    cancel_asked: bool = False

    @property
    def ended(self) -> bool:
        return self.state in ENDED


def folder(run_id: str) -> Path:
    return directory() / "runs" / run_id


def begin(record: RunRecord) -> RunRecord:
    """Create a new run's directory and its record, or neither if the disk refuses one of them. Raises OSError."""
    try:
        for part in (directory(), directory() / "runs", folder(record.id)):
            make_directory(part)
        return save(record)
    except OSError:
        shutil.rmtree(folder(record.id), ignore_errors=True)
        raise


def remove_unknown() -> None:
    """Remove run directories without a readable record: they are left when RocketBox is killed as a run begins."""
    for name in ids_in(directory() / "runs"):
        if load(name) is None:
            shutil.rmtree(folder(name), ignore_errors=True)


def save(record: RunRecord) -> RunRecord:
    """Write the record, durably, and return it. Raises OSError."""
    files.write(folder(record.id) / RECORD, record, durable=True)
    return record


def load(run_id: str) -> RunRecord | None:
    return files.read(folder(run_id) / RECORD, RunRecord) if ID.match(run_id) else None


def runs() -> list[RunRecord]:
    """Return all runs, newest first. Runs that began in the future, while the clock was wrong, come last."""
    found = [load(name) for name in ids_in(directory() / "runs")]
    latest = now_ms() + HOUR_MS
    return sorted(
        (one for one in found if one is not None),
        key=lambda one: (one.started_ms <= latest, one.started_ms, one.id), reverse=True,
    )  # fmt: skip


def run(run_id: str) -> RunRecord:
    """Return the record of a run. Raises NotFound."""
    found = load(run_id)
    if found is None:
        raise NotFound("report run", run_id)
    return found


def progress(run_id: str) -> Progress | None:
    """Return a run's progress; None if it has not reported any yet, or there is no such run."""
    return files.read(folder(run_id) / files.PROGRESS, Progress) if ID.match(run_id) else None


def stamp(run_id: str) -> tuple[int, ...]:
    """Return a value that changes when a run's record or progress changes. It costs only two stat calls, since pages
    that wait for a change call it often."""
    found: list[int] = []
    for name in (RECORD, files.PROGRESS):
        try:
            seen = os.stat(folder(run_id) / name)
            found += (seen.st_ino, seen.st_mtime_ns)
        except OSError:
            found.append(0)
    return tuple(found)


def log_tail(run_id: str, most: int = LOG_BYTES) -> str:
    """Return the last whole lines of the log of a run's processes, at most `most` bytes."""
    if not ID.match(run_id):
        return ""
    try:
        with open(folder(run_id) / files.LOG, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            data = file.read(most)
    except OSError:
        return ""
    if size > most:
        data = data.partition(b"\n")[2]
    return data.decode("utf-8", "replace")


def with_outcome(record: RunRecord, found: Outcome, state: str, ended_ms: int) -> RunRecord:
    """Return the record with the outcome that the run itself reported, and this state and end."""
    return replace(
        record, state=state, ended_ms=ended_ms, error=found.error, steps=found.steps, rows=found.rows,
        bytes_read=found.bytes_read, gaps=found.gaps, corrupt=found.corrupt, versions=found.versions, why=found.why,
        values=found.values, peak_mib=found.peak_mib,
    )  # fmt: skip


def clear(run_id: str) -> None:
    """Remove the directories that a run needed only while it counted."""
    for path in folder(run_id).iterdir():
        if path.is_dir() and path.name not in (files.DELIVERIES, files.REPORTS):
            shutil.rmtree(path, ignore_errors=True)


def prune(keep: int = KEPT) -> None:
    """Remove all but the newest ended runs. Of those that stay only the newest keeps its delivery files, so that its
    reports can be made again by hand."""
    ended = [one for one in runs() if one.ended]
    for one in ended[keep:]:
        shutil.rmtree(folder(one.id), ignore_errors=True)
    for one in ended[1:keep]:
        shutil.rmtree(folder(one.id) / files.DELIVERIES, ignore_errors=True)
        shutil.rmtree(folder(one.id) / files.REPORTS, ignore_errors=True)


def used_bytes() -> int:
    """Return the disk space that reports, facts, runs and scratch files take, in bytes."""
    total = 0
    for parent, _, names in os.walk(directory()):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except OSError:
                continue
    return total
