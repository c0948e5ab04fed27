"""Dead letters, and their replays: jobs that are started, watched, paused and ended."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status

from ... import runtime
from .. import auth
from ..changes import DryRun, audited, by
from ..dead_letter_schemas import (
    DeadLetterGroupPage,
    DeadLetterPageOut,
    ReplayIn,
    ReplayList,
    ReplayOut,
    ReplayPlanOut,
    ReplayResultPageOut,
    Result,
)
from ..paging import Cursor, From, Limit, To, table
from ..schemas import Text

router = Router(tags=["dead letters"])

Sort = Literal["group", "count", "-group", "-count"]


@router.get("/dead-letters", response=DeadLetterGroupPage)
def list_dead_letter_groups(
    request: HttpRequest,
    cursor: Cursor,
    limit: Limit,
    q: Text = Query("", max_length=255, description="Part of the group's name."),
    sort: Sort = Query("-count", description="Sort by this; `-` before it for the largest first."),
) -> Any:
    """The groups that have dead letters, those of deleted groups too."""
    page = lambda number, size: runtime.window().dead_letter_groups(q, sort, number, size)  # noqa: E731
    return table(request, page, cursor, limit, ("dead-letters", q, sort), name="group")


@router.get("/groups/{group}/dead-letters", response=DeadLetterPageOut)
def list_dead_letters(request: HttpRequest, group: str, cursor: Cursor, limit: Limit, from_ms: From, to_ms: To) -> Any:
    """A group's dead letters by the time they died, newest first, without bodies; of one snapshot."""
    auth.require_groups(request, group)
    return runtime.window().dead_letters(group, from_ms=from_ms, to_ms=to_ms, cursor=cursor, limit=limit)


@router.post("/groups/{group}/replays", response={200: ReplayPlanOut, 202: ReplayPlanOut})
def start_replay(request: HttpRequest, response: HttpResponse, group: str, body: ReplayIn, dry_run: DryRun) -> Any:
    """Send dead letters of a group again, as a job that survives restarts. 202 with its place; the dead letters stay
    where they are. 409 while another replay of the group is not finished."""
    auth.require_groups(request, group)
    if body.topic:
        auth.require_topics(request, body.topic)
    if body.target == "original":  # wherever they came from
        auth.require_all_names(request)
    asked = body.model_dump()
    if body.offsets is not None:
        asked["offsets"] = [(queue_id, offset) for queue_id, offset in body.offsets]
    start = lambda: runtime.window().start_replay(group, **asked, dry_run=dry_run, by=by(request))  # noqa: E731
    if dry_run:
        return Status(200, start())
    noted = lambda plan: {"replay": plan.job.id, "messages": plan.total, "target": body.target}  # noqa: E731
    plan = audited(request, "replay.start", group, start, noted)
    response.headers["Location"] = f"/api/v1/replays/{quote(plan.job.id, safe='')}"
    return Status(202, plan)


@router.get("/replays", response=ReplayList)
def list_replays(
    request: HttpRequest, group: str | None = Query(None, max_length=255, description="Of this group only.")
) -> Any:
    """Replays, newest first, and those whose journal cannot be read."""
    found = runtime.window().replay_jobs(group)
    unreadable = () if auth.has_pattern(request) else found.unreadable
    return {"items": auth.accessible(request, found.jobs, "group"), "unreadable": unreadable}


@router.get("/replays/{job}", response=ReplayOut)
def replay(request: HttpRequest, job: str) -> Any:
    """One replay as it is now."""
    return _reach(request, job)


@router.get("/replays/{job}/results", response=ReplayResultPageOut)
def replay_results(
    request: HttpRequest,
    job: str,
    cursor: Cursor,
    limit: Limit,
    result: Result | None = Query(None, description="Only those of this kind."),
) -> Any:
    """What became of each message."""
    _reach(request, job)
    return runtime.window().replay_results(job, result=result, cursor=cursor, limit=limit)


@router.post("/replays/{job}/{act}", response=ReplayOut)
def act_on_replay(request: HttpRequest, job: str, act: Literal["pause", "resume", "cancel"]) -> Any:
    """Pause it (nothing is sent any more when this is answered), have it go on, or end it for good. 409 when its state
    does not allow that."""
    _reach(request, job)
    admin = runtime.window()
    acts = {"pause": admin.pause_replay, "resume": admin.resume_replay, "cancel": admin.cancel_replay}
    noted = lambda done: {"group": done.group, "replayed": done.replayed}  # noqa: E731
    return audited(request, f"replay.{act}", job, lambda: acts[act](job, by=by(request)), noted)


def _reach(request: HttpRequest, job: str) -> Any:
    """The replay, if the caller may access its group."""
    found = runtime.window().replay_job(job)
    auth.require_groups(request, found.group)
    return found
