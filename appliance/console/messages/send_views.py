"""Send a message by hand, of any kind, or one like another. It takes the same path as a client's, and is then shown."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ... import runtime
from ...engine.errors import InvalidInput, NotFound, Unavailable
from ..audit.log import audit
from ..pages.changes import form_status
from ..pages.engine_pages import MomentField, refusal_text, topic_names
from ..sign_in.forms import Form
from ..templatetags.pages import ms_as_duration
from ..users.access import allows

if TYPE_CHECKING:
    from ...engine.window.messages.snapshots import MessageDraft, SentMessage

MAX_BODY_CHARACTERS = 4 << 20

# Kind, its name, and its effect.
KINDS = (
    ("plain", gettext_lazy("Plain"), gettext_lazy("Consumers can have it at once.")),
    (
        "ordered",
        gettext_lazy("In order"),
        gettext_lazy("Goes to the queue that you name, or to the one that its sharding key chooses, as with clients."),
    ),
    ("level", gettext_lazy("Delayed by a level"), gettext_lazy("Waits as long as the delay level says.")),
    ("time", gettext_lazy("Delayed until a time"), gettext_lazy("Waits until then. A past time means “now”.")),
    (
        "half",
        gettext_lazy("Transaction, left open on purpose"),
        gettext_lazy("A half message that nobody commits: the producers of its group are asked how it ends."),
    ),
)


class SendForm(Form):
    """A message to send. properties: one `name=value` a line."""

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
    )
    body_is = forms.ChoiceField(
        label=gettext_lazy("The body is"),
        required=False,
        choices=[("text", gettext_lazy("text, sent as UTF-8")), ("base64", gettext_lazy("Base64 of any bytes"))],
    )
    tags = forms.CharField(label=gettext_lazy("Tag"), required=False, max_length=1000)
    keys = forms.CharField(
        label=gettext_lazy("Keys"), required=False, max_length=4000, help_text=gettext_lazy("Separated by spaces.")
    )
    properties = forms.CharField(
        label=gettext_lazy("Properties"),
        required=False,
        max_length=40_000,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text=gettext_lazy("One name=value per line."),
    )
    kind = forms.ChoiceField(required=False, choices=[(kind, label) for kind, label, _hint in KINDS])
    queue_id = forms.IntegerField(
        label=gettext_lazy("Queue"),
        required=False,
        min_value=0,
        help_text=gettext_lazy("Leave empty to let the broker choose one."),
    )
    sharding_key = forms.CharField(
        label=gettext_lazy("Sharding key"),
        required=False,
        max_length=1000,
        help_text=gettext_lazy("Messages with the same one go to the same queue."),
    )
    delay_level = forms.TypedChoiceField(label=gettext_lazy("Delay level"), required=False, coerce=int, empty_value=0)
    deliver_at = MomentField(label=gettext_lazy("Deliver at"))
    half_of = forms.CharField(label=gettext_lazy("Producer group"), required=False, max_length=255)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Times are read in the user's zone.
        self.fields["deliver_at"].help_text = _("times in %(zone)s") % {"zone": timezone.get_current_timezone_name()}
        levels = [(0, "—")]
        for level in runtime.window().waiting.levels():
            if level.delay_ms is not None:
                levels.append((level.level, f"{level.level} · {ms_as_duration(level.delay_ms)}"))
        self.fields["delay_level"].choices = levels

    def clean_properties(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in self.cleaned_data["properties"].splitlines():
            name, equals, value = line.partition("=")
            if line.strip() and not (equals and name.strip()):
                raise forms.ValidationError(_("“%(line)s” is not name=value.") % {"line": line[:60]})
            if line.strip():
                found[name.strip()] = value.strip()
        return found

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        kind = cleaned["kind"] = cleaned.get("kind") or "plain"
        needed = {"level": "delay_level", "time": "deliver_at", "half": "half_of"}.get(kind)
        if needed and needed in cleaned and not cleaned[needed]:
            self.add_error(needed, _("This kind of message needs it."))
        if kind == "ordered" and "queue_id" in cleaned and cleaned["queue_id"] is None and not cleaned["sharding_key"]:
            self.add_error("sharding_key", _("Name a queue or a sharding key."))
        if cleaned.get("body_is") == "base64" and "body" in cleaned:
            try:
                cleaned["bytes"] = base64.b64decode("".join(cleaned["body"].split()), validate=True)
            except (binascii.Error, ValueError):
                self.add_error("body", _("This is not Base64."))
        elif "body" in cleaned:
            # Browsers send CRLF for each line end of a text area, whatever was typed.
            cleaned["bytes"] = cleaned["body"].replace("\r\n", "\n").encode()
        return cleaned

    def options(self) -> dict[str, Any]:
        """Return the options of the message's kind, as arguments for `send_test_message`."""
        values = self.cleaned_data
        found: dict[str, Any] = {"queue_id": values["queue_id"]}
        match values["kind"]:
            case "ordered":
                found["sharding_key"] = values["sharding_key"]
            case "level":
                found["delay_level"] = values["delay_level"]
            case "time":
                found["deliver_at_ms"] = values["deliver_at"]
            case "half":
                found["half_of"] = values["half_of"]
        return found


