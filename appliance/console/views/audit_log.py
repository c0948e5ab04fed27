"""The audit log: who did what, newest first, and whether the chain of its digests is whole."""

from __future__ import annotations

import json
from typing import Any

from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ..audit import first_broken
from ..models import AuditEntry
from .window import CSV_ROWS, PAGE_SIZE, asks_the_engine, csv_answer, page_number, time_asked, time_shown, wants_csv


@require_safe
@asks_the_engine
def audit(request: HttpRequest) -> HttpResponse:
    """Filtered by who, what and when; `check=yes` walks the whole chain; `format=csv` for the rows of the filter."""
    asked: dict[str, Any] = {name: request.GET.get(name, "").strip() for name in ("q", "result")}
    begin, end = time_asked(request, "from"), time_asked(request, "to")
    asked |= {"from": time_shown(begin), "to": time_shown(end)}
    entries = _found(asked["q"], asked["result"], begin, end)
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
    pages = Paginator(entries, PAGE_SIZE)
    found = pages.get_page(page_number(request))
    context: dict[str, Any] = {
        "entries": [(one, _changes(one)) for one in found],
        "page": {"total": pages.count, "page": found.number, "pages": pages.num_pages},
        "asked": asked,
    }
    if request.GET.get("check") == "yes":
        context |= {"checked": True, "broken": first_broken()}
    return render(request, "audit/list.html", context)


def _found(q: str, result: str, begin: int | None, end: int | None) -> QuerySet[AuditEntry]:
    entries = AuditEntry.objects.all()
    if q:
        entries = entries.filter(Q(actor__icontains=q) | Q(action__icontains=q) | Q(target__icontains=q))
    if result:
        entries = entries.filter(result=result)
    if begin is not None:
        entries = entries.filter(at_ms__gte=begin)
    if end is not None:
        entries = entries.filter(at_ms__lte=end)
    return entries


def _changes(entry: AuditEntry) -> list[tuple[str, str, str]]:
    """(field, before, after) as text."""
    before = entry.before if isinstance(entry.before, dict) else {}
    after = entry.after if isinstance(entry.after, dict) else {}
    return [(name, _text(before.get(name)), _text(after.get(name))) for name in {**before, **after}]


def _text(value: object) -> str:
    return "—" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
