"""Plots of bars: rows beside their names, columns by day or number, changes to either side of a line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .axes import NAMES_PX, WIDTH, Show, nice_ticks, share
from .svg import Svg
from .text import long_count, shortened, visible, width_of

ROW = 26


@dataclass(frozen=True, slots=True)
class Bar:
    """said: the value as the text beside the bar."""

    name: str
    value: int
    said: str
    css: str = "c0"


def row_bars(bars: Sequence[Bar], limit: int | None = None, total: int | None = None) -> bytes:
    """Draw rows of bars. limit: a value at which a line is drawn. total: the whole of which the bars are parts; then a
    line at the right shows their running sum. A single bar gets no such line."""
    total = total if len(bars) > 1 else None
    left = _left([bar.name for bar in bars])
    sums_left, sums_right = WIDTH - 190, WIDTH - 50
    right = (sums_left - 10 if total else WIDTH - 8) - max(width_of(bar.said) for bar in bars)
    top = max([bar.value for bar in bars] + [limit or 0, 1])
    svg = Svg(WIDTH, 8 + ROW * len(bars) + 6)
    done = 0
    sums: list[tuple[float, float]] = []
    if limit is not None:
        x = left + limit / top * (right - left)
        svg.line("limit", x, 2, x, 8 + ROW * len(bars))
    for n, bar in enumerate(bars):
        y = 8 + n * ROW
        end = left + bar.value / top * (right - left)
        svg.text(left - 10, y + 14, shortened(bar.name, NAMES_PX), "end", bar.name)
        svg.rect(bar.css, left, y, end - left, ROW - 8, f"{bar.name} · {bar.said}", rx=2)
        svg.text(end + 6, y + 14, bar.said)
        if total:
            done += bar.value
            svg.text(WIDTH - 2, y + 14, share(done, total), "end")
            sums.append((sums_left + done / total * (sums_right - sums_left), y + (ROW - 8) / 2))
    if total:
        for edge in (sums_left, sums_right):
            svg.line("grid-line", edge, 2, edge, 8 + ROW * len(bars))
        svg.polyline("b", sums)
    return svg.done()


def changes(rows: Sequence[tuple[str, int, int, str]]) -> bytes:
    """Draw changes. rows: (name, before, now, said), both above zero. Twice as much is as far to the right as half is
    to the left; a factor above 16 is drawn like 16."""
    left = _left([name for name, _, _, _ in rows])
    room = max(width_of(said) for _, _, _, said in rows) + 12
    middle = (left + room + WIDTH - room) / 2
    step = (WIDTH - room - middle) / 4
    height = 8 + ROW * len(rows)
    svg = Svg(WIDTH, height + 20)
    for power in range(-4, 5, 2):
        x = middle + power * step
        svg.line("axis" if power == 0 else "grid-line", x, 4, x, height)
        sign = f"×{2**power}" if power > 0 else f"÷{2**-power}" if power < 0 else "="
        svg.text(x, height + 14, sign, "middle")
    for n, (name, before, now, said) in enumerate(rows):
        y = 8 + n * ROW
        doubled = max(-4.0, min(4.0, round(math.log2(now / before), 3)))
        svg.text(left - 10, y + 14, shortened(name, NAMES_PX), "end", name)
        x = middle + doubled * step
        css = "worse" if now > before else "better" if now < before else "rest"
        svg.rect(css, min(x, middle), y, max(abs(x - middle), 2), ROW - 8, f"{name} · {said}", rx=2)
        svg.text(x + 6 if doubled >= 0 else x - 6, y + 14, said, "start" if doubled >= 0 else "end")
    return svg.done()


@dataclass(frozen=True, slots=True)
class Column:
    """up, down: (class, value, title) of the parts stacked above and below the line. known: False draws an outline."""

    label: str
    up: tuple[tuple[str, int, str], ...]
    down: tuple[tuple[str, int, str], ...] = ()
    known: bool = True
    title: str = ""


def columns(found: Sequence[Column], show: Show, base: int = 10, gap: float = 0.25, height: int = 220) -> bytes:
    """Draw stacked columns from left to right. gap: share of a column's width that stays free."""
    most_up = max((sum(value for _, value, _ in one.up) for one in found), default=0)
    most_down = max((sum(value for _, value, _ in one.down) for one in found), default=0)
    ticks = nice_ticks(max(most_up, most_down, 1), base)
    above = [tick for tick in ticks if tick <= most_up or ticks[ticks.index(tick) - 1] < most_up or tick == 0]
    below = [tick for tick in ticks[1:] if tick <= most_down or ticks[ticks.index(tick) - 1] < most_down]
    top, low = above[-1], max(below, default=0)
    left = max(width_of(show(tick)) for tick in ticks) + 14
    bottom, scale = height - 30, (height - 42) / ((top + low) or 1)
    zero = bottom - low * scale
    svg = Svg(WIDTH, height)
    for value in [*(-tick for tick in reversed(below)), *above]:
        y = zero - value * scale
        svg.line("axis" if value == 0 else "grid-line", left, y, WIDTH, y)
        svg.text(left - 6, y + 4, show(abs(value)), "end")
    step = (WIDTH - left) / len(found)
    # Labels of neighbours must not touch; the last one may have to move to the left.
    widest = max(width_of(one.label) for one in found)
    every = max(1, math.ceil((widest + 8 + max(0, (widest - step) / 2)) / step))
    for n, one in enumerate(found):
        x, width = left + (n + gap / 2) * step, min(step * (1 - gap), 120)
        x += (step * (1 - gap) - width) / 2
        if not one.known:
            svg.rect("unmeasured", x + 0.5, 12.5, width - 1, bottom - 13, one.title or f"{one.label} · –", rx=2)
        for parts, sign in ((one.up, -1), (one.down, 1)):
            y = zero
            for css, value, title in parts:
                part = value * scale
                if value:
                    svg.rect(css, x, y - part if sign < 0 else y, width, part, title)
                y += sign * part
        if (len(found) - 1 - n) % every == 0:
            svg.text(min(x + width / 2, WIDTH - width_of(one.label) / 2), height - 10, one.label, "middle")
    return svg.done()


def count_bar(name: str, count: int, css: str = "c0") -> Bar:
    return Bar(name, count, long_count(count), css)


def _left(names: Sequence[str]) -> float:
    return min(NAMES_PX, max(width_of(visible(name)) for name in names)) + 20
