"""Holds requests of users back that are over their quotas (`quotas.py`), on every port of the process.

    a send              waits for at most a second, then it is refused with 2 (SYSTEM_BUSY)
    a pull              waits in the long polling of its broker for as long as it asked, and is never refused
    work of clients     (heartbeats, offsets, locks, send-backs, ends of transactions) waits for at most a second, then
                        it is handled
    any other request   is treated as a send
    a connection        more than the user may have is refused with 2, and closed if no other user signs on it

Requests that wait are decoded and stand in a line of their connection, so a connection's sends keep their order. A
user's connections take turns: one with thousands of sends does not keep out another one with a single send. Others,
also other users on the same connection, do not notice. `Brake` bounds the bytes that wait in all lines.

In report mode all of this is only counted.

Owned by remoting-io, but for what `Limited` holds. A user without a quota has no `Meter`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from ..protocol.command import RemotingCommand
from ..protocol.request_kinds import CLIENT, kind_of
from ..remoting.dispatcher import SEND_CODES
from ..remoting.event_loop import EventLoop, Timer
from ..shares import Shares
from .book import Book, User
from .quotas import Bucket, Quotas

if TYPE_CHECKING:
    from ..broker.pulling.request import HeldPulls, PullRequest
    from ..remoting.connection import Connection

#: Longest delay of a request.
LONGEST_S = 1.0
#: Limit on the bytes of all requests that wait, shared by connection and address (`Shares`); and those that each
#: connection may have in any case.
MOST_WAITING_BYTES, FEW_WAITING_BYTES = 64 << 20, 64 << 10
#: Counted for a waiting request besides its frame: the objects of a command and its fields, some 20.
_REQUEST_BYTES = 4096
#: Time that a tick gives to the lines of one user, and to taking new quotas over.
_SLICE_S = 0.001
#: Shortest time between two looks at a user's lines: what comes due meanwhile is served together.
_LEAST_S = 0.001
#: A user was at a limit if that is at most so long ago.
LATELY_S = 60.0

SENDS_DELAYED, SENDS_REFUSED = "sends_delayed", "sends_refused"
REQUESTS_DELAYED, REQUESTS_REFUSED = "requests_delayed", "requests_refused"
PULLS_HELD, CONNECTIONS_REFUSED = "pulls_held", "connections_refused"
COUNTS = (SENDS_DELAYED, SENDS_REFUSED, REQUESTS_DELAYED, REQUESTS_REFUSED, PULLS_HELD, CONNECTIONS_REFUSED)


class Limited:
    """Counts of the effects of quotas, in all and for each user, since the start. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Guarded by _lock. User -> (count by name, monotonic time of the last one).
        self._users: dict[str, tuple[dict[str, int], float]] = {}
        self._totals = dict.fromkeys(COUNTS, 0)

    def add(self, name: str, what: str, now: float) -> None:
        """Count an effect, one of COUNTS, on a user."""
        with self._lock:
            counts, _ = self._users.get(name) or (dict.fromkeys(COUNTS, 0), 0.0)
            counts[what] += 1
            self._users[name] = counts, now
            self._totals[what] += 1

    def forget(self, name: str) -> None:
        with self._lock:
            self._users.pop(name, None)

    def totals(self) -> dict[str, int]:
        with self._lock:
            return dict(self._totals)

    def of(self, name: str) -> dict[str, int]:
        """Return one user's counts."""
        with self._lock:
            found = self._users.get(name)
            return dict.fromkeys(COUNTS, 0) if found is None else dict(found[0])

    def is_lately(self, name: str, now: float) -> bool:
        """True if this user was at a limit in the last minute."""
        with self._lock:
            found = self._users.get(name)
            return found is not None and now - found[1] < LATELY_S

    def lately(self, now: float) -> list[str]:
        """Return the users who were at a limit in the last minute, by name."""
        with self._lock:
            return sorted(name for name, (_, at) in self._users.items() if now - at < LATELY_S)


class _Waiting:
    """A request in a line. size: bytes of its frame."""

    __slots__ = ("conn", "is_current", "is_done", "is_send", "proceed", "request", "size", "until")

    def __init__(
        self,
        conn: Connection,
        request: RemotingCommand,
        size: int,
        until: float,
        is_current: Callable[[], bool],
        proceed: Callable[[], None],
    ) -> None:
        self.conn = conn
        self.request = request
        self.size = size
        self.is_send = request.code in SEND_CODES
        self.until = until
        self.is_current = is_current
        self.proceed = proceed
        self.is_done = False


