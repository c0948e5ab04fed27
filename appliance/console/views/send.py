"""Send a test message: on the same path as a client's, and then show it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from ... import runtime
from ...engine.errors import InvalidInput, NotFound, Unavailable
from ..audit import audit
from ..forms import Form
from .window import asks_the_engine, refusal_text, topic_names

MAX_BODY_CHARACTERS = 4 << 20


class SendForm(Form):
    """What a test message holds. Properties: one `name=value` a line."""

    topic = forms.CharField(
        label=gettext_lazy("Topic"),
        max_length=127,
        widget=forms.TextInput(attrs={"list": "topics", "autocomplete": "off", "spellcheck": "false"}),
    )
    body = forms.CharField(
        label=gettext_lazy("Body"),
        strip=False,
        required=False,
        max_length=MAX_BODY_CHARACTERS,
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false"}),
        help_text=gettext_lazy("Sent as UTF-8."),
    )
    tags = forms.CharField(label=gettext_lazy("Tag"), required=False, max_length=1000)
    keys = forms.CharField(
        label=gettext_lazy("Keys"), required=False, max_length=4000, help_text=gettext_lazy("Separated by spaces.")
    )
    properties = forms.CharField(
        label=gettext_lazy("Properties"),
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text=gettext_lazy("One name=value per line."),
    )
    queue_id = forms.IntegerField(
        label=gettext_lazy("Queue"),
        required=False,
        min_value=0,
        help_text=gettext_lazy("Leave empty to let the broker choose one."),
    )

    def clean_properties(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in self.cleaned_data["properties"].splitlines():
            name, equals, value = line.partition("=")
            if line.strip() and not (equals and name.strip()):
                raise forms.ValidationError(_("“%(line)s” is not name=value.") % {"line": line[:60]})
            if line.strip():
                found[name.strip()] = value.strip()
        return found


@require_http_methods(["GET", "HEAD", "POST"])
@asks_the_engine
def send_message(request: HttpRequest) -> HttpResponse:
    """The form; a sent message is told about on its own page."""
    admin = runtime.window()
    form = SendForm(request.POST or None, initial={"topic": request.GET.get("topic", "")})
    if request.method == "POST" and form.is_valid():
        values: dict[str, Any] = form.cleaned_data
        # Browsers send CRLF for a line end in a text area, whatever was typed.
        body = values["body"].replace("\r\n", "\n").encode()
        what = {"bytes": len(body), "tags": values["tags"], "keys": values["keys"]}
        try:
            sent = admin.send_test_message(
                values["topic"],
                body,
                tags=values["tags"],
                keys=values["keys"].split(),
                properties=values["properties"],
                queue_id=values["queue_id"],
                by=request.user.label,
            )
        except NotFound:
            form.add_error("topic", _("There is no topic with this name."))
        except InvalidInput as error:
            form.add_error(error.field if error.field in form.fields else None, refusal_text(error))
        except Unavailable as error:
            audit(request, "message.send", values["topic"], None, what, "failed")
            form.add_error(None, refusal_text(error))
        else:
            what |= {"offset_id": sent.offset_id, "status": sent.status}
            audit(request, "message.send", f"{sent.topic}/{sent.queue_id}/{sent.queue_offset}", None, what)
            if sent.status == "SEND_OK":
                text = _("Sent and stored in %(ms)s ms.") % {"ms": f"{sent.took_ms:.1f}"}
                messages.success(request, text)
            else:
                text = _("Stored, but the disk did not confirm it in time (%(status)s).") % {"status": sent.status}
                messages.warning(request, text)
            return HttpResponseRedirect(reverse("message", args=[sent.offset_id]))
    context = {"form": form, "topics": topic_names()}
    return render(request, "messages/send.html", context, status=422 if form.is_bound and form.errors else 200)
