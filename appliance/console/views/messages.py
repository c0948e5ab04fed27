"""Messages of a topic by time, page by page over a fixed snapshot."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from ... import runtime
from ...engine.errors import InvalidInput, NotFound
from .window import asks_the_engine, not_found_sentence, refusal_text, time_asked, time_shown, topic_names

LIMIT = 50


@require_safe
@asks_the_engine
def messages(request: HttpRequest) -> HttpResponse:
    """?topic= with from, to, queue and order lists; ?cursor= continues the snapshot."""
    topic = request.GET.get("topic", "").strip()
    asked = {name: request.GET.get(name, "") for name in ("from", "to", "queue")}
    oldest_first = request.GET.get("order") == "oldest"
    context: dict[str, object] = {"topic": topic, "oldest_first": oldest_first, "asked": asked}
    status = 200
    if topic:
        try:
            begin, end = time_asked(request, "from"), time_asked(request, "to")
            asked["from"], asked["to"] = time_shown(begin), time_shown(end)
            queue = asked["queue"]
            if queue and not (queue.isascii() and queue.isdigit() and len(queue) < 10):
                raise InvalidInput("queue", _("The queue must be a number."))
            context["page"] = runtime.window().messages(
                topic,
                queue_id=int(queue) if queue else None,
                from_ms=begin,
                to_ms=end,
                newest_first=not oldest_first,
                cursor=request.GET.get("cursor") or None,
                limit=LIMIT,
            )
        except NotFound as error:
            context["error"], status = not_found_sentence(error), 404
        except InvalidInput as error:
            context["error"], status = refusal_text(error), 400
    context["topics"] = topic_names()
    return render(request, "messages/list.html", context, status=status)
