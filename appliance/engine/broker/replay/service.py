"""The thread `replay-dead-letters`: works off replay jobs, one a group at a time, and goes on with them after
restarts."""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from ...clock import AgeClock, Clock
from ...errors import CorruptFile, RocketBoxError
from ...service_thread import ServiceThread
from ...store.message_store import MessageStore
from ..groups import SubscriptionGroupManager
from ..topics import TopicConfigManager
from .history import History
from .job import CANCELLED, PAUSED, RUNNING, JobSpec, JobState, Why
from .journal import JobJournal, StateLine, follow
from .run import Appends, Ending, Run, Surroundings

logger = logging.getLogger(__name__)

#: Finished jobs are kept for this long, and at most this many of them.
KEEP_MS = 30 * 86_400_000
KEEP_JOBS = 1000
#: Most jobs that are unfinished at a time.
MOST_UNFINISHED = 100
#: Seconds that a command waits for the thread.
LIMIT_S = 15.0
#: Reasons to pause that pass without an operator. The broker tries such a job again after TRY_AGAIN_S, then less and
#: less often, at last every MOST_WAIT_S.
PASSING = frozenset(("replay_store_refused", "replay_unreadable", "replay_journal_failing"))
TRY_AGAIN_S = 15.0
MOST_WAIT_S = 300.0
#: Shortest pause between two rounds of steps, in seconds: other threads need the GIL, too.
_LEAST_PAUSE_S = 0.0005
_PRUNE_EVERY_S = 3600.0

T = TypeVar("T")


class Refused(RocketBoxError):
    """A command to a job cannot be done. why: a sentence of the window. kind: "conflict", "unknown" or "busy"."""

    def __init__(self, kind: str, code: str = "", **args: str | int) -> None:
        super().__init__(code or kind)
        self.kind = kind
        self.why = Why(code, args)


class JobView(NamedTuple):
    """A job as it is now. at: number of the next message. counts: messages below `at`, by Result. checking: the job is
    looking for copies that are stored already."""

    state: JobState
    at: int
    counts: tuple[int, ...]
    checking: bool


class _NextTry(NamedTuple):
    """The next try of a job that was paused for a passing reason. at_s: its monotonic time. wait_s: the time from the
    last try to it. at: number of the job's next message at the last try."""

    at_s: float
    wait_s: float
    at: int


class Unread(NamedTuple):
    """A journal that cannot be read."""

    id: str
    reason: str
    modified_ms: int


def new_job_id(now_ms: int) -> str:
    """Return a new id: short, and later ids sort behind earlier ones."""
    return f"{now_ms:012x}-{secrets.token_hex(3)}"


def _standing(state: JobState) -> JobState:
    """Return the state that a resting service shows: a running job is paused, and goes on from its journal when this
    broker takes messages again."""
    return replace(state, state=PAUSED, why=Why("replay_rests")) if state.state == RUNNING else state


