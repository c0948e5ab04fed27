"""Connect a client: the addresses, and complete programs with them in each language."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from ... import runtime
from ..pages.engine_pages import asks_the_engine, topic_names
from .snippets import LANGUAGES, TOPIC, Project, projects, shell_of

#: Shown instead of the name server's address if none runs here.
ELSEWHERE = "name-server:9876"


@require_safe
@asks_the_engine
def connect(request: HttpRequest) -> HttpResponse:
    """Show the programs; ?topic= and ?language= choose their topic and the language that is shown first."""
    admin = runtime.window()
    broker, namesrv = admin.addresses()
    topic = request.GET.get("topic", "").strip() or TOPIC
    language = request.GET.get("language", "")
    context: dict[str, Any] = {
        "broker": broker,
        "namesrv": namesrv,
        "topic": topic,
        "topics": topic_names() if broker else [],
        "chosen": language if language in LANGUAGES else LANGUAGES[0],
        "warnings": [
            check for check in admin.checks() if check.name == "address" and check.sentence.code != "advertised"
        ],
    }
    try:
        context["projects"] = with_shell(projects(namesrv or ELSEWHERE, topic))
    except ValueError:
        context["error"] = _("Clients cannot send to a topic of this name.")
    return render(request, "connect.html", context, status=422 if "error" in context else 200)


def with_shell(found: list[Project]) -> list[tuple[Project, str]]:
    """Return each project with the shell script that creates it."""
    return [(project, shell_of(project)) for project in found]
