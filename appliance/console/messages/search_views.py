"""Search with one box, over all topics: for names of topics and groups, and for messages by place, offset id, unique id
or key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from ... import runtime
from ...engine.errors import InvalidInput, NotFound
from ..audit.log import audit
from ..pages.curl import curl
from ..pages.engine_pages import refusal_text, time_asked, time_shown, topic_names
from ..users.access import allows

if TYPE_CHECKING:
    from ...engine.window.messages.snapshots import SearchPage

LIMIT = 50
#: Characters of a body in a row.
_BODY_CHARS = 160
#: Topics that the audit log names of a page with bodies.
_MOST_TOPICS = 20
#: Most topics, and most groups, that are shown.
NAMES = 8


def search(request: HttpRequest) -> HttpResponse:
    """Search for ?q=; topic, from and to narrow keys down; ?copies=yes shows each record, also those of system topics;
    ?cursor= continues the snapshot. ?bodies=on shows the beginning of each body to users who may read bodies.

    If the text identifies one message, redirect to it. With a topic but without q, redirect to the topic's messages by
    time.
    """
    text, topic = request.GET.get("q", "").strip(), request.GET.get("topic", "").strip()
    asked = {name: request.GET.get(name, "") for name in ("from", "to")}
    if topic and not text:
        return HttpResponseRedirect(f"{reverse('messages')}?{urlencode({'topic': topic} | asked)}")
    copies = request.GET.get("copies") == "yes"
    context: dict[str, object] = {"q": text, "topic": topic, "asked": asked, "copies": copies}
    bodies = "bodies" in request.GET and allows(request.user, "message_content")
    status = 200
    try:
        begin, end = time_asked(request, "from"), time_asked(request, "to")
        asked["from"], asked["to"] = time_shown(begin), time_shown(end)
        if text:
            context["as_curl"] = curl(request, {
                "topic": topic, "from": begin, "to": end, "copies": "true" if copies else None,
                "body_chars": _BODY_CHARS if bodies else None,
            })  # fmt: skip
            cursor = request.GET.get("cursor") or None
            found = runtime.window().search.page(
                text, topic=topic or None, from_ms=begin, to_ms=end, cursor=cursor, limit=LIMIT, copies=copies,
                body_chars=_BODY_CHARS if bodies else 0,
            )  # fmt: skip
            # Many messages may share a key, so a single hit by key is not opened at once.
            one = found.hits[0] if len(found.hits) == 1 and cursor is None and found.next_cursor is None else None
            if one is not None and one.matched != "key":
                return HttpResponseRedirect(reverse("message", args=[one.message.offset_id]))
            if bodies:
                audit_bodies(request, found)
            context["page"], context["bodies"] = found, bodies
            if cursor is None:
                context["names"] = named(text)
    except NotFound as error:
        context["error"], status = refusal_text(error), 404
    except InvalidInput as error:
        context["error"], status = refusal_text(error), 400
    context["topics"] = topic_names()
    return render(request, "search.html", context, status=status)


def audit_bodies(request: HttpRequest, found: SearchPage) -> None:
    """Note a page with bodies in the audit log: what was searched, and from which topics messages came."""
    if found.hits:
        topics = sorted({hit.message.topic for hit in found.hits})[:_MOST_TOPICS]
        audit(request, "message.read", found.text, after={"messages": len(found.hits), "topics": topics})


def named(text: str) -> dict[str, Any]:
    """Return the first few topics and groups whose names contain the text, and how many more there are."""
    if len(text) > 255:
        return {"topics": [], "groups": [], "more_topics": 0, "more_groups": 0}
    window = runtime.window()
    topics: Any = window.topics.page(q=text, show="all", page_size=NAMES)
    groups: Any = window.groups.page(q=text, system=True, page_size=NAMES)
    shown = {"topics": [row.name for row in topics.rows], "groups": [row.name for row in groups.rows]}
    return shown | {"more_topics": topics.total - len(topics.rows), "more_groups": groups.total - len(groups.rows)}
