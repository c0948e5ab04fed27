"""Prints a report for people, in the words of its page, in English."""

from __future__ import annotations

from datetime import UTC
from typing import Any

from ...engine.errors import StartError
from ...engine.plain_text import plain
from . import show


class _NoPages:
    """Addresses without any page: names are links only where their pages are."""

    urlpatterns = ()


def report(answer: dict[str, Any]) -> list[str]:
    """Return lines with a report: as on its page, notes about what happened come first, explanations last. Times are
    in the report's zone. Raises StartError if the answer does not have the shape of a report."""
    from django.conf import settings

    if not settings.configured:
        settings.configure(USE_I18N=False)
    from django.urls import set_urlconf
    from django.utils.translation import override

    from ...console.pages import time_zones
    from ...console.reports import mail, shown

    set_urlconf(_NoPages)
    try:
        with override("en"):
            tables = [_measured(one) for one in answer["tables"]]
            # Without plots: a table that stands below its plot has no title of its own.
            document = answer | {"t0_ms": answer["t0_at_ms"], "tables": tables, "plots": []}
            found = shown.document(document, lambda view: False, with_plots=False)
            until = shown.cell(found.t0_ms, "time_ms", time_zones.zone(found.zone) or UTC, found.day)
        tables_of, plots_of = ("|".join(plain(one["key"]) for one in answer[kind]) for kind in ("tables", "plots"))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StartError(f"The answer is not a report: {error}.") from None
    finally:
        set_urlconf(None)
    lines = [f"{_text(found.title)}, {found.day_words} ({plain(found.zone)}), counted up to {_text(until)}"]
    lines += [_text(one) for one in (found.question, found.well, *found.first) if one]
    lines += [f"note: {_text(one)}" for one in found.notes]
    if found.tiles:
        lines.append("")
    for tile in found.tiles:
        behind = mail.behind(tile.where, tile.before)
        lines.append(_text(f"{tile.title}: {tile.value}" + (f" ({behind})" if behind else "")))
    for table in (section.table for section in found.sections if section.table is not None):
        lines += ["", f"{_text(table.title)}:"]
        rows = [[_text(cell.text) for cell in row.cells] for row in table.rows]
        right = [css == "num" for _title, css in table.columns]
        lines += [f"  {line}" for line in show.laid_out([_text(title) for title, _css in table.columns], rows, right)]
        if table.left_out:
            lines.append(f"  (and {table.left_out:,} more)")
    name, day = plain(found.report), plain(found.day)
    if tables_of:
        lines += ["", f"As CSV: rocketbox report table {day} {name} {tables_of}"]
    if plots_of:
        lines.append(f"As SVG: rocketbox report plot {day} {name} {plots_of}")
    return [*lines, *(f"note: {_text(one)}" for one in found.explained)]


def _measured(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table without the rows that have no figure: days and hours before the first measurement."""
    from ...console.reports.shown import is_figure

    figures = [at for at, (_key, unit) in enumerate(table["columns"]) if is_figure(unit) and unit != "time_ms"]
    rows = [row for row in table["rows"] if not figures or any(row[at] is not None for at in figures)]
    return table | {"rows": rows, "acts": []}


def _text(words: str) -> str:
    """Return words of a page as one line for a terminal, with numbers as other commands write them."""
    from ...console.reports import mail

    return plain(mail.plain(words).replace("\u202f", ","))
