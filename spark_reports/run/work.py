"""The worker of a run: counts the day's facts and makes the reports.

It writes outcome.json last, and then ends at once, even if threads of Spark's client still wait.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance import __version__

from .. import snapshot as snapshots
from . import plan as files
from .failures import RunFailed, of_exception
from .plan import Outcome, Plan
from .processes import end_with_parent
from .progress import ProgressFile

if TYPE_CHECKING:
    from ..facts.tables import DayFacts
    from ..snapshot import Snapshot

#: Days before the run's own that are read for trends.
DAYS_BEFORE = 35


class Work:
    """One run, from its snapshot to its reports."""

    def __init__(self, directory: Path, plan: Plan, snapshot: Snapshot, progress: ProgressFile) -> None:
        # Constant after construction.
        self._directory = directory
        self._plan = plan
        self._snapshot = snapshot
        self._progress = progress
        self._steps: dict[str, int] = {}
        #: The day's facts for the reports if it was counted before: not all of them are kept on disk.
        self._best: DayFacts | None = None
        self._log_bytes = 0
        self._versions = {"rocketbox": __version__, "python": platform.python_version()}

    def run(self) -> Outcome:
        """Do the run; raises whatever fails."""
        from ..facts import keeping
        from ..facts.day_files import day_files

        facts_dir, day = Path(self._plan.facts_dir), self._snapshot.day
        with self._step("reading"):
            self._measured()
            self._log_bytes = day_files(self._snapshot).size
        if self._plan.engine == "spark":
            self._count_with_spark(facts_dir)
        else:
            self._count_here(facts_dir)
        with self._step("reports"):
            keeping.prune(facts_dir, self._plan.keep_days, day)
            last = date.fromisoformat(day)
            days = [(last - timedelta(n)).isoformat() for n in range(DAYS_BEFORE, -1, -1)]
            found = keeping.read(facts_dir, days)
            if self._best is not None:
                found[day] = self._best
            self._make(found)
        return self._outcome(found.get(day, {}))

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        self._progress.step(name)
        print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
        yield
        self._steps[name] = self._steps.get(name, 0) + int((time.monotonic() - begun) * 1000)

    def _measured(self) -> None:
        """Copy the console's measurements, only once, so that the same run made again reads the same."""
        # Written last.
        if not (self._directory / files.INCIDENTS).exists() and self._plan.history_dir:
            from .measured import write_incidents, write_lag

            history = Path(self._plan.history_dir)
            write_lag(self._directory / files.LAG, history, self._snapshot)
            write_incidents(self._directory / files.INCIDENTS, history, self._snapshot)

    def _count_here(self, facts_dir: Path) -> None:
        from ..facts import in_python, keeping

        with self._step("counting"):
            facts = in_python.count(self._snapshot, self._directory, self._progress.done)
        with self._step("writing"):
            before = self._before(facts_dir)
            if before is not None:
                facts = self._best_of(before, facts)
            as_parquet = keeping.has_parquet()
            keeping.write(facts_dir, self._snapshot.day, facts, as_parquet)
            if as_parquet:
                keeping.to_parquet(facts_dir)

    def _before(self, facts_dir: Path) -> DayFacts | None:
        """Return the day's facts of an earlier run, None without any."""
        from ..facts import keeping

        return keeping.read(facts_dir, [self._snapshot.day]).get(self._snapshot.day)

    def _best_of(self, before: DayFacts, now: DayFacts) -> DayFacts:
        """Return the facts to keep, of two counts of the day; those for the reports are set as `_best`."""
        from ..facts import again
        from ..facts.hours import end_of_day

        to_ms = end_of_day(self._snapshot.day, self._snapshot.zone)
        self._best = again.best_of(before, now, to_ms)
        return again.to_keep(before, self._best, to_ms)

    def _count_with_spark(self, facts_dir: Path) -> None:
        from ..facts import in_spark, keeping
        from .executors import watched
        from .session import close, open_session

        with self._step("starting"):
            spark, versions = open_session(self._plan)
            self._versions |= versions
        try:
            with (
                self._step("counting"), self._progress.of_spark(spark), watched(spark, self._plan.master)
            ):  # fmt: skip
                frames = in_spark.count(
                    spark, self._snapshot, self._directory, scratch_dir=files.scratch_as_spark_has_it(self._plan)
                )
                before, day = self._before(facts_dir), self._snapshot.day
                if before is None:
                    keeping.write(facts_dir, day, frames)
                else:  # the old facts stay until the two were compared
                    beside = Path(self._plan.scratch_dir) / "facts"
                    keeping.write(beside, day, frames)
                    now = keeping.read(beside, [day])[day]
                    keeping.write(facts_dir, day, self._best_of(before, now), as_parquet=True)
                keeping.to_parquet(facts_dir)
        finally:
            close(spark)

    def _make(self, facts: dict[str, DayFacts]) -> None:
        """Make all reports, in a directory beside the final one, which replaces it: never only some of them."""
        from .. import reports

        target = self._directory / files.REPORTS
        fresh = self._directory / f".{files.REPORTS}"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(0o700)
        for document in reports.make(self._snapshot, facts):
            _write(fresh / f"{document.report}.json", document.to_json())
        shutil.rmtree(target, ignore_errors=True)
        os.replace(fresh, target)

    def _outcome(self, facts: DayFacts) -> Outcome:
        """Return the outcome; the figures of what was read come from the facts."""
        traffic = facts.get("traffic", [])
        findings = facts.get("findings", [])

        def found(kind: str) -> int:
            return sum(max(1, int(row[2])) for row in findings if row[0] == kind)

        return Outcome(
            ok=True,
            steps=tuple(self._steps.items()),
            rows=sum(int(row[3]) for row in traffic),
            bytes_read=self._log_bytes,
            gaps=found("gap"),
            corrupt=found("corrupt"),
            versions=self._versions,
        )

    def failed(self, why: RunFailed) -> Outcome:
        return Outcome(
            ok=False,
            error=str(why),
            steps=tuple(self._steps.items()),
            versions=self._versions,
            why=why.why,
            values=why.values,
        )


def _write(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)


def work(directory: Path, leave: Callable[[int], Any] = os._exit) -> int:
    """Do the work of a run's directory; return 0 if it was done, else 1. leave: called with that status, to end the
    process without waiting for threads."""
    end_with_parent(signal.SIGKILL, os.getppid())
    plan = files.read(directory / files.PLAN, Plan)
    if plan is None:
        raise SystemExit(f"{directory / files.PLAN} is missing or cannot be understood")
    progress = ProgressFile(directory / files.PROGRESS)
    made: Work | None = None
    try:
        with progress:
            made = Work(directory, plan, snapshots.load(directory), progress)
            outcome = made.run()
    except BaseException as error:
        traceback.print_exc()
        why = of_exception(error, str(directory))
        outcome = Outcome(False, str(why), why=why.why, values=why.values) if made is None else made.failed(why)
    try:
        files.write(directory / files.OUTCOME, outcome)
    except OSError as error:  # the keeper reports that there is no outcome, or that the disk is full
        print(f"the outcome cannot be written: {error}", flush=True)
    sys.stdout.flush()
    sys.stderr.flush()
    status = 0 if outcome.ok else 1
    leave(status)
    return status
