"""The nightly reports: the newest day at a glance, each report, and the runs with their progress and results."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext as _

from ...engine.errors import Conflict, InvalidInput, NotFound, Unavailable
from .. import reports as reports_
from ..live import streams
from ..models import now_ms
from ..pages import errors, time_zones
from ..pages.engine_pages import csv_answer, csv_of, page_number, refusal_text, wants_csv
from ..pages.rows import page_of
from ..pages.template_tags import as_bytes, as_time, thousands
from ..users.access import allows
from . import schedule, sentences, shown, words

#: Longest wait of a page for a run's progress, seconds between two looks, and the shortest wait: many browsers may
#: watch one run, which reports progress twice a second.
WAIT_S, LOOK_S, LEAST_S = 10.0, 0.5, 1.0
#: Days and runs on the first page; older days are folded, older runs are on their own page.
DAYS_SHOWN, RUNS_SHOWN = 14, 5
#: States of runs that ended without reports, though nobody cancelled them.
_FAILED = ("failed", "interrupted")
#: Most characters of a log's end on a page.
LOG_SHOWN = 16_000


def reports(request: HttpRequest) -> HttpResponse:
    """Show the newest day's digest, all days, and the last runs."""
    settings = reports_.settings()
    days = reports_.days()
    runs = reports_.runs()
    newest = days[0] if days else ""
    digest = _shown(request, newest, "digest") if newest else None
    last = next((run for run in runs if run.ended_ms is not None), None)
    context: dict[str, Any] = {
        "settings": settings,
        "next_at_ms": next_at_ms(settings),
        "newest": newest,
        "newest_words": shown.day_words(newest),
        "digest": digest,
        "cards": [(name, words.title(name), words.question(name)) for name in _kept(newest)],
        "days": [(day, shown.day_words(day)) for day in days[:DAYS_SHOWN]],
        "older": [(day, shown.day_words(day)) for day in days[DAYS_SHOWN:]],
        "runs": [_run_row(run) for run in runs[:RUNS_SHOWN]],
        "more_runs": len(runs) > RUNS_SHOWN,
        "running": next((run for run in runs if run.ended_ms is None), None),
        "failed": _failure(last) if last is not None and last.state in _FAILED else None,
        "missing": what_is_missing(),
        "command": command(),
    }
    if context["failed"] is not None:
        context["log"] = reports_.log_tail(context["failed"]["run"].id)[-LOG_SHOWN:]
    if context["running"] is not None:
        context |= _progress(context["running"])
    return render(request, "reports/reports.html", context)


def report(request: HttpRequest, day: str, report: str) -> HttpResponse:
    """Show one report of one day; `format=csv` and `table` for the rows of one of its tables."""
    found = reports_.document(day, report)
    if found is None:
        raise NotFound("report", f"{report} {day}")
    if wants_csv(request):
        return table_csv(found, request.GET.get("table", ""))
    days = reports_.days()
    try:
        page = shown.document(found, partial(allows, request.user))
    except shown.Damaged as error:
        raise Unavailable(_("The file of this report is damaged: %(why)s") % {"why": str(error)}) from None
    at = days.index(day) if day in days else -1
    run = _run_of(day)
    context: dict[str, Any] = {
        "shown": page,
        "day": day,
        "day_words": shown.day_words(day),
        "earlier": days[at + 1] if 0 <= at < len(days) - 1 else "",
        "later": days[at - 1] if at > 0 else "",
        "run": run,
        "others": [(name, words.title(name), name == report) for name in _kept(day)],
        "failed": _failed_later(day, run),
    }
    for name in ("earlier", "later"):
        context[f"{name}_words"] = shown.day_words(context[name])
    if run is not None:
        context |= {"run_took_ms": _took_ms(run), "run_address": reverse("report_run", args=[run.id]),
                    "engine_words": _engine(run)}  # fmt: skip
    return render(request, "reports/report.html", context)


def table_csv(found: dict[str, Any], key: str) -> HttpResponse:
    """Return a table's rows as they are stored, with units in the names of its columns. Raises NotFound."""
    table = next((one for one in found.get("tables", ()) if one.get("key") == key), None)
    if table is None:
        raise NotFound("table", key)
    name = f"{found['report']}-{found['day']}-{key}"
    return csv_answer(name, shown.csv_header(table["columns"]), table["rows"])


