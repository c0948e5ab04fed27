"""All jobs of this data directory: waiting, running and ended. Any thread may call this."""

from __future__ import annotations

import errno
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext_noop

from ... import runtime
from ...engine.clock import SYSTEM, AgeClock, Clock
from ...engine.errors import Conflict, NotFound, Unavailable
from ..audit.log import Actor, audit, record
from ..models import ApiToken, User, now_ms
from ..sign_in.identity import names_for
from ..users.tokens import chain
from .job import Job, JobFolder, Told, ids_in, new_id
from .registry import kind_of

logger = logging.getLogger(__name__)

WAITING_AT_MOST = 50
# Waiting or running jobs of one user, tokens included, so that other users' backups and checks find room.
WAITING_EACH = 10
KEPT_DAYS = 7
KEPT_AT_MOST = 500
ALL_FILE_BYTES = 4 << 30
INPUTS_KEPT = 4
_DAY_MS = 86_400_000

FULL_DISK = gettext_noop("The disk is full.")
NO_ROOM = gettext_noop("The disk refused the job's file: %(why)s.")
RESTARTED = gettext_noop("RocketBox ended while it ran. Start it again.")


class Board:
    """Jobs in memory, and their directories, which are read once. `_lock` guards the table. While a job runs, the
    thread that runs it changes its fields; before and after, they are changed under the lock."""

    def __init__(self, directory: Path, clock: Clock = SYSTEM) -> None:
        self.directory = directory
        self._lock = threading.RLock()
        self._jobs: dict[str, Job] = {}
        #: Called when there is something to do.
        self.listeners: list[Any] = []
        self._load()
        #: Of the thread that sweeps. `_load` has ended jobs by the present clock.
        self._ages = AgeClock(clock, max((job.created_at_ms for job in self._jobs.values()), default=0))

    def _load(self) -> None:
        """Read the jobs of earlier runs and settle those that were running; the package docstring has the rules."""
        for job_id in ids_in(self.directory):
            folder = self.folder(job_id)
            job = folder.read()
            if job is None or job.id != job_id:
                continue  # a crash left it; `sweep` removes it when it is old
            if job.state == "running":
                if kind_of(job.kind).goes_on and not job.cancel_asked_by:
                    job.state = "waiting"
                else:
                    job.state, job.ended_at_ms, job.why = "interrupted", now_ms(), Told(RESTARTED)
                    if job.cancel_asked_by:
                        job.state, job.why = "cancelled", None
                    job.files = []
                    folder.remove_files()
                self._save(job, durable=False)
            self._jobs[job_id] = job

    def folder(self, job_id: str) -> JobFolder:
        return JobFolder(self.directory, job_id)

    def add(self, job: Job, given: bytes | None = None) -> None:
        """Queue a new job. given: its input. Raises Conflict if its kind runs alone and one has not ended, Unavailable
        if too many jobs wait or the disk does not take the job's files."""
        kind = kind_of(job.kind)
        with self._lock:
            under_way = [one for one in self._jobs.values() if not one.ended]
            same = next((one for one in under_way if one.kind == job.kind), None)
            if kind.alone and same is not None:
                raise Conflict(Told(gettext_noop("Job %(job)s of this kind has not ended yet."), {"job": same.id}))
            owner = _owner(job)
            theirs = sum(_owner(one) == owner for one in under_way)
            if theirs >= WAITING_EACH:
                sentence = gettext_noop("%(count)d jobs of yours are waiting already. Wait until some have ended.")
                raise Unavailable(Told(sentence, {"count": theirs}))
            if len(under_way) >= WAITING_AT_MOST:
                sentence = gettext_noop("%(count)d jobs are waiting already. Wait until some have ended.")
                raise Unavailable(Told(sentence, {"count": len(under_way)}))
            try:
                if given is not None:
                    self._hold_inputs_down()
                    self.folder(job.id).take_input(given)
                self.folder(job.id).write(job, durable=True)
            except OSError as error:
                self.folder(job.id).remove()
                raise Unavailable(disk_sentence(error)) from error
            self._jobs[job.id] = job
        self._tell()

    def get(self, job_id: str) -> Job:
        """Return the job. Raises NotFound."""
        job = self._jobs.get(job_id)
        if job is None:
            raise NotFound("job", job_id)
        return job

    def jobs(self) -> list[Job]:
        """Return all jobs, newest first."""
        numbered = enumerate(self._jobs.copy().values())
        return [job for _, job in sorted(numbered, key=lambda one: (one[1].created_at_ms, one[0]), reverse=True)]

    def take_next(self) -> Job | None:
        """Mark the next waiting job as running and return it: the oldest of the users with the fewest running jobs."""
        with self._lock:
            waiting = [job for job in self._jobs.values() if job.state == "waiting"]
            if not waiting:
                return None
            running = Counter(_owner(one) for one in self._jobs.values() if one.state == "running")
            # Users without a running job come before users with one.
            job = min(waiting, key=lambda one: (running[_owner(one)], one.created_at_ms))
            job.state, job.started_at_ms = "running", job.started_at_ms or now_ms()
            job.changes += 1
        self._save(job, durable=False)
        return job

    def cancel(self, job_id: str, by: str) -> tuple[Job, bool]:
        """Cancel a job: at once if it waits, else at its next step. Return it, and True if it was waiting. Raises
        NotFound, and Conflict if it has ended."""
        with self._lock:
            job = self.get(job_id)
            if job.ended:
                raise Conflict(Told(gettext_noop("This job has ended already.")))
            job.cancel_asked_by = by
            job.changes += 1
            waiting = job.state == "waiting"
            if waiting:
                self._end(job, "cancelled", None)
                self.folder(job.id).remove_data()  # it may have run before the last start
        self._save(job, durable=True)  # so that a kind with `goes_on` stays cancelled after a kill
        return job, waiting

    def end(self, job: Job, state: str, why: Told | None = None) -> None:
        """Record that the job ended in this state. Unless it is "done", the job's input and files are removed."""
        folder = self.folder(job.id)
        if state == "done":
            try:
                job.files = folder.files()
            except OSError as error:  # its work is done
                logger.warning("jobs: its files cannot be listed job=%s: %s", job.id, error)
        else:
            folder.remove_data()
            job.files = []
        with self._lock:
            self._end(job, state, why)
        self._save(job, durable=True)
        self._hold_files_down()

    def put_off(self, job: Job) -> None:
        """Set a running job back to waiting: it goes on after the next start of RocketBox."""
        with self._lock:
            job.state = "waiting"
        self._save(job, durable=True)

    def sweep(self) -> None:
        """Remove ended jobs that are too old or too many, and old directories that hold no known job."""
        before = self._ages.now_ms() - KEPT_DAYS * _DAY_MS
        ended = [job for job in self.jobs() if job.ended]
        for number, job in enumerate(ended):
            if number >= KEPT_AT_MOST or (job.ended_at_ms or 0) < before:
                with self._lock:
                    self._jobs.pop(job.id, None)
                self.folder(job.id).remove()
        for job_id in ids_in(self.directory):
            if job_id not in self._jobs and self._is_old(job_id, before):
                self.folder(job_id).remove()

    def _is_old(self, job_id: str, before: int) -> bool:
        try:
            return self.folder(job_id).path.stat().st_mtime * 1000 < before
        except OSError:
            return False

    def _hold_inputs_down(self) -> None:
        """Delete the inputs of ended jobs except the last few: an import starts with the input of its check."""
        ended = [job for job in self.jobs() if job.ended and self.folder(job.id).input.exists()]
        for job in ended[INPUTS_KEPT:]:
            self.folder(job.id).input.unlink(missing_ok=True)

    def _hold_files_down(self) -> None:
        """Remove the files of the oldest jobs while all files together exceed the limit; the jobs stay listed."""
        room = ALL_FILE_BYTES
        for job in self.jobs():
            room -= job.file_bytes
            if room < 0 and job.files:
                self.folder(job.id).remove_files()
                job.files, job.files_removed = [], True
                job.changes += 1
                self._save(job, durable=False)

    @staticmethod
    def _end(job: Job, state: str, why: Told | None) -> None:
        job.state, job.why, job.ended_at_ms = state, why, now_ms()
        job.changes += 1

    def _save(self, job: Job, durable: bool) -> None:
        """Write the job's file. If that fails, the job's state is only in memory, until the process ends."""
        try:
            self.folder(job.id).write(job, durable)
        except OSError as error:
            logger.warning("jobs: not saved job=%s: %s", job.id, error)

    def _tell(self) -> None:
        for listener in list(self.listeners):
            listener()


