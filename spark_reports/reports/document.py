"""A report as data: what a page shows, what the API tells, what a test compares. No words, no markup.

Names of reports, tiles, plots, columns and notes are keys; the console has the words for them in each language. Values
are whole numbers or texts, by their unit:

    messages, bytes, ms, count   how many, how long
    permille                     a share, or with a sign a change; 1000 is the whole, or twice as much
    time_ms                      a moment, ms since 1970
    day                          YYYY-MM-DD in the document's zone
    topic, group                 a name, which has a page
    text                         as it is; it may hold any character
    word                         a key that the console has a word for
    in_unit                      a number in the unit that the row's column "unit" names
    unit                         that unit: not to be shown by itself
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

FORMAT = 1
Value = int | str | None


@dataclass(frozen=True, slots=True)
class Tile:
    """value: None where it is not known. before: of the day before. trend: the last seven days, this one last.
    where: what the value speaks of, as (key, value) pairs: a group, a topic, a time. svg: the trend as a small plot
    beside the document; empty when fewer than two of its days are known."""

    key: str
    value: int | None
    unit: str
    before: int | None = None
    trend: tuple[int | None, ...] = ()
    where: tuple[tuple[str, Value], ...] = ()
    svg: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """svg: name of the file beside the document. The numbers of the plot are in `table`, a table's key: a plot is never
    the only place of a figure. legend: (class of the marks, "word", "group", "topic" or "text", what it stands for)."""

    key: str
    svg: str
    table: str
    legend: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """columns: (key, unit). acts: keys of what can be done about a row, by row; empty, or one for each row. left_out:
    rows that there were besides."""

    key: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Value, ...], ...]
    acts: tuple[tuple[str, ...], ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """Something the reader must know to trust the figures: a gap, a day that is missing. values: for the sentence."""

    key: str
    values: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """report: one of `REPORTS`. day: YYYY-MM-DD in `zone`."""

    report: str
    day: str
    zone: str
    t0_ms: int
    tiles: tuple[Tile, ...] = ()
    plots: tuple[Plot, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[Note, ...] = ()
    figures: dict[str, int | None] = field(default_factory=dict)
    format: int = FORMAT

    def to_json(self) -> bytes:
        """The same bytes for the same document."""
        text = json.dumps(asdict(self), ensure_ascii=False, sort_keys=True, indent=1)
        # Halves of surrogates, which names may hold, become escapes.
        return text.encode(errors="backslashreplace") + b"\n"


#: In the order in which they are listed. A report's files are NAME.json and NAME-PLOT.svg.
REPORTS = ("digest", "group-health", "failures", "latency", "capacity", "hygiene")
