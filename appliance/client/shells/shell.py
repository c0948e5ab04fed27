"""Runs the core's procedures: what the shells of threads and of asyncio have in common."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.steps import Call, CallFailed, Do, Effect, Sleep, Start, Tell, Together
from ..errors import ClientError, Closed
from ..notes import Notes
from ..wire import RemotingCommand

if TYPE_CHECKING:
    import ssl

    from .link import Link

logger = logging.getLogger("rocketbox.client")

CLOSED = "the client was closed"
#: Time for making a connection.
CONNECT_S = 3.0

#: Called with the outcome of a call.
Resume: TypeAlias = Callable[[RemotingCommand | CallFailed | None], None]
#: Called with an address, a server's request and what takes a late answer; returns (a procedure to start, the answer).
Asked: TypeAlias = Callable[
    [str, RemotingCommand, Callable[[RemotingCommand], None]],
    tuple[Generator[Any, Any, Any] | None, RemotingCommand | None],
]
#: Called with the result of a procedure, or its error.
Done: TypeAlias = Callable[[Any, BaseException | None], None]


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """server_name: the name in servers' certificates; None: the host of their address."""

    context: ssl.SSLContext
    server_name: str | None


@dataclass(frozen=True, slots=True)
class Security:
    """sign: returns the header fields of a request with its signature. tls: None for connections in the clear."""

    sign: Callable[[RemotingCommand], dict[str, str]] | None = None
    tls: TlsSettings | None = None


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Bell:
    """Wakes those that wait for a change. lock: for what they wait for."""

    lock: AbstractContextManager[Any]

    def ring(self) -> None:
        """Have all that wait look again. Called with the lock."""
        raise NotImplementedError

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None) -> Any:
        """Return True once `predicate`, called with the lock, does, and False after `timeout` seconds; or return an
        awaitable of it. Raises what `predicate` does."""
        raise NotImplementedError


