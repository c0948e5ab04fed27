"""Consumer groups: the list, and one group with its lag, clients and subscriptions."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ... import runtime
from .window import PAGE_SIZE, all_rows, asks_the_engine, csv_answer, page_number, wants_csv

_ONLINE = {"yes": True, "no": False}


@require_safe
@asks_the_engine
def groups(request: HttpRequest) -> HttpResponse:
    """The list; `format=csv` for all rows of the filter."""
    q = request.GET.get("q", "")
    online = request.GET.get("online", "")
    system = request.GET.get("system") == "yes"
    sort = request.GET.get("sort", "name")

    def fetch(page: int, size: int) -> Any:
        return runtime.admin().groups(
            q=q, system=system, online=_ONLINE.get(online), sort=sort, page=page, page_size=size
        )

    if wants_csv(request):
        return csv_answer(
            "groups",
            ("group", "model", "clients", "topics", "lag", "lag_ms", "out_per_s", "retries", "dead_letters",
             "conflict"),
            (
                (row.name, row.model, row.clients, row.topics, row.lag, row.lag_ms, row.out_rate, row.retries,
                 row.dead_letters, row.conflict)
                for row in all_rows(fetch)
            ),
        )  # fmt: skip
    context = {"page": fetch(page_number(request), PAGE_SIZE), "sort": sort, "q": q, "online": online, "system": system}
    return render(request, "groups/list.html", context)


@require_safe
@asks_the_engine
def group(request: HttpRequest, name: str) -> HttpResponse:
    """One group; the queues furthest behind come first. `format=csv` for its queues."""
    detail = runtime.admin().group(name)
    queues = sorted(
        detail.queues, key=lambda queue: (-(queue.lag_ms or 0), -(queue.lag or 0), queue.topic, queue.queue_id)
    )
    if wants_csv(request):
        return csv_answer(
            f"group-{name}",
            ("topic", "queue", "committed", "min_offset", "max_offset", "lag", "lag_ms", "held_by"),
            (
                (queue.topic, queue.queue_id, queue.committed, queue.min_offset, queue.max_offset, queue.lag,
                 queue.lag_ms, queue.held_by)
                for queue in queues
            ),
        )  # fmt: skip
    return render(request, "groups/group.html", {"group": detail, "row": detail.row, "queues": queues})
