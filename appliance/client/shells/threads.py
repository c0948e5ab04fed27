"""Performs the core's effects by threads: one I/O thread for a client, and the threads that call it.

The caller encodes a request and writes it as far as the socket takes it; the I/O thread writes the rest, reads, keeps
deadlines, and resumes procedures whose answer arrived. Nothing starts before the first procedure.

Locks, never one inside another: `lock` is the client's, for everything of the core; each link has its own, for its
socket and its frames; `_table` is for the table of links and the calls posted to the I/O thread.
"""

from __future__ import annotations

import errno
import heapq
import ipaddress
import itertools
import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from ..core.connection import Connection
from ..core.steps import Call, CallFailed, Do, Effect, Sleep, Start, Tell, Together
from ..errors import ClientError, Closed
from ..notes import Notes
from ..wire import FrameError, RemotingCommand, split_host_port

logger = logging.getLogger("rocketbox.client")

_CLOSED = "the client was closed"
_CONNECT_S = 3.0
_RECEIVE_BYTES = 256 * 1024
#: Reads of one socket before others have their turn.
_READS = 16
#: Most unsent bytes of one link. If there are more the server does not read, and calls fail at once.
_MOST_UNSENT = 64 << 20

Result = TypeVar("Result")
#: Called with the outcome of a call.
Resume = Callable[[RemotingCommand | CallFailed | None], None]
#: Called with the result of a procedure, or its error.
Done = Callable[[Any, BaseException | None], None]


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Pending(Generic[Result]):
    """The future result of a procedure. A lock is only made when a caller has to wait."""

    __slots__ = ("_error", "_event", "_is_done", "_result")

    _making = threading.Lock()

    def __init__(self) -> None:
        self._is_done = False
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._event: threading.Event | None = None

    def done(self) -> bool:
        """True if `result` returns or raises at once."""
        return self._is_done

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the result and return it. Raises the error with which the procedure ended, and TimeoutError if it
        has not ended after `timeout` seconds."""
        if not self._is_done:
            with Pending._making:
                if self._event is None:
                    self._event = threading.Event()
                    if self.done():  # meanwhile
                        self._event.set()
            if not self._event.wait(timeout):
                raise TimeoutError(f"it goes on after {timeout:g} s")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def complete(self, result: Any, error: BaseException | None) -> None:
        with Pending._making:
            self._result, self._error = result, error
            self._is_done = True
            event = self._event
        if event is not None:
            event.set()


class ThreadShell:
    """Runs procedures. `lock` is held while one is resumed."""

    def __init__(
        self,
        name: str,
        opened: Callable[[str], Generator[Any, Any, Any]],
        asked: Callable[[str, RemotingCommand], tuple[Generator[Any, Any, Any] | None, RemotingCommand]],
        notes: Notes,
    ) -> None:
        """name: of the thread. opened, asked: the core's, called with the lock and the link's address when a link is
        made, and when a server sends a request. notes: logged once the lock is let go."""
        self.lock = threading.Lock()
        # Constant after construction.
        self._name = name
        self._opened = opened
        self._asked = asked
        self._notes = notes
        # Guarded by _table.
        self._table = threading.Lock()
        self._links: dict[str, _Link] = {}
        self._posted: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._wakes_at = 0.0
        # Owned by the I/O thread.
        self._selector: selectors.BaseSelector | None = None
        self._timers: list[tuple[float, int, Callable[[Any], None]]] = []
        self._order = itertools.count()
        # Written by any thread, read by the I/O thread.
        self._wake_out: socket.socket | None = None

    # --- procedures

    def run(self, procedure: Generator[Any, Any, Any], done: Done) -> None:
        """Begin a procedure; `done` is called once, perhaps before this returns, in this thread or the I/O thread."""
        self._advance(procedure, done, None)

    def wait(self, procedure: Generator[Any, Any, Result], timeout: float | None = None) -> Result:
        """Run a procedure and return its result, or raise. Never called in the I/O thread."""
        pending: Pending[Result] = Pending()
        self.run(procedure, pending.complete)
        return pending.result(timeout)

    def start(self, procedure: Generator[Any, Any, Any]) -> None:
        """Begin a procedure in the background."""
        self.run(procedure, _log_error)

    def _advance(self, procedure: Generator[Any, Any, Any], done: Done, outcome: Any) -> None:
        """Resume a procedure with an outcome; an exception is raised in it."""
        while True:
            try:
                try:
                    with self.lock:
                        if isinstance(outcome, BaseException):
                            effect = procedure.throw(outcome)
                        else:
                            effect = procedure.send(outcome)
                finally:
                    if self._notes.waiting:
                        _safely(self._notes.say)
            except StopIteration as end:
                done(end.value, None)
                return
            except BaseException as error:
                done(None, error)
                return
            resume = partial(self._advance, procedure, done)
            again, outcome = self._do(effect, resume)
            if not again:
                return

    def _do(self, effect: Effect, resume: Callable[[Any], None]) -> tuple[bool, Any]:
        """Perform an effect: return (True, the outcome) if it is done at once, or (False, None) if `resume` will be
        called with it."""
        if isinstance(effect, Call | Tell):
            link = self._link(effect.address)
            if link is None:
                return True, CallFailed("closed", _CLOSED, sent=False)
            return link.call(effect, resume) if isinstance(effect, Call) else link.tell(effect, resume)
        if isinstance(effect, Start):
            self.start(effect.procedure)
            return True, None
        if isinstance(effect, Sleep):
            if self._post(partial(self._add_timer, effect.until, resume)):
                return False, None
            return True, Closed(_CLOSED)
        if isinstance(effect, Do):
            return True, effect.act()
        return self._together(effect, resume)

    def _together(self, effect: Together, resume: Callable[[Any], None]) -> tuple[bool, Any]:
        outcomes: list[Any] = [None] * len(effect.procedures)
        if not outcomes:
            return True, outcomes
        gathering = _Gathering(outcomes, resume)
        for number, procedure in enumerate(effect.procedures):
            self.run(procedure, partial(gathering.one, number))
        return False, None

    # --- links

    def _link(self, address: str) -> _Link | None:
        """Return the link to an address, a new one if there is none; None if this shell is closed."""
        with self._table:
            if self._is_closed:
                return None
            link = self._links.get(address)
            fresh = link is None or link.is_dead
            if link is None or fresh:
                link = self._links[address] = _Link(address, self)
        if fresh:
            self._post(link.connect)
        return link

    def _post(self, act: Callable[[], None]) -> bool:
        """Have the I/O thread call `act`; the thread starts if there is none. False once closed: it is not called."""
        with self._table:
            if self._is_closed:
                return False
            if self._thread is None:
                self._begin_thread()
            self._posted.append(act)
            wake = len(self._posted) == 1 and threading.current_thread() is not self._thread
        if wake:
            self._wake()
        return True

    def wake_before(self, deadline: float) -> None:
        """Have the I/O thread look at deadlines again if it would sleep beyond this one."""
        if deadline < self._wakes_at:
            self._wake()

    def _wake(self) -> None:
        out = self._wake_out
        if out is not None:
            try:
                out.send(b"\0")
            except (BlockingIOError, OSError):
                pass  # it is awake, or has ended

    def _begin_thread(self) -> None:
        wake_in, self._wake_out = socket.socketpair()
        wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(wake_in, selectors.EVENT_READ, None)
        thread = threading.Thread(target=self._loop, args=(wake_in,), name=self._name, daemon=True)
        thread.start()  # RuntimeError if the machine gives none; whoever comes next tries again
        self._thread = thread

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def close(self, timeout: float) -> bool:
        """End the thread and all connections; waiting calls fail. False if the thread did not end in time."""
        with self._table:
            self._is_closed = True
            thread = self._thread
        self._wake()
        if thread is None:
            return True
        thread.join(max(0.0, timeout))
        return not thread.is_alive()

    # --- the I/O thread

    def _loop(self, wake_in: socket.socket) -> None:
        selector = self._selector
        assert selector is not None, "made with the thread"
        while True:
            with self._table:
                posted, self._posted = self._posted, deque()
                if self._is_closed:
                    break
                links = list(self._links.values())
            for act in posted:
                _safely(act)
            now = time.monotonic()
            until = min((found for link in links if (found := link.expire(now)) is not None), default=now + 60.0)
            while self._timers and self._timers[0][0] <= now:
                _safely(partial(heapq.heappop(self._timers)[2], None))
            if self._timers:
                until = min(until, self._timers[0][0])
            with self._table:
                if self._posted:
                    continue
                self._wakes_at = until
            # A deadline that a caller set since then, before it could see when this thread wakes, is met here.
            until = min((found for link in links if (found := link.next_deadline()) is not None), default=until)
            until = min(until, self._wakes_at)
            for key, mask in selector.select(max(0.0, until - time.monotonic())):
                if key.data is None:
                    _drain(wake_in)
                else:
                    _safely(partial(key.data.ready, mask))
        # Calls posted since then are of links, which fail now, or put a procedure to sleep, which ends.
        for act in posted:
            _safely(act)
        for link in links_of(self):
            link.fail(CallFailed("closed", _CLOSED))
        for _, _, resume in self._timers:
            _safely(partial(resume, Closed(_CLOSED)))
        selector.close()
        wake_in.close()
        if self._wake_out is not None:
            self._wake_out.close()

    def _add_timer(self, until: float, resume: Callable[[Any], None]) -> None:
        heapq.heappush(self._timers, (until, next(self._order), resume))

    def has_opened(self, address: str) -> None:
        with self.lock:
            procedure = self._opened(address)
        self.start(procedure)

    def was_asked(self, link: _Link, question: RemotingCommand) -> None:
        with self.lock:
            procedure, answer = self._asked(link.address, question)
        link.answer(question, answer)
        self._notes.say()
        if procedure is not None:
            self.start(procedure)

    def register(self, sock: socket.socket, events: int, link: _Link) -> None:
        assert self._selector is not None, "links live in the thread's selector"
        self._selector.register(sock, events, link)

    def modify(self, sock: socket.socket, events: int, link: _Link) -> None:
        assert self._selector is not None, "links live in the thread's selector"
        self._selector.modify(sock, events, link)

    def unregister(self, sock: socket.socket) -> None:
        assert self._selector is not None, "links live in the thread's selector"
        self._selector.unregister(sock)

    def post(self, act: Callable[[], None]) -> bool:
        return self._post(act)

    def forget(self, link: _Link) -> None:
        with self._table:
            if self._links.get(link.address) is link:
                del self._links[link.address]


def links_of(shell: ThreadShell) -> list[_Link]:
    with shell._table:
        return list(shell._links.values())


class _Gathering:
    """Collects the outcomes of several procedures, and resumes the one that waits for them."""

    def __init__(self, outcomes: list[Any], resume: Callable[[Any], None]) -> None:
        self._outcomes = outcomes
        self._resume = resume
        self._left = len(outcomes)
        self._lock = threading.Lock()

    def one(self, number: int, result: Any, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, ClientError):
            _log_error(None, error)
        with self._lock:
            self._outcomes[number] = result if error is None else error
            self._left -= 1
            complete = not self._left
        if complete:
            self._resume(self._outcomes)


class _Link:
    """One connection with its socket. It connects once, and is dead when it broke; then the shell makes another."""

    def __init__(self, address: str, shell: ThreadShell) -> None:
        # Constant after construction.
        self.address = address
        self._shell = shell
        # Guarded by _lock; written by the I/O thread only, but for the output.
        self._lock = threading.Lock()
        self._connection: Connection[Resume] = Connection()
        self._sock: socket.socket | None = None
        self._is_open = False
        self._unsent = b""
        self._why_dead: CallFailed | None = None
        #: Waiters of one-way requests that were sent before there was a connection.
        self._tellers: list[Resume] = []
        # Owned by the I/O thread.
        self._connect_deadline: float | None = None
        self._targets: deque[tuple[int, Any]] = deque()
        self._events = 0

    @property
    def is_dead(self) -> bool:
        return self._why_dead is not None

    # --- any thread

    def call(self, call: Call, resume: Resume) -> tuple[bool, CallFailed | None]:
        """Send a request. Return (True, why nothing was sent), or (False, None): `resume` will be called."""
        with self._lock:
            failed = self._refusal()
            if failed is not None:
                return True, failed
            try:
                self._connection.call(call.request, call.deadline, resume)
            except FrameError as error:
                return True, CallFailed("broken", f"was sent nothing: {error}", sent=False)
            left = self._write()
        self._after(left)
        self._shell.wake_before(call.deadline)
        return False, None

    def tell(self, tell: Tell, resume: Resume) -> tuple[bool, CallFailed | None]:
        """Send a one-way request; `resume` is called when there is a connection, or when connecting has failed. (True,
        None) if it was sent at once."""
        with self._lock:
            failed = self._refusal()
            if failed is not None:
                return True, failed
            try:
                self._connection.tell(tell.request)
            except FrameError as error:
                return True, CallFailed("broken", f"was sent nothing: {error}", sent=False)
            if not self._is_open:
                self._tellers.append(resume)
                return False, None
            left = self._write()
        self._after(left)
        return True, None

    def _refusal(self) -> CallFailed | None:
        if self._why_dead is not None:
            return CallFailed(self._why_dead.kind, self._why_dead.why, sent=False)
        if len(self._unsent) > _MOST_UNSENT:
            return CallFailed("connect", f"it does not read: {len(self._unsent)} bytes are unsent", sent=False)
        return None

    def answer(self, question: RemotingCommand, answer: RemotingCommand) -> None:
        with self._lock:
            if self._why_dead is not None:
                return
            self._connection.answer(question, answer)
            left = self._write()
        self._after(left)

    def _after(self, left: bool) -> None:
        if left:
            self._shell.post(self._watch_writing)

    def _write(self) -> bool:
        """Send as many bytes as the socket takes; True if the I/O thread has to send the rest. Called with the lock."""
        if not self._is_open:
            return False
        assert self._sock is not None, "an open link has a socket"
        output = self._unsent + self._connection.take_output()
        try:
            sent = self._sock.send(output) if output else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            sent = 0  # the I/O thread reads the same error
        self._unsent = output[sent:]
        return bool(self._unsent)

    # --- the I/O thread

    def connect(self) -> None:
        host, port = split_host_port(self.address)
        self._connect_deadline = time.monotonic() + _CONNECT_S
        try:
            family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        except ValueError:
            # A name: looking it up may take long.
            threading.Thread(
                target=self._resolve, args=(host, int(port)), name="rocketbox-client-resolve", daemon=True
            ).start()
            return
        self._targets.append((family, (host, int(port))))
        self._try_next("no address")

    def _resolve(self, host: str, port: int) -> None:
        """Look a name up, in a separate thread."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            self._shell.post(partial(self.fail, CallFailed("connect", f"the name {host} is not known: {error}", False)))
            return
        targets = [(family, target) for family, _, _, _, target in found]
        self._shell.post(partial(self._resolved, targets))

    def _resolved(self, targets: Sequence[tuple[int, Any]]) -> None:
        if self._why_dead is None:
            self._targets += targets
            self._try_next("no address")

    def _try_next(self, why: str) -> None:
        """Connect to the next address of the name; fail if there is none left."""
        while self._targets:
            family, target = self._targets.popleft()
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:  # no descriptor is left
                why = error.strerror or str(error)
                continue
            sock.setblocking(False)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                number = sock.connect_ex(target)
            except OSError as error:
                number = error.errno or errno.EINVAL
            if number not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
                why = os.strerror(number)
                sock.close()
                continue
            with self._lock:
                self._sock = sock
            self._events = selectors.EVENT_WRITE
            self._shell.register(sock, self._events, self)
            return
        self.fail(CallFailed("connect", why, sent=False))

    def ready(self, mask: int) -> None:
        """Go on with the socket, which can be read or written: finish connecting, send, or receive."""
        if self._why_dead is not None or self._sock is None:
            return
        if not self._is_open:
            self._connected()
            return
        if mask & selectors.EVENT_WRITE:
            with self._lock:
                left = self._write()
            if not left:
                self._watch(selectors.EVENT_READ)
        if mask & selectors.EVENT_READ:
            self._read()

    def _connected(self) -> None:
        sock = self._sock
        assert sock is not None, "a connection that is made has a socket"
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._shell.unregister(sock)
            sock.close()
            with self._lock:
                self._sock = None
            self._try_next(os.strerror(number))
            return
        self._connect_deadline = None
        with self._lock:
            self._is_open = True
            left = self._write()
            tellers, self._tellers = self._tellers, []
        for resume in tellers:
            _safely(partial(resume, None))
        self._watch(selectors.EVENT_READ | (selectors.EVENT_WRITE if left else 0))
        logger.debug("client: connected to=%s", self.address)
        self._shell.has_opened(self.address)

    def _watch_writing(self) -> None:
        with self._lock:
            wanted = self._is_open and self._why_dead is None and bool(self._unsent)
        if wanted:
            self._watch(selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _watch(self, events: int) -> None:
        if events != self._events and self._sock is not None:
            self._events = events
            self._shell.modify(self._sock, events, self)

    def _read(self) -> None:
        assert self._sock is not None, "an open link has a socket"
        for _ in range(_READS):
            try:
                data = self._sock.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                self.fail(CallFailed("lost", f"the connection broke: {error.strerror or error}"))
                return
            if not data:
                self.fail(CallFailed("lost", "it closed the connection"))
                return
            with self._lock:
                answers, questions = self._connection.feed(data)
                broken = self._connection.broken
            for resume, answer in answers:
                _safely(partial(resume, answer))
            for question in questions:
                _safely(partial(self._shell.was_asked, self, question))
            if broken is not None:
                logger.warning("client: %s %s", self.address, broken)
                self.fail(CallFailed("broken", str(broken)))
                return
            if len(data) < _RECEIVE_BYTES:
                return

    def next_deadline(self) -> float | None:
        with self._lock:
            until = self._connection.next_deadline()
        connect = self._connect_deadline
        return until if connect is None else connect if until is None else min(until, connect)

    def expire(self, now: float) -> float | None:
        """End calls whose deadline has come; return the next deadline."""
        if self._connect_deadline is not None and self._connect_deadline <= now:
            self.fail(CallFailed("connect", f"no connection within {_CONNECT_S:g} s", sent=False))
            return None
        with self._lock:
            expired = self._connection.expire(now)
            is_open = self._is_open
        for resume in expired:
            _safely(partial(resume, CallFailed("timeout", "no answer in time", sent=is_open)))
        return self.next_deadline()

    def fail(self, why: CallFailed) -> None:
        """Close the connection; all waiters are resumed with the reason."""
        with self._lock:
            if self._why_dead is not None:
                return
            was_open = self._is_open
            self._why_dead = why
            self._connect_deadline = None
            waiting = [*self._connection.lost(), *self._tellers]
            self._tellers = []
            self._unsent = b""
            sock, self._sock = self._sock, None
        self._shell.forget(self)
        if sock is not None:
            self._shell.unregister(sock)
            sock.close()
        if was_open:
            logger.debug("client: connection ended address=%s: %s", self.address, why.why)
        failed = CallFailed(why.kind, why.why, sent=was_open)
        for resume in waiting:
            _safely(partial(resume, failed))


def _safely(act: Callable[[], None]) -> None:
    """Call `act` and log an exception: an error in this program must not end the I/O thread, or all callers would wait
    for ever."""
    try:
        act()
    except Exception:
        logger.exception("client: the I/O thread goes on after an error")


def _drain(sock: socket.socket) -> None:
    try:
        while sock.recv(4096):
            pass
    except BlockingIOError:
        pass


def _log_error(_result: Any, error: BaseException | None) -> None:
    """Log the error of a background procedure, unless a server caused it, which was noted where it arrived."""
    if error is not None and not isinstance(error, ClientError):
        logger.error("client: a procedure failed", exc_info=error)
