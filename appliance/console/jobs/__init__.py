"""Long acts of the console: exports, imports, checks. Each is a job that users watch and cancel; the audit log has it.

A kind is a function; a module of them is named in `known.py`:

    @kind("message-export", title=_("Export messages"), start=VIEWER.with_grants("may_export"))
    def export(work: Work) -> None:
        with work.file("messages.ndjson").open("wb") as out:
            for done, message in enumerate(..., 1):
                out.write(...)
                work.progress(done, total, "messages", exported=done)
        work.result({"exported": done})

A view starts one with `start(request, "message-export", parameters, target="orders", names=("orders",))` and leads to
the page `job`; an operation of the API answers `accepted(...)` (`api/job_answers.py`): 202 with its place.

**Where a job lives.** Each job has one directory, `DATA/rocketbox/jobs/ID/`: `job.json`, and `files/` with its results.
Jobs are not in the settings database, for three reasons. A job's progress, written every two seconds, must not hold the
database's one write lock, for which sign-ins and the audit log wait. After a SIGKILL, a file that is replaced whole is
either the old or the new one; the directory is all there is of a job, so the job expires, is removed, and is left out
of a backup as a whole. And a restored settings database lists no jobs whose files are elsewhere.

**What a restart finds.** A job that ran becomes `interrupted`, and the files it had written are removed, since half a
file looks like a whole one. A kind with `goes_on=True` runs again; `work.kept` has what it last gave to `work.keep()`.

**Bounds.** Two jobs run at a time, `WAITING_AT_MOST` wait. The files of one job take at most `FILE_BYTES`, and at most
a quarter of the disk space that was free when it began, so that jobs leave room for the store. The files of all jobs
together take at most `ALL_FILE_BYTES`; the oldest are removed first. Ended jobs are removed after `KEPT_DAYS`.

**Long acts that are no jobs.** A replay of dead letters runs in the engine, also without a console, and its journal
proves what was sent (`engine/broker/replay`). A run of the reports has processes of its own that outlive a killed
RocketBox, and is started by a schedule (`reports/runner.py`). Both share ids, ends and results with jobs (`job.py`).
"""

from .job import ENDED, STATES, Job, Told, new_id
from .job_board import Board, board, cancel, find, may_cancel, may_see, seen, start
from .registry import Kind, kind, kind_of, kinds
from .work import Cancelled, JobFailed, Work

__all__ = [
    "ENDED", "STATES", "Board", "Cancelled", "Job", "JobFailed", "Kind", "Told", "Work", "board", "cancel", "find",
    "kind", "kind_of", "kinds", "may_cancel", "may_see", "new_id", "seen", "start",
]  # fmt: skip
