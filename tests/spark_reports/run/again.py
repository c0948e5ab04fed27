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
from tests.support.priority import hurry_run
from tests.support.server import ROOT
from tests.support.spark import quick
from tests.support.waiting import wait_for


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
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **quick(place), **(variables or {})}
    with (place / "said").open("w") as said:
        run = subprocess.Popen(
            [sys.executable, "-m", "spark_reports.run", str(again)], cwd=place, env=environment, stdout=said,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            wait_for(lambda: hurry_run(again) or run.poll() is not None, "the run ends", 300, every=0.2)
        finally:
            run.terminate()
            run.wait()
    outcome = files.read(again / files.OUTCOME, Outcome)
    assert outcome is not None, (place / "said").read_text()
    return outcome, again
