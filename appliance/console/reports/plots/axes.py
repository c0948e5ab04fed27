"""Parts that several plots have in common, and the heat map."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spark_reports.reports.document import UNMEASURED

from .svg import Svg
from .text import decimal, duration, shortened, visible, width_of

WIDTH = 900
#: Widest name beside a plot, in px.
NAMES_PX = 190
#: Upper bounds of the classes h0 to h3 of a heat map, in ms; below a second is no delay.
HEAT_BOUNDS_MS = (999, 60_000, 300_000, 900_000)
HEAT_CLASSES = ("h0", "h1", "h2", "h3", "h4")


def heat_class(ms: int | None) -> str:
    if ms is None:
        return UNMEASURED
    return HEAT_CLASSES[sum(ms > bound for bound in HEAT_BOUNDS_MS)]


def heat_map(names: Sequence[str], columns: Sequence[tuple[str, str]], cells: Sequence[Sequence[int | None]]) -> bytes:
    """Draw a heat map. columns: (short, full) label of each. cells: ms by name and column, None if nothing was
    measured."""
    left = min(NAMES_PX, max(width_of(visible(name)) for name in names)) + 20
    step = (WIDTH - left - 4) / len(columns)
    row, top = 28, 8
    svg = Svg(WIDTH, top + row * len(names) + 22)
    for n, (name, values) in enumerate(zip(names, cells, strict=True)):
        y = top + n * row
        svg.text(left - 10, y + 16, shortened(name, NAMES_PX), "end", name)
        for m, value in enumerate(values):
            said = "–" if value is None else duration(value)
            title = f"{name} · {columns[m][1]} · {said}"
            # The edge of a cell with an outline lies within it.
            edge = 0.5 if value is None else 0
            svg.rect(
                heat_class(value), left + m * step + edge, y + edge, step - 1.5 - 2 * edge, 24 - 2 * edge, title, rx=3
            )
    every = 1 if len(columns) <= 6 else 3
    for m, (short, _) in enumerate(columns):
        if m % every == 0:
            svg.text(left + (m + 0.5) * step, top + row * len(names) + 13, short, "middle")
    return svg.done()


def nice_ticks(most: int, base: int = 10) -> list[int]:
    """Return ticks from 0 to at least `most`, in even steps that are easy to read. base: 10, or 2 for bytes."""
    rough = max(1, -(-most // 4))
    step, factors = 1, (1, 2, 5) if base == 10 else (1,)
    while all(step * factor < rough for factor in factors):
        step *= base
    step *= next(factor for factor in factors if step * factor >= rough)
    return [n * step for n in range(max(1, -(-most // step)) + 1)]


Show = Callable[[int], str]


def share(part: int, whole: int) -> str:
    """Return a part as a percentage, as text."""
    return f"{decimal(part * 100, whole)}%" if whole else "0%"
