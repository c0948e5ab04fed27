"""Repeats a run elsewhere, from the directory of one that has ended, as a person would by hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from spark_reports.run import plan as files
from spark_reports.run.plan import Outcome, Plan
from tests.support.server import ROOT


def reports_of(folder: Path) -> dict[str, bytes]:
    """Return name -> bytes of every file of a run's reports."""
    return {path.name: path.read_bytes() for path in sorted((folder / files.REPORTS).iterdir())}


def make_again(
    folder: Path, place: Path, variables: dict[str, str] | None = None, **changes: object
) -> tuple[Outcome, Path]:
    """Repeat the run; return (its outcome, its directory). variables: of the environment. changes: to the plan."""
    again = place / "again"
    shutil.copytree(folder, again, ignore=shutil.ignore_patterns("messages", "answers", "reports", "outcome.json"))
    plan = files.read(again / files.PLAN, Plan)
    assert plan is not None
    files.write(
        again / files.PLAN, replace(plan, facts_dir=str(place / "facts"), scratch_dir=str(place / "scratch"), **changes)
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(variables or {})}
    done = subprocess.run(
        [sys.executable, "-m", "spark_reports.run", str(again)], cwd=place, env=environment, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    outcome = files.read(again / files.OUTCOME, Outcome)
    assert outcome is not None, done.stdout + done.stderr
    return outcome, again
