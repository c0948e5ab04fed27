"""Plots of measured figures, as SVG without a script: lines with gaps, values on hover, a table beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from .series import History, series

#: Size of the drawing, which the page stretches to fit. The labels of its axes are text of the page.
WIDTH, HEIGHT = 720, 180
#: Most steps of a plot: each is a place to hover over, and a row of the table.
POINTS = 72
#: A small plot without axes.
SPARK_WIDTH, SPARK_HEIGHT, SPARK_POINTS = 200, 34, 60

#: Name of a span of time -> its length in ms; the texts are in `words.WORDS`.
HOUR_MS = 3_600_000
SPANS = {
    "1h": HOUR_MS,
    "6h": 6 * HOUR_MS,
    "24h": 24 * HOUR_MS,
    "7d": 7 * 24 * HOUR_MS,
    "30d": 30 * 24 * HOUR_MS,
    "13mo": 396 * 24 * HOUR_MS,
}


@dataclass(frozen=True, slots=True)
class Line:
    """One of a plot's lines. css: its class, "a" or "b". pieces: the points of each stretch without a gap."""

    name: str
    css: str
    pieces: tuple[str, ...]
    history: History


@dataclass(frozen=True, slots=True)
class Step:
    """A place to hover over, from x to x + width. at_ms: when the step begins. values: one for each line."""

    x: float
    width: float
    at_ms: int
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """ys: (y, value) of each grid line, evenly spaced, the lowest first. xs: (percent of the width, the time as text,
    text anchor) of each mark on the time axis."""

    lines: tuple[Line, ...]
    steps: tuple[Step, ...]
    ys: tuple[tuple[float, float], ...]
    xs: tuple[tuple[float, str, str], ...]
    unit: str
    step_ms: int

    @property
    def measured(self) -> bool:
        return any(line.history.measured for line in self.lines)


def plot(names: Sequence[tuple[str, str]], label: str, from_ms: int, to_ms: int) -> Plot:
    """Plot one or two figures of the same unit. names: (figure, the line's title)."""
    found = [(title, series(name, label, from_ms, to_ms, points=POINTS)) for name, title in names]
    first = found[0][1]
    times, step = first.times_at_ms, first.step_ms
    begin, end = times[0], times[-1] + step
    values = [value for _, one in found for value in one.averages if value is not None]
    ticks = nice_ticks(max(values, default=0.0), first.unit)
    top = ticks[-1]

    def x_of(at_ms: float) -> float:
        return (at_ms - begin) / (end - begin) * WIDTH

    def y_of(value: float) -> float:
        return HEIGHT - value / top * HEIGHT

    lines = tuple(
        Line(title, css, _pieces(one, lambda at: x_of(at + step / 2), y_of), one)
        for (title, one), css in zip(found, "ab", strict=False)
    )
    width = WIDTH / len(times)
    steps = tuple(
        Step(round(x_of(at), 1), round(width, 2), at, tuple(one.averages[n] for _, one in found))
        for n, at in enumerate(times)
    )
    ys = tuple((round(y_of(tick), 1), tick) for tick in ticks)
    return Plot(lines, steps, ys, _times(begin, end, x_of), first.unit, step)


def _pieces(one: History, x_of: object, y_of: object) -> tuple[str, ...]:
    """Return the points of each stretch without a gap; a single point becomes a short line."""
    pieces: list[str] = []
    points: list[tuple[float, float]] = []

    def close() -> None:
        if len(points) == 1:
            points.append((points[0][0] + 4, points[0][1]))
        if points:
            pieces.append(" ".join(f"{x:.1f},{y:.1f}" for x, y in points))
        points.clear()

    for at, value in zip(one.times_at_ms, one.averages, strict=True):
        if value is None:
            close()
        else:
            points.append((x_of(at), y_of(value)))  # type: ignore[operator]
    close()
    return tuple(pieces)


def nice_ticks(most: float, unit: str) -> list[float]:
    """Return grid values from 0 up to the largest figure or above, in four or five steps that are easy to read."""
    if unit == "bytes" or unit == "bytes/s":
        base = 1024.0 ** max(0, int(math.log(max(most, 1.0), 1024)))
    elif unit == "ms":
        base = next((one for one in (86_400_000.0, 3_600_000.0, 60_000.0, 1000.0) if most >= one), 1.0)
    else:
        base = 1.0
    rough = max(most / base, 1.0 if base == 1.0 and unit != "%" else 0.5) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    if unit in ("messages", "") and base == 1.0:
        step = max(1.0, math.ceil(step))
    count = max(1, math.ceil(most / base / step - 1e-9))
    return [n * step * base for n in range(count + 1)]


def _times(begin: int, end: int, x_of: object) -> tuple[tuple[float, str, str], ...]:
    """Return the marks of the time axis, as in `Plot.xs`: at round times of the reader's zone."""
    span = (end - begin) / 1000
    steps = (300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 5_184_000)
    step = next((one for one in steps if span / one <= 6), steps[-1])
    shape = "%H:%M" if step < 43_200 else "%m-%d %H:%M" if step < 86_400 else "%Y-%m-%d"
    zone = timezone.get_current_timezone()
    ahead = datetime.fromtimestamp(begin / 1000, zone).utcoffset() or timedelta()
    ahead_s = int(ahead.total_seconds())
    at = -(-(begin // 1000 + ahead_s) // step) * step - ahead_s
    found = []
    while at * 1000 <= end:
        x = x_of(at * 1000) / WIDTH * 100  # type: ignore[operator]
        anchor = "start" if x < 4 else "end" if x > 92 else "middle"
        found.append((round(x, 1), datetime.fromtimestamp(at, zone).strftime(shape), anchor))
        at += step
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Spark:
    """A small plot. pieces: as of a `Line`. area: outline of the area below it; "" if the line has gaps or no points.
    css: its class."""

    pieces: tuple[str, ...]
    area: str
    css: str


def spark(
    name: str, label: str, now_ms: int, *, span_ms: int = HOUR_MS, css: str = "a",
    width: float = SPARK_WIDTH, height: float = SPARK_HEIGHT,
) -> Spark:  # fmt: skip
    """Plot the last `span_ms` before now_ms, by default an hour, without axes."""
    one = series(name, label, now_ms - span_ms, now_ms, points=SPARK_POINTS)
    top = max((value for value in one.averages if value is not None), default=0.0) or 1.0
    begin, count = one.times_at_ms[0], len(one.times_at_ms)

    def x_of(at: float) -> float:
        return (at - begin) / (one.step_ms * max(1, count - 1)) * width

    pieces = _pieces(one, x_of, lambda value: height - 2 - value / top * (height - 4))
    area = ""
    if len(pieces) == 1:
        first, last = pieces[0].split(" ")[0].split(",")[0], pieces[0].split(" ")[-1].split(",")[0]
        area = f"{first},{height:g} {pieces[0]} {last},{height:g}"
    return Spark(pieces, area, css)
