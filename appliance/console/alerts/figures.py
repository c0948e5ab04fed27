"""What a rule can be about. The figures are those of the history, so that a rule can be tried on the past."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol

from django.utils.translation import gettext_lazy as _

#: metric -> label -> its newest value. The label is a group's name, "" for a figure of the whole broker.
Measured = Mapping[str, Mapping[str, float]]
#: The figure of what needs a person: its subjects are the keys of needs, its values their `LEVELS`.
NEEDS = "needs"
LEVELS = {"watch": 1.0, "stuck": 2.0, "act": 2.0}
#: (milliseconds since 1970, value), None for what was not measured; in the order of time.
Figures = list[tuple[int, float | None]]


class Past(Protocol):
    """Where a rule is tried: the history."""

    def labels(self, metric: str, from_ms: int, to_ms: int) -> list[str]: ...

    def figures(self, metric: str, label: str, from_ms: int, to_ms: int) -> Figures: ...


@dataclass(frozen=True, slots=True)
class Figure:
    """metric: its name in the history; a value of it divided by `divisor` is one in `unit`. of_groups: whether each
    group has one. above, for_minutes: what a new rule begins with. fires, title: what is told, with %(subject)s,
    %(value)s and %(above)s. view: the page that shows it; of a group with the group's name."""

    code: str
    label: Any
    unit: Any
    metric: str
    of_groups: bool
    view: str
    above: float
    for_minutes: int
    title: Any
    divisor: float = 1.0
    #: What a muted need of the same subject is called, with %s for the subject; "" for no need.
    mute: str = ""
    #: What a subject has that is not among those measured; None for a value that is not known.
    absent: float | None = None

    def subjects(self, measured: Measured, pattern: str) -> Iterator[tuple[str, float]]:
        """Each subject that the pattern names, with its value in `unit`."""
        for label, value in measured.get(self.metric, {}).items():
            if not self.of_groups or fnmatchcase(self.named(label), pattern):
                yield label, value / self.divisor

    def named(self, subject: str) -> str:
        """What patterns are held against: a group's name, or what a need is of."""
        return subject.split(":", 2)[-1] if self.code == NEEDS else subject

    def of_past(self, past: Past, label: str, from_ms: int, to_ms: int) -> Figures:
        found = past.figures(self.metric, label, from_ms, to_ms)
        return [(at_ms, None if value is None else value / self.divisor) for at_ms, value in found]


FIGURES = {
    figure.code: figure
    for figure in (
        Figure(
            NEEDS, _("Anything that needs you"), "", NEEDS, True, "needs", 0, 1, "%(subject)s", mute="%s", absent=0.0
        ),
        Figure(
            "lag_minutes", _("Group: how long it is behind"), _("minutes"), "group_lag_ms", True, "group", 10, 5,
            _("Group %(subject)s is %(value)s minutes behind (limit %(above)s)"), 60_000, "lag:group:%s",
        ),
        Figure(
            "lag_messages", _("Group: messages it is behind"), _("messages"), "group_lag", True, "group", 10_000, 5,
            _("Group %(subject)s is %(value)s messages behind (limit %(above)s)"), mute="lag:group:%s",
        ),
        Figure(
            "dead_letters", _("Group: dead letters"), _("messages"), "group_dead_letters", True, "dead_letters", 0, 0,
            _("Group %(subject)s has %(value)s dead letters (limit %(above)s)"), mute="dead_letters:dead_letters:%s",
        ),
        Figure(
            "open_halves", _("Open transactions"), _("half messages"), "half_messages", False, "transactions", 1_000, 5,
            _("%(value)s transactions are open (limit %(above)s)"),
        ),
        Figure(
            "disk_percent", _("Disk in use"), "%", "disk_used_percent", False, "system", 80, 5,
            _("The disk of the message log is %(value)s %% full (limit %(above)s %%)"), mute="check:system:disk%s",
        ),
    )
}  # fmt: skip
