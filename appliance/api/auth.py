"""Access rules beyond the access table: names that a caller may access, and acts for signed-in users only.

The caller is identified, and its right to call the operation checked, before a handler runs (`console.middleware`).
What `install` checks depends on the row in `console/acts`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse
from ninja.utils import replace_path_param_notation

from ..console.acts import ACTS, CALLS
from ..console.acts.row import LIST, OWN, REPLAY
from ..console.sign_in.identity import names_for
from ..console.sign_in.recent_login import is_recent
from ..console.users.patterns import Names
from .errors import Refused

if TYPE_CHECKING:
    from ninja import NinjaAPI
    from ninja.operation import Operation

_PAGES = {act.name: act for act in ACTS}
_ROWS = {call.operation: (_PAGES[page], call) for page, call in CALLS}


def install(api: NinjaAPI) -> None:
    """Have every operation check its caller as its row says, once its parameters are known."""
    for bound in api._get_bound_routers():
        for path, view in bound.path_operations.items():
            for operation in view.operations:
                _guard(operation, f"{operation.methods[0]} {replace_path_param_notation(path).lstrip('/')}")


def _guard(operation: Operation, name: str) -> None:
    page, call = _ROWS[name]
    looks_itself = call.own_names or page.names in (OWN, LIST, REPLAY)
    confirms = page.confirms and (call.raw or not name.startswith("GET "))
    values = operation._get_values

    def guarded(request: HttpRequest, path_params: Any, temporal_response: HttpResponse) -> Any:
        found = values(request, path_params, temporal_response)
        if "topic" in path_params:
            require_topics(request, path_params["topic"])
        elif "group" in path_params:
            require_groups(request, path_params["group"])
        elif not looks_itself:
            require_all_names(request)
        if confirms and not found.get("dry_run"):
            require_recent_login(request)
        return found

    operation._get_values = guarded  # type: ignore[method-assign]


def names(request: HttpRequest) -> Names:
    """The topics and groups that the caller may access."""
    return names_for(request.user)


def may_access(request: HttpRequest, name: str) -> bool:
    """True if the caller may access a name, be it a topic's or a group's."""
    return names(request).has(name)


def require_topics(request: HttpRequest, *wanted: str) -> None:
    """Refuse unless the caller may access every topic named."""
    found = names(request)
    _require(found, all(found.has_topic(name) for name in wanted))


def require_groups(request: HttpRequest, *wanted: str) -> None:
    """Refuse unless the caller may access every group named."""
    found = names(request)
    _require(found, all(found.has_group(name) for name in wanted))


def require_access(request: HttpRequest, *wanted: str) -> None:
    """Refuse unless the caller may access every name, be it a topic's or a group's."""
    found = names(request)
    _require(found, all(found.has(name) for name in wanted))


def _require(found: Names, may: bool) -> None:
    if not may:
        raise Refused("outside_pattern", f"You may only access names like these: {found}.")


def has_pattern(request: HttpRequest) -> bool:
    """True if the caller may access some names only."""
    return not names(request).is_every


def require_all_names(request: HttpRequest) -> None:
    """Refuse a caller with a pattern: what follows is about the whole broker."""
    found = names(request)
    if not found.is_every:
        raise Refused("outside_pattern", f"This is about the whole broker, and you may only access {found}.")


def require_bodies(
    request: HttpRequest, why: str = "A filter that looks into bodies needs the right to read message bodies."
) -> None:
    """Refuse callers who may not read bodies: a filter tells them whatever they ask about those."""
    if not request.user.may_read_bodies:
        raise Refused("forbidden", why)


def require_export(request: HttpRequest) -> None:
    """Refuse callers who may read bodies but not export them."""
    if not request.user.may_export:
        raise Refused("forbidden", "This needs the right to export messages.")


def require_recent_login(request: HttpRequest) -> None:
    """Refuse a session whose password was given too long ago. A token has none: its scope was chosen for the act."""
    if not is_recent(request):
        raise Refused("confirm_password", "Enter your password again at /confirm/, then repeat the request.")


def accessible(request: HttpRequest, rows: Iterable[Any], name: str = "name", kind: str = "") -> list[Any]:
    """The rows whose topic or group the caller may access. name: the attribute that holds it. kind: "topic" or "group";
    without it what the attribute is called says so, and a name of either has to fit both patterns."""
    found = names(request)
    may = {"topic": found.has_topic, "group": found.has_group}.get(kind or name, found.has)
    return [row for row in rows if may(getattr(row, name))]
