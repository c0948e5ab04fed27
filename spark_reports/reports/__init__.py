"""Reports for the people who run the broker, from the facts of a day and of the days before it.

Plain Python, no matter if Spark counted the facts: the same snapshot and facts give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ..facts.tables import DayFacts
from ..snapshot import Snapshot
from .document import REPORTS, Document


def _module(report: str) -> Any:
    """Import a report's module when it is needed: the console reads documents, and makes none."""
    return import_module(f".{report.replace('-', '_')}", __name__)


def make(snapshot: Snapshot, facts_by_day: Mapping[str, DayFacts]) -> list[Document]:
    """Make the documents, in the order of `REPORTS`. facts_by_day: of this day, and of as many days before it as there
    are. Raises KeyError without this day's."""
    from .days import View

    view = View(snapshot, {day: facts for day, facts in facts_by_day.items() if day <= snapshot.day})
    view.facts[snapshot.day]
    return [_module(name).make(view) for name in REPORTS]
