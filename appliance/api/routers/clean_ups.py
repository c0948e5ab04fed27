"""Cleaning up unused groups, topics and offsets."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from ... import runtime
from ...engine.window.snapshots import CleanUp
from ..changes import DryRun, IfMatch, audited, by, expected_revision
from ..topic_schemas import CleanUpIn

router = Router(tags=["groups"])


@router.post("/clean-ups", response=CleanUp)
def clean_up(request: HttpRequest, body: CleanUpIn, if_match: IfMatch, dry_run: DryRun) -> Any:
    """Delete unused groups, topics or offsets, which are kept for ever otherwise. A group goes when it has no members,
    no offsets, and no message was ever sent back; with its empty retry and dead letter topics. A topic goes when it has
    no messages, no offsets and no subscribers, and none waits for it. Offsets go when their topic or group is gone.
    If-Match: the revision of the dry run; 409 when something else would go by now. `left`: repeat it."""
    if dry_run:
        return runtime.window().clean_ups.clean(**body.model_dump(), dry_run=True)
    revision = expected_revision(if_match)
    return audited(
        request, "clean_up.apply", body.kind,
        lambda: runtime.window().clean_ups.clean(**body.model_dump(), revision=revision, by=by(request)),
        after_line,
    )  # fmt: skip


def after_line(done: Any) -> dict[str, Any]:
    """Details for the audit log."""
    return {"count": done.count, "left": done.left, "first": [one.group or one.topic for one in done.items[:20]]}
