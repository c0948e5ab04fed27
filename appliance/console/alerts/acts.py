"""Acts of people on alerts, for pages and the API alike: each is one transaction with an entry in the audit log."""

from __future__ import annotations

import time
from typing import Any

from django.db import transaction
from django.http import HttpRequest
from django.utils.translation import gettext as _

from ..audit.log import audit
from ..models import now_ms
from ..reports import digest_channels
from . import book, sending, texts
from .book import DryRun
from .figures import FIGURES, LEVELS, NEEDS, Past
from .models import Alert, AlertChannel, AlertDelivery, AlertRule, AlertSilence
from .teller import teller

#: A dry run looks at the last day. After DRY_RUN_S it ends with what it has found so far.
DRY_RUN_MS = 24 * 3_600_000
DRY_RUN_S = 2.0
_HOUR_MS = 3_600_000


def facts_of(rule: AlertRule) -> dict[str, Any]:
    """Return the values of a rule that the audit log keeps."""
    return {
        "figure": rule.figure, "pattern": rule.pattern, "above": rule.above, "for_minutes": rule.for_minutes,
        "severity": rule.severity, "again_after_minutes": rule.again_after_minutes, "on": rule.is_active,
        "channels": sorted(channel.name for channel in rule.channels.all()) if rule.pk else [],
    }  # fmt: skip


def channel_facts(channel: AlertChannel) -> dict[str, Any]:
    """Return the values of a channel that the audit log keeps: not its address and secret, which allow to write
    there."""
    return {
        "kind": channel.kind, "language": channel.language, "mail": channel.mail,
        "has_address": bool(channel.address), "has_secret": bool(channel.secret),
    }  # fmt: skip


_CONDITIONS = ("figure", "pattern", "above", "for_minutes", "on")


@transaction.atomic
def save_rule(request: HttpRequest, form: Any) -> AlertRule:
    """Save the rule of a valid form. If its conditions changed, the alerts that are on by the old ones end: they are
    no longer watched."""
    before = None
    if form.instance.pk:
        present = AlertRule.objects.get(pk=form.instance.pk)
        before = facts_of(present)
        if any(before[name] != facts_of(form.instance)[name] for name in _CONDITIONS):
            book.end_alerts(present, teller(), now_ms())
    rule: AlertRule = form.save()
    audit(request, "alert_rule.change" if before else "alert_rule.create", rule.name, before, facts_of(rule))
    return rule


@transaction.atomic
def first_rule(request: HttpRequest) -> None:
    """Create the rule that the set-up offers: whatever needs somebody today. Nothing if there are rules already, as of
    definitions that were loaded at the start."""
    if AlertRule.objects.exists():
        return
    figure = FIGURES[NEEDS]
    rule = AlertRule.objects.create(
        name=_("What needs you"), figure=NEEDS, above=LEVELS["watch"], for_minutes=figure.for_minutes,
        severity=AlertRule.Severity.ACT,
    )  # fmt: skip
    audit(request, "alert_rule.create", rule.name, None, facts_of(rule))


@transaction.atomic
def delete_rule(request: HttpRequest, rule: AlertRule) -> None:
    before = facts_of(rule)
    book.end_alerts(rule, teller(), now_ms())
    name = rule.name
    rule.delete()
    audit(request, "alert_rule.delete", name, before)


@transaction.atomic
def save_channel(request: HttpRequest, form: Any) -> AlertChannel:
    before = channel_facts(form.channel) if form.channel else None
    old = form.channel.name if form.channel else ""
    channel: AlertChannel = form.save()
    if old and old != channel.name:
        digest_channels.follow(old, channel.name)
    action = "alert_channel.change" if before else "alert_channel.create"
    audit(request, action, channel.name, before, channel_facts(channel))
    return channel


@transaction.atomic
def delete_channel(request: HttpRequest, channel: AlertChannel) -> None:
    before, name = channel_facts(channel), channel.name
    channel.delete()
    digest_channels.follow(name, None)
    audit(request, "alert_channel.delete", name, before)


def test_channel(request: HttpRequest, channel: AlertChannel) -> AlertDelivery:
    """Send a test notice once, now; return its delivery with the outcome. Waits for the receiver."""
    told = teller()
    notice = texts.test_notice(told.installation, told.base, channel.language)
    why = sending.send(book.target_of(channel), notice)
    now = now_ms()
    State = AlertDelivery.State
    delivery = AlertDelivery.objects.create(
        channel=channel, channel_name=channel.name, event="test", notice=notice.as_dict(),
        state=State.SENT if why is None else State.FAILED, tries=1, created_at_ms=now, done_ms=now, why=why or "",
    )  # fmt: skip
    result = "done" if why is None else "failed"
    audit(request, "alert_channel.test", channel.name, after=None if why is None else {"reason": why}, result=result)
    return delivery


@transaction.atomic
def silence(request: HttpRequest, values: dict[str, Any]) -> AlertSilence:
    now = now_ms()
    made = AlertSilence.objects.create(
        rule=values["rule"], pattern=values["pattern"], until_ms=now + int(values["hours"] * _HOUR_MS),
        reason=values["reason"], by=request.user.label, created_at_ms=now,
    )  # fmt: skip
    audit(request, "alert_silence.create", _silence_name(made), None, {"hours": values["hours"], "reason": made.reason})
    return made


@transaction.atomic
def end_silence(request: HttpRequest, one: AlertSilence) -> None:
    now = now_ms()
    if one.until_ms > now:
        one.until_ms = now
        one.save(update_fields=["until_ms"])
        audit(request, "alert_silence.end", _silence_name(one))


def _silence_name(one: AlertSilence) -> str:
    return f"{one.rule.name if one.rule else '*'} {one.pattern}"


def dry_run(rule: AlertRule, past: Past) -> DryRun:
    """Try the rule on the figures of the last day."""
    now = now_ms()
    deadline = time.monotonic() + DRY_RUN_S
    return book.dry_run(rule, past, now - DRY_RUN_MS, now, lambda: time.monotonic() > deadline)


def on_now() -> list[Alert]:
    """Return the alerts that are on: the severe ones first, then the oldest."""
    found = Alert.objects.filter(ended_ms=None).select_related("rule").prefetch_related("deliveries")
    return sorted(found, key=lambda alert: (alert.severity != AlertRule.Severity.ACT, alert.fired_ms))


def failing_channels() -> dict[str, str]:
    """Return the channels whose newest notice was not accepted, each with the reason."""
    newest: dict[str, AlertDelivery] = {}
    done = AlertDelivery.objects.filter(channel__isnull=False).exclude(state="silenced").exclude(tries=0)
    for delivery in done.order_by("-id")[:200]:
        newest.setdefault(delivery.channel_name, delivery)
    return {name: delivery.why for name, delivery in newest.items() if delivery.why}