def _owner(job: Job) -> str:
    """Return the user a job belongs to; a job that a token started (`user/token`) belongs to the token's owner."""
    return job.who.partition("/")[0] if job.who_kind == "token" else job.who


def disk_sentence(error: OSError) -> Told:
    """Return the sentence for a failed write."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Told(FULL_DISK)
    return Told(NO_ROOM, {"why": error.strerror or str(error)})


_made_lock = threading.Lock()
_made: Board | None = None


def board() -> Board:
    """Return the board of this process's data directory; made at the first call."""
    global _made
    directory = runtime.place().directory / "jobs"
    with _made_lock:
        if _made is None or _made.directory != directory:
            _made = Board(directory)
        return _made


def start(
    request: HttpRequest,
    kind: str,
    parameters: dict[str, Any],
    target: str = "",
    names: Iterable[str] = (),
    given: bytes | None = None,
) -> Job:
    """Queue a new job for the caller, who must be allowed to start its kind, and write it to the audit log. Raises
    Conflict and Unavailable. given: the data to work on, which the job finds in `work.input`.

    target: the job's subject, as people read it. names: the topics and groups that the job is about; a job without
    names is not shown to a user or token that may access only some names.
    """
    user: Any = request.user
    assert kind_of(kind).start.admits(user), "the access table admits no other"
    job = Job(
        id=new_id(), kind=kind, who=user.label, who_kind=user.kind, created_at_ms=now_ms(), parameters=parameters,
        address=getattr(request, "client_address", ""), token=user.token.pk if user.kind == "token" else 0,
        target=target, names=list(names),
    )  # fmt: skip
    board().add(job, given)
    write_down(job, "job.start", {"parameters": parameters}, request_id=getattr(request, "request_id", ""))
    return job


