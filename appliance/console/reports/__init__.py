"""Nightly reports: their schedule, the runs that make them, and the reports of each day.

DATA/rocketbox/reports/
  runs/ID/          a run's record, record.json, and its input and output files (spark_reports/run/plan.py)
  days/YYYY-MM-DD/  each report's JSON and SVGs; made.json: the run that made them, and from which data
  facts/            the counts of each day, with which later reports compare theirs
  scratch/ID/       Spark's files while a run goes on
"""

from __future__ import annotations

from .acts import cancel, start
from .missing import what_is_missing
from .published import days, document, made, svg
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
    "svg",
    "used_bytes",
    "what_is_missing",
]
