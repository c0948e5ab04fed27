"""Shared parts of the pages about the engine: its errors as pages, parameters of addresses, CSVs and times."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django import forms
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import runtime
from ...engine.errors import AdminError, Blocked, Conflict, InvalidInput, NotFound, Unavailable
from ...typed_times import LONGEST, milliseconds_of
from ..models import now_ms
from ..templatetags.pages import translated
from .errors import base_of
from .spreadsheet import cell

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from ...engine.window.snapshots import Page

PAGE_SIZE = 50
#: Most rows of a CSV.
CSV_ROWS = 10_000
# Columns in milliseconds that are moments; all others are spans.
_A_MOMENT = re.compile(
    r"_at_ms$|^(oldest|newest|expires_not_before|dead_since|created|started|ended|due|sent_back)_ms$"
)


def refusal_page(request: HttpRequest, error: AdminError) -> HttpResponse | None:
    """Return the page that says the reason of an error; None for one that no page has a heading for."""
    match error:
        case NotFound():
            status, heading = 404, _("Not found")
        case Conflict() | Blocked():
            status, heading = 409, _("It was changed in the meantime")
        case InvalidInput():
            status, heading = 400, _("Invalid request")
        case Unavailable():
            status, heading = 503, _("Not available right now")
        case _:
            return None
    context = {"heading": heading, "sentence": refusal_text(error), "base": base_of(request)}
    return render(request, "error.html", context, status=status)


def refusal_text(error: AdminError) -> str:
    """Return the reason of an error in the reader's language; a peer's own words stay as they are."""
    if isinstance(error, NotFound):
        return not_found_sentence(error)
    sentence: Any = error.sentence
    if sentence is None:
        return str(error)
    text = translated(sentence)
    # Refusals of the console itself have words but no code.
    if getattr(sentence, "code", "") in ("bad_filter", "expression_wrong"):
        # The parser's own words are always English; they are marked as such for screen readers.
        reason = str(sentence.args["reason"])
        before, _reason, after = text.partition(reason)
        return format_html('{}<span lang="en">{}</span>{}', before, reason, after)
    return text


def not_found_sentence(error: NotFound) -> str:
    """Return the sentence about what was not found, in the reader's language."""
    if error.kind == "message":
        return _("There is no message at %(name)s, or it has expired.") % {"name": error.name}
    match error.kind:
        case "topic":
            sentence = _("There is no topic %(name)s.")
        case "schema":
            sentence = _("The topic %(name)s has no schema.")
        case "group":
            sentence = _("There is no consumer group %(name)s.")
        case "job":
            sentence = _("There is no job %(name)s, or it has expired.")
        case "wire_user":
            sentence = _("There is no wire user %(name)s.")
        case "need":
            return _("This needs nobody any more.")
        case "mute":
            return _("It is not muted any more.")
        case _:
            sentence = _("There is no %(name)s.")
    return sentence % {"name": error.name}


