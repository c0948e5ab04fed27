"""The part of a client that producers, consumers and readers share: the core, the shell, and checks before any use.

It also makes the parts by which threads and asyncio differ, for acts (`acts.py`): with asyncio, what a docstring here
says that a call returns is what its awaitable does.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .acts import Acts, finish
from .core.client_core import ClientCore
from .core.directory import Directory
from .core.names import with_namespace
from .core.unique_key import KeyMaker, Months
from .errors import Closed, ForkedError
from .notes import Notes
from .shells.shell import Bell, Done, Security, Shell, SystemClock
from .shells.threads import Pending, ThreadBell, ThreadShell, take
from .shells.worker import Worker
from .shells.workers import Workers

if TYPE_CHECKING:
    from .hooks import Hook
    from .local_offsets import LocalOffsets
    from .message import MessageQueue, ReceivedMessage

Result = TypeVar("Result")

#: It forks without Python's knowledge.
_FOR_UWSGI = " uWSGI needs lazy-apps, or enable-threads with py-call-uwsgi-fork-hooks."


class NameServers(NamedTuple):
    """The name servers that are known at the beginning. fetch: as of `Directory`."""

    addresses: Sequence[str]
    fetch: Callable[[], tuple[tuple[str, ...], str]] | None


class Names(NamedTuple):
    """The parts of a client's id, and the namespace of its topics and groups."""

    client_ip: str | None
    instance_name: str | None
    namespace: str


class Opening(NamedTuple):
    """The parts with which a client opens a session. timeout: seconds of a request. begun: called once, before the
    first procedure."""

    servers: NameServers
    timeout: float
    names: Names
    begun: Callable[[], None]
    security: Security
    hooks: tuple[Hook, ...]