class _Line(deque[_Waiting]):
    """Requests of one connection. bytes: of their frames."""

    bytes = 0


class _Ring:
    """Lines of one kind, which take turns."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: OrderedDict[Connection, _Line] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def line(self, conn: Connection) -> _Line:
        """Return a connection's line; a new one is in no turn before something is added."""
        return self._lines.get(conn) or _Line()

    def add(self, one: _Waiting) -> None:
        line = self._lines.setdefault(one.conn, _Line())
        line.append(one)
        line.bytes += one.size

    def next(self) -> _Waiting:
        """Take the request whose turn it is. There is one."""
        conn = next(iter(self._lines))
        self._lines.move_to_end(conn)
        return self.first(conn)

    def first(self, conn: Connection) -> _Waiting:
        """Take the first request of a connection's line, which keeps its turn."""
        line = self._lines[conn]
        one = line.popleft()
        line.bytes -= one.size
        if not line:
            del self._lines[conn]
        return one


class Meter:
    """The quotas of one user. Small, since thousands of users may have one. Owned by remoting-io."""

    __slots__ = ("asked", "brake", "name", "pulled", "quotas", "room", "sent")

    def __init__(self, brake: Brake, name: str, quotas: Quotas) -> None:
        now = brake.loop.monotonic
        self.brake = brake
        self.name = name
        self.quotas = quotas
        self.sent = Bucket(quotas.send_bytes or 0, now)
        self.pulled = Bucket(quotas.pull_bytes or 0, now)
        self.asked = Bucket(quotas.requests or 0, now)
        #: Room for requests that wait; None while none does.
        self.room: _Room | None = None

    def change(self, quotas: Quotas) -> None:
        """Have other quotas, at once."""
        now = self.brake.loop.monotonic
        self.quotas = quotas
        self.sent.change(quotas.send_bytes or 0, now)
        self.pulled.change(quotas.pull_bytes or 0, now)
        self.asked.change(quotas.requests or 0, now)
        if self.room is not None:
            self.room.serve()

    @property
    def is_needed(self) -> bool:
        """False if the user has no quota of a second, and nothing waits."""
        return self.quotas.limit_flow or self.room is not None

    def note(self, what: str) -> None:
        """Count an effect, one of COUNTS."""
        self.brake.limited.add(self.name, what, self.brake.loop.monotonic)

    # --- sends and other requests

    def passes(
        self,
        request: RemotingCommand,
        conn: Connection,
        size: int,
        is_current: Callable[[], bool],
        proceed: Callable[[], None],
    ) -> bool:
        """True if a request may be handled now. Otherwise it waits, and `proceed` handles it later; or it is refused.

        size: bytes of its frame. is_current: returns False once the user may do less than when it was admitted.
        """
        if self.room is not None:
            self.room.serve()  # those before it may be due
        now = self.brake.loop.monotonic
        is_send = request.code in SEND_CODES
        if self.is_ready(is_send, now) and (self.room is None or self.room.is_free(is_send)):
            self.take(is_send, size, now)
            return True
        room = self.room or _Room(self)
        too_long = not _is_work(request, is_send) and room.waits_too_long(conn, is_send, now)
        if too_long or not self.brake.waiting.take(conn.born_host, MOST_WAITING_BYTES, size + _REQUEST_BYTES):
            self.refuse(request, conn)
            return False
        self.room = room
        if not room.add(_Waiting(conn, request, size, now + LONGEST_S, is_current, proceed)):
            self.note(SENDS_DELAYED if is_send else REQUESTS_DELAYED)
        return False

    def wait_s(self, is_send: bool, now: float) -> float:
        """Return after how many seconds a request is within the quota; 0.0 or less if it is."""
        return max(self.asked.wait_s(now), self.sent.wait_s(now) if is_send else 0.0)

    def is_ready(self, is_send: bool, now: float) -> bool:
        return self.wait_s(is_send, now) <= 0

    def take(self, is_send: bool, size: int, now: float) -> None:
        """Count a request that is handled."""
        self.asked.take(1, now)
        if is_send:
            self.sent.take(size, now)

    def refuse(self, request: RemotingCommand, conn: Connection) -> None:
        """Answer 2."""
        is_send = request.code in SEND_CODES
        limits = [f"{self.quotas.requests} requests"] if self.quotas.requests else []
        if is_send and self.quotas.send_bytes:
            limits.append(f"{self.quotas.send_bytes} bytes of sends")
        quota = f"{' and '.join(limits)} a second" if limits else "used up"
        self.note(SENDS_REFUSED if is_send else REQUESTS_REFUSED)
        remark = f"[QUOTA]system busy: the quota of User:{self.name} is {quota}"
        conn.respond(request, RemotingCommand.response(ResponseCode.SYSTEM_BUSY, remark))

    # --- pulls

    def admits_pull(self) -> bool:
        """Count a pull; False if it has to wait."""
        now = self.brake.loop.monotonic
        if self.asked.wait_s(now) > 0 or self.pulled.wait_s(now) > 0:
            return False
        if self.room is not None and self.room.first_pull() is not None:
            return False
        self.asked.take(1, now)
        return True

    def may_read(self) -> bool:
        """True if records may be sent to this user now."""
        return self.pulled.wait_s(self.brake.loop.monotonic) <= 0

    def took(self, size: int) -> None:
        """Count bytes of records that were sent."""
        self.pulled.take(size, self.brake.loop.monotonic)

    def over(self, pulls: HeldPulls | None) -> None:
        """Note that a pull is over the quota. pulls: it is held there, at this place; None: it was answered."""
        self.note(PULLS_HELD)
        if pulls is not None:
            self.room = room = self.room or _Room(self)
            room.pulls = pulls
            room.arm(self.brake.loop.monotonic)


