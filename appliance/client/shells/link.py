"""One connection to a server, but for its socket: calls, answers, questions, deadlines, and the end of all of them."""

from __future__ import annotations

import logging
import time
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from typing import Any

from ..core.connection import Asked, Connection
from ..core.quick import Answered, Flight, Stop
from ..core.steps import Call, CallFailed, Tell
from ..wire import FrameError, RemotingCommand
from .shell import Resume, Shell, safely

logger = logging.getLogger("rocketbox.client")

#: Most unsent bytes of one link. If there are more the server does not read, and calls fail at once.
_MOST_UNSENT = 64 << 20


#: A connection whose call had no answer in time, and on which nothing came for so many seconds, is left: the way to the
#: server may be gone without a word. If something came, only that call was slow, and others share the connection. It is
#: closed once no send waits for its answer on it: a broker may only be slow, and would store again what is sent again.
_SILENT_S = 3.0
_REPLACED = CallFailed("lost", "another connection is in its place")
#: Output that does not wait for more.
_ENOUGH_BYTES = 64 << 10


class Link:
    """It connects once, and is dead when it broke; then the shell makes another."""

    def __init__(self, address: str, shell: Shell, lock: AbstractContextManager[Any]) -> None:
        # Constant after construction.
        self.address = address
        self._owner = shell
        # Guarded by _lock; written by the I/O thread only, but for the output.
        self._lock = lock
        self._connection: Connection[Resume] = Connection(shell.security.sign)
        self._is_open = False
        self._why_dead: CallFailed | None = None
        #: True once others are made in its place.
        self._is_left = False
        #: When bytes came last (monotonic). Owned by the I/O thread.
        self._heard_at = 0.0
        #: Waiters of one-way requests that were sent before there was a connection.
        self._tellers: list[Resume] = []

    @property
    def is_dead(self) -> bool:
        return self._why_dead is not None

    @property
    def is_replaced(self) -> bool:
        """True if it is dead, and the next call to its address makes another, as if there had been none."""
        return self.is_dead and self._is_left

    # --- what links differ in

    def _write(self) -> bool:
        """Send output, if there is a connection; True if `_after` has to see to the rest. Called with the lock."""
        raise NotImplementedError

    def _after(self, left: bool) -> None:
        """Go on after `_write`, without the lock."""
        raise NotImplementedError

    def _write_soon(self) -> None:
        """Have output written within some milliseconds."""

    def _unsent_bytes(self) -> int:
        raise NotImplementedError

    def _expire_at(self, deadline: float) -> None:
        """Have `expire` called by then."""
        raise NotImplementedError

    def _disconnect(self) -> None:
        """Close the socket of a link that is dead."""
        raise NotImplementedError

    # --- calls, in any thread

    def call(self, call: Call, resume: Resume, is_repeated: bool = False) -> tuple[bool, CallFailed | None]:
        """Send a request. Return (True, why nothing was sent), or (False, None): `resume` will be called.
        is_repeated: True if the server refused it with GO_AWAY on another link."""
        with self._lock:
            failed = self._refusal()
            if failed is not None:
                return True, failed
            try:
                self._connection.call(call.request, call.deadline, resume, is_repeated)
            except FrameError as error:
                return True, CallFailed("broken", f"was sent nothing: {error}", sent=False)
            left = self._write()
        self._after(left)
        self._expire_at(call.deadline)
        return False, None

    def launch(self, flight: Flight, stop: Stop, born_ms: int, may_wait: bool) -> bool:
        """Send a message whose flight gets its outcome; False if that is not possible now, and nothing was sent.
        may_wait: more come at once, and `write_now` or some milliseconds end the waiting."""
        with self._lock:
            if self._why_dead is not None or not self._is_open or self._unsent_bytes() > _MOST_UNSENT:
                return False
            waiting = self._connection.launch(flight, stop, born_ms)
            left = False
            if not may_wait or waiting >= _ENOUGH_BYTES:
                left = self._write()
        self._after(left)
        if may_wait:
            self._write_soon()
        self._expire_at(flight.deadline)
        return True

    def write_now(self) -> None:
        """Send what waits for more."""
        with self._lock:
            left = self._why_dead is None and self._is_open and self._write()
        self._after(left)

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
        if self._unsent_bytes() > _MOST_UNSENT:
            return CallFailed("connect", f"it does not read: {self._unsent_bytes()} bytes are unsent", sent=False)
        return None

    def answer(self, question: RemotingCommand, answer: RemotingCommand) -> None:
        with self._lock:
            if self._why_dead is not None:
                return
            self._connection.answer(question, answer)
            left = self._write()
        self._after(left)

    # --- in the I/O thread

    def _opens(self) -> bool:
        """Send what waits for the connection, which is made; True if `_after` has to see to the rest."""
        self._heard_at = time.monotonic()
        with self._lock:
            self._is_open = True
            left = self._write()
            tellers, self._tellers = self._tellers, []
        for resume in tellers:
            safely(partial(resume, None))
        logger.debug("client: connected to=%s", self.address)
        return left

    def _received(self, data: bytes) -> bool:
        """Hand out what bytes bring; False if the link is dead now."""
        arrived = _Arrived()
        try:
            self._hand_out(data, arrived)
        except BaseException:  # a signal's handler raised in a loop: what waits would do so until its time-out
            with self._lock:
                self._take_answers(arrived)
            self.fail(CallFailed("lost", "a signal interrupted this process as its answer came"))
            arrived.hand_out()
            raise
        return not self.is_dead

    def _take_answers(self, arrived: _Arrived) -> None:
        """Add those that the connection keeps apart: of quick sends, and of calls to make again."""
        # In one step: a signal's handler that raises comes before this, or when `arrived` has them.
        arrived.landed += chain.from_iterable(iter(self._connection.take_landed, []))
        arrived.answers += [(partial(self._repeat, asked), None) for asked in self._connection.take_turned_away()]

    def _hand_out(self, data: bytes, arrived: _Arrived) -> None:
        """Do so. arrived: gets what the bytes bring, and keeps what is not handed out yet."""
        self._heard_at = time.monotonic()
        with self._lock:
            questions = self._connection.feed(data, arrived.answers)
            self._take_answers(arrived)
            goes_away, broken = self._connection.goes_away, self._connection.broken
        if goes_away and not self._is_left:  # before what waits goes on: that needs another link
            logger.debug("client: %s stops, and another connection is made", self.address)
            self._is_left = True
            self._owner.leave(self)
        arrived.hand_out()
        for question in questions:
            safely(partial(self._owner.was_asked, self, question))
        if broken is not None:
            logger.warning("client: %s %s", self.address, broken)
            self.fail(CallFailed("broken", str(broken)))
        elif self._is_left:
            self._end_if_idle(_REPLACED)

    def _repeat(self, asked: Asked[Resume], _: object) -> None:
        """Make a call again, which the server refused as it stops, over the link in the place of this one."""
        outcome = self._owner.repeat(Call(self.address, asked.request, asked.deadline), asked.waiting)
        if outcome is not None:
            asked.waiting(outcome)

    def _lost(self, why: str = "it closed the connection") -> CallFailed:
        """Return the reason when the server ends the connection."""
        tls = self._owner.security.tls
        if not self._is_open:
            from .tls import CLOSED_EARLY

            return CallFailed("connect", CLOSED_EARLY, sent=False)
        if not self._connection.has_spoken and "certificate" not in why:
            what = "TLS: Client(tls=...)" if tls is None else "a certificate of this client: Tls(cert_file=...)"
            why += f" before its first answer (if it requires {what})"
        return CallFailed("lost", why)

    def _end_expired(self) -> None:
        """End calls whose deadline has come."""
        now = time.monotonic()
        with self._lock:
            expired = self._connection.expire(now)
            is_open = self._is_open
        for resume in expired:
            safely(partial(resume, CallFailed("timeout", "no answer in time", sent=is_open)))
        if expired and is_open and now - self._heard_at >= _SILENT_S:
            self._leave(CallFailed("lost", f"nothing came from it for {now - self._heard_at:.1f} s"))
        elif self._is_left:
            self._end_if_idle(_REPLACED)

    def _leave(self, why: CallFailed) -> None:
        """Have further calls go over another connection; this one ends once its sends have."""
        if self._why_dead is not None:
            return
        self._is_left = True
        self._owner.leave(self)
        with self._lock:
            waiting = self._connection.asked_again()
        for resume in waiting:
            safely(partial(resume, why))
        self._end_if_idle(why)

    def _end_if_idle(self, why: CallFailed) -> None:
        if self._connection.is_idle:
            self.fail(why, if_idle=True)

    def fail(self, why: CallFailed, if_idle: bool = False) -> None:
        """Close the connection; all waiters are resumed with the reason. if_idle: not if there are any, as of threads
        that found this link before it was left."""
        with self._lock:
            if self._why_dead is not None or (if_idle and not self._connection.is_idle):
                return
            was_open = self._is_open
            self._why_dead = why
            waiting = [*self._connection.lost(), *self._tellers]
            self._tellers = []
        self._owner.forget(self)
        self._disconnect()
        if was_open:
            logger.debug("client: connection ended address=%s: %s", self.address, why.why)
        failed = CallFailed(why.kind, why.why, sent=was_open)
        for resume in waiting:
            safely(partial(resume, failed))