def report_runs(request: HttpRequest) -> HttpResponse:
    """Show every run that is kept, newest first; `format=csv` for all of them."""
    found = reports_.runs()
    if wants_csv(request):
        return csv_of(
            "report-runs",
            "id day state started_ms ended_ms who engine rows bytes_read gaps corrupt error",
            found,
        )
    page = page_of(found, page_number(request))
    return render(request, "reports/runs.html", {"runs": [_run_row(run) for run in page.rows], "page": page})


def report_run_create(request: HttpRequest) -> HttpResponse:
    """Make the reports of a day now, for example of yesterday, or of today so far."""
    day = request.POST.get("day", "")
    try:
        made = reports_.start(request, day_of(day))
    except (Conflict, Unavailable, InvalidInput) as error:
        messages.warning(request, refusal_text(error))
        return redirect("reports")
    return redirect("report_run", made.id)


def report_run(request: HttpRequest, run: str) -> HttpResponse:
    """Show a run: its inputs, steps, outcome and log."""
    found = reports_.run(run)
    context = _progress(found) | {
        "why": sentences.failure(found),
        "log": reports_.log_tail(found.id)[-LOG_SHOWN:],
        "inputs": [
            (words.said(words.INPUTS, name), sentences.why_counted_by(found) if name == "why" else _input(name, value))
            for name, value in found.inputs.items()
        ],
        "versions": [(words.said(words.VERSIONS, name), value) for name, value in found.versions.items()],
        "has_reports": found.state == "done" and found.day in reports_.days(),
        "day_words": shown.day_words(found.day),
    }
    return render(request, "reports/run.html", context)


def report_run_progress(request: HttpRequest, run: str) -> HttpResponseBase:
    """Return the run's progress as soon as it differs from what the page shows (`seen`). After the run's end the page
    loads again. The answer is a stream, so that waiting takes no turn."""
    found = reports_.run(run)
    if found.ended_ms is not None:
        return HttpResponse(headers={"HX-Refresh": "true"})
    stream = streams.begin(request)
    if stream is None:
        return errors.too_many_streams(request)
    pieces = _next_progress(request, stream, run, request.GET.get("seen", ""), translation.get_language())
    return StreamingHttpResponse(pieces, content_type="text/html")


async def _next_progress(
    request: HttpRequest, stream: streams.Stream, run: str, seen: str, language: str | None
) -> AsyncIterator[str]:
    try:
        context = await _news(request, run, seen)

        def rendered() -> str:
            with translation.override(language):
                return render_to_string("reports/_progress.html", context | {"part": True})

        async with streams.rendering(request):
            text = await sync_to_async(rendered)()
        yield text
    finally:
        stream.end()


async def _news(request: HttpRequest, run: str, seen: str) -> dict[str, Any]:
    """Wait until the run's progress differs from `seen`, or WAIT_S; return the context of the page's part."""
    began = time.monotonic()

    def look() -> dict[str, Any]:
        return _progress(reports_.run(run))

    while True:
        stamp = reports_.stamp(run)
        async with streams.rendering(request):
            context = await sync_to_async(look)()
        waited = time.monotonic() - began
        has_news = context["seen"] != seen and waited >= LEAST_S
        if context["run"].ended_ms is not None or has_news or waited >= WAIT_S:
            return context
        is_early = context["seen"] != seen
        while time.monotonic() < began + WAIT_S:
            await asyncio.sleep(LOOK_S)
            if is_early or reports_.stamp(run) != stamp:
                break


def report_run_cancel(request: HttpRequest, run: str) -> HttpResponse:
    """Cancel a run; existing reports stay."""
    try:
        reports_.cancel(request, run)
    except Conflict as error:
        messages.warning(request, refusal_text(error))
    return redirect("report_run", run)


# --- what the pages share


def day_of(which: str) -> str:
    """Return "today" or "yesterday" in the reports' time zone as YYYY-MM-DD; another day as it is."""
    if which not in ("today", "yesterday"):
        return which
    now = datetime.now(time_zones.zone(reports_.settings().zone) or UTC)
    return (now.date() - timedelta(days=which == "yesterday")).isoformat()


