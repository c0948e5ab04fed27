"""Copying messages to another topic: a job that checks what would be copied, and from its page the copying itself."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy

from ... import runtime
from ...engine.errors import AdminError, InvalidInput, NotFound
from .. import jobs
from ..jobs import message_copy as copies
from ..pages.changes import form_status
from ..pages.engine_pages import refusal_text, topic_names
from .job_views import SelectionForm, SendForm, selection_of
from .views import filter_asked

_NAME = {"list": "topics", "autocomplete": "off", "spellcheck": "false"}


class CopyForm(SelectionForm):
    """The messages to copy, and the topic that gets the copies."""

    field_order = ("topic", "to")

    topic = forms.CharField(label=gettext_lazy("Topic"), max_length=255, widget=forms.TextInput(attrs=_NAME))
    to = forms.CharField(label=gettext_lazy("Copy to topic"), max_length=255, widget=forms.TextInput(attrs=_NAME))


def message_copy(request: HttpRequest) -> HttpResponse:
    """Choose messages and start the job that checks them. With ?checked=, the id of such a job, start the copying."""
    checked = request.GET.get("checked", "")
    if checked:
        return _copy_checked(request, checked)
    form = CopyForm(request.POST or None, initial=CopyForm.given(request))
    if request.method == "POST" and form.is_valid():
        topic, to = form.cleaned_data["topic"].strip(), form.cleaned_data["to"].strip()
        try:
            asked = selection_of(request, form.cleaned_data)
            parameters = copies.parameters_of(
                runtime.window(), topic, to, asked["queue_id"], asked["from_ms"], asked["to_ms"], asked["filter"]
            )
        except InvalidInput as error:
            name = "to" if error.field in ("to", "topic") else form.field_of(error.field)
            form.add_error(name if name in form.fields else None, refusal_text(error))
        except NotFound as error:
            form.add_error("to" if error.name == to else "topic", refusal_text(error))
        else:
            job = jobs.start(request, copies.CHECK, parameters, target=topic, names=(topic, to))
            return redirect("job", job.id)
    context = {"form": form, "topics": topic_names()}
    return render(request, "messages/copy.html", context, status=form_status(form))


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
