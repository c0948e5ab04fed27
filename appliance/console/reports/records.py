"""Runs of the reports as their directories tell of them: DATA/rocketbox/reports/runs/ID/record.json and what the run
itself left (`spark_reports/run/plan.py`)."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spark_reports.run import plan as files
from spark_reports.run.plan import Outcome, Progress

from ... import runtime
from ...engine.errors import NotFound
from ...engine.own_files import make_directory
from ..models import now_ms

RECORD = "record.json"
#: Runs that are kept, the newest.
KEPT = 30
LOG_BYTES = 64 << 10
HOUR_MS = 3_600_000
ENDED = ("done", "failed", "cancelled", "interrupted")
_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{8}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """state: waiting, running, done, failed, cancelled or interrupted (RocketBox ended). who: who asked for it,
    "schedule" for nobody. engine: "spark" or "python", "" before that is decided. error: one sentence, ""; why and
    values: its key, to say it in another language (`spark_reports/run/failures.py`). inputs: what was read: t0_ms,
    from_ms, to_ms, log_begin, log_end, queues, groups. The rest is as in Outcome."""

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


def directory() -> Path:
    """Of everything that has to do with reports."""
    return runtime.place().directory / "reports"


def folder(run_id: str) -> Path:
    return directory() / "runs" / run_id


def new_id() -> str:
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(4)


def begin(record: RunRecord) -> RunRecord:
    """A new run's directory and its record; neither where the disk refuses one of them. Raises OSError."""
    try:
        for part in (directory(), directory() / "runs", folder(record.id)):
            make_directory(part)
        return save(record)
    except OSError:
        shutil.rmtree(folder(record.id), ignore_errors=True)
        raise


def remove_unknown() -> None:
    """Remove directories of runs without a record that can be read: a kill left them at the begin of a run."""
    for path in (directory() / "runs").glob("*"):
        if _ID.match(path.name) and load(path.name) is None:
            shutil.rmtree(path, ignore_errors=True)


def save(record: RunRecord) -> RunRecord:
    """Raises OSError."""
    files.write(folder(record.id) / RECORD, record, durable=True)
    return record


def load(run_id: str) -> RunRecord | None:
    return files.read(folder(run_id) / RECORD, RunRecord) if _ID.match(run_id) else None


def runs() -> list[RunRecord]:
    """Newest first; those of a time to come last, which began while the clock was wrong."""
    try:
        names = [name for name in os.listdir(directory() / "runs") if _ID.match(name)]
    except FileNotFoundError:
        return []
    found = [load(name) for name in names]
    latest = now_ms() + HOUR_MS
    return sorted(
        (one for one in found if one is not None),
        key=lambda one: (one.started_ms <= latest, one.started_ms, one.id), reverse=True,
    )  # fmt: skip


def run(run_id: str) -> RunRecord:
    """Raises NotFound."""
    found = load(run_id)
    if found is None:
        raise NotFound("report run", run_id)
    return found


def progress(run_id: str) -> Progress | None:
    """How far a run is that goes on; None before it has said so, and for what is no run."""
    return files.read(folder(run_id) / files.PROGRESS, Progress) if _ID.match(run_id) else None


def stamp(run_id: str) -> tuple[int, ...]:
    """Another value once a run's record or progress is another. Two looks at the disk and no more, for who waits."""
    found: list[int] = []
    for name in (RECORD, files.PROGRESS):
        try:
            seen = os.stat(folder(run_id) / name)
            found += (seen.st_ino, seen.st_mtime_ns)
        except OSError:
            found.append(0)
    return tuple(found)


def log_tail(run_id: str, most: int = LOG_BYTES) -> str:
    """The end of what a run's processes said, whole lines."""
    if not _ID.match(run_id):
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
    """What the run itself says of its end."""
    return replace(
        record, state=state, ended_ms=ended_ms, error=found.error, steps=found.steps, rows=found.rows,
        bytes_read=found.bytes_read, gaps=found.gaps, corrupt=found.corrupt, versions=found.versions, why=found.why,
        values=found.values, peak_mib=found.peak_mib,
    )  # fmt: skip


def clear(run_id: str) -> None:
    """Remove what a run needed only while it counted."""
    for path in folder(run_id).iterdir():
        if path.is_dir() and path.name not in (files.DELIVERIES, files.REPORTS):
            shutil.rmtree(path, ignore_errors=True)


def prune(keep: int = KEPT) -> None:
    """Remove all but the newest runs; of those that stay only the newest has its delivery files, for who wants to make
    it again by hand."""
    ended = [one for one in runs() if one.ended]
    for one in ended[keep:]:
        shutil.rmtree(folder(one.id), ignore_errors=True)
    for one in ended[1:keep]:
        shutil.rmtree(folder(one.id) / files.DELIVERIES, ignore_errors=True)
        shutil.rmtree(folder(one.id) / files.REPORTS, ignore_errors=True)


def used_bytes() -> int:
    """What all of it takes on the disk: reports, facts, runs, scratch."""
    total = 0
    for parent, _, names in os.walk(directory()):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except OSError:
                continue
    return total
