"""Bounds of request bodies, by address.

Bodies are read here, into memory, before Django sees the request: Django would first read any body from any caller into
a temporary file, and only then look up the caller. Most addresses take no body. A body that is too large, or arrives
too slowly, is refused while it arrives, and the connection is closed without reading the rest.

Only requests with messages may be large, and only from a caller who may send them: when more than `SMALL` bytes arrive,
the caller is looked up first, and again every few seconds. A caller who may not send gets the same answer as without a
body.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from typing import Any

from django.contrib.sessions.backends.db import SessionStore
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpResponse
from django.urls import Resolver404, ResolverMatch, resolve
from django.utils import translation

from . import runtime
from .console.acts import ACTS, CALLS
from .console.acts.row import FORM, SEND
from .console.middleware import Outermost, caller_of
from .console.pages import errors
from .console.serving.turns import Caller, Message, Receive, Send, Turns
from .console.sign_in.identity import AnonymousUser
from .console.users.access import rule_for
from .console.users.rights import ASK_EVERY_S

# Bytes that are read, for an address that takes more, before the caller is looked up.
SMALL = FORM
# A test message may have this many times `maxMessageSize`, plus a form: a form encodes a byte in up to three
# characters, base64 three bytes in four.
SEND_FACTOR = 3
# Most bytes of all bodies beyond SMALL that are held at once. The largest possible one (maxMessageSize 16 MiB) fits.
HELD_BYTES = 64 * 1024 * 1024
# Of them one caller's: a file to import and its form fits beside it, from another caller or not.
HELD_EACH = 48 * 1024 * 1024 + FORM

# A body may take GRACE_S, and a second more for each SLOWEST_BYTES_PER_S that have arrived.
GRACE_S = 10.0
SLOWEST_BYTES_PER_S = 16 * 1024
# Longest pause meanwhile: gunicorn would give up after 30 s, and answer 500 without a reason.
SILENCE_S = 25.0

# View name, or method and route of the API (as in `console.access`) -> bytes. Those not listed take no body.
TAKES: dict[str, int] = {act.name: act.takes for act in ACTS if act.takes}
TAKES |= {call.key: call.takes for _, call in CALLS if call.takes}
_WITHOUT_A_BODY = ("GET", "HEAD", "OPTIONS")


class _Refused(Exception):
    """The request is to be answered with this page or problem, and nothing else."""

    def __init__(self, page: Callable[[ASGIRequest], HttpResponse]) -> None:
        self.page = page


class _Gone(Exception):
    """The caller closed the connection."""


class RequestBodies:
    """The outermost ASGI application, around `Turns`. Owned by the event loop's thread."""

    def __init__(self, app: Turns, base_path: str = "") -> None:
        self._app = app
        self._base_path = base_path
        # Bytes of bodies beyond SMALL that are held now, by caller.
        self._held: Counter[Caller] = Counter()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close"})  # before it was accepted, so the answer is 403
            return
        if scope["method"] == "HEAD":
            send = _without_body(send)
        declared = _declared_bytes(scope)
        if declared == 0:
            await self._app(scope, receive, send)
            return
        body = _Body(self, scope, receive, declared)
        try:
            taken = await body.taken()
            await self._app(scope, _once(taken, receive, body.complete), send)
        except _Refused as refused:
            await _answer(_request(scope), refused.page, send)
        except _Gone:
            pass
        finally:
            self._held[body.caller] -= body.held
            if not self._held[body.caller]:
                del self._held[body.caller]

    async def run(self, scope: dict[str, Any], call: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that reads the database, in a turn of this request."""
        return await self._app.run(scope, call, *arguments)

    def limit(self, scope: dict[str, Any]) -> tuple[int, ResolverMatch | None]:
        """Return how many bytes the body of a request may have, and the view that it is for."""
        if scope["method"] in _WITHOUT_A_BODY:
            return 0, None
        try:
            match = resolve(scope["path"].removeprefix(self._base_path))
        except Resolver404:
            return 0, None
        bound = limit_of(match.view_name, scope["method"], match.route)
        return (largest_send() if bound == SEND else bound), match

    def caller(self, scope: dict[str, Any]) -> Caller:
        """Return the caller for whom its body counts."""
        return self._app.caller_in(scope)

    def hold(self, caller: Caller, count: int) -> bool:
        """Count more bytes as held; False if that would be too many, for this caller or in all."""
        if self._held[caller] + count > HELD_EACH or self._held.total() + count > HELD_BYTES:
            return False
        self._held[caller] += count
        return True


def limit_of(view_name: str, method: str, route: str) -> int:
    """Return the bound in TAKES, 0 if none is listed."""
    return TAKES.get(f"{method} {route}", TAKES.get(view_name, 0))


def largest_send() -> int:
    """Return the bytes of the largest request that may send a test message."""
    try:
        longest = runtime.window().max_message_bytes()
    except runtime.EngineNotRunning:
        return SMALL
    return SEND_FACTOR * longest + FORM


class _Body:
    """One request's body on its way in."""

    def __init__(self, owner: RequestBodies, scope: dict[str, Any], receive: Receive, declared: int | None) -> None:
        self._owner = owner
        self._scope = scope
        self._receive = receive
        self._declared = declared
        self._limit, self._match = owner.limit(scope)
        # True if the caller may call the view, and when that was looked up.
        self._admitted = False
        self._asked_at = -math.inf
        # Bytes that count as held until the request is answered, and for whom.
        self.held = 0
        self.caller = owner.caller(scope)
        # True once all of it was read.
        self.complete = False

    async def taken(self) -> bytes:
        """Return the whole body, or nothing if it is large and the caller may not call the view. Raises _Refused,
        _Gone."""
        limit = self._limit
        if self._declared is not None and self._declared > limit:
            raise _Refused(lambda request: errors.too_large(request, limit))
        if (self._declared or 0) > SMALL and not await self._may_be_large():
            return b""
        body = bytearray()
        began = time.monotonic()
        while not self.complete:
            left = began + GRACE_S + len(body) / SLOWEST_BYTES_PER_S - time.monotonic()
            try:
                message = await asyncio.wait_for(self._receive(), min(max(left, 0), SILENCE_S))
            except TimeoutError:
                raise _Refused(errors.too_slow) from None
            if message["type"] == "http.disconnect":
                raise _Gone
            piece = message.get("body", b"")
            self.complete = not message.get("more_body", False)
            if len(body) + len(piece) > limit:
                raise _Refused(lambda request: errors.too_large(request, limit))
            body += piece
            if len(body) > SMALL:
                if not await self._may_be_large():
                    return b""
                count = len(body) - self.held
                if not self._owner.hold(self.caller, count):
                    raise _Refused(errors.busy)
                self.held += count
        return bytes(body)

    async def _may_be_large(self) -> bool:
        """True if the caller may call the view that the body is for."""
        now = time.monotonic()
        if now - self._asked_at >= ASK_EVERY_S:
            self._admitted = await self._owner.run(self._scope, _is_admitted, self._scope, self._match)
            self._asked_at = now
        return self._admitted


def _declared_bytes(scope: dict[str, Any]) -> int | None:
    """Return Content-Length, 0 without one; None for a body in chunks. gunicorn has checked both."""
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":
            return int(value)
    return 0


def _is_admitted(scope: dict[str, Any], match: ResolverMatch | None) -> bool:
    """True if the caller's token or session may call the view. Reads the database."""
    if match is None:
        return False
    request = _request(scope)
    try:
        rule = rule_for(match.view_name, request.method or "", match.route)
        return rule is not None and rule.admits(caller_of(request))
    finally:
        connection.close()


def _request(scope: dict[str, Any]) -> ASGIRequest:
    """Return the request without its body, before the caller is known."""
    request = ASGIRequest(scope, BytesIO())
    request.request_id = secrets.token_hex(8)
    request.user = AnonymousUser()
    request.session = SessionStore(request.COOKIES.get(_session_cookie()))
    return request


def _session_cookie() -> str:
    from django.conf import settings

    return str(settings.SESSION_COOKIE_NAME)


def _once(body: bytes, receive: Receive, complete: bool) -> Receive:
    """Return a `receive` that gives the application the body once; after that only the news that the caller left.

    The rest of a body that was not read to its end is never read: the server closes the connection instead.
    """
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        if not complete:
            await asyncio.get_running_loop().create_future()
        return await receive()

    return receive_again


def _without_body(send: Send) -> Send:
    """Return a `send` without bodies, for HEAD. gunicorn would drop them, too, but log a line for each such request."""

    async def send_head(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return send_head


async def _answer(request: ASGIRequest, page: Callable[[ASGIRequest], HttpResponse], send: Send) -> None:
    """Send the page, and announce that the connection will be closed."""
    with translation.override(translation.get_language_from_request(request)):
        response = Outermost.finished(request, page(request))
    headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in response.items()]
    headers += [(b"Content-Length", str(len(response.content)).encode()), (b"Connection", b"close")]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})
