"""Nightly reports: their schedule, the runs that make them, and the reports of each day.

1. The thread `reports` (`thread.py`, which loads the rest once reports are wanted) makes one run after the other
   (`runner.py`): the next that waits or is due (`schedule.py`: by days, not by moments). It fixes T0: the window's
   `report_inputs` become a `Snapshot`, delivery files get a second name, and `plan.json` lists the work. Files between
   console and run: `spark_reports/run/plan.py`.
2. `child.py` starts `python -m spark_reports.run DIR` with an environment of its own: the keeper (`run/keeper.py`). It
   leads a session, watches memory, time and disk, and ends all processes in the session when the run or the broker
   ends; the work is done by another process.
3. That worker (`run/work.py`) collects the history's figures (`run/measured.py`) and counts the day's facts:
   `facts/in_spark.py` or `facts/in_python.py`, with equal results (D25). `facts/keeping.py` puts them in the day's
   place.
4. `spark_reports/reports/` makes a `Document` each, keys and numbers only, from the snapshot and the facts of this day
   and 35 before it; `outcome.json` comes last. Faults, as sentences: `run/failures.py`.
5. The console puts the result in the day's place by a rename (`published.py`); a failed run leaves none. `telling.py`
   hands the digest to the alerts' threads. After a kill, the next start ends and removes the rest (`sweep`).

DATA/rocketbox/reports/
  runs/ID/          a run's record, record.json, and its input and output files (spark_reports/run/plan.py)
  days/YYYY-MM-DD/  each report's JSON; made.json: the run that made them, and from which data
  facts/            the counts of each day, with which later reports compare theirs
  scratch/ID/       Spark's files while a run goes on
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .acts import cancel, start
    from .missing import what_is_missing
    from .published import days, document, kept, made
    from .records import RunRecord, log_tail, progress, run, runs, stamp, used_bytes
    from .report_settings import ReportSettings, check_settings, save_settings, settings
    from .telling import send_digest

__all__ = [
    "ReportSettings",
    "RunRecord",
    "cancel",
    "check_settings",
    "days",
    "document",
    "kept",
    "log_tail",
    "made",
    "progress",
    "run",
    "runs",
    "save_settings",
    "send_digest",
    "settings",
    "stamp",
    "start",
    "used_bytes",
    "what_is_missing",
]

#: Module -> its names above. A module is loaded when one of them is first used: most servers make no reports.
_MODULES = {
    "acts": "cancel start",
    "missing": "what_is_missing",
    "published": "days document kept made",
    "records": "RunRecord log_tail progress run runs stamp used_bytes",
    "report_settings": "ReportSettings check_settings save_settings settings",
    "telling": "send_digest",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"{__name__} has no {name}")
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
