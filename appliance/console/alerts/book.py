"""Alerts in the database: judges each sample by the rules, stores the alerts, and queues their notices.

A notice is stored in the same transaction as its alert. So after a crash it is sent late, or a second time if the crash
came between sending it and recording that; it is never lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import Max, Q

from ...engine.errors import AdminError
from ..health import needs as needs_
from .figures import FIGURES, LEVELS, NEEDS, Figures, Measured, Past
from .judging import QUIET, Limit, Period, Watched, periods, step
from .models import Alert, AlertChannel, AlertDelivery, AlertRule, AlertSilence
from .target import Mail, Target
from .teller import Teller
from .texts import notice_of

if TYPE_CHECKING:
    from ...engine.window.snapshots import Need

MINUTE_MS = 60_000
#: Finished alerts are kept this long, and at most KEPT of them.
KEPT_MS = 90 * 86_400_000
KEPT = 10_000
#: Alerts that are on at a time for one rule; further subjects wait until others are over.
MOST_OF_A_RULE = 500
#: If more alerts than this follow for one rule in one look, one notice tells of all of them.
TOLD_ALONE = 3

Key = tuple[int, str]


def limit_of(rule: AlertRule) -> Limit:
    return Limit(rule.above, rule.for_minutes * MINUTE_MS)


@dataclass(slots=True)
class Judge:
    """Judges one sample after the other; owned by one thread. watched: (rule, subject) -> its state, for the subjects
    above their limit. Alerts that are on are read from the database at the start, so a restart neither repeats nor
    loses one."""

    teller: Teller
    #: Returns the present needs; called when a rule is about them.
    needs: Callable[[], Iterable[Need]] = needs_.everything
    watched: dict[Key, Watched] = field(default_factory=dict)
    _needs: dict[str, Need] = field(default_factory=dict)
    _conditions: dict[int, tuple[object, ...]] = field(default_factory=dict)

    def begin(self, now_ms: int) -> None:
        """Read the alerts that were on when the last process ended."""
        for alert in Alert.objects.filter(ended_ms=None, rule__isnull=False):
            standing = Watched(alert.since_ms, True, alert.worst, alert.value, now_ms)
            self.watched[alert.rule_id, alert.subject] = standing

    def look(self, measured: Measured, now_ms: int) -> None:
        """Judge all rules by the newest figures; store the alerts and notices that follow."""
        rules = list(AlertRule.objects.filter(is_active=True).prefetch_related("channels"))
        silences = Silences.at(now_ms)
        self._forget_changed(rules)
        if any(rule.figure == NEEDS for rule in rules):
            measured = {**measured, **self._measured_needs()}
        for rule in rules:
            fired, resolved = self._judge(rule, measured, now_ms)
            if fired or resolved or any(key[0] == rule.pk for key in self.watched):
                self._write(rule, fired, resolved, silences, now_ms)

    def _measured_needs(self) -> Measured:
        """Return the needs as a figure; {} if the window cannot list them now."""
        try:
            found = list(self.needs())
        except AdminError:
            return {}
        # The worst needs are first. Reversed, so that of two with the same key the worse one stays.
        self._needs = {needs_.key_of(need): need for need in reversed(found)}
        return {NEEDS: {key: LEVELS[need.level] for key, need in self._needs.items()}}

    def _forget_changed(self, rules: Iterable[AlertRule]) -> None:
        """Stop watching the subjects of rules that are gone or whose conditions changed: their waits begin anew. Alerts
        that were on are ended by the act that changed the rule."""
        present = {rule.pk: (rule.figure, rule.pattern, rule.above, rule.for_minutes) for rule in rules}
        for key in list(self.watched):
            known = self._conditions.get(key[0])
            if key[0] not in present or (known is not None and known != present[key[0]]):
                del self.watched[key]
        self._conditions = dict(present)

    def _judge(self, rule: AlertRule, measured: Measured, now_ms: int) -> tuple[list[str], list[str]]:
        limit = limit_of(rule)
        figure = FIGURES[rule.figure]
        values = dict(figure.subjects(measured, rule.pattern))
        absent = figure.absent if figure.metric in measured else None
        fired: list[str] = []
        resolved: list[str] = []
        on = sum(standing.firing for key, standing in self.watched.items() if key[0] == rule.pk)
        for subject in {*values, *(key[1] for key in self.watched if key[0] == rule.pk)}:
            value = values.get(subject, absent)
            before = self.watched.get((rule.pk, subject), QUIET)
            if before is QUIET and (value is None or value <= limit.above):
                continue
            after, event = step(before, limit, now_ms, value)
            if event == "fired":
                if on >= MOST_OF_A_RULE:
                    continue
                on += 1
                fired.append(subject)
            elif event == "resolved":
                resolved.append(subject)
            if after.above_since_ms is None:
                self.watched.pop((rule.pk, subject), None)
            else:
                self.watched[rule.pk, subject] = after
        return sorted(fired), sorted(resolved)

    @transaction.atomic
    def _write(self, rule: AlertRule, fired: list[str], resolved: list[str], silences: Silences, now_ms: int) -> None:
        on = {alert.subject: alert for alert in Alert.objects.filter(rule=rule, ended_ms=None)}
        over = [on.pop(subject) for subject in resolved if subject in on]
        for alert in over:
            alert.ended_ms, alert.ended_by, alert.value = now_ms, "below", None
            alert.save(update_fields=["ended_ms", "ended_by", "value"])
        new = []
        for subject in fired:
            if subject not in on:
                on[subject] = alert = self._new(rule, subject, now_ms)
                new.append(alert)
        moved, graver = [], []
        for subject, alert in on.items():
            standing = self.watched.get((rule.pk, subject))
            words = self._words(rule, subject) or alert.words
            if standing is None or (standing.worst, standing.value, words) == (alert.worst, alert.value, alert.words):
                continue
            if rule.figure == NEEDS and standing.worst > alert.worst:
                alert.severity = _severity(rule, standing.worst)
                graver.append(alert)
            alert.worst, alert.value, alert.words = standing.worst, standing.value, words
            moved.append(alert)
        # In bulk: hundreds of alerts may be on, and other writers wait for the database meanwhile.
        Alert.objects.bulk_update(moved, ["worst", "value", "words", "severity"], batch_size=100)
        self._tell(rule, "resolved", over, silences, now_ms)
        self._tell(rule, "fired", [*new, *graver], silences, now_ms)
        told = {alert.pk for alert in (*new, *graver)}
        self._tell_again(rule, [alert for alert in on.values() if alert.pk not in told], silences, now_ms)

    def _words(self, rule: AlertRule, subject: str) -> dict[str, object]:
        """Return a need's sentence as an alert stores it; {} for other figures, and for a need that is over."""
        need = self._needs.get(subject) if rule.figure == NEEDS else None
        if need is None:
            return {}
        said = need.sentence
        args = {name: one if isinstance(one, (int, float, str)) else str(one) for name, one in said.args.items()}
        # As JSON has it, so that what is stored and what is now compare.
        template = said.template if isinstance(said.template, str) else list(said.template)
        return {"code": said.code, "template": template, "args": args, "name": need.name}

    def _new(self, rule: AlertRule, subject: str, now_ms: int) -> Alert:
        standing = self.watched[rule.pk, subject]
        return Alert.objects.create(
            rule=rule, rule_name=rule.name, figure=rule.figure, subject=subject, above=rule.above,
            severity=_severity(rule, standing.worst), since_ms=standing.above_since_ms, fired_ms=now_ms, ended_ms=None,
            worst=standing.worst, value=standing.value, reminded_ms=None, words=self._words(rule, subject),
        )  # fmt: skip

    def _tell_again(self, rule: AlertRule, alerts: list[Alert], silences: Silences, now_ms: int) -> None:
        """Queue late notices and reminders: the notice of an alert that began during a silence is sent when the silence
        is over, and that of one that goes on is repeated as often as the rule says."""
        late, again = [], []
        heard = AlertDelivery.objects.exclude(state=AlertDelivery.State.SILENCED)
        heard_of = set(heard.filter(alerts__rule=rule, alerts__ended_ms=None).values_list("alerts", flat=True))
        for alert in alerts:
            if silences.holds(rule, alert.subject):
                continue
            if alert.pk not in heard_of and rule.channels.exists():
                late.append(alert)
            elif rule.again_after_minutes:
                last = alert.reminded_ms or alert.fired_ms
                # Later than now: the clock was set back.
                if not last <= now_ms < last + rule.again_after_minutes * MINUTE_MS:
                    alert.reminded_ms = now_ms
                    alert.save(update_fields=["reminded_ms"])
                    again.append(alert)
        self._tell(rule, "fired", late, silences, now_ms)
        self._tell(rule, "reminder", again, silences, now_ms)

    def _tell(self, rule: AlertRule, event: str, alerts: list[Alert], silences: Silences, now_ms: int) -> None:
        quiet = [alert for alert in alerts if silences.holds(rule, alert.subject)]
        loud = [alert for alert in alerts if alert not in quiet]
        for some, state in ((loud, "waiting"), (quiet, "silenced")):
            for together in _together(some):
                put(self.teller, rule.channels.all(), event, together, now_ms, state)


