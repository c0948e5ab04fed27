"""Topics, groups, users and alert rules as YAML: export, and import after a preview of the changes."""

from __future__ import annotations

from collections import Counter

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy

from ...engine.errors import InvalidInput
from ..audit.log import audit
from ..pages.changes import add_refusal, form_status, is_final, is_submitted
from ..sign_in.forms import Form
from . import definitions as definitions_
from .plain_yaml import LONGEST_BYTES


class DefinitionsForm(Form):
    """The text of definitions."""

    text = forms.CharField(
        label=gettext_lazy("Definitions, as YAML"),
        max_length=LONGEST_BYTES,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 20, "spellcheck": "false", "autocomplete": "off"}),
        help_text=gettext_lazy(
            "Missing items are created, and those that differ are changed. Nothing is deleted. New users get no "
            "password: give each of them a link on their page."
        ),
    )


def definitions(request: HttpRequest) -> HttpResponse:
    """Import definitions: a form for the text, a preview of the difference, then the result."""
    form = DefinitionsForm(request.POST or None)
    context: dict[str, object] = {"form": form, "tab": "definitions"}
    if is_submitted(request) and form.is_valid():
        text = form.cleaned_data["text"]
        try:
            if is_final(request):
                items = definitions_.apply(request, text)
            else:
                items = definitions_.plan(request, text)
        except InvalidInput as error:
            add_refusal(form, error)
        else:
            counts = Counter(item.act for item in items)
            context |= {"items": items, "counts": counts.items(), "final": is_final(request)}
            context["would"] = counts["create"] + counts["change"]
            return render(request, "system/definitions_plan.html", context)
    return render(request, "system/definitions.html", context, status=form_status(form))


def definitions_file(request: HttpRequest) -> HttpResponse:
    """Download the definitions."""
    text = definitions_.export()
    audit(request, "definitions.export")
    response = HttpResponse(text, content_type="application/yaml; charset=utf-8")
    response.headers["Content-Disposition"] = 'attachment; filename="rocketbox.yaml"'
    return response
