"""Copying messages to another topic: a job that checks what would be copied, and from its page the copying itself."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from ... import runtime
from ...engine.errors import AdminError, InvalidInput, NotFound
from ...typed_times import LONGEST
from .. import jobs
from ..jobs import message_copy as copies
from ..pages.engine_pages import TimeInput, asks_the_engine, moment_of, refusal_text, topic_names
from ..sign_in.forms import Form
from .job_views import SendForm
from .views import filter_asked, queue_asked

_NAME = {"list": "topics", "autocomplete": "off", "spellcheck": "false"}


class CopyForm(Form):
    """The messages to copy, and the topic that gets the copies."""

    topic = forms.CharField(label=gettext_lazy("Topic"), max_length=255, widget=forms.TextInput(attrs=_NAME))
    to = forms.CharField(label=gettext_lazy("Copy to topic"), max_length=255, widget=forms.TextInput(attrs=_NAME))
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


@require_http_methods(["GET", "HEAD", "POST"])
@asks_the_engine
def message_copy(request: HttpRequest) -> HttpResponse:
    """Choose messages and start the job that checks them. With ?checked=, the id of such a job, start the copying."""
    checked = request.GET.get("checked", "")
    if checked:
        return _copy_checked(request, checked)
    given = request.GET
    start = {"topic": given.get("topic", ""), "since": given.get("from", ""), "until": given.get("to", "")}
    start |= {"queue": given.get("queue", ""), "filter": given.get("filter", "")}
    form = CopyForm(request.POST or None, initial=start)
    if request.method == "POST" and form.is_valid():
        asked = form.cleaned_data
        topic, to = asked["topic"].strip(), asked["to"].strip()
        try:
            parameters = copies.parameters_of(
                runtime.window(), topic, to, queue_asked(asked["queue"]), moment_of("from", asked["since"]),
                moment_of("to", asked["until"]), filter_asked(request, topic, asked["filter"]),
            )  # fmt: skip
        except InvalidInput as error:
            field = {"from": "since", "from_ms": "since", "to_ms": "until", "queue_id": "queue", "topic": "to"}
            name = field.get(error.field, error.field)
            form.add_error(name if name in form.fields else None, refusal_text(error))
        except NotFound as error:
            form.add_error("to" if error.name == to else "topic", refusal_text(error))
        else:
            job = jobs.start(request, copies.CHECK, parameters, target=topic, names=(topic, to))
            return redirect("job", job.id)
    context = {"form": form, "topics": topic_names()}
    return render(request, "messages/copy.html", context, status=422 if form.is_bound and form.errors else 200)


def _copy_checked(request: HttpRequest, checked: str) -> HttpResponse:
    check = jobs.find(request.user, checked)
    if check.kind != copies.CHECK or check.state != "done":
        raise NotFound("job", checked)
    form = SendForm(request.POST or None)
    context: dict[str, Any] = {"form": form, "check": check, "to": check.parameters["to"]}
    if request.method == "POST" and form.is_valid():
        parameters = check.parameters | {"rate": form.cleaned_data["rate"], "checked": check.id}
        filter_asked(request, check.target, parameters.get("filter") or "")
        try:
            runtime.window().imports.send(parameters["to"], (), dry_run=True)
        except AdminError as error:
            form.add_error(None, refusal_text(error))
        else:
            names = (check.target, parameters["to"])
            job = jobs.start(request, copies.NAME, parameters, target=check.target, names=names)
            return redirect("job", job.id)
    return render(request, "messages/copy_checked.html", context, status=422 if form.is_bound else 200)
