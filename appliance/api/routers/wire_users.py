"""Users of the wire, who sign requests to the broker, and their entries. Users of the console are in `users`.

A token that may not read message bodies cannot give the right to consume them: it makes no Super users, no secrets for
users that exist, and no entries.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Path, Query, Router

from ... import runtime
from ...console.users.user_acts import require_not_more
from ...console.users.wire_imports import take
from ...console.users.wire_user_views import BUTTONS, DELETED, ENTRY_DELETED, ENTRY_SET, SET
from ...engine.window.access.snapshots import Comparison, Decision, ImportReport, WireUser, WireUserChange
from ..changes import DryRun, IfMatch, by, created, expected_revision, make_change, set_etag
from ..paging import Cursor, Limit, table
from ..schemas import Text
from ..wire_user_schemas import (
    AccessPage,
    EntryIn,
    EntryList,
    ImportIn,
    Policy,
    QuotasIn,
    RefusalPage,
    SecretIn,
    WireUserIn,
    WireUserPage,
)

router = Router(tags=["wire users"])


@router.get("/wire-users", response=WireUserPage)
def list_wire_users(
    request: HttpRequest,
    cursor: Cursor,
    limit: Limit,
    q: Text = Query("", max_length=64, description="Part of the name."),
    sort: str = Query("name", description="name, type, state or entries; put `-` before it for the largest first."),
) -> Any:
    """Users who sign requests to the broker. 409 while access control is off."""
    page = lambda number, size: runtime.window().users.page(q, sort, number, size)  # noqa: E731
    return table(request, page, cursor, limit, ("wire-users", q, sort))


@router.get("/wire-access", response=AccessPage)
def list_wire_access(
    request: HttpRequest,
    cursor: Cursor,
    limit: Limit,
    resource: Text = Query(..., max_length=300, description="One topic, group or cluster, as `Topic:orders`."),
    sort: str = Query("user", description="user or type; put `-` before it for the largest first."),
) -> Any:
    """The users of the wire who may do something on one resource. 409 while access control is off."""
    page = lambda number, size: runtime.window().users.who_may(resource, sort, number, size)  # noqa: E731
    return table(request, page, cursor, limit, ("wire-access", resource, sort))


@router.get("/wire-refusals", response=RefusalPage)
def list_wire_refusals(
    request: HttpRequest,
    cursor: Cursor,
    limit: Limit,
    q: Text = Query("", max_length=300, description="Part of the user's name or of the resource."),
    sort: str = Query("-last", description="user, resource, count or last; put `-` before it for the largest first."),
) -> Any:
    """What was refused to users of the wire since the start, or would be in report mode, without what their entries
    allow by now. 409 while access control is off."""
    page = lambda number, size: runtime.window().users.refusals(q, sort, number, size)  # noqa: E731
    return table(request, page, cursor, limit, ("wire-refusals", q, sort))


@router.post("/wire-users", response={200: WireUserChange, 201: WireUserChange})
def create_wire_user(request: HttpRequest, response: HttpResponse, body: WireUserIn, dry_run: DryRun) -> Any:
    """Make a user of the wire. A secret that RocketBox makes is in this answer and nowhere else. 409 when it exists."""
    if body.user_type == "Super":
        _may_give(request)
    return created(request, response, make_change(
        request, response, SET, body.name,
        lambda: runtime.window().users.create(**body.model_dump(), dry_run=dry_run, by=by(request)),
    ))  # fmt: skip


@router.post("/wire-imports", response=ImportReport)
def import_accounts(request: HttpRequest, body: ImportIn, dry_run: DryRun) -> Any:
    """Make users of the wire of the accounts in a file of Apache's ACL 1.0. Those that exist stay as they are."""
    _may_give(request)
    return take(request, body.text, dry_run=dry_run)


@router.get("/wire-users/{name}", response=WireUser)
def wire_user(request: HttpRequest, response: HttpResponse, name: str) -> Any:
    """One user of the wire, with its entries."""
    found = runtime.window().users.one(name)
    set_etag(response, found.revision)
    return found


@router.delete("/wire-users/{name}", response=WireUserChange)
def delete_wire_user(
    request: HttpRequest, response: HttpResponse, name: str, if_match: IfMatch, dry_run: DryRun
) -> Any:
    """Delete a user of the wire with its secrets and entries. 409 for the last Super user who is enabled."""
    terms = _terms(request, if_match, dry_run, gives=False)
    return make_change(request, response, DELETED, name, lambda: runtime.window().users.delete(name, **terms))


