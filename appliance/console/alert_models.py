"""Alert rules, whom they tell, when they are silent, and what became of them. Times are milliseconds since 1970."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _


class AlertChannel(models.Model):
    """Somewhere an alert is sent. `address` and `secret` let their holder write there: pages never show them again."""

    class Kind(models.TextChoices):
        WEBHOOK = "webhook", _("Webhook (JSON)")
        MAIL = "mail", _("Mail")
        SLACK = "slack", "Slack"
        DINGTALK = "dingtalk", _("DingTalk")
        FEISHU = "feishu", _("Feishu")
        WECOM = "wecom", _("WeCom")

    name = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=10, choices=Kind.choices)
    # Where it is posted to; for mail empty.
    address = models.CharField(max_length=1024, blank=True, default="")
    # Signs what is posted; for mail the password.
    secret = models.CharField(max_length=256, blank=True, default="")
    # For mail: host, port, security, sender, recipients (a list), user.
    mail = models.JSONField(default=dict, blank=True)
    language = models.CharField(max_length=10, default="en")

    class Meta:
        ordering = ("name",)


class AlertRule(models.Model):
    """`figure` of `alerts.figures`, of all groups that `pattern` names, above `above` for `for_minutes`."""

    class Severity(models.TextChoices):
        WATCH = "watch", _("watch")
        ACT = "act", _("act today")

    name = models.CharField(max_length=64, unique=True)
    figure = models.CharField(max_length=32)
    pattern = models.CharField(max_length=255, default="*")
    above = models.FloatField()
    for_minutes = models.PositiveIntegerField(default=5)
    severity = models.CharField(max_length=5, choices=Severity.choices, default=Severity.WATCH)
    # While it goes on: told again after so long; 0 for never.
    again_after_minutes = models.PositiveIntegerField(default=0)
    is_active = models.BooleanField(default=True)
    channels = models.ManyToManyField(AlertChannel, related_name="rules", blank=True)

    class Meta:
        ordering = ("name",)


class AlertSilence(models.Model):
    """Nothing is sent for what `rule` (None: any) says of subjects that `pattern` names; it is still written down."""

    rule = models.ForeignKey(AlertRule, on_delete=models.CASCADE, null=True, blank=True, related_name="silences")
    pattern = models.CharField(max_length=255, default="*")
    until_ms = models.BigIntegerField(db_index=True)
    reason = models.CharField(max_length=255)
    by = models.CharField(max_length=80)
    created_at_ms = models.BigIntegerField()

    class Meta:
        ordering = ("until_ms",)


class Alert(models.Model):
    """A rule that fired for one subject, until it was over. The rule's words are kept: it may change or go."""

    rule = models.ForeignKey(AlertRule, on_delete=models.SET_NULL, null=True, related_name="alerts")
    rule_name = models.CharField(max_length=64)
    figure = models.CharField(max_length=32)
    # A group's name; "" for the whole broker.
    subject = models.CharField(max_length=255, blank=True, default="")
    above = models.FloatField()
    severity = models.CharField(max_length=5)
    # Since when the figure was above the limit, when that was told, and when it was over.
    since_ms = models.BigIntegerField()
    fired_ms = models.BigIntegerField(db_index=True)
    ended_ms = models.BigIntegerField(null=True, db_index=True)
    # "" while it goes on; "below" the limit again, or the rule was "changed".
    ended_by = models.CharField(max_length=10, blank=True, default="")
    worst = models.FloatField()
    value = models.FloatField(null=True)
    reminded_ms = models.BigIntegerField(null=True)
    # Of a need: what it says ("code", "template", "args"), and what it is of ("name").
    words = models.JSONField(blank=True, default=dict)

    class Meta:
        ordering = ("-fired_ms", "-id")


class AlertDelivery(models.Model):
    """One notice to one channel, with what became of it. alerts: what it tells of; none for a test."""

    class State(models.TextChoices):
        WAITING = "waiting", _("waiting")
        SENT = "sent", _("sent")
        FAILED = "failed", _("failed")
        SILENCED = "silenced", _("silenced")

    alerts = models.ManyToManyField(Alert, related_name="deliveries", blank=True)
    channel = models.ForeignKey(AlertChannel, on_delete=models.SET_NULL, null=True, related_name="deliveries")
    channel_name = models.CharField(max_length=64)
    # "fired", "resolved", "reminder", "test" or "digest"
    event = models.CharField(max_length=10)
    notice = models.JSONField()
    state = models.CharField(max_length=10, choices=State.choices, default=State.WAITING, db_index=True)
    tries = models.PositiveIntegerField(default=0)
    next_try_ms = models.BigIntegerField(default=0)
    created_at_ms = models.BigIntegerField(db_index=True)
    done_ms = models.BigIntegerField(null=True)
    # Why the last try failed, in the receiver's words.
    why = models.CharField(max_length=300, blank=True, default="")

    class Meta:
        ordering: ClassVar[tuple[str, ...]] = ("-id",)
