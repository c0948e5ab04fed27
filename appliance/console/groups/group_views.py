"""One consumer group: how far behind it is and why, its queues, clients, subscriptions and settings."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from ... import runtime
from ..pages.engine_pages import PAGE_SIZE, all_rows, csv_of, page_number, wants_csv
from ..sign_in.identity import names_for

TABS = ("lag", "clients", "subscriptions", "settings")
#: Most clients in one table; further ones are only counted.
_MOST_CLIENTS = 200


def group(request: HttpRequest, name: str) -> HttpResponse:
    """Show the group; `tab` chooses the part below its figures. `format=csv` for all its queues, sorted and filtered as
    on the page."""
    if wants_csv(request):
        rows = all_rows(lambda page, size: _queues(request, name, page, size))
        return csv_of(f"group-{name}", "topic queue=queue_id committed min_offset max_offset lag lag_ms held_by", rows)
    return render(request, "groups/group.html", _context(request, name))


def group_now(request: HttpRequest, name: str) -> HttpResponse:
    """Return the changing part of the page, which the page reloads every few seconds."""
    return render(request, "groups/_now.html", _context(request, name) | {"again": True})


def group_diagnosis(request: HttpRequest, name: str) -> HttpResponse:
    """Show the whole diagnosis: findings with their figures, checks that are in order, and those that could not be
    made, with reasons."""
    admin = runtime.window()
    found = admin.diagnosis.of(name, names_for(request.user).has_topic)
    detail = admin.groups.detail(name, queues=False)
    return render(request, "groups/diagnosis.html", {"name": name, "found": found, "row": detail})


def _queues(request: HttpRequest, name: str, page: int, page_size: int) -> Any:
    """Return a page of the group's queues, sorted and filtered as in the address."""
    request.GET.get("tab")  # read, so that it is not reported as unsupported: a file always has the queues
    asked = {"sort": request.GET.get("sort", "-lag"), "q": request.GET.get("q", "")}
    return runtime.window().group_now.queues(name, **asked, page=page, page_size=page_size)


def _context(request: HttpRequest, name: str) -> dict[str, Any]:
    admin = runtime.window()
    detail = admin.groups.detail(name, queues=False)
    diagnosis = admin.diagnosis.of(name)
    tab = request.GET.get("tab", "lag")
    context: dict[str, Any] = {
        "group": detail,
        "row": detail,
        "name": name,
        "pace": admin.group_now.pace(name),
        "findings": diagnosis.findings,
        "tab": tab if tab in TABS else "lag",
        "query": request.GET.urlencode(),
    }
    if context["tab"] == "lag":
        context["sort"] = request.GET.get("sort", "-lag")
        context["q"] = request.GET.get("q", "")
        context["page"] = _queues(request, name, page_number(request), PAGE_SIZE)
    elif context["tab"] == "clients":
        context["clients"] = detail.members[:_MOST_CLIENTS]
        context["hidden"] = len(detail.members) - _MOST_CLIENTS
    return context
