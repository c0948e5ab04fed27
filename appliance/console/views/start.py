"""The start page: what runs here, where clients find it, and whether it is well."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ... import __version__, runtime

# Check of EngineProcess.health() -> what it is about, for people.
CHECK_WORDS = {"io": "Network", "store": "Message store", "queues": "Consume queues"}


@require_safe
async def start_page(request: HttpRequest) -> HttpResponse:
    """Addresses, version, uptime and checks; 503 with a plain sentence while there is no engine."""
    try:
        running = runtime.running()
    except runtime.EngineNotRunning:
        return render(request, "console/start.html", {"version": __version__, "running": False}, status=503)
    engine = running.engine
    # Nobody logs in yet, and a check's detail may name paths: told to this machine only.
    open_to_all = not runtime.is_loopback(running.options.bind)
    checks = [
        {"name": CHECK_WORDS.get(name, name), "ok": check["ok"], "detail": "" if open_to_all else check["detail"]}
        for name, check in sorted(engine.health().items())
    ]
    context = {
        "running": True,
        "version": __version__,
        "uptime": in_words(running.uptime_s),
        "broker": engine.broker_address,
        "namesrv": engine.namesrv_address,
        "http": running.http_address,
        "open_to_all": open_to_all,
        "checks": checks,
        "well": all(check["ok"] for check in checks),
        "metrics": sorted(engine.admin.metrics().items()),
    }
    return render(request, "console/start.html", context)


def in_words(seconds: float) -> str:
    """A duration as its two largest units: `2 days 3 h`, `4 min 10 s`, `7 s`."""
    whole = timedelta(seconds=int(seconds))
    hours, rest = divmod(whole.seconds, 3600)
    minutes, left = divmod(rest, 60)
    if whole.days:
        return f"{whole.days} day{'s' if whole.days > 1 else ''} {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left} s" if minutes else f"{left} s"