def _is_work(request: RemotingCommand, is_send: bool) -> bool:
    """True for what a client has to ask to go on, and which therefore waits and is not refused."""
    return not is_send and kind_of(request.code) == CLIENT


class _Tally(Meter):
    """The quotas of one user in report mode: everything passes, and what they would do is counted."""

    __slots__ = ()

    def passes(
        self,
        request: RemotingCommand,
        conn: Connection,
        size: int,
        is_current: Callable[[], bool],
        proceed: Callable[[], None],
    ) -> bool:
        now = self.brake.loop.monotonic
        is_send = request.code in SEND_CODES
        wait_s = self.wait_s(is_send, now)
        if wait_s > LONGEST_S:
            is_work = _is_work(request, is_send)
            self.note(SENDS_REFUSED if is_send else REQUESTS_DELAYED if is_work else REQUESTS_REFUSED)
            return True  # what is refused is not taken, and what waits keeps its client from asking more
        if wait_s > 0:
            self.note(SENDS_DELAYED if is_send else REQUESTS_DELAYED)
        self.take(is_send, size, now)
        return True

    def admits_pull(self) -> bool:
        if not super().admits_pull():
            self.note(PULLS_HELD)
        return True

    def may_read(self) -> bool:
        return True

    def took(self, size: int) -> None:
        if super().may_read():
            super().took(size)


