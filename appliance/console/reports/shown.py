"""A report's document as a page shows it: words for keys, numbers in units, links, acts.

A document is read from a file, which may have changed since RocketBox wrote it. If it does not have the expected shape,
`Damaged` is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, tzinfo
from typing import Any
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse
from django.utils.dates import WEEKDAYS_ABBR
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from spark_reports.reports import keys

from ..pages import time_zones
from ..pages.template_tags import as_bytes, as_duration, thousands
from ..pages.words import topic_words
from . import sentences, words

#: Units of table cells that hold a name -> the view that the name links to.
NAMES = {"group": "group", "topic": "topic"}
_SPARK = (200, 34)


class Damaged(ValueError):
    """The document does not have the shape of a report."""


@dataclass(frozen=True, slots=True)
class Spark:
    """A small line. pieces: the points of each stretch without a gap. area: outline of the area below it, "" if it has
    gaps. css: its class."""

    pieces: tuple[str, ...]
    area: str = ""
    css: str = "a"


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure of a report. value, before: as text, with the unit. where: the names or times it belongs to. trend:
    values of the last days as text, the newest last. shares: these values in percent of the largest one."""

    title: str
    value: str
    before: str
    where: tuple[SafeString | str, ...]
    spark: Spark | None
    trend: str
    shares: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """css: "num" for figures. label: title of its column."""

    text: SafeString | str
    css: str
    label: str


@dataclass(frozen=True, slots=True)
class Row:
    """acts: (words, address) of each page on which to act on what the row shows."""

    cells: tuple[Cell, ...]
    acts: tuple[tuple[str | Promise, str], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """columns: (title, css). left_out: number of rows that the report left out."""

    key: str
    title: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    left_out: int
    has_acts: bool

    @property
    def is_narrow(self) -> bool:
        """True if the table fits beside a plot."""
        return len(self.columns) <= 3 and not self.has_acts and len(self.rows) <= 12

    @property
    def is_long(self) -> bool:
        """True if the table is folded below a plot: it is long, and its rows have no acts."""
        return len(self.rows) > 12 and not self.has_acts


@dataclass(frozen=True, slots=True)
class Plot:
    """drawn: the SVG; None if its file is gone or may not be shown. legend: (class of the swatch, words)."""

    key: str
    title: str
    drawn: SafeString | None
    legend: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """Plots and the table with their numbers."""

    plots: tuple[Plot, ...]
    table: Table | None


@dataclass(frozen=True, slots=True)
class Shown:
    """well: the sentence that nothing went wrong, "" if something did or it is not known. first: sentences about what
    went wrong. notes: about what is missing in the figures, or has to be done. explained: sentences that explain them.
    shown, left_out: numbers of rows of the first table that are here, and that were left out."""

    report: str
    title: str
    question: str
    day: str
    zone: str
    t0_ms: int
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]
    well: str
    first: tuple[str, ...]
    notes: tuple[str, ...]
    explained: tuple[str, ...]
    shown: int
    left_out: int

    @property
    def day_words(self) -> str:
        return day_words(self.day)