def _together(alerts: list[Alert]) -> list[list[Alert]]:
    return [alerts] if len(alerts) > TOLD_ALONE else [[alert] for alert in alerts]


def put(
    teller: Teller,
    channels: Iterable[AlertChannel],
    event: str,
    alerts: Sequence[Alert],
    now_ms: int,
    state: str = "waiting",
) -> None:
    """Store one notice about these alerts for each channel."""
    for channel in channels:
        notice = notice_of(event, alerts, teller.installation, teller.base, channel.language, now_ms)
        delivery = AlertDelivery.objects.create(
            channel=channel, channel_name=channel.name, event=event, notice=asdict(notice), state=state,
            created_at_ms=now_ms, next_try_ms=now_ms, done_ms=None if state == "waiting" else now_ms,
        )  # fmt: skip
        delivery.alerts.set(alerts)


def _severity(rule: AlertRule, worst: float) -> str:
    """Return an alert's severity: that of the need, or for other figures that of the rule."""
    if rule.figure != NEEDS:
        return str(rule.severity)
    return str(AlertRule.Severity.ACT if worst >= LEVELS["act"] else AlertRule.Severity.WATCH)


@dataclass(frozen=True, slots=True)
class Silences:
    """The present silences of rules, and the keys of muted needs: no notices are sent for what they cover."""

    rows: tuple[AlertSilence, ...]
    muted: frozenset[str]

    @classmethod
    def at(cls, now_ms: int) -> Silences:
        rows = AlertSilence.objects.filter(until_ms__gt=now_ms)
        return cls(tuple(rows), frozenset(one.key for one in needs_.active()))

    def holds(self, rule: AlertRule, subject: str) -> bool:
        """True if a silence or a mute covers this subject of the rule."""
        figure = FIGURES[rule.figure]
        if figure.mute and figure.mute % subject in self.muted:
            return True
        named = figure.named(subject)
        return any(one.rule_id in (None, rule.pk) and fnmatchcase(named, one.pattern) for one in self.rows)


