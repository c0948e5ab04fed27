"""Archiving dead letters before they expire: a form chooses them and the format, then a job writes the file."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import runtime
from ...engine.errors import InvalidInput
from .. import jobs
from ..jobs import dead_letter_archive
from ..pages.changes import form_status
from ..pages.engine_pages import refusal_text, time_asked
from ..pages.outcomes import way_back
from .replay_views import MOST_PICKED, LettersForm, wanted_of
from .views import FILTER, letters_asked

FORMATS = ("ndjson", "csv")


class ArchiveForm(LettersForm):
    """The dead letters, and the format of the file."""

    format = forms.ChoiceField(
        label=gettext_lazy("Format"),
        choices=[
            ("ndjson", gettext_lazy("NDJSON: one message per line; can be imported again")),
            ("csv", gettext_lazy("CSV: for spreadsheets")),
        ],
        help_text=gettext_lazy("In CSV a cell that begins like a formula gets a quote before it."),
    )


def archive_create(request: HttpRequest, name: str) -> HttpResponse:
    """Choose the dead letters for the file, then start the job. It changes nothing in the broker."""
    admin = runtime.window()
    admin.dead_letters.page(name, limit=1)  # raises if there are none; the group itself may be deleted
    picked = request.GET.getlist("pick")
    if "ticked" in request.GET and not picked:  # none was ticked, which must not mean all of them
        messages.warning(request, _("No dead letter is ticked."))
        return redirect(way_back(request, FILTER, "dead_letters", name))
    if len(picked) > MOST_PICKED:
        raise InvalidInput("pick", _("These are more than one form takes; choose them by time."))
    given = {field: request.GET.get(field, "") for field in ("origin", "no_origin", "retries", "key", "replayed")}
    for field in ("from", "to"):
        at_ms = time_asked(request, field)
        given[f"{field}_ms"] = "" if at_ms is None else str(at_ms)
    form = ArchiveForm(request.POST or None, initial=given | {"picked": " ".join(picked), "format": "ndjson"})
    if form.is_bound and form.is_valid():
        try:
            found = form.cleaned_data
            wanted = letters_asked(request.POST)
            admin.dead_letters.page(name, from_ms=found["from_ms"], to_ms=found["to_ms"], wanted=wanted, limit=1)
        except InvalidInput as error:
            form.add_error(None, refusal_text(error))
        else:
            asked = {"from_ms": found["from_ms"], "to_ms": found["to_ms"], "wanted": wanted}
            return redirect("job", start_archive(request, name, asked, found["picked"], found["format"]).id)
    context: dict[str, Any] = {"group": name, "form": form, "wanted": wanted_of(form)}
    return render(request, "dead_letters/archive.html", context, status=form_status(form))


def start_archive(
    request: HttpRequest, group: str, asked: dict[str, Any], picked: list[tuple[int, int]], form: str
) -> jobs.Job:
    """Start the job. The caller has checked the filter."""
    which: dict[str, Any] = {"picked": [list(place) for place in picked]} if picked else asked
    parameters = {"group": group, "format": form} | which
    return jobs.start(request, dead_letter_archive.NAME, parameters, target=group, names=(group,))
