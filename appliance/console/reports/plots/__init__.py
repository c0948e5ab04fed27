"""Plots of reports, drawn as SVG from the numbers in a document's tables.

The marks have classes of console.css, no style and no script, and every name is escaped. A document of any age is drawn
as long as its tables have the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from django.utils.safestring import SafeString, mark_safe

from spark_reports.facts.tables import WIDE_BOUNDS_MS
from spark_reports.reports.capacity import NEAR
from spark_reports.reports.document import REST
from spark_reports.reports.failures import DEEPEST
from spark_reports.reports.queues import SKEWED

from ...pages.words import topic_words
from . import bars, curves
from .axes import heat_map
from .svg import SPACE
from .text import day_label, duration, hour_labels, long_count, percent, short_count, size

#: Most rows of a table that is drawn, and most cells of a heat map. A run writes some hundred.
MOST_MARKS = 10_000
#: Rows of the plots of dead letters by group and topic, of margins and of clients.
MOST_PAIRS, MOST_MARGINS, MOST_CLIENTS = 15, 20, 20

#: A row of a document's table, as JSON has it.
Row = Sequence[Any]
Rows = Sequence[Row]


def draw(found: Mapping[str, Any], plot: Mapping[str, Any]) -> bytes | None:
    """Draw a plot of a document as an SVG file; None if its numbers are not there or damaged, if they are too many, or
    if this version does not know the plot. found: the document as data. plot: its entry there."""
    try:
        rows = next(one["rows"] for one in found["tables"] if one["key"] == plot["table"])
        return None if len(rows) > MOST_MARKS else _DRAWN[plot["key"]](rows, plot, found)
    except (LookupError, StopIteration, TypeError, ValueError, ArithmeticError, AttributeError):
        return None


def markup(data: bytes, title: str) -> SafeString:
    """Return a plot that `draw` made as markup for a page. title: its name for screen readers."""
    text = data.decode().replace(f' xmlns="{SPACE}"', "", 1)
    return mark_safe(text.replace(' role="img"', f' role="img" aria-label="{escape(title)}"', 1))


def _behind(rows: Rows, plot: Mapping[str, Any], found: Mapping[str, Any]) -> bytes | None:
    names = list(dict.fromkeys(str(row[0]) for row in rows))
    hours = sorted({int(row[1] or 0) for row in rows})
    if len(names) * len(hours) > MOST_MARKS:
        return None
    cells = {(row[0], row[1]): row[2] for row in rows}
    values = [[_number(cells.get((name, hour))) for hour in hours] for name in names]
    return heat_map(names, hour_labels(hours, found["zone"]), values)


def _number(value: int | str | None) -> int | None:
    return value if isinstance(value, int) else None


def _where(rows: Rows, plot: Mapping[str, Any], found: Mapping[str, Any]) -> bytes:
    shown = [bars.count_bar(_pair(row[0], row[1]), int(row[2])) for row in rows[:MOST_PAIRS] if row[2]]
    return bars.row_bars(shown, total=found["figures"]["dead_letters"] or 0)


def _pair(group: object, topic: object) -> str:
    return f"{group} · {topic_words(str(topic))}" if topic else str(group)


def _days(rows: Rows, plot: Mapping[str, Any], found: Mapping[str, Any]) -> bytes:
    return bars.columns([_day_column(row) for row in rows], short_count)


def _day_column(row: Row) -> bars.Column:
    day = str(row[0])

    def part(css: str, value: str | int | None, sign: str) -> tuple[tuple[str, int, str], ...]:
        return ((css, int(value), f"{day} · {sign}{long_count(int(value))}"),) if value else ()

    return bars.Column(
        day_label(day), part("c0", row[1], "+"), (*part("c2", row[2], "−"), *part("rest", row[3], "−")),
        known=row[1] is not None, title=f"{day} · –",
    )  # fmt: skip


def _depths(rows: Rows, plot: Mapping[str, Any], found: Mapping[str, Any]) -> bytes:
    return bars.columns([_depth_column(row) for row in rows], short_count)


def _depth_column(row: Row) -> bars.Column:
    depth, retries, replayed = (int(value or 0) for value in row)
    label = f"≥ {depth}" if depth == DEEPEST else str(depth)
    parts = (("c0", retries), ("c2", replayed))
    return bars.Column(label, tuple((css, count, f"{label} · {long_count(count)}") for css, count in parts))


def _shares(rows: Rows, plot: Mapping[str, Any], found: Mapping[str, Any]) -> bytes:
    """Draw the curves of groups; that of last deliveries only if it differs from that of first ones."""
    classes = _classes(plot, "group")
    points: dict[tuple[str, str], list[int]] = {}
    for group, which, _, messages, of in rows:
        points.setdefault((str(group), str(which)), []).append(int(messages or 0) * 1000 // int(of or 1))
    drawn = []
    for (group, which), permille in points.items():
        if which == "first" or permille != points.get((group, "first")):
            css = classes[group] + (" dash" if which == "last" else "")
            drawn.append(curves.Curve(f"{group} · {'1' if which == 'first' else 'n'}", css, tuple(permille)))
    return curves.shares(WIDE_BOUNDS_MS, drawn)


def _classes(plot: Mapping[str, Any], kind: str) -> dict[str, str]:
    """Return the class of each group or topic that the legend names."""
    return {name: css for css, of, name in plot["legend"] if of == kind}


def _changes(rows: Rows, plot: Mapping[str, Any], found: Mapping[str, Any]) -> bytes:
    return bars.changes([_change(row) for row in rows])


def _change(row: Row) -> tuple[str, int, int, str]:
    before, now = int(row[1] or 1), int(row[2] or 1)
    return str(row[0]), before, now, f"{duration(before)} → {duration(now)}"


def _stored(rows: Rows, plot: Mapping[str, Any], found: Mapping[str, Any]) -> bytes:
    classes = _classes(plot, "topic")
    days: dict[str, list[tuple[str, int, str]]] = {}
    unknown = set()
    for day, topic, count in rows:
        parts = days.setdefault(str(day), [])
        if count is None:
            unknown.add(str(day))
        else:
            name = f"{topic_words(str(topic))} · " if topic is not None else ""
            parts.append((classes.get(str(topic), REST), int(count), f"{name}{day} · {size(int(count))}"))
    drawn = [
        bars.Column(day_label(day), tuple(parts), (), day not in unknown, f"{day} · –") for day, parts in days.items()
    ]
    return bars.columns(drawn, size, 2, gap=0.06)


def _disk(rows: Rows, plot: Mapping[str, Any], found: Mapping[str, Any]) -> bytes:
    past = [(str(row[0]), _number(row[1])) for row in rows if row[2] is None]
    future = [
        curves.Expected(str(row[0]), int(row[2] or 0), int(row[3] or 0), int(row[4] or 0))
        for row in rows if row[2] is not None
    ]  # fmt: skip
    return curves.forecast(past, future, found["figures"]["limit"] or 0, found["figures"]["total"] or 0)


def _margins(rows: Rows, plot: Mapping[str, Any], found: Mapping[str, Any]) -> bytes:
    return bars.row_bars([_margin(row) for row in rows if row[4] is not None][:MOST_MARGINS], limit=1000)


def _margin(row: Row) -> bars.Bar:
    permille = int(row[4] or 0)
    soon = len(row) > 6 and row[6] is not None  # rows of older versions are shorter
    css = "worse" if permille >= 1000 else "c0" if permille >= NEAR or soon else "c2"
    # A bar far above 1000 would make the others too short to compare.
    return bars.Bar(str(row[0]), min(permille, 2000), f"{percent(permille)} · {duration(int(row[2] or 0))}", css)


def _clients(rows: Rows, plot: Mapping[str, Any], found: Mapping[str, Any]) -> bytes:
    return bars.row_bars([bars.count_bar(f"{row[0]} {row[1]}", int(row[2] or 0), "c1") for row in rows[:MOST_CLIENTS]])


def _week(rows: Rows, plot: Mapping[str, Any], found: Mapping[str, Any]) -> bytes:
    half = len(rows) // 2
    return bars.columns(
        [_messages_column(row, "rest" if at < half else "c0") for at, row in enumerate(rows)], short_count
    )


def _messages_column(row: Row, css: str) -> bars.Column:
    day, count = str(row[0]), _number(row[1])
    parts = ((css, count, f"{day} · {long_count(count)}"),) if count else ()
    return bars.Column(day_label(day), parts, known=count is not None, title=f"{day} · –")


def _producers(rows: Rows, plot: Mapping[str, Any], found: Mapping[str, Any]) -> bytes:
    shown = [bars.count_bar(str(row[0]), int(row[1])) for row in rows[:MOST_PAIRS]]
    return bars.row_bars(shown, total=found["figures"]["messages"] or 0)


def _skew(rows: Rows, plot: Mapping[str, Any], found: Mapping[str, Any]) -> bytes:
    shown = [(str(row[0]), int(row[1])) for row in rows if row[1] is not None][:MOST_MARGINS]
    return bars.row_bars(
        [bars.Bar(topic, skew, percent(skew), "worse" if skew >= SKEWED else "c2") for topic, skew in shown],
        limit=SKEWED,
    )


def _steps(rows: Rows, plot: Mapping[str, Any], found: Mapping[str, Any]) -> bytes:
    def column(row: Row) -> bars.Column:
        label, count = f"< {size(int(row[0]) + 1)}", int(row[1] or 0)
        return bars.Column(label, (("c0", count, f"{label} · {long_count(count)}"),))

    return bars.columns([column(row) for row in rows], short_count)


def _keys(rows: Rows, plot: Mapping[str, Any], found: Mapping[str, Any]) -> bytes:
    return bars.row_bars(
        [bars.count_bar(f"{row[1]} · {row[0]}", int(row[2] or 0), "c1") for row in rows[:MOST_CLIENTS]]
    )


#: Key of a plot -> its drawing.
_DRAWN: dict[str, Callable[[Rows, Mapping[str, Any], Mapping[str, Any]], bytes | None]] = {
    "behind": _behind, "where": _where, "days": _days, "depths": _depths, "shares": _shares, "changes": _changes,
    "stored": _stored, "disk": _disk, "margins": _margins, "clients": _clients, "week": _week, "producers": _producers,
    "skew": _skew, "steps": _steps, "keys": _keys,
}  # fmt: skip
