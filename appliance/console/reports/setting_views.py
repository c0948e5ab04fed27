"""Settings of the reports: showing them with explanations, and changing them after a preview of the difference."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ...engine.errors import InvalidInput
from .. import reports as reports_
from ..alerts.models import AlertChannel
from ..pages import time_zones
from ..pages.changes import add_refusal, form_status, is_final, is_submitted
from ..sign_in.forms import Form
from . import words
from .report_settings import BOUNDS
from .views import command, next_at_ms, what_is_missing

_LIMIT = re.compile(r"(.+?)\s*=\s*(\d{1,6})\s*\Z")
#: Most characters: a thousand lines with the longest names, as many as the API takes.
LONGEST_LIMITS = 300_000


def _bounds(name: str) -> dict[str, Any]:
    low, high = BOUNDS[name]
    return {"min_value": low, "max_value": high}


class SettingsForm(Form):
    """All settings. limits: a line for each group, `group = minutes`."""

    on = forms.BooleanField(
        label=gettext_lazy("Make them every night"),
        required=False,
        help_text=gettext_lazy("A night that was missed, because RocketBox did not run, is made up for."),
    )
    at = forms.TimeField(
        label=gettext_lazy("Time of day"),
        input_formats=["%H:%M"],
        widget=forms.TimeInput(format="%H:%M", attrs={"inputmode": "numeric", "autocomplete": "off"}),
        help_text=gettext_lazy("As 02:30. After midnight the reports are about the day before."),
    )
    zone = forms.CharField(
        label=gettext_lazy("Time zone"),
        max_length=64,
        widget=forms.TextInput(attrs={"list": "zones", "autocomplete": "off", "spellcheck": "false"}),
        help_text=gettext_lazy("Where a day begins, and whose hours the reports show. As Asia/Shanghai or UTC."),
    )
    engine = forms.ChoiceField(
        label=gettext_lazy("Counted by"),
        choices=list(words.ENGINES.items()),
        help_text=gettext_lazy("Both give the same reports; plain Python uses one core, Spark those of its master."),
    )
    master = forms.CharField(
        label=gettext_lazy("Spark master"),
        max_length=300,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text=gettext_lazy(
            "local[2] uses two cores of this machine; spark://host:7077 a cluster that sees its files."
        ),
    )
    driver_mib = forms.IntegerField(
        label=gettext_lazy("Memory of Spark's driver, in MiB"), **_bounds("driver_mib"),
        help_text=gettext_lazy("The heap of the Java process."),
    )  # fmt: skip
    memory_mib = forms.IntegerField(
        label=gettext_lazy("Memory at most, in MiB"), **_bounds("memory_mib"),
        help_text=gettext_lazy("Of all processes of a run together. A run that takes more is ended, and fails."),
    )  # fmt: skip
    timeout_min = forms.IntegerField(
        label=gettext_lazy("Time at most, in minutes"), **_bounds("timeout_min"),
        help_text=gettext_lazy("A run that takes longer is ended, and fails."),
    )  # fmt: skip
    keep_days = forms.IntegerField(
        label=gettext_lazy("Keep (days)"), **_bounds("keep_days"),
        help_text=gettext_lazy("Of reports and of the counted facts; older ones are deleted after a run."),
    )  # fmt: skip
    limit_minutes = forms.IntegerField(
        label=gettext_lazy("A group may be behind for, in minutes"), **_bounds("limit_minutes"),
        help_text=gettext_lazy("Beyond it a group counts as over its limit."),
    )  # fmt: skip
    limits = forms.CharField(
        label=gettext_lazy("Groups with another limit"),
        required=False,
        max_length=LONGEST_LIMITS,
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
        help_text=gettext_lazy("A line for each: shipping = 15."),
    )
    digest_channels = forms.MultipleChoiceField(
        label=gettext_lazy("Send the digest to"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=gettext_lazy("Channels of the alerts; they get the morning digest after each night's run."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        present = self.initial.get("digest_channels", ())
        names = dict.fromkeys([*AlertChannel.objects.values_list("name", flat=True), *present])
        self.fields["digest_channels"].choices = [(name, name) for name in names]

    def clean_zone(self) -> str:
        zone = str(self.cleaned_data["zone"])
        if not time_zones.is_zone(zone):
            raise forms.ValidationError(_("There is no such time zone."))
        return zone

    def clean_limits(self) -> dict[str, int]:
        found = {}
        for line in str(self.cleaned_data["limits"]).splitlines():
            if not line.strip():
                continue
            match = _LIMIT.match(line.strip())
            if match is None or not int(match.group(2)):
                raise forms.ValidationError(_("“%(line)s” is not a group and its minutes.") % {"line": line[:80]})
            found[match.group(1)] = int(match.group(2))
        return found

    def wanted(self) -> reports_.ReportSettings:
        """Return the settings in the valid form."""
        values = dict(self.cleaned_data)
        values["at"] = f"{values['at']:%H:%M}"
        values["digest_channels"] = tuple(values["digest_channels"])
        return replace(reports_.settings(), **values)


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting, in words."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects of a change, of the shape that the pages of changes show."""

    differences: tuple[Difference, ...]
    consequences: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()


