from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_reports import reports
from spark_reports.reports.days import DAY_MS, HOUR_MS, day_bounds
from spark_reports.snapshot import AheadFacts, GroupFacts, TopicFacts

from .checks import check, drawn_of
from .made import DAY, MINUTE, days_until, disk_at, empty_facts, snapshot_of

BEGIN = day_bounds(DAY, "UTC")[0]
T0 = BEGIN + 26 * HOUR_MS


def capacity(by_day, **values):
    """Return the report. by_day: (bytes stored, bytes used, bytes of the log), the report's day last; None for a day
    without facts."""
    days = days_until(DAY, len(by_day))
    facts = {day: one_day(day, *found) for day, found in zip(days, by_day, strict=True) if found}
    document = reports.make(snapshot_of(**values), facts)[4]
    check(document)
    return document


def one_day(day: str, stored: int, used: int, log: int, total: int = 1000, late_ms: int = 2 * HOUR_MS):
    disk = disk_at(day, total=total, used=used, log=log, late_ms=late_ms)
    return empty_facts(traffic=[("t", 0, BEGIN, 1, stored, stored)], disk=[disk])


def notes(document) -> dict[str, dict]:
    return {note.key: dict(note.values) for note in document.notes}


def tile(document, key: str):
    return next(tile for tile in document.tiles if tile.key == key)


def table(document, key: str):
    return next((table for table in document.tables if table.key == key), None)


def test_a_log_that_stays_level_never_fills_the_disk():
    document = capacity([(100, 400, 300)] * 5)
    assert notes(document) == {"days_missing": {"days": 9, "of": 14}, "never_full": {}}
    assert tile(document, "full_on").value is None
    expected = table(document, "expected").rows
    assert len(expected) == 14 + 28
    assert expected[13] == (DAY, 400, None, None, None)
    assert expected[14:16] == (("2026-11-21", None, 400, 400, 400), ("2026-11-22", None, 400, 400, 400))


def test_a_young_log_is_not_thought_to_grow_for_ever():
    # The log grew by 100 a day so far; the retention of three days ends that.
    document = capacity([(100, 200, 100), (100, 300, 200), (100, 400, 300)])
    assert "never_full" in notes(document)
    # With a retention of ten days it grows by 700 more, and the limit is 850.
    document = capacity([(100, 200, 100), (100, 300, 200), (100, 400, 300)], retention_ms=10 * DAY_MS)
    assert notes(document)["full_on"] == {"day": "2026-11-25", "percent": 85}
    assert tile(document, "full_on").value == BEGIN + 5 * DAY_MS
    assert dict(tile(document, "full_on").where) == {"earliest": BEGIN + 5 * DAY_MS, "latest": BEGIN + 5 * DAY_MS}


def test_how_much_is_full_is_the_broker_s_to_say():
    days = [(100, 200, 100), (100, 300, 200), (100, 400, 300)]
    document = capacity(days, retention_ms=10 * DAY_MS, disk_limit_percent=50)
    assert notes(document)["full_on"] == {"day": "2026-11-21", "percent": 50}
    assert document.figures["limit"] == 500


def test_odd_days_make_an_earliest_and_a_latest():
    days = [(n, 100 + n, 0) for n in (0, 30, 10, 40, 20, 50, 30, 60)]
    document = capacity(days, retention_ms=0, disk_limit_percent=30)
    around = dict(tile(document, "full_on").where)
    assert around["earliest"] < tile(document, "full_on").value < around["latest"]


def test_something_grows_and_is_not_there_yet():
    document = capacity([(0, 100 + n, 0) for n in range(3)])
    assert notes(document)["not_full_within"] == {"days": 90}
    assert tile(document, "full_on").value is None


def test_never_is_not_said_where_odd_days_would_fill_the_disk():
    # Constant at 400 of 1000; if all days were like the most unusual one, 640.
    document = capacity([(20, 400, 300), (180, 400, 300), (100, 400, 300)], disk_limit_percent=50)
    assert notes(document)["not_full_within"] == {"days": 90}
    assert dict(tile(document, "full_on").where) == {"earliest": BEGIN + DAY_MS, "latest": None}


def test_a_disk_that_is_full_already():
    document = capacity([(0, 850, 0)] * 3)
    assert notes(document)["full_now"] == {"percent": 85}
    assert tile(document, "full_on").value == BEGIN


