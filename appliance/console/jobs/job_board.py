"""All jobs of this data directory: those that wait, run and have ended. Any thread."""

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
from ...engine.errors import Conflict, NotFound, Unavailable
from ..audit import record
from ..identity import names_for
from ..models import User, now_ms
from .job import Job, JobFolder, Told, new_id
from .registry import kind_of

logger = logging.getLogger(__name__)

WAITING_AT_MOST = 50
# Of one user, tokens included: others' backups and checks find room.
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
    """Jobs in memory, and their directories, which are read once. Guarded by `_lock`: the table and what waits; a job's
    own fields are changed by the thread that runs it, before and after that under the lock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.RLock()
        self._jobs: dict[str, Job] = {}
        #: Called when there is something to do.
        self.listeners: list[Any] = []
        self._load()

    def _load(self) -> None:
        """What a restart finds; see the package."""
        for job_id in JobFolder.ids(self.directory):
            folder = self.folder(job_id)
            job = folder.read()
            if job is None or job.id != job_id:
                continue  # made by a crash: `sweep` removes it when it is old
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
        """Have it wait for its turn. given: its input. Raises Conflict, and Unavailable when too many wait or the disk
        takes nothing."""
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
        """Raises NotFound."""
        job = self._jobs.get(job_id)
        if job is None:
            raise NotFound("job", job_id)
        return job

    def jobs(self) -> list[Job]:
        """Newest first."""
        numbered = enumerate(self._jobs.copy().values())
        return [job for _, job in sorted(numbered, key=lambda one: (one[1].created_at_ms, one[0]), reverse=True)]

    def take_next(self) -> Job | None:
        """The next one, now running: the oldest, of users who have the fewest running."""
        with self._lock:
            waiting = [job for job in self._jobs.values() if job.state == "waiting"]
            if not waiting:
                return None
            running = Counter(_owner(one) for one in self._jobs.values() if one.state == "running")
            # Whoever has nothing running comes before whoever has.
            job = min(waiting, key=lambda one: (running[_owner(one)], one.created_at_ms))
            job.state, job.started_at_ms = "running", job.started_at_ms or now_ms()
            job.changes += 1
        self._save(job, durable=False)
        return job

    def cancel(self, job_id: str, by: str) -> tuple[Job, bool]:
        """Cancel it: at once when it waits (True), else at its next step. Raises NotFound and Conflict."""
        with self._lock:
            job = self.get(job_id)
            if job.ended:
                raise Conflict(Told(gettext_noop("This job has ended already.")))
            job.cancel_asked_by = by
            job.changes += 1
            waiting = job.state == "waiting"
            if waiting:
                self._end(job, "cancelled", None)
        self._save(job, durable=True)  # one that would go on after a kill is cancelled then, too
        return job, waiting

    def end(self, job: Job, state: str, why: Told | None = None) -> None:
        """It has ended so; files of one that did not come to its end are removed."""
        folder = self.folder(job.id)
        if state == "done":
            try:
                job.files = folder.files()
            except OSError as error:  # its work is done
                logger.warning("jobs: its files cannot be listed job=%s: %s", job.id, error)
        else:
            folder.remove_files()
            job.files = []
        with self._lock:
            self._end(job, state, why)
        self._save(job, durable=True)
        self._hold_files_down()

    def put_off(self, job: Job) -> None:
        """It goes on after the next start."""
        with self._lock:
            job.state = "waiting"
        self._save(job, durable=True)

    def sweep(self) -> None:
        """Remove what has expired."""
        before = now_ms() - KEPT_DAYS * _DAY_MS
        ended = [job for job in self.jobs() if job.ended]
        for number, job in enumerate(ended):
            if number >= KEPT_AT_MOST or (job.ended_at_ms or 0) < before:
                with self._lock:
                    self._jobs.pop(job.id, None)
                self.folder(job.id).remove()
        for job_id in JobFolder.ids(self.directory):
            if job_id not in self._jobs and self._is_old(job_id, before):
                self.folder(job_id).remove()

    def _is_old(self, job_id: str, before: int) -> bool:
        try:
            return self.folder(job_id).path.stat().st_mtime * 1000 < before
        except OSError:
            return False

    def _hold_inputs_down(self) -> None:
        """What jobs were given to work on is kept of the last few that have ended, to be given again."""
        ended = [job for job in self.jobs() if job.ended and self.folder(job.id).input.exists()]
        for job in ended[INPUTS_KEPT:]:
            self.folder(job.id).input.unlink(missing_ok=True)

    def _hold_files_down(self) -> None:
        """Files of the oldest jobs make room; the jobs stay."""
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
        """What cannot be saved is still known until the end of the process."""
        try:
            self.folder(job.id).write(job, durable)
        except OSError as error:
            logger.warning("jobs: not saved job=%s: %s", job.id, error)

    def _tell(self) -> None:
        for listener in list(self.listeners):
            listener()


def _owner(job: Job) -> str:
    """Whose it is; a token's are its owner's (`user/token`)."""
    return job.who.partition("/")[0] if job.who_kind == "token" else job.who


def disk_sentence(error: OSError) -> Told:
    """Why the disk did not take it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Told(FULL_DISK)
    return Told(NO_ROOM, {"why": error.strerror or str(error)})


