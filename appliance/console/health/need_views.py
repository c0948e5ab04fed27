"""Needs, the states that need a person: the whole list, the muted ones, and muting."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...engine.errors import Conflict, InvalidInput
from ..alerts.figures import NEEDS
from ..alerts.models import AlertRule
from ..models import now_ms
from ..pages.changes import add_refusal, form_status
from ..sign_in.forms import Form
from . import needs as needs_

HOUR_MS = 3_600_000
#: Times for which the form offers to mute a need, in hours.
SPANS = (
    (1, gettext_lazy("1 hour")),
    (4, gettext_lazy("4 hours")),
    (24, gettext_lazy("1 day")),
    (72, gettext_lazy("3 days")),
    (7 * 24, gettext_lazy("1 week")),
    (30 * 24, gettext_lazy("30 days")),
)


class MuteForm(Form):
    """The time for which a need is muted, and the reason."""

    hours = forms.TypedChoiceField(label=gettext_lazy("For"), choices=SPANS, coerce=int, initial=24)
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=needs_.REASON_LENGTH,
        help_text=gettext_lazy("Others see it beside your name."),
    )


def needs(request: HttpRequest) -> HttpResponse:
    """Show all needs, and those that are muted."""
    told = AlertRule.objects.filter(figure=NEEDS, is_active=True).exists()
    return render(request, "needs/list.html", {"board": needs_.board(needs_.everything(), request.user), "told": told})


def needs_panel(request: HttpRequest) -> HttpResponse:
    """Return the overview's list of needs, for the script that follows the live stream."""
    found = needs_.board(needs_.everything(), request.user)
    return render(request, "needs/_panel.html", {"board": found})


def need_mute(request: HttpRequest) -> HttpResponse:
    """Mute one need, for a time and with a reason."""
    need = needs_.find(needs_.everything(), request.GET.get("key", ""))
    form = MuteForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            made = needs_.mute(
                request, need, form.cleaned_data["reason"], now_ms() + form.cleaned_data["hours"] * HOUR_MS
            )
        except (InvalidInput, Conflict) as error:
            add_refusal(form, error)
        else:
            messages.success(request, _("Muted until the time below. It is told again then, if it is still so."))
            del made
            return redirect("needs")
    context: dict[str, Any] = {"form": form, "need": need}
    return render(request, "needs/mute.html", context, status=form_status(form))


def need_unmute(request: HttpRequest, number: int) -> HttpResponse:
    """End a mute: the need is shown again."""
    needs_.unmute(request, number)
    messages.success(request, _("It is told again."))
    return redirect("needs")