class _Room:
    """The requests of one user that wait."""

    __slots__ = ("_all", "_due", "_meter", "_others", "_sends", "_serving", "_timer", "_turns", "pulls")

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._sends, self._others = _Ring(), _Ring()
        # All of both rings, in the order in which their time ends; some of them are done already.
        self._all: deque[_Waiting] = deque()
        #: The broker's held pulls, once one of them was this user's.
        self.pulls: HeldPulls | None = None
        # Kinds in the order of their turns, since they share the requests of a second.
        self._turns = deque((self._next_send, self._next_other, self._next_pull))
        self._timer: Timer | None = None
        self._due = 0.0
        self._serving = False

    def first_pull(self) -> PullRequest | None:
        return None if self.pulls is None else self.pulls.first_held(self._meter)

    def is_free(self, is_send: bool) -> bool:
        """True if no other request has its turn before this one."""
        return not (self._sends if is_send else self._others) and not (
            self._meter.asked.rate and self.first_pull() is not None
        )

    def waits_too_long(self, conn: Connection, is_send: bool, now: float) -> bool:
        """True if a request behind its line would wait for longer than it may, even if no other line had a turn."""
        asked, sent = self._meter.asked, self._meter.sent
        line = (self._sends if is_send else self._others).line(conn)
        if asked.rate and asked.wait_s(now) + len(line) / asked.rate > LONGEST_S:
            return True
        return is_send and bool(sent.rate) and sent.wait_s(now) + line.bytes / sent.rate > LONGEST_S

    def add(self, one: _Waiting) -> bool:
        """Let a request wait. Its bytes are counted already. True if it could be handled at once."""
        (self._sends if one.is_send else self._others).add(one)
        self._all.append(one)
        self.serve()
        return one.is_done

    def serve(self) -> None:
        """Handle what may be handled by now."""
        if self._serving:
            return
        self._serving = True
        loop = self._meter.brake.loop
        now = loop.monotonic
        ends = loop.clock.monotonic() + _SLICE_S
        try:
            while any(self._turn(now) for _ in range(len(self._turns))) or self._end_wait(now):
                if loop.clock.monotonic() >= ends:
                    break
        finally:
            self._serving = False
        self.arm(now)

    def _turn(self, now: float) -> bool:
        """Handle one request of the kind whose turn it is; False if there is none that may be."""
        kind = self._turns[0]
        self._turns.rotate(-1)
        return kind(now)

    def _next_send(self, now: float) -> bool:
        return bool(self._sends) and self._meter.is_ready(True, now) and self._handle(self._sends.next(), now)

    def _next_other(self, now: float) -> bool:
        return bool(self._others) and self._meter.is_ready(False, now) and self._handle(self._others.next(), now)

    def _next_pull(self, now: float) -> bool:
        meter, pulls, first = self._meter, self.pulls, self.first_pull()
        if pulls is None or first is None or meter.pulled.wait_s(now) > 0:
            return False
        if not pulls.is_admitted(first):
            if meter.asked.wait_s(now) > 0:
                return False
            meter.asked.take(1, now)
        pulls.let_go(first)
        return True

    def _end_wait(self, now: float) -> bool:
        """Refuse the next request that has waited for as long as it may, or do it if it is work of a client. False if
        there is none."""
        waiting = self._all
        while waiting and waiting[0].is_done:
            waiting.popleft()
        if not waiting or waiting[0].until > now:
            return False
        one = waiting.popleft()
        (self._sends if one.is_send else self._others).first(one.conn)
        if not one.is_send and kind_of(one.request.code) == CLIENT:
            self._handle(one, now)
        else:
            self._leave(one)
            if not one.conn.closed:
                self._meter.refuse(one.request, one.conn)
        return True

    def _leave(self, one: _Waiting) -> None:
        one.is_done = True
        self._meter.brake.waiting.give(one.conn.born_host, one.size + _REQUEST_BYTES)

    def _handle(self, one: _Waiting, now: float) -> bool:
        self._leave(one)
        if one.conn.closed:
            return True  # no answer could be sent, and the client sends it again
        if not one.is_current():
            text = f"User:{self._meter.name} was changed while the request waited"
            one.conn.respond(one.request, RemotingCommand.response(ResponseCode.NO_PERMISSION, text))
            return True
        self._meter.take(one.is_send, one.size, now)
        try:
            one.proceed()
        except Exception:
            one.conn.fail()
        return True

    def arm(self, now: float) -> None:
        """Look again when the next request may be handled, or has waited for long enough; end if none waits."""
        meter = self._meter
        waits = []
        asked = meter.asked.wait_s(now)
        if self._sends:
            waits.append(meter.wait_s(True, now))
        if self._others:
            waits.append(asked)
        first = self.first_pull()
        if first is not None and self.pulls is not None:
            waits.append(max(meter.pulled.wait_s(now), 0.0 if self.pulls.is_admitted(first) else asked))
        waits += [one.until - now for one in islice(self._all, 1)]
        if not waits:
            if self._timer is not None:
                self._timer.cancel()
            if not self._serving:
                meter.room = None
            return
        wait_s = max(min(waits), _LEAST_S)
        if self._timer is not None:
            if self._due <= now + wait_s:
                return
            self._timer.cancel()
        self._due = now + wait_s
        self._timer = meter.brake.loop.call_later(wait_s, self._look)

    def _look(self) -> None:
        self._timer = None
        self.serve()