@pytest.mark.parametrize(
    ("by_day", "have"),
    [
        ([(9, 9, 9)] * 2, 2),
        ([(9, 9, 9), None, (9, 9, 9)], 2),
        ([(9, 9, 9, 0), (9, 9, 9), (9, 9, 9)], 2),  # its disk was not measured
    ],
)
def test_three_days_are_needed(by_day, have: int):
    document = capacity(by_day)
    assert notes(document)["forecast_needs_days"] == {"have": have, "need": 3}
    assert len(table(document, "expected").rows) == 14
    assert [css for css, _, _ in document.plots[1].legend] == ["b", "limit"]


def test_a_day_that_is_not_over_says_nothing_about_a_day():
    document = capacity([(100, 400, 300)] * 3 + [(10, 400, 300)], to_ms=BEGIN + HOUR_MS, t0_ms=BEGIN + HOUR_MS)
    assert "never_full" in notes(document)
    assert table(document, "expected").rows[-1][3] == 400


def test_without_a_disk_there_is_no_forecast():
    document = capacity([(9, 0, 0, 0)] * 3)
    assert "disk_not_measured" in notes(document)
    assert [plot.key for plot in document.plots] == ["stored"]


def test_margins_of_what_is_unread():
    groups = [
        ("lost", 1, 9, T0 - 4 * DAY_MS, 1), ("near", 1, 5, T0 - 60 * HOUR_MS, 1), ("fine", 1, 2, T0 - HOUR_MS, 1),
        ("read", 1, 0, -1, 1), ("unknown", 0, -1, -1, 1), ("CID_RMQ_SYS_TRANS", 0, 1, 1, 1),
    ]  # fmt: skip
    document = reports.make(snapshot_of(), {DAY: empty_facts(groups=groups)})[4]
    check(document)
    margins = table(document, "margins")
    days = 3 * DAY_MS
    assert margins.rows == (
        ("lost", 9, 4 * DAY_MS, days, 1333, 0, None), ("near", 5, 60 * HOUR_MS, days, 833, 0, None),
        ("fine", 2, HOUR_MS, days, 13, 0, None), ("read", 0, 0, days, 0, 0, None),
        ("unknown", None, None, days, None, 0, None),
    )  # fmt: skip
    assert margins.acts == (("retention", "open-group"),) * 2 + (("open-group",),) * 3
    worst = tile(document, "least_margin")
    assert (worst.value, worst.where) == (1333, (("group", "lost"),))
    svg = drawn_of(document)["margins"].decode()
    assert "lost · 133% · 4 d" in svg
    assert "unknown" not in svg
    assert [svg.count(f'class="{css}"') for css in ("worse", "c0", "c2", "limit")] == [1, 1, 2, 1]


def test_a_margin_is_no_better_for_what_was_lost_and_as_bad_as_the_need_says():
    """The next message of a group that lost some is young; and a disk that fills leaves less than the retention."""
    groups = [("clicks", 1, 9, T0 - HOUR_MS, 1), ("soon", 1, 5, T0 - 2 * HOUR_MS, 1), ("later", 1, 2, T0 - HOUR_MS, 1)]
    ahead = {
        "soon": AheadFacts("events", 40 * MINUTE, 2 * HOUR_MS, True), "clicks": None,
        "later": AheadFacts("events", 3 * HOUR_MS, HOUR_MS, False),
    }  # fmt: skip
    known = tuple(GroupFacts(name, "", (), 1, 1, 1, (), one) for name, one in ahead.items())
    unread = [
        ("clicks", "events", 0, BEGIN, 40, 0, 40, BEGIN), ("clicks", "events", 1, BEGIN, 4, 0, 4, BEGIN),
        ("gone", "events", 1, BEGIN, 4, 0, 4, BEGIN),
    ]  # fmt: skip
    facts = {DAY: empty_facts(groups=groups, deleted_unread=unread)}
    document = reports.make(snapshot_of(groups=known), facts)[4]
    check(document)
    days = 3 * DAY_MS
    assert table(document, "margins").rows == (
        ("clicks", 9, HOUR_MS, days, 1000, 44, None), ("soon", 5, 2 * HOUR_MS, days, 750, 0, 40 * MINUTE),
        ("later", 2, HOUR_MS, days, 250, 0, None),
    )  # fmt: skip
    assert table(document, "margins").acts == (("retention", "open-group"),) * 2 + (("open-group",),)
    assert tile(document, "least_margin").where == (("group", "clicks"),)
    assert [note.key for note in document.notes][:2] == ["deleted_unread", "deleted_soon"]
    assert notes(document)["deleted_soon"] == {"groups": 1, "left": 40 * MINUTE, "group": "soon", "topic": "events"}
    svg = drawn_of(document)["margins"].decode()
    assert [svg.count(f'class="{css}"') for css in ("worse", "c0", "c2")] == [1, 1, 1]
    late = reports.make(snapshot_of(groups=known, t0_ms=T0 + 2 * DAY_MS), facts)[4]
    assert "deleted_soon" not in notes(late)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10 * DAY_MS), st.none() | st.integers(0, 10 * DAY_MS), st.booleans(), st.integers(0, 3))
