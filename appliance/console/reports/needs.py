"""Needs of the reports: the last run failed, or no run has ended for more than a night."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from django.utils.translation import gettext_noop

from .. import reports
from ..models import now_ms
from . import sentences

if TYPE_CHECKING:
    from ...engine.window.snapshots import Need

HOUR_MS = 3_600_000
#: If no run has ended for this long, the next night's run was missed.
LATE_MS = 30 * HOUR_MS

TEMPLATES = {
    "reports_failed": gettext_noop("The reports of %(day)s failed: %(why)s"),
    "reports_late": gettext_noop("No reports were made since those of %(day)s, although they are due every night."),
}


@dataclass(frozen=True, slots=True)
class Said:
    """A sentence of the console, of the same shape as the engine's."""

    code: str
    args: dict[str, object] = field(default_factory=dict)

    @property
    def template(self) -> str:
        return TEMPLATES[self.code]

    def __str__(self) -> str:
        return self.template % self.args


@dataclass(frozen=True, slots=True)
class ReportNeed:
    """A need of the same shape as the window's. name: its name in the key of a mute."""

    level: str
    kind: str
    name: str
    sentence: Said


def report_needs() -> list[Need]:
    """Return one need if reports are not made, else none. Findings in the reports are no needs: readers see them
    there."""
    ended = [run for run in reports.runs() if run.ended_ms is not None and run.state != "cancelled"]
    if not ended:
        return []
    last = ended[0]
    said = None
    if last.state in ("failed", "interrupted"):
        said = Said("reports_failed", {"day": last.day, "why": sentences.failure(last)})
    elif reports.settings().on and (last.ended_ms or 0) < now_ms() - LATE_MS:
        said = Said("reports_late", {"day": last.day})
    return [] if said is None else [cast("Need", ReportNeed("watch", "reports", "nightly", said))]
