"""Cleaning up: lists unused groups, topics and offsets, which would be kept for ever, and deletes them once the list
was seen."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext_lazy, ngettext

from ... import runtime
from ...engine.errors import Conflict
from ..audit.log import audit
from ..pages.changes import failure_audited

KINDS = {
    "groups": gettext_lazy("Groups that were never used"),
    "topics": gettext_lazy("Topics that nobody uses"),
    "offsets": gettext_lazy("Offsets of what is gone"),
}
HOURS = (0, 1, 24, 168)
_AUDITED = 20


def clean_up(request: HttpRequest) -> HttpResponse:
    """Show the list by kind, idle time and name; a POST deletes the entries of that list."""
    asked = request.POST if request.method == "POST" else request.GET
    kind = asked.get("kind", "groups")
    hours, q = _hours(asked), asked.get("q", "")
    wanted: dict[str, Any] = {"kind": kind, "idle_hours": hours, "q": q}
    context = wanted | {"kinds": KINDS.items(), "hours": HOURS}
    if request.method == "POST":
        try:
            with failure_audited(request, "clean_up.apply", kind):
                done = runtime.window().clean_ups.clean(
                    **wanted, revision=asked.get("revision") or None, by=request.user.label
                )
        except Conflict:
            context["changed"] = True
        else:
            first = [one.group or one.topic for one in done.items[:_AUDITED]]
            audit(request, "clean_up.apply", kind, after={"count": done.count, "left": done.left, "first": first})
            said = ngettext("%(number)d entry deleted.", "%(number)d entries deleted.", done.count)
            messages.success(request, said % {"number": done.count})
            query = QueryDict(mutable=True)
            query.update({"kind": kind, "idle_hours": str(hours), "q": q})
            return redirect(f"{reverse('clean_up')}?{query.urlencode()}")
    found = runtime.window().clean_ups.clean(**wanted, dry_run=True)
    context |= {"found": found, "hidden": found.count - len(found.items)}
    return render(request, "groups/clean_up.html", context, status=409 if "changed" in context else 200)


def _hours(asked: QueryDict) -> int:
    """Return the idle hours in the address; a day if they are missing or not a number."""
    text = asked.get("idle_hours", "24")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 24
