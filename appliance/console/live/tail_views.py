"""A topic's messages as they come. The same address serves the page and, for a request to upgrade, its WebSocket
(`web_sockets`); the address has the filters."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.http import urlencode

from ...engine.errors import InvalidInput, NotFound
from ..pages.engine_pages import not_found_sentence, refusal_text, topic_names
from ..users.access import allows
from .tail import begin, wish_of

_ASKED = ("topic", "tags", "key", "expression", "one_in", "per_second")


def message_tail(request: HttpRequest) -> HttpResponse:
    """Show the page. Its script opens the socket if the topic exists and the filters are valid."""
    asked = {name: request.GET.get(name, "").strip() for name in _ASKED}
    context: dict[str, object] = {
        "asked": asked,
        "topics": topic_names(),
        "bodies": allows(request.user, "message_content"),
    }
    status = 200
    if asked["topic"]:
        try:
            wish = wish_of(request.GET, bodies=False)
            begin(wish, dry_run=True)
            context["query"] = urlencode({name: value for name, value in asked.items() if value})
            context["latest"] = urlencode({"topic": wish.topic})
            context["wish"] = wish
        except NotFound as error:
            context["error"], status = not_found_sentence(error), 404
        except InvalidInput as error:
            context |= {"error": refusal_text(error), "wrong": error.field}
            status = 400
    return render(request, "messages/tail.html", context, status=status)
