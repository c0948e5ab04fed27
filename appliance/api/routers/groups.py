"""Consumer groups: the list, one group's settings, members and progress."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from ... import runtime
from .. import auth
from ..changes import DryRun, Force, IfMatch, by, created, expected_revision, make_change, set_etag
from ..paging import Cursor, Limit, table
from ..schemas import ChangeOut, Text
from ..topic_schemas import GroupClientList, GroupIn, GroupOut, GroupPage, GroupPatch, ProgressList

router = Router(tags=["groups"])

Sort = Literal[
    "name", "lag", "lag_time", "clients", "topics", "out_rate", "retries", "dead_letters",
    "-name", "-lag", "-lag_time", "-clients", "-topics", "-out_rate", "-retries", "-dead_letters",
]  # fmt: skip


@router.get("/groups", response=GroupPage)
def list_groups(
    request: HttpRequest,
    cursor: Cursor,
    limit: Limit,
    q: Text = Query("", max_length=255, description="Part of the name."),
    system: bool = Query(False, description="Include system groups."),
    online: bool | None = Query(
        None, description="true: only groups with connected clients; false: only those without."
    ),
    sort: Sort = Query("name", description="Sort by this; put `-` before it for the largest first."),
) -> Any:
    """Consumer groups with their lag in messages and in time."""
    page = lambda number, size: runtime.window().groups(q, system, online, sort, number, size)  # noqa: E731
    return table(request, page, cursor, limit, ("groups", q, system, online, sort), kind="group")


@router.post("/groups", response={200: ChangeOut, 201: ChangeOut})
def create_group(request: HttpRequest, response: HttpResponse, body: GroupIn, dry_run: DryRun) -> Any:
    """Create a consumer group. 409 when it exists."""
    auth.require_groups(request, body.name)
    return created(request, response, make_change(
        request, response, "group.create", body.name,
        lambda: runtime.window().create_group(**body.model_dump(), dry_run=dry_run, by=by(request)),
    ))  # fmt: skip


@router.get("/groups/{group}", response=GroupOut)
def group_detail(request: HttpRequest, response: HttpResponse, group: str) -> Any:
    """A group's lag, settings, subscriptions and their conflicts; the ETag is its settings' revision."""
    auth.require_groups(request, group)
    detail = runtime.window().group(group)
    set_etag(response, None if detail.settings is None else detail.settings.revision)
    return detail


@router.patch("/groups/{group}", response=ChangeOut)
def edit_group(
    request: HttpRequest, response: HttpResponse, group: str, body: GroupPatch, if_match: IfMatch, dry_run: DryRun
) -> Any:
    """Change the settings given and leave the others."""
    auth.require_groups(request, group)
    change = body.model_dump(exclude_unset=True) | {"revision": expected_revision(if_match)}
    return make_change(
        request, response, "group.edit", group,
        lambda: runtime.window().edit_group(group, **change, dry_run=dry_run, by=by(request)),
    )  # fmt: skip


@router.delete("/groups/{group}", response=ChangeOut)
def delete_group(
    request: HttpRequest,
    response: HttpResponse,
    group: str,
    if_match: IfMatch,
    dry_run: DryRun,
    force: Force,
    offsets: bool = Query(True, description="Delete its offsets too."),
) -> Any:
    """Delete a group; `warnings` say what stays. 409 with blockers while it has unread messages or clients."""
    auth.require_groups(request, group)
    if not dry_run:
        auth.require_recent_login(request)
    options: dict[str, Any] = {"revision": expected_revision(if_match), "offsets": offsets, "force": force}
    return make_change(
        request, response, "group.delete", group,
        lambda: runtime.window().delete_group(group, **options, dry_run=dry_run, by=by(request)),
    )  # fmt: skip


@router.get("/groups/{group}/clients", response=GroupClientList)
def group_clients(request: HttpRequest, group: str) -> Any:
    """Its connected clients."""
    auth.require_groups(request, group)
    return {"items": runtime.window().group(group).clients}


@router.get("/groups/{group}/progress", response=ProgressList)
def group_progress(request: HttpRequest, group: str) -> Any:
    """Offsets and lag of every queue of every topic it consumes."""
    auth.require_groups(request, group)
    return {"items": runtime.window().group(group).queues}
