"""Nightly reports: when they are made, the runs that make them, and what there is of each day.

DATA/rocketbox/reports/
  runs/ID/          what a run was given and said: record.json, and the files of spark_reports/run/plan.py
  days/YYYY-MM-DD/  each report's JSON and SVGs, made.json: how they came to be
  facts/            what was counted, by day; later reports compare themselves with it
  scratch/ID/       files of Spark, while a run goes on
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
