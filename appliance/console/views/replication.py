"""Replication: who follows this broker, or whom it follows."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ... import runtime
from ...engine.host_port import bracketed, host_of
from .window import asks_the_engine


@require_safe
@asks_the_engine
def replication(request: HttpRequest) -> HttpResponse:
    """The slaves of a master, or the master of a slave."""
    return render(request, "replication/page.html", _context(request))


@require_safe
@asks_the_engine
def replication_now(request: HttpRequest) -> HttpResponse:
    """What of the page moves, for it to ask for every few seconds."""
    return render(request, "replication/_now.html", _context(request) | {"again": True})


def _context(request: HttpRequest) -> dict[str, Any]:
    admin = runtime.window()
    shown = admin.replication()
    checks = [one for one in admin.checks() if one.name == "replication"]
    levels = [one.level for one in checks]
    worst = next((level for level in ("failed", "warning", "ok") if level in levels), "")
    master = shown.master.address if shown.master is not None else None
    return {"shown": shown, "checks": checks, "level": worst, "console_guess": _console_of(request, master)}


def _console_of(request: HttpRequest, address: str | None) -> str:
    """Where a master's console is when it has the port of this one: nobody has told."""
    if not address:
        return ""
    port = request.get_port()
    return f"{request.scheme}://{bracketed(host_of(address))}:{port}/"
