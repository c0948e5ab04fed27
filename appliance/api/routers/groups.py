"""Consumer groups: the list, one group's settings, members and progress."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status

from ... import runtime
from ...console.audit.log import audit
from ...console.groups.clone import GroupClone
from ...console.users.access import allows
from ...engine.errors import InvalidInput, StoreBroken, Unavailable
from ...engine.window.snapshots import Change, GroupDetail, GroupPace
from .. import auth
from ..changes import DryRun, Force, IfMatch, by, created, expected_revision, make_change, set_etag
from ..paging import Cursor, Limit, table
from ..schemas import Text
from ..topic_schemas import (
    ClonedOut,
    CloneIn,
    DiagnosisOut,
    GroupClientList,
    GroupIn,
    GroupPage,
    GroupPatch,
    ProgressList,
    QueueNowPage,
)

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
    page = lambda number, size: runtime.window().groups.page(q, system, online, sort, number, size)  # noqa: E731
    return table(request, page, cursor, limit, ("groups", q, system, online, sort), "name", "group")


@router.post("/groups", response={200: Change, 201: Change})
def create_group(request: HttpRequest, response: HttpResponse, body: GroupIn, dry_run: DryRun) -> Any:
    """Create a consumer group. 409 when it exists."""
    auth.require_groups(request, body.name)
    return created(request, response, make_change(
        request, response, "group.create", body.name,
        lambda: runtime.window().group_commands.create(**body.model_dump(), dry_run=dry_run, by=by(request)),
    ))  # fmt: skip


@router.get("/groups/{group}", response=GroupDetail)
def group_detail(request: HttpRequest, response: HttpResponse, group: str) -> Any:
    """A group's lag, settings, subscriptions and their conflicts; the ETag is its settings' revision."""
    detail = runtime.window().groups.detail(group)
    set_etag(response, None if detail.settings is None else detail.settings.revision)
    return detail


@router.patch("/groups/{group}", response=Change)
def edit_group(
    request: HttpRequest, response: HttpResponse, group: str, body: GroupPatch, if_match: IfMatch, dry_run: DryRun
) -> Any:
    """Change the settings given and leave the others."""
    change = body.model_dump(exclude_unset=True) | {"revision": expected_revision(if_match)}
    return make_change(
        request, response, "group.edit", group,
        lambda: runtime.window().group_commands.edit(group, **change, dry_run=dry_run, by=by(request)),
    )  # fmt: skip


@router.delete("/groups/{group}", response=Change)
def delete_group(
    request: HttpRequest,
    response: HttpResponse,
    group: str,
    if_match: IfMatch,
    dry_run: DryRun,
    force: Force,
    offsets: bool = Query(True, description="Delete its offsets and retries too."),
) -> Any:
    """Delete a group; `warnings` say what stays. 409 with blockers while it has unread messages or clients."""
    options: dict[str, Any] = {"revision": expected_revision(if_match), "offsets": offsets, "force": force}
    return make_change(
        request, response, "group.delete", group,
        lambda: runtime.window().group_commands.delete(group, **options, dry_run=dry_run, by=by(request)),
    )  # fmt: skip


@router.get("/groups/{group}/clients", response=GroupClientList)
def group_clients(request: HttpRequest, group: str) -> Any:
    """The group's connected clients."""
    return {"items": runtime.window().groups.detail(group).members}


@router.get("/groups/{group}/progress", response=ProgressList)
def group_progress(request: HttpRequest, group: str) -> Any:
    """Offsets and lag of every queue of every topic that the group consumes."""
    return {"items": runtime.window().groups.detail(group).queues}


QueueSort = Literal[
    "queue", "lag", "lag_time", "committed", "end", "idle", "-queue", "-lag", "-lag_time", "-committed", "-end", "-idle"
]


@router.get("/groups/{group}/queues", response=QueueNowPage)
def group_queues(
    request: HttpRequest,
    group: str,
    cursor: Cursor,
    limit: Limit,
    topic: Text | None = Query(None, max_length=1024, description="Of this topic only."),
    q: Text = Query("", max_length=255, description="Part of the topic's name."),
    sort: QueueSort = "-lag",
) -> Any:
    """The group's queues, a page at a time: offsets, lag, the client that has each, its next unread message."""
    page = lambda number, size: runtime.window().group_now.queues(group, topic, q, sort, number, size)  # noqa: E731
    return table(request, page, cursor, limit, ("queues", group, topic, q, sort))


@router.get("/groups/{group}/pace", response=GroupPace)
def group_pace(request: HttpRequest, group: str) -> Any:
    """The group's speed, the time until it has caught up, and its lag of the last ten minutes."""
    return runtime.window().group_now.pace(group)


@router.get("/groups/{group}/diagnosis", response=DiagnosisOut)
def group_diagnosis(request: HttpRequest, group: str) -> Any:
    """Diagnosis of a group: the faults, with the figures that show them; the checks that passed; and those that cannot
    be decided, and why."""
    return runtime.window().diagnosis.of(group, auth.names(request).has_topic)


@router.post("/groups/{group}/pause", response=Change)
def pause_group(request: HttpRequest, response: HttpResponse, group: str, dry_run: DryRun) -> Any:
    """Refuse its clients' pulls until it is resumed. They stay connected, and still consume what they have pulled."""
    return _switch(request, response, group, False, dry_run)


@router.post("/groups/{group}/resume", response=Change)
def resume_group(request: HttpRequest, response: HttpResponse, group: str, dry_run: DryRun) -> Any:
    """Have a paused group consume again, from its committed offsets."""
    return _switch(request, response, group, True, dry_run)


def _switch(request: HttpRequest, response: HttpResponse, group: str, on: bool, dry_run: bool) -> Any:
    return make_change(
        request, response, "group.resume" if on else "group.pause", group,
        lambda: runtime.window().group_commands.edit(group, consume_enable=on, dry_run=dry_run, by=by(request)),
    )  # fmt: skip


@router.post("/groups/{group}/clone", response={200: ClonedOut, 201: ClonedOut})
def clone_group(request: HttpRequest, group: str, body: CloneIn, if_match: IfMatch, dry_run: DryRun) -> Any:
    """Have another group take over this one's offsets, settings or both. If-Match: the revision of the dry run's
    offsets."""
    auth.require_groups(request, body.target)
    if not body.offsets and not body.settings:
        raise InvalidInput("offsets", "choose offsets, settings, or both")
    may_edit = allows(request.user, "group_edit")
    clone = GroupClone(runtime.window(), group, **body.model_dump(), may_edit=may_edit, by=by(request))
    if dry_run or auth.has_pattern(request):
        plan = clone.plan()
        if plan.offsets is not None:
            auth.require_topics(request, *{move.topic for move in plan.offsets.moves})
        if dry_run:
            return Status(200, plan)
    try:
        done = clone.apply(expected_revision(if_match))
    except (Unavailable, StoreBroken) as error:
        audit(request, "group.clone", body.target, after={"reason": str(error)}, result="failed")
        raise
    clone.note(request, done)
    return Status(201, done)
