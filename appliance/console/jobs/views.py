"""Jobs: the list, one job with its progress or result, and its files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.utils import translation
from django.utils.http import content_disposition_header

from ...engine.errors import Conflict, NotFound
from .. import jobs as jobs_
from ..audit.log import audit
from ..live import streams
from ..pages import errors
from ..pages.engine_pages import csv_of, page_number, refusal_text, wants_csv
from ..pages.rows import page_of
from . import message_copy

#: Longest wait of a page for progress, and seconds between two looks.
WAIT_S, LOOK_S = 10.0, 0.02
PIECE_BYTES = 256 << 10


def jobs(request: HttpRequest) -> HttpResponse:
    """Show the jobs that the user may see, newest first, by kind and state; `format=csv` for the rows of the filter."""
    kind, state = request.GET.get("kind", ""), request.GET.get("state", "")
    found = jobs_.seen(request.user, kind, state)
    if wants_csv(request):
        return csv_of(
            "jobs",
            "job=id kind target state who created_ms=created_at_ms started_ms=started_at_ms ended_ms=ended_at_ms "
            "done total unit",
            found,
        )
    page = page_of(found, page_number(request))
    offered = {one.name: one.title for one in jobs_.kinds().values() if one.fetch.admits(request.user)}
    context = {
        "rows": [(one, jobs_.kind_of(one.kind)) for one in page.rows],
        "page": page,
        "kind": kind, "state": state, "kinds": offered, "states": jobs_.STATES,
    }  # fmt: skip
    return render(request, "jobs/list.html", context)


def job(request: HttpRequest, job: str) -> HttpResponse:
    """Show one job."""
    found = jobs_.find(request.user, job)
    context = _context(request, found) | {
        "parameters": [(name, value) for name, value in found.parameters.items() if value not in (None, "", [], {})],
        "result": found.result.items(),
        "originals_copied": found.kind == message_copy.NAME and message_copy.copied_all(found),
    }
    return render(request, "jobs/job.html", context)


def job_progress(request: HttpRequest, job: str) -> HttpResponseBase:
    """Return the job's progress as soon as it differs from what the page shows (`seen`). After the job's end the page
    loads again, with its result. The answer is a stream, so that waiting takes no turn."""
    found = jobs_.find(request.user, job)
    seen = request.GET.get("seen", "")
    if found.ended:
        return HttpResponse(headers={"HX-Refresh": "true"})
    stream = streams.begin(request)
    if stream is None:
        return errors.too_many_streams(request)
    context = _context(request, found) | {"part": True}
    pieces = _next_progress(request, stream, context, seen, translation.get_language())
    return StreamingHttpResponse(pieces, content_type="text/html")


async def _next_progress(
    request: HttpRequest, stream: streams.Stream, context: dict[str, Any], seen: str, language: str | None
) -> AsyncIterator[str]:
    found = context["job"]
    end = time.monotonic() + WAIT_S

    def rendered() -> str:
        with translation.override(language):
            return render_to_string("jobs/_progress.html", context)

    try:
        while str(found.changes) == seen and not found.ended and time.monotonic() < end:
            await asyncio.sleep(LOOK_S)
        async with streams.rendering(request):
            text = await sync_to_async(rendered)()
        yield text
    finally:
        stream.end()


def job_cancel(request: HttpRequest, job: str) -> HttpResponse:
    """Cancel a job, at its next step if it runs."""
    found = jobs_.find(request.user, job)
    if not found.ended and not jobs_.may_cancel(request.user, found):
        raise NotFound("job", job)
    try:
        jobs_.cancel(request, job)
    except Conflict as error:
        messages.warning(request, refusal_text(error))
    return redirect("job", job)


def job_file(request: HttpRequest, job: str, name: str) -> HttpResponseBase:
    """Download one of a job's files."""
    return file_answer(request, jobs_.find(request.user, job), name)


def file_answer(request: HttpRequest, found: jobs_.Job, name: str) -> HttpResponseBase:
    """Return a file of a job as a download, piece by piece. Raises NotFound."""
    listed = next((one for one in found.files if one.name == name), None)
    path = jobs_.board().folder(found.id).file(name) if listed else None
    if listed is None or path is None or not path.is_file():
        raise NotFound("file", name)
    of = {"job": found.id, "kind": found.kind, "file": name}
    return stream(request, path, name, listed.bytes, "job.download", found.target or found.id, of)


def stream(
    request: HttpRequest, path: Path, name: str, size: int, action: str, target: str = "", of: Any = None
) -> HttpResponseBase:
    """Return a file as a download, piece by piece; a browser never shows or runs it. action, target, of: what the audit
    log says of a download that begins; its target is the file if none is given."""
    place = streams.begin(request)
    if place is None:
        return errors.too_many_streams(request)
    audit(request, action, target or name, after=of)
    response = StreamingHttpResponse(_pieces(place, path), content_type="application/octet-stream")
    response.headers["Content-Disposition"] = content_disposition_header(True, name)
    response.headers["Content-Length"] = str(size)
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


async def _pieces(place: streams.Stream, path: Path) -> AsyncIterator[bytes]:
    try:
        with await asyncio.to_thread(path.open, "rb") as file:
            while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                yield piece
    finally:
        place.end()


def _context(request: HttpRequest, found: jobs_.Job) -> dict[str, Any]:
    kind = jobs_.kind_of(found.kind)
    whole = max(found.total or found.done, 1)
    parts = [(kind.word(name), count, "bad" if name in kind.bad else "good") for name, count in found.counts.items()]
    segments, left = [], 0.0
    for _word, count, tone in [*parts, ("", found.other if found.counts else found.done, "soft" if parts else "good")]:
        width = round(1000 * count / whole, 1)
        segments.append((left, width, tone))
        left += width
    return {
        "job": found, "kind": kind, "unit": kind.word(found.unit) if found.unit else "", "parts": parts,
        "segments": segments, "may_cancel": jobs_.may_cancel(request.user, found),
    }  # fmt: skip
