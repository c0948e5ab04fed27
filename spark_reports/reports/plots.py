"""Plots of reports, drawn from plain numbers. No words: pages put them around."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .svg import Svg
from .text import decimal, duration, shortened, visible, width_of

WIDTH = 900
#: Widest name beside a plot, in px.
NAMES_PX = 190
#: Classes of the marks of several things in one plot; "rest" is for everything without its own class.
SERIES = ("c0", "c1", "c2", "c3", "c4", "c5")
REST = "rest"

#: Upper bounds of the classes h0 to h3 of a heat map, in ms; below a second is no delay.
HEAT_BOUNDS_MS = (999, 60_000, 300_000, 900_000)
HEAT_CLASSES = ("h0", "h1", "h2", "h3", "h4")
#: The class of a cell in which nothing was measured.
UNMEASURED = "unmeasured"


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


def sparkline(values: Sequence[int | None]) -> bytes:
    """Draw a small plot without axes; unknown values (None) are gaps, but at least one must be known."""
    width, height = 200, 34
    known = [value for value in values if value is not None]
    low, high = min(0, *known), max(known)
    svg = Svg(width, height, "trend", stretched=True)

    def place(n: int, value: int) -> tuple[float, float]:
        part = (value - low) / (high - low) if high > low else 0.0
        return 4 + n * (width - 8) / max(1, len(values) - 1), height - 3 - part * (height - 8)

    for piece in pieces(values):
        points = [place(n, value) for n, value in piece]
        if len(points) > 1:
            svg.polygon("area", [(points[0][0], height), *points, (points[-1][0], height)])
        else:
            (x, y), *_ = points
            points = [(x - 2, y), (x + 2, y)]
        svg.polyline("a", points)
    return svg.done()


def pieces(values: Sequence[int | None]) -> list[list[tuple[int, int]]]:
    """Return the stretches without a gap, each as a list of (place, value)."""
    found: list[list[tuple[int, int]]] = []
    last = None
    for n, value in enumerate(values):
        if value is None:
            continue
        if last != n - 1 or not found:
            found.append([])
        found[-1].append((n, value))
        last = n
    return found


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
