"""What the table of access cannot say: names a token may touch, and acts that are for people.

Who is asking and whether they may call an operation at all was settled before a handler runs (`console.middleware`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.http import HttpRequest

from ..console.recent_login import is_recent
from .errors import Refused


def may_touch(request: HttpRequest, name: str) -> bool:
    """Whether a topic or group of this name is within the caller's reach; people reach everything."""
    user: Any = request.user
    return user.kind != "token" or user.may_touch(name)


def touch(request: HttpRequest, *names: str) -> None:
    """Refuse unless every topic or group named is within the caller's reach."""
    for name in names:
        if not may_touch(request, name):
            raise Refused("outside_pattern", f"This token may only access names like {pattern_of(request)}.")


def is_limited(request: HttpRequest) -> bool:
    """Whether the caller reaches some names only."""
    return pattern_of(request) != "*"


def need_everything(request: HttpRequest) -> None:
    """Refuse a token with a pattern: what follows is about the whole broker."""
    if is_limited(request):
        raise Refused(
            "outside_pattern", f"This is about the whole broker, and the token may touch {pattern_of(request)} only."
        )


def pattern_of(request: HttpRequest) -> str:
    user: Any = request.user
    return str(user.token.pattern) if user.kind == "token" else "*"


def need_person(request: HttpRequest) -> None:
    """Refuse tokens: one that leaked must not make others that outlive it."""
    if request.user.kind != "user":
        raise Refused("session_required", "Sign in to the console for this: a token cannot create tokens.")


def need_export(request: HttpRequest) -> None:
    """Refuse whoever may read bodies and not take them away."""
    if not request.user.may_export:
        raise Refused("forbidden", "This needs the right to export messages.")


def need_recent_login(request: HttpRequest) -> None:
    """Refuse a session whose password was given too long ago. A token has none: its scope was chosen for the act."""
    if not is_recent(request):
        raise Refused("confirm_password", "Enter your password again at /confirm/, then repeat the request.")


def within_reach(request: HttpRequest, rows: Iterable[Any], name: str = "name") -> list[Any]:
    """The rows whose topic or group the caller may touch."""
    return [row for row in rows if may_touch(request, getattr(row, name))]