@router.post("/wire-users/{name}/acts/{act}", response=WireUserChange)
def act_on_wire_user(
    request: HttpRequest,
    response: HttpResponse,
    name: str,
    if_match: IfMatch,
    dry_run: DryRun,
    body: SecretIn | None = None,
    act: str = Path(..., description=f"One of {', '.join(BUTTONS)}."),
) -> Any:
    """Enable or disable a user of the wire, change its type, its secrets, or whether it has to come over TLS.

    `rotate` makes a second secret, which is in this answer and nowhere else, or takes yours; the first one stays good
    until `end-old-secret`. 409 if it cannot be done now."""
    terms = _terms(request, if_match, dry_run, gives=act in BUTTONS and BUTTONS[act].gives)
    terms["secret"] = None if body is None else body.secret
    return make_change(request, response, SET, name, lambda: runtime.window().users.act(name, act, **terms))


@router.patch("/wire-users/{name}/quotas", response=WireUserChange)
def change_quotas(
    request: HttpRequest, response: HttpResponse, name: str, body: QuotasIn, if_match: IfMatch, dry_run: DryRun
) -> Any:
    """Change how much a user of the wire may send, pull and ask, and on how many connections. It counts at once."""
    return _set_quotas(request, response, name, body.model_dump(exclude_unset=True), if_match, dry_run)


@router.delete("/wire-users/{name}/quotas", response=WireUserChange)
def remove_quotas(request: HttpRequest, response: HttpResponse, name: str, if_match: IfMatch, dry_run: DryRun) -> Any:
    """Let the defaults count for a user of the wire."""
    return _set_quotas(request, response, name, dict.fromkeys(QuotasIn.model_fields), if_match, dry_run)


def _set_quotas(
    request: HttpRequest,
    response: HttpResponse,
    name: str,
    changes: dict[str, int | None],
    if_match: str | None,
    dry_run: bool,
) -> Any:
    terms = _terms(request, if_match, dry_run, gives=False)
    return make_change(request, response, SET, name, lambda: runtime.window().users.set_quotas(name, changes, **terms))


@router.get("/wire-users/{name}/decision", response=Decision)
def decide(
    request: HttpRequest,
    name: str,
    action: Text = Query(..., max_length=20, description="Pub, Sub, Create, Update, Delete, Get or List."),
    resource: Text = Query(..., max_length=300, description="One topic, group or cluster, as `Topic:orders`."),
    address: Text = Query("127.0.0.1", max_length=60, description="The client's address."),
) -> Any:
    """Whether a user may do something, the entry that decides, and those that do not."""
    return runtime.window().users.decide(name, action, resource, address)


@router.get("/wire-users/{name}/comparison", response=Comparison)
def compare(request: HttpRequest, name: str) -> Any:
    """What RocketMQ 5.3.3 would decide otherwise by a user's entries, for each name and prefix in them."""
    return runtime.window().users.compare(name)


@router.get("/wire-users/{name}/entries", response=EntryList)
def list_entries(request: HttpRequest, name: str) -> Any:
    """What a user of the wire may do, in the order in which it was said."""
    return {"items": runtime.window().users.one(name).entries}


@router.post("/wire-users/{name}/entries", response=WireUserChange)
def put_entry(
    request: HttpRequest, response: HttpResponse, name: str, body: EntryIn, if_match: IfMatch, dry_run: DryRun
) -> Any:
    """Add an entry; it takes the place of the one of the same policy and resource."""
    terms = _terms(request, if_match, dry_run, gives=True)
    return make_change(
        request,
        response,
        ENTRY_SET,
        name,
        lambda: runtime.window().users.put_entry(name, **body.model_dump(), **terms),
    )


@router.delete("/wire-users/{name}/entries/{path:resource}", response=WireUserChange)
def remove_entry(
    request: HttpRequest,
    response: HttpResponse,
    name: str,
    resource: str,
    if_match: IfMatch,
    dry_run: DryRun,
    policy: Policy = Query("Custom", description="Of which kind the entry is."),
) -> Any:
    """Remove an entry. It may have denied something, so it may give a right."""
    terms = _terms(request, if_match, dry_run, gives=True)
    return make_change(
        request,
        response,
        ENTRY_DELETED,
        name,
        lambda: runtime.window().users.remove_entry(name, resource, policy, **terms),
    )


def _terms(request: HttpRequest, if_match: str | None, dry_run: bool, *, gives: bool) -> dict[str, Any]:
    """Return the terms of a change of a user that exists. gives: it may give a right or a secret."""
    if gives:
        _may_give(request)
    return {"revision": expected_revision(if_match), "dry_run": dry_run, "by": by(request)}


def _may_give(request: HttpRequest) -> None:
    """Refuse callers who may not give a right or a secret."""
    require_not_more(request.user, {"may_read_bodies": True})
