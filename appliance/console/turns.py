"""Turns: how many requests are answered at the same time, and whose is next. Nothing of Django runs without one.

There is a gate for each kind of request, with so many places. Who waits at a gate waits among the requests of the same
caller, and callers take turns: a user with a hundred connections is one caller, and so is an address from which nobody
has signed in. A turn ends when the answer begins, and not before the thread that worked for it has ended: a caller who
hangs up makes no room.
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

from .. import runtime
from . import rights
from .lockout import network_of

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]
# A user, or the address of whom we do not know.
Caller = tuple[str, Any]

# Pages rendered at the same time (decision D10): more would take the interpreter from the engine's threads.
PAGES_AT_ONCE = 2
# A browser asks for six things at a time. Whoever has more pages waiting rests after each, so many times as long as it
# took: a page holds the interpreter, which the engine's threads need as much.
CROWD, REST = 6, 3
# An act (sending a message, making a topic) mostly waits for the engine, 15 s at the worst; pages do not wait for it.
# One user's leave room for others.
ACTS_AT_ONCE, ACTS_EACH = 8, 4
# Where people come in. Checking a password takes 16 MiB and a tenth of a second.
DOORS_AT_ONCE = 2
# A provider of identities is asked, which may take its time.
PROVIDERS_AT_ONCE = 4
# Health checks and files.
QUICK_AT_ONCE = 4
# Callers whose name we remember by what they show.
KNOWN = 4096

# In the scope of a request: its `Turn`.
TURN = "rocketbox.turn"

_QUICK = ("/healthz", "/readyz", "/static/")
_DOORS = ("/login/", "/password/", "/setup/")
_PROVIDERS = "/login/oidc/"
_BY_TOKEN = ("/api/", "/metrics")
_READING = ("GET", "HEAD", "OPTIONS")
_SESSION = re.compile(rb"(?:^|;)\s*rocketbox_session=([^;]+)")
# Threads that are kept for the next requests.
_IDLE_THREADS = 4


class Gate:
    """So many places, and those who wait for one. Owned by the event loop's thread."""

    def __init__(self, places: int, each: int, strangers: int | None = None, crowds_rest: bool = False) -> None:
        """each: places that one user takes; strangers: that one address takes of those we do not know. crowds_rest: a
        caller of whom more than CROWD wait rests between two."""
        self._free = places
        self._each = each
        self._strangers = each if strangers is None else strangers
        self._crowds_rest = crowds_rest
        self._held: Counter[Caller] = Counter()
        # Until when a caller rests, by the loop's clock; taken out when the rest is over.
        self._resting: dict[Caller, float] = {}
        # In the order of turns.
        self._waiting: dict[Caller, deque[asyncio.Future[None]]] = {}

    async def take(self, caller: Caller) -> None:
        """Returns when there is a place."""
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
        """took_s: how long it had the place."""
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
    """One request's. Owned by the event loop's thread, but for `is_of`."""

    def __init__(self, turns: Turns, scope: dict[str, Any]) -> None:
        self._turns = turns
        self.scope = scope
        self._shown = shown_by(scope, turns.path(scope))
        self.caller = turns.caller(scope, self._shown)
        self.gate = turns.gate(scope)
        self._has_place = False
        self._began = 0.0
        self._at_end: list[Callable[[], None]] = []
        # For an answer that lasts: whether its caller may still have it. Set before it begins.
        self.may_go_on: Callable[[], bool] | None = None
        # The task that waits for the news that the caller has left.
        self._listener: asyncio.Task[Any] | None = None
        self.is_over = False

    def is_of(self, user: int | None) -> None:
        """Whose request it turned out to be; None for nobody's. The next one of theirs waits among their own."""
        if self._shown is not None:
            self._turns.know(self._shown, user)

    def at_end(self, call: Callable[[], None]) -> None:
        """Call this when the request has ended, however it does."""
        self._at_end.append(call)

    @contextlib.asynccontextmanager
    async def again(self) -> AsyncIterator[None]:
        """For a stream that has begun: what it renders takes a turn, as a page does."""
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
        """Give the place to the next one, if that has not been done."""
        if self._has_place:
            self._has_place = False
            self.gate.give_back(self.caller, asyncio.get_running_loop().time() - self._began)

    async def received(self, receive: Receive) -> Message:
        """What the caller sends next; when the right to the answer ends, that the caller has left."""
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
        """End an answer that lasts."""
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
        # What callers have shown (a session's key, a token) -> their user. Written by requests' threads.
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
        """A function for a request that has not come to Django yet: in a thread, in a turn as a page has it."""
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
        """Where such a request waits."""
        path = self.path(scope)
        if path.startswith(_QUICK):
            return self._quick
        if path.startswith(_PROVIDERS):
            return self._providers
        if path.startswith(_DOORS):
            return self._doors
        return self._pages if scope["method"] in _READING else self._acts

    def path(self, scope: dict[str, Any]) -> str:
        """The address without what a proxy's path begins with."""
        return str(scope["path"]).removeprefix(self._base_path)

    def caller(self, scope: dict[str, Any], shown: bytes | None) -> Caller:
        user = None if shown is None else self._known.get(shown)
        return ("address", address_in(scope)) if user is None else ("user", user)

    def caller_in(self, scope: dict[str, Any]) -> Caller:
        """Whose request it is, as far as that is known."""
        return self.caller(scope, shown_by(scope, self.path(scope)))

    def know(self, shown: bytes, user: int | None) -> None:
        """Any thread."""
        if user is None:
            self._known.pop(shown, None)
        elif self._known.get(shown) != user:
            self._known[shown] = user
            while len(self._known) > KNOWN:
                self._known.pop(next(iter(self._known)), None)

    def _thread(self) -> ThreadPoolExecutor:
        return self._idle.pop() if self._idle else ThreadPoolExecutor(1, thread_name_prefix="console")

    def _free(self, thread: ThreadPoolExecutor, turn: Turn, at_once: bool) -> None:
        """The thread, and the turn with it, when what it was given to do has ended."""
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
    """What a request brings to say whose it is: a token, or a session's key."""
    by_token = path.startswith(_BY_TOKEN)
    cookie: bytes | None = None
    for name, value in scope["headers"]:
        if name == b"authorization" and by_token:
            return bytes(value)
        if name == b"cookie" and (found := _SESSION.search(value)) is not None:
            cookie = bytes(found[1])
    return cookie


def address_in(scope: dict[str, Any]) -> str:
    """The address of a request's caller; an IPv6 customer's addresses count as one."""
    peer = scope.get("client")
    forwarded = next((value for name, value in reversed(scope["headers"]) if name == b"x-forwarded-for"), None)
    text = None if forwarded is None else forwarded.decode("latin-1")
    return network_of(caller_address(str(peer[0]) if peer else "", text))


def caller_address(peer: str, forwarded: str | None) -> str:
    """The caller's IP address: the peer's, or behind a declared proxy the last one in X-Forwarded-For, which is what
    that proxy saw. Where the settings name the addresses of proxies, others' word for it counts nothing."""
    proxy = runtime.place().sign_in.proxy
    if runtime.place().public_url and forwarded and (proxy is None or proxy.trusts(peer)):
        return forwarded.rpartition(",")[2].strip()[:64]
    return peer
