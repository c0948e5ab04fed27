"""Checks for every document and every plot, whatever the facts were."""

from __future__ import annotations

import json
import math
import re
from xml.etree import ElementTree

from appliance.console.reports import plots
from appliance.console.reports.plots.text import width_of
from spark_reports.reports import keys
from spark_reports.reports.document import REPORTS, Document

NUMBERS = {"messages", "bytes", "ms", "count", "permille", "time_ms", "in_unit"}
#: Attributes that pages allow.
ATTRIBUTES = {
    "viewBox", "class", "x", "y", "x1", "x2", "y1", "y2", "rx", "width", "height", "points", "text-anchor", "role",
    "preserveAspectRatio",
}  # fmt: skip
TAGS = {"svg", "rect", "line", "polyline", "polygon", "text", "title"}
SVG = "{http://www.w3.org/2000/svg}"


def drawn_of(document: Document) -> dict[str, bytes]:
    """Return the plots as the console draws them from the document's JSON, by key."""
    found = json.loads(document.to_json())
    return {one["key"]: plots.draw(found, one) for one in found["plots"]}


def check(document: Document) -> dict[str, bytes]:
    """Check a document and its plots; return the plots."""
    assert document.report in REPORTS
    found = json.loads(document.to_json())
    assert found["report"] == document.report
    tables = {table.key: table for table in document.tables}
    assert len(tables) == len(document.tables)
    for table in document.tables:
        names = tuple(name for name, _ in table.columns)
        assert names == keys.TABLES[document.report][table.key]
        assert {unit for _, unit in table.columns} <= set(keys.COLUMN_UNITS)
        assert table.left_out >= 0
        assert len(table.acts) in (0, len(table.rows))
        assert {act for acts in table.acts for act in acts} <= set(keys.ACTS)
        for row in table.rows:
            assert len(row) == len(table.columns)
            for (name, unit), value in zip(table.columns, row, strict=True):
                assert value is None or isinstance(value, int if unit in NUMBERS else str), (table.key, name, value)
                assert unit != "word" or value in keys.WORDS
    assert tuple(tile.key for tile in document.tiles) == keys.TILES[document.report]
    for tile in document.tiles:
        assert tile.unit in keys.TILE_UNITS
        assert len(tile.trend) == 7 or (not tile.trend and document.report != "digest")
        assert not tile.trend or (tile.trend[-1], tile.trend[-2]) == (tile.value, tile.before)
        assert {name for name, _ in tile.where} <= set(keys.WHERE)
    for note in document.notes:
        assert tuple(name for name, _ in note.values) == keys.NOTES[note.key]
    files = drawn_of(document)
    assert None not in files.values()
    for plot in document.plots:
        assert plot.key in keys.PLOTS[document.report]
        assert tables[plot.table].rows
        assert all(kind != "word" or name in keys.LEGEND_WORDS for _, kind, name in plot.legend)
        root = check_svg(files[plot.key])
        drawn = {css for mark in root.iter() for css in mark.get("class", "").split()}
        assert (
            not plot.legend or drawn & {"rest"} or drawn & {one for css, _, _ in plot.legend for one in css.split()}
        ), (plot, drawn)
    return files


def check_svg(data: bytes) -> ElementTree.Element:
    """Assert that a plot is XML of known elements, all within the picture, and that no two texts overlap."""
    root = ElementTree.fromstring(data)
    _, _, width, height = (float(one) for one in root.get("viewBox").split())
    texts: list[tuple[float, float, float, str]] = []
    for mark in root.iter():
        assert mark.tag.removeprefix(SVG) in TAGS
        assert set(mark.attrib) <= ATTRIBUTES
        for name in ("x", "y", "x1", "x2", "y1", "y2", "width", "height"):
            assert name not in mark.attrib or math.isfinite(float(mark.get(name)))
        xs, ys = _places(mark)
        assert all(-0.6 <= x <= width + 0.6 for x in xs), ElementTree.tostring(mark)
        assert all(-0.6 <= y <= height + 0.6 for y in ys), ElementTree.tostring(mark)
        if mark.tag == SVG + "text":
            said = (mark.text or "") + "".join(part.tail or "" for part in mark)
            x = float(mark.get("x"))
            wide = width_of(said)
            begin = {"end": x - wide, "middle": x - wide / 2}.get(mark.get("text-anchor"), x)
            texts.append((begin, begin + wide, float(mark.get("y")), said))
            assert begin >= -4, said
            assert begin + wide <= width + 8, said
    for n, (begin, end, y, said) in enumerate(texts):
        for other_begin, other_end, other_y, other in texts[n + 1 :]:
            assert abs(y - other_y) >= 10 or end <= other_begin or other_end <= begin, (said, other)
    return root


def _places(mark: ElementTree.Element) -> tuple[list[float], list[float]]:
    if "points" in mark.attrib:
        points = [float(one) for one in re.split("[ ,]", mark.get("points"))]
        assert all(map(math.isfinite, points))
        return points[::2], points[1::2]
    xs = [float(mark.get(name)) for name in ("x", "x1", "x2") if name in mark.attrib]
    ys = [float(mark.get(name)) for name in ("y", "y1", "y2") if name in mark.attrib]
    if mark.tag == SVG + "rect":
        xs.append(xs[0] + float(mark.get("width")))
        ys.append(ys[0] + float(mark.get("height")))
    return xs, ys
