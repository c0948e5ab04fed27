"""Messages that wait until they are due, and open transactions: lists, and acts on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query, Router

from ... import runtime
from ...engine.window.snapshots import fields_of
from ...engine.window.transactions.snapshots import ResumedTransaction, TransactionAct, TransactionCounts
from ...engine.window.waiting.snapshots import PendingByDue, WaitingAct
from .. import auth
from ..changes import DryRun, audited, by
from ..paging import Cursor, From, Limit, To
from ..schemas import Text
from ..times import Moment
from ..waiting_schemas import (
    ChecksIn,
    DecisionsIn,
    DiscardedTransactionPageOut,
    OpenTransactionPageOut,
    ResolvedTransactionPageOut,
    ResumeIn,
    TransactionFilter,
    WaitingActIn,
    WaitingFilter,
    WaitingPageOut,
)

#: A half message's offset, and its unique id to check it.
Half = tuple[int, str | None]

router = Router(tags=["delayed messages and transactions"])


@router.get("/delayed", response=WaitingPageOut)
def list_delayed(
    request: HttpRequest,
    cursor: Cursor,
    limit: Limit,
    from_ms: From,
    to_ms: To,
    wanted: Query[WaitingFilter],
    q: Text = Query("", max_length=1024, description="A key, unique id or offset id; nothing else is looked at then."),
) -> Any:
    """Messages that wait, delayed ones and retries, those due first before others; without bodies."""
    window = runtime.window()
    if q.strip():
        page = window.waiting.by_name(q, limit)
    else:
        _require(request, wanted.topic, wanted.group)
        page = window.waiting.page(**dict(wanted), from_ms=from_ms, to_ms=to_ms, cursor=cursor, limit=limit)
    shown = fields_of(page)
    if not auth.has_pattern(request):
        return shown | {"items": page.rows}
    return shown | {"items": [row for row in page.rows if _may(request, row)], "pending": None}


@router.get("/delayed/histogram", response=PendingByDue)
def delayed_histogram(
    request: HttpRequest,
    bucket_ms: int = Query(60_000, ge=1, lt=1 << 40, description="Of one span."),
    buckets: int = Query(120, ge=1, le=1000, description="How many spans."),
    begin_ms: Moment | None = Query(None, description="Where the first begins; now without it."),
    wanted: WaitingFilter = Query(...),
) -> Any:
    """Numbers of waiting messages by the time when they are due."""
    if wanted.topic is None and wanted.group is None:
        auth.require_all_names(request)
    _require(request, wanted.topic, wanted.group)
    return runtime.window().waiting.by_due(bucket_ms, buckets, begin_ms=begin_ms, **dict(wanted))


@router.post("/delayed/acts", response=WaitingAct)
def act_on_delayed(request: HttpRequest, body: WaitingActIn, dry_run: DryRun) -> Any:
    """Deliver messages now, make dead letters of retries, or drop them, before they are due. Each has its result; of a
    single place it is an error that says why (404, 409, 503)."""
    window = runtime.window()
    places = [(one.level, one.queue_offset, one.unique_id) for one in body.places or ()]
    chosen: dict[str, Any] = {} if body.filter is None else body.filter.model_dump(exclude_none=True)
    if auth.has_pattern(request):
        if "topic" not in chosen and "group" not in chosen and not places:
            auth.require_all_names(request)
        for row in window.waiting.rows_at(places):
            if row is not None and not _may(request, row):
                auth.require_all_names(request)
    _require(request, chosen.get("topic"), chosen.get("group"))
    act = lambda: window.waiting_commands.run(  # noqa: E731
        body.action, places, **chosen, cursor=body.cursor, limit=body.limit, dry_run=dry_run, by=by(request)
    )
    if dry_run:
        return act()
    named = [unique_id or f"{level}/{offset}" for level, offset, unique_id in places[:20]]
    return audited(
        request,
        f"delayed.{body.action}",
        chosen.get("topic") or "",
        act,
        lambda done: (
            {"asked": done.asked, "done": done.done, "counts": done.counts}
            | ({"messages": named} if named else {"filter": chosen})
        ),
    )


def _may(request: HttpRequest, row: Any) -> bool:
    names = auth.names(request)
    if row.group:
        return names.has_group(row.group)
    return row.topic is not None and names.has_topic(row.topic)


def _require(request: HttpRequest, topic: str | None, group: str | None) -> None:
    if topic is not None:
        auth.require_topics(request, topic)
    if group is not None:
        auth.require_groups(request, group)


# --- transactions


@router.get("/transactions", response=TransactionCounts)
def transaction_counts(request: HttpRequest) -> Any:
    """Numbers of open transactions, and of ended ones since the start, by their end."""
    return runtime.window().transactions.counts()


@router.get("/transactions/open", response=OpenTransactionPageOut)
def list_open_transactions(
    request: HttpRequest,
    cursor: Cursor,
    limit: Limit,
    wanted: Query[TransactionFilter],
) -> Any:
    """Open transactions, the oldest first."""
    page = runtime.window().transactions.open(**dict(wanted), cursor=cursor, limit=limit)
    return _listed(request, page, "open")


@router.get("/transactions/discarded", response=DiscardedTransactionPageOut)
def list_discarded_transactions(
    request: HttpRequest,
    cursor: Cursor,
    limit: Limit,
    wanted: Query[TransactionFilter],
) -> Any:
    """Transactions that were set aside undecided, the newest first."""
    page = runtime.window().transactions.discarded(**dict(wanted), cursor=cursor, limit=limit)
    return _listed(request, page, "kept")


@router.get("/transactions/resolved", response=ResolvedTransactionPageOut)
def list_resolved_transactions(
    request: HttpRequest,
    cursor: Cursor,
    limit: Limit,
    from_ms: From,
    wanted: Query[TransactionFilter],
    how: Literal["committed", "rolled_back", "discarded", "lost"] | None = Query(None, description="How it ended."),
    who: Literal["producer", "check", "administrator", "broker"] | None = Query(
        None, alias="by", description="Who ended it."
    ),
) -> Any:
    """Transactions that have ended, the newest first; the last million is kept."""
    page = runtime.window().transactions.ended(
        **dict(wanted), how=how, by=who, from_ms=from_ms, cursor=cursor, limit=limit
    )
    return _listed(request, page)


@router.post("/transactions/checks", response=TransactionAct)
def check_transactions(request: HttpRequest, body: ChecksIn, dry_run: DryRun) -> Any:
    """Have a producer asked at once how transactions end. This does not count as one of their checks."""
    places = _places(body.places)
    wanted = {"topic": body.topic, "group": body.group, "key": body.key}
    _require_halves(request, places, body.topic)
    return _act(request, "check", places, wanted, "", body.limit, dry_run)


@router.post("/transactions/decisions", response=TransactionAct)
def decide_transactions(request: HttpRequest, body: DecisionsIn, dry_run: DryRun) -> Any:
    """Commit transactions, or roll them back, for their producers. It may contradict what the producer's own records
    say: prefer `checks`. 409 when a single one was decided before."""
    auth.require_recent_login(request)
    places = _places(body.places)
    _require_halves(request, places, None)
    return _act(request, body.action, places, {}, body.reason, 1000, dry_run)


@router.post("/transactions/resumes", response=ResumedTransaction)
def resume_transaction(request: HttpRequest, body: ResumeIn) -> Any:
    """Have the producers of a discarded transaction asked again, from the beginning. It does not commit anything; each
    is resumed once."""
    resume = lambda: runtime.window().transaction_commands.resume(body.ref, reason=body.reason, by=by(request))  # noqa: E731
    noted = lambda done: {"half": done.offset_id, "unique_id": done.unique_id, "reason": body.reason}  # noqa: E731
    return audited(request, "transaction.resume", body.ref, resume, noted)


def _act(
    request: HttpRequest,
    action: str,
    places: Sequence[Half],
    wanted: dict[str, Any],
    reason: str,
    limit: int,
    dry_run: bool,
) -> Any:
    act: Callable[[], Any] = lambda: runtime.window().transaction_commands.act(  # noqa: E731
        action, places, **wanted, reason=reason, limit=limit, dry_run=dry_run, by=by(request)
    )
    if dry_run:
        return act()
    target = wanted.get("topic") or wanted.get("group") or ""
    if len(places) == 1:
        target = places[0][1] or str(places[0][0])
    return audited(
        request,
        f"transaction.{action}",
        target,
        act,
        lambda done: (
            {"asked": done.asked, "done": done.done, "counts": done.counts}
            | ({"reason": reason} if reason else {})
            | {"transactions": [one.unique_id or str(one.half_offset) for one in done.results[:20]]}
        ),
    )


def _places(places: Any) -> list[Half]:
    return [(one.half_offset, one.unique_id) for one in places or ()]


def _require_halves(request: HttpRequest, places: Sequence[Half], topic: str | None) -> None:
    """A token with a pattern acts on transactions whose topic it may access."""
    if topic is not None:
        auth.require_topics(request, topic)
    elif auth.has_pattern(request):
        found = runtime.window().transactions.open_at([offset for offset, _ in places])
        halves = [None if one is None else one.message for one in found]
        if not places or None in halves:
            auth.require_all_names(request)
        auth.require_topics(request, *(half.topic for half in halves if half is not None))


def _listed(request: HttpRequest, page: Any, count: str = "") -> dict[str, Any]:
    """The page as this caller may see it. count: its number of all transactions, which a pattern hides."""
    if not auth.has_pattern(request):
        return fields_of(page) | {"items": page.rows}
    may_see = auth.names(request).has_topic
    rows = [row for row in page.rows if row.message is not None and may_see(row.message.topic)]
    return fields_of(page) | {"items": rows, count: None}
