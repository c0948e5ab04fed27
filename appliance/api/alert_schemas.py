"""Alerts as JSON; the conventions are those of `schemas`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from .schemas import In, Out, PageOut, Text

FigureName = Literal[
    "needs", "lag_minutes", "lag_messages", "deletion_percent", "dead_letters", "open_halves", "disk_percent"
]
Name = Annotated[str, Field(min_length=1, max_length=64)]
Pattern = Annotated[str, Field(min_length=1, max_length=255)]
_Minutes = Annotated[int, Field(ge=0, le=7 * 24 * 60)]


class AlertRuleIn(In):
    """A rule: `figure`, of all groups that `pattern` names, above `above` for `for_minutes`. channels: their names. For
    "needs", `above` is 0 for all needs and 1 for urgent ones; each has its own severity. again_after_minutes: time
    between repeated notices while it goes on; 0 for a single one."""

    name: Name
    figure: FigureName
    pattern: Pattern = "*"
    above: Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
    for_minutes: _Minutes = 5
    severity: Literal["watch", "act"] = "watch"
    again_after_minutes: _Minutes = 0
    on: bool = True
    channels: Annotated[list[Name], Field(max_length=100)] = Field(default_factory=list)


class AlertRuleOut(Out):
    """alerts_on: how many alerts are on by it now. says: the rule as a sentence."""

    id: int
    name: Text
    figure: str
    pattern: Text
    above: float
    for_minutes: int
    severity: str
    again_after_minutes: int
    on: bool
    channels: list[Text]
    alerts_on: int
    says: str


class AlertRuleList(Out):
    items: list[AlertRuleOut]


class PeriodOut(Out):
    """When a rule would have fired. subject: the group; "" for the whole broker. ended_at_ms: null when it would still
    be on."""

    subject: Text
    fired_at_ms: int = Field(validation_alias="fired_ms")
    ended_at_ms: int | None = Field(validation_alias="ended_ms")
    worst: float


class DryRunOut(Out):
    """Effects that a rule would have had in the last 24 hours. fired: how often; periods: the newest 500. measured:
    false when there are no figures of that time. truncated: the time limit ended the check after `seen` of
    `subjects`."""

    fired: int
    periods: list[PeriodOut]
    seen: int
    subjects: int
    truncated: bool
    measured: bool


class DeliveryOut(Out):
    """A notice to a channel. event: fired, reminder, resolved or test. state: waiting, sent, failed or silenced. why:
    the last try failed, in the receiver's words."""

    channel: Text = Field(validation_alias="channel_name")
    event: str
    state: str
    tries: int
    created_at_ms: int
    done_at_ms: int | None = Field(validation_alias="done_ms")
    why: Text


class AlertOut(Out):
    """An alert. subject: the group; "" for the whole broker. since_at_ms: above the limit since; fired_at_ms: told.
    value: the newest one, null when it is over or not known. ended_by: "", below or changed (the rule was)."""

    id: int
    rule: Text = Field(validation_alias="rule_name")
    figure: str
    subject: Text
    severity: str
    above: float
    value: float | None
    worst: float
    since_at_ms: int = Field(validation_alias="since_ms")
    fired_at_ms: int = Field(validation_alias="fired_ms")
    ended_at_ms: int | None = Field(validation_alias="ended_ms")
    ended_by: str


class AlertDetailOut(AlertOut):
    """deliveries: its notices, in that order."""

    deliveries: list[DeliveryOut]

    @field_validator("deliveries", mode="before")
    @classmethod
    def _in_order(cls, value: Any) -> Any:
        return value if isinstance(value, list) else sorted(value.all(), key=lambda one: one.pk)


class AlertPage(PageOut):
    items: list[AlertOut]


class ChannelMail(In):
    """security: starttls, tls or none."""

    host: Annotated[str, Field(min_length=1, max_length=253)]
    port: Annotated[int, Field(ge=1, le=65535)] = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: Annotated[str, Field(max_length=255)] = ""
    sender: Annotated[str, Field(min_length=1, max_length=255)]
    recipients: Annotated[list[Annotated[str, Field(max_length=255)]], Field(min_length=1, max_length=20)]


class AlertChannelIn(In):
    """address: what is posted to, for all kinds but mail. secret: what the chat or we sign with; for mail the password.
    In a change both may be left out, and stay as they are."""

    name: Name
    kind: Literal["webhook", "mail", "slack", "dingtalk", "feishu", "wecom"]
    address: Annotated[str, Field(max_length=1024)] = ""
    secret: Annotated[str, Field(max_length=256)] = ""
    mail: ChannelMail | None = None
    language: Literal["en", "zh-hans"] = "en"


class AlertChannelOut(Out):
    """Addresses and secrets are never shown again."""

    id: int
    name: Text
    kind: str
    language: str
    mail: dict[str, Any] | None
    has_address: bool
    has_secret: bool
    rules: list[Text]


class AlertChannelList(Out):
    items: list[AlertChannelOut]


class SilenceIn(In):
    """rule: a rule's name; null for all."""

    rule: Name | None = None
    pattern: Pattern = "*"
    hours: Annotated[float, Field(ge=0.1, le=720, allow_inf_nan=False)]
    reason: Annotated[str, Field(min_length=1, max_length=255)]


class SilenceOut(Out):
    id: int
    rule: Text | None
    pattern: Text
    until_at_ms: int
    reason: Text
    by: Text
    created_at_ms: int


class SilenceList(Out):
    items: list[SilenceOut]
