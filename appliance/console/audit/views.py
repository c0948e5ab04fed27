"""The audit log: its entries, newest first, and the state of the chain of digests."""

from __future__ import annotations

import json
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from .. import jobs
from ..jobs import audit_check as checking
from ..models import AuditEntry
from ..pages.curl import curl
from ..pages.engine_pages import CSV_ROWS, csv_answer, page_number, time_asked, time_shown, wants_csv
from ..pages.rows import page_of
from . import wire_entries
from .log import look, named


def audit(request: HttpRequest) -> HttpResponse:
    """Show the entries, filtered by actor, action, target and time; `format=csv` for the rows of the filter."""
    wire_entries.take_over_if_possible()
    asked: dict[str, Any] = {name: request.GET.get(name, "").strip() for name in ("q", "way", "result")}
    begin, end = time_asked(request, "from"), time_asked(request, "to")
    asked |= {"from": time_shown(begin), "to": time_shown(end)}
    entries = _found(asked["q"], asked["way"], asked["result"], begin, end)
    if wants_csv(request):
        return csv_answer(
            "audit",
            ("id", "at_ms", "actor", "kind", "address", "action", "target", "before", "after", "result", "request_id",
             "digest"),
            (
                (one.pk, one.at_ms, one.actor, one.actor_kind, one.address, one.action, one.target,
                 json.dumps(one.before), json.dumps(one.after), one.result, one.request_id, one.digest)
                for one in entries[:CSV_ROWS]
            ),
        )  # fmt: skip
    page = page_of(entries, page_number(request))
    context: dict[str, Any] = {
        "entries": [(one, _changes(one), *_marks(one)) for one in page.rows],
        "page": page,
        "asked": asked,
        "verdict": look(),
    }
    # No operation leaves one kind of entry out.
    if asked["way"] in ("", "wire"):
        kind = wire_entries.KIND if asked["way"] else None
        context["as_curl"] = curl(request, {"from": begin, "to": end, "kind": kind})
    else:
        context["as_curl"] = ""
    return render(request, "audit/list.html", context)


def audit_check(request: HttpRequest) -> HttpResponse:
    """Check every entry, as a job."""
    return redirect("job", jobs.start(request, checking.NAME, {}).id)


def _found(q: str, way: str, result: str, begin: int | None, end: int | None) -> QuerySet[AuditEntry]:
    """Return the entries of a filter. way: "wire" for tools over the broker's and the name server's ports, "console"
    for all others, "" for both."""
    entries = AuditEntry.objects.all()
    if q:
        entries = entries.filter(named(q))
    if way == "wire":
        entries = entries.filter(actor_kind=wire_entries.KIND)
    elif way:
        entries = entries.exclude(actor_kind=wire_entries.KIND)
    if result:
        entries = entries.filter(result=result)
    if begin is not None:
        entries = entries.filter(at_ms__gte=begin)
    if end is not None:
        entries = entries.filter(at_ms__lte=end)
    return entries


def _changes(entry: AuditEntry) -> list[tuple[str, str, str]]:
    """Return (field, before, after) of each change in an entry, as text."""
    before = entry.before if isinstance(entry.before, dict) else {}
    after = entry.after if isinstance(entry.after, dict) else {}
    return [
        (name, _text(before.get(name)), _text(after.get(name)))
        for name in {**before, **after}
        if not (entry.actor_kind == wire_entries.KIND and name in wire_entries.MARKS)
    ]


def _marks(entry: AuditEntry) -> tuple[int, bool]:
    """Return, for an entry of the wire, the number of acts that it stands for, or 0, and True if later acts of that
    minute are only counted."""
    after = entry.after if entry.actor_kind == wire_entries.KIND and isinstance(entry.after, dict) else {}
    more, counted = (after.get(name) for name in wire_entries.MARKS)
    return more or 0, bool(counted)


def _text(value: object) -> str:
    return "—" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
