"""The inputs of a run, fixed at T0: the window's inputs as a Snapshot, and the delivery files beside it."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from spark_reports.facts.hours import day_bounds
from spark_reports.run import plan as files
from spark_reports.snapshot import (
    AheadFacts,
    ClientFacts,
    GroupFacts,
    QueueEnds,
    Snapshot,
    TopicFacts,
    UnreadFacts,
    WaitingFacts,
)

from . import published
from .report_settings import ReportSettings

if TYPE_CHECKING:
    from ...engine.window.process.report_inputs import ReportInputs

#: Most earlier days whose figures a run gets.
EARLIER_DAYS = 35
_KINDS = {"dlq": "dead-letter"}
_RING_FILE = re.compile(r"[0-9]{10}\Z", re.ASCII)


def snapshot_of(taken: ReportInputs, day: str, zone: ZoneInfo, wanted: ReportSettings) -> Snapshot:
    """Return the inputs for the reports of a day."""
    begin, end = day_bounds(day, str(zone))
    return Snapshot(
        t0_ms=taken.t0_ms,
        day=day,
        zone=str(zone),
        from_ms=begin,
        to_ms=min(end, taken.t0_ms),
        store_dir=str(taken.store_dir),
        deliveries_dir="",
        log_min=taken.log_begin,
        log_end=taken.log_end,
        retention_ms=taken.retention_ms,
        disk_total=taken.disk_total or 0,
        disk_free=taken.disk_free or 0,
        disk_limit_percent=taken.disk_limit_percent,
        store_bytes=taken.store_bytes,
        queues=tuple(QueueEnds(*one) for one in taken.queues),
        topics=tuple(
            TopicFacts(one.name, _KINDS.get(one.kind, one.kind), one.newest_ms, one.retention_ms)
            for one in taken.topics
        ),
        groups=tuple(
            GroupFacts(
                name=one.name,
                mode=one.mode,
                clients=tuple(ClientFacts(*client) for client in one.clients),
                lag=one.lag,
                oldest_unread_ms=one.oldest_unread_ms,
                limit_ms=wanted.limit_ms(one.name),
                conflicts=one.conflicts,
                ahead=None if one.ahead is None else AheadFacts(*one.ahead, one.ahead.is_soon),
            )
            for one in taken.groups
        ),
        earlier=published.figures(day, EARLIER_DAYS),
        log_file_bytes=taken.log_file_bytes,
        ascends_from=taken.ascends_from,
        deleted_unread=tuple(UnreadFacts(*one) for one in taken.deleted_unread),
        waiting=tuple(WaitingFacts(*one) for one in taken.waiting),
        disk_full_ms=taken.disk_full_ms,
    )


def inputs_of(snapshot: Snapshot) -> dict[str, Any]:
    """Return the values of the inputs that a run's record keeps."""
    return {
        "t0_ms": snapshot.t0_ms, "from_ms": snapshot.from_ms, "to_ms": snapshot.to_ms, "log_begin": snapshot.log_min,
        "log_end": snapshot.log_end, "queues": len(snapshot.queues), "topics": len(snapshot.topics),
        "groups": len(snapshot.groups),
    }  # fmt: skip


def take_deliveries(ring: Path, run_folder: Path) -> Path:
    """Keep the delivery files as they are now, although the ring goes on and deletes its oldest: finished files are
    hard-linked, the newest is copied. Returns the directory with them. Raises OSError."""
    target = run_folder / files.DELIVERIES
    target.mkdir(0o700)
    try:
        names = sorted(name for name in os.listdir(ring) if _RING_FILE.match(name))
    except FileNotFoundError:
        return target
    for name in names:
        try:
            if name != names[-1]:
                try:
                    os.link(ring / name, target / name, follow_symlinks=False)
                    continue
                except FileNotFoundError:
                    raise
                except OSError:  # no hard links on this file system, or the target is on another one
                    pass
            shutil.copyfile(ring / name, target / name, follow_symlinks=False)
            os.chmod(target / name, 0o600)
        except FileNotFoundError:  # the ring has just deleted it
            continue
    return target
