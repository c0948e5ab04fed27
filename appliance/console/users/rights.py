"""Ends open streams and sockets when their user loses the right to them: when the user is disabled, signed out, or
loses a role or names, or when a token is revoked or expires, no matter how, the command line included.

Each stream and socket has a function that checks its caller's rights, and one that ends it. While any is open, the
settings database is checked for writes four times a second. After a write all callers are checked; without one they are
checked now and then, for rights that expire.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.db import DatabaseError, connection

from ..sign_in.identity import names_for

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.25
ASK_EVERY_S = 5.0


class Open:
    """One open stream or socket."""

    __slots__ = ("end", "may_go_on")

    def __init__(self, may_go_on: Callable[[], bool], end: Callable[[], None]) -> None:
        """may_go_on: reads the database; called in a thread. end: called on the loop."""
        self.may_go_on = may_go_on
        self.end = end


class Watch:
    """The open streams and sockets of one event loop. Owned by its thread."""

    def __init__(self) -> None:
        self._open: set[Open] = set()
        self._task: asyncio.Task[None] | None = None

    def add(self, one: Open) -> None:
        self._open.add(one)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def remove(self, one: Open) -> None:
        self._open.discard(one)

    async def _run(self) -> None:
        database = Changes()
        asked_at = time.monotonic()
        try:
            while self._open:
                await asyncio.sleep(LOOK_EVERY_S)
                now = time.monotonic()
                if not database.has_changed() and now - asked_at < ASK_EVERY_S:
                    continue
                asked_at = now
                for one in await asyncio.to_thread(_over, list(self._open)):
                    if one in self._open:
                        self._open.discard(one)
                        one.end()
        finally:
            self._task = None
            database.close()


def _over(those: list[Open]) -> list[Open]:
    """Return those that may not go on. If the database fails, one goes on until the next check."""
    over = []
    try:
        for one in those:
            try:
                if not one.may_go_on():
                    over.append(one)
            except DatabaseError as error:
                logger.debug("console: rights cannot be read: %s", error)
        return over
    finally:
        connection.close()


class Changes:
    """Detects writes to the settings database by any connection. A check costs some microseconds."""

    def __init__(self) -> None:
        self._file: sqlite3.Connection | None = None
        self._version: Any = None
        name = settings.DATABASES["default"]["NAME"]
        if isinstance(name, Path):  # the database of tests is in memory
            with contextlib.suppress(sqlite3.Error):
                self._file = sqlite3.connect(f"{name.absolute().as_uri()}?mode=ro", uri=True)
        self.has_changed()

    def has_changed(self) -> bool:
        """True if the database was written to since the last call, or if that is not known."""
        if self._file is None:
            return True
        before = self._version
        try:
            self._version = self._file.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return True
        return bool(before != self._version)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, Watch] = WeakKeyDictionary()


def watch() -> Watch:
    """Return the watch of the running event loop: the server has one loop, tests have many."""
    return _watches.setdefault(asyncio.get_running_loop(), Watch())


def of(user: Any) -> tuple[Any, ...]:
    """Return the identity and rights of a caller as a value: if it changes, the caller's streams and sockets end."""
    return (user.kind, user.pk, user.label, user.role, user.may_read_bodies, user.may_export, names_for(user))


def asked_again(scope: dict[str, Any]) -> ASGIRequest:
    """Return the request of a scope again, as the middleware hands it to a view, with its present caller."""
    from django.contrib.sessions.backends.db import SessionStore

    from ..middleware import caller_of, client_address

    request = ASGIRequest({**scope, "type": "http", "method": "GET"}, BytesIO())
    request.session = SessionStore(request.COOKIES.get(str(settings.SESSION_COOKIE_NAME)))
    request.client_address = client_address(request)
    request.user = caller_of(request)
    return request


def goes_on(scope: dict[str, Any], before: tuple[Any, ...]) -> bool:
    """True if the caller of a request is still the same, with the same rights."""
    from ..middleware import comes_first

    request = asked_again(scope)
    user: Any = request.user
    return bool(user.is_authenticated) and of(user) == before and not comes_first(request, user)