def initial_of(settings: reports_.ReportSettings) -> dict[str, Any]:
    """Return the initial values of the form."""
    values = {name: getattr(settings, name) for name in SettingsForm.base_fields}
    values["limits"] = "\n".join(f"{group} = {minutes}" for group, minutes in sorted(settings.limits.items()))
    values["digest_channels"] = list(settings.digest_channels)
    return values


def plan(before: reports_.ReportSettings, after: reports_.ReportSettings) -> Plan:
    """Return the differences between two settings, and their consequences."""
    labels = {name: str(field.label) for name, field in SettingsForm.base_fields.items()}
    differences = tuple(
        Difference(label, said(name, getattr(before, name)), said(name, getattr(after, name)))
        for name, label in labels.items()
        if getattr(before, name) != getattr(after, name)
    )
    told = []
    if after.on and not before.on:
        told.append(
            _("From now on each night takes some minutes of this machine's processor, after the broker's own work.")
        )
    if not after.on and before.on:
        told.append(_("From now on reports are only made when a run is started by hand; existing ones stay."))
    gone = len(reports_.days()[after.keep_days :])
    if after.keep_days < before.keep_days and gone:
        told.append(
            ngettext(
                "After the next run the reports of %(count)d day are deleted.",
                "After the next run the reports of %(count)d days are deleted.",
                gone,
            )
            % {"count": gone}
        )
    if after.zone != before.zone:
        told.append(_("Days begin at another time from the next run on; days that are made stay as they are."))
    if after.engine != "python" and not after.master.startswith("local"):
        told.append(_("A cluster has to reach the broker's files under the same path, or the broker itself."))
    if after.engine == "spark" and reports_.what_is_missing():
        told.append(_("Something that Spark needs is missing here: runs will fail until it is installed."))
    if after.engine != "python" and after.memory_mib < after.driver_mib + 768:
        told.append(_("Beside the driver's memory less than 768 MiB are left: a run may be ended for want of memory."))
    return Plan(differences, tuple(told))


def said(name: str, value: Any) -> str:
    """Return a setting's value in words."""
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if name == "engine":
        return words.said(words.ENGINES, value)
    if isinstance(value, dict):
        return ", ".join(f"{group} = {minutes}" for group, minutes in sorted(value.items())) or _("none")
    if isinstance(value, list | tuple):
        return ", ".join(value) or _("none")
    return str(value)


def report_settings(request: HttpRequest) -> HttpResponse:
    """Show the settings to users who may read reports."""
    settings = reports_.settings()
    context = {
        "rows": [
            (field.label, said(name, getattr(settings, name)), field.help_text)
            for name, field in SettingsForm.base_fields.items()
        ],
        "settings": settings,
        "next_at_ms": next_at_ms(settings),
        "missing": what_is_missing(),
        "command": command(),
    }
    return render(request, "reports/settings.html", context)


def report_settings_change(request: HttpRequest) -> HttpResponse:
    """Change the settings: a form, a preview of the difference, then the change."""
    present = reports_.settings()
    form = SettingsForm(request.POST or None, initial=initial_of(present))
    context: dict[str, Any] = {"form": form, "heading": _("Change how reports are made"), "zones": time_zones.names()}
    if is_submitted(request) and form.is_valid():
        wanted = form.wanted()
        try:
            if is_final(request):
                reports_.save_settings(request, wanted)
                messages.success(request, _("Saved."))
                return redirect("report_settings")
            reports_.check_settings(wanted)
        except InvalidInput as error:
            add_refusal(form, error)
        else:
            context |= {
                "change": plan(present, wanted),
                "heading": _("Change how reports are made?"),
                "apply": _("Apply"),
            }
            return render(request, "reports/settings_preview.html", context)
    return render(request, "reports/settings_change.html", context, status=form_status(form))
