"""Jobs on many messages: exporting those that an expression finds to a file, and importing a file into a topic.

Before an import its file is checked line by line, which is a job, too; that job's page leads to the import itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy

from ... import runtime
from ...engine.errors import AdminError, InvalidInput, NotFound
from ...typed_times import LONGEST
from .. import jobs
from ..jobs import message_export as exports
from ..jobs import message_import as imports
from ..pages.changes import form_status
from ..pages.engine_pages import TimeInput, moment_of, refusal_text, topic_names
from ..sign_in.forms import Form
from .views import filter_asked, queue_asked


class SelectionForm(Form):
    """The messages of a topic that a job reads. A form that inherits has the field `topic`, too."""

    since = forms.CharField(
        label=gettext_lazy("Stored from"), required=False, max_length=LONGEST, widget=TimeInput(),
        help_text=gettext_lazy("In your time zone."),
    )  # fmt: skip
    until = forms.CharField(label=gettext_lazy("until"), required=False, max_length=LONGEST, widget=TimeInput())
    queue = forms.CharField(
        label=gettext_lazy("Queue"), required=False, max_length=10, widget=forms.TextInput({"inputmode": "numeric"})
    )
    filter = forms.CharField(
        label=gettext_lazy("Filter"), required=False, max_length=4096,
        widget=forms.TextInput(attrs={"class": "mono", "autocomplete": "off", "spellcheck": "false"}),
        help_text=gettext_lazy("Empty for all messages of that time."),
    )  # fmt: skip

    @staticmethod
    def given(request: HttpRequest) -> dict[str, Any]:
        """Return the fields as the address of the page gives them."""
        names = {"topic": "topic", "since": "from", "until": "to", "queue": "queue", "filter": "filter"}
        return {field: request.GET.get(name, "") for field, name in names.items()}

    @staticmethod
    def field_of(name: str) -> str:
        """Return the field of a parameter that was refused."""
        fields = {"from": "since", "from_ms": "since", "to": "until", "to_ms": "until", "queue_id": "queue"}
        return fields.get(name, name)


def selection_of(request: HttpRequest, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a job. Raises InvalidInput, NotFound."""
    topic = asked["topic"].strip()
    return {
        "topic": topic,
        "queue_id": queue_asked(asked["queue"]),
        "from_ms": moment_of("from", asked["since"]),
        "to_ms": moment_of("to", asked["until"]),
        "filter": filter_asked(request, topic, asked["filter"]),
    }


class ExportForm(SelectionForm):
    """The messages that a job searches for, and what it writes of each."""

    field_order = ("topic",)

    topic = forms.CharField(
        label=gettext_lazy("Topic"), max_length=127,
        widget=forms.TextInput(attrs={"list": "topics", "autocomplete": "off", "spellcheck": "false"}),
    )  # fmt: skip
    format = forms.ChoiceField(
        label=gettext_lazy("Format"),
        choices=[
            ("ndjson", gettext_lazy("NDJSON: one message per line; can be imported again")),
            ("csv", gettext_lazy("CSV: for spreadsheets")),
        ],
        help_text=gettext_lazy("In CSV a cell that begins like a formula gets a quote before it."),
    )
    whole = forms.BooleanField(
        label=gettext_lazy("With body and all properties"), required=False,
        help_text=gettext_lazy("Needs the rights to read bodies and to export. Else the file only lists the messages."),
    )  # fmt: skip


