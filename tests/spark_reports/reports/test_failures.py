from __future__ import annotations

import json

import pytest

from spark_reports import reports
from spark_reports.reports.days import day_bounds
from spark_reports.reports.failures import expired_since

from .checks import check, drawn_of
from .made import DAY, days_until, empty_facts, snapshot_of

BEGIN = day_bounds(DAY, "UTC")[0]
BEFORE = "2026-11-19"


def failures(facts, **by_day):
    """Return the report. by_day: facts of days before, as d19={...}."""
    days = {f"2026-11-{name[1:]}": empty_facts(**found) for name, found in by_day.items()}
    return reports.make(snapshot_of(), {DAY: empty_facts(**facts), **days})[2]


def rows(document, key: str):
    return next(table.rows for table in document.tables if table.key == key)


def notes(document) -> dict[str, dict]:
    return {note.key: dict(note.values) for note in document.notes}


def test_the_whole_tables():
    document = failures(
        {
            "dead_letters": [("g", "t", BEGIN, 5, 500), ("g", "u", BEGIN, 1, 100), ("h", "", BEGIN, 2, 200)],
            "retries": [("g", "t", 1, BEGIN, 8, 3), ("g", "t", 16, BEGIN, 2, 0), ("i", "t", 40, BEGIN, 4, 0)],
            "queues": [("%DLQ%g", 0, 30, 90), ("%DLQ%h", 0, 0, 2), ("t", 0, 5, 9)],
        },
        d19={"dead_letters": [("g", "t", BEGIN, 7, 700)], "queues": [("%DLQ%g", 0, 10, 84), ("t", 0, 0, 9)]},
        d10={"dead_letters": [("old", "t", BEGIN, 1, 1)], "retries": [("g", "t", 1, BEGIN, 6, 6)]},
    )  # fmt: skip
    check(document)
    found = json.loads(document.to_json())
    assert {table["key"]: table["rows"] for table in found["tables"]} == {
        "pairs": [
            ["g", "t", 5, 7, 12, 500, 7], ["h", "", 2, 0, 2, 200, 0], ["g", "u", 1, 0, 1, 100, 0],
            ["old", "t", 0, 0, 1, 0, 0], ["i", "t", 0, 0, 0, 0, 4],
        ],
        "groups": [["g", 6, 60, 20, 3, 7], ["h", 2, 2, 0, 0, 0], ["i", 0, 0, 0, 0, 4]],
        "days": [
            ["2026-11-07", None, None, None], ["2026-11-08", None, None, None], ["2026-11-09", None, None, None],
            ["2026-11-10", 1, 6, None], *([f"2026-11-{n}", None, None, None] for n in range(11, 19)),
            ["2026-11-19", 7, 0, None], ["2026-11-20", 8, 3, 20],
        ],
        "depths": [[1, 5, 3], [16, 2, 0], [17, 4, 0]],
    }  # fmt: skip
    assert [(tile["key"], tile["value"], tile["before"]) for tile in found["tiles"]] == [
        ("dead_letters", 8, None), ("retries", 11, None), ("kept_dead_letters", 62, 74), ("expired", 20, None),
        ("replayed", 3, 0),
    ]  # fmt: skip
    assert found["tables"][1]["acts"] == [["dead-letters", "replay", "archive"]] * 2 + [["open-group"]]
    assert notes(document) == {
        "letters_kept": {"until": document.t0_ms}, "days_missing": {"days": 11, "of": 14},
        "replayed_to_groups_only": {},
    }  # fmt: skip
    assert [plot.key for plot in document.plots] == ["where", "days", "depths"]
    svg = drawn_of(document)["where"].decode()
    assert "<title>g · t · 5</title>" in svg
    assert ">62%<" in svg  # 5 of 8
    assert ">100%<" in svg
    assert "<title>h · 2</title>" in svg


def test_the_share_is_of_all_dead_letters_though_few_pairs_are_drawn():
    document = failures({"dead_letters": [(f"g{n:02}", "t", BEGIN, 10, 1) for n in range(20)]})
    svg = drawn_of(document)["where"].decode()
    assert svg.count("<rect") == 15
    assert ">75%<" in svg
    assert "100%" not in svg


@pytest.mark.parametrize(
    ("before", "now", "expired", "unknown"),
    [
        ((0, 10), (4, 12), 4, 0),
        ((4, 10), (4, 10), 0, 0),
        ((0, 10), (15, 20), 15, 0),  # five came and were deleted
        (None, (0, 5), 0, 0),  # a first dead letter
        (None, (3, 5), 0, 1),  # may have come with a store
        ((0, 10), None, 0, 1),  # deleted with its letters
        ((10, 10), None, 0, 0),  # deleted, and empty
        ((5, 10), (0, 3), 0, 1),  # deleted and made again
        ((5, 10), (6, 8), 0, 1),
    ],
)
def test_what_expired_between_two_days(before, now, expired, unknown):
    def ends(found):
        return {("%DLQ%g", 0): found} if found else {}

    found, not_known = expired_since(ends(before), ends(now))
    assert (found.total(), not_known) == (expired, unknown)


def test_what_expired_is_not_known_without_the_day_before():
    queues = {"queues": [("%DLQ%g", 0, 30, 90)]}
    assert rows(failures(queues), "days")[-1][3] is None
    assert rows(failures(queues, d18=queues), "days")[-1][3] is None
    assert rows(failures(queues, d19=queues), "days")[-1][3] == 0
    assert failures(queues).tables[1].rows == (("g", 0, 60, None, 0, 0),)


def test_a_queue_of_which_nobody_can_tell_is_said():
    document = failures({}, d19={"queues": [("%DLQ%g", 0, 0, 9)]})
    assert notes(document)["expired_not_known"] == {"queues": 1}
    assert rows(document, "days")[-1][3] == 0


def test_fourteen_days_are_fourteen():
    days = {f"d{day[8:]}": {"dead_letters": [("g", "t", BEGIN, 1, 1)]} for day in days_until(DAY, 16)[:-1]}
    document = failures({}, **days)
    assert rows(document, "pairs") == (("g", "t", 0, 1, 13, 0, 0),)
    assert [row[1] for row in rows(document, "days")] == [1] * 13 + [0]
    assert "days_missing" not in notes(document)


def test_a_day_without_failures():
    document = failures({})
    assert document.plots == ()
    assert {"no_dead_letters", "no_retries"} <= set(notes(document))


@pytest.mark.parametrize(("groups", "lines"), [(("g",), 0), (("g", "h"), 1)])
def test_what_bars_add_up_to_is_drawn_of_several_only(groups, lines):
    document = failures({"dead_letters": [(group, "t", BEGIN, 5, 500) for group in groups]})
    svg = drawn_of(document)["where"].decode()
    assert svg.count("<polyline") == lines
    where = next(plot for plot in document.plots if plot.key == "where")
    assert where.legend == ((("b", "word", "running_share"),) if lines else ())
    assert svg.count("100%") == lines