def cancel(request: HttpRequest, job_id: str) -> Job:
    """Cancel a job for the caller and write that to the audit log. Raises NotFound and Conflict."""
    user: Any = request.user
    job, ended = board().cancel(job_id, user.label)
    audit(request, "job.cancel", job.target or job.id, after={"job": job.id, "kind": job.kind})
    if ended:
        write_down(job, "job.end", {"state": job.state})
    return job


def may_see(user: Any, job: Job) -> bool:
    """True if a user or a token's bearer may see the job and its files."""
    if not kind_of(job.kind).fetch.admits(user):
        return False
    names = names_for(user)
    return names.is_every or _has_all(job, names.has)


def may_go_on(job: Job) -> bool:
    """True if the user who started the job may still do so: jobs of a user who was disabled, or lost the role or the
    names, must not go on, nor jobs of a token that was revoked. True if this database has no such user: jobs of the
    schedule, or of another database. The token of one command is deleted at its end, and an expired one has done
    nothing wrong: their jobs go on."""
    token = ApiToken.objects.filter(pk=job.token).first() if job.token else None
    if token is not None and any(one.revoked_at_ms is not None for one in chain(token)):
        return False
    user = User.objects.named(_owner(job)) if job.who_kind in ("user", "token") else None
    if user is None:
        return True
    names, kind = names_for(user), kind_of(job.kind)
    # The same question as at the start: a job about topics goes on even if its user may access no groups.
    may = {"topic": names.has_topic, "group": names.has_group}.get(kind.about, names.has)
    return user.is_active and kind.start.admits(user) and (names.is_every or _has_all(job, may))


def _has_all(job: Job, has: Callable[[str], bool]) -> bool:
    """True if `has` admits every name of the job. A job without names is about the whole broker: False, since the
    caller may access only some names."""
    return bool(job.names) and all(map(has, job.names))


def may_cancel(user: Any, job: Job) -> bool:
    """True if a user or a token's bearer may cancel the job."""
    return not job.ended and may_see(user, job) and kind_of(job.kind).start.admits(user)


def seen(user: Any, kind: str = "", state: str = "") -> list[Job]:
    """Return the jobs that the caller may see, newest first."""
    return [
        job for job in board().jobs()
        if (not kind or job.kind == kind) and (not state or job.state == state) and may_see(user, job)
    ]  # fmt: skip


def find(user: Any, job_id: str) -> Job:
    """Return the job. Raises NotFound if there is none, or if the caller may not see it."""
    job = board().get(job_id)
    if not may_see(user, job):
        raise NotFound("job", job_id)
    return job


def write_down(job: Job, action: str, after: dict[str, Any], result: str = "done", request_id: str = "") -> None:
    """Write an entry to the audit log in the name of the user who started the job."""
    record(
        action, job.target or job.id, after={"job": job.id, "kind": job.kind, **after},
        by=Actor(job.who, job.who_kind, job.address, request_id), result=result,
    )  # fmt: skip