def end_alerts(rule: AlertRule, teller: Teller, now_ms: int) -> int:
    """End all alerts of a rule, before it changes, stops or is deleted, and notify its channels; return how many were
    on."""
    alerts = list(Alert.objects.filter(rule=rule, ended_ms=None))
    for alert in alerts:
        alert.ended_ms, alert.ended_by, alert.value = now_ms, "changed", None
        alert.save(update_fields=["ended_ms", "ended_by", "value"])
    silences = Silences.at(now_ms)
    loud = [alert for alert in alerts if not silences.holds(rule, alert.subject)]
    for together in _together(loud):
        put(teller, rule.channels.all(), "resolved", together, now_ms)
    return len(alerts)


def newest_ms() -> int:
    """Return the newest time at which an alert began or ended, or a notice was made; 0 if there are none."""
    alerts = Alert.objects.aggregate(fired=Max("fired_ms"), ended=Max("ended_ms"))
    notices = AlertDelivery.objects.aggregate(made=Max("created_at_ms"))
    return max(one or 0 for one in (*alerts.values(), *notices.values()))


def clean(now_ms: int) -> None:
    """Delete old rows: alerts that are over, notices that are done, silences that have ended."""
    Alert.objects.filter(ended_ms__lt=now_ms - KEPT_MS).delete()
    for model, done in ((Alert, Q(ended_ms__isnull=False)), (AlertDelivery, ~Q(state=AlertDelivery.State.WAITING))):
        edge = model.objects.filter(done).order_by("-id").values_list("id", flat=True)[KEPT : KEPT + 1].first()
        if edge is not None:
            model.objects.filter(done, id__lte=edge).delete()
    AlertDelivery.objects.filter(created_at_ms__lt=now_ms - KEPT_MS).delete()
    AlertSilence.objects.filter(until_ms__lt=now_ms - KEPT_MS).delete()


def target_of(channel: AlertChannel) -> Target:
    """Return the channel as a target for sending."""
    mail = None
    if channel.kind == AlertChannel.Kind.MAIL:
        of = channel.mail
        mail = Mail(
            of["host"], of["port"], of["security"], of["sender"], tuple(of["recipients"]), of.get("user", ""),
            channel.secret,
        )  # fmt: skip
    return Target(channel.kind, channel.address, channel.secret, mail)


@dataclass(frozen=True, slots=True)
class DryRun:
    """Result of trying a rule on the past. periods: newest first. truncated: the time limit was reached before every
    subject was looked at; seen: how many were. measured: False if there are no figures of that time at all."""

    periods: tuple[Period, ...]
    seen: int
    subjects: int
    truncated: bool
    measured: bool


def dry_run(rule: AlertRule, past: Past, from_ms: int, to_ms: int, out_of_time: object) -> DryRun:
    """Try a rule on the past. out_of_time() -> True to stop before the next subject."""
    figure = FIGURES[rule.figure]
    labels = past.labels(figure.metric, from_ms, to_ms)
    if figure.of_groups:
        labels = [label for label in labels if fnmatchcase(label, rule.pattern)]
    found: list[Period] = []
    seen = 0
    measured = False
    truncated = False
    for label in labels:
        if callable(out_of_time) and out_of_time():
            truncated = True
            break
        figures: Figures = figure.of_past(past, label, from_ms, to_ms)
        measured = measured or any(value is not None for _, value in figures)
        found += periods(label, limit_of(rule), figures)
        seen += 1
    found.sort(key=lambda period: -period.fired_ms)
    return DryRun(tuple(found), seen, len(labels), truncated, measured)


def by_rule() -> dict[int, int]:
    """Return the number of alerts that are on for each rule that has some, by the rule's id."""
    counts: dict[int, int] = defaultdict(int)
    for rule in Alert.objects.filter(ended_ms=None, rule__isnull=False).values_list("rule_id", flat=True):
        counts[rule] += 1
    return counts