def test_margins_agree_with_needs_whatever_the_group(age_ms, left_ms, soon, lost):
    """No row is better than retention, need or loss make it; and there is a note if there is a need."""
    ahead = None if left_ms is None else AheadFacts("t", left_ms, age_ms, soon)
    unread = [("g", "t", 0, BEGIN, lost, 0, lost, BEGIN)] if lost else []
    facts = {DAY: empty_facts(groups=[("g", 1, 1, T0 - age_ms, 1)], deleted_unread=unread)}
    document = reports.make(snapshot_of(groups=(GroupFacts("g", "", (), 1, 1, 1, (), ahead),)), facts)[4]
    check(document)
    (row,) = table(document, "margins").rows
    passed = age_ms * 1000 // max(1, age_ms + left_ms) if ahead else 0
    assert row[4] == max(age_ms * 1000 // (3 * DAY_MS), passed, 1000 if lost else 0)
    assert row[5:] == (lost, left_ms if ahead and soon else None)
    assert ("deleted_soon" in notes(document)) == (row[6] is not None)
    well = 'class="c2"' in drawn_of(document)["margins"].decode()
    assert well == (row[4] < 800 and row[6] is None)


@pytest.mark.parametrize(
    ("overview_ms", "used", "expected"),
    [
        (None, (100, 100, 100), []),
        (0, (100, 100, 100), []),
        (T0 + DAY_MS, (100, 100, 100), ["overview_full_on"]),
        (0, (300, 400, 500), ["overview_not_full"]),
        (T0 + 3 * DAY_MS, (300, 400, 500), []),
        (T0 + 2 * DAY_MS, (300, 400, 500), ["overview_full_on"]),
        (T0 + DAY_MS, (300, 400, 900), []),
    ],
)
def test_it_says_by_what_it_goes_where_the_overview_said_otherwise(overview_ms, used, expected):
    """At 300, 400 and 500 of 1000 the disk is at 85 % on the fourth day after this one."""
    document = capacity([(0, one, 0) for one in used], disk_full_ms=overview_ms)
    found = notes(document)
    assert [key for key in found if key.startswith("overview")] == expected
    if expected == ["overview_full_on"]:
        assert found["overview_full_on"]["days"] == 14


def test_who_fills_the_disk():
    traffic = [(f"t{n}", 0, BEGIN, 1, 100 * n, 1) for n in range(1, 10)] + [("%DLQ%g", 0, BEGIN, 1, 5, 1)]
    topics = (TopicFacts("t9", "user", 1, 7 * HOUR_MS), TopicFacts("t8", "user", 1))
    document = reports.make(snapshot_of(topics=topics), {DAY: empty_facts(traffic=traffic)})[4]
    check(document)
    found = json.loads(document.to_json())["tables"]
    assert found[0]["rows"][:2] == [["t9", "user", 900, 900, 199, 7 * HOUR_MS], ["t8", "user", 800, 800, 177, None]]
    assert found[0]["rows"][-1] == ["%DLQ%g", "dead-letter", 5, 5, 1, None]
    assert found[0]["acts"][:3] == [["open-topic", "retention"]] * 2 + [[]]
    days = [row for row in found[3]["rows"] if row[0] == DAY]
    assert days == [[DAY, f"t{n}", 100 * n] for n in range(9, 3, -1)] + [[DAY, None, 605]]
    assert document.plots[0].legend[-1] == ("rest", "word", "others")
