"""Dead letters, and their replays: jobs that are started, watched, paused and ended."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status

from ... import runtime
from ...console.audit.log import audit
from ...console.dead_letters.archive_views import start_archive
from ...console.dead_letters.replay_views import may_send, started
from ...engine.window.dead_letters.snapshots import DeadLetterSummary, ExpiringLetters, ReplayJob, ReplayPlan
from ...engine.window.waiting.snapshots import RetryLadder, WaitingAct
from .. import auth
from ..changes import DryRun, audited, by
from ..dead_letter_schemas import (
    ArchiveIn,
    DeadLetterFilter,
    DeadLetterGroupPage,
    DeadLetterPageOut,
    ReplayIn,
    ReplayList,
    ReplayResultPageOut,
    Result,
    RetryActIn,
)
from ..job_answers import IdempotencyKey, accepted
from ..job_schemas import JobOut
from ..paging import BodyChars, Cursor, From, Limit, To, table
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
    page = lambda number, size: runtime.window().dead_letters.groups(q, sort, number, size)  # noqa: E731
    return table(request, page, cursor, limit, ("dead-letters", q, sort), "group")


@router.get("/dead-letters/expiring", response=ExpiringLetters)
def list_expiring_dead_letters(
    request: HttpRequest, hours: int = Query(24, ge=1, le=8760, description="Within so many hours.")
) -> Any:
    """Numbers of dead letters that may expire soon, by group."""
    found = runtime.window().dead_letters.expiring(hours * 3_600_000)
    groups = auth.accessible(request, found.groups, "group")
    return {"within_ms": found.within_ms, "total": sum(one.count for one in groups), "groups": groups}


@router.get("/groups/{group}/dead-letters", response=DeadLetterPageOut)
def list_dead_letters(
    request: HttpRequest,
    group: str,
    cursor: Cursor,
    limit: Limit,
    from_ms: From,
    to_ms: To,
    asked: Query[DeadLetterFilter],
    body_chars: BodyChars = None,
) -> Any:
    """A group's dead letters by the time they died, newest first, of one snapshot; without bodies unless `body_chars`
    is given. With a filter
    `seen` of `total` were looked at, and a page may be empty and have a next one."""
    wanted = {"topic" if name == "origin_topic" else name: value for name, value in asked if value is not None}
    if body_chars is not None:
        auth.require_bodies(request, "Bodies in a list need the right to read message bodies.")
    page = runtime.window().dead_letters.page(
        group, from_ms=from_ms, to_ms=to_ms, wanted=wanted, cursor=cursor, limit=limit, body_chars=body_chars or 0
    )
    if body_chars is not None:
        audit(request, "message.read", f"%DLQ%{group}", after={"messages": len(page.rows)})
    return page


@router.get("/groups/{group}/dead-letters/summary", response=DeadLetterSummary)
def summarize_dead_letters(request: HttpRequest, group: str) -> Any:
    """A group's dead letters by origin topic, retries and hour."""
    return runtime.window().dead_letters.summary(group)


@router.post("/groups/{group}/dead-letters/archives", response={202: JobOut})
def archive_dead_letters(
    request: HttpRequest, group: str, body: ArchiveIn, idempotency_key: IdempotencyKey
) -> HttpResponse:
    """Write dead letters of a group to a file, with bodies and all properties, as a job. 202 with its place; the file
    is one of the job's."""
    picked = [(queue_id, offset) for queue_id, offset in body.offsets or ()]
    wanted = {} if body.filter is None else body.filter.model_dump(exclude_none=True)
    asked = {"from_ms": body.from_ms, "to_ms": body.to_ms, "wanted": wanted}
    # Errors in the request are returned now, not by the job.
    runtime.window().dead_letters.page(group, from_ms=body.from_ms, to_ms=body.to_ms, wanted=wanted, limit=1)
    return accepted(request, idempotency_key, lambda: start_archive(request, group, asked, picked, body.format))


@router.get("/groups/{group}/retries", response=RetryLadder)
def retry_ladder(request: HttpRequest, group: str) -> Any:
    """A group's messages that wait for their next try: their number, levels and ages. The messages themselves: `GET
    /delayed?group=`."""
    return runtime.window().waiting.ladder(group)