class Brake:
    """The meters of all users, and the connections that they have. Owned by remoting-io."""

    def __init__(self, loop: EventLoop, book: Book, defaults: Quotas, *, counts_only: bool = False) -> None:
        """defaults: of users who have none of their own. counts_only: nothing is held back or refused; see
        `change_mode`."""
        self._counts_only = counts_only
        self.loop = loop
        #: Bytes of the requests that wait.
        self.waiting = Shares(FEW_WAITING_BYTES)
        self.limited = Limited()
        self._book = book
        self._defaults = defaults
        # Users who were proved since the start -> None for one without quotas of a second.
        self._meters: dict[str, Meter | None] = {}
        # User -> connections on which it was proved, the oldest first.
        self._connections: dict[str, dict[Connection, None]] = {}
        # Users that still have the defaults from before a change; None without one.
        self._behind: Iterator[str] | None = None
        #: Called when a user who had no quota of a second gets one.
        self.on_limit: Callable[[], None] = lambda: None

    # --- of the gate

    def meter_of(self, user: User) -> Meter | None:
        """Return the meter of a user; None if nothing of a second is limited."""
        try:
            return self._meters[user.account.name]
        except KeyError:
            return self._renew(user)

    def _renew(self, user: User) -> Meter | None:
        """Have a user's meter keep to the user's quotas as they are now."""
        name = user.account.name
        quotas = user.account.quotas.over(self._defaults)
        meter = self._meters.get(name)
        if meter is None and quotas.limit_flow:
            meter = (_Tally if self._counts_only else Meter)(self, name, quotas)
            self.on_limit()
        elif meter is not None:
            meter.change(quotas)
            if not meter.is_needed:
                meter = None
        self._meters[name] = meter
        return meter

    def enter(self, user: User, conn: Connection) -> None:
        """Count a connection for a user. Raise RefusedRequest if it is one too many; then it is closed behind the
        answer, unless another user signs on it."""
        name = user.account.name
        most = user.account.quotas.over(self._defaults).connections
        held = self._connections.get(name, {})
        if most and conn not in held and len(held) >= most:
            self.limited.add(name, CONNECTIONS_REFUSED, self.loop.monotonic)
            if not self._counts_only:
                if not conn.principals:
                    self.loop.call_soon(conn.close_after_flush)
                raise RefusedRequest(
                    ResponseCode.SYSTEM_BUSY, f"[QUOTA]system busy: the quota of User:{name} is {most} connections"
                )
        self._connections.setdefault(name, {})[conn] = None
        conn.principals |= {name}

    def leave(self, conn: Connection) -> None:
        """Forget a connection that closed."""
        for name in conn.principals:
            held = self._connections.get(name)
            if held is not None and held.pop(conn, self) is None and not held:
                del self._connections[name]

    # --- changes

    def changed(self, name: str) -> None:
        """Let a changed user's quotas take effect. Any thread."""
        self.loop.call_soon(lambda: self._take_over(name))

    def change_defaults(self, defaults: Quotas) -> None:
        """Have other quotas for users who have none of their own. Any thread."""

        def take() -> None:
            if defaults != self._defaults:
                self._defaults = defaults
                self._take_over_all()

        self.loop.call_soon(take)

    def change_mode(self, *, counts_only: bool) -> None:
        """Hold back and refuse from now on, or count only. Any thread."""

        def take() -> None:
            if counts_only != self._counts_only:
                self._counts_only = counts_only
                old, self._meters = self._meters, {}  # a user gets the other kind of meter with its next request
                for meter in old.values():
                    if meter is not None:
                        meter.change(Quotas())
                self._take_over_all()

        self.loop.call_soon(take)

    def _take_over_all(self) -> None:
        is_idle = self._behind is None
        self._behind = iter({**self._meters, **self._connections})
        if is_idle:
            self._go_on()

    def _go_on(self) -> None:
        """Let changed defaults take effect for all users, some in each tick."""
        ends = self.loop.clock.monotonic() + _SLICE_S
        for name in self._behind or ():
            self._take_over(name)
            if self.loop.clock.monotonic() >= ends:
                self.loop.call_soon(self._go_on)
                return
        self._behind = None

    def _take_over(self, name: str) -> None:
        user = self._book.get(name)
        if user is None:
            meter = self._meters.pop(name, None)
            if meter is not None:
                meter.change(Quotas())
            self.limited.forget(name)
            return
        if name in self._meters:
            self._renew(user)
        most = 0 if self._counts_only else user.account.quotas.over(self._defaults).connections
        held = self._connections.get(name, {})
        for conn in list(held)[most:] if most else ():
            self.limited.add(name, CONNECTIONS_REFUSED, self.loop.monotonic)
            held.pop(conn)
            if conn.principals == {name}:
                conn.close()
            conn.principals -= {name}
            conn.grants = None

    # --- figures, for any thread

    def connections_of(self, name: str) -> int:
        return len(self._connections.get(name, ()))
