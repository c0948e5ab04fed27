"""Sessions: each has a row beside Django's own, so that users can see where they are signed in, and end sessions.

If a session's row is gone, the session ends at its next request (`identity.user_of`).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import DatabaseError
from django.utils import timezone

from ..models import SignIn, User, now_ms

if TYPE_CHECKING:
    from django.http import HttpRequest

# Most sessions of one user; then the ones that were not used for longest end.
MOST_EACH = 100
# The time at which a session was last seen is written at most this often.
_SEEN_STEP_MS = 60_000


def begin(request: HttpRequest, user: User, way: str) -> int:
    """Insert the row of a new session and return its number. Rows of expired sessions are deleted, and Django's, which
    deletes none itself."""
    SignIn.objects.filter(seen_ms__lt=_oldest_ms()).delete()
    Session.objects.filter(expire_date__lt=timezone.now()).delete()
    row = SignIn.objects.create(user=user, address=_address(request), agent=_agent(request), way=way)
    over = SignIn.objects.filter(user=user).order_by("-seen_ms", "-pk").values_list("pk", flat=True)[MOST_EACH:]
    SignIn.objects.filter(pk__in=list(over)).delete()
    return int(row.pk)


def row(number: int | None) -> SignIn | None:
    """Return the row, with its user loaded; None if the session has ended."""
    return None if number is None else SignIn.objects.select_related("user").filter(pk=number).first()


def seen(found: SignIn, request: HttpRequest) -> None:
    """Store now and then when and from where the session was used. A failed write, as on a full disk, is ignored."""
    now = now_ms()
    if now - found.seen_ms > _SEEN_STEP_MS:
        with contextlib.suppress(DatabaseError):
            SignIn.objects.filter(pk=found.pk).update(seen_ms=now, address=_address(request))


def of(user: User) -> list[SignIn]:
    """Return a user's sessions that have not expired, the one seen last first."""
    return list(SignIn.objects.filter(user=user, seen_ms__gte=_oldest_ms()))


def end(number: int) -> None:
    """End a session: it is rejected at its next request."""
    SignIn.objects.filter(pk=number).delete()


def end_all(user: User, but: int | None = None) -> int:
    """End every session of a user, except the one with the number `but`; return how many."""
    return SignIn.objects.filter(user=user).exclude(pk=but).delete()[0]


def _oldest_ms() -> int:
    return now_ms() - int(settings.SESSION_COOKIE_AGE) * 1000


def _address(request: HttpRequest) -> str:
    return str(getattr(request, "client_address", ""))[:64]


def _agent(request: HttpRequest) -> str:
    return str(request.META.get("HTTP_USER_AGENT", ""))[:200]
