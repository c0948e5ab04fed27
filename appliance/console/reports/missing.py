"""The parts of Spark that this machine lacks, and the choice between Spark and plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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


#: Bytes of a day's log from which on Spark is chosen: below, plain Python is done before or not long after Spark, whose
#: start alone takes 20 s of two processors (docs/facts.md has measurements).
LARGE_BYTES = 4 << 30


class Choice(NamedTuple):
    """engine: "spark" or "python". why: a key of `words.CHOICES`."""

    engine: str
    why: str


def engine_for(wanted: ReportSettings, place: Path, day_bytes: int) -> Choice:
    """Choose what counts, as the settings want, the day's size suggests and the machine allows. Raises RunFailed if the
    wanted engine is missing or has no room, or neither has room. place: a directory on the disk that runs write to.
    day_bytes: of the log files that hold the day."""
    from spark_reports import machine

    why = "as_set" if wanted.engine != "auto" else "small" if day_bytes < LARGE_BYTES else "large"
    if wanted.engine == "spark" or why == "large":
        lasting = [one for one in machine.what_is_missing(place) if not one.is_passing]
        try:
            if lasting:
                raise RunFailed("spark_missing", text=str(lasting[0]))
            room.check("spark", wanted, place)
            return Choice("spark", why)
        except RunFailed:
            if wanted.engine == "spark":
                raise
            why = "not_installed" if lasting else "no_room"
    room.check("python", wanted, place)
    return Choice("python", why)
