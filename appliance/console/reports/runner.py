"""Makes reports: one run at a time, each in its own processes.

Two runs never overlap: this thread is the only one that starts any, and only one process serves a data directory (the
store's lock). If RocketBox was killed, the next one ends the processes that it left running before it starts a run.
"""

from __future__ import annotations

import errno
import logging
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from django.db import DatabaseError, close_old_connections

from spark_reports.facts.day_files import day_files
from spark_reports.facts.hours import day_bounds, day_of
from spark_reports.run import plan as files
from spark_reports.run.failures import RunFailed
from spark_reports.run.keeper import sweep
from spark_reports.run.plan import Outcome, Plan
from spark_reports.snapshot import Snapshot

from ... import runtime
from ...engine.errors import AdminError
from ...engine.service_thread import ServiceThread
from ..audit.log import Actor
from ..audit.log import record as write_down
from ..history import series
from ..jobs.job import AUDIT_RESULTS, new_id
from ..models import now_ms
from ..pages import time_zones
from ..serving.said_once import SaidOnce
from . import inputs, published, records, schedule
from .child import Child
from .missing import engine_for
from .published import Made
from .records import RunRecord
from .report_settings import ReportSettings, settings

logger = logging.getLogger(__name__)

LOOK_S = 20.0
FOLLOW_S = 0.5
#: When RocketBox stops, a run is killed after this time.
STOP_S = 2.0
#: A keeper is killed this many seconds after it was asked to end, or after its time-out.
GRACE_S = 30.0
FLUSH_S = 10.0
SCHEDULE = "schedule"