@router.post("/groups/{group}/retries/acts", response=WaitingAct)
def act_on_retries(request: HttpRequest, group: str, body: RetryActIn, dry_run: DryRun) -> Any:
    """Retry messages of a group now, make dead letters of them, or drop them, before they are due. Each has its result;
    of a single place it is an error that says why (404, 409, 503)."""
    window = runtime.window()
    places = [(one.level, one.queue_offset, one.unique_id) for one in body.places or ()]
    chosen: dict[str, Any] = {}
    if not places:
        chosen = {"group": group} | ({} if body.level is None else {"level": body.level})
    else:
        chosen = {} if body.level is None else {"level": body.level}  # places and a level together are refused
    window.waiting.check_retries(group, places)
    act = lambda: window.waiting_commands.run(  # noqa: E731
        body.action, places, **chosen, cursor=body.cursor, limit=body.limit, dry_run=dry_run, by=by(request)
    )
    if dry_run:
        return act()
    named = {"messages": [unique_id or f"{level}/{offset}" for level, offset, unique_id in places[:20]]}
    noted = lambda done: (  # noqa: E731
        {"asked": done.asked, "done": done.done, "counts": done.counts} | (named if places else {"filter": chosen})
    )
    return audited(request, f"retry.{body.action}", group, act, noted)


@router.post("/groups/{group}/replays", response={200: ReplayPlan, 202: ReplayPlan})
def start_replay(request: HttpRequest, response: HttpResponse, group: str, body: ReplayIn, dry_run: DryRun) -> Any:
    """Send dead letters of a group again, as a job that survives restarts. 202 with its place; the dead letters stay
    where they are. 409 while another replay of the group is not finished."""
    if body.topic:
        auth.require_topics(request, body.topic)
    if body.target == "original":  # any topic from which they came
        auth.require_all_names(request)
    asked = body.model_dump(exclude={"filter"})
    asked["wanted"] = None if body.filter is None else body.filter.model_dump(exclude_none=True)
    if body.offsets is not None:
        asked["offsets"] = [(queue_id, offset) for queue_id, offset in body.offsets]
    start = lambda: runtime.window().replay_commands.start(group, **asked, dry_run=dry_run, by=by(request))  # noqa: E731
    if dry_run:
        return Status(200, start())
    plan = audited(request, "replay.start", group, start, started)
    response.headers["Location"] = f"/api/v1/replays/{quote(plan.job.id, safe='')}"
    return Status(202, plan)


@router.get("/replays", response=ReplayList)
def list_replays(
    request: HttpRequest, group: str | None = Query(None, max_length=255, description="Of this group only.")
) -> Any:
    """Replays, newest first, and those whose journal cannot be read."""
    found = runtime.window().replays.jobs(group)
    unreadable = () if auth.has_pattern(request) else found.unreadable
    return {"items": auth.accessible(request, found.jobs, "group"), "unreadable": unreadable}


@router.get("/replays/{job}", response=ReplayJob)
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
    """The result of each message."""
    _reach(request, job)
    return runtime.window().replays.results(job, result=result, cursor=cursor, limit=limit)


@router.post("/replays/{job}/{act}", response=ReplayJob)
def act_on_replay(request: HttpRequest, job: str, act: Literal["pause", "resume", "cancel"]) -> Any:
    """Pause the replay (once this is answered, nothing more is sent), resume it, or end it for good. 409 when its state
    does not allow that."""
    found = _reach(request, job)
    # A caller who may not send to that topic may neither resume the replay nor stop one of others.
    if not may_send(request, found.target, found.topic):
        auth.require_topics(request, found.topic or "")
        auth.require_all_names(request)
    admin = runtime.window()
    acts = {
        "pause": admin.replay_commands.pause,
        "resume": admin.replay_commands.resume,
        "cancel": admin.replay_commands.cancel,
    }
    noted = lambda done: {"group": done.group, "replayed": done.replayed}  # noqa: E731
    return audited(request, f"replay.{act}", job, lambda: acts[act](job, by=by(request)), noted)


def _reach(request: HttpRequest, job: str) -> Any:
    """The replay, if the caller may access its group."""
    found = runtime.window().replays.job(job)
    auth.require_groups(request, found.group)
    return found
