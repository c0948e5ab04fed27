"""Clients: every connection that has sent heartbeats."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ... import runtime
from .window import PAGE_SIZE, all_rows, asks_the_engine, csv_answer, page_number, wants_csv


@require_safe
@asks_the_engine
def clients(request: HttpRequest) -> HttpResponse:
    """The list; `format=csv` for all rows of the filter."""
    q = request.GET.get("q", "")
    role = request.GET.get("role") or None
    group = request.GET.get("group") or None
    sort = request.GET.get("sort", "client_id")

    def fetch(page: int, size: int) -> Any:
        return runtime.window().clients(q=q, role=role, group=group, sort=sort, page=page, page_size=size)

    if wants_csv(request):
        return csv_answer(
            "clients",
            ("client_id", "address", "language", "version", "producer_groups", "consumer_groups", "heartbeat_at_ms",
             "waiting_pulls"),
            (
                (row.client_id, row.address, row.language, row.version, " ".join(row.producer_groups),
                 " ".join(row.consumer_groups), row.heartbeat_at_ms, row.parked_pulls)
                for row in all_rows(fetch)
            ),
        )  # fmt: skip
    context = {"page": fetch(page_number(request), PAGE_SIZE), "sort": sort, "q": q, "role": role, "group": group}
    return render(request, "clients/list.html", context)