class ReportRunner(ServiceThread):
    """Starts the run that waits or is due, and follows it to its end. Its `run` is called by the thread `reports`."""

    def __init__(self, tell: Callable[[str], object] = lambda day: None) -> None:
        """tell: called with the newest day when the schedule has made its reports."""
        super().__init__("reports")
        # Constant after construction.
        self._tell = tell
        # Guards records of runs that have not ended: this thread and requests change them.
        self.lock = threading.Lock()
        self._failures = SaidOnce()
        # Run -> its end, as long as the disk refuses to store that. Owned by this thread.
        self._owed: dict[str, tuple[Outcome | RunFailed, str]] = {}

    def run(self) -> None:
        try:
            self.sweep()
        except Exception:
            logger.exception("reports: what was left of earlier runs is not removed")
        while not self.stopped:
            try:
                while not self.stopped and self.step():
                    pass
                self._failures.went_well()
            except (AdminError, runtime.EngineNotRunning):
                pass  # the engine starts or stops, or has no broker
            except (DatabaseError, OSError) as error:
                if self._failures.is_new(error):
                    logger.error("reports: they are made later: %s", error)
            except Exception:
                logger.exception("reports: no look at what is due")
            finally:
                close_old_connections()
            self.wait(LOOK_S)

    def sweep(self) -> None:
        """End the processes that a killed RocketBox left running, and record those runs as interrupted; remove
        incomplete runs and scratch files."""
        with self.lock:
            records.remove_unknown()
        self._settle()
        scratch = records.directory() / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        published.tidy(settings().keep_days, self._tomorrow(), future_too=False)

    def _settle(self) -> None:
        """End every run that is recorded as running. This thread follows one run at a time and follows none now, so
        RocketBox was killed, or the disk refused to store the run's end. Raises OSError."""
        for one in records.runs():
            if one.state == "running":
                count = sweep(records.folder(one.id), one.id)
                logger.warning("reports: an earlier run had no end run=%s processes=%d", one.id, count)
                self._end(one, RunFailed("interrupted"), "interrupted")

    def _tomorrow(self) -> str:
        return day_of(now_ms() + 2 * 86_400_000, ZoneInfo("UTC"))

    def step(self) -> bool:
        """Make the run that waits or is due. Return False if there is none."""
        self._settle()
        with self.lock:
            record = next((one for one in reversed(records.runs()) if one.state == "waiting"), None)
        if record is None:
            day = self._due()
            if day is None:
                return False
            record = new_record(day, SCHEDULE, "system")
            with self.lock:
                records.begin(record)
        self._make(record)
        return True

    def _due(self) -> str | None:
        wanted = settings()
        zone = time_zones.zone(wanted.zone)
        if not wanted.on or zone is None:
            return None
        found = records.runs()

        def tries(day: str) -> list[int]:
            return [one.started_ms for one in found if one.day == day and one.who == SCHEDULE]

        def is_made(day: str) -> bool:
            made = published.made(day)
            return made is not None and made.whole

        known = schedule.Known(is_made, tries, runtime.window().report_inputs.earliest_ms())
        return schedule.due_day(now_ms(), wanted.at, zone, known, wanted.keep_days)

    # --- one run

    def _make(self, record: RunRecord) -> None:
        wanted = settings()
        with self.lock:
            record = _now(record)
            if record.ended:  # cancelled meanwhile
                return
            record = records.save(replace(record, state="running", started_ms=now_ms()))
        logger.info("reports: a run begins run=%s day=%s who=%s", record.id, record.day, record.who)
        try:
            record, snapshot = self._prepare(record, wanted)
            outcome = self._follow(record, wanted.timeout_min * 60)
            if outcome is not None and outcome.ok:
                self._publish(record, snapshot, outcome)
            elif self.stopped and not _now(record).cancel_asked:
                raise RunFailed("stopped")
            elif outcome is None:
                raise RunFailed("vanished")
            else:
                self._end(record, outcome, "cancelled" if outcome.cancelled else "failed")
        except RunFailed as error:
            self._end(record, error, "interrupted" if error.why == "stopped" else "failed")
        except (AdminError, runtime.EngineNotRunning):
            self._end(record, RunFailed("no_broker"), "failed")
        except OSError as error:
            self._end(record, _of_disk(error), "failed")
        except Exception as error:
            logger.exception("reports: failed run=%s", record.id)
            self._end(record, RunFailed("crashed", text=type(error).__name__), "failed")
        finally:
            scratch = records.directory() / "scratch" / record.id
            shutil.rmtree(scratch, ignore_errors=True)

    def _prepare(self, record: RunRecord, wanted: ReportSettings) -> tuple[RunRecord, Snapshot]:
        """Fix the run's inputs and write its plan. Raises RunFailed, OSError, AdminError."""
        zone = time_zones.zone(wanted.zone) or ZoneInfo("UTC")
        place = records.folder(record.id)
        taken = runtime.window().report_inputs.take()
        snapshot = inputs.snapshot_of(taken, record.day, zone, wanted)
        if snapshot.to_ms <= (taken.earliest_ms if taken.earliest_ms is not None else snapshot.to_ms):
            raise RunFailed("data_gone", day=record.day)
        day_bytes = day_files(snapshot).size
        engine, why, problem = engine_for(wanted, records.directory(), day_bytes)
        with self.lock:  # before what may go wrong: the page of a failed run says this, too
            record = records.save(
                replace(
                    _now(record),
                    engine=engine,
                    inputs=inputs.inputs_of(snapshot) | {"day_bytes": day_bytes, "why": why},
                )
            )
        if problem is not None:
            raise problem
        recorder = series.recorder()
        if recorder is not None:  # the run reads its file, which lacks this hour's figures until it is flushed
            recorder.flush(FLUSH_S)
        deliveries = inputs.take_deliveries(taken.deliveries_dir, place)
        snapshot = replace(snapshot, deliveries_dir=str(deliveries))
        snapshot.save(place)
        plan = Plan(
            run_id=record.id,
            engine=engine,
            master=wanted.master,
            driver_mib=wanted.driver_mib,
            facts_dir=str(records.directory() / "facts"),
            scratch_dir=str(records.directory() / "scratch" / record.id),
            memory_mib=wanted.memory_mib,
            timeout_s=wanted.timeout_min * 60,
            keep_days=wanted.keep_days,
            history_dir=str(runtime.place().directory),
        )
        files.write(place / files.PLAN, plan)
        return record, snapshot

    def _follow(self, record: RunRecord, timeout_s: float) -> Outcome | None:
        """Start the processes and wait for their end; return the outcome, None if they left none. The keeper watches
        the time-out, and ends the others when it is asked to; a keeper that does not, since it hangs or is suspended,
        is killed. Raises RunFailed, OSError."""
        place = records.folder(record.id)
        if _now(record).cancel_asked:
            raise RunFailed("cancelled")
        child = Child(record.id, place)
        asked = False
        last = time.monotonic() + timeout_s + GRACE_S
        try:
            while not child.ended():
                self.wait(FOLLOW_S)
                if self.stopped:
                    child.end(STOP_S)
                elif not asked and _now(record).cancel_asked:
                    asked = True
                    child.ask_to_end()
                    last = min(last, time.monotonic() + GRACE_S)
                elif time.monotonic() > last:
                    child.end(STOP_S)
                    if files.read(place / files.OUTCOME, Outcome) is None:
                        raise RunFailed("cancelled") if asked else RunFailed("timeout", minutes=round(timeout_s / 60))
        finally:
            if not child.ended():
                child.end(STOP_S)
            sweep(place, record.id)
        return files.read(place / files.OUTCOME, Outcome)

    def _publish(self, record: RunRecord, snapshot: Snapshot, outcome: Outcome) -> None:
        wanted = settings()
        zone = ZoneInfo(snapshot.zone)
        whole = snapshot.to_ms == day_bounds(record.day, snapshot.zone)[1]
        before = published.made(record.day)
        if before is None or whole or not before.whole:
            made = Made(record.id, snapshot.t0_ms, snapshot.from_ms, snapshot.to_ms, whole, record.engine)
            published.publish(record, records.folder(record.id), made)
        self._end(record, outcome, "done")
        # The schedule makes only a day that lacks reports and has messages in the log. If the clock were days behind,
        # there would be no such day; so after a scheduled run the clock counts as right.
        published.tidy(wanted.keep_days, self._tomorrow(), record.day, future_too=record.who == SCHEDULE)
        if record.who == SCHEDULE and record.day == schedule.newest_day(now_ms(), wanted.at, zone):
            self._tell(record.day)

    def _end(self, record: RunRecord, how: Outcome | RunFailed, state: str) -> None:
        """Store a run's end, in its record and in the audit log. If the disk refuses the record, it is stored later;
        the first end that was given counts."""
        how, state = self._owed.setdefault(record.id, (how, state))
        if isinstance(how, RunFailed):
            left = files.read(records.folder(record.id) / files.OUTCOME, Outcome) or Outcome(False)
            how = replace(left, ok=False, error=str(how), why=how.why, values=how.values)
        if how.why == "cancelled":
            state = "cancelled"
        with self.lock:
            record = records.with_outcome(_now(record), how, state, now_ms())
            records.save(record)
        del self._owed[record.id]
        text = f" why={record.error}" if record.error else ""
        logger.log(
            logging.INFO if state in ("done", "cancelled") else logging.WARNING,
            "reports: a run has ended run=%s day=%s state=%s%s", record.id, record.day, state, text,
        )  # fmt: skip
        after: dict[str, Any] = {"day": record.day, "state": state, "who": record.who}
        after |= {"why": record.error} if record.error else {"rows": record.rows}
        with suppress(DatabaseError, OSError):
            write_down(
                "reports.run_end", record.id, None, after, by=Actor("reports", "system"), result=AUDIT_RESULTS[state]
            )  # fmt: skip
        records.clear(record.id)
        records.prune()


def new_record(day: str, who: str, who_kind: str) -> RunRecord:
    """Return the record of a new run, which waits."""
    return RunRecord(new_id(), day, "waiting", now_ms(), None, who, "", who_kind=who_kind)


def _now(record: RunRecord) -> RunRecord:
    """Return the record as it is on the disk: a request may have cancelled the run meanwhile."""
    return records.load(record.id) or record


def _of_disk(error: OSError) -> RunFailed:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunFailed("no_space", place=str(records.directory()))
    place = error.filename if isinstance(error.filename, str | Path) else ""
    return RunFailed("not_started", text=f"{error.strerror or error} {place}".strip())
