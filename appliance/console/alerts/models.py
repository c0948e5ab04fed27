"""Alert rules, channels, silences, alerts and their deliveries. Times are milliseconds since 1970."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _


class AlertChannel(models.Model):
    """A receiver of alerts. Whoever has `address` and `secret` can write there, so pages never show them again."""

    class Kind(models.TextChoices):
        WEBHOOK = "webhook", _("Webhook (JSON)")
        MAIL = "mail", _("Mail")
        SLACK = "slack", "Slack"
        DINGTALK = "dingtalk", _("DingTalk")
        FEISHU = "feishu", _("Feishu")
        WECOM = "wecom", _("WeCom")

    name = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=10, choices=Kind.choices)
    # URL that notices are posted to; empty for mail.
    address = models.CharField(max_length=1024, blank=True, default="")
    # Key that signs the requests; for mail the password.
    secret = models.CharField(max_length=256, blank=True, default="")
    # For mail: host, port, security, sender, recipients (a list), user.
    mail = models.JSONField(default=dict, blank=True)
    language = models.CharField(max_length=10, default="en")

    class Meta:
        ordering = ("name",)


class AlertRule(models.Model):
    """Fires for each group matching `pattern` whose `figure` (of `alerts.figures`) is above `above` for
    `for_minutes`."""

    class Severity(models.TextChoices):
        WATCH = "watch", _("watch")
        ACT = "act", _("act today")

    name = models.CharField(max_length=64, unique=True)
    figure = models.CharField(max_length=32)
    pattern = models.CharField(max_length=255, default="*")
    above = models.FloatField()
    for_minutes = models.PositiveIntegerField(default=5)
    severity = models.CharField(max_length=5, choices=Severity.choices, default=Severity.WATCH)
    # While an alert goes on, its notice is repeated after this time; 0 for never.
    again_after_minutes = models.PositiveIntegerField(default=0)
    is_active = models.BooleanField(default=True)
    channels = models.ManyToManyField(AlertChannel, related_name="rules", blank=True)

    class Meta:
        ordering = ("name",)


class AlertSilence(models.Model):
    """Until `until_ms` no notices of `rule` (None: any) are sent for subjects that match `pattern`; alerts are still
    recorded."""

    rule = models.ForeignKey(AlertRule, on_delete=models.CASCADE, null=True, blank=True, related_name="silences")
    pattern = models.CharField(max_length=255, default="*")
    until_ms = models.BigIntegerField(db_index=True)
    reason = models.CharField(max_length=255)
    by = models.CharField(max_length=80)
    created_at_ms = models.BigIntegerField()

    class Meta:
        ordering = ("until_ms",)


class Alert(models.Model):
    """One firing of a rule for one subject. The rule's values are copied, since the rule may change or be deleted."""

    rule = models.ForeignKey(AlertRule, on_delete=models.SET_NULL, null=True, related_name="alerts")
    rule_name = models.CharField(max_length=64)
    figure = models.CharField(max_length=32)
    # A group's name; "" for the whole broker.
    subject = models.CharField(max_length=255, blank=True, default="")
    above = models.FloatField()
    severity = models.CharField(max_length=5)
    # The times when the figure went above the limit, when the rule fired, and when the alert was over.
    since_ms = models.BigIntegerField()
    fired_ms = models.BigIntegerField(db_index=True)
    ended_ms = models.BigIntegerField(null=True, db_index=True)
    # "" while it goes on; "below" the limit again, or the rule was "changed".
    ended_by = models.CharField(max_length=10, blank=True, default="")
    worst = models.FloatField()
    value = models.FloatField(null=True)
    reminded_ms = models.BigIntegerField(null=True)
    # For a need: its sentence ("code", "template", "args"), and the name of its subject ("name").
    words = models.JSONField(blank=True, default=dict)

    class Meta:
        ordering = ("-fired_ms", "-id")


class AlertDelivery(models.Model):
    """One notice to one channel, and its outcome. alerts: those it is about; none for a test or a digest."""

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
    # Reason of the last failed try, in the receiver's words; "" if it did not fail.
    why = models.CharField(max_length=300, blank=True, default="")

    class Meta:
        ordering: ClassVar[tuple[str, ...]] = ("-id",)
