"""Turns: they limit how many requests are answered at the same time, and decide whose request is next. Django code runs
only within a turn.

Each kind of request has a gate with a number of places. At a gate the requests of one caller wait in line, and callers
take turns: a user with a hundred connections is one caller, and so is an address from which no user has signed in. A
turn ends when the answer begins, but not before the thread that worked on it is done: a caller who hangs up does not
free a place.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async

from ... import runtime
from ..sign_in.lockout import network_of
from ..users import rights

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]
# ("user", number), or ("address", address) for callers who are not known.
Caller = tuple[str, Any]

# Pages rendered at the same time (decision D10): more would take the interpreter from the engine's threads.
PAGES_AT_ONCE = 2
# A browser sends six requests at a time. A caller with more waiting pages rests after each, REST times as long as the
# page took: a page holds the interpreter, which the engine's threads need as well.
CROWD, REST = 6, 3
# An act (sending a message, creating a topic) mostly waits for the engine, at most 15 s; pages do not wait for acts.
# One user's acts leave places for other users.
ACTS_AT_ONCE, ACTS_EACH = 8, 4
# Sign-in and set-up. Checking a password takes 16 MiB and a tenth of a second.
DOORS_AT_ONCE = 2
# Sign-ins that wait for an OpenID Connect provider, which may be slow.
PROVIDERS_AT_ONCE = 4
# Connections that are tried, which wait for other machines. One user has one, so pages and other users do not wait.
TRIALS_AT_ONCE = 2
# Health checks and files.
QUICK_AT_ONCE = 4
# Most cookies and tokens whose user is remembered, and most bytes of one: ours are shorter, but blanks make one long.
KNOWN, KNOWN_BYTES = 4096, 128

# Key in the scope of a request for its `Turn`.
TURN = "rocketbox.turn"

_QUICK = ("/healthz", "/readyz", "/static/")
_DOORS = ("/login/", "/password/", "/setup/")
_PROVIDERS = "/login/oidc/"
_TRIALS = ("/connect/try/", "/api/v1/connect/trial")
_BY_TOKEN = ("/api/", "/metrics")
_READING = ("GET", "HEAD", "OPTIONS")
_SESSION = re.compile(rb"(?:^|;)\s*rocketbox_session=([^;]+)")
# Threads that are kept for the next requests.
_IDLE_THREADS = 4


class Gate:
    """A number of places, and the requests that wait for one. Owned by the event loop's thread."""

    def __init__(self, places: int, each: int, strangers: int | None = None, crowds_rest: bool = False) -> None:
        """each: most places of one user; strangers: most places of one address of unknown callers. crowds_rest: a
        caller with more than CROWD waiting requests rests between two."""
        self._free = places
        self._each = each
        self._strangers = each if strangers is None else strangers
        self._crowds_rest = crowds_rest
        self._held: Counter[Caller] = Counter()
        # Caller -> end of its rest, by the loop's clock; removed when the rest is over.
        self._resting: dict[Caller, float] = {}
        # Caller -> one future for each request that waits; callers in the order of turns.
        self._waiting: dict[Caller, deque[asyncio.Future[None]]] = {}

    async def take(self, caller: Caller) -> None:
        """Wait for a place and take it."""
        if self._free and self._may_have_another(caller):
            self._give(caller)
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give_back(caller)
            else:
                self._forget(caller, place)
            raise

    def give_back(self, caller: Caller, took_s: float = 0.0) -> None:
        """Free a place. took_s: seconds for which it was taken."""
        if self._crowds_rest and took_s > 0 and len(self._waiting.get(caller, ())) > CROWD:
            loop = asyncio.get_running_loop()
            until = self._resting[caller] = max(self._resting.get(caller, 0.0), loop.time() + REST * took_s)
            loop.call_at(until, self._has_rested, caller, until)
        self._free += 1
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]
        self._next()

    def _next(self) -> None:
        while self._free:
            caller = next((one for one in self._waiting if self._may_have_another(one)), None)
            if caller is None:
                return
            waiting = self._waiting.pop(caller)
            place = waiting.popleft()
            if waiting:
                self._waiting[caller] = waiting  # behind all others
            if not place.done():
                self._give(caller)
                place.set_result(None)

    def _has_rested(self, caller: Caller, until: float) -> None:
        if self._resting.get(caller) == until:
            del self._resting[caller]
            self._next()

    def _may_have_another(self, caller: Caller) -> bool:
        if caller in self._resting:
            return False
        return self._held[caller] < (self._each if caller[0] == "user" else self._strangers)

    def _give(self, caller: Caller) -> None:
        self._free -= 1
        self._held[caller] += 1

    def _forget(self, caller: Caller, place: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(caller)
        if waiting and place in waiting:
            waiting.remove(place)
            if not waiting:
                del self._waiting[caller]


class Turn:
    """The turn of one request. Owned by the event loop's thread, except `is_of`."""

    def __init__(self, turns: Turns, scope: dict[str, Any]) -> None:
        self._turns = turns
        self.scope = scope
        self._shown = shown_by(scope, turns.path(scope))
        self.caller = turns.caller(scope, self._shown)
        self.gate = turns.gate(scope)
        self._has_place = False
        self._began = 0.0
        self._at_end: list[Callable[[], None]] = []
        # For an answer that lasts: returns True if its caller may still receive it. Set before the answer begins.
        self.may_go_on: Callable[[], bool] | None = None
        # The task that waits for the caller's disconnect.
        self._listener: asyncio.Task[Any] | None = None
        self.is_over = False

    def is_of(self, user: int | None) -> None:
        """Note whose request this is, None if its caller has not signed in. The user's next request then waits in the
        user's line. Any thread."""
        if self._shown is not None:
            self._turns.know(self._shown, user)

    def at_end(self, call: Callable[[], None]) -> None:
        """Have a function called when the request has ended, successfully or not."""
        self._at_end.append(call)

    @contextlib.asynccontextmanager
    async def again(self) -> AsyncIterator[None]:
        """Hold a place while a stream that has begun renders something, as a page does."""
        caller = self.caller
        await self.gate.take(caller)
        try:
            yield
        finally:
            self.gate.give_back(caller)

    async def begin(self) -> None:
        await self.gate.take(self.caller)
        self._has_place = True
        self._began = asyncio.get_running_loop().time()

    def leave(self) -> None:
        """Free the place, unless that was done before."""
        if self._has_place:
            self._has_place = False
            self.gate.give_back(self.caller, asyncio.get_running_loop().time() - self._began)

    async def received(self, receive: Receive) -> Message:
        """Return the caller's next message. If the right to the answer ends, return a disconnect instead."""
        self._listener = asyncio.current_task()
        try:
            return await receive()
        except asyncio.CancelledError:
            if self.is_over:
                return {"type": "http.disconnect"}
            raise
        finally:
            self._listener = None

    def break_off(self) -> None:
        """End an answer that lasts: its application receives a disconnect."""
        self.is_over = True
        if self._listener is not None:
            self._listener.cancel()

    def end(self) -> None:
        while self._at_end:
            self._at_end.pop()()


class Turns:
    """The ASGI application around Django. Owned by the event loop's thread."""

    def __init__(self, app: App, base_path: str = "") -> None:
        self._app = app
        self._base_path = base_path
        self._quick = Gate(QUICK_AT_ONCE, QUICK_AT_ONCE)
        self._pages = Gate(PAGES_AT_ONCE, PAGES_AT_ONCE, strangers=1, crowds_rest=True)
        self._acts = Gate(ACTS_AT_ONCE, ACTS_EACH, strangers=1)
        self._doors = Gate(DOORS_AT_ONCE, DOORS_AT_ONCE, strangers=1)
        self._providers = Gate(PROVIDERS_AT_ONCE, 1)
        self._trials = Gate(TRIALS_AT_ONCE, 1)
        # A session's key or a token -> its user. Written by requests' threads.
        self._known: dict[bytes, int] = {}
        self._idle: list[ThreadPoolExecutor] = []

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        turn = scope[TURN] = Turn(self, scope)
        await turn.begin()
        whole = False
        lasting: rights.Open | None = None

        async def answer(message: Message) -> None:
            nonlocal whole, lasting
            if message["type"] == "http.response.start":
                turn.leave()
                lasts = not any(name.lower() == b"content-length" for name, _ in message["headers"])
            else:
                lasts = bool(message.get("more_body", False))
                whole = not lasts
            if lasts and lasting is None and turn.may_go_on is not None:
                lasting = rights.Open(turn.may_go_on, turn.break_off)
                rights.watch().add(lasting)
            await send(message)

        async def receive_of_turn() -> Message:
            return await turn.received(receive)

        thread = self._thread()
        try:
            async with ThreadSensitiveContext(executor=thread):
                await self._app(scope, receive_of_turn, answer)
            if turn.is_over:
                raise asyncio.CancelledError  # for the server: the answer is not whole, so the connection ends
        except BaseException:
            whole = False
            raise
        finally:
            turn.end()
            if lasting is not None:
                rights.watch().remove(lasting)
            self._free(thread, turn, at_once=whole)

    async def run(self, scope: dict[str, Any], call: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function for a request that Django does not handle yet: in a thread, with a turn as for a page."""
        turn = Turn(self, scope)
        turn.gate = self._pages
        await turn.begin()
        thread = self._thread()
        whole = False
        try:
            async with ThreadSensitiveContext(executor=thread):
                found = await sync_to_async(call)(*arguments)
            whole = True
            return found
        finally:
            self._free(thread, turn, at_once=whole)

    def gate(self, scope: dict[str, Any]) -> Gate:
        """Return the gate for a request."""
        path = self.path(scope)
        if path.startswith(_QUICK):
            return self._quick
        if path.startswith(_PROVIDERS):
            return self._providers
        if path.startswith(_DOORS):
            return self._doors
        if path.startswith(_TRIALS):
            return self._trials
        return self._pages if scope["method"] in _READING else self._acts

    def path(self, scope: dict[str, Any]) -> str:
        """Return the request's path without the base path that a proxy adds."""
        return str(scope["path"]).removeprefix(self._base_path)

    def caller(self, scope: dict[str, Any], shown: bytes | None) -> Caller:
        user = None if shown is None else self._known.get(shown)
        return ("address", address_in(scope)) if user is None else ("user", user)

    def caller_in(self, scope: dict[str, Any]) -> Caller:
        """Return the caller of a request, as far as it is known."""
        return self.caller(scope, shown_by(scope, self.path(scope)))

    def know(self, shown: bytes, user: int | None) -> None:
        """Remember the user of a cookie or token; None forgets it. Any thread."""
        if user is None or len(shown) > KNOWN_BYTES:
            self._known.pop(shown, None)
        elif self._known.get(shown) != user:
            self._known[shown] = user
            while len(self._known) > KNOWN:
                self._known.pop(next(iter(self._known)), None)

    def _thread(self) -> ThreadPoolExecutor:
        return self._idle.pop() if self._idle else ThreadPoolExecutor(1, thread_name_prefix="console")

    def _free(self, thread: ThreadPoolExecutor, turn: Turn, at_once: bool) -> None:
        """Free the thread, and the place of the turn with it, as soon as the thread has finished its work."""
        if at_once:
            self._is_free(thread, turn)
            return
        loop = asyncio.get_running_loop()

        def ended(_: Future[None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._is_free, thread, turn)

        thread.submit(_nothing).add_done_callback(ended)

    def _is_free(self, thread: ThreadPoolExecutor, turn: Turn) -> None:
        turn.leave()
        if len(self._idle) < _IDLE_THREADS:
            self._idle.append(thread)
        else:
            thread.shutdown(wait=False)


def _nothing() -> None: ...


def shown_by(scope: dict[str, Any], path: str) -> bytes | None:
    """Return the credential of a request, its Authorization header or its session's key; None without one."""
    by_token = path.startswith(_BY_TOKEN)
    cookie: bytes | None = None
    for name, value in scope["headers"]:
        if name == b"authorization" and by_token:
            return bytes(value)
        if name == b"cookie" and (found := _SESSION.search(value)) is not None:
            cookie = bytes(found[1])
    return cookie


def address_in(scope: dict[str, Any]) -> str:
    """Return the network address of a request's caller; an IPv6 customer's addresses count as one."""
    peer = scope.get("client")
    forwarded = next((value for name, value in reversed(scope["headers"]) if name == b"x-forwarded-for"), None)
    text = None if forwarded is None else forwarded.decode("latin-1")
    return network_of(caller_address(str(peer[0]) if peer else "", text))


def caller_address(peer: str, forwarded: str | None) -> str:
    """Return the caller's IP address: the peer's, or behind a declared proxy the last one in X-Forwarded-For, which the
    proxy itself added. If the settings name the addresses of proxies, the header from other peers is ignored."""
    proxy = runtime.place().sign_in.proxy
    if runtime.place().is_behind_proxy and forwarded and (proxy is None or proxy.trusts(peer)):
        return forwarded.rpartition(",")[2].strip()[:64]
    return peer
