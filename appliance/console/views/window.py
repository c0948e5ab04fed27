"""What the pages that show the engine share: its errors as pages, and reading what an address asks for."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import wraps
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
from ..spreadsheet import cell
from ..templatetags.pages import translated
from .errors import base_of

if TYPE_CHECKING:
    from ...engine.window.snapshots import Page

PAGE_SIZE = 50
#: Rows of a CSV; it says so when there were more.
CSV_ROWS = 10_000
# Columns of moments, among others in milliseconds, which are spans.
_A_MOMENT = re.compile(
    r"_at_ms$|^(oldest|newest|expires_not_before|dead_since|created|started|ended|due|sent_back)_ms$"
)


def asks_the_engine(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Turn the engine's refusals that a view does not handle itself into a page that says why."""

    @wraps(view)
    def answering(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except NotFound as error:
            return _refusal_page(request, 404, _("Not found"), not_found_sentence(error))
        except (Conflict, Blocked) as error:
            return _refusal_page(request, 409, _("It was changed in the meantime"), refusal_text(error))
        except InvalidInput as error:
            return _refusal_page(request, 400, _("Invalid request"), refusal_text(error))
        except Unavailable as error:
            return _refusal_page(request, 503, _("Not available right now"), refusal_text(error))

    return answering


def refusal_text(error: AdminError) -> str:
    """Why the engine did not do it, in the reader's language; a peer's own words stay as they are."""
    if isinstance(error, NotFound):
        return not_found_sentence(error)
    sentence: Any = error.sentence
    if sentence is None:
        return str(error)
    text = translated(sentence)
    # What the console itself refuses has words and no code.
    if getattr(sentence, "code", "") in ("bad_filter", "expression_wrong"):
        # The words of whoever read the expression are English in every language; a screen reader is told so.
        reason = str(sentence.args["reason"])
        before, _reason, after = text.partition(reason)
        return format_html('{}<span lang="en">{}</span>{}', before, reason, after)
    return text


def not_found_sentence(error: NotFound) -> str:
    """Why there is nothing, in the reader's language."""
    if error.kind == "message":
        return _("There is no message at %(name)s, or it has expired.") % {"name": error.name}
    match error.kind:
        case "topic":
            sentence = _("There is no topic %(name)s.")
        case "group":
            sentence = _("There is no consumer group %(name)s.")
        case "job":
            sentence = _("There is no job %(name)s, or it has expired.")
        case "need":
            return _("This needs nobody any more.")
        case "mute":
            return _("It is not muted any more.")
        case _:
            sentence = _("There is no %(name)s.")
    return sentence % {"name": error.name}


def _refusal_page(request: HttpRequest, status: int, heading: str, sentence: str) -> HttpResponse:
    context = {"heading": heading, "sentence": sentence, "base": base_of(request)}
    return render(request, "error.html", context, status=status)


def page_number(request: HttpRequest) -> int:
    """?page=, 1 when it is missing or no number."""
    text = request.GET.get("page", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 1


def topic_names() -> list[str]:
    """The first topics by name, for the list below an input."""
    rows: tuple[Any, ...] = runtime.window().topics(page_size=200).rows
    return [row.name for row in rows]


def wants_csv(request: HttpRequest) -> bool:
    return request.GET.get("format") == "csv"


def all_rows(fetch: Callable[[int, int], Page]) -> list[Any]:
    """The rows of every page of a table, CSV_ROWS at most. fetch: (page, page size) -> Page."""
    rows: list[Any] = []
    number = 1
    while len(rows) < CSV_ROWS:
        page = fetch(number, 500)
        rows.extend(page.rows)
        if page.page >= page.pages:
            break
        number += 1
    return rows[:CSV_ROWS]


def csv_answer(name: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> HttpResponse:
    """A download of plain values: numbers without separators, moments as ISO in UTC, nothing for what is not known."""
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


def iso(moment: datetime | int | None) -> str | None:
    """A moment, or milliseconds since 1970, as `2026-11-21T13:34:32.125Z`; for CSVs."""
    if moment is None:
        return None
    try:
        found = datetime.fromtimestamp(moment / 1000, UTC) if isinstance(moment, int) else moment.astimezone(UTC)
    except (OverflowError, ValueError, OSError):
        return str(moment)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TimeInput(forms.TextInput):
    """As `_time.html`: `times.js` gives it a calendar."""

    def __init__(self) -> None:
        super().__init__(
            {
                "autocomplete": "off",
                "data-calendar": gettext_lazy("Choose from a calendar"),
                "placeholder": gettext_lazy("10:00, yesterday 18:00, 2 h ago"),
            }
        )


class MomentField(forms.CharField):
    """A moment as people type it, in the user's zone; cleaned it is milliseconds since 1970, or None."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"required": False, "max_length": LONGEST, "widget": TimeInput()} | options)

    def clean(self, value: Any) -> int | None:
        try:
            return moment_of("", super().clean(value))
        except InvalidInput as error:
            raise forms.ValidationError(refusal_text(error)) from None


def carry_moment(form: forms.Form, name: str) -> None:
    """Have a preview ask again for the moment that it is about, which "1 h ago" will not be any more."""
    at_ms = form.cleaned_data[name]
    if at_ms is None:
        return
    shown = time_shown(at_ms)
    # Not so for parts of a second, and in the hour that comes twice.
    form.data = {**form.data.dict()} if isinstance(form.data, QueryDict) else {**form.data}
    form.data[name] = shown if shown and moment_of(name, shown) == at_ms else str(at_ms)


def time_asked(request: HttpRequest, name: str) -> int | None:
    """A moment as people type it, in the user's zone; None when missing."""
    return moment_of(name, request.GET.get(name, ""))


def moment_of(name: str, text: str) -> int | None:
    """The same of a form's field."""
    if not text.strip():
        return None
    try:
        return milliseconds_of(text, now_ms(), timezone.get_current_timezone())
    except ValueError:
        sentence = _("“%(text)s” is not a date and time like 2026-11-21 13:34, 10:00, yesterday 18:00 or 2 h ago.")
        raise InvalidInput(name, sentence % {"text": text.strip()[:40]}) from None


def time_shown(at_ms: int | None) -> str:
    """A moment as it is typed: ISO, in the user's zone."""
    if at_ms is None:
        return ""
    try:
        return datetime.fromtimestamp(at_ms / 1000, timezone.get_current_timezone()).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return ""