_made_lock = threading.Lock()
_made: Board | None = None


def board() -> Board:
    """The one of this process's data directory."""
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
    """A new job for the caller, who may start it; in the audit log. Raises Conflict and Unavailable. given: what it is
    to work on, in `work.input`.

    target: what it is about, for people. names: the topics and groups it is about; without any a token that may access
    some names only does not see it.
    """
    user: Any = request.user
    assert kind_of(kind).start.admits(user), "the access table admits nobody else"
    job = Job(
        id=new_id(), kind=kind, who=user.label, who_kind=user.kind, created_at_ms=now_ms(), parameters=parameters,
        address=getattr(request, "client_address", ""), target=target, names=list(names),
    )  # fmt: skip
    board().add(job, given)
    write_down(job, "job.start", {"parameters": parameters}, request_id=getattr(request, "request_id", ""))
    return job


def cancel(request: HttpRequest, job_id: str) -> Job:
    """Cancel it for the caller; in the audit log. Raises NotFound and Conflict."""
    user: Any = request.user
    job, ended = board().cancel(job_id, user.label)
    record(
        "job.cancel", job.target or job.id, after={"job": job.id, "kind": job.kind},
        actor=user.label, actor_kind=user.kind, address=getattr(request, "client_address", ""),
        request_id=getattr(request, "request_id", ""),
    )  # fmt: skip
    if ended:
        write_down(job, "job.end", {"state": job.state})
    return job


def may_see(user: Any, job: Job) -> bool:
    """Whether the job and its files are for a user or a token's bearer."""
    if not kind_of(job.kind).fetch.admits(user):
        return False
    names = names_for(user)
    return names.is_every or _has_all(job, names.has)


def may_go_on(job: Job) -> bool:
    """Whether who started it may still do it: a user who was disabled, or lost the role or the names, does nothing
    more by what they left behind. True where nobody is known to ask: the schedule's, and users of another database."""
    user = User.objects.named(_owner(job)) if job.who_kind in ("user", "token") else None
    if user is None:
        return True
    names, kind = names_for(user), kind_of(job.kind)
    # As whoever let it begin asked: a topic's job is not ended by what its user may not do with groups.
    may = {"topic": names.has_topic, "group": names.has_group}.get(kind.about, names.has)
    return user.is_active and kind.start.admits(user) and (names.is_every or _has_all(job, may))


def _has_all(job: Job, has: Callable[[str], bool]) -> bool:
    """For whoever is kept to some names: a job without names is about the whole broker, and not theirs."""
    return bool(job.names) and all(map(has, job.names))


def may_cancel(user: Any, job: Job) -> bool:
    """Whether a user or a token's bearer may end it."""
    return not job.ended and may_see(user, job) and kind_of(job.kind).start.admits(user)


def seen(user: Any, kind: str = "", state: str = "") -> list[Job]:
    """The jobs that are for the caller, newest first."""
    return [
        job for job in board().jobs()
        if (not kind or job.kind == kind) and (not state or job.state == state) and may_see(user, job)
    ]  # fmt: skip


def find(user: Any, job_id: str) -> Job:
    """The job, if it is for the caller; else NotFound, as if there were none."""
    job = board().get(job_id)
    if not may_see(user, job):
        raise NotFound("job", job_id)
    return job


def write_down(job: Job, action: str, after: dict[str, Any], result: str = "done", request_id: str = "") -> None:
    """A line of the audit log, by whoever started the job."""
    record(
        action, job.target or job.id, after={"job": job.id, "kind": job.kind, **after}, result=result,
        actor=job.who, actor_kind=job.who_kind, address=job.address, request_id=request_id,
    )  # fmt: skip
