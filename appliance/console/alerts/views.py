"""Alerts: the present and past ones, rules, channels and silences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _

from ..models import now_ms
from ..pages.changes import form_status
from ..pages.engine_pages import PAGE_SIZE, page_number
from . import acts, book, texts
from .figures import FIGURES, NEEDS
from .forms import ChannelForm, RuleForm, SilenceForm
from .models import Alert, AlertChannel, AlertDelivery, AlertRule, AlertSilence
from .past import HistoryPast
from .teller import teller


def _shown(alert: Alert) -> dict[str, Any]:
    return {"alert": alert, "title": texts.title_of(alert), "link": texts.page_of(alert)}


def alerts(request: HttpRequest) -> HttpResponse:
    """Show the alerts that are on, silences, and past alerts."""
    ended = Alert.objects.exclude(ended_ms=None).order_by("-ended_ms", "-id").prefetch_related("deliveries")
    page = Paginator(ended, PAGE_SIZE).get_page(page_number(request))
    context = {
        "tab": "alerts",
        "on": [_shown(alert) for alert in acts.on_now()],
        "over": [_shown(alert) for alert in page.object_list],
        "page": page,
        "silences": AlertSilence.objects.filter(until_ms__gt=now_ms()).select_related("rule"),
        "failing": acts.failing_channels(),
        "rules": AlertRule.objects.filter(is_active=True).count(),
    }
    return render(request, "alerts/alerts.html", context)


def alert(request: HttpRequest, pk: int) -> HttpResponse:
    """Show one alert and its notices."""
    found = get_object_or_404(Alert.objects.select_related("rule"), pk=pk)
    deliveries = found.deliveries.order_by("id")
    return render(request, "alerts/alert.html", {**_shown(found), "deliveries": deliveries})


def alert_rules(request: HttpRequest) -> HttpResponse:
    counts = book.by_rule()
    rows = [
        {"rule": rule, "sentence": texts.explained(rule), "on": counts.get(rule.pk, 0)}
        for rule in AlertRule.objects.prefetch_related("channels")
    ]
    return render(request, "alerts/rules.html", {"tab": "rules", "rows": rows})


def alert_rule_create(request: HttpRequest) -> HttpResponse:
    """Create a rule; ?figure=, ?pattern= and ?channel= (its number) fill in the form."""
    figure = FIGURES.get(request.GET.get("figure", ""), FIGURES["lag_minutes"])
    begin = AlertRule(
        name=_("What needs you") if figure.code == NEEDS else "", figure=figure.code, above=figure.above,
        for_minutes=figure.for_minutes, pattern=request.GET.get("pattern", "*")[:255],
    )  # fmt: skip
    return _rule_form(request, begin, [one for one in request.GET.getlist("channel") if one.isdigit()])


def alert_rule(request: HttpRequest, pk: int) -> HttpResponse:
    """Change a rule, or try it on the last day without saving."""
    return _rule_form(request, get_object_or_404(AlertRule, pk=pk))


def _rule_form(request: HttpRequest, rule: AlertRule, channels: Sequence[str] = ()) -> HttpResponse:
    name = rule.name
    form = RuleForm(request.POST or None, instance=rule, initial={"channels": channels} if channels else None)
    tried = None
    if request.method == "POST" and form.is_valid():
        if "try" in request.POST:
            tried = acts.dry_run(form.instance, HistoryPast())
        else:
            saved = acts.save_rule(request, form)
            messages.success(request, _("Rule %(name)s saved.") % {"name": saved.name})
            return redirect("alert_rules")
    context = {
        "form": form, "rule": rule, "name": name, "tried": tried, "figures": FIGURES.values(),
        "channels": AlertChannel.objects.exists(),
        "periods": [] if tried is None else [
            {"period": period, "title": texts.past_title(form.instance, period)} for period in tried.periods[:PAGE_SIZE]
        ],
    }  # fmt: skip
    return render(request, "alerts/rule.html", context, status=form_status(form))


def alert_rule_delete(request: HttpRequest, pk: int) -> HttpResponse:
    rule = get_object_or_404(AlertRule, pk=pk)
    if request.method == "POST":
        acts.delete_rule(request, rule)
        messages.success(request, _("Rule %(name)s deleted.") % {"name": rule.name})
        return redirect("alert_rules")
    on = Alert.objects.filter(rule=rule, ended_ms=None).count()
    return render(request, "alerts/rule_delete.html", {"rule": rule, "sentence": texts.explained(rule), "on": on})


def alert_channels(request: HttpRequest) -> HttpResponse:
    rows = []
    for channel in AlertChannel.objects.prefetch_related("rules"):
        last = channel.deliveries.exclude(state="silenced").order_by("-id").first()
        rows.append({"channel": channel, "last": last})
    context = {"tab": "channels", "rows": rows, "rules": AlertRule.objects.exists()}
    return render(request, "alerts/channels.html", context)


def alert_channel_create(request: HttpRequest) -> HttpResponse:
    return _channel_form(request, None)


def alert_channel(request: HttpRequest, pk: int) -> HttpResponse:
    return _channel_form(request, get_object_or_404(AlertChannel, pk=pk))


def _channel_form(request: HttpRequest, channel: AlertChannel | None) -> HttpResponse:
    form = ChannelForm(channel, request.POST or None)
    if request.method == "POST" and form.is_valid():
        saved = acts.save_channel(request, form)
        messages.success(
            request, _("Channel %(name)s saved. Send a test to see whether it works.") % {"name": saved.name}
        )
        return redirect("alert_channels")
    status = form_status(form)
    context = {"form": form, "channel": channel, "links": bool(teller().base)}
    return render(request, "alerts/channel.html", context, status=status)


def alert_channel_test(request: HttpRequest, pk: int) -> HttpResponse:
    channel = get_object_or_404(AlertChannel, pk=pk)
    delivery = acts.test_channel(request, channel)
    if delivery.state == AlertDelivery.State.SENT:
        messages.success(request, _("Channel %(name)s took the test.") % {"name": channel.name})
    else:
        reason = {"name": channel.name, "why": delivery.why}
        messages.error(request, _("Channel %(name)s did not take the test: %(why)s") % reason)
    return redirect("alert_channels")


def alert_channel_delete(request: HttpRequest, pk: int) -> HttpResponse:
    channel = get_object_or_404(AlertChannel, pk=pk)
    if request.method == "POST":
        acts.delete_channel(request, channel)
        messages.success(request, _("Channel %(name)s deleted.") % {"name": channel.name})
        return redirect("alert_channels")
    return render(request, "alerts/channel_delete.html", {"channel": channel, "rules": channel.rules.all()})


def alert_silence_create(request: HttpRequest) -> HttpResponse:
    """Create a silence; ?rule= and ?pattern= fill in the form."""
    begin = {name: request.GET[name] for name in ("rule", "pattern") if request.GET.get(name)}
    form = SilenceForm(request.POST or None, initial=begin)
    if request.method == "POST" and form.is_valid():
        acts.silence(request, form.cleaned_data)
        messages.success(request, _("Silenced. What happens meanwhile is still written down."))
        return redirect("alerts")
    status = form_status(form)
    return render(request, "alerts/silence.html", {"form": form}, status=status)


def alert_silence_end(request: HttpRequest, pk: int) -> HttpResponse:
    acts.end_silence(request, get_object_or_404(AlertSilence, pk=pk))
    messages.success(request, _("The silence is over."))
    return redirect("alerts")