class _Arrived:
    """Answers that are handed out, each once, however often a signal's handler interrupts it. landed: of quick sends;
    answers: the others, with their waiters."""

    __slots__ = ("_begun", "_counted", "_have_landed", "answers", "landed")

    def __init__(self) -> None:
        self.landed: list[tuple[Flight, Answered]] = []
        self.answers: list[tuple[Resume, Any]] = []
        #: One for each of `answers` that was begun to be handed out.
        self._begun: list[None] = []
        #: The same for `landed`, those of one producer together; and whether their number was taken off.
        self._have_landed = 0
        self._counted: list[None] = []

    def hand_out(self) -> None:
        now, landed = time.monotonic(), self.landed
        while self._have_landed < len(landed):
            first = behind = self._have_landed
            while behind < len(landed) and landed[behind][0].fleet is landed[first][0].fleet:
                behind += 1
            safely(partial(landed[first][0].fleet.landing, landed[first:behind], now, self._counted))
            self._counted, self._have_landed = [], behind
        while len(self._begun) < len(self.answers):
            resume, answer = self.answers[len(self._begun)]
            try:
                resume(answer)  # not by `safely`, before whose call a handler may raise
            except Exception:
                logger.exception("client: answers are handed out after an error")
            finally:
                self._begun += (None,)
