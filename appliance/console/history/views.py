"""Plots of the figures of the broker, a topic or a group, over any span."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import runtime
from ...engine.errors import InvalidInput
from ..models import now_ms
from ..pages.curl import command_of
from ..pages.engine_pages import csv_answer, time_asked, time_shown, wants_csv
from ..pages.words import WORDS
from . import charts, series

#: Title -> (figure, name of its line) of each plot.
_Plots = tuple[tuple[Any, tuple[tuple[str, Any], ...]], ...]
_IN, _OUT = gettext_lazy("received"), gettext_lazy("delivered")
BROKER: _Plots = (
    (gettext_lazy("Messages a second"), (("in_rate", _IN), ("out_rate", _OUT))),
    (gettext_lazy("Bytes a second"), (("in_bytes_rate", _IN), ("out_bytes_rate", _OUT))),
    (gettext_lazy("Lag of all groups, in messages"), (("lag", gettext_lazy("lag")),)),
    (gettext_lazy("Lag time of the slowest group"), (("lag_ms", gettext_lazy("lag time")),)),
    (
        gettext_lazy("Dead letters and retries"),
        (("dead_letters", gettext_lazy("dead letters")), ("retries", gettext_lazy("retries ready"))),
    ),
    (
        gettext_lazy("Messages that wait for their time"),
        (("delayed_messages", gettext_lazy("at a delay level")), ("timed_messages", gettext_lazy("for a time"))),
    ),
    (gettext_lazy("Open transactions"), (("half_messages", gettext_lazy("half messages")),)),
    (gettext_lazy("Time per log sync"), (("sync_ms", gettext_lazy("average")),)),
    (gettext_lazy("Commit log"), (("log_bytes", gettext_lazy("size")),)),
    (gettext_lazy("Disk used"), (("disk_used_percent", gettext_lazy("used")),)),
    (gettext_lazy("Memory of the process"), (("memory_bytes", gettext_lazy("resident")),)),
    (gettext_lazy("Connections"), (("connections", gettext_lazy("connections")),)),
)
TOPIC: _Plots = (
    (
        gettext_lazy("Messages a second"),
        (("topic_in_rate", _IN), ("topic_out_rate", gettext_lazy("committed by its groups"))),
    ),
    (gettext_lazy("Messages"), (("topic_messages", gettext_lazy("kept")),)),
    (gettext_lazy("Bytes"), (("topic_bytes", gettext_lazy("kept, estimated")),)),
)
GROUP: _Plots = (
    (gettext_lazy("Lag time"), (("group_lag_ms", gettext_lazy("lag time")),)),
    (gettext_lazy("Lag, in messages"), (("group_lag", gettext_lazy("lag")),)),
    (gettext_lazy("Offsets committed a second"), (("group_out_rate", gettext_lazy("committed")),)),
    (
        gettext_lazy("Dead letters and retries"),
        (("group_dead_letters", gettext_lazy("dead letters")), ("group_retries", gettext_lazy("retries ready"))),
    ),
)


def broker_history(request: HttpRequest) -> HttpResponse:
    """Show the broker's own figures; `format=csv` for the values."""
    return _page(request, BROKER, "", {"heading": _("History")})


def topic_history(request: HttpRequest, name: str) -> HttpResponse:
    """Show a topic's figures; `format=csv` for the values."""
    runtime.window().topics.settings(name)
    return _page(request, TOPIC, name, {"heading": _("History of %(name)s") % {"name": name}, "topic": name})


def group_history(request: HttpRequest, name: str) -> HttpResponse:
    """Show a group's figures; `format=csv` for the values."""
    runtime.window().groups.detail(name)
    return _page(request, GROUP, name, {"heading": _("History of %(name)s") % {"name": name}, "group": name})


def _usual_span() -> str:
    """Return the name of the shortest span that shows all figures, but at most a day."""
    begin = series.begin_ms()
    age = 0 if begin is None else now_ms() - begin
    return next((name for name in ("1h", "6h") if age <= charts.SPANS[name]), "24h")


def _page(request: HttpRequest, wanted: _Plots, label: str, context: dict[str, Any]) -> HttpResponse:
    since, until = time_asked(request, "from"), time_asked(request, "to")
    span = request.GET.get("span") or _usual_span()
    if since is not None or until is not None:
        span = ""
        until = now_ms() if until is None else min(until, now_ms())
        since = until - charts.SPANS["24h"] if since is None else max(since, until - charts.SPANS["13mo"])
        if since >= until:
            raise InvalidInput("from", _("“Until” is before “from”."))
    else:
        if span not in charts.SPANS:
            raise InvalidInput("span", _("There is no such span."))
        until = now_ms()
        since = until - charts.SPANS[span]
    plots = [
        {"title": title, "plot": charts.plot([(name, str(line)) for name, line in lines], label, since, until)}
        for title, lines in wanted
    ]
    if wants_csv(request):
        columns = [line for one in plots for line in one["plot"].lines]
        rows = zip(*(line.history.averages for line in columns), strict=True)
        times = plots[0]["plot"].lines[0].history.times_at_ms
        return csv_answer(
            f"history-{label}" if label else "history",
            ("from_ms", *(line.history.name for line in columns)),
            ((at, *values) for at, values in zip(times, rows, strict=True)),
        )
    figures = [name for _title, lines in wanted for name, _line in lines]
    context["as_curl"] = _curl(request, context, figures, since, until)
    context |= {
        "plots": plots,
        "span": span,
        "spans": [(name, WORDS[name]) for name in charts.SPANS],
        "step_ms": plots[0]["plot"].step_ms,
        "from_shown": time_shown(since) if not span else "",
        "to_shown": time_shown(until) if not span else "",
    }
    return render(request, "history/page.html", context)


def _curl(request: HttpRequest, context: dict[str, Any], figures: list[str], since: int, until: int) -> str:
    """Return a command for each figure that the page draws."""
    asked = {name: context.get(name, "") for name in ("topic", "group")} | {"from": since, "to": until}
    return "\n".join(command_of(request, "metrics/series", {"metric": name} | asked) for name in figures)
