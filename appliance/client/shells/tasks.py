"""Performs the core's effects on an event loop of asyncio, uvloop's too. Files and names are for the loop's executor;
functions of the user, which may take long, have threads of their own: no connection waits for them.

All of it runs on the loop of the client's first call, so its locks are none. Requests that are made in one turn of the
loop leave in one write.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..core.steps import CallFailed, Do
from ..errors import Closed, InvalidOption
from ..notes import Notes, logger
from ..wire import split_host_port
from .link import Link
from .shell import CLOSED, CONNECT_S, Asked, Bell, Security, Shell, safely

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Result = TypeVar("Result")

_NO_MOST = 1 << 30


class TaskBell(Bell):
    """All wait for the same. It wakes the one that has waited longest, who wakes the next when it goes: thousands may
    wait for room that comes bit by bit."""

    def __init__(self) -> None:
        self.lock: AbstractContextManager[Any] = nullcontext()
        self._waiting: OrderedDict[object, asyncio.Future[None]] = OrderedDict()

    def ring(self) -> None:
        first = next(iter(self._waiting.values()), None)
        if first is not None and not first.done():
            first.set_result(None)

    async def wait_for(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Nothing is awaited after `predicate` returned True: a caller that is cancelled has not been given anything
        then."""
        if predicate():
            return True
        until = None if timeout is None else time.monotonic() + timeout
        place = object()
        try:
            while until is None or time.monotonic() < until:
                heard = self._waiting[place] = asyncio.get_running_loop().create_future()
                await asyncio.wait((heard,), timeout=None if until is None else until - time.monotonic())
                if predicate():
                    return True
            return False
        finally:
            self._waiting.pop(place, None)
            self.ring()


