"""An SVG as bytes: marks with classes of console.css, no script, no style of its own, names escaped."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from .text import visible

SPACE = "http://www.w3.org/2000/svg"


def number(value: float) -> str:
    """Return a number as text, with one digit after the point, none for a whole one, and never "-0"."""
    text = f"{value:.1f}"
    text = text.removesuffix(".0")
    return "0" if text == "-0" else text


class Svg:
    """Marks are drawn in the order in which they are added."""

    def __init__(self, width: int, height: int) -> None:
        root = f'xmlns="{SPACE}" class="plot report" viewBox="0 0 {width} {height}" role="img"'
        self._parts = [f"<svg {root}>"]

    def text(self, x: float, y: float, text: str, anchor: str = "start", title: str | None = None) -> None:
        """Add a text. title: the whole text, if `text` is a part of it."""
        inner = escape(visible(text))
        if title is not None and visible(title) != visible(text):
            inner = f"<title>{escape(visible(title))}</title>{inner}"
        where = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._parts.append(f'<text x="{number(x)}" y="{number(y)}"{where}>{inner}</text>')

    def rect(self, css: str, x: float, y: float, width: float, height: float, title: str = "", rx: int = 0) -> None:
        around = f' rx="{rx}"' if rx else ""
        self._mark(
            f'rect class={quoteattr(css)} x="{number(x)}" y="{number(y)}" width="{number(max(width, 0.1))}"'
            f' height="{number(max(height, 0.1))}"{around}',
            "rect",
            title,
        )

    def line(self, css: str, x1: float, y1: float, x2: float, y2: float, title: str = "") -> None:
        places = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
        self._mark(f"line class={quoteattr(css)} {places}", "line", title)

    def polyline(self, css: str, points: Iterable[tuple[float, float]], title: str = "") -> None:
        self._mark(f'polyline class={quoteattr(css)} points="{_points(points)}"', "polyline", title)

    def polygon(self, css: str, points: Iterable[tuple[float, float]], title: str = "") -> None:
        self._mark(f'polygon class={quoteattr(css)} points="{_points(points)}"', "polygon", title)

    def _mark(self, tag: str, name: str, title: str) -> None:
        inner = f"><title>{escape(visible(title))}</title></{name}>" if title else "/>"
        self._parts.append(f"<{tag}{inner}")

    def done(self) -> bytes:
        return "\n".join([*self._parts, "</svg>\n"]).encode()


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{number(x)},{number(y)}" for x, y in points)