def next_at_ms(settings: reports_.ReportSettings) -> int | None:
    """Return the time of the next scheduled run, in ms; None if none is scheduled."""
    zone = time_zones.zone(settings.zone)
    return schedule.next_at_ms(now_ms(), settings.at, zone) if settings.on and zone is not None else None


def what_is_missing() -> list[tuple[str, str]]:
    """Return what is missing for Spark and how to mend it, in the reader's language."""
    return [sentences.missing(one) for one in reports_.what_is_missing()]


def command() -> str:
    """Return the one command that installs what is missing for Spark; "" if there is none for this installation."""
    from spark_reports import machine

    return machine.COMMANDS.get(machine.way(), "")


def newest_digest(request: HttpRequest) -> shown.Shown | None:
    """Return the newest day's digest for the overview; None if there is none, or the user may not see it."""
    days = reports_.days() if allows(request.user, "report") else []
    return _shown(request, days[0], "digest") if days else None


def _shown(request: HttpRequest, day: str, report: str) -> shown.Shown | None:
    """Return a report for a page about something else; None if it is missing or damaged."""
    try:
        found = reports_.document(day, report)
        if found is None:
            return None
        return shown.document(found, partial(allows, request.user))
    except (shown.Damaged, Unavailable):
        return None


def _kept(day: str) -> list[str]:
    """Return the names of a day's reports in the order of pages; of all reports before the first day."""
    return reports_.kept(day, words.REPORTS) if day else list(words.REPORTS)


def _run_of(day: str) -> reports_.RunRecord | None:
    """Return the run that made a day's reports; None if it is no longer kept."""
    made = reports_.made(day)
    try:
        return None if made is None else reports_.run(made.run_id)
    except NotFound:
        return None


def _failed_later(day: str, made: reports_.RunRecord | None) -> dict[str, Any] | None:
    """Return the failure of the last run for a day, if it began after the run that made the day's reports."""
    last = next((one for one in reports_.runs() if one.day == day and one.ended_ms is not None), None)
    if made is None or last is None or last.state not in _FAILED or last.started_ms <= made.started_ms:
        return None
    return _failure(last)


def _failure(run: reports_.RunRecord) -> dict[str, Any]:
    """Return the context of `reports/_why.html`: why a run failed, what counted, and why that did."""
    return {"run": run, "day": shown.day_words(run.day), "why": sentences.failure(run), "engine": _engine(run),
            "reason": sentences.why_counted_by(run)}  # fmt: skip


def _run_row(run: reports_.RunRecord) -> dict[str, Any]:
    return {"run": run, "day": shown.day_words(run.day), "took_ms": _took_ms(run), "engine": _engine(run)}


def _engine(run: reports_.RunRecord) -> str:
    """Return the words for a run's engine, with the Spark master if it has one."""
    master = run.versions.get("master", "")
    return words.said(words.ENGINES, run.engine) + (f" {master}" if run.engine == "spark" and master else "")


def _took_ms(run: reports_.RunRecord) -> int:
    return max(0, (now_ms() if run.ended_ms is None else run.ended_ms) - run.started_ms)


def _progress(run: reports_.RunRecord) -> dict[str, Any]:
    """Return the context of `reports/_progress.html`. seen: a text that changes whenever the page should change."""
    told = reports_.progress(run.id) if run.ended_ms is None else None
    done, total = (told.done, told.total) if told is not None else (0, 0)
    steps = [(words.said(words.STEPS, step), shown.span(ms)) for step, ms in run.steps]
    return {
        "run": run,
        "took_ms": _took_ms(run),
        "told": told,
        "step": words.said(words.STEPS, told.step) if told is not None else "",
        "steps": steps,
        "width": 0 if not total else round(1000 * min(done, total) / total),
        "percent": None if not total else min(100, 100 * done // total),
        "engine_words": _engine(run),
        "cancelling": run.cancel_asked and not run.ended,
        "seen": f"{run.cancel_asked} {run.state} {told.step} {done} {total}"
        if told is not None
        else f"{run.cancel_asked} {run.state}",
    }


def _input(name: str, value: Any) -> str:
    """Format an input of a run; moments are in the reader's zone."""
    if isinstance(value, int) and name.endswith("_ms"):
        return as_time(value)
    if isinstance(value, int):
        return as_bytes(value) if name.endswith("_bytes") else thousands(value)
    return str(value)