def page_number(request: HttpRequest) -> int:
    """Return the number in ?page=; 1 if it is missing or not a number."""
    text = request.GET.get("page", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 1


def topic_names() -> list[str]:
    """Return the first topics by name, for the list of an input."""
    rows: tuple[Any, ...] = runtime.window().topics.page(page_size=200).rows
    return [row.name for row in rows]


def wants_csv(request: HttpRequest) -> bool:
    return request.GET.get("format") == "csv"


def all_rows(fetch: Callable[[int, int], Page]) -> list[Any]:
    """Return the rows of a table for a CSV, CSV_ROWS at most. fetch: (page, page size) -> Page."""
    from ...engine.cursors import PART_SIZE

    return list(fetch(1, PART_SIZE).rows[:CSV_ROWS])


def csv_answer(name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> HttpResponse:
    """Return a CSV as a download: numbers without separators, moments as ISO in UTC, empty cells for None."""
    text = io.StringIO()
    writer = csv.writer(text)
    moments = {number for number, column in enumerate(header) if _A_MOMENT.search(column)}
    writer.writerow([column.removesuffix("_ms") if at in moments else column for at, column in enumerate(header)])
    writer.writerows(
        [cell(iso(value) if at in moments else value) for at, value in enumerate(row)]  # type: ignore[arg-type]
        for row in rows
    )
    response = HttpResponse(text.getvalue(), content_type="text/csv; charset=utf-8")
    response.headers["Content-Disposition"] = content_disposition_header(True, f"{name}.csv")
    return response


def csv_of(name: str, columns: str, rows: Sequence[Any] | QuerySet[Any]) -> HttpResponse:
    """Return rows as a CSV, CSV_ROWS at most. columns: names of attributes with spaces between them, HEADER=ATTRIBUTE
    if the two differ. The members of a value that has several stand in one cell."""
    pairs = [column.rpartition("=") for column in columns.split()]

    def shown(value: Any) -> Any:
        if isinstance(value, datetime):
            return iso(value)
        return " ".join(value) if isinstance(value, tuple | list) else value

    header = [title or attribute for title, _equals, attribute in pairs]
    return csv_answer(name, header, ([shown(getattr(row, one)) for *_title, one in pairs] for row in rows[:CSV_ROWS]))


def iso(moment: datetime | int | None) -> str | None:
    """Format a moment, or milliseconds since 1970, as `2026-11-21T13:34:32.125Z`; for CSVs."""
    if moment is None:
        return None
    try:
        found = datetime.fromtimestamp(moment / 1000, UTC) if isinstance(moment, int) else moment.astimezone(UTC)
    except (OverflowError, ValueError, OSError):
        return str(moment)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TimeInput(forms.TextInput):
    """An input for a moment, like that of `_time.html`: `times.js` adds a calendar to it."""

    def __init__(self) -> None:
        super().__init__(
            {
                "autocomplete": "off",
                "data-calendar": gettext_lazy("Choose from a calendar"),
                "placeholder": gettext_lazy("10:00, yesterday 18:00, 2 h ago"),
            }
        )


class MomentField(forms.CharField):
    """A moment as people type it, in the user's zone. Its clean value is milliseconds since 1970, or None."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"required": False, "max_length": LONGEST, "widget": TimeInput()} | options)

    def clean(self, value: Any) -> int | None:
        try:
            return moment_of("", super().clean(value))
        except InvalidInput as error:
            raise forms.ValidationError(refusal_text(error)) from None


def carry_moment(form: forms.Form, name: str) -> None:
    """Replace a relative moment in the form by the absolute one: when the preview is confirmed, "1 h ago" would be
    another."""
    at_ms = form.cleaned_data[name]
    if at_ms is None:
        return
    shown = time_shown(at_ms)
    # Milliseconds are needed for parts of a second, and in the hour that clocks show twice.
    form.data = {**form.data.dict()} if isinstance(form.data, QueryDict) else {**form.data}
    form.data[name] = shown if shown and moment_of(name, shown) == at_ms else str(at_ms)


def time_asked(request: HttpRequest, name: str) -> int | None:
    """Return the moment in a parameter, as people type it, in the user's zone; None if missing. Raises InvalidInput."""
    return moment_of(name, request.GET.get(name, ""))


def moment_of(name: str, text: str) -> int | None:
    """Return the moment in a text, as people type it, in the user's zone; None if empty. Raises InvalidInput."""
    if not text.strip():
        return None
    try:
        return milliseconds_of(text, now_ms(), timezone.get_current_timezone())
    except ValueError:
        sentence = _("“%(text)s” is not a date and time like 2026-11-21 13:34, 10:00, yesterday 18:00 or 2 h ago.")
        raise InvalidInput(name, sentence % {"text": text.strip()[:40]}) from None


def time_shown(at_ms: int | None) -> str:
    """Format a moment as it is typed: ISO, in the user's zone; "" for None."""
    if at_ms is None:
        return ""
    try:
        return datetime.fromtimestamp(at_ms / 1000, timezone.get_current_timezone()).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return ""
