"""Plots of lines: shares by time of delivery, and the forecast of the disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .axes import WIDTH, nice_ticks
from .svg import Svg
from .text import day_label, decimal, duration, size, width_of

#: Bounds that are named at the axis.
_LABELLED = (1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)


@dataclass(frozen=True, slots=True)
class Curve:
    """permille: share of the messages up to each bound. css: classes."""

    name: str
    css: str
    permille: tuple[int, ...]


def shares(bounds_ms: Sequence[int], curves: Sequence[Curve]) -> bytes:
    """Draw curves, the bounds at even distances. A curve that ends below the top has times above the last bound."""
    left, right, top, bottom = 44, WIDTH - 24, 8, 308
    svg = Svg(WIDTH, 336)

    def x_of(index: int) -> float:
        return left + index * (right - left) / (len(bounds_ms) - 1)

    def y_of(permille: int) -> float:
        return bottom - permille / 1000 * (bottom - top)

    for permille in (0, 250, 500, 750, 950, 990):
        y = y_of(permille)
        svg.line("axis" if permille == 0 else "grid-line", left, y, right, y)
        svg.text(left - 6, y + 4, f"{decimal(permille, 10)}%", "end")
    for index, bound in enumerate(bounds_ms):
        if bound in _LABELLED:
            svg.line("grid-line", x_of(index), top, x_of(index), bottom)
            svg.text(x_of(index), bottom + 16, duration(bound), "middle")
    for curve in curves:
        svg.polyline(curve.css, ((x_of(n), y_of(value)) for n, value in enumerate(curve.permille)), curve.name)
    return svg.done()


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected used bytes on a day to come."""

    day: str
    low: int
    middle: int
    high: int


def forecast(past: Sequence[tuple[str, int | None]], future: Sequence[Expected], limit: int, total: int) -> bytes:
    """Draw the forecast of the disk. past: (day, used bytes), None if unknown, but not of the last day. limit, total:
    bytes of the disk."""
    ticks = nice_ticks(max(total, limit, 1), 2)
    most = ticks[-1]
    left, right, top, bottom = max(width_of(size(tick)) for tick in ticks) + 14, WIDTH - 24, 12, 208
    svg = Svg(WIDTH, 240)
    count = len(past) + len(future)

    def x_of(n: int) -> float:
        return left + n * (right - left) / max(1, count - 1)

    def y_of(value: int) -> float:
        return bottom - min(max(value, 0), most) / most * (bottom - top)

    for tick in ticks:
        svg.line("axis" if tick == 0 else "grid-line", left, y_of(tick), right, y_of(tick))
        svg.text(left - 6, y_of(tick) + 4, size(tick), "end")
    if future:
        now = past[-1][1] or 0
        start = len(past) - 1
        highs = [(x_of(start + 1 + n), y_of(one.high)) for n, one in enumerate(future)]
        lows = [(x_of(start + 1 + n), y_of(one.low)) for n, one in enumerate(future)]
        svg.polygon("band", [(x_of(start), y_of(now)), *highs, *reversed(lows)])
        middles = [(x_of(start + 1 + n), y_of(one.middle)) for n, one in enumerate(future)]
        svg.polyline("b dash", [(x_of(start), y_of(now)), *middles])
    stretch: list[tuple[float, float]] = []
    for n, (_, used) in enumerate([*past, ("", None)]):
        if used is not None:
            stretch.append((x_of(n), y_of(used)))
        elif stretch:
            single = len(stretch) == 1
            svg.polyline("b", [(stretch[0][0] - 3, stretch[0][1]), *stretch] if single else stretch)
            stretch = []
    svg.line("limit", left, y_of(limit), right, y_of(limit), size(limit))
    step = (right - left) / max(1, count - 1)
    every = max(1, -(-count // 14))
    days = [(day, "–" if used is None else size(used)) for day, used in past]
    days += [(one.day, f"{size(one.middle)} ({size(one.low)} – {size(one.high)})") for one in future]
    for n, (day, said) in enumerate(days):
        begin, end = max(left, x_of(n) - step / 2), min(right, x_of(n) + step / 2)
        svg.rect("hover", begin, top, end - begin, bottom - top, f"{day} · {said}")
        if n % every == 0:
            svg.text(x_of(n), bottom + 18, day_label(day), "middle")
    return svg.done()
