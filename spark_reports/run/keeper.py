"""The keeper of a run: starts the work, watches its memory and its time, and leaves nothing behind.

It leads the run's session and does no work itself, so it can end the work whatever that does. When the broker dies the
kernel signals the keeper (PDEATHSIG), which ends all others; when the keeper is killed the kernel kills the worker, and
the JVM ends with its standard input. Processes that outlive even that are ended by the console's next start (`sweep`).
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .. import machine
from . import log_size
from . import plan as files
from .failures import RunFailed
from .plan import MARK, Outcome, Plan
from .processes import (
    Yielding,
    end_session,
    end_with_parent,
    held_bytes,
    is_marked,
    look_at,
    members_of,
    take_little,
)

#: Time between two checks of the run's memory, time and disk.
LOOK_S = 1.0
#: Time before the first one: by then the broker's work shows.
_FIRST_LOOK_S = 0.2
#: Free space below which the run is ended, before the disk that the broker writes to is full.
LEAST_FREE_MIB = 100
_MIB = 1 << 20


def environment_of(plan: Plan) -> dict[str, str]:
    """Return the worker's environment: the keeper's own, and the run's directories."""
    scratch = files.scratch_as_spark_has_it(plan)
    local = {"SPARK_LOCAL_IP": "127.0.0.1"}
    if not plan.master.startswith("local"):  # executors elsewhere may have another Python
        local = {name: os.environ[name] for name in ("PYSPARK_PYTHON",) if name in os.environ}
    return {
        **os.environ,
        **(machine.environment() if plan.engine == "spark" else {}),
        **local,
        MARK: plan.run_id,
        "HOME": str(scratch),
        "TMPDIR": str(scratch / "tmp"),
        "SPARK_LOCAL_DIRS": str(scratch / "spark"),
        "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData",
        "PYTHONDONTWRITEBYTECODE": "1",
        # Java decodes file names by the locale, and services have none.
        "LC_ALL": "C.UTF-8",
    }