def message_export(request: HttpRequest) -> HttpResponse:
    """Show how many messages the job would look at; then start it."""
    user: Any = request.user
    may_export = user.may_read_bodies and user.may_export
    start = ExportForm.given(request) | {"whole": may_export}
    form = ExportForm(request.POST or None, initial=start)
    if not may_export:
        form.fields["whole"].disabled = True
        form.fields["whole"].initial = False
    context: dict[str, Any] = {"form": form, "topics": topic_names()}
    asked = form.cleaned_data if form.is_bound and form.is_valid() else None if form.is_bound else start
    if asked is not None and asked["topic"]:
        try:
            parameters = selection_of(request, asked)
            page = runtime.window().messages.page(
                parameters["topic"], queue_id=parameters["queue_id"], from_ms=parameters["from_ms"],
                to_ms=parameters["to_ms"], limit=1,
            )  # fmt: skip
            if form.is_bound:
                whole = bool(asked["whole"]) and may_export
                job = start_export(request, parameters | {"format": asked["format"]}, whole)
                return redirect("job", job.id)
            context["page"] = page
        except NotFound as error:
            _wrong(form, context, "topic", refusal_text(error))
        except InvalidInput as error:
            _wrong(form, context, form.field_of(error.field), refusal_text(error))
    return render(request, "messages/export.html", context, status=422 if form.is_bound else 200)


def _wrong(form: ExportForm, context: dict[str, Any], field: str, text: str) -> None:
    if form.is_bound:
        form.add_error(field if field in form.fields else None, text)
    else:
        context["error"] = text


def start_export(request: HttpRequest, parameters: dict[str, Any], whole: bool) -> jobs.Job:
    """Start the job. The caller has checked the user's rights."""
    kind = exports.EXPORT
    if not whole:
        reads_bodies = runtime.window().messages.filter_reads_bodies(parameters["filter"])
        kind = exports.BODY_SEARCH if reads_bodies else exports.SEARCH
    return jobs.start(request, kind, parameters, target=parameters["topic"], names=(parameters["topic"],))


class ImportForm(Form):
    """A file of messages, and the topic to send them to."""

    topic = forms.CharField(
        label=gettext_lazy("Topic"), max_length=127,
        widget=forms.TextInput(attrs={"list": "topics", "autocomplete": "off", "spellcheck": "false"}),
    )  # fmt: skip
    file = forms.FileField(
        label=gettext_lazy("File"),
        widget=forms.FileInput(attrs={"accept": ".ndjson,.jsonl,.json"}),
        help_text=gettext_lazy("NDJSON as an export writes it, 32 MiB at most."),
    )


class SendForm(Form):
    """The rate at which the checked messages are sent."""

    rate = forms.IntegerField(
        label=gettext_lazy("Messages a second"), min_value=1, max_value=imports.MAX_RATE, initial=imports.DEFAULT_RATE
    )


def message_import(request: HttpRequest) -> HttpResponse:
    """Choose a file and start the job that checks it. With ?checked=, the id of such a job, start the import itself."""
    checked = request.GET.get("checked", "")
    if checked:
        return _send_checked(request, checked)
    form = ImportForm(request.POST or None, request.FILES or None, initial={"topic": request.GET.get("topic", "")})
    if request.method == "POST" and form.is_valid():
        topic, data = form.cleaned_data["topic"].strip(), form.cleaned_data["file"].read()
        try:
            runtime.window().imports.send(topic, (), dry_run=True)
        except AdminError as error:
            form.add_error("topic", refusal_text(error))
        else:
            job = jobs.start(request, imports.CHECK, {"topic": topic}, target=topic, names=(topic,), given=data)
            return redirect("job", job.id)
    context = {"form": form, "topics": topic_names()}
    return render(request, "messages/import.html", context, status=form_status(form))


def _send_checked(request: HttpRequest, checked: str) -> HttpResponse:
    check = jobs.find(request.user, checked)
    if check.kind != imports.CHECK or check.state != "done":
        raise NotFound("job", checked)
    form = SendForm(request.POST or None)
    try:
        data = jobs.board().folder(check.id).input.read_bytes()
    except FileNotFoundError:
        form = SendForm()
        context = {"form": form, "check": check, "gone": True}
        return render(request, "messages/import_checked.html", context, status=404)
    if request.method == "POST" and form.is_valid():
        topic = check.parameters["topic"]
        parameters = {"topic": topic, "rate": form.cleaned_data["rate"], "checked": check.id}
        job = jobs.start(request, imports.NAME, parameters, target=topic, names=(topic,), given=data)
        return redirect("job", job.id)
    context = {"form": form, "check": check, "size": len(data)}
    return render(request, "messages/import_checked.html", context, status=422 if form.is_bound else 200)
