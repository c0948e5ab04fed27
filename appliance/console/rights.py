"""What a user has open ends when the right to it ends: when the user is disabled, signed out, loses a role or names,
when a token is revoked or runs out, whoever did that and by whichever way, the command line included.

Each stream and socket says how to ask whether its caller may still have it, and how to end it. While there is one the
settings database is looked at four times a second: when something was written there all are asked, else now and then,
for what ends by itself.
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

from .identity import names_for

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.25
ASK_EVERY_S = 5.0


class Open:
    """One stream or socket."""

    __slots__ = ("end", "may_go_on")

    def __init__(self, may_go_on: Callable[[], bool], end: Callable[[], None]) -> None:
        """may_go_on: asks the database, in a thread. end: called on the loop."""
        self.may_go_on = may_go_on
        self.end = end


class Watch:
    """Owned by the thread of one event loop."""

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
    """Those that may not go on. What cannot be asked goes on: the next look will tell."""
    over = []
    try:
        for one in those:
            try:
                if not one.may_go_on():
                    over.append(one)
            except DatabaseError as error:
                logger.debug("console: nobody knows who may go on: %s", error)
        return over
    finally:
        connection.close()


class Changes:
    """Whether anybody has written to the settings database since the last look. Costs some microseconds."""

    def __init__(self) -> None:
        self._file: sqlite3.Connection | None = None
        self._version: Any = None
        name = settings.DATABASES["default"]["NAME"]
        if isinstance(name, Path):  # tests have theirs in memory
            with contextlib.suppress(sqlite3.Error):
                self._file = sqlite3.connect(f"{name.absolute().as_uri()}?mode=ro", uri=True)
        self.has_changed()

    def has_changed(self) -> bool:
        """True, too, where that cannot be told."""
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
    """The running loop's: the server has one loop, tests have many."""
    return _watches.setdefault(asyncio.get_running_loop(), Watch())


def of(user: Any) -> tuple[Any, ...]:
    """Who somebody is and what they may; when it is another the next time, what they have open ends."""
    return (user.kind, user.pk, user.label, user.role, user.may_read_bodies, user.may_export, names_for(user))


def asked_again(scope: dict[str, Any]) -> ASGIRequest:
    """The request of a scope once more, as the middleware hands it to a view, with the caller of now."""
    from django.contrib.sessions.backends.db import SessionStore

    from .middleware import caller_of, client_address

    request = ASGIRequest({**scope, "type": "http", "method": "GET"}, BytesIO())
    request.session = SessionStore(request.COOKIES.get(str(settings.SESSION_COOKIE_NAME)))
    request.client_address = client_address(request)
    request.user = caller_of(request)
    return request


def goes_on(scope: dict[str, Any], before: tuple[Any, ...]) -> bool:
    """Whether the caller of a request is still the same, with the same rights."""
    from .middleware import comes_first

    request = asked_again(scope)
    user: Any = request.user
    return bool(user.is_authenticated) and of(user) == before and not comes_first(request, user)
