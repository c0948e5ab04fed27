"""Purging a topic: shows how many messages would go and which groups have not read them, then does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from ... import runtime
from ...engine.errors import Blocked, Conflict, InvalidInput
from ..audit.log import audit
from ..pages.changes import before_and_after, failure_audited, is_forced
from ..pages.engine_pages import refusal_text, time_asked

if TYPE_CHECKING:
    from ...engine.window.snapshots import Change


def topic_purge(request: HttpRequest, name: str) -> HttpResponse:
    """Show what would go, up to now or up to the time in the address; a POST does it, once the name was typed."""
    asked = request.GET.get("before", "")
    context: dict[str, Any] = {"name": name, "before": asked, "heading": _("Purge %(name)s?") % {"name": name}}
    before_ms = None
    try:
        before_ms = time_asked(request, "before")
    except InvalidInput as error:
        context["time_error"] = refusal_text(error)

    def page(status: int = 200) -> HttpResponse:
        if "change" not in context:
            context["change"] = runtime.window().topic_purges.purge(name, before_ms=before_ms, dry_run=True)
        context["goes"], context["stays"] = _counts(context["change"])
        return render(request, "topics/purge.html", context, status=status)

    if "time_error" in context:
        return page(422)
    if request.method != "POST":
        return page()
    context["typed"] = request.POST.get("name", "")
    if context["typed"] != name:
        context["error"] = _("This is not the topic's name.")
        return page(422)
    force = is_forced(request)
    try:
        with failure_audited(request, "topic.purge", name):
            done = runtime.window().topic_purges.purge(
                name, before_ms=before_ms, revision=request.POST.get("revision") or None, force=force,
                by=request.user.label,
            )  # fmt: skip
    except Conflict:
        context["changed"] = True
        return page(409)
    except Blocked as error:
        audit(request, "topic.purge", name, result="refused")
        context |= {"change": error.change, "error": _("Groups have unread messages. Tick “Purge anyway” to go on.")}
        return page(409)
    before, after = before_and_after(done)
    audit(request, "topic.purge", name, before, after | {"force": force})
    messages.success(request, _("Topic %(name)s purged.") % {"name": name})
    return redirect("topic", name)


def _counts(change: Change) -> tuple[int, int | None]:
    """Return the numbers of messages that go and stay; (0, None) if none would go."""
    for one in change.differences:
        if one.field == "messages":
            before, after = int(one.before or 0), int(one.after or 0)
            return before - after, after
    return 0, None
