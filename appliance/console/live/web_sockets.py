"""The console's WebSockets: addresses, and the live tail's consumer. Imported when the first browser opens one.

A browser sends its cookies no matter which page opens a socket, so the Origin must be this console's, as with a form.
The caller is checked at the beginning, in a turn as for a page, since strangers may knock as often as they like. If the
session ends or a right is taken away, the socket ends (`rights`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from channels.generic.websocket import AsyncWebsocketConsumer
from channels.routing import URLRouter
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.urls import path, re_path

from ... import runtime
from ...engine.errors import AdminError, NotFound
from ..audit.log import Actor, record
from ..middleware import client_address, comes_first
from ..sign_in.identity import names_for
from ..users import rights
from ..users.access import ACCESS
from .tail import TooMany, Viewer, live_tail, wish_of

if TYPE_CHECKING:
    from ...engine.window.messages.tail import Wanted

#: Seconds between two heartbeats; a browser that sends nothing for SILENCE_S counts as gone.
HEARTBEAT_S = 15.0
SILENCE_S = 50.0
#: Most messages of a browser between two heartbeats; the console's own page sends fewer.
MOST_SAID = 60
#: Close code of sockets that got the reason in a message before.
ENDED = 4000
#: Key in the scope of a socket for `Turns.run`.
_RUN = "rocketbox.run"


class TailSocket(AsyncWebsocketConsumer):
    """Sends a topic's new messages, in frames from `live_tail`. The browser sends "pause", "go on" and "here"."""

    def __init__(self) -> None:
        super().__init__()
        # Owned by the event loop's thread. None until the tail has begun.
        self._viewer: Viewer | None = None
        self._sender: asyncio.Task[None] | None = None
        self._wish: Wanted | None = None
        # (user, label, True if bodies may be read).
        self._caller: tuple[int, str, bool] | None = None
        # Ends the socket when its user loses the right to it.
        self._open: rights.Open | None = None
        self._heard_at = time.monotonic()
        # Messages of the browser since the last heartbeat.
        self._said = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:  # not in disconnect(): a server that stops does not wait for the browser's disconnect
            if self._viewer is not None and self._wish is not None:
                live_tail().remove(self._wish, self._viewer)
            if self._sender is not None:
                self._sender.cancel()
            if self._open is not None:
                rights.watch().remove(self._open)

    async def connect(self) -> None:
        caller = await self._in_turn(_caller, self.scope)
        if caller is None:
            await self.close()
            return
        await self.accept()
        self._caller = caller
        user, label, bodies = caller
        viewer = Viewer(user)
        query = ASGIRequest(_as_http(self.scope), BytesIO()).GET
        try:
            self._wish = wish_of(query, bodies)
            live_tail().add(self._wish, viewer)
        except TooMany as error:
            await self._end(f"too-many-{error.whose}")
        except NotFound:
            await self._end("gone")
        except (AdminError, runtime.EngineNotRunning):
            await self._end("unavailable")
        else:
            self._viewer = viewer
            if bodies:
                await self._in_turn(_note, self.scope, self._wish, label)
            scope = self.scope
            self._open = rights.Open(lambda: _caller(scope) == caller, lambda: viewer.end("signed-out"))
            rights.watch().add(self._open)
            self._sender = asyncio.create_task(self._go_on(viewer))

    async def _in_turn(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that uses the database."""

        def called() -> Any:
            try:
                return call(*arguments)
            finally:
                connection.close()

        return await self.scope[_RUN](_as_http(self.scope), called)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        self._heard_at = time.monotonic()
        self._said += 1
        if self._viewer is None or self._said > MOST_SAID:
            await self.close(ENDED)
        elif text_data in ("pause", "go on"):
            self._viewer.pause(text_data == "pause")

    async def _go_on(self, viewer: Viewer) -> None:
        """Send frames and heartbeats until the viewer ends."""
        await self.send('{"began": true}')
        beat_at = time.monotonic()
        with contextlib.suppress(OSError):  # the browser has gone
            while True:
                now = time.monotonic()
                if now - beat_at >= HEARTBEAT_S:
                    beat_at, self._said = now, 0
                    if now - self._heard_at > SILENCE_S:
                        viewer.end("silent")
                    else:
                        await self.send('{"beat": true}')
                text = await viewer.next(max(0.0, beat_at + HEARTBEAT_S - time.monotonic()))
                if viewer.ended:
                    await self._end(viewer.ended)
                    return
                if text is not None:
                    await self.send(text)

    async def _end(self, why: str) -> None:
        with contextlib.suppress(OSError):
            await self.send(json.dumps({"end": why}))
            await self.close(ENDED)


def _as_http(scope: dict[str, Any]) -> dict[str, Any]:
    """Return the scope of the HTTP request that opened the socket."""
    return {**scope, "type": "http", "method": "GET"}


def _caller(scope: dict[str, Any]) -> tuple[int, str, bool] | None:
    """Return (user, label, True if bodies may be read) of a caller who may watch the topic; None for other callers, and
    if another site's page opened the socket."""
    request = ASGIRequest(_as_http(scope), BytesIO())
    if not _is_ours(request):
        return None
    request = rights.asked_again(scope)
    user: Any = request.user
    if not user.is_authenticated or comes_first(request, user) or not ACCESS["message_tail"].admits(user):
        return None
    if not names_for(user).has_topic(request.GET.get("topic", "").strip()):
        return None
    return user.pk, user.label, ACCESS["message_content"].admits(user)


def _is_ours(request: ASGIRequest) -> bool:
    """True if a page of this console opened the socket."""
    origin = request.headers.get("origin", "")
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    try:
        host = request.get_host()
        found = urlsplit(origin)
    except (DisallowedHost, ValueError):  # ValueError: brackets that do not match, an address that is none
        return False
    return found.scheme in ("http", "https") and found.netloc.lower() == host.lower()


def _note(scope: dict[str, Any], wish: Wanted, label: str) -> None:
    """Write the audit log's entry about reading bodies: one for the whole tail, with its filters."""
    filters = {name: getattr(wish, name) for name in ("tags", "key", "expression") if getattr(wish, name)}
    record(
        "message.tail",
        wish.topic,
        None,
        filters,
        by=Actor(label, "user", client_address(ASGIRequest(_as_http(scope), BytesIO()))),
    )


async def _nobody(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await send({"type": "websocket.close"})  # before it was accepted, so the answer is 403


_router = URLRouter([path("messages/tail/", TailSocket.as_asgi()), re_path(r"", _nobody)])


async def application(scope: dict[str, Any], receive: Any, send: Any, run: Callable[..., Awaitable[Any]]) -> None:
    """Handle a WebSocket, also below a proxy's path. run: calls a function for a request, in a turn (`Turns.run`)."""
    path = scope["path"].removeprefix(runtime.place().base_path) or "/"
    await _router({**scope, "root_path": "", "path": path, _RUN: run}, receive, send)
