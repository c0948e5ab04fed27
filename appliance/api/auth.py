"""What the access table cannot say: which names a token may access, and what only signed-in users may do.

The caller, and whether it may call the operation at all, is settled before a handler runs (`console.middleware`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.http import HttpRequest

from ..console.recent_login import is_recent
from .errors import Refused


def may_access(request: HttpRequest, name: str) -> bool:
    """Whether a topic or group of this name may be accessed by the caller; users may access all."""
    user: Any = request.user
    return user.kind != "token" or user.may_access(name)


def require_access(request: HttpRequest, *names: str) -> None:
    """Refuse unless the caller may access every topic or group named."""
    for name in names:
        if not may_access(request, name):
            raise Refused("outside_pattern", f"This token may only access names like {pattern_of(request)}.")


def has_pattern(request: HttpRequest) -> bool:
    """Whether the caller may access some names only."""
    return pattern_of(request) != "*"


def require_all_names(request: HttpRequest) -> None:
    """Refuse a token with a pattern: what follows is about the whole broker."""
    if has_pattern(request):
        raise Refused(
            "outside_pattern", f"This is about the whole broker, and the token may only access {pattern_of(request)}."
        )


def pattern_of(request: HttpRequest) -> str:
    user: Any = request.user
    return str(user.token.pattern) if user.kind == "token" else "*"


def require_session(request: HttpRequest) -> None:
    """Require a signed-in user: a leaked token must not create others that outlive it."""
    if request.user.kind != "user":
        raise Refused("session_required", "Sign in to the console for this: a token cannot create tokens.")


def require_bodies(request: HttpRequest) -> None:
    """Refuse callers who may not read bodies: a filter tells them whatever they ask about those."""
    if not request.user.may_read_bodies:
        raise Refused("forbidden", "A filter that looks into bodies needs the right to read message bodies.")


def require_export(request: HttpRequest) -> None:
    """Refuse callers who may read bodies but not export them."""
    if not request.user.may_export:
        raise Refused("forbidden", "This needs the right to export messages.")


def require_recent_login(request: HttpRequest) -> None:
    """Refuse a session whose password was given too long ago. A token has none: its scope was chosen for the act."""
    if not is_recent(request):
        raise Refused("confirm_password", "Enter your password again at /confirm/, then repeat the request.")


def accessible(request: HttpRequest, rows: Iterable[Any], name: str = "name") -> list[Any]:
    """The rows whose topic or group the caller may access."""
    return [row for row in rows if may_access(request, getattr(row, name))]
