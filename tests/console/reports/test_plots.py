"""Texts and marks of plots."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from appliance.console.reports.plots import axes
from appliance.console.reports.plots.bars import Column, changes, columns
from appliance.console.reports.plots.svg import Svg, number
from appliance.console.reports.plots.text import decimal, duration, percent, short_count, shortened, size, width_of
from tests.spark_reports.reports.checks import SVG, check_svg


@pytest.mark.parametrize(
    ("ms", "said"),
    [(0, "0 s"), (999, "999 ms"), (1000, "1 s"), (1500, "1.5 s"), (6270, "6.3 s"), (59_999, "59 s"), (60_000, "1 min"),
     (41 * 60_000, "41 min"), (3 * 3_600_000, "3 h"), (11_520_000, "3 h 12 min"), (86_400_000, "1 d"),
     (187_200_000, "2 d 4 h"), (100 * 86_400_000 + 3_600_000, "100 d")],
)  # fmt: skip
def test_durations(ms: int, said: str):
    assert duration(ms) == said


def test_numbers_with_their_signs():
    assert [size(n) for n in (0, 1023, 1024, 1536, 10 << 30, 1 << 62)] == [
        "0 B", "1023 B", "1 KiB", "1.5 KiB", "10 GiB", "4 EiB",
    ]  # fmt: skip
    assert [short_count(n) for n in (0, 999, 1200, 34_000_000)] == ["0", "999", "1.2k", "34M"]
    assert [percent(n) for n in (0, 9, 69, 1000, 1333)] == ["0%", "0.9%", "6.9%", "100%", "133%"]
    assert [decimal(n, 10) for n in (-5, -15, 0)] == ["-0.5", "-1.5", "0"]
    assert [number(n) for n in (-0.04, 1.0, 1.25)] == ["0", "1", "1.2"]


def test_a_long_name_keeps_its_begin_and_its_end():
    name = "orders-of-the-northern-branch-" + "x" * 300 + "-consumer"
    found = shortened(name, 150)
    assert found.startswith("orders-of")
    assert found.endswith("-consumer")
    assert "…" in found
    assert width_of(found) <= 150
    assert shortened("short", 150) == "short"
    assert width_of(shortened("组" * 300, 150)) <= 150


def test_a_name_may_hold_anything():
    svg = Svg(100, 20)
    svg.text(0, 10, "<b>&\x00\x1b", title="<i>\ud800\u202e")
    svg.rect("h0", 0, 0, 1, 1, "]]>&\x07")
    root = ElementTree.fromstring(svg.done())
    text, rect = root
    assert text[0].text == "<i>\ufffd\ufffd"
    assert text[0].tail == "<b>&\ufffd\ufffd"
    assert rect[0].text == "]]>&\ufffd"


@pytest.mark.parametrize(
    ("most", "base", "ticks"),
    [(0, 10, [0, 1]), (1, 10, [0, 1]), (7, 10, [0, 2, 4, 6, 8]), (420, 10, [0, 200, 400, 600]),
     (1000, 2, [0, 256, 512, 768, 1024]), (1025, 2, [0, 512, 1024, 1536])],
)  # fmt: skip
def test_ticks_are_easy_to_read_and_reach_the_top(most: int, base: int, ticks: list[int]):
    assert axes.nice_ticks(most, base) == ticks


def test_columns_stack_to_both_sides_of_the_line():
    found = [
        Column("1", (("c0", 60, "in"), ("c1", 40, "too")), (("rest", 50, "out"),)),
        Column("2", (), (), known=False, title="2 · –"),
    ]
    root = check_svg(columns(found, str))
    rects = {mark[0].text: mark for mark in root.iter(SVG + "rect")}
    zero = float(next(mark for mark in root.iter(SVG + "line") if mark.get("class") == "axis").get("y1"))

    def edges(name: str) -> tuple[float, float]:
        y = float(rects[name].get("y"))
        return y, y + float(rects[name].get("height"))

    assert edges("in")[1] == pytest.approx(zero, abs=0.1)
    assert edges("too")[1] == pytest.approx(edges("in")[0], abs=0.1)
    assert edges("out")[0] == pytest.approx(zero, abs=0.1)
    assert (edges("in")[1] - edges("in")[0]) / (edges("out")[1] - edges("out")[0]) == pytest.approx(1.2, rel=0.01)
    assert rects["2 · –"].get("class") == "unmeasured"


def test_twice_as_slow_is_as_far_from_the_middle_as_twice_as_fast():
    root = check_svg(changes([("a", 10, 20, "a"), ("b", 20, 10, "b"), ("c", 1, 10**9, "c"), ("d", 5, 5, "d")]))
    rects = list(root.iter(SVG + "rect"))
    assert [mark.get("class") for mark in rects] == ["worse", "better", "worse", "rest"]
    assert float(rects[0].get("width")) == pytest.approx(float(rects[1].get("width")), abs=0.1)
    # A factor of 16 is the longest bar.
    assert float(rects[2].get("width")) == pytest.approx(4 * float(rects[0].get("width")), abs=0.3)