class Shell:
    """Runs procedures. `lock` is held while one is resumed."""

    lock: AbstractContextManager[Any]

    def __init__(
        self,
        opened: Callable[[str], Generator[Any, Any, Any]],
        asked: Asked,
        notes: Notes,
        security: Security,
    ) -> None:
        """opened, asked: the core's, called with the lock and the link's address when a link is made, and when a server
        sends a request. notes: logged once the lock is let go."""
        # Constant after construction.
        self.security = security
        self._opened = opened
        self._asked = asked
        self._notes = notes

    # --- what shells differ in

    @property
    def is_running(self) -> bool:
        """True once something was begun."""
        raise NotImplementedError

    def wait(self, procedure: Generator[Any, Any, Any], timeout: float | None = None) -> Any:
        """Run a procedure and return its result, or raise; or return an awaitable that does so."""
        raise NotImplementedError

    def close(self, timeout: float) -> Any:
        """End all connections; waiting calls fail. False, or an awaitable of it, if that takes longer than so many
        seconds."""
        raise NotImplementedError

    def forget(self, link: Link) -> None:
        """Have the next call to a link's address make another link. This one is dead."""
        raise NotImplementedError

    def leave(self, link: Link) -> None:
        """Do the same for one that goes on with what it has until it is dead."""
        raise NotImplementedError

    def open_link(self, address: str) -> Link | None:
        """Return the link to an address if there is one."""
        raise NotImplementedError

    def write_now(self) -> None:
        """Have all links send what waits for more."""
        raise NotImplementedError

    def post(self, act: Callable[[], None]) -> bool:
        """Have a function called where no handler of a signal raises; False once this is closed: it is not called."""
        raise NotImplementedError

    def _link(self, address: str) -> Link | None:
        """Return the link to an address, a new one if there is none; None if this shell is closed."""
        raise NotImplementedError

    def _sleep(self, until: float, resume: Callable[[Any], None]) -> bool:
        """Have `resume` called at a time (monotonic), or earlier with Closed; False if this shell is closed."""
        raise NotImplementedError

    def _act(self, do: Do, resume: Callable[[Any], None]) -> tuple[bool, Any]:
        """Call a function that may wait. Returns as `_do`."""
        raise NotImplementedError

    # --- procedures

    def run(self, procedure: Generator[Any, Any, Any], done: Done) -> None:
        """Begin a procedure; `done` is called once, perhaps before this returns, in this thread or the I/O thread."""
        try:
            self._advance(procedure, done, None)
        except BaseException as error:
            self._interrupted(procedure, done, error)
            raise

    def start(self, procedure: Generator[Any, Any, Any]) -> None:
        """Begin a procedure in the background."""
        self.run(procedure, log_error)

    def _advance(self, procedure: Generator[Any, Any, Any], done: Done, outcome: Any) -> None:
        """Resume a procedure with an outcome; an exception is raised in it."""
        while True:
            try:
                try:
                    with self.lock:
                        if procedure.gi_frame is None:  # type: ignore[attr-defined]  # a signal has ended it
                            return
                        if isinstance(outcome, BaseException):
                            effect = procedure.throw(outcome)
                        else:
                            effect = procedure.send(outcome)
                finally:
                    if self._notes.waiting:
                        safely(self._notes.say)
            except StopIteration as end:
                done(end.value, None)
                return
            except BaseException as error:
                with self.lock:
                    procedure.close()  # if a signal's handler raised before it began, or it would be begun again
                done(None, error)
                if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                    raise  # a signal's handler did, and the thread has to be told
                return
            try:
                again, outcome = self._do(effect, partial(self._advance, procedure, done))
            except BaseException as error:
                self._interrupted(procedure, done, error)
                raise
            if not again:
                return

    def _interrupted(self, procedure: Generator[Any, Any, Any], done: Done, error: BaseException) -> None:
        """End a procedure, unless it has ended: a signal's handler raised, and perhaps nobody would resume it."""
        with self.lock:
            has_ended = procedure.gi_frame is None  # type: ignore[attr-defined]
            procedure.close()
        if not has_ended:
            done(None, error)

    def _do(self, effect: Effect, resume: Callable[[Any], None]) -> tuple[bool, Any]:
        """Perform an effect: return (True, the outcome) if it is done at once, or (False, None) if `resume` will be
        called with it."""
        if isinstance(effect, Call | Tell):
            return self._ask(effect, resume)
        if isinstance(effect, Start):
            self.start(effect.procedure)
            return True, None
        if isinstance(effect, Sleep):
            return (False, None) if self._sleep(effect.until, resume) else (True, Closed(CLOSED))
        if isinstance(effect, Do):
            return self._act(effect, resume)
        return self._together(effect, resume)

    def _ask(
        self, effect: Call | Tell, resume: Callable[[Any], None], is_repeated: bool = False
    ) -> tuple[bool, CallFailed | None]:
        """Send a request; return as `_do`. is_repeated: as of `Link.call`."""
        while True:
            link = self._link(effect.address)
            if link is None:
                return True, CallFailed("closed", CLOSED, sent=False)
            is_done, failed = (
                link.call(effect, resume, is_repeated) if isinstance(effect, Call) else link.tell(effect, resume)
            )
            if failed is None or not link.is_replaced:  # it may end between being found and being used
                return is_done, failed

    def _together(self, effect: Together, resume: Callable[[Any], None]) -> tuple[bool, Any]:
        outcomes: list[Any] = [None] * len(effect.procedures)
        if not outcomes:
            return True, outcomes
        gathering = Gathering(outcomes, resume)
        for number, procedure in enumerate(effect.procedures):
            self.run(procedure, partial(gathering.one, number))
        return False, None

    # --- for links

    def repeat(self, call: Call, resume: Resume) -> CallFailed | None:
        """Make a call again that another link had. Returns why nothing was sent; None: `resume` will be called."""
        return self._ask(call, resume, is_repeated=True)[1]

    def has_opened(self, address: str) -> None:
        with self.lock:
            procedure = self._opened(address)
        self.start(procedure)

    def was_asked(self, link: Link, question: RemotingCommand) -> None:
        with self.lock:
            procedure, answer = self._asked(link.address, question, partial(link.answer, question))
        if answer is not None:
            link.answer(question, answer)
        self._notes.say()
        if procedure is not None:
            self.start(procedure)


class Joining:
    """A procedure that begins once, where no signal's handler raises: the caller of `begin` may be interrupted."""

    def __init__(self, shell: Shell, procedure: Generator[Any, Any, Any], done: Done) -> None:
        self._shell = shell
        self._run: Callable[[], None] | None = partial(shell.run, procedure, done)

    def begin(self) -> None:
        """Have it begun, unless it was. After a call that was interrupted this one does."""
        if self._run is not None and not self._shell.post(self._begin):
            self._begin()

    def _begin(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run()


class Gathering:
    """Collects the outcomes of several procedures, and resumes the one that waits for them."""

    def __init__(self, outcomes: list[Any], resume: Callable[[Any], None]) -> None:
        self._outcomes = outcomes
        self._resume = resume
        self._left = len(outcomes)
        self._lock = threading.Lock()

    def one(self, number: int, result: Any, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, ClientError):
            log_error(None, error)
        with self._lock:
            self._outcomes[number] = result if error is None else error
            self._left -= 1
            complete = not self._left
        if complete:
            self._resume(self._outcomes)


def safely(act: Callable[[], None]) -> None:
    """Call `act` and log an exception: an error in this program must not end the I/O thread, or all callers would wait
    for ever."""
    try:
        act()
    except Exception:
        logger.exception("client: the I/O thread goes on after an error")


def log_error(_result: Any, error: BaseException | None) -> None:
    """Log the error of a background procedure, unless a server caused it, which was noted where it arrived."""
    if error is not None and not isinstance(error, ClientError):
        logger.error("client: a procedure failed", exc_info=error)
