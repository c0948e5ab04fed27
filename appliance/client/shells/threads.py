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
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .. import twin
from ..core.steps import CallFailed, Do
from ..errors import Closed, ForkedError
from ..notes import Notes
from ..wire import split_host_port
from .link import Link
from .shell import CLOSED, CONNECT_S, Asked, Bell, Security, Shell, safely

if TYPE_CHECKING:
    from .tls import TlsStream

_RECEIVE_BYTES = 256 * 1024
#: Reads of one socket before others have their turn.
_READS = 16
#: Longest time that a message waits for more to be sent with it.
_WRITE_SOON_S = 0.002

_let_go = methodcaller("release")

Result = TypeVar("Result")


def take(lock: threading.Lock, seconds: float | None) -> bool:
    """Take a lock within `seconds`, or however long that lasts if it is None. False if it is still held then."""
    return lock.acquire(timeout=-1.0 if seconds is None else max(0.0, min(seconds, threading.TIMEOUT_MAX)))


class Pending(Generic[Result]):
    """The future result of a procedure. A lock is only made when a caller has to wait."""

    __slots__ = ("_error", "_forks", "_is_done", "_result", "_waiting")

    _making = threading.Lock()
    #: Number of forks that led to this process.
    _forks_so_far = 0

    def __init__(self) -> None:
        self._is_done = False
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._forks = Pending._forks_so_far
        #: Held locks of those that wait, each let go once by `complete`.
        self._waiting: list[threading.Lock] | None = None

    def done(self) -> bool:
        """True if `result` returns or raises at once."""
        return self._is_done or self._forks != Pending._forks_so_far

    def result(self, timeout: float | None = None) -> Result:
        """Wait for the result and return it. Raises the error with which the procedure ended, TimeoutError if it has
        not ended after `timeout` seconds, and ForkedError in a fork, where it does not end."""
        if not self._is_done:
            self._wait(timeout)
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def _wait(self, timeout: float | None) -> None:
        if self._forks != Pending._forks_so_far:
            raise _is_parents()
        own = threading.Lock()
        own.acquire()
        with Pending._making:
            if self._is_done:  # meanwhile
                return
            if self._waiting is None:
                self._waiting = []
            self._waiting.append(own)
        if not take(own, timeout):
            with Pending._making:
                if self._waiting is not None:
                    self._waiting.remove(own)
            raise TimeoutError(f"it goes on after {timeout:g} s")

    def complete(self, result: Any, error: BaseException | None) -> None:
        with Pending._making:
            self._result, self._error = result, error
            self._is_done = True
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            for one in waiting:
                one.release()

    @staticmethod
    def has_forked(_error: Callable[[], BaseException]) -> None:
        """Begin anew in the child of a fork: a thread of the parent's may have the lock. Those made before raise what
        the function returns."""
        Pending._making = threading.Lock()
        Pending._forks_so_far += 1


def _is_parents() -> BaseException:
    return ForkedError("This send was begun before the fork: its result is the parent's, and is not known here.")


if not TYPE_CHECKING and twin.compiled is not None:
    Pending = twin.compiled.Pending

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=partial(Pending.has_forked, _is_parents))


class ThreadBell(Bell):
    """Its lock is taken by `with` alone: a signal's handler that raises comes before that or within it. One that raises
    as `threading.Condition` is entered or waits leaves its lock held, or free where it is to be held."""

    def __init__(self, lock: threading.Lock) -> None:
        self.lock = lock
        #: Held locks of those that wait, each let go once. Guarded by `lock`.
        self._waiting: list[threading.Lock] = []

    def ring(self) -> None:
        woken = map(_let_go, self._waiting)
        self._waiting = []
        list(woken)  # in one step

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            own = threading.Lock()
            own.acquire()
            with self.lock:
                if predicate():
                    return True
                self._waiting.append(own)
            if not take(own, None if until is None else until - time.monotonic()):
                with self.lock:
                    if own in self._waiting:
                        self._waiting.remove(own)
                    return predicate()