def send_message(request: HttpRequest) -> HttpResponse:
    """Show the form, which `?from=` fills in from another message; send, then redirect to the new message's page."""
    context: dict[str, Any] = {"kinds": KINDS, "topics": topic_names()}
    if request.method == "POST":
        form = SendForm(request.POST)
        sent = _send(request, form) if form.is_valid() else None
        if sent is not None:
            return HttpResponseRedirect(reverse("message", args=[sent.offset_id]))
    else:
        initial = {"topic": request.GET.get("topic", ""), "kind": request.GET.get("kind", "plain")}
        if like := request.GET.get("from", ""):
            initial |= _like(request, like, context)
        form = SendForm(initial=initial)
    context |= {"form": form, "chosen": form["kind"].value() or "plain"}
    return render(request, "messages/send.html", context, status=form_status(form))


def _send(request: HttpRequest, form: SendForm) -> SentMessage | None:
    """Send the message. Return None if it was refused; the form then has the reason."""
    values = form.cleaned_data
    body, options = values["bytes"], form.options()
    what = {"bytes": len(body), "tags": values["tags"], "keys": values["keys"], "kind": values["kind"]}
    what |= {name: value for name, value in options.items() if value is not None}
    try:
        sent = runtime.window().sender.send(
            values["topic"],
            body,
            tags=values["tags"],
            keys=values["keys"].split(),
            properties=values["properties"],
            by=request.user.label,
            **options,
        )
    except NotFound:
        form.add_error("topic", _("There is no topic with this name."))
    except InvalidInput as error:
        field = {"deliver_at_ms": "deliver_at"}.get(error.field, error.field)
        form.add_error(field if field in form.fields else None, refusal_text(error))
    except Unavailable as error:
        audit(request, "message.send", values["topic"], None, what, "failed")
        form.add_error(None, refusal_text(error))
    else:
        what |= {"offset_id": sent.offset_id, "status": sent.status}
        audit(request, "message.send", f"{sent.topic}/{sent.queue_id}/{sent.queue_offset}", None, what)
        _tell(request, sent, values["kind"], waits=sent.topic != values["topic"])
        return sent
    return None


def _tell(request: HttpRequest, sent: SentMessage, kind: str, waits: bool) -> None:
    if sent.status == "SEND_OK":
        messages.success(request, _("Sent and stored in %(ms)s ms.") % {"ms": f"{sent.took_ms:.1f}"})
    else:
        text = _("Stored, but the disk did not confirm it in time (%(status)s).") % {"status": sent.status}
        messages.warning(request, text)
    if kind == "half":
        messages.info(request, _("The transaction is open: nobody gets the message until it is committed."))
    elif waits:
        messages.info(request, _("It waits: this is the copy that is stored until its time comes."))


def _like(request: HttpRequest, ref: str, context: dict[str, Any]) -> dict[str, Any]:
    """Return the initial values of the form for a message like another one."""
    may_read = allows(request.user, "message_content")
    draft = runtime.window().messages.draft(ref, body=may_read)
    if may_read:
        audit(request, "message.read", ref)
    body, body_is = _body_of(draft)
    lines, lost = [], []
    for name, value in sorted(draft.properties.items()):
        line = f"{name}={value}"
        fits = line.splitlines() == [line] and "=" not in name and (name, value) == (name.strip(), value.strip())
        if fits:
            lines.append(line)
        else:
            lost.append(name)
    context |= {"like": ref, "lost": lost, "may_read": may_read, "body_is_missing": draft.body is None}
    found: dict[str, Any] = {
        "topic": draft.topic,
        "tags": draft.tags,
        "keys": " ".join(draft.keys),
        "properties": "\n".join(lines),
        "body": body,
        "body_is": body_is,
    }
    if draft.sharding_key:
        found |= {"kind": "ordered", "sharding_key": draft.sharding_key}
    return found


def _body_of(draft: MessageDraft) -> tuple[str, str]:
    """Return the body for the form as (text, "text" or "base64")."""
    data = draft.body or b""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
    # A text area would change line ends, and drop a first empty line and NULs.
    if "\r" in text or "\0" in text or text.startswith("\n"):
        return base64.b64encode(data).decode(), "base64"
    return text, "text"