class TaskShell(Shell):
    """Runs procedures on an event loop."""

    def __init__(
        self,
        opened: Callable[[str], Generator[Any, Any, Any]],
        asked: Asked,
        notes: Notes,
        security: Security,
    ) -> None:
        """As of `Shell`."""
        super().__init__(opened, asked, notes, security)
        self.lock: AbstractContextManager[Any] = nullcontext()
        # Owned by the loop.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._links: dict[str, _Link] = {}
        self._left: set[_Link] = set()
        self._sleeping: dict[int, tuple[asyncio.TimerHandle, Callable[[Any], None]]] = {}
        self._order = itertools.count()
        self._threads: ThreadPoolExecutor | None = None
        self._is_closed = False

    def bind(self) -> None:
        """Belong to the running loop from the first call on. Raises InvalidOption if there is none, or another."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            raise InvalidOption("A client of asyncio is used in coroutines, which an event loop runs.") from None
        self._loop = self._loop or running
        self.check_loop()

    def check_loop(self) -> None:
        """Raise InvalidOption in another loop than that of the first call; a thread without a loop is no error."""
        with suppress(RuntimeError):
            if self._loop not in (None, asyncio.get_running_loop()):
                raise InvalidOption("This client belongs to another event loop: make an aio.Client in each.")

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "a session binds its shell before anything else"
        return self._loop

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    async def wait(self, procedure: Generator[Any, Any, Result], timeout: float | None = None) -> Result:
        """Run a procedure and return its result, or raise. One whose caller is cancelled goes on."""
        promised: asyncio.Future[Result] = self.loop.create_future()
        self.run(procedure, partial(settle, promised))
        if timeout is not None and not promised.done():
            async with asyncio.timeout(timeout):
                return await promised
        return await promised

    async def close(self, timeout: float) -> bool:
        connecting = [link.connecting for link in self._links.values() if link.connecting is not None]
        self.abort()
        await asyncio.sleep(0)  # sockets are closed in the loop's next turn
        if not connecting:
            return True
        _, left = await asyncio.wait(connecting, timeout=timeout)
        return not left

    def abort(self) -> None:
        """End all connections; waiting calls fail."""
        self._is_closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=False)
        for link in (*self._links.values(), *self._left):
            link.fail(CallFailed("closed", CLOSED))
        sleeping, self._sleeping = self._sleeping, {}
        for timer, resume in sleeping.values():
            timer.cancel()
            safely(partial(resume, Closed(CLOSED)))

    def in_thread(self, act: Callable[[], Result]) -> Awaitable[Result]:
        """Call a function of the user's in a thread. Those who ask see to it that there are not too many. Raises
        Closed."""
        from concurrent.futures import ThreadPoolExecutor

        if self._is_closed:
            raise Closed(CLOSED)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_NO_MOST, "rocketbox-calls")
        context = copy_context()
        call = partial(_without_stop, act)
        return asyncio.get_running_loop().run_in_executor(self._threads, lambda: context.run(call))

    def forget(self, link: Link) -> None:
        if self._links.get(link.address) is link:
            del self._links[link.address]
        self._left.discard(link)

    def leave(self, link: Link) -> None:
        self.forget(link)
        self._left.add(link)  # type: ignore[arg-type]

    def _link(self, address: str) -> _Link | None:
        if self._is_closed:
            return None
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = _Link(address, self)
            link.connect()
        return link

    def open_link(self, address: str) -> _Link | None:
        return self._links.get(address)

    def write_now(self) -> None:
        """Nothing: links write at the end of a turn of the loop."""

    def post(self, act: Callable[[], None]) -> bool:
        """Call it: a loop has handlers called between its turns."""
        act()
        return True

    def _sleep(self, until: float, resume: Callable[[Any], None]) -> bool:
        if self._is_closed:
            return False
        number = next(self._order)
        timer = self.loop.call_later(max(0.0, until - time.monotonic()), self._wake, number)
        self._sleeping[number] = (timer, resume)
        return True

    def _wake(self, number: int) -> None:
        _, resume = self._sleeping.pop(number)
        safely(partial(resume, None))

    def _act(self, do: Do, resume: Callable[[Any], None]) -> tuple[bool, Any]:
        if not do.waits:
            return True, do.act()
        done = self.loop.run_in_executor(None, do.act)
        done.add_done_callback(lambda future: resume(future.result()))
        return False, None


def _without_stop(act: Callable[[], Result]) -> Result:
    try:
        return act()
    except StopIteration as error:  # which a future cannot hold
        raise RuntimeError(f"{act!r} raised StopIteration") from error


def settle(promised: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """Give a promise its result or its error, unless the one who waited was cancelled."""
    if promised.done():
        return
    if error is None:
        promised.set_result(result)
    else:
        promised.set_exception(error)


class _Link(Link, asyncio.Protocol):
    """A link with its transport."""

    def __init__(self, address: str, shell: TaskShell) -> None:
        super().__init__(address, shell, nullcontext())
        self._loop = shell.loop
        self.connecting: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._will_write = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # --- connecting

    def connect(self) -> None:
        self.connecting = self._loop.create_task(self._connect(), name=f"rocketbox connects to {self.address}")
        self.connecting.add_done_callback(self._has_tried)

    async def _connect(self) -> None:
        host, port = split_host_port(self.address)
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._loop.create_connection(lambda: self, host, int(port), **self._tls_options(host))
        except TimeoutError:
            what = "no connection" if self._owner.security.tls is None else "no TLS connection"
            self.fail(CallFailed("connect", f"{what} within {CONNECT_S:g} s", sent=False))
        except (socket.gaierror, UnicodeError) as error:
            self.fail(CallFailed("connect", f"the name {host} is not known: {error}", sent=False))
        except (OSError, ValueError) as error:
            self.fail(CallFailed("connect", self._why_not(error), sent=False))

    def _has_tried(self, connecting: asyncio.Task[None]) -> None:
        """Fail if the loop ends, and cancels what connects, perhaps before it began, or if something raised that no
        server causes, as a signal's handler."""
        if connecting.cancelled():
            self.fail(CallFailed("closed", CLOSED, sent=False))
            return
        error = connecting.exception()
        if isinstance(error, Exception):  # the loop raises others itself
            logger.error("client: an error in connecting to %s", self.address, exc_info=error)
        if error is not None:
            self.fail(CallFailed("connect", f"an error in this process: {error!r}", sent=False))

    def _tls_options(self, host: str) -> dict[str, Any]:
        tls = self._owner.security.tls
        return {} if tls is None else {"ssl": tls.context, "server_hostname": tls.server_name or host}

    def _why_not(self, error: Exception) -> str:
        if self._owner.security.tls is None:
            return _words(error)
        from .tls import is_of_tls, words

        return words(error, True) if is_of_tls(error) else _words(error)

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.is_dead:
            self._disconnect()
            return
        self._opens()
        self._owner.has_opened(self.address)

    def data_received(self, data: bytes) -> None:
        if not self.is_dead:
            self._received(data)

    def connection_lost(self, error: Exception | None) -> None:
        if error is None:
            self.fail(self._lost())
            return
        why = f"the connection broke: {_words(error)}"
        if self._owner.security.tls is not None:
            from .tls import words

            why = words(error, False)
        self.fail(self._lost(why))

    # --- for Link

    def _write(self) -> bool:
        if self._is_open and not self._will_write:
            self._will_write = True
            self._loop.call_soon(self._write_now)
        return False

    def _write_now(self) -> None:
        self._will_write = False
        if self._transport is not None:
            self._transport.write(self._connection.take_output())

    def _after(self, left: bool) -> None:
        """The transport sends the rest."""

    def _unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _expire_at(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - time.monotonic()), self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._end_expired()
        deadline = self._connection.next_deadline()
        if deadline is not None:
            self._expire_at(deadline)

    def _disconnect(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.connecting is not None and self.connecting is not asyncio.current_task(self._loop):
            self.connecting.cancel()


def is_own_end(error: BaseException) -> bool:
    """True if it is this task that is cancelled, and not something for which it waited."""
    task = asyncio.current_task() if isinstance(error, asyncio.CancelledError) else None
    return task is not None and task.cancelling() > 0


def _words(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number) if isinstance(number, int) and number > 0 else str(error)


class TaskWorker:
    """Calls what it is given, one after the other, in a task that ends when there is nothing left: `worker.Worker` of
    asyncio."""

    def __init__(self, name: str, most: int | None = None) -> None:
        """most: number of calls that may wait."""
        self.name = name
        self._most = most
        self._waiting: deque[Callable[[], Awaitable[None]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def put_locked(self, act: Callable[[], Awaitable[None]]) -> bool:
        """Have `act` called and awaited; False if too much waits, or this is closed."""
        if self._is_closed or (self._most is not None and len(self._waiting) >= self._most):
            return False
        self._waiting.append(act)
        # Not here: a loop may run a task's beginning at once, and this is called in a step of the core.
        asyncio.get_running_loop().call_soon(self._begin)
        return True

    def _begin(self) -> None:
        if self._task is None and self._waiting:
            task = asyncio.get_running_loop().create_task(self._run(), name=self.name)
            self._task = None if task.done() else task

    async def _run(self) -> None:
        try:
            while self._waiting:
                try:
                    await self._waiting.popleft()()
                except (Exception, asyncio.CancelledError) as error:
                    if is_own_end(error):
                        raise
                    logger.exception("client: %s goes on after an error", self.name)
        finally:
            self._task = None

    def drop(self) -> None:
        """Take nothing more, and forget what waits; what runs goes on."""
        self._is_closed = True
        self._waiting.clear()

    async def join(self, timeout: float) -> bool:
        """Wait until nothing runs or waits; False if that lasts longer than `timeout` seconds. Called from what it
        runs, it returns at once."""
        task = self._task
        if task is None or task is asyncio.current_task():
            return True
        done, _ = await asyncio.wait((task,), timeout=max(0.0, timeout))
        return bool(done)


class TaskWorkers:
    """Tasks that handle messages: `workers.Workers` of asyncio."""

    def __init__(self, name: str, most: int, work: Callable[[Any], Awaitable[None]]) -> None:
        """name: of the tasks. work: called with each thing to do and awaited; it raises if its task ends."""
        self._name = name
        self._most = most
        self._work = work
        self._waiting: asyncio.Queue[Any] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._working: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count()
        self._is_ending = False

    def start(self) -> None:
        """Nothing: tasks begin when there is something to do."""

    def put(self, thing: Any) -> None:
        """Have a task work on something."""
        self._waiting.put_nowait(thing)
        asyncio.get_running_loop().call_soon(self._add)  # not here, as in TaskWorker

    def _add(self) -> None:
        if self._waiting.qsize() and len(self._working) == len(self._tasks) < self._most and not self._is_ending:
            name = f"{self._name}-{next(self._numbers)}"
            task = asyncio.get_running_loop().create_task(self._run(), name=name)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        own = asyncio.current_task()
        assert own is not None, "this runs in a task"
        while True:
            thing = await self._waiting.get()
            if self._is_ending:
                return
            self._working.add(own)
            self._add()  # the next thing may find all of them at work
            try:
                await self._work(thing)
            finally:
                self._working.discard(own)

    def is_own(self) -> bool:
        """True if the calling task is one of these."""
        return asyncio.current_task() in self._tasks

    async def end(self, deadline: float) -> tuple[str, ...]:
        """End the tasks; what none has begun is dropped. Those that work on at the deadline (monotonic) are cancelled,
        but for the calling one, and their names returned."""
        self._is_ending = True
        for _ in self._tasks:
            self._waiting.put_nowait(None)
        tasks = self._tasks - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks, timeout=max(0.0, deadline - time.monotonic()))
        names = tuple(task.get_name() for task in self._working)
        self.cancel()
        return names

    def cancel(self) -> None:
        """End the tasks at once, but for the calling one."""
        self._is_ending = True
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()
