"""The console's WebSockets: addresses, and the live tail's consumer. Imported when the first browser asks for one.

A browser sends cookies along whatever page opens a socket, so the Origin must be ours, as with a form. Who comes is
asked at the beginning; a session that ends, or a right that is taken away, ends the socket (`rights`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from channels.routing import URLRouter
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.urls import path, re_path

from .. import runtime
from ..engine.errors import AdminError, NotFound
from . import rights
from .access import ACCESS
from .audit import record
from .identity import names_for
from .live_tail import TooMany, Viewer, Wish, live_tail, wish_of
from .middleware import client_address, comes_first

#: Signs of life, and after how long without one from the browser it is taken for gone.
HEARTBEAT_S = 15.0
SILENCE_S = 50.0
#: What a page has to say between two signs of life of ours; more is no page of ours.
MOST_SAID = 60
#: Own close codes: the reason was told before.
ENDED = 4000


class TailSocket(AsyncWebsocketConsumer):
    """A topic's new messages. The browser says "pause", "go on" and "here"; see `live_tail` for what it is told."""

    def __init__(self) -> None:
        super().__init__()
        # Owned by the event loop's thread. None before it watches.
        self._viewer: Viewer | None = None
        self._sender: asyncio.Task[None] | None = None
        self._wish: Wish | None = None
        # Who it is, and whether bodies may be read.
        self._caller: tuple[int, str, bool] | None = None
        # What ends it with the right to it.
        self._open: rights.Open | None = None
        self._heard_at = time.monotonic()
        # What the browser has said since our last sign of life.
        self._said = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:  # however it ends: a server that stops does not wait for the news that the browser has gone
            if self._viewer is not None and self._wish is not None:
                live_tail().remove(self._wish, self._viewer)
            if self._sender is not None:
                self._sender.cancel()
            if self._open is not None:
                rights.watch().remove(self._open)

    async def connect(self) -> None:
        caller = await database_sync_to_async(_caller)(self.scope)
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
                await database_sync_to_async(_note)(self.scope, self._wish, label)
            scope = self.scope
            self._open = rights.Open(lambda: _caller(scope) == caller, lambda: viewer.end("signed-out"))
            rights.watch().add(self._open)
            self._sender = asyncio.create_task(self._go_on(viewer))

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        self._heard_at = time.monotonic()
        self._said += 1
        if self._viewer is None or self._said > MOST_SAID:
            await self.close(ENDED)
        elif text_data in ("pause", "go on"):
            self._viewer.pause(text_data == "pause")

    async def _go_on(self, viewer: Viewer) -> None:
        """Send what comes until it ends."""
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
    """The scope as the request that the upgrade began with."""
    return {**scope, "type": "http", "method": "GET"}


def _caller(scope: dict[str, Any]) -> tuple[int, str, bool] | None:
    """(user, label, whether bodies may be read) of who may watch; None for anybody else, and for pages not ours."""
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
    """Whether a page of this console opened the socket."""
    origin = request.headers.get("origin", "")
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    try:
        host = request.get_host()
    except DisallowedHost:
        return False
    found = urlsplit(origin)
    return found.scheme in ("http", "https") and found.netloc.lower() == host.lower()


def _note(scope: dict[str, Any], wish: Wish, label: str) -> None:
    """Bodies are read: one entry for all of them, with what they were chosen by."""
    filters = {name: getattr(wish, name) for name in ("tags", "key", "expression") if getattr(wish, name)}
    record(
        "message.tail",
        wish.topic,
        None,
        filters,
        actor=label,
        actor_kind="user",
        address=client_address(ASGIRequest(_as_http(scope), BytesIO())),
    )


async def _nobody(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await send({"type": "websocket.close"})  # before it was accepted, so the answer is 403


_router = URLRouter([path("messages/tail/", TailSocket.as_asgi()), re_path(r"", _nobody)])


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """For each socket; below a proxy's path, too."""
    base = runtime.place().base_path
    await _router({**scope, "root_path": "", "path": scope["path"].removeprefix(base) or "/"}, receive, send)
