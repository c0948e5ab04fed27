"""Long answers: live feeds, pages that wait for news, files in pieces. A user may have STREAMS_EACH of them at a time;
each counts from before it begins until its request has ended."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from typing import Any

from django.http import HttpRequest

from ..middleware import turn_of

STREAMS_EACH = 8

_lock = threading.Lock()
# Guarded by _lock: open streams by user.
_open: Counter[Any] = Counter()


class Stream:
    """One stream's place in the count of its user. Any thread."""

    def __init__(self, user: Any) -> None:
        self._user = user
        self._ended = False

    def end(self) -> None:
        """Give the place back. Further calls do nothing."""
        with _lock:
            if not self._ended:
                self._ended = True
                _open[self._user] -= 1
                if not _open[self._user]:
                    del _open[self._user]


def begin(request: HttpRequest) -> Stream | None:
    """Return a place for the caller's next stream; None if they have STREAMS_EACH already. It ends with the request at
    the latest."""
    user: Any = request.user.pk
    with _lock:
        if _open[user] >= STREAMS_EACH:
            return None
        _open[user] += 1
    stream = Stream(user)
    turn = turn_of(request)
    if turn is not None:
        turn.at_end(stream.end)
    return stream


def rendering(request: HttpRequest) -> contextlib.AbstractAsyncContextManager[None]:
    """Return the context in which a stream renders after it has begun: it holds a turn, as a page does."""
    turn = turn_of(request)
    return contextlib.nullcontext() if turn is None else turn.again()
