"""Clients: all connections that have sent heartbeats; one client, and its own report of what it does."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from ... import runtime
from ...engine.errors import Conflict, NotFound, Unavailable
from ..audit.log import audit
from ..pages.engine_pages import PAGE_SIZE, all_rows, csv_of, page_number, refusal_text, wants_csv

#: Most rows of a table from a client's answer.
_MOST_ROWS = 500


def clients(request: HttpRequest) -> HttpResponse:
    """Show the list; `format=csv` for all rows of the filter."""
    q = request.GET.get("q", "")
    role = request.GET.get("role") or None
    group = request.GET.get("group") or None
    sort = request.GET.get("sort", "client_id")

    def fetch(page: int, size: int) -> Any:
        return runtime.window().clients.page(q=q, role=role, group=group, sort=sort, page=page, page_size=size)

    if wants_csv(request):
        return csv_of(
            "clients",
            "client_id address language version producer_groups consumer_groups heartbeat_at_ms connected_ms "
            "waiting_pulls=parked_pulls",
            all_rows(fetch),
        )
    context = {"page": fetch(page_number(request), PAGE_SIZE), "sort": sort, "q": q, "role": role, "group": group}
    return render(request, "clients/list.html", context)


def client(request: HttpRequest, client_id: str) -> HttpResponse:
    """Show a client's connections and groups."""
    return render(request, "clients/client.html", _context(client_id))


def client_ask(request: HttpRequest, client_id: str) -> HttpResponse:
    """Ask a client what it does, with its threads if wanted. This may take ten seconds; the answer is shown and not
    stored."""
    group = request.POST.get("group", "")
    stack = request.POST.get("stack") == "yes"
    context = _context(client_id) | {"asked": group}
    status = 200
    try:
        found = runtime.window().asking.running_info(group, client_id, stack=stack, by=request.user.label)
    except Unavailable as error:
        audit(request, "client.ask", client_id, None, {"reason": str(error)}, "failed")
        context["error"], status = refusal_text(error), 503
    except Conflict as error:
        context["error"], status = refusal_text(error), 409
    else:
        audit(request, "client.ask", client_id, None, {"group": group, "stack": stack})
        context |= {"info": found, "stack_asked": stack, "most": _MOST_ROWS}
        context |= {"queues": found.queues[:_MOST_ROWS], "hidden": len(found.queues) - _MOST_ROWS}
    return render(request, "clients/client.html", context, status=status)


def _context(client_id: str) -> dict[str, Any]:
    rows = runtime.window().clients.named(client_id)
    if not rows:
        raise NotFound("client", client_id)
    groups = sorted({name for row in rows for name in row.consumer_groups})
    return {"client_id": client_id, "rows": rows, "first": rows[0], "groups": groups}
