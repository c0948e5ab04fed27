"""The threads that run jobs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from django.db import DatabaseError, connection
from django.utils.translation import gettext_noop

from ... import runtime
from ...engine.errors import AdminError
from ...engine.service_thread import ServiceThread
from .job import AUDIT_RESULTS, Job, Told
from .job_board import Board, board, disk_sentence, may_go_on, write_down
from .registry import kind_of
from .work import Cancelled, JobFailed, Stopping, Work

logger = logging.getLogger(__name__)

AT_ONCE = 2
IDLE_S = 5.0
SWEEP_S = 3600.0
#: Seconds after the start until the first job runs: the first sends and pages should not wait for it.
BEGIN_S = 1.0

MISTAKE = gettext_noop("An error of RocketBox's own; the log has it under the number of this job.")
STOPPED = gettext_noop("RocketBox was stopped while it ran. Start it again.")


def run(job: Job, of: Board, stopping: Callable[[], bool] = lambda: False) -> None:
    """Run a job that `take_next` returned, to its end. What the job raises becomes its state; it is not raised here."""
    kind = kind_of(job.kind)
    work = Work(job, of.folder(job.id), stopping, may_go_on=lambda: may_go_on(job))
    state, why = "done", None
    try:
        work.require_right()
        kind.run(work)
    except Cancelled:
        state = "cancelled"
    except Stopping:
        if kind.goes_on:
            of.put_off(job)
            return
        state, why = "interrupted", Told(STOPPED)
    except JobFailed as error:
        state, why = "failed", error.told
    except OSError as error:
        state, why = "failed", disk_sentence(error)
        logger.warning("jobs: failed job=%s kind=%s: %s", job.id, job.kind, error)
    except (AdminError, runtime.EngineNotRunning) as error:
        if stopping():
            if kind.goes_on:
                of.put_off(job)
                return
            state, why = "interrupted", Told(STOPPED)
        else:
            state, why = "failed", _sentence(error)
    except Exception:
        logger.exception("jobs: failed job=%s kind=%s", job.id, job.kind)
        state, why = "failed", Told(MISTAKE)
    of.end(job, state, why)
    after = {"state": state, "done": job.done, **({"counts": job.counts} if job.counts else {})}
    if why is not None:
        after["why"] = str(why)
    write_down(job, "job.end", after, AUDIT_RESULTS[state])


def run_waiting(of: Board | None = None) -> int:
    """Run all waiting jobs in this thread and return how many. For tests, which start no job threads."""
    of = of or board()
    count = 0
    while (job := of.take_next()) is not None:
        run(job, of)
        count += 1
    return count


def _sentence(error: Exception) -> Told:
    sentence = getattr(error, "sentence", None)
    if sentence is None:
        return Told("%(text)s", {"text": str(error)})
    return Told(sentence.template, dict(sentence.args))


class JobRunner(ServiceThread):
    """One of the console's threads `jobs-1` and `jobs-2`; the first one also removes expired jobs."""

    def __init__(self, number: int) -> None:
        super().__init__(f"jobs-{number}")
        self._sweeps = number == 1

    def run(self) -> None:
        self.wait(BEGIN_S)
        jobs = board()
        jobs.listeners.append(self.wakeup)
        swept_at = -SWEEP_S
        while not self.stopped:
            if self._sweeps and time.monotonic() - swept_at > SWEEP_S:
                swept_at = time.monotonic()
                try:
                    jobs.sweep()
                except OSError as error:
                    logger.warning("jobs: what has expired is not removed: %s", error)
            job = jobs.take_next()
            if job is None:
                self.wait(IDLE_S)
                continue
            try:
                run(job, jobs, lambda: self.stopped)
            except (DatabaseError, OSError) as error:  # its end cannot be recorded, for example on a full disk
                logger.error("jobs: the end is not in the audit log job=%s: %s", job.id, error)
            except Exception:  # the next job can still run
                logger.exception("jobs: the end cannot be written down job=%s", job.id)
            finally:
                connection.close()
