"""Alerts: active and past ones, rules and their dry runs, channels and their tests, silences."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status

from ...console.alerts import acts, book, texts
from ...console.alerts.book import DryRun as DryRunResult
from ...console.alerts.forms import ChannelForm, RuleForm, SilenceForm
from ...console.alerts.models import Alert, AlertChannel, AlertRule, AlertSilence
from ...console.alerts.past import HistoryPast
from ...console.models import now_ms
from ..alert_schemas import (
    AlertChannelIn,
    AlertChannelList,
    AlertChannelOut,
    AlertDetailOut,
    AlertPage,
    AlertRuleIn,
    AlertRuleList,
    AlertRuleOut,
    DeliveryOut,
    DryRunOut,
    SilenceIn,
    SilenceList,
    SilenceOut,
)
from ..changes import DryRun
from ..errors import Refused
from ..paging import Cursor, Limit, decode_position, encode_position

router = Router(tags=["alerts"])

_PERIODS = 500


@router.get("/alerts", response=AlertPage)
def list_alerts(
    request: HttpRequest,
    cursor: Cursor,
    limit: Limit,
    on: bool | None = Query(None, description="Only those that are on, or only those that are over."),
) -> Any:
    """Alerts, newest first."""
    rows = Alert.objects.order_by("-id")
    if on is not None:
        rows = rows.filter(ended_ms__isnull=on)
    if cursor is not None:
        rows = rows.filter(id__lt=decode_position(cursor, ("alerts", on)))
    found = list(rows[: limit + 1])
    more = len(found) > limit
    place = encode_position(found[limit - 1].pk, ("alerts", on)) if more else None
    return {"items": found[:limit], "next_cursor": place}


@router.get("/alerts/{int:alert_id}", response=AlertDetailOut)
def alert(request: HttpRequest, alert_id: int) -> Any:
    """One alert, and its notices."""
    return _one(Alert.objects.prefetch_related("deliveries"), alert_id, "alert")


@router.get("/alert-rules", response=AlertRuleList)
def list_alert_rules(request: HttpRequest) -> Any:
    """All rules, by name."""
    counts = book.by_rule()
    return {"items": [_rule_out(rule, counts) for rule in AlertRule.objects.prefetch_related("channels")]}


@router.post("/alert-rules", response={200: DryRunOut, 201: AlertRuleOut})
def create_alert_rule(request: HttpRequest, response: HttpResponse, body: AlertRuleIn, dry_run: DryRun) -> Any:
    """Make a rule. With dry_run=true nothing is made: the answer is what such a rule would have done in the last 24
    hours, and the name may be one that there is."""
    if dry_run:
        present = AlertRule.objects.filter(name=body.name).first()
        rule = _rule_form(body, present or AlertRule()).instance
        return Status(200, _dry_run_out(acts.dry_run(rule, HistoryPast())))
    rule = acts.save_rule(request, _rule_form(body, AlertRule()))
    response.headers["Location"] = f"{request.path}/{rule.pk}"
    return Status(201, _rule_out(rule, book.by_rule()))


def _dry_run_out(tried: DryRunResult) -> dict[str, Any]:
    fields = {name: getattr(tried, name) for name in ("seen", "subjects", "truncated", "measured")}
    return {**fields, "fired": len(tried.periods), "periods": tried.periods[:_PERIODS]}


@router.get("/alert-rules/{int:rule_id}", response=AlertRuleOut)
def alert_rule(request: HttpRequest, rule_id: int) -> Any:
    """One rule."""
    return _rule_out(_one(AlertRule, rule_id, "alert rule"), book.by_rule())


@router.put("/alert-rules/{int:rule_id}", response=AlertRuleOut)
def change_alert_rule(request: HttpRequest, rule_id: int, body: AlertRuleIn) -> Any:
    """Replace a rule. If its conditions change, its active alerts end, with a notice to its channels."""
    rule = acts.save_rule(request, _rule_form(body, _one(AlertRule, rule_id, "alert rule")))
    return _rule_out(rule, book.by_rule())


@router.delete("/alert-rules/{int:rule_id}", response={204: None})
def delete_alert_rule(request: HttpRequest, rule_id: int) -> Any:
    """Delete a rule; its active alerts end, with a notice to its channels."""
    acts.delete_rule(request, _one(AlertRule, rule_id, "alert rule"))
    return Status(204, None)


@router.get("/alert-channels", response=AlertChannelList)
def list_alert_channels(request: HttpRequest) -> Any:
    """All channels, by name, without their secrets."""
    return {"items": [_channel_out(one) for one in AlertChannel.objects.prefetch_related("rules")]}


@router.post("/alert-channels", response={201: AlertChannelOut})
def create_alert_channel(request: HttpRequest, response: HttpResponse, body: AlertChannelIn) -> Any:
    """Make a channel. Then send it a test."""
    channel = acts.save_channel(request, _channel_form(body, None))
    response.headers["Location"] = f"{request.path}/{channel.pk}"
    return Status(201, _channel_out(channel))


@router.get("/alert-channels/{int:channel_id}", response=AlertChannelOut)
def alert_channel(request: HttpRequest, channel_id: int) -> Any:
    """One channel, without its secrets."""
    return _channel_out(_one(AlertChannel, channel_id, "alert channel"))


@router.put("/alert-channels/{int:channel_id}", response=AlertChannelOut)
def change_alert_channel(request: HttpRequest, channel_id: int, body: AlertChannelIn) -> Any:
    """Replace a channel. Address and secret stay as they are when they are left out."""
    channel = _one(AlertChannel, channel_id, "alert channel")
    return _channel_out(acts.save_channel(request, _channel_form(body, channel)))


@router.delete("/alert-channels/{int:channel_id}", response={204: None})
def delete_alert_channel(request: HttpRequest, channel_id: int) -> Any:
    """Delete a channel; its rules no longer send to it."""
    channel = _one(AlertChannel, channel_id, "alert channel")
    acts.delete_channel(request, channel)
    return Status(204, None)


@router.post("/alert-channels/{int:channel_id}/tests", response=DeliveryOut)
def test_alert_channel(request: HttpRequest, channel_id: int) -> Any:
    """Send a test now; state is sent or failed."""
    return acts.test_channel(request, _one(AlertChannel, channel_id, "alert channel"))


@router.get("/alert-silences", response=SilenceList)
def list_alert_silences(request: HttpRequest) -> Any:
    """Silences that are not over, those that end first in front."""
    found = AlertSilence.objects.filter(until_ms__gt=now_ms()).select_related("rule")
    return {"items": [_silence_out(one) for one in found]}


@router.post("/alert-silences", response={201: SilenceOut})
def silence_alerts(request: HttpRequest, body: SilenceIn) -> Any:
    """Send no notices for a while. Alerts are still recorded; those that are still active at the end are sent then."""
    values = body.model_dump()
    if body.rule is not None:
        rule = AlertRule.objects.filter(name=body.rule).first()
        if rule is None:
            raise Refused("not_found", f"There is no alert rule {body.rule}.")
        values["rule"] = rule.pk
    form = SilenceForm(values)
    _check(form)
    return Status(201, _silence_out(acts.silence(request, form.cleaned_data)))


@router.delete("/alert-silences/{int:silence_id}", response={204: None})
def end_alert_silence(request: HttpRequest, silence_id: int) -> Any:
    """End a silence now."""
    acts.end_silence(request, _one(AlertSilence, silence_id, "alert silence"))
    return Status(204, None)


def _one(rows: Any, pk: int, what: str) -> Any:
    rows = getattr(rows, "objects", rows)
    found = rows.filter(pk=pk).first() if pk < 1 << 63 else None
    if found is None:
        raise Refused("not_found", f"There is no {what} {pk}.")
    return found


def _check(form: forms.BaseForm) -> None:
    """Raise the form's own words as the API's error."""
    if form.is_valid():
        return
    named = {"is_active": "on"}
    errors = [
        {"field": named.get(field, field), "message": str(message)}
        for field, messages in form.errors.items()
        for message in messages
    ]
    raise Refused("invalid_input", "; ".join(f"{one['field']}: {one['message']}" for one in errors[:3]), errors=errors)


def _rule_form(body: AlertRuleIn, rule: AlertRule) -> RuleForm:
    values = body.model_dump(exclude={"on", "channels"})
    channels = dict(AlertChannel.objects.filter(name__in=body.channels).values_list("name", "pk"))
    for name in body.channels:
        if name not in channels:
            wrong = [{"field": "channels", "message": f"There is no alert channel {name}."}]
            raise Refused("invalid_input", wrong[0]["message"], errors=wrong)
    form = RuleForm({**values, "is_active": body.on, "channels": list(channels.values())}, instance=rule)
    _check(form)
    return form


def _channel_form(body: AlertChannelIn, channel: AlertChannel | None) -> ChannelForm:
    values = body.model_dump(exclude={"mail"})
    if body.mail is not None:
        values |= {**body.mail.model_dump(), "recipients": ", ".join(body.mail.recipients)}
    form = ChannelForm(channel, values)
    _check(form)
    return form


def _rule_out(rule: AlertRule, counts: dict[int, int]) -> dict[str, Any]:
    names = ("id", "name", "figure", "pattern", "above", "for_minutes", "severity", "again_after_minutes")
    return {name: getattr(rule, name) for name in names} | {
        "on": rule.is_active,
        "channels": [channel.name for channel in rule.channels.all()],
        "alerts_on": counts.get(rule.pk, 0),
        "says": texts.explained(rule),
    }


def _channel_out(channel: AlertChannel) -> dict[str, Any]:
    return {
        "id": channel.pk,
        "name": channel.name,
        "rules": [rule.name for rule in channel.rules.all()],
        **acts.channel_facts(channel),
        "mail": channel.mail or None,
    }


def _silence_out(one: AlertSilence) -> dict[str, Any]:
    names = ("id", "pattern", "reason", "by", "created_at_ms")
    rule = None if one.rule is None else one.rule.name
    return {name: getattr(one, name) for name in names} | {"rule": rule, "until_at_ms": one.until_ms}
