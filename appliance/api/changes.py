"""Changes: requested with the revision that was read, answered with the new one, and recorded in the audit log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from ninja import Header, Query, Status

from ..console.audit.log import audit
from ..engine.errors import AdminError, Blocked, Conflict, StoreBroken, Unavailable
from .errors import Refused

if TYPE_CHECKING:
    from ..engine.window.snapshots import Change

IfMatch = Annotated[
    str | None,
    Header(None, alias="If-Match", max_length=256, description="The ETag you read; 412 when it has changed since."),
]
DryRun = Annotated[bool, Query(False, description="Only report what would change; change nothing.")]
Force = Annotated[bool, Query(False, description="Do it despite the `blockers`.")]


def by(request: HttpRequest) -> str:
    """The caller's name, for the engine's log."""
    return str(request.user.label)


def expected_revision(if_match: str | None) -> str | None:
    """The revision in If-Match; None without one and for "*". Several are more than an edit can mean."""
    header = "*" if if_match is None else if_match.strip()
    if header == "*":
        return None
    if len(header) < 2 or header[0] != '"' or header[-1] != '"' or '"' in header[1:-1]:
        raise Refused("revision_mismatch", "If-Match must be one strong entity tag, as sent in ETag.")
    return header[1:-1]


def set_etag(response: HttpResponse, revision: str | None) -> None:
    if revision is not None:
        response.headers["ETag"] = f'"{revision}"'


def make_change(
    request: HttpRequest, response: HttpResponse, action: str, target: str, act: Callable[[], Change]
) -> Change:
    """Do it, write it down, and set the ETag. A preview leaves no line; what was refused or failed does."""
    try:
        change = act()
    except (Blocked, Conflict) as error:
        audit(request, action, target, after={"reason": str(error)}, result="refused")
        raise
    except (Unavailable, StoreBroken) as error:
        audit(request, action, target, after={"reason": str(error)}, result="failed")
        raise
    if change.applied:
        before, after = _sides(change)
        audit(request, action, change.name, before, after)
    set_etag(response, change.revision)
    return change


def audited(request: HttpRequest, action: str, target: str, act: Callable[[], Any], after: Callable[[Any], Any]) -> Any:
    """The same for an act that is no change of settings; after(result) is what the line says."""
    try:
        result = act()
    except (AdminError, StoreBroken) as error:
        if isinstance(error, Unavailable | StoreBroken):
            audit(request, action, target, after={"reason": str(error)}, result="failed")
        raise
    audit(request, action, target, after=after(result))
    return result


def _sides(change: Change) -> tuple[dict[str, Any], dict[str, Any]]:
    before = {one.field: one.before for one in change.differences if one.before is not None}
    after = {one.field: one.after for one in change.differences if one.after is not None}
    return before, after


def created(request: HttpRequest, response: HttpResponse, change: Change) -> Status[Change]:
    """201 with the place of what was made; 200 for a preview."""
    if not change.applied:
        return Status(200, change)
    response.headers["Location"] = f"{request.path}/{quote(change.name, safe='')}"
    return Status(201, change)