class ThreadShell(Shell):
    """Runs procedures in the threads that begin them, and in its I/O thread."""

    def __init__(
        self,
        name: str,
        opened: Callable[[str], Generator[Any, Any, Any]],
        asked: Asked,
        notes: Notes,
        security: Security,
    ) -> None:
        """name: of the thread. The others: as of `Shell`."""
        super().__init__(opened, asked, notes, security)
        self.lock: threading.Lock = threading.Lock()
        # Constant after construction.
        self._name = name
        # Guarded by _table.
        self._table = threading.Lock()
        self._links: dict[str, _Link] = {}
        self._left: set[_Link] = set()
        self._posted: deque[Callable[[], None]] = deque()
        #: True if the I/O thread was woken for what is posted.
        self._is_woken = False
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._wakes_at = 0.0
        # Owned by the I/O thread.
        self._selector: selectors.BaseSelector | None = None
        self._timers: list[tuple[float, int, Callable[[Any], None]]] = []
        self._order = itertools.count()
        # Written by any thread, read by the I/O thread.
        self._wake_out: socket.socket | None = None
        self._wake_in: socket.socket | None = None

    # --- procedures

    def wait(self, procedure: Generator[Any, Any, Result], timeout: float | None = None) -> Result:
        """Run a procedure and return its result, or raise. Never called in the I/O thread."""
        pending: Pending[Result] = Pending()
        self.run(procedure, pending.complete)
        return pending.result(timeout)

    # --- links

    def _link(self, address: str) -> _Link | None:
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

    def open_link(self, address: str) -> _Link | None:
        return self._links.get(address)

    def write_now(self) -> None:
        for link in links_of(self):
            if link.writes_at is not None:
                link.write_now()

    def _sleep(self, until: float, resume: Callable[[Any], None]) -> bool:
        return self._post(partial(self._add_timer, until, resume))

    def _act(self, do: Do, resume: Callable[[Any], None]) -> tuple[bool, Any]:
        if not do.waits_long or threading.current_thread() is not self._thread:
            return True, do.act()
        name = f"{self._name}-waits"
        threading.Thread(target=lambda: resume(do.act()), name=name, daemon=True).start()
        return False, None

    def _post(self, act: Callable[[], None]) -> bool:
        """Have the I/O thread call `act`; the thread starts if there is none. False once closed: it is not called."""
        with self._table:
            if self._is_closed:
                return False
            if self._thread is None:
                self._begin_thread()
            self._posted.append(act)
            if not self._is_woken and threading.current_thread() is not self._thread:
                self._wake()
                self._is_woken = True  # only now: a signal's handler may raise before
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
        """Start the thread. Called with _table. If a signal's handler raises here, it may run or not: so it becomes
        this shell's by itself, and of two the first one does. Raises OSError and RuntimeError if the machine gives no
        descriptor or no thread; whoever comes next tries again."""
        if self._selector is None:
            wake_in, wake_out = socket.socketpair()
            wake_in.setblocking(False)
            wake_out.setblocking(False)
            selector = selectors.DefaultSelector()
            selector.register(wake_in, selectors.EVENT_READ, None)
            self._wake_in, self._wake_out, self._selector = wake_in, wake_out, selector
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        thread.start()
        self._thread = thread

    def _run(self) -> None:
        own = threading.current_thread()
        with self._table:
            if self._thread not in (None, own):
                return
            self._thread = own
            wake_in = self._wake_in
        assert wake_in is not None, "made before the thread"
        self._loop(wake_in)

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

    def abandon(self) -> None:
        """Close what a fork has of its parent's sockets, where they go on: nothing is sent, and the parent's selector,
        which a fork shares, is not changed."""
        for link in (*self._links.values(), *self._left):
            link.abandon()
        for shared in (self._selector, self._wake_in, self._wake_out):
            if shared is not None:
                shared.close()

    # --- the I/O thread

    def _loop(self, wake_in: socket.socket) -> None:
        selector = self._selector
        assert selector is not None, "made with the thread"
        while True:
            with self._table:
                posted, self._posted = self._posted, deque()
                self._is_woken = False
                if self._is_closed:
                    break
                links = [*self._links.values(), *self._left]
            for act in posted:
                safely(act)
            now = time.monotonic()
            until = min((found for link in links if (found := link.expire(now)) is not None), default=now + 60.0)
            while self._timers and self._timers[0][0] <= now:
                safely(partial(heapq.heappop(self._timers)[2], None))
            if self._timers:
                until = min(until, self._timers[0][0])
            with self._table:
                if self._posted:
                    continue
                self._wakes_at = until
            # A deadline that a caller set since then, before it could see when this thread wakes, is met here.
            until = min((found for link in links if (found := link.next_deadline()) is not None), default=until)
            self._wait_until(min(until, self._wakes_at), selector, wake_in)
        # Calls posted since then are of links, which fail now, or put a procedure to sleep, which ends.
        for act in posted:
            safely(act)
        for link in links_of(self):
            link.fail(CallFailed("closed", CLOSED))
        for _, _, resume in self._timers:
            safely(partial(resume, Closed(CLOSED)))
        selector.close()
        wake_in.close()
        if self._wake_out is not None:
            self._wake_out.close()

    def _wait_until(self, until: float, selector: selectors.BaseSelector, wake_in: socket.socket) -> None:
        """Go on with sockets until a time (monotonic), or until there is something else to do: a caller with an earlier
        deadline wakes this thread."""
        while True:
            woken = False
            for key, mask in selector.select(max(0.0, until - time.monotonic())):
                if key.data is None:
                    _drain(wake_in)
                    woken = True
                else:
                    safely(partial(key.data.ready, mask))
            if woken or self._posted or time.monotonic() >= until:
                return

    def _add_timer(self, until: float, resume: Callable[[Any], None]) -> None:
        heapq.heappush(self._timers, (until, next(self._order), resume))

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

    def forget(self, link: Link) -> None:
        with self._table:
            if self._links.get(link.address) is link:
                del self._links[link.address]
            self._left.discard(link)

    def leave(self, link: Link) -> None:
        self.forget(link)
        with self._table:
            self._left.add(link)  # type: ignore[arg-type]


