"""The start page: what runs here, where clients find it, and whether it is well."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from ... import runtime

# Check of Engine.health() -> what it is about, for people.
CHECK_WORDS = {"io": _("Network"), "store": _("Message store"), "queues": _("Consume queues")}


@require_safe
def start_page(request: HttpRequest) -> HttpResponse:
    """Addresses, version, uptime and checks."""
    running = runtime.running()
    engine = running.engine
    checks = [
        {"name": CHECK_WORDS.get(name, name), "ok": check["ok"], "detail": check["detail"]}
        for name, check in sorted(engine.health().items())
    ]
    context = {
        "uptime_s": running.uptime_s,
        "broker": engine.broker_address,
        "namesrv": engine.namesrv_address,
        "http": running.http_address,
        "checks": checks,
        "well": all(check["ok"] for check in checks),
    }
    return render(request, "overview.html", context)
