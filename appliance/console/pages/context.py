"""The values that every template can use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone, translation
from django.utils.functional import SimpleLazyObject

from ... import __version__, runtime
from ..sign_in.identity import AnonymousUser
from ..users.access import MASTERS_WORK, allows
from ..users.scope import opens
from . import asked
from .curl import curl
from .navigation import menu

if TYPE_CHECKING:
    from ...engine.window.window import Window


class Permissions:
    """`can.topic_create`: True if the access table admits this user to that view, and their patterns do for some names.
    False on a slave if only a master can do the view's work."""

    def __init__(self, user: Any) -> None:
        self._user = user

    def __getitem__(self, name: str) -> bool:
        if not allows(self._user, name) or not opens(self._user, name):
            return False
        return not (name in MASTERS_WORK and _slave() is not None)


def _slave() -> Window | None:
    """Return the window if the broker is a slave; None on a master, and if no engine runs."""
    try:
        window = runtime.window()
    except runtime.EngineNotRunning:
        return None
    return window if window.is_slave else None


def _slave_of() -> dict[str, object]:
    """Return facts about a slave, or a member that does not lead its set: its master's address for clients, None if
    not known, and whether it is a member of a set. Empty on a master."""
    window = _slave()
    return {} if window is None else {"address": window.master_address(), "set": window.is_member}


def environment() -> dict[str, str] | None:
    """Return the badge of this installation, its text and CSS class; None without one."""
    try:
        name = runtime.running().options.environment
    except runtime.EngineNotRunning:
        return None
    if not name:
        return None
    return {"name": name, "css": "bad" if name.lower().startswith(("prod", "live")) else "info"}


def console(request: HttpRequest) -> dict[str, object]:
    """Return the values for templates. languages: (code, name in that language, True if it is the present one)."""
    user = getattr(request, "user", None) or AnonymousUser()
    match = request.resolver_match
    can = Permissions(user)
    current = translation.get_language()
    return {
        "user": user,
        "can": can,
        "menu": SimpleLazyObject(
            lambda: [one for one in menu(user, match.view_name if match else "") if can[str(one["view"])]]
        ),
        "version": __version__,
        "languages": [(code, name, code == current) for code, name in settings.LANGUAGES],
        # Called when the page writes its notices: by then its view has read the parameters that it supports.
        "unread": lambda: asked.unread(request),
        "as_curl": lambda: curl(request),
        "zone": timezone.get_current_timezone_name(),
        "environment": environment(),
        "slave_of": SimpleLazyObject(_slave_of),
        "request_id": getattr(request, "request_id", ""),
    }
