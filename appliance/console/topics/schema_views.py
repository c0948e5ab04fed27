"""The schema by which the bodies of a topic are shown: given as a file, replaced, removed."""

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
from ..audit.log import audit
from ..pages.changes import add_refusal, before_and_after, failure_audited, form_status
from ..pages.words import WORDS
from ..sign_in.forms import Form

_KINDS = ("avro", "protobuf", "registry")
#: Characters of an Avro schema on its page.
_SHOWN_CHARS = 20_000


class SchemaForm(Form):
    """A schema. The file's field has the name that the window gives to a refused schema."""

    kind = forms.ChoiceField(
        label=gettext_lazy("Format"), choices=[(kind, WORDS[kind]) for kind in _KINDS], widget=forms.RadioSelect
    )
    schema = forms.FileField(
        label=gettext_lazy("File"),
        required=False,
        allow_empty_file=True,
        widget=forms.FileInput(attrs={"accept": ".avsc,.json,.proto,.desc,.pb,.protoset,.bin"}),
        help_text=gettext_lazy(
            "Avro: the schema in JSON (.avsc). Protobuf: the .proto file, or if it imports others, a descriptor set "
            "that protoc writes with --include_imports and --descriptor_set_out. 256 KiB at most."
        ),
    )
    message = forms.CharField(
        label=gettext_lazy("Protobuf message"),
        required=False,
        max_length=1000,
        widget=forms.TextInput(
            attrs={
                "autocomplete": "off",
                "autocapitalize": "none",
                "spellcheck": "false",
                "placeholder": "shop.v1.Order",
            }
        ),
        help_text=gettext_lazy(
            "Its full name, with the package. Only for Protobuf; a .proto file with one message needs none."
        ),
    )


def topic_schema(request: HttpRequest, name: str) -> HttpResponse:
    """Show the topic's schema and a form for another one; a POST with step=remove removes it."""
    if request.method == "POST" and request.POST.get("step") == "remove":
        with failure_audited(request, "topic.schema", name):
            change = runtime.window().schema_commands.remove(name, by=request.user.label)
        audit(request, "topic.schema", name, before_and_after(change)[0], None)
        messages.success(request, _("The schema of %(name)s was removed.") % {"name": name})
        return redirect("topic", name)
    runtime.window().topics.settings(name)
    form = SchemaForm(request.POST or None, request.FILES or None, initial={"kind": "avro"})
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        data = given["schema"].read() if given["schema"] else b""
        try:
            with failure_audited(request, "topic.schema", name):
                change = runtime.window().schema_commands.put(
                    name, kind=given["kind"], data=data, message=given["message"].strip(),
                    by=request.user.label,
                )  # fmt: skip
        except InvalidInput as error:
            add_refusal(form, error)
        else:
            audit(request, "topic.schema", name, *before_and_after(change))
            messages.success(request, _("The bodies of %(name)s are shown by this schema.") % {"name": name})
            return redirect("topic_schema", name)
    return render(request, "topics/schema.html", _context(name, form), status=form_status(form))


def _context(name: str, form: SchemaForm) -> dict[str, Any]:
    schema = runtime.window().schemas.find(name)
    context: dict[str, Any] = {"name": name, "form": form, "schema": schema}
    if schema is not None and schema.is_text:
        text = schema.data.decode("utf-8", "replace")
        context |= {"text": text[:_SHOWN_CHARS], "text_cut": len(text) > _SHOWN_CHARS}
    return context
