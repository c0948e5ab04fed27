"""Dead letters: the groups that have some, and those of one group, counted by origin topic, retries and hour."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils.translation import gettext as _

from ... import runtime
from ...engine.errors import InvalidInput
from ..audit.log import audit
from ..pages.curl import command
from ..pages.engine_pages import (
    CSV_ROWS,
    PAGE_SIZE,
    all_rows,
    csv_answer,
    csv_of,
    page_number,
    refusal_text,
    time_asked,
    time_shown,
    wants_csv,
)  # fmt: skip
from ..sign_in.identity import names_for
from ..users.access import allows
from ..users.scope import cut

HOUR_MS = 3_600_000
#: Most columns and rows of the grid; dead letters beyond them are only summed up.
MOST_HOURS = 12
MOST_KINDS = 40
#: Characters of a body in a row.
BODY_CHARS = 160
#: The rows of a CSV are searched for at most this long.
CSV_S = 10.0


@dataclass(frozen=True, slots=True)
class GridRow:
    """The dead letters of one origin topic and retry count. cells: (hour, count) in the order of the columns. older:
    count before those hours. query: part of an address that lists them."""

    topic: str
    retries: int
    cells: tuple[tuple[int, int], ...]
    older: int
    total: int
    query: str


def dead_letter_groups(request: HttpRequest) -> HttpResponse:
    """Show the groups that have dead letters, and the replays; `format=csv` for all rows of the filter."""
    q = request.GET.get("q", "")
    sort = request.GET.get("sort", "-count")
    admin = runtime.window()

    def fetch(page: int, size: int) -> Any:
        return admin.dead_letters.groups(q, sort, page, size)

    fetch_cut = cut(request, "group", fetch)
    if wants_csv(request):
        columns = (
            "group dead_letters=count oldest_ms=oldest_at_ms newest_ms=newest_at_ms "
            "expires_not_before_ms=expires_not_before_at_ms replay=job"
        )
        return csv_of("dead-letters", columns, all_rows(fetch_cut))
    found = admin.replays.jobs()
    expiring = admin.dead_letters.expiring()
    names = names_for(request.user)
    context = {"page": fetch_cut(page_number(request), PAGE_SIZE), "q": q, "sort": sort}
    context |= {"expiring_total": sum(one.count for one in expiring.groups if names.has_group(one.group))}
    context |= {"soon": {one.group: one.count for one in expiring.groups}}
    context |= {"jobs": [job for job in found.jobs if names.has_group(job.group)][:20]}
    context |= {"unreadable": found.unreadable if names.is_every else ()}
    return render(request, "dead_letters/groups.html", context)


#: Parameters of the filter in the list's address.
FILTER = ("from", "to", "origin", "no_origin", "retries", "key", "replayed")


def letters_asked(source: QueryDict) -> dict[str, Any]:
    """Read the filter from an address or a form. Raises InvalidInput for an invalid number."""
    retries = source.get("retries", "").strip()
    if retries and not (retries.isascii() and retries.isdigit() and len(retries) < 10):
        raise InvalidInput("retries", _("“%(text)s” is not a number.") % {"text": retries[:40]})
    found: dict[str, Any] = {"topic": source.get("origin"), "key": source.get("key", "").strip()}
    found = {name: value for name, value in found.items() if value} | ({"retries": int(retries)} if retries else {})
    if source.get("no_origin") == "yes":
        found["topic"] = ""
    replayed = source.get("replayed", "")
    return found | ({"replayed": replayed} if replayed else {})


def dead_letters(request: HttpRequest, name: str) -> HttpResponse:
    """Show a group's dead letters, newest first, with a form for the ticked ones; `format=csv` for those of the
    filter, ?bodies=on for the beginning of each body to users who may read bodies."""
    admin = runtime.window()
    asked = {field: request.GET.get(field, "") for field in ("from", "to", "origin", "retries", "key", "replayed")}
    context: dict[str, Any] = {"group": name, "asked": asked, "no_origin": request.GET.get("no_origin") == "yes"}
    context["carried"] = {field: request.GET.get(field, "") for field in FILTER}
    status = 200
    try:
        from_ms, to_ms = time_asked(request, "from"), time_asked(request, "to")
        asked |= {"from": time_shown(from_ms), "to": time_shown(to_ms)}
        wanted = letters_asked(request.GET)
        context |= {"from_ms": from_ms, "to_ms": to_ms, "wanted": wanted}
        if wants_csv(request):
            return _csv(name, _all_letters(name, from_ms, to_ms, wanted))
        cursor = request.GET.get("cursor") or None
        bodies = "bodies" in request.GET and allows(request.user, "message_content")
        context["as_curl"] = _curl(request, name, from_ms, to_ms, wanted, bodies)
        context["page"] = found = admin.dead_letters.page(
            name, from_ms=from_ms, to_ms=to_ms, wanted=wanted, cursor=cursor, limit=PAGE_SIZE,
            body_chars=BODY_CHARS if bodies else 0,
        )  # fmt: skip
        context["bodies"] = bodies
        if bodies:
            audit(request, "message.read", f"%DLQ%{name}", after={"messages": len(found.rows)})
        context["filtered"] = bool(wanted) or from_ms is not None or to_ms is not None
    except InvalidInput as error:
        context["error"] = refusal_text(error)
        status = 422
    summary = admin.dead_letters.summary(name)
    hours, rows, more = grid(summary.cells)
    context |= {"summary": summary, "hours": hours, "grid": rows, "more_kinds": more}
    context["origins"] = sorted({cell.topic for cell in summary.cells if cell.topic})[:200]
    context["expiring"] = next((one for one in admin.dead_letters.expiring().groups if one.group == name), None)
    jobs = admin.replays.jobs(name).jobs
    context |= {"jobs": jobs[:10], "job_times": {job.id: job.created_at_ms for job in jobs}}
    context["ladder"] = admin.waiting.ladder(name) if not summary.total else None
    return render(request, "dead_letters/group.html", context, status=status)


def _curl(
    request: HttpRequest, name: str, from_ms: int | None, to_ms: int | None, wanted: dict[str, Any], bodies: bool
) -> str:
    """Return the command that lists the same dead letters, from the first page on."""
    given: dict[str, Any] = {"from": from_ms, "to": to_ms, "body_chars": BODY_CHARS if bodies else None}
    given |= {"origin_topic" if field == "topic" else field: value for field, value in wanted.items()}
    # An empty origin_topic is a filter, too: those whose origin is not known.
    asked = urlencode({field: value for field, value in given.items() if value is not None})
    return command(request, f"groups/{quote(name, safe='')}/dead-letters{'?' if asked else ''}{asked}")


def grid(cells: Any) -> tuple[list[int], list[GridRow], int]:
    """Return the newest hours with dead letters, newest first; the rows, those with the most first; and the number of
    dead letters in further rows."""
    hours = sorted({cell.hour_at_ms for cell in cells}, reverse=True)[:MOST_HOURS]
    kinds: Counter[tuple[str, int]] = Counter()
    at: Counter[tuple[str, int, int]] = Counter()
    for cell in cells:
        kinds[cell.topic, cell.retries] += cell.count
        at[cell.topic, cell.retries, cell.hour_at_ms] += cell.count
    rows = []
    for (topic, retries), total in sorted(kinds.items(), key=lambda one: (-one[1], one[0]))[:MOST_KINDS]:
        counts = [at[topic, retries, hour] for hour in hours]
        query = urlencode(({"origin": topic} if topic else {"no_origin": "yes"}) | {"retries": retries})
        cells_of = tuple(zip(hours, counts, strict=True))
        rows.append(GridRow(topic, retries, cells_of, total - sum(counts), total, query))
    return hours, rows, sum(kinds.values()) - sum(row.total for row in rows)


def _all_letters(name: str, from_ms: int | None, to_ms: int | None, wanted: dict[str, Any]) -> Iterator[Any]:
    """Yield the dead letters of the filter: CSV_ROWS at most, and only those found within CSV_S."""
    cursor, count, end = None, 0, time.monotonic() + CSV_S
    while count < CSV_ROWS and time.monotonic() < end:
        page = runtime.window().dead_letters.page(
            name, from_ms=from_ms, to_ms=to_ms, wanted=wanted, cursor=cursor, limit=500
        )
        yield from page.rows
        count += len(page.rows)
        cursor = page.next_cursor
        if cursor is None:
            return


def _csv(name: str, rows: Iterator[Any]) -> HttpResponse:
    return csv_answer(
        f"dead-letters-{name}",
        ("dead_since_ms", "queue", "offset", "offset_id", "unique_id", "keys", "tag", "origin_topic", "origin_id",
         "retries", "times_replayed", "expires_not_before_ms"),
        (
            (row.stored_at_ms, row.queue_id, row.queue_offset, row.offset_id, row.unique_id,
             " ".join(row.keys), row.tags, one.origin_topic, one.origin_id, row.reconsume_times,
             one.times_replayed, one.expires_not_before_at_ms)
            for one in rows
            for row in (one.message,)
        ),
    )  # fmt: skip
