"""One box for names of topics and groups, and for whatever a message is called by: its place, its offset id, its unique
id, a key; over all topics."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from ... import runtime
from ...engine.errors import InvalidInput, NotFound
from .window import asks_the_engine, refusal_text, time_asked, time_shown, topic_names

LIMIT = 50
#: Topics, and groups, that are named.
NAMES = 8


@require_safe
@asks_the_engine
def search(request: HttpRequest) -> HttpResponse:
    """?q= is what was typed; topic, from and to narrow keys down; ?copies=yes shows each record, also those of
    system topics; ?cursor= continues the snapshot.

    What names one message leads to it. Without q but with a topic it is the topic's messages by time that are meant.
    """
    text, topic = request.GET.get("q", "").strip(), request.GET.get("topic", "").strip()
    asked = {name: request.GET.get(name, "") for name in ("from", "to")}
    if topic and not text:
        return HttpResponseRedirect(f"{reverse('messages')}?{urlencode({'topic': topic} | asked)}")
    copies = request.GET.get("copies") == "yes"
    context: dict[str, object] = {"q": text, "topic": topic, "asked": asked, "copies": copies}
    status = 200
    try:
        begin, end = time_asked(request, "from"), time_asked(request, "to")
        asked["from"], asked["to"] = time_shown(begin), time_shown(end)
        if text:
            cursor = request.GET.get("cursor") or None
            found = runtime.window().search(
                text, topic=topic or None, from_ms=begin, to_ms=end, cursor=cursor, limit=LIMIT, copies=copies
            )
            # Many messages may share a key or a unique id; only what can be but one is opened at once.
            one = found.hits[0] if len(found.hits) == 1 and cursor is None and found.next_cursor is None else None
            if one is not None and one.matched != "key":
                return HttpResponseRedirect(reverse("message", args=[one.row.offset_id]))
            context["page"] = found
            if cursor is None:
                context["names"] = named(text)
    except NotFound as error:
        context["error"], status = refusal_text(error), 404
    except InvalidInput as error:
        context["error"], status = refusal_text(error), 400
    context["topics"] = topic_names()
    return render(request, "search.html", context, status=status)


def named(text: str) -> dict[str, Any]:
    """Topics and groups whose names hold the text: the first few, and how many there are."""
    if len(text) > 255:
        return {"topics": [], "groups": [], "more_topics": 0, "more_groups": 0}
    window = runtime.window()
    topics: Any = window.topics(q=text, show="all", page_size=NAMES)
    groups: Any = window.groups(q=text, system=True, page_size=NAMES)
    shown = {"topics": [row.name for row in topics.rows], "groups": [row.name for row in groups.rows]}
    return shown | {"more_topics": topics.total - len(topics.rows), "more_groups": groups.total - len(groups.rows)}
