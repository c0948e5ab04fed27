"""Secrets that are shown once: the page that makes one redirects to one that shows it, so reloading makes no other.

They are kept in this process's memory for a few minutes, for the user who made them.
"""

from __future__ import annotations

import secrets
import threading
import time
from typing import Any

from django.http import HttpRequest

KEPT_S = 300.0
#: Most secrets that are kept, and most of one user, whose oldest then goes, so no user takes the room of others.
MOST, MOST_EACH = 200, 10

_lock = threading.Lock()
# Guarded by _lock. Ticket -> (whose, what, until when).
_boxes: dict[str, tuple[int, Any, float]] = {}


def keep(owner: int, what: Any) -> str:
    """Keep a value that is to be shown once; return the ticket for `take`. owner: the user's number."""
    ticket = secrets.token_urlsafe(16)
    now = time.monotonic()
    with _lock:
        for old in [name for name, (_, _, until) in _boxes.items() if until <= now]:
            del _boxes[old]
        own = [name for name, (whose, _, _) in _boxes.items() if whose == owner]
        if len(own) >= MOST_EACH:
            del _boxes[own[0]]
        while len(_boxes) >= MOST:
            del _boxes[next(iter(_boxes))]
        _boxes[ticket] = owner, what, now + KEPT_S
    return ticket


def take(request: HttpRequest, ticket: str) -> Any:
    """Return the value of a ticket, once; None if it was shown, is too old, or is another user's. A HEAD request shows
    nothing, so the ticket stays."""
    with _lock:
        found = _boxes.get(ticket)
        if found is None or found[0] != request.user.pk or found[2] <= time.monotonic():
            return None
        if request.method != "HEAD":
            del _boxes[ticket]
        return found[1]