def links_of(shell: ThreadShell) -> list[_Link]:
    with shell._table:
        return [*shell._links.values(), *shell._left]


class _Link(Link):
    """A link with its socket."""

    def __init__(self, address: str, shell: ThreadShell) -> None:
        super().__init__(address, shell, threading.Lock())
        # Constant after construction.
        self._shell = shell
        # Guarded by _lock; written by the I/O thread only, but for the output.
        self._sock: socket.socket | None = None
        self._tls: TlsStream | None = None
        self._unsent = bytearray()
        #: How many bytes the socket took last.
        self._sent = [0]
        #: When the I/O thread writes what waits for more; None if nothing does.
        self.writes_at: float | None = None
        # Owned by the I/O thread.
        self._is_connected = False
        self._connect_deadline: float | None = None
        self._targets: deque[tuple[int, Any]] = deque()
        self._events = 0

    # --- any thread

    def _expire_at(self, deadline: float) -> None:
        self._shell.wake_before(deadline)

    def _write_soon(self) -> None:
        with self._lock:
            if self.writes_at is not None:
                return
            self.writes_at = at = time.monotonic() + _WRITE_SOON_S
        self._shell.wake_before(at)

    def _unsent_bytes(self) -> int:
        return len(self._unsent)

    def _after(self, left: bool) -> None:
        if left:
            self._shell.post(self._watch_writing)

    def _write(self) -> bool:
        """Send as many bytes as the socket takes; True if the I/O thread has to send the rest. Called with the lock."""
        if not self._is_open:
            return False
        output = self._connection.take_output()
        self.writes_at = None
        if self._tls is not None:
            output = self._tls.encrypt(output)
        return self._send(output)

    def _send(self, output: bytes) -> bool:
        """Do the same with bytes as they go over the wire."""
        assert self._sock is not None, "an open link has a socket"
        unsent, sent = self._unsent, self._sent
        if unsent:
            unsent += output
        sent[0] = 0
        try:
            if unsent or output:
                # In one step: a signal's handler that raises comes before this, or when the number is kept.
                sent[:] = map(self._sock.send, (unsent or output,))
        except OSError:
            pass  # it takes no more now, or the I/O thread reads the same error
        except BaseException:
            self._shell.post(self._watch_writing)
            raise
        finally:
            if unsent:
                del unsent[: sent[0]]
            else:
                unsent += output[sent[0] :]
        return bool(unsent)

    # --- the I/O thread

    def connect(self) -> None:
        host, port = split_host_port(self.address)
        self._connect_deadline = time.monotonic() + CONNECT_S
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
        if not self._is_connected:
            self._connected()
            return
        if mask & selectors.EVENT_WRITE:
            with self._lock:
                left = self._write() if self._is_open else self._send(b"")
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
        self._is_connected = True
        if self._shell.security.tls is None:
            self._is_ready()
        else:
            self._begin_tls()

    def _begin_tls(self) -> None:
        from .tls import TlsStream, words

        settings = self._shell.security.tls
        assert settings is not None, "the client has TLS"
        try:
            stream = TlsStream(settings, split_host_port(self.address)[0])
            first = stream.begin()
        except (OSError, ValueError) as error:  # a host that can be in no certificate
            self.fail(CallFailed("connect", words(error, True), sent=False))
            return
        with self._lock:
            self._tls = stream
            left = self._send(first)
        self._watch(selectors.EVENT_READ | (selectors.EVENT_WRITE if left else 0))

    def _is_ready(self) -> None:
        self._connect_deadline = None
        left = self._opens()
        self._watch(selectors.EVENT_READ | (selectors.EVENT_WRITE if left else 0))
        self._shell.has_opened(self.address)

    def _decrypted(self, data: bytes) -> bytes | None:
        """Return the plain bytes in received ones; None if the link is dead now."""
        from .tls import words

        with self._lock:
            stream = self._tls
            if stream is None:  # closed meanwhile
                return None
            shaking = not stream.is_ready
            error: OSError | None = None
            plain = b""
            try:
                plain, output = stream.feed(data)
            except OSError as raised:
                error, output = raised, stream.take_output()  # an alert says why
            left = self._send(output)
        if error is not None:
            self.fail(CallFailed("connect" if shaking else "lost", words(error, shaking), sent=not shaking))
            return None
        if shaking and stream.is_ready:
            self._is_ready()
        elif left:
            self._watch(selectors.EVENT_READ | selectors.EVENT_WRITE)
        return plain

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
                self.fail(self._lost(f"the connection broke: {error.strerror or error}"))
                return
            if not data:
                self.fail(self._lost())
                return
            plain = data if self._tls is None else self._decrypted(data)
            if plain is None or (plain and not self._received(plain)):
                return
            if len(data) < _RECEIVE_BYTES:
                return

    def next_deadline(self) -> float | None:
        with self._lock:
            until = self._connection.next_deadline()
            found = [one for one in (until, self._connect_deadline, self.writes_at) if one is not None]
        return min(found, default=None)

    def expire(self, now: float) -> float | None:
        """End calls whose deadline has come; return the next deadline."""
        if self._connect_deadline is not None and self._connect_deadline <= now:
            what = "no TLS handshake" if self._is_connected else "no connection"
            self.fail(CallFailed("connect", f"{what} within {CONNECT_S:g} s", sent=False))
            return None
        writes_at = self.writes_at
        if writes_at is not None and writes_at <= now:
            self.write_now()
        self._end_expired()
        return self.next_deadline()

    def abandon(self) -> None:
        if self._sock is not None:
            self._sock.close()

    def _disconnect(self) -> None:
        with self._lock:
            self._connect_deadline = None
            self.writes_at = None
            self._unsent = bytearray()
            self._tls = None
            sock, self._sock = self._sock, None
        if sock is not None:
            self._shell.unregister(sock)
            sock.close()


def _drain(sock: socket.socket) -> None:
    try:
        while sock.recv(4096):
            pass
    except BlockingIOError:
        pass
