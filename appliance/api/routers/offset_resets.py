"""Resets of a group's offsets: made, watched until clients have taken them, and undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from ninja import Router, Status

from ... import runtime
from ...console.audit.log import audit
from ...console.groups.reset_notes import note_reset
from ...engine.errors import NotFound, StoreBroken, Unavailable
from .. import auth
from ..changes import DryRun, IfMatch, by, expected_revision, set_etag
from ..offset_schemas import OffsetResetIn, OffsetResetList, OffsetResetOut

router = Router(tags=["groups"])


@router.post("/groups/{group}/offset-resets", response={200: OffsetResetOut, 201: OffsetResetOut})
def reset_offsets(
    request: HttpRequest, response: HttpResponse, group: str, body: OffsetResetIn, if_match: IfMatch, dry_run: DryRun
) -> Any:
    """Move a group's offsets: all queues or none, in one act. 201 with its place, which shows when clients have taken
    the offsets. Connected clients are notified at once; otherwise the next one begins there."""
    auth.require_topics(request, *(body.topics or []))
    admin = runtime.window()
    target = admin.offset_target(body.to, at_ms=body.at_ms, offset=body.offset, by=body.by, queues=body.queues)
    if body.topics is None and auth.has_pattern(request):
        _require_moved(request, admin.offset_commands.reset(group, None, target, queue_id=body.queues, dry_run=True))
    options: dict[str, Any] = {"queue_id": body.queues, "revision": expected_revision(if_match), "dry_run": dry_run}
    return made(
        request, response, "group.reset", group,
        lambda: admin.offset_commands.reset(group, body.topics, target, by=by(request), **options),
    )  # fmt: skip


@router.get("/groups/{group}/offset-resets", response=OffsetResetList)
def list_offset_resets(request: HttpRequest, group: str) -> Any:
    """Moves of a group's offsets in the last 24 h, also by admin tools; the newest first."""
    return {"items": runtime.window().offsets.of_group(group)}


@router.get("/groups/{group}/offset-resets/{int:reset_id}", response=OffsetResetOut)
def offset_reset(request: HttpRequest, group: str, reset_id: int) -> Any:
    """One reset, queue by queue, as it stands now."""
    return _of(group, reset_id)


@router.post("/groups/{group}/offset-resets/{int:reset_id}/undo", response={200: OffsetResetOut, 201: OffsetResetOut})
def undo_offset_reset(
    request: HttpRequest, response: HttpResponse, group: str, reset_id: int, if_match: IfMatch, dry_run: DryRun
) -> Any:
    """Move the queues back to their offsets before a reset, for 24 h. 409 when it was taken back before, or when none
    of its queues can be moved back."""
    _require_moved(request, _of(group, reset_id))
    revision = expected_revision(if_match)
    return made(
        request, response, "group.undo_reset", group,
        lambda: runtime.window().offset_commands.undo(reset_id, revision=revision, dry_run=dry_run, by=by(request)),
    )  # fmt: skip


def made(request: HttpRequest, response: HttpResponse, action: str, group: str, act: Callable[[], Any]) -> Any:
    """Do it and write it down; 200 for a preview."""
    try:
        done = act()
    except (Unavailable, StoreBroken) as error:
        audit(request, action, group, after={"reason": str(error)}, result="failed")
        raise
    if not done.applied:
        set_etag(response, done.revision)
        return Status(200, done)
    note_reset(request, action, done)
    response.headers["Location"] = f"/api/v1/groups/{quote(done.group, safe='')}/offset-resets/{done.id}"
    return Status(201, done)


def _require_moved(request: HttpRequest, reset: Any) -> None:
    """Refuse unless the caller may access all topics whose queues it is about."""
    auth.require_topics(request, *{move.topic for move in reset.moves})


def _of(group: str, reset_id: int) -> Any:
    found = runtime.window().offsets.one(reset_id)
    if found.group != group:
        raise NotFound("reset", str(reset_id))
    return found
