"""Forms of rules, channels and silences. The API takes the same values through the same forms."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..models import now_ms
from ..sign_in.forms import Form, WithoutCycles
from .figures import FIGURES
from .models import AlertChannel, AlertRule, AlertSilence
from .sending import POSTED

MOST_MINUTES = 7 * 24 * 60
#: Every look judges each rule, and asks each silence about each alert.
MOST_RULES, MOST_CHANNELS, MOST_SILENCES = 200, 50, 200
SECURITIES = (("starttls", "STARTTLS"), ("tls", "TLS"), ("none", gettext_lazy("none: not encrypted")))
_LONGEST_SILENCE_HOURS = 30 * 24
#: Digits of a number that SQLite can hold: it cannot be asked for a larger one.
_LONGEST_NUMBER = 18


class ChannelsField(forms.ModelMultipleChoiceField):
    """Channels by their numbers."""

    widget = forms.CheckboxSelectMultiple

    def clean(self, value: Any) -> Any:
        for one in map(str, value or ()):
            if len(one) > _LONGEST_NUMBER:
                raise ValidationError(self.error_messages["invalid_choice"], "invalid_choice", {"value": one[:40]})
        return super().clean(value)

    def label_from_instance(self, channel: AlertChannel) -> str:
        return channel.name


class RuleForm(WithoutCycles, forms.ModelForm):
    """A rule."""

    channels = ChannelsField(AlertChannel.objects.all(), label=gettext_lazy("Tell these channels"), required=False)
    figure = forms.ChoiceField(
        label=gettext_lazy("Figure"), choices=[(one.code, one.label) for one in FIGURES.values()]
    )
    above = forms.FloatField(
        label=gettext_lazy("Above"),
        min_value=0,
        max_value=1e15,
        help_text=gettext_lazy(
            "Minutes, messages or percent, as the figure has it. Of what needs you: 0 for all of it, 1 for what should "
            "not wait until tomorrow."
        ),
    )
    for_minutes = forms.IntegerField(
        label=gettext_lazy("For how many minutes"),
        min_value=0,
        max_value=MOST_MINUTES,
        help_text=gettext_lazy("It must stay above the limit this long before anyone is notified; 0 notifies at once."),
    )
    again_after_minutes = forms.IntegerField(
        label=gettext_lazy("Tell again after, in minutes"),
        min_value=0,
        max_value=MOST_MINUTES,
        help_text=gettext_lazy("As long as it goes on; 0 for only once."),
    )

    class Meta:
        model = AlertRule
        fields = (
            "name", "figure", "pattern", "above", "for_minutes", "severity", "channels", "again_after_minutes",
            "is_active",
        )  # fmt: skip
        labels = {  # noqa: RUF012
            "name": gettext_lazy("Name"),
            "pattern": gettext_lazy("Groups"),
            "severity": gettext_lazy("Severity"),
            "is_active": gettext_lazy("On"),
        }
        help_texts = {  # noqa: RUF012
            "pattern": gettext_lazy("A pattern for their names: orders-* for example, or * for all."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, label_suffix="", **kwargs)
        above = self.initial.get("above")
        if above is not None and above == int(above):
            self.initial["above"] = int(above)  # shown without ".0"

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if self.instance.pk is None:
            _require_fewer(AlertRule.objects.count(), MOST_RULES)
        return cleaned


class ChannelForm(Form):
    """A channel. Its address and secret are never shown again; if a field is left empty, the old value stays."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=64)
    kind = forms.ChoiceField(label=gettext_lazy("Kind"), choices=AlertChannel.Kind.choices)
    address = forms.CharField(
        label=gettext_lazy("Address that is posted to"),
        max_length=1024,
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text=gettext_lazy("The webhook's URL, as the chat shows it; not for mail. It is not shown again."),
    )
    secret = forms.CharField(
        label=gettext_lazy("Secret"),
        max_length=256,
        required=False,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=gettext_lazy(
            "What the chat signs with, if it does; for a webhook it signs the body; for mail the password."
        ),
    )
    host = forms.CharField(label=gettext_lazy("Mail server"), max_length=253, required=False)
    port = forms.IntegerField(label=gettext_lazy("Port"), min_value=1, max_value=65535, required=False, initial=587)
    security = forms.ChoiceField(
        label=gettext_lazy("Encryption"), choices=SECURITIES, required=False, initial="starttls"
    )
    user = forms.CharField(label=gettext_lazy("User on the mail server"), max_length=255, required=False)
    sender = forms.CharField(label=gettext_lazy("From"), max_length=255, required=False)
    recipients = forms.CharField(
        label=gettext_lazy("To"),
        max_length=2000,
        required=False,
        help_text=gettext_lazy("Addresses, with commas between them."),
    )
    language = forms.ChoiceField(label=gettext_lazy("Language"), choices=settings.LANGUAGES, initial="en")

    def __init__(self, channel: AlertChannel | None, *args: Any, **kwargs: Any) -> None:
        self.channel = channel
        if channel is not None:
            mail = {**channel.mail, "recipients": ", ".join(channel.mail.get("recipients", ()))}
            own = {"name": channel.name, "kind": channel.kind, "language": channel.language}
            kwargs["initial"] = {**(mail if channel.mail else {}), **own, **kwargs.get("initial", {})}
        super().__init__(*args, **kwargs)

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        others = AlertChannel.objects.filter(name=name)
        if self.channel is not None:
            others = others.exclude(pk=self.channel.pk)
        if others.exists():
            raise ValidationError(_("There is already a channel with this name."))
        return name

    def clean_address(self) -> str:
        address = str(self.cleaned_data["address"])
        if not address:
            return ""
        try:
            parts = urlsplit(address)
            fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            fits = False
        if not fits or any(ord(letter) <= 32 or ord(letter) > 126 for letter in address):
            raise ValidationError(_("This is not the address of a web service (https://...)."))
        return address

    def clean_recipients(self) -> list[str]:
        found = [part.strip() for part in str(self.cleaned_data["recipients"]).split(",") if part.strip()]
        for one in found:
            validate_email(one)
        return found

    def clean_sender(self) -> str:
        sender = str(self.cleaned_data["sender"])
        if sender:
            validate_email(sender)
        return sender

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if self.channel is None:
            _require_fewer(AlertChannel.objects.count(), MOST_CHANNELS)
        kind = cleaned.get("kind")
        kept = self.channel is not None and self.channel.kind == kind and bool(self.channel.address)
        if kind in POSTED and not cleaned.get("address") and "address" not in self.errors and not kept:
            self.add_error("address", _("Where should it be posted to?"))
        if kind == "mail":
            for name in ("host", "port", "security", "sender", "recipients"):
                if not cleaned.get(name) and name not in self.errors:
                    self.add_error(name, _("A channel by mail needs this."))
            if cleaned.get("user") and cleaned.get("security") == "none" and "security" not in self.errors:
                self.add_error("security", _("A password would be sent unencrypted: choose TLS or STARTTLS."))
        return cleaned

    def save(self) -> AlertChannel:
        """Save the channel. If its kind, address or mail server changes and no new secret is given, the old secret is
        removed: it belonged to another receiver."""
        values = self.cleaned_data
        channel = self.channel or AlertChannel()
        before = (channel.kind, channel.address, channel.mail.get("host"), channel.mail.get("user"))
        channel.name, channel.kind, channel.language = values["name"], values["kind"], values["language"]
        if channel.kind == AlertChannel.Kind.MAIL:
            channel.address = ""
            channel.mail = {name: values[name] for name in ("host", "port", "security", "user", "sender", "recipients")}
        else:
            channel.address, channel.mail = values["address"] or channel.address, {}
        after = (channel.kind, channel.address, channel.mail.get("host"), channel.mail.get("user"))
        if values["secret"]:
            channel.secret = values["secret"]
        elif before != after:
            channel.secret = ""
        channel.save()
        return channel


class SilenceForm(Form):
    """A silence."""

    rule = forms.ModelChoiceField(
        label=gettext_lazy("Rule"), queryset=AlertRule.objects.all(), required=False, empty_label=gettext_lazy("all")
    )
    pattern = forms.CharField(
        label=gettext_lazy("Groups"),
        max_length=255,
        initial="*",
        help_text=gettext_lazy("A pattern for their names: orders-* for example, or * for all."),
    )
    hours = forms.FloatField(
        label=gettext_lazy("For how many hours"), min_value=0.1, max_value=_LONGEST_SILENCE_HOURS, initial=2
    )
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=255)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["rule"].label_from_instance = lambda rule: rule.name

    def clean(self) -> dict[str, Any]:
        _require_fewer(AlertSilence.objects.filter(until_ms__gt=now_ms()).count(), MOST_SILENCES)
        return super().clean() or {}


def _require_fewer(count: int, most: int) -> None:
    if count >= most:
        raise ValidationError(_("There are %(most)d already, and more are not possible."), params={"most": most})
