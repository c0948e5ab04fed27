"""Runs the push consumers of modules, in this process or in several.

    python -m rocketbox run app.consumers --processes 4

A module makes its consumers when it is imported, `billing = client.push_consumer("billing")`, and does not start them.
Each process imports the modules anew, so each has clients of its own. SIGTERM and Ctrl-C end all as `PushConsumer.run`
does; a second one ends them at once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from .client import open_clients
from .ending import ended_by, entry_of
from .errors import ClientError
from .push_consumer import PushConsumer

if TYPE_CHECKING:
    from .aio import PushConsumer as TaskConsumer
    from .message import CloseReport

#: Exit status: work was left undone, and comes again; the modules cannot be run.
UNDONE, UNUSABLE = 1, 2
#: Pause before a process that ended by itself is started again: doubled each time, up to half a minute.
_FIRST_PAUSE_S = 1.0
_MOST_PAUSE_S = 30.0
#: Time after which a process counts as sound: its next pause is the first again.
_SOUND_S = 60.0
#: Time beyond `--drain` for the ends of a process.
_GRACE_S = 10.0


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m rocketbox", description="Runs push consumers.")
    run = parser.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "run", help="run the push consumers of modules until SIGTERM or Ctrl-C"
    )
    run.add_argument(
        "modules", nargs="+", metavar="MODULE", help="a module that makes push consumers, as app.consumers"
    )
    run.add_argument("--processes", type=int, default=1, metavar="N", help="processes that consume (1)")
    run.add_argument(
        "--drain", type=float, default=30.0, metavar="SECONDS", help="longest wait for running handlers at the end (30)"
    )
    run.add_argument("--lease", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.processes < 1 or not 0 <= given.drain <= threading.TIMEOUT_MAX - _GRACE_S:
        run.error("--processes is 1 or more, --drain 0 seconds or more, and finite.")
    if given.processes > 1:
        return _Processes(given.modules, given.drain).run(given.processes)
    if given.lease is not None:
        _end_with(given.lease)
    return _consume(given.modules, given.drain)


def _end_with(lease: int) -> None:
    """Have this process end as by SIGTERM when the other end of a pipe is closed: when the process that began it is
    gone."""

    def wait() -> None:
        os.read(lease, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="rocketbox-lease", daemon=True).start()


# --- one process


def _consume(modules: Iterable[str], drain: float) -> int:
    try:
        plain, tasks = _consumers_of(modules)
    except (ImportError, ClientError, LookupError) as error:
        return _cannot_run(error)
    ended: queue.SimpleQueue[None] = queue.SimpleQueue()
    reports: list[CloseReport] = []
    try:
        with ended_by(ended):
            for consumer in plain:
                consumer.start()
            if tasks:
                asyncio.run(_consume_in_tasks(tasks, drain, ended, reports))
            else:
                _say([*plain])
                entry_of(ended)
    except ClientError as error:
        return _cannot_run(error)
    finally:
        with ThreadPoolExecutor(max(1, len(plain))) as pool:
            reports += pool.map(lambda consumer: consumer.close(drain), plain)
    undone = [report for report in reports if report.still_running or report.uncommitted]
    for report in undone:
        sys.stderr.write(f"It was ended with work undone, which comes again: {report}\n")
    return UNDONE if undone else 0


async def _consume_in_tasks(
    consumers: Sequence[TaskConsumer], drain: float, ended: queue.SimpleQueue[None], reports: list[CloseReport]
) -> None:
    from . import aio

    try:
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        _say([*consumers])
        # A thread of its own: it waits for as long as the process lives.
        await asyncio.to_thread(ended.get)
    finally:
        reports += await asyncio.gather(*(consumer.close(drain) for consumer in consumers))
        # At the process's end their loop is gone, and with it unfinished sends of handlers.
        await asyncio.gather(*(client.close(drain) for client in open_clients() if isinstance(client, aio.Client)))


def _consumers_of(modules: Iterable[str]) -> tuple[list[PushConsumer], list[TaskConsumer]]:
    """Import modules; return the consumers that they name, those for asyncio apart. Raises ImportError, LookupError,
    and what a module raises."""
    plain: dict[int, PushConsumer] = {}
    tasks: dict[int, TaskConsumer] = {}
    for name in modules:
        module = importlib.import_module(name)
        aio: Any = sys.modules.get(f"{__package__}.aio")
        found = [value for value in vars(module).values() if isinstance(value, PushConsumer)]
        in_tasks = [value for value in vars(module).values() if aio and isinstance(value, aio.PushConsumer)]
        if not found and not in_tasks:
            raise LookupError(f"The module {name} has no push consumer at its top level: client.push_consumer(...).")
        plain |= {id(one): one for one in found}
        tasks |= {id(one): one for one in in_tasks}
    return list(plain.values()), list(tasks.values())


def _say(consumers: Sequence[PushConsumer | TaskConsumer]) -> None:
    for consumer in consumers:
        sys.stdout.write(f"group {consumer.group} consumes {', '.join(consumer.topics)}\n")
    sys.stdout.flush()


def _cannot_run(error: BaseException) -> int:
    sys.stderr.write(f"{error}\n")
    return UNUSABLE


# --- several


class _Processes:
    """Processes that each do `run` with one process. One that ends by itself is started again."""

    def __init__(self, modules: Sequence[str], drain: float) -> None:
        self._lease, lease_of_this = os.pipe()
        #: Held open until this process ends: then the others do.
        self._own_end = lease_of_this
        package = str(__package__)
        self._command = [sys.executable, "-m", package, "run", *modules]
        self._command += [f"--drain={drain}", f"--lease={self._lease}"]
        self._drain = drain
        #: None at a signal; else (the process that ended, how long it ran).
        self._events: queue.SimpleQueue[tuple[subprocess.Popen[bytes], float] | None] = queue.SimpleQueue()
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._pause = _FIRST_PAUSE_S

    def run(self, count: int) -> int:
        with ended_by(self._events):
            for _ in range(count):
                self._start()
            status = self._keep_running()
        return max(self._end(), status)

    def _start(self) -> None:
        # In a session of its own: Ctrl-C comes to this process, which passes it on once.
        process = subprocess.Popen(self._command, pass_fds=(self._lease,), start_new_session=True)
        self._running[process.pid] = process
        threading.Thread(target=self._watch, args=(process, time.monotonic()), daemon=True).start()

    def _watch(self, process: subprocess.Popen[bytes], began: float) -> None:
        process.wait()
        self._events.put((process, time.monotonic() - began))

    def _keep_running(self) -> int:
        """Start again what ends, until a signal comes, or a process says that the modules cannot be run."""
        began = time.monotonic()
        while (event := entry_of(self._events)) is not None:
            process, seconds = event
            del self._running[process.pid]
            # Once they have run, the others go on: a name server may be away for a while.
            if process.returncode == UNUSABLE and time.monotonic() - began < _SOUND_S:
                return UNUSABLE
            if seconds >= _SOUND_S:
                self._pause = _FIRST_PAUSE_S
            sys.stderr.write(
                f"process {process.pid} ended with {process.returncode}; another starts in {self._pause:g} s\n"
            )
            sys.stderr.flush()
            if self._rest():
                break
            self._start()
        return 0

    def _rest(self) -> bool:
        """Wait before the next start; True if a signal came meanwhile."""
        until = time.monotonic() + self._pause
        self._pause = min(_MOST_PAUSE_S, 2 * self._pause)
        others = []
        try:
            while (left := until - time.monotonic()) > 0:
                with contextlib.suppress(queue.Empty):
                    event = self._events.get(timeout=left)
                    if event is None:
                        return True
                    others.append(event)
            return False
        finally:
            for event in others:
                self._events.put(event)

    def _end(self) -> int:
        """End all processes; return the worst of their statuses."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        worst = 0
        deadline = time.monotonic() + self._drain + _GRACE_S
        with ended_by(self._events):
            while self._running:
                try:
                    event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    event = None
                if event is None:  # time is up, or a second signal
                    for process in self._running.values():
                        process.kill()
                    worst, deadline = UNDONE, time.monotonic() + _GRACE_S
                    continue
                process, _ = event
                del self._running[process.pid]
                worst = max(worst, UNDONE if process.returncode else 0)
        return worst
