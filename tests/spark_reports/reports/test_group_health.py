from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from spark_reports import reports
from spark_reports.reports.days import HOUR_MS, day_bounds

from .checks import SVG, check, drawn_of
from .made import DAY, MINUTE, empty_facts, snapshot_of

BEGIN = day_bounds(DAY, "UTC")[0]


def health(day: str = DAY, zone: str = "UTC", **facts):
    return reports.make(snapshot_of(day, zone), {day: empty_facts(**facts)})[1]


def cells(document) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(drawn_of(document)["behind"]).iter(SVG + "rect"))


def test_the_tables():
    lag = [
        ("late", BEGIN, 120, 4 * MINUTE, 6 * MINUTE, 30_000, 1),
        ("late", BEGIN + 5 * HOUR_MS, 120, 16 * MINUTE, 20 * MINUTE, 90_000, 2),
        ("fine", BEGIN, 120, 999, 2500, 0, 0),
        ("fine", BEGIN + HOUR_MS, 120, 0, 2500, 0, 0),  # the same lag as before
        ("CID_RMQ_SYS_TRANS", BEGIN, 120, 99 * MINUTE, 99 * MINUTE, 1, 1),
    ]
    latency = [("late", "t", "first", 3, 40), ("late", "u", "first", 4, 2), ("late", "t", "last", 5, 42),
               ("late", "%RETRY%late", "first", 1, 7)]  # fmt: skip
    groups = [("late", 1, 0, -1, 5 * MINUTE), ("never", 0, -1, -1, 7 * MINUTE)]
    document = health(lag=lag, latency=latency, groups=groups)
    found = json.loads(document.to_json())
    groups, hours = found["tables"]
    assert groups["rows"] == [
        ["late", 1_200_000, BEGIN + 5 * HOUR_MS, 120_000, 300_000, 2, 3, 42],
        ["fine", 2500, BEGIN, 0, None, 2, 0, 0],
        ["never", None, None, None, 420_000, 0, 0, 0],
    ]
    assert groups["acts"] == [["open-group", "set-alert"]] * 3
    assert len(hours["rows"]) == 48
    assert [row for row in hours["rows"] if row[2] is not None] == [
        ["late", BEGIN, 240_000], ["late", BEGIN + 5 * HOUR_MS, 960_000], ["fine", BEGIN, 999],
        ["fine", BEGIN + HOUR_MS, 0],
    ]  # fmt: skip
    assert [(tile["key"], tile["value"]) for tile in found["tiles"]] == [
        ("groups_over_limit", 1), ("worst_behind_ms", 1_200_000), ("rebalances", 3), ("dead_letters", 0),
    ]  # fmt: skip
    assert found["tiles"][1]["where"] == [["group", "late"], ["time_ms", BEGIN + 5 * HOUR_MS]]
    assert found["notes"] == []
    check(document)


def test_a_cell_tells_its_hour_and_how_far_behind():
    document = health(lag=[("g", BEGIN + 2 * HOUR_MS, 120, 16 * MINUTE, 1, 0, 0)])
    found = cells(document)
    assert [mark.get("class") for mark in found] == ["unmeasured"] * 2 + ["h4"] + ["unmeasured"] * 21
    assert found[2][0].text == "g · 02:00 · 16 min"
    assert found[3][0].text == "g · 03:00 · –"


@pytest.mark.parametrize(
    ("ms", "css"),
    [(0, "h0"), (999, "h0"), (1000, "h1"), (60_000, "h1"), (60_001, "h2"), (300_000, "h2"), (300_001, "h3"),
     (900_000, "h3"), (900_001, "h4"), (1 << 62, "h4")],
)  # fmt: skip
def test_classes_of_minutes_behind(ms: int, css: str):
    document = health(lag=[("g", BEGIN, 120, ms, ms, 0, 0)])
    assert cells(document)[0].get("class") == css


@pytest.mark.parametrize(
    ("day", "zone", "hours"),
    [
        ("2026-03-29", "Europe/Berlin", 23),
        ("2026-10-25", "Europe/Berlin", 25),
        ("2026-11-20", "Asia/Kolkata", 24),
        ("2026-04-05", "Australia/Lord_Howe", 25),  # half an hour longer, so that one hour begins twice
        ("2026-10-04", "Australia/Lord_Howe", 24),
        ("2026-04-24", "Africa/Cairo", 23),  # has no midnight
    ],
)
def test_days_on_which_clocks_are_changed(day: str, zone: str, hours: int):
    begin = day_bounds(day, zone)[0]
    document = health(day, zone, lag=[("g", begin, 120, 0, 0, 0, 0)])
    check(document)
    found = cells(document)
    assert len(found) == hours
    assert found[0].get("class") == "h0"
    titles = [mark[0].text for mark in found]
    assert len(set(titles)) == hours
    assert "02:00" not in "".join(titles) or day != "2026-03-29"


def test_the_worst_are_shown_and_the_rest_counted():
    lag = [(f"g{n:03}", BEGIN, 120, n * MINUTE, n * MINUTE, n, 0) for n in range(600)]
    document = health(lag=lag)
    check(document)
    groups, hours = document.tables
    assert [row[0] for row in groups.rows[:2]] == ["g599", "g598"]
    assert (len(groups.rows), groups.left_out) == (500, 100)
    assert {row[0] for row in hours.rows} == {f"g{n}" for n in range(580, 600)}
    assert document.notes[0].key == "groups_left_out"
    assert document.notes[0].values == (("shown", 20), ("of", 600))
    assert document.figures["groups_over_limit"] == 599


def test_nothing_measured_is_no_plot_and_a_note():
    document = health(groups=[("g", 1, 0, -1, MINUTE)])
    assert (document.plots, [note.key for note in document.notes]) == ((), ["lag_not_measured"])
    assert [table.key for table in document.tables] == ["groups"]