def document(found: dict[str, Any], allows: Callable[[str], bool], with_plots: bool = True) -> Shown:
    """Return the document as one reader sees it. allows: returns True if the reader may open this view. Raises
    Damaged."""
    try:
        zone = time_zones.zone(str(found["zone"])) or UTC
        day = str(found["day"])
        report = str(found["report"])
        notes = [(one["key"], _note(one, zone, day)) for one in found["notes"]]
        told = {sentences.WELL, *sentences.FIRST, *keys.EXPLAINING}
        tables = {one["key"]: _table(one, report, zone, day, allows) for one in found["tables"]}
        plots = [(_plot(one, report, found if with_plots else None), one["table"]) for one in found["plots"]]
        first = next(iter(tables.values()), None)
        return Shown(
            report=report,
            title=words.title(report),
            question=words.question(report),
            day=day,
            zone=str(found["zone"]),
            t0_ms=int(found["t0_ms"]),
            tiles=tuple(_tile(one, report, zone, day) for one in found["tiles"]),
            sections=tuple(_sections(plots, tables)),
            well="".join(text for key, text in notes if key == sentences.WELL),
            first=tuple(text for key, text in notes if key in sentences.FIRST),
            notes=tuple(text for key, text in notes if key not in told),
            explained=tuple(text for key, text in notes if key in keys.EXPLAINING),
            shown=0 if first is None else len(first.rows),
            left_out=0 if first is None else first.left_out,
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise Damaged(str(error)) from None


def _sections(plots: list[tuple[Plot, str]], tables: dict[str, Table]) -> Iterable[Section]:
    """Yield the plots first, each with the table that has its numbers; then the other tables. One title is not said
    twice, over a plot and over its table."""
    for key in dict.fromkeys(of for _plot, of in plots):
        drawn_of, table = tuple(plot for plot, of in plots if of == key), tables.get(key)
        if table is not None and any(plot.title == table.title for plot in drawn_of):
            table = replace(table, title=_("As a table"))
        yield Section(drawn_of, table)
    drawn = {of for _plot, of in plots}
    yield from (Section((), table) for key, table in tables.items() if key not in drawn)


# --- tiles


def _tile(one: dict[str, Any], report: str, zone: tzinfo, day: str) -> Tile:
    unit = one["unit"]
    trend = one.get("trend") or []
    before = one.get("before")
    return Tile(
        title=words.said(words.TILES, one["key"], report),
        value=value(one["value"], unit, zone, day),
        before="" if before is None else _before(report) % {"value": value(before, unit, zone, day)},
        where=tuple(_place(key, found, unit, zone, day) for key, found in one.get("where") or ()),
        spark=_spark(trend),
        trend=" · ".join(value(each, unit, zone, day) for each in trend),
        shares=_shares(trend),
    )


def _before(report: str) -> str:
    return _("the week before: %(value)s") if report == "week" else _("the day before: %(value)s")


def _place(key: str, found: Any, unit: str, zone: tzinfo, day: str) -> SafeString | str:
    """Format one value of a tile's `where`: a name as a link, a moment as a time, a figure in the tile's unit."""
    if key in NAMES:
        return cell(found, key, zone, day)
    if not isinstance(found, int):
        return "" if found is None else str(found)
    if key == "time_ms":
        return _time(found, zone, day)
    text = value(found, unit, zone, day)
    return str(words.PLACES[key]) % {"value": text} if key in words.PLACES else f"{words.plainly(key)} {text}"


def _shares(trend: Sequence[int | None]) -> tuple[int | None, ...]:
    top = max((each for each in trend if each is not None), default=0) or 1
    return tuple(None if each is None else max(0, each) * 100 // top for each in trend)


def _spark(trend: Sequence[int | None]) -> Spark | None:
    """Draw the values of the last days as a line on a scale from zero; None for fewer than two known values."""
    known = [each for each in trend if each is not None]
    if len(known) < 2:
        return None
    width, height = _SPARK
    top = max(known) or 1
    step = width / (len(trend) - 1)
    pieces: list[list[str]] = [[]]
    for at, each in enumerate(trend):
        if each is None:
            pieces.append([])
        else:
            pieces[-1].append(f"{at * step:.1f},{height - 2 - (height - 4) * max(0, each) / top:.1f}")
    area = f"0,{height} {' '.join(pieces[0])} {width},{height}" if len(pieces) == 1 else ""
    return Spark(tuple(" ".join(piece) for piece in pieces if len(piece) > 1), area)


# --- tables


def _table(one: dict[str, Any], report: str, zone: tzinfo, day: str, allows: Callable[[str], bool]) -> Table:
    columns = [(str(key), str(unit)) for key, unit in one["columns"]]
    titles = [words.said(words.COLUMNS, key, report) for key, _unit in columns]
    acts = one.get("acts") or ()
    rows = []
    for at, found in enumerate(one["rows"]):
        of_row = next(
            (str(value) for value, (_key, unit) in zip(found, columns, strict=True) if unit == "unit"), "count"
        )
        cells = tuple(
            Cell(
                _of_column(key, value, of_row if unit == "in_unit" else unit, zone, day),
                "num" if is_figure(unit) else "",
                title,
            )
            for value, (key, unit), title in zip(found, columns, titles, strict=True)
            if unit != "unit"
        )
        rows.append(Row(cells, tuple(_acts(acts[at] if at < len(acts) else (), found, columns, allows))))
    return Table(
        key=str(one["key"]),
        title=words.said(words.TABLES, one["key"], report),
        columns=tuple(
            (title, "num" if is_figure(unit) else "")
            for title, (_key, unit) in zip(titles, columns, strict=True)
            if unit != "unit"
        ),
        rows=tuple(rows),
        left_out=int(one.get("left_out") or 0),
        has_acts=any(row.acts for row in rows),
    )


def _acts(
    keys: Iterable[str],
    row: Sequence[Any],
    columns: Sequence[tuple[str, str]],
    allows: Callable[[str], bool],
) -> Iterable[tuple[str | Promise, str]]:
    """Yield (words, address) of the page for each act on the row's group or topic. These pages do nothing before the
    user has confirmed."""
    named = {unit: value for value, (_key, unit) in zip(reversed(row), reversed(columns), strict=True) if value}
    for key in keys:
        for act in words.ACTS.get(key, ()):
            address = _address(act, named) if allows(act.view) else ""
            if address:
                yield act.words, address
                break


def _address(act: words.Act, named: dict[str, Any]) -> str:
    """Return the address of an act's page; "" if the row does not have the name that the act needs."""
    name = named.get(act.about, "")
    if act.about and not (isinstance(name, str) and name):
        return ""
    query = {field: text.format(name=words.as_pattern(name)) for field, text in act.query}
    try:
        return reverse(act.view, args=[name] if act.in_path else []) + (f"?{urlencode(query)}" if query else "")
    except NoReverseMatch:
        return ""


def _of_column(key: str, found: Any, unit: str, zone: tzinfo, day: str) -> SafeString | str:
    if key == "change" and unit == "permille" and isinstance(found, int):
        return f"{found / 10:+.1f} %".replace("-", "−")
    return cell(found, unit, zone, day)


def is_figure(unit: str) -> bool:
    return unit not in ("group", "topic", "text", "word", "day", "unit")


def cell(found: Any, unit: str, zone: tzinfo, day: str) -> SafeString | str:
    """Format a value of a table's cell; one that is missing or not known is a dash."""
    if found is None:
        return "—"
    if unit in NAMES:
        return _link(unit, found) if isinstance(found, str) and found else "—"
    if unit == "word":
        return words.said(words.VALUES, str(found)) if found != "" else "—"
    if unit == "time_ms" and isinstance(found, int):
        return _time(found, zone, day)
    if not is_figure(unit):
        return "—" if found == "" else str(found)
    return value(found, unit, zone, day)


def value(found: Any, unit: str, zone: tzinfo, day: str) -> str:
    """Format a figure of a tile or a sentence with its unit; None is "not known"."""
    if found is None:
        return _("not known")
    if not isinstance(found, int):
        raise Damaged(f"{found!r} is no figure")
    match unit:
        case "bytes":
            return as_bytes(found)
        case "ms":
            return span(found)
        case "permille":
            return f"{found / 10:.1f} %"
        case "time_ms":
            return _clock(found, zone, day)
    return thousands(found)


def span(ms: int) -> str:
    """Format a duration: `850 ms`, `3.2 s`, `41 min`, `3 h 12 min`."""
    if 0 < abs(ms) < 1000:
        return _("%(ms)s ms") % {"ms": ms}
    if abs(ms) < 10_000 and ms % 1000:
        return _("%(seconds)s s") % {"seconds": f"{ms / 1000:.1f}"}
    minutes, left = divmod(ms // 1000, 60)
    if 0 < minutes < 60 and not left:
        return _("%(minutes)s min") % {"minutes": minutes}
    return as_duration(ms / 1000)


def _clock(at_ms: int, zone: tzinfo, day: str) -> str:
    """Format a moment of `day` as hour and minute, one of another day with its date; the begin of another day as its
    date only. A moment that no calendar has, as a foreign store may say, is its number."""
    moment = _moment(at_ms, zone)
    if moment is None:
        return thousands(at_ms)
    if f"{moment:%H:%M}" == "00:00" and f"{moment:%Y-%m-%d}" != day:
        return f"{moment:%Y-%m-%d}"
    return f"{moment:%H:%M}" if f"{moment:%Y-%m-%d}" == day else f"{moment:%Y-%m-%d %H:%M}"


def _moment(at_ms: int, zone: tzinfo) -> datetime | None:
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, zone)
        moment.astimezone(UTC)
        return moment
    except (OverflowError, ValueError, OSError):
        return None


def _time(at_ms: int, zone: tzinfo, day: str) -> SafeString | str:
    moment = _moment(at_ms, zone)
    if moment is None:
        return _clock(at_ms, zone, day)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", f"{moment:%Y-%m-%d %H:%M:%S %Z}", _clock(at_ms, zone, day),
    )  # fmt: skip


def _link(view: str, name: str) -> SafeString | str:
    text = topic_words(name) if view == "topic" else name
    title = format_html(' title="{}"', name) if text != name else ""
    try:
        return format_html('<a href="{}"{}>{}</a>', reverse(view, args=[name]), title, text)
    except NoReverseMatch:
        return text


# --- plots, notes, days


def _plot(one: dict[str, Any], report: str, found: dict[str, Any] | None) -> Plot:
    """Return a plot, drawn from the numbers in `found`; not drawn for None."""
    title = words.said(words.PLOTS, one["key"], report)
    drawn = None
    if found is not None:
        from . import plots  # few servers show plots soon after the start

        data = plots.draw(found, one)
        drawn = None if data is None else plots.markup(data, title)
    legend = tuple((str(css), _of_legend(kind, str(name), report)) for css, kind, name in one.get("legend") or ())
    return Plot(str(one["key"]), title, drawn, legend if drawn else ())


def _of_legend(kind: str, name: str, report: str) -> str:
    if kind == "word":
        return words.said(words.VALUES, name, report)
    return topic_words(name) if kind == "topic" else name


def _note(one: dict[str, Any], zone: tzinfo, day: str) -> str:
    """Return a note as a sentence. The names of its figures determine their units."""
    values = {}
    for name, found in one["values"]:
        if isinstance(found, int):
            values[name] = value(found, keys.unit_in_note(one["key"], name), zone, day)
        else:
            text = "—" if found is None else str(found)
            values[name] = topic_words(text) if name == "topic" else text
    numbers = {name: found for name, found in one["values"] if isinstance(found, int)}
    return sentences.note(str(one["key"]), values, numbers)


def day_words(day: str) -> str:
    """Return a day as `Fri 2026-11-20`, in the reader's language."""
    try:
        return f"{WEEKDAYS_ABBR[date.fromisoformat(day).weekday()]} {day}"
    except ValueError:
        return day


def csv_header(columns: Iterable[tuple[str, str]]) -> list[str]:
    """Return the columns' names with their units, as in the CSVs of other pages."""
    ends = {"bytes": "_bytes", "ms": "_ms", "permille": "_permille", "time_ms": "_at_ms"}
    found = []
    for key, unit in columns:
        name, end = key.replace("-", "_"), ends.get(unit, "")
        found.append(name if name.endswith(end) else name.removesuffix("_at") + end)
    return found
