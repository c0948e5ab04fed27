"""The figures that a rule can be about. They are those of the history, so that a rule can be tried on the past."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol

from django.utils.translation import gettext_lazy as _

from ...engine.figures import KEPT
from ...engine.translatable import ngettext_lazy

#: metric -> label -> its newest value. The label is a group's name, "" for a figure of the whole broker.
Measured = Mapping[str, Mapping[str, float]]
#: The figure for states that need a person: its subjects are the keys of needs, its values their `LEVELS`.
NEEDS = "needs"
LEVELS = {"watch": 1.0, "stuck": 2.0, "act": 2.0}
#: (milliseconds since 1970, value), in the order of time. The value is None if it was not measured.
Figures = list[tuple[int, float | None]]


class Past(Protocol):
    """The history on which a rule is tried."""

    def labels(self, metric: str, from_ms: int, to_ms: int) -> list[str]: ...

    def figures(self, metric: str, label: str, from_ms: int, to_ms: int) -> Figures: ...


@dataclass(frozen=True, slots=True)
class Figure:
    """metric: its name in the history (`engine/figures.py`); a value there divided by `divisor` is a value in `unit`.
    above, for_minutes: the defaults of a new rule. title: the sentence of an alert, with %(subject)s, %(value)s and
    %(above)s; a `Plural` has one form for the value 1. view: the page that shows the figure; with `of_groups` it takes
    the group's name."""

    code: str
    label: Any
    unit: Any
    metric: str
    view: str
    above: float
    for_minutes: int
    title: Any
    divisor: float = 1.0
    #: Key of the need that also silences this figure when it is muted, with %s for the subject; "" for none.
    mute: str = ""
    #: Value of a subject that is not among the measured ones; None: not known.
    absent: float | None = None

    @property
    def of_groups(self) -> bool:
        """True if each group, or each thing that needs a person, has its own value."""
        return self.metric == NEEDS or KEPT[self.metric].of == "group"

    def subjects(self, measured: Measured, pattern: str) -> Iterator[tuple[str, float]]:
        """Yield each measured subject that matches the pattern, with its value in `unit`."""
        for label, value in measured.get(self.metric, {}).items():
            if not self.of_groups or fnmatchcase(self.named(label), pattern):
                yield label, value / self.divisor

    def named(self, subject: str) -> str:
        """Return the name that patterns are matched with: a group's name, or the name of the thing a need is about."""
        return subject.split(":", 2)[-1] if self.code == NEEDS else subject

    def of_past(self, past: Past, label: str, from_ms: int, to_ms: int) -> Figures:
        found = past.figures(self.metric, label, from_ms, to_ms)
        return [(at_ms, None if value is None else value / self.divisor) for at_ms, value in found]


FIGURES = {
    figure.code: figure
    for figure in (
        Figure(
            NEEDS, _("Anything that needs you"), "", NEEDS, "needs", 0, 1, "%(subject)s", mute="%s", absent=0.0
        ),
        Figure(
            "lag_minutes", _("Group: how long it is behind"), _("minutes"), "group_lag_ms", "group", 10, 5,
            ngettext_lazy(
                "Group %(subject)s is %(value)s minute behind (limit %(above)s)",
                "Group %(subject)s is %(value)s minutes behind (limit %(above)s)",
            ), 60_000, "lag:group:%s",
        ),
        Figure(
            "lag_messages", _("Group: messages it is behind"), _("messages"), "group_lag", "group", 10_000, 5,
            ngettext_lazy(
                "Group %(subject)s is %(value)s message behind (limit %(above)s)",
                "Group %(subject)s is %(value)s messages behind (limit %(above)s)",
            ), mute="lag:group:%s",
        ),
        Figure(
            "deletion_percent", _("Group: how near its unread messages are to deletion"), "%", "group_deletion_percent",
            "group", 80, 5,
            _("Messages will be deleted before group %(subject)s has read them: %(value)s %% of their time has passed "
              "(limit %(above)s %%)"),
            mute="unread:group:%s",
        ),
        Figure(
            "dead_letters", _("Group: dead letters"), _("messages"), "group_dead_letters", "dead_letters", 0, 0,
            ngettext_lazy(
                "Group %(subject)s has %(value)s dead letter (limit %(above)s)",
                "Group %(subject)s has %(value)s dead letters (limit %(above)s)",
            ), mute="dead_letters:dead_letters:%s",
        ),
        Figure(
            "open_halves", _("Open transactions"), _("half messages"), "half_messages", "transactions", 1_000, 5,
            ngettext_lazy(
                "%(value)s transaction is open (limit %(above)s)", "%(value)s transactions are open (limit %(above)s)"
            ),
        ),
        Figure(
            "disk_percent", _("Disk in use"), "%", "disk_used_percent", "system", 80, 5,
            _("The disk of the message log is %(value)s %% full (limit %(above)s %%)"), mute="check:system:disk%s",
        ),
    )
}  # fmt: skip
