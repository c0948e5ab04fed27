"""Long acts of the console: exports, imports, checks. Each is a job that is watched, cancelled and answered for.

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

**Where a job lives.** One directory a job, `DATA/rocketbox/jobs/ID/`: `job.json`, and `files/` with its results. Not in
the settings database, for three reasons. A job's progress, written every two seconds, must not hold the database's one
write lock, for which sign-ins and the audit log wait. A file that is replaced whole is after a SIGKILL either the old
or the new one, and the directory is all there is of a job: it expires, is removed, and is left out of a backup as one.
And a restored settings database knows no jobs whose files are elsewhere.

**What a restart finds.** A job that ran is `interrupted`, and what it had written is removed, since half a file looks
like a whole one; a kind with `goes_on=True` runs again and finds what it gave to `work.keep()` in `work.kept`.

**Bounds.** Two jobs run at a time, `WAITING_AT_MOST` wait. Files of a job have at most `FILE_BYTES`, and a quarter of
what was free on the disk when it began: the store's own room is not a job's to take. Those of all jobs have at most
`ALL_FILE_BYTES`: the oldest are removed first. What has ended is removed after `KEPT_DAYS`.
"""

from .job import ENDED, STATES, Job, Told, new_id
from .job_board import Board, board, cancel, find, may_cancel, may_see, seen, start
from .registry import Kind, kind, kind_of, kinds
from .work import Cancelled, JobFailed, Work

__all__ = [
    "ENDED", "STATES", "Board", "Cancelled", "Job", "JobFailed", "Kind", "Told", "Work", "board", "cancel", "find",
    "kind", "kind_of", "kinds", "may_cancel", "may_see", "new_id", "seen", "start",
]  # fmt: skip
