"""Messages of a topic by time, page by page over a fixed snapshot, optionally filtered by an expression."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _

from ... import runtime
from ...engine.errors import InvalidInput, NotFound
from ..audit.log import audit
from ..pages.curl import command
from ..pages.engine_pages import (
    csv_answer,
    not_found_sentence,
    refusal_text,
    time_asked,
    time_shown,
    topic_names,
    wants_csv,
)
from ..users.access import allows

LIMIT = 50
#: Characters of a body in a row of the list.
_BODY_CHARS = 160
_HEADER = (
    *("topic", "queue", "offset", "stored_at", "born_at", "born_host", "tags", "keys", "unique_id", "offset_id"),
    *("body_bytes", "size_bytes", "retries"),
)


def messages(request: HttpRequest) -> HttpResponse:
    """List the messages of ?topic= by from, to, queue, order and filter; ?cursor= continues the snapshot; ?format=csv
    or ndjson downloads the rows of the page, without bodies. ?bodies=on shows the beginning of each body to users who
    may read bodies."""
    topic = request.GET.get("topic", "").strip()
    asked = {name: request.GET.get(name, "") for name in ("from", "to", "queue", "filter")}
    oldest_first = request.GET.get("order") == "oldest"
    order = "oldest" if oldest_first else "newest"
    context: dict[str, object] = {"topic": topic, "order": order, "asked": asked}
    status = 200
    if topic:
        try:
            begin, end = time_asked(request, "from"), time_asked(request, "to")
            asked["from"], asked["to"] = time_shown(begin), time_shown(end)
            cursor = request.GET.get("cursor") or None
            filter_text = filter_asked(request, topic, asked["filter"], first=cursor is None)
            wants_file = wants_csv(request) or request.GET.get("format") == "ndjson"
            bodies = "bodies" in request.GET and not wants_file and allows(request.user, "message_content")
            views = runtime.window().messages
            queue_id = queue_asked(asked["queue"])
            page = (partial(views.lines, body_chars=_BODY_CHARS) if bodies else views.page)(
                topic,
                queue_id=queue_id,
                from_ms=begin,
                to_ms=end,
                newest_first=not oldest_first,
                cursor=cursor,
                limit=LIMIT,
                filter_text=filter_text,
            )
            if wants_file:
                return _download(topic, page.rows, request.GET["format"])
            if bodies:
                audit(request, "message.read", topic, after={"messages": len(page.rows)})
            context["page"], context["bodies"] = page, bodies
            context["filtered"] = filter_text is not None
            given = {
                "from": begin, "to": end, "queue_id": queue_id, "filter": filter_text,
                "newest_first": "false" if oldest_first else None, "body_chars": _BODY_CHARS if bodies else None,
            }  # fmt: skip
            context["as_curl"] = _curl(request, topic, given)
        except NotFound as error:
            context["error"], status = not_found_sentence(error), 404
        except InvalidInput as error:
            context["error"], context["wrong"], status = refusal_text(error), error.field, 400
    context["topics"] = topic_names()
    return render(request, "messages/list.html", context, status=status)


def _curl(request: HttpRequest, topic: str, given: dict[str, Any]) -> str:
    """Return the command that lists the same messages, from the first page on. given: its parameters, or None."""
    asked = urlencode({name: value for name, value in given.items() if value is not None}, quote_via=quote)
    return command(request, f"topics/{quote(topic, safe='')}/messages{'?' if asked else ''}{asked}")


def queue_asked(text: str) -> int | None:
    text = text.strip()
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput("queue", _("The queue must be a number."))
    return int(text) if text else None


def filter_asked(request: HttpRequest, topic: str, text: str, first: bool = True) -> str | None:
    """Return the expression; None if it is empty. Raises InvalidInput if it is wrong, or looks into bodies which the
    user may not read: by asking whether a body has a text, one could find out all of it. first: False for later pages,
    which are not audited again."""
    text = text.strip()
    if not text:
        return None
    if runtime.window().messages.filter_reads_bodies(text):
        user: Any = request.user
        if not user.may_read_bodies:
            raise InvalidInput("filter", _("You may not read message bodies, so a filter cannot look into them."))
        if first:
            audit(request, "message.filter", topic, after={"filter": text[:500]})
    return text


def _download(topic: str, rows: tuple[Any, ...], form: str) -> HttpResponse:
    lines = [
        (
            *(
                row.topic,
                row.queue_id,
                row.queue_offset,
                _moment(row.stored_at_ms),
                _moment(row.born_at_ms),
                row.born_host,
            ),
            *(row.tags, row.keys, row.unique_id, row.offset_id, row.body_bytes, row.size_bytes, row.reconsume_times),
        )
        for row in rows
    ]
    if form == "csv":
        return csv_answer(topic, _HEADER, [(*line[:7], " ".join(line[7]), *line[8:]) for line in lines])
    encode = msgspec.json.encode
    data = b"".join([encode(dict(zip(_HEADER, line, strict=True))) + b"\n" for line in lines])
    response = HttpResponse(data, content_type="application/x-ndjson")
    response.headers["Content-Disposition"] = content_disposition_header(True, f"{topic}.ndjson")
    return response


def _moment(at_ms: int) -> str:
    """Format a time as in RFC 3339; one that no calendar has, in milliseconds."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
