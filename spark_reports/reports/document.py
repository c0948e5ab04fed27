"""A report as data, for pages, the API and tests. No words, no markup.

Names of reports, tiles, plots, columns and notes are keys; the console has the words for them in each language. Values
are whole numbers or texts, by their unit:

    messages, bytes, ms, count   a number, a duration
    permille                     a share, or with a sign a change; 1000 is the whole, or twice as much
    time_ms                      a moment, ms since 1970
    day                          YYYY-MM-DD in the document's zone
    topic, group                 a name, which has a page
    text                         shown as it is; it may hold any character
    word                         a key for which the console has a word
    in_unit                      a number in the unit that the row's column "unit" names
    unit                         that unit: not to be shown by itself
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

FORMAT = 1
Value = int | str | None

#: The legend of the line beside bars that shows their running sum; not for a single bar, which has no such line.
RUNNING_SHARE = (("b", "word", "running_share"),)
#: Classes of the marks of several things in one plot; REST is for everything without its own class, UNMEASURED for a
#: cell in which nothing was measured.
SERIES = ("c0", "c1", "c2", "c3", "c4", "c5")
REST = "rest"
UNMEASURED = "unmeasured"


@dataclass(frozen=True, slots=True)
class Tile:
    """value: None if unknown. before: of the day before. trend: the last seven days, this one last. where: the subject
    of the value as (key, value) pairs: a group, a topic, a time."""

    key: str
    value: int | None
    unit: str
    before: int | None = None
    trend: tuple[int | None, ...] = ()
    where: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, slots=True)
class Plot:
    """The console draws a plot from the numbers in `table`, a table's key: a plot is never the only place of a figure.
    svg: name of the file that older versions drew, which ask for it. legend: (class of the marks, "word", "group",
    "topic" or "text", their meaning)."""

    key: str
    svg: str
    table: str
    legend: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """columns: (key, unit). acts: for each row keys of the actions that it offers; empty for none at all. left_out:
    number of further rows."""

    key: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Value, ...], ...]
    acts: tuple[tuple[str, ...], ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """Something that the reader must know to trust the figures: a gap, a missing day. values: for the sentence."""

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
        """Encode as JSON; the same document gives the same bytes."""
        text = json.dumps(asdict(self), ensure_ascii=False, sort_keys=True, indent=1)
        # Halves of surrogates, which names may hold, become escapes.
        return text.encode(errors="backslashreplace") + b"\n"


#: In the order in which they are listed. A report's file is NAME.json.
REPORTS = (
    "digest", "group-health", "failures", "latency", "capacity", "hygiene", "week", "producers", "queues", "sizes",
    "repeats",
)  # fmt: skip