class Session:
    """Made by a client. Nothing starts before the first procedure."""

    shell: Shell
    #: True if handlers may be coroutine functions.
    takes_coroutines = False
    #: True if its promises are `Pending`.
    has_threads = False

    def __init__(self, opening: Opening) -> None:
        servers, timeout, names, begun, security, hooks = opening
        client_ip, instance_name, namespace = names
        # Constant after construction.
        self.hooks = hooks
        self.namespace = namespace
        self.security = security
        self.timeout = timeout
        self.clock = SystemClock()
        self.notes = Notes()
        self._begun = begun
        self.pid = os.getpid()
        ip = client_ip or _own_ip()
        #: Name of this client's files, the same after a restart.
        self._files_name = f"{ip}@{instance_name or 'DEFAULT'}"
        self.client_id = f"{ip}@{instance_name or f'{self.pid}#{time.monotonic_ns()}'}"
        directory = Directory(servers.addresses, self.clock, timeout, servers.fetch)
        directory.note, directory.tell = self.notes.keep, self.notes.keep_news
        #: Guarded by the shell's lock.
        self.core = ClientCore(directory, self.clock, self.client_id, timeout, self.notes.keep, self.stacks)
        #: Guarded by the shell's lock.
        self.keys = KeyMaker(Months(_four_bytes(ip), self.pid, secrets.randbits(32)))
        self.shell = self._make_shell()
        # Guarded by lock.
        self.lock = threading.Lock()
        self.is_closed = False
        self._keeps_house = False

    def named(self, name: str) -> str:
        """Return the name at brokers of a topic or a group."""
        return with_namespace(self.namespace, name) if self.namespace else name

    def placed(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue as brokers name it."""
        return replace(queue, topic=self.named(queue.topic)) if self.namespace else queue

    def shown(self, messages: Iterable[ReceivedMessage]) -> None:
        """Have messages show their topic as users know it."""
        if self.namespace:
            for message in messages:
                message.namespace = self.namespace

    @property
    def note(self) -> Callable[[str], None]:
        return self.notes.note

    @property
    def is_parents(self) -> bool:
        """True in a fork of the process that made it."""
        return os.getpid() != self.pid

    def local_offsets(self, group: str) -> LocalOffsets:
        """Return the file of a broadcasting group, not yet read."""
        from .local_offsets import LocalOffsets

        return LocalOffsets(self._files_name, group)

    def check_usable(self) -> None:
        """Raise Closed or ForkedError."""
        if self.is_closed:
            raise Closed("This client is closed: make a new one.")
        self.check_process()

    def check_process(self) -> None:
        """Raise ForkedError in a fork, where a lock's holder may be gone and connections are the parent's."""
        if self.is_parents:
            raise ForkedError(
                "This process is a fork of the one that made this client, whose connections and threads stayed there: "
                "make what is used here after the fork, or a Client of this process."
                + (_FOR_UWSGI if "uwsgi" in sys.modules else "")
            )

    def begin(self) -> None:
        """Prepare for a procedure; from the first on heartbeats are sent and routes kept fresh. Raises as
        `check_usable`, and RuntimeError if there is no thread to be had."""
        self.check_usable()
        if not self._keeps_house:
            with self.lock:
                fresh, self._keeps_house = not self._keeps_house, True
            if fresh:
                self._begun()
                try:
                    self.shell.start(self.core.keep_house())
                except BaseException:
                    self._keeps_house = False
                    raise

    # --- what threads and asyncio differ in

    def _make_shell(self) -> Shell:
        raise NotImplementedError

    def perform(self, acts: Acts[Any]) -> Any:
        """Do acts; return what they return, or raise."""
        raise NotImplementedError

    def wait(self, procedure: Generator[Any, Any, Any]) -> Any:
        """Run a procedure of the core and return what it returns, or raise."""
        self.begin()
        return self.shell.wait(procedure)

    def wait_until(self, procedure: Generator[Any, Any, Any], deadline: float) -> Any:
        """Do the same, also while closing; None if the procedure has not ended at the deadline."""
        raise NotImplementedError

    def promise(self) -> tuple[Any, Done]:
        """Return (a promise, a function that takes its result or error)."""
        raise NotImplementedError

    def result(self, promised: Any) -> Any:
        """Wait for a promise, which others may wait for, too; return its result, or raise."""
        raise NotImplementedError

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the user's, or one that waits for a disk; return what it returns."""
        raise NotImplementedError

    def call_later(self, worker: Any, act: Callable[[], None]) -> None:
        """Have a function of the user's, which does not wait, called off the I/O thread."""
        raise NotImplementedError

    def stacks(self) -> str:
        """Return what this process's threads do, and its tasks."""
        from .stacks import of_threads

        return of_threads()

    def bell(self, lock: Any = None) -> Bell:
        """Return a new bell, for changes of what a lock guards; None: with a lock of its own."""
        raise NotImplementedError

    def mutex(self) -> Any:
        """Return a lock that may be held over yields: `acquire` is yielded, its `release` not."""
        raise NotImplementedError

    def acquire(self, mutex: Any, seconds: float) -> Any:
        """To be yielded: take such a lock within some seconds; gives False if it is held for longer."""
        raise NotImplementedError

    def worker(self, name: str, most: int | None = None) -> Any:
        """Return a new `Worker`."""
        raise NotImplementedError

    def workers(self, name: str, most: int, work: Callable[[Any], Acts[None]]) -> Any:
        """Return new `Workers`."""
        raise NotImplementedError

    def ends_worker(self, error: BaseException) -> bool:
        """True if the error is not the handler's own, but ends the task that it runs in."""
        return False


class ThreadSession(Session):
    """A session whose calls wait."""

    shell: ThreadShell
    has_threads = True

    def _make_shell(self) -> ThreadShell:
        return ThreadShell("rocketbox-client", self.core.opened, self.core.asked, self.notes, self.security)

    def perform(self, acts: Acts[Result]) -> Result:
        return finish(acts)

    def wait(self, procedure: Generator[Any, Any, Result]) -> Result:
        self.begin()
        return self.shell.wait(procedure)

    def wait_until(self, procedure: Generator[Any, Any, Result], deadline: float) -> Result | None:
        try:
            return self.shell.wait(procedure, max(0.0, deadline - self.clock.monotonic()))
        except TimeoutError:
            return None

    def promise(self) -> tuple[Pending[Any], Done]:
        pending: Pending[Any] = Pending()
        return pending, pending.complete

    def result(self, promised: Pending[Result]) -> Result:
        return promised.result()

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        return function(*arguments)

    def call_later(self, worker: Worker, act: Callable[[], None]) -> None:
        with self.shell.lock:
            worker.put_locked(act)

    def bell(self, lock: threading.Lock | None = None) -> ThreadBell:
        return ThreadBell(lock or threading.Lock())

    def mutex(self) -> threading.Lock:
        return threading.Lock()

    def acquire(self, mutex: threading.Lock, seconds: float) -> bool:
        return take(mutex, seconds)

    def worker(self, name: str, most: int | None = None) -> Worker:
        return Worker(name, self.shell.lock, most)

    def workers(self, name: str, most: int, work: Callable[[Any], Acts[None]]) -> Workers:
        return Workers(name, most, lambda task: finish(work(task)))


def _own_ip() -> str:
    """Return an address of this machine as others may see it, for names only. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _four_bytes(ip: str) -> bytes:
    try:
        return socket.inet_aton(ip)
    except OSError:
        return secrets.token_bytes(4)
