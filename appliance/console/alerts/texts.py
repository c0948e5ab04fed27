"""The texts of alerts, in the language of the channel they go to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, override

from ...engine.translatable import Plural
from ..health import needs
from ..jobs.job import Told
from ..pages.template_tags import as_duration, thousands
from ..pages.words import in_readers_language
from ..templatetags.pages import translated
from .chat import Notice
from .figures import FIGURES, LEVELS, NEEDS, Figure
from .judging import Period
from .models import Alert, AlertRule

#: Most subjects that one notice names.
NAMED = 10


def figure_text(value: float | None) -> str:
    """Format a figure with at most one digit after the point; None is "not known"."""
    if value is None:
        return _("not known")
    return thousands(int(value)) if value == int(value) else thousands(round(value, 1))


def title_of(alert: Alert) -> str:
    """Return the alert's sentence in the active language."""
    figure = FIGURES.get(alert.figure)
    if figure is None:
        return f"{alert.figure} {alert.subject}"
    if alert.words:
        return translated(Told(alert.words["template"], alert.words["args"]))
    value = alert.value if alert.ended_ms is None and alert.value is not None else alert.worst
    return _sentence(figure, alert.subject, value, alert.above)


def notice_of(event: str, alerts: Sequence[Alert], installation: str, base: str, language: str, now_ms: int) -> Notice:
    """Return one notice about these alerts of one rule, of which there is at least one."""
    first = alerts[0]
    with override(language):
        title = title_of(first)
        if len(alerts) > 1:
            more = len(alerts) - 1
            title += " " + ngettext("and %(count)s more", "and %(count)s more", more) % {"count": more}
        head = {
            "fired": _("Alert"),
            "reminder": _("Still"),
            "resolved": _("Over"),
        }[event]
        lines = [] if len(alerts) == 1 else [title_of(alert) for alert in alerts[:NAMED]]
        lines += ["…"] if len(alerts) > NAMED else []
        lines.append(_("Rule: %(rule)s. Since %(since)s.") % {"rule": first.rule_name, "since": moment(first.since_ms)})
        if event == "resolved" and first.ended_ms is not None:
            span = as_duration((first.ended_ms - first.since_ms) / 1000)
            lines.append(
                _("It was changed or deleted; nobody looks any more.")
                if first.ended_by == "changed"
                else _("Over after %(span)s; the worst was %(worst)s.")
                % {"span": span, "worst": figure_text(first.worst)}
            )
        return Notice(
            event=event,
            alert=first.pk,
            rule=first.rule_name,
            figure=first.figure,
            subject=first.subject,
            value=first.value,
            above=first.above,
            severity=first.severity,
            since=_rfc3339(first.since_ms),
            ended=None if first.ended_ms is None else _rfc3339(first.ended_ms),
            installation=installation,
            title=f"[{installation}] {head}: {title}",
            text="\n".join(lines),
            link=link_to(base, first),
        )


def test_notice(installation: str, base: str, language: str) -> Notice:
    """Return the notice that a channel's test button sends."""
    with override(language):
        return Notice(
            event="test", alert=None, rule="", figure="", subject="", value=None, above=0, severity="watch", since=None,
            ended=None, installation=installation,
            title=f"[{installation}] " + _("A test of this channel"),
            text=_("Alerts will come here. There is nothing to do."),
            link=base + reverse("alerts") if base else "",
        )  # fmt: skip


def page_of(alert: Alert) -> str:
    """Return the path of the page that shows the figure; "" for a figure that this version does not have."""
    figure = FIGURES.get(alert.figure)
    if figure is None:
        return ""
    if alert.words:
        return needs.page_of(alert.words["code"], alert.words["name"])
    if figure.code == NEEDS:
        return reverse("needs")
    return reverse(figure.view, args=[alert.subject]) if figure.of_groups else reverse(figure.view)


def link_to(base: str, alert: Alert) -> str:
    """Return the full address of the page that shows the figure; "" without a page or a public address."""
    path = page_of(alert)
    return f"{base}{path}" if base and path else ""


def past_title(rule: AlertRule, period: Period) -> str:
    """Return the sentence that a rule would have sent for a period of the past."""
    figure = FIGURES[rule.figure]
    return _sentence(figure, period.subject, period.worst, rule.above)


def _sentence(figure: Figure, subject: str, value: float | None, above: float) -> str:
    shown = {"subject": subject, "value": figure_text(value), "above": figure_text(above)}
    if not isinstance(figure.title, Plural):
        return str(figure.title) % shown
    # The form of what is shown: 1.04 is shown as 1.
    return in_readers_language(figure.title, {"count": 1 if shown["value"] == "1" else 2}) % shown


def explained(rule: AlertRule) -> str:
    """Return the rule as a sentence."""
    figure = FIGURES[rule.figure]
    what = {"above": figure_text(rule.above), "unit": figure.unit, "label": figure.label, "minutes": rule.for_minutes}
    sentence = _("%(label)s above %(above)s %(unit)s") % what
    if figure.code == NEEDS:
        urgent = rule.above >= LEVELS["watch"]
        sentence = _("Anything that needs you today") if urgent else str(figure.label)
    if rule.for_minutes:
        minutes = ngettext("for %(minutes)s minute", "for %(minutes)s minutes", rule.for_minutes) % what
        sentence += " " + minutes
    return sentence


def moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _rfc3339(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
