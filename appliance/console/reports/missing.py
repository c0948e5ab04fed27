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
    """engine: "spark" or "python". why: a key of `spark_reports.run.choice.WHYS`. problem: what keeps it from counting;
    None if nothing does."""

    engine: str
    why: str
    problem: RunFailed | None = None


def engine_for(wanted: ReportSettings, place: Path, day_bytes: int) -> Choice:
    """Choose what counts, as the settings want, the day's size suggests and the machine allows; with a problem if the
    wanted engine is missing or has no room, or neither has room. place: a directory on the disk that runs write to.
    day_bytes: of the log files that hold the day."""
    from spark_reports import machine

    why = "as_set" if wanted.engine != "auto" else "small" if day_bytes < LARGE_BYTES else "large"
    if wanted.engine == "spark" or why == "large":
        lasting = [one for one in machine.what_is_missing(place) if not one.is_passing]
        problem = (
            RunFailed("spark_missing", text=str(lasting[0])) if lasting else room.too_little("spark", wanted, place)
        )
        if problem is None or wanted.engine == "spark":
            return Choice("spark", why, problem)
        why = "not_installed" if lasting else "no_room"
    return Choice("python", why, room.too_little("python", wanted, place))
