"""The overview: the state of the broker, its needs, and the groups furthest behind. Updated once a second."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from ... import runtime
from ...engine.errors import AdminError, Unavailable
from ..history import charts
from ..live import streams
from ..live.feed import live_feed
from ..models import now_ms
from ..pages import errors
from ..pages.engine_pages import refusal_text
from ..reports.wanted import any_run
from . import needs

if TYPE_CHECKING:
    from ..reports.shown import Shown

HISTORY_S = 600
#: Figure of a tile -> class of its line.
_SPARKS = {"in_rate": "a", "out_rate": "b", "lag_ms": "a", "log_bytes": "b"}
#: A stream ends after this time; the browser opens the next one and is authenticated again.
STREAM_S = 600.0


def overview(request: HttpRequest) -> HttpResponse:
    """Show the overview; without a broker in this process, only what runs and the checks."""
    running = runtime.running()
    admin = runtime.window()
    addresses = admin.addresses()
    context: dict[str, Any] = {
        "broker": addresses.broker,
        "namesrv": addresses.namesrv,
        "http": running.http_address,
        "uptime_s": running.uptime_s,
    }
    try:
        shown = admin.overview.snapshot()
    except Unavailable as error:
        health = admin.health()
        context |= {"why": refusal_text(error), "health": sorted(health.items())}
        context["well"] = all(check["ok"] for check in health.values())
        return render(request, "overview/no_broker.html", context)
    context |= {
        "shown": shown,
        "disk_is_full": shown.disk_full_at_ms is not None and shown.disk_full_at_ms <= now_ms(),
        "board": needs.board([*shown.needs, *needs.of_reports()], request.user),
        "digest": _digest(request),
        "sparks": {name: charts.spark(name, "", now_ms(), css=css) for name, css in _SPARKS.items()},
        "group_sparks": [
            (row, charts.spark("group_lag_ms", row.group, now_ms(), width=96, height=22)) for row in shown.behind
        ],
        "history": history(),
        "names": {"in": _("received"), "out": _("delivered")},
    }
    return render(request, "overview/page.html", context)


def _digest(request: HttpRequest) -> Shown | None:
    """Return the newest day's digest. The reports' code is loaded if there was ever a run."""
    if not any_run():
        return None
    from ..reports.views import newest_digest

    return newest_digest(request)


def history() -> str:
    """Return the last ten minutes as JSON: [[seconds since 1970], [received a second], [delivered a second]]."""
    admin = runtime.window()
    came, went = admin.charts.series("in", HISTORY_S), admin.charts.series("out", HISTORY_S)
    delivered = dict(zip(went.times_at_ms, went.values, strict=True))
    times = [at // 1000 for at in came.times_at_ms]
    return json.dumps([times, came.values, [delivered.get(at) for at in came.times_at_ms]])


async def overview_live(request: HttpRequest) -> HttpResponse:
    """Stream server-sent events: each new frame of the window, the same bytes for all browsers."""
    stream = streams.begin(request)
    if stream is None:
        return errors.too_many_streams(request)
    try:
        runtime.window().live.frame()
    except AdminError as error:
        stream.end()
        return HttpResponse(str(error), status=503, content_type="text/plain; charset=utf-8")
    response = StreamingHttpResponse(_frames(stream), content_type="text/event-stream")
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    return response


async def _frames(stream: streams.Stream) -> AsyncIterator[bytes]:
    try:
        feed = live_feed()
        end = time.monotonic() + STREAM_S
        yield b"retry: 2000\n\n" + feed.latest
        while time.monotonic() < end:
            event = await feed.next()
            if event is None:
                return
            yield event
    finally:
        stream.end()