class Keeper:
    """Runs one plan to its end. command: the worker's. broker: its pid, None if it is not known."""

    def __init__(self, directory: Path, plan: Plan, command: Sequence[str], broker: int | None = None) -> None:
        # Constant after construction.
        self._directory = directory
        self._plan = plan
        self._command = list(command)
        self._parent = os.getppid()
        self._yielding = Yielding(broker)
        self._peak = 0
        self._stopped = False
        # A signal's handler must not wait for a lock: the interpreter writes a byte instead.
        self._woken, waker = socket.socketpair()
        self._woken.setblocking(False)
        waker.setblocking(False)
        self._waker = waker

    def run(self) -> Outcome:
        """Run the plan; write the outcome and return it. Raises OSError when not even the outcome can be written."""
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        # The parent may have blocked signals for a thread that waits for them; that is inherited here and by children.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        outcome = self._directory / files.OUTCOME
        outcome.unlink(missing_ok=True)
        scratch = Path(self._plan.scratch_dir)
        try:
            try:
                for part in ("tmp", "spark"):
                    (scratch / part).mkdir(0o700, parents=True, exist_ok=True)
                worker = subprocess.Popen(
                    self._command, env=environment_of(self._plan), stdin=subprocess.DEVNULL, cwd=scratch
                )
                why = self._watch(worker)
            except OSError as error:
                why = RunFailed("not_started", text=error.strerror or str(error))
        finally:
            end_session(os.getpid(), self._plan.run_id)
            shutil.rmtree(scratch, ignore_errors=True)
        found = files.read(outcome, Outcome)
        if found is None or why is not None:
            why = why or RunFailed("crashed", text="nothing was said")
            found = replace(found or Outcome(False), ok=False, error=str(why), why=why.why, values=why.values)
            found = replace(found, cancelled=why.why == "cancelled")
        found = replace(found, peak_mib=self._peak // _MIB)
        files.write(outcome, found)
        return found

    def _stop(self, number: int, frame: object) -> None:
        self._stopped = True

    def _watch(self, worker: subprocess.Popen[bytes]) -> RunFailed | None:
        """Wait for the worker's end, or for a reason to end it. Return that reason, or the signal that killed it; None
        if it ended by itself."""
        deadline = time.monotonic() + self._plan.timeout_s
        scratch = self._plan.scratch_dir
        wait = _FIRST_LOOK_S
        while True:
            select.select([self._woken], [], [], wait)
            wait = LOOK_S
            try:
                self._woken.recv(64)
            except BlockingIOError:
                pass
            self._yielding.look()
            log_size.bound(self._directory / files.LOG)
            status = worker.poll()
            if status is not None:
                return None if status >= 0 else RunFailed("killed", signal=_name_of(-status))
            if self._stopped:
                return RunFailed("cancelled" if os.getppid() == self._parent else "broker_ended")
            took = self._held()
            if took > self._plan.memory_mib * _MIB:
                return RunFailed("memory", took=took // _MIB, limit=self._plan.memory_mib)
            if time.monotonic() > deadline:
                return RunFailed("timeout", minutes=max(1, round(self._plan.timeout_s / 60)))
            free = shutil.disk_usage(scratch).free // _MIB
            if free < LEAST_FREE_MIB:
                return RunFailed("disk_low", free=free, place=scratch)

    def _held(self) -> int:
        """Return the memory in bytes that all processes of the run hold together."""
        took = sum(held_bytes(one.pid) for one in members_of(os.getpid()))
        self._peak = max(self._peak, took)
        return took


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def main(directory: Path, parent: int | None, command: Sequence[str]) -> int:
    """Keep the run of a directory. parent: pid of the process that started this, None for a person at a terminal."""
    if parent is not None:
        end_with_parent(signal.SIGTERM, parent)
    plan = files.read(directory / files.PLAN, Plan)
    if plan is None:
        print(f"{directory / files.PLAN} is missing or cannot be understood", file=sys.stderr)
        return 2
    if not _lock(directory):
        print(f"another process makes the reports of {directory}", file=sys.stderr)
        return 2
    if plan.facts_dir and not _lock(Path(plan.facts_dir)):
        why = RunFailed("busy")
        files.write(directory / files.OUTCOME, Outcome(False, str(why), why=why.why, values=why.values))
        print(why, flush=True)
        return 1
    if os.getsid(0) != os.getpid():
        os.setsid()
    take_little()
    own = look_at(os.getpid())
    fresh = directory / files.PROCESS
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(f"{os.getpid()} {own.started if own else 0}\n")
    os.environ[MARK] = plan.run_id
    found = Keeper(directory, plan, command, parent).run()
    print(found.error or "done", flush=True)
    return 0 if found.ok else 1


def _lock(directory: Path) -> bool:
    """Lock a directory against other keepers until this process ends; return False if another one has it. Two runs that
    write the facts at once would mix their days."""
    try:
        directory.mkdir(0o700, parents=True, exist_ok=True)
        fcntl.flock(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # no locks on this file system; if it cannot be written, the work says so
        print(f"{directory} cannot be locked: {error}", file=sys.stderr)
    return True


def sweep(directory: Path, run_id: str) -> int:
    """End the processes of a run that an earlier console left, and remove its scratch; return how many there were.

    A process is ended only if it leads or is in the session that the keeper wrote down, and has the run's mark in its
    environment: pids are used again for other processes, marks are not.
    """
    count = 0
    try:
        pid, started = (int(part) for part in (directory / files.PROCESS).read_text().split())
    except (OSError, ValueError):
        pid = started = 0
    if pid > 1:
        leader = look_at(pid)
        # While a session has members its number is not given to another process; so if a process with that pid started
        # at another time, it leads another session.
        if leader is None or leader.started == started or is_marked(pid, run_id):
            count = end_session(pid, run_id)
    found = files.read(directory / files.PLAN, Plan)
    if found is not None and run_id in found.scratch_dir:
        shutil.rmtree(found.scratch_dir, ignore_errors=True)
    return count
