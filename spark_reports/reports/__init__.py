"""Reports: what the facts of a day, and of the days before it, say to the people who run the broker.

Plain Python, whoever counted the facts: the same snapshot and facts give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ..facts.tables import DayFacts
from ..snapshot import Snapshot
from .document import REPORTS, Document


def _module(report: str) -> Any:
    """Imported when it is needed: the console reads documents, and makes none."""
    return import_module(f".{report.replace('-', '_')}", __name__)


def make(snapshot: Snapshot, facts_by_day: Mapping[str, DayFacts]) -> list[Document]:
    """In the order of `REPORTS`. facts_by_day: this day's, and of as many days before it as there are; KeyError without
    this day's."""
    from .days import View

    view = View(snapshot, {day: facts for day, facts in facts_by_day.items() if day <= snapshot.day})
    view.facts[snapshot.day]
    return [_module(name).make(view) for name in REPORTS]


def svg_files(document: Document) -> dict[str, bytes]:
    """The plots that the document names, drawn from the numbers in its tables, by file name."""
    drawn: dict[str, bytes] = _module(document.report).draw(document)
    return drawn
