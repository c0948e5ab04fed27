"""Prints a report for people. Its keys and units are those of `spark_reports.reports.document`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_reports.reports.keys import EXPLAINING, unit_in_note

from ...engine.plain_text import plain, size_text
from . import show

#: Column of units of other values; it is not shown itself.
_UNIT = "unit"
#: Units of the columns that say what a row is about.
_SUBJECTS = ("day", "time_ms", "group", "topic", "text", "word", _UNIT)


def report(answer: dict[str, Any]) -> list[str]:
    """Return lines with a report: as on its page, notes about what happened come first, explanations last."""
    name, day = plain(answer["report"]), plain(answer["day"])
    until = show.cell("at_ms", answer["t0_at_ms"])
    notes = [(note["key"] in EXPLAINING, _note(note)) for note in answer["notes"]]
    lines = [f"{_words(name)} of {day} ({plain(answer['zone'])}), counted up to {until}"]
    lines += [f"note: {text}" for explains, text in notes if not explains]
    for tile in answer["tiles"]:
        said = [_text(tile["value"], tile["unit"])]
        if tile["before"] is not None:
            said.append(f"the day before {_text(tile['before'], tile['unit'])}")
        said += [f"{_words(key)} {_text(value, key)}" for key, value in tile["where"] if value not in (None, "")]
        lines.append(f"{_words(tile['key'])}: {', '.join(said)}")
    for table in answer["tables"]:
        lines += ["", f"{_words(table['key'])}:", *(f"  {line}" for line in _table(table["columns"], table["rows"]))]
        if table["left_out"]:
            lines.append(f"  (and {table['left_out']} more)")
    if answer["tables"]:
        lines += ["", f"As CSV: rocketbox report table {day} {name} {'|'.join(one['key'] for one in answer['tables'])}"]
    if answer["plots"]:
        plots = "|".join(one["key"] for one in answer["plots"])
        lines.append(f"As SVG: rocketbox report plot {day} {name} {plots}")
    return [*lines, *(f"note: {text}" for explains, text in notes if explains)]


def _note(note: dict[str, Any]) -> str:
    said = [f"{_words(key)} {_text(value, unit_in_note(note['key'], key))}" for key, value in note["values"]]
    return ": ".join([_words(note["key"]), *([", ".join(said)] if said else [])])


def _table(columns: Sequence[Sequence[str]], rows: Sequence[Sequence[Any]]) -> list[str]:
    units = next((at for at, (_, unit) in enumerate(columns) if unit == _UNIT), None)
    shown = [at for at, (_, unit) in enumerate(columns) if unit != _UNIT]
    # Days and hours before the first measurement say nothing.
    figures = [at for at, (_, unit) in enumerate(columns) if unit not in _SUBJECTS]
    rows = [row for row in rows if not figures or any(row[at] is not None for at in figures)]

    def text(row: Sequence[Any], at: int) -> str:
        unit = columns[at][1]
        return _text(row[at], row[units] if unit == "in_unit" and units is not None else unit)

    return show.laid_out(
        [_words(columns[at][0]) for at in shown],
        [[text(row, at) for at in shown] for row in rows],
        [all(isinstance(row[at], int | None) for row in rows) and columns[at][1] != "time_ms" for at in shown],
    )


def _text(value: Any, unit: str) -> str:
    if value is None:
        return "-"
    if not isinstance(value, int):
        return _words(value) if unit == "word" else plain(str(value))
    match unit:
        case "bytes":
            return size_text(value)
        case "permille":
            return f"{value / 10:.1f} %"
        case "ms" | "time_ms":
            return show.cell("at_ms" if unit == "time_ms" else "some_ms", value)
    return show.cell("some_ms", value) if value >= show.NO_SPAN_MS else f"{value:,}"


def _words(key: str) -> str:
    """Return a key as words, without its unit."""
    return plain("at" if key == "time_ms" else key.removesuffix("_ms")).replace("_", " ").replace("-", " ")
