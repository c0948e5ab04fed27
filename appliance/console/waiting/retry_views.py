"""A group's retry ladder: messages that its consumers sent back and that wait for their next try, and acts on them."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from ... import runtime
from ...engine.errors import InvalidInput
from ..pages.changes import is_final
from ..pages.engine_pages import PAGE_SIZE, csv_of, refusal_text, wants_csv
from ..pages.outcomes import keep, kept, way_back
from .delayed_views import asked_act, carried_out, line_of, named_in_audit, preview_of

#: Most rows of a CSV, which reads one page of the window after the other.
CSV_ROWS = 10_000


def group_retries(request: HttpRequest, name: str) -> HttpResponse:
    """Show how many messages wait at each level, and a list, those due first at the top; `format=csv` for the list."""
    admin = runtime.window()
    ladder = admin.waiting.ladder(name)
    context: dict[str, Any] = {"group": name, "ladder": ladder, "asked_level": request.GET.get("level", "")}
    status = 200
    try:
        level = _level(request.GET.get("level", ""))
        if wants_csv(request):
            return _csv(name, level)
        cursor = request.GET.get("cursor") or None
        context["page"] = admin.waiting.page(group=name, level=level, cursor=cursor, limit=PAGE_SIZE)
        context |= {"level": level, "carried": {"level": level}}
        context["act_on_all"] = f"{reverse('group_retries_act', args=[name])}?level={'' if level is None else level}"
    except InvalidInput as error:
        context["error"] = refusal_text(error)
        status = 422
    letters: tuple[Any, ...] = admin.dead_letters.groups(name, page_size=500).rows
    context["dead"] = next((row.count for row in letters if row.group == name), 0)
    return render(request, "retries/list.html", context, status=status)


def _level(text: str) -> int | None:
    text = text.strip()
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput("level", _("“%(text)s” is not a delay level.") % {"text": text[:40]})
    return int(text) if text else None


def _csv(name: str, level: int | None) -> HttpResponse:
    rows: list[Any] = []
    cursor = None
    while len(rows) < CSV_ROWS:
        page = runtime.window().waiting.page(group=name, level=level, cursor=cursor, limit=500)
        rows += page.rows
        cursor = page.next_cursor
        if cursor is None:
            break
    return csv_of(
        f"retries-{name}",
        "due_ms=due_at_ms level offset=queue_offset origin_topic retries=reconsume_times unique_id keys tag=tags "
        "sent_back_ms=stored_at_ms",
        rows,
    )


def group_retries_act(request: HttpRequest, name: str) -> HttpResponse:
    """Show what an act on ticked retries, or on all of the group or a level, would do; then do it."""
    if (asked := asked_act(request)) is None:
        return redirect(way_back(request, ("level",), "group_retries", name))
    values, what, places = asked
    level = _level(values.get("level", ""))
    runtime.window().waiting.check_retries(name, places)
    chosen: dict[str, Any] = {} if places else {"group": name} | ({} if level is None else {"level": level})
    if request.method == "POST" and is_final(request):
        named = named_in_audit(places, chosen)
        done = carried_out(request, f"retry.{what}", name, what, places, chosen, named)
        if done is None:
            return redirect("group_retries", name)
        facts, results = done
        facts |= {"group": name, "level": level, "all": not places}
        keep(request, "retries_done", facts, (line_of(one) for one in results))
        return redirect("group_retries_done", name)
    context = preview_of(request, what, places, chosen)
    if context is None:
        return redirect("group_retries", name)
    return render(request, "retries/preview.html", context | {"group": name, "level": level})


def group_retries_done(request: HttpRequest, name: str) -> HttpResponse:
    """Show the result of this session's last act on this group's retries."""
    found = kept(request, "retries_done")
    if found is None or found.get("group") != name:
        return redirect("group_retries", name)
    return render(request, "retries/done.html", {"act": found, "group": name})