class ReplayService(ServiceThread):
    """Owns the journals and the jobs at work. Commands and ends of batches wake it, or a job whose next step is due."""

    def __init__(
        self,
        directory: Path,
        store: MessageStore,
        appends: Appends,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        clock: Clock,
    ) -> None:
        """directory: holds the journals."""
        super().__init__("replay-dead-letters", clock)
        # Constant after construction.
        self.journal = JobJournal(directory, store.disk)
        self.history = History(self.journal, lambda: [view.state for view in self.jobs()])
        self._around = Surroundings(store, appends, topics, groups, self.journal, self.history, clock, self.wakeup)
        self._loaded = threading.Event()
        self._resting = False
        self._reading = threading.Lock()  # of a resting service, whose callers read the journals once
        # Filled by any thread, emptied by this one.
        self._commands: deque[Callable[[], None]] = deque()
        # Written by this thread, read by anyone: single values and copies made in one call.
        self._views: dict[str, JobView] = {}
        self._unread: dict[str, Unread] = {}
        #: Reason of the last failure of a journal or a job; None before one, and after a later change was written.
        self.failure: str | None = None
        # Owned by this thread.
        self._runs: dict[str, Run] = {}
        self._tries: dict[str, _NextTry] = {}
        self._prune_at = 0.0
        self._ages: AgeClock

    # --- any thread

    def jobs(self) -> list[JobView]:
        """Return all jobs whose journals can be read, in no order. Empty until the journals have been read."""
        return list(self._views.values())

    def unread(self) -> list[Unread]:
        return list(self._unread.values())

    def wait_loaded(self, seconds: float = 5.0) -> bool:
        """Wait until the journals have been read; a resting service reads them here. False if that took too long."""
        if self._resting:
            with self._reading:
                if not self._loaded.is_set():
                    self.load()
        return self._loaded.wait(seconds)

    def rest(self) -> None:
        """Show jobs and work off none. Called instead of `start` on a broker that takes no messages."""
        self._resting = True

    def job(self, job: str) -> JobView | None:
        return self._views.get(job)

    def results(self, job: str, begin: int, end: int) -> bytes:
        """Return a byte (Result) for each message of [begin, end) with a result in the journal. Raises CorruptFile,
        OSError."""
        return self.journal.results(job, begin, end)

    def start_job(self, spec: JobSpec) -> JobView:
        """Start a job; its journal is durable when this returns. Raises Refused."""
        return self._ask(lambda told: self._begin(spec, told))

    def pause(self, job: str, by: str) -> JobView:
        """Pause a running job; when this returns, it has stopped sending. Raises Refused."""
        return self._ask(lambda told: self._end(job, (RUNNING,), PAUSED, by, told))

    def cancel(self, job: str, by: str) -> JobView:
        """End a running or paused job for good; when this returns, it has stopped sending. Raises Refused."""
        return self._ask(lambda told: self._end(job, (RUNNING, PAUSED), CANCELLED, by, told))

    def resume(self, job: str, by: str) -> JobView:
        """Let a paused job go on. Raises Refused."""
        return self._ask(lambda told: self._resume(job, by, told))

    def _ask(self, command: Callable[[Callable[[], None]], str]) -> JobView:
        """Run a command on the thread, wait until it is done, and return the job. Raises Refused.

        command: returns the id of the job, and calls its argument when the job is in its new state.
        """
        if not self.wait_loaded():
            raise Refused("busy")
        future: Future[str] = Future()

        def work() -> None:
            found: list[str] = []

            def told() -> None:
                if not future.done():
                    future.set_result(found[0] if found else "")

            try:
                found.append(command(told))
            except BaseException as error:
                future.set_exception(error)

        self._commands.append(work)
        self.wakeup()
        end = self.clock.monotonic() + LIMIT_S
        while True:
            try:
                job = future.result(0.5)
                break
            except FutureTimeout:
                if self.stopped or self.clock.monotonic() >= end:
                    raise Refused("busy", "not_done_in_time", seconds=round(LIMIT_S)) from None
        view = self._views.get(job)
        if view is None:
            raise Refused("unknown")
        return view

    # --- the thread

    def run(self) -> None:
        self.load()
        while not self.stopped:
            self.wait(self.work())
        for run in self._runs.values():
            run.leave()
            run.close()
        self.journal.close_all()

    def load(self) -> None:
        """Read all journals: running jobs go on, paused jobs stay paused."""
        try:
            for job in self.journal.ids():
                self._load_one(job)
        except OSError as error:
            self.failure = f"{error.strerror or error}"
            logger.error("replay: the journals of jobs cannot be listed: %s", error)
        times = [view.state.changed_ms for view in self.jobs()] + [one.modified_ms for one in self.unread()]
        self._ages = AgeClock(self.clock, max(times, default=0))
        self._loaded.set()

    def _load_one(self, job: str) -> None:
        try:
            state = self.journal.load(job)
            if state.spec.id != job:
                raise CorruptFile(f"it is of job {state.spec.id[:40]!r}")
            if self._resting:
                self._show(_standing(state))
                return
            if not state.finished:
                state = self.journal.open(job)
            self._take(state)
        except (OSError, CorruptFile) as error:
            logger.error("replay: the journal of job %s cannot be read, the job stands still: %s", job, error)
            try:
                modified_ms = self.journal.modified_ms(job)
            except OSError:
                modified_ms = self.clock.wall_ms()
            self._unread[job] = Unread(job, str(error), modified_ms)

    def _take(self, state: JobState) -> None:
        """Take over a job in the state that its journal holds; a running job is at work from here on."""
        if state.state == RUNNING:
            self._runs[state.spec.id] = Run(state, self._around)
        else:
            self.journal.close(state.spec.id)
        self._show(state)

    def _show(self, state: JobState) -> None:
        run = self._runs.get(state.spec.id)
        if run is None:
            self._views[state.spec.id] = JobView(state, state.next, state.counts, False)
        else:
            self._views[state.spec.id] = JobView(run.state, run.at, run.counts, run.checking)

    def work(self) -> float:
        """Do one round: the commands, then a step of each job. Return the seconds until the next round."""
        while self._commands:
            self._commands.popleft()()
        pause = 60.0
        for job, run in list(self._runs.items()):
            try:
                pause = min(pause, run.step())
            except Exception:
                # A bug in one job must not stop the others; this job goes on after a restart.
                logger.exception("replay: job %s stands still", job)
                self._drop(job)
                self.failure = f"job {job} stands still after an error; it goes on after a restart"
                continue
            if run.state.state != RUNNING and not run.ending:
                self._drop(job)
                self._note_journal(run)
                pause = 0.0
            self._show(run.state)
        pause = min(pause, self._try_again())
        if self.clock.monotonic() >= self._prune_at:
            self._prune_at = self.clock.monotonic() + _PRUNE_EVERY_S
            self._prune()
        return max(pause, _LEAST_PAUSE_S)

    def _try_again(self) -> float:
        """Resume jobs that the broker paused for a passing reason, if it is time; return the seconds until the next
        look."""
        now, pause = self.clock.monotonic(), 60.0
        for view in self.jobs():
            job, state = view.state.spec.id, view.state
            if state.state != PAUSED or job in self._runs or state.why is None or state.why.code not in PASSING:
                if state.finished:
                    self._tries.pop(job, None)
                continue
            found = self._tries.get(job)
            if found is None or view.at > found.at:
                found = self._tries[job] = _NextTry(now + TRY_AGAIN_S, TRY_AGAIN_S, view.at)
            if now >= found.at_s and self._around.store.log.broken is None:
                wait = min(MOST_WAIT_S, 2 * found.wait_s)
                found = self._tries[job] = _NextTry(now + wait, wait, view.at)
                try:
                    self._resume(job, "", lambda: None)
                except Refused as refused:
                    logger.warning("replay: job %s cannot go on yet: %s", job, refused)
            pause = min(pause, max(0.0, found.at_s - now) or 1.0)
        return pause

    def _drop(self, job: str) -> None:
        self._runs.pop(job).close()
        self.journal.close(job)

    def _note_journal(self, run: Run) -> None:
        why = run.state.why
        self.failure = str(why.args.get("reason")) if run.journal_failed and why is not None else None

    # --- commands, on the thread; `told` is called when the job is in its new state

    def _begin(self, spec: JobSpec, told: Callable[[], None]) -> str:
        unfinished = [view.state for view in self.jobs() if not view.state.finished]
        for state in unfinished:
            if state.spec.group == spec.group:
                raise Refused("conflict", "replay_under_way", group=spec.group, job=state.spec.id)
        if len(unfinished) >= MOST_UNFINISHED:
            raise Refused("conflict", "too_many_replays", count=MOST_UNFINISHED)
        try:
            state = self.journal.create(replace(spec, secret=secrets.token_hex(16)))
        except OSError as error:
            self.failure = error.strerror or str(error)
            raise Refused("busy", "replay_journal_failing", reason=self.failure) from None
        self.failure = None
        logger.info(
            "replay: job %s of %s begins target=%s total=%d rate=%d by=%s",
            spec.id,
            spec.group,
            spec.topic or spec.target,
            spec.total,
            spec.rate,
            spec.by,
        )
        self._take(state)
        self._soon(told)
        return spec.id

    def _end(self, job: str, before: tuple[str, ...], state: str, by: str, told: Callable[[], None]) -> str:
        self._known(job, before)
        if job not in self._runs:  # paused
            self._runs[job] = Run(self._reopened(job), self._around)

        def shown() -> None:
            self._soon(told)

        self._runs[job].end(Ending(state, by, told=shown))
        return job

    def _resume(self, job: str, by: str, told: Callable[[], None]) -> str:
        self._known(job, (PAUSED,))
        state = self._reopened(job)
        if state.state != RUNNING:
            line = StateLine(RUNNING, False, self.clock.wall_ms(), by)
            try:
                self.journal.append(job, line)
            except OSError as error:
                raise self._failing(error) from None
            state = follow(state, line)
        logger.info("replay: job %s goes on by=%s", job, by or "the broker")
        self.failure = None
        self._take(state)
        self._soon(told)
        return job

    def _soon(self, told: Callable[[], None]) -> None:
        """Call `told` after this round, when the job's new state is shown."""
        self._commands.append(told)
        self.wakeup()

    def _known(self, job: str, states: tuple[str, ...]) -> JobView:
        view = self._views.get(job)
        if view is None:
            raise Refused("unknown")
        run = self._runs.get(job)
        if view.state.state not in states or (run is not None and run.ending):
            raise Refused("conflict", "replay_not_so", job=job, state=view.state.state)
        return view

    def _reopened(self, job: str) -> JobState:
        """Open the job's journal and return its state. Raises Refused, also if the job has ended."""
        try:
            state = self.journal.open(job)
        except OSError as error:
            raise self._failing(error) from None
        except CorruptFile as error:
            raise Refused("busy", "replay_journal_damaged", reason=str(error)) from None
        if state.finished:
            self._take(state)
            raise Refused("conflict", "replay_not_so", job=job, state=state.state)
        return state

    def _failing(self, error: OSError) -> Refused:
        self.failure = error.strerror or str(error)
        return Refused("busy", "replay_journal_failing", reason=self.failure)

    # --- what is kept

    def _prune(self) -> None:
        """Delete the journals of jobs that ended long ago, the oldest beyond KEEP_JOBS, and old unreadable journals."""
        since_ms = self._ages.now_ms() - KEEP_MS
        ended = sorted((v.state.changed_ms, v.state.spec.id) for v in self.jobs() if v.state.finished)
        ended = ended[: max(0, len(ended) - KEEP_JOBS)] + [
            pair for pair in ended[max(0, len(ended) - KEEP_JOBS) :] if pair[0] < since_ms
        ]
        old = [job for _, job in ended] + [one.id for one in self.unread() if one.modified_ms < since_ms]
        for job in old:
            try:
                self.journal.delete(job)
            except OSError as error:
                logger.warning("replay: the journal of job %s cannot be deleted: %s", job, error)
                continue
            self._views.pop(job, None)
            self._unread.pop(job, None)
