"""The parts of Spark that this machine lacks, and the choice between Spark and plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_reports.run.failures import RunFailed

from . import records, room
from .report_settings import ReportSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from spark_reports.machine import Missing


def what_is_missing() -> Sequence[Missing]:
    """Return what is missing for Spark; empty if it can be used. Runs Java, which takes a tenth of a second the first
    time."""
    from spark_reports import machine

    return machine.what_is_missing(records.directory())


def engine_for(wanted: ReportSettings, place: Path) -> str:
    """Return "spark" or "python", as the settings want and the machine allows. Raises RunFailed if the wanted engine is
    missing or has no room, or neither has room. place: a directory on the disk that runs write to."""
    from spark_reports import machine

    if wanted.engine != "python":
        lasting = [one for one in machine.what_is_missing(place) if not one.is_passing]
        try:
            if lasting:
                raise RunFailed("spark_missing", text=str(lasting[0]))
            room.check("spark", wanted, place)
            return "spark"
        except RunFailed:
            if wanted.engine == "spark":
                raise
    room.check("python", wanted, place)
    return "python"
