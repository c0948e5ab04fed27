from __future__ import annotations

import json
import random

import pytest

from spark_reports import reports
from spark_reports.facts.buckets import bucket_of
from spark_reports.facts.tables import FIRST_BUCKET, LATENCY_BOUNDS_MS, WIDE_BOUNDS_MS
from spark_reports.reports.document import Note
from spark_reports.reports.latency import buckets_of, percentile

from .checks import check, drawn_of
from .made import DAY, empty_facts, snapshot_of

WEEK_AGO = "2026-11-13"


def latency(rows, week_ago=None):
    days = {DAY: empty_facts(latency=rows)}
    if week_ago is not None:
        days[WEEK_AGO] = empty_facts(latency=week_ago)
    return reports.make(snapshot_of(), days)[3]


def table(document, key: str):
    return next(table for table in document.tables if table.key == key)


def buckets(**counts: int) -> list[int]:
    """Return a histogram from counts by bound, as b100=5; more=: longer than every bound."""
    bounds = [*LATENCY_BOUNDS_MS, "more"]
    found = [0] * len(bounds)
    for name, count in counts.items():
        found[bounds.index(name if name == "more" else int(name[1:]))] = count
    return found


@pytest.mark.parametrize(
    ("counts", "permille", "ms"),
    [
        ({}, 500, None),
        ({"b1": 1}, 500, 1),
        ({"b1": 50, "b1000": 50}, 500, 1),
        ({"b1": 95, "more": 5}, 950, 1),
        ({"b1": 94, "more": 6}, 950, None),
    ],
)
def test_percentiles(counts, permille, ms):
    assert percentile(buckets(**counts), permille) == ms


@pytest.mark.parametrize("seed", range(20))
def test_a_percentile_is_within_a_tenth_of_the_true_one(seed):
    chance = random.Random(seed)
    top = chance.choice((20, 3000, 70_000, 86_400_000))
    times = [int(chance.choice((1, top, top // 3)) * chance.random() ** chance.choice((1, 9))) for _ in range(400)]
    found = [0] * (len(LATENCY_BOUNDS_MS) + 1)
    for ms in times:
        found[bucket_of(ms) - FIRST_BUCKET] += 1
    for permille in (10, 500, 950, 990, 999):
        true = max(1, sorted(times)[-(-len(times) * permille // 1000) - 1])
        assert abs(percentile(found, permille) - true) <= true / 10, (permille, true)


def test_a_day_of_an_older_version_is_spread_over_the_buckets_of_now():
    ten = WIDE_BOUNDS_MS.index(10)
    [found] = buckets_of(empty_facts(latency=[("g", "t", "first", ten, 1000), ("g", "t", "first", 22, 3)])).values()
    assert sum(found) == 1003
    assert found[-1] == 3
    assert [bound for bound, count in zip(LATENCY_BOUNDS_MS, found, strict=False) if count] == [
        one for one in LATENCY_BOUNDS_MS if 5 < one <= 10
    ]
    assert percentile(found, 500) in (7, 8)


def test_the_whole_document():
    def bucket(bound):
        return FIRST_BUCKET + LATENCY_BOUNDS_MS.index(bound)

    longest = FIRST_BUCKET + len(LATENCY_BOUNDS_MS)
    rows = [
        ("fast", "t", "first", bucket(10), 90), ("fast", "u", "first", bucket(20), 10),
        ("fast", "t", "last", bucket(10), 90), ("fast", "u", "last", bucket(20), 10),
        ("slow", "t", "first", bucket(1000), 60), ("slow", "t", "first", longest, 40),
        ("slow", "t", "last", longest, 100),
        ("fast", "%RETRY%fast", "first", 100, 999), ("CID_RMQ_SYS_TRANS", "t", "first", 0, 5),
    ]  # fmt: skip
    document = latency(rows, [("fast", "t", "first", bucket(5), 40)])
    check(document)
    found = json.loads(document.to_json())
    assert {name["key"]: name["rows"] for name in found["tables"] if name["key"] != "shares"} == {
        "groups": [
            ["slow", 100, 0, 963, None, None, None, 40, None, None],
            ["fast", 100, 0, 10, 20, 20, 20, 0, 5, 3000],
        ],
        "topics": [
            ["slow", "t", 100, 0, 963, None, None], ["fast", "u", 10, 0, 20, 20, 20], ["fast", "t", 90, 0, 10, 10, 10],
        ],
        "changes": [["fast", 5, 20, 3000]],
    }  # fmt: skip
    shares = table(document, "shares").rows
    assert len(shares) == 4 * len(WIDE_BOUNDS_MS)
    assert ("slow", "first", 1000, 60, 100) in shares
    assert ("slow", "first", 86_400_000, 60, 100) in shares
    assert ("slow", "last", 86_400_000, 0, 100) in shares
    assert [(tile["key"], tile["value"], tile["where"]) for tile in found["tiles"]] == [
        ("slowest_p95", None, [["group", "slow"]]), ("late", 0, []), ("delivered", 200, []), ("groups", 2, []),
    ]  # fmt: skip
    assert {note["key"]: note["values"] for note in found["notes"]} == {
        "percentiles_interpolated": [], "last_deliveries": [],
        "longer_than_the_last_bound": [["messages", 40], ["ms", 86_400_000]],
    }  # fmt: skip
    shares_svg = drawn_of(document)["shares"].decode()
    # Each message of "fast" was delivered once: its last deliveries are its first ones.
    assert shares_svg.count("<polyline") == 3
    assert shares_svg.count("dash") == 1
    assert document.plots[0].legend == (
        ("c0", "group", "slow"), ("c1", "group", "fast"), ("c0 dash", "word", "last_delivery"),
    )  # fmt: skip
    assert "5 ms → 20 ms" in drawn_of(document)["changes"].decode()


def test_what_was_not_delivered_is_told_for_each_group_and_counts_as_slowest():
    rows = [
        ("some", "t", "first", 105, 94), ("some", "t", "last", 105, 94), ("some", "t", "late", 0, 10),
        ("some", "t", "waiting", 0, 6), ("few", "t", "first", 105, 96), ("few", "u", "waiting", 0, 4),
        ("few", "u", "late", 0, 4), ("none", "t", "late", 0, 40), ("none", "t", "waiting", 0, 40),
        ("all", "t", "first", 105, 5), ("none", "%RETRY%none", "late", 0, 9),
    ]  # fmt: skip
    document = latency(rows)
    check(document)
    columns = [name for name, _ in table(document, "groups").columns]
    found = {row[0]: dict(zip(columns, row, strict=True)) for row in table(document, "groups").rows}
    assert list(found) == ["some", "none", "few", "all"]
    assert [found[group]["late"] for group in found] == [10, 40, 4, 0]
    # 6 of 100 wait for "some": its 95th percentile is among them. Of "few" 4 do: only the 99th one is.
    assert [(found[group]["p50"], found[group]["p95"], found[group]["p99"]) for group in found] == [
        (6, None, None), (None, None, None), (6, 6, None), (6, 6, 6),
    ]  # fmt: skip
    assert found["some"]["last_p95"] is None
    assert [row[:4] for row in table(document, "topics").rows if row[0] == "few"] == [
        ("few", "u", 0, 4),
        ("few", "t", 96, 0),
    ]
    assert document.notes[0] == Note("not_delivered", (("messages", 54), ("group", "none"), ("most", 40)))
    late = next(tile for tile in document.tiles if tile.key == "late")
    assert (late.value, late.where) == (54, (("group", "none"),))
    assert ("some", "first", 86_400_000, 94, 100) in table(document, "shares").rows


def test_messages_that_are_gone_are_no_delivery_and_a_note_says_so():
    begin = snapshot_of().from_ms
    unread = [("g", "t", 0, begin, 40, 0, 40, begin)]
    facts = empty_facts(latency=[("g", "t", "first", 105, 30)], deleted_unread=unread)
    document = reports.make(snapshot_of(), {DAY: facts})[3]
    check(document)
    assert document.notes[0] == Note("lost_not_in_times", (("messages", 40),))


def test_the_error_budget_of_a_week():
    def day(first, **more):
        return empty_facts(latency=first, groups=[("g", 1, 0, -1, 1000), ("idle", 1, 0, -1, 1)], **more)

    second, minute = (FIRST_BUCKET + LATENCY_BOUNDS_MS.index(bound) for bound in (1000, 60_000))
    days = {
        DAY: day([("g", "t", "first", second, 95), ("g", "t", "first", second + 1, 2), ("g", "t", "waiting", 0, 3)]),
        "2026-11-19": day([("g", "t", "first", second, 900)]),
        "2026-11-14": day([("g", "t", "first", minute, 1), ("gone", "t", "first", minute, 1)]),
        "2026-11-13": day([("g", "t", "first", minute, 5000)]),  # a week before
    }
    document = reports.make(snapshot_of(), days)[3]
    check(document)
    # 6 of 1,001 messages took longer, and ten may.
    assert table(document, "objectives").rows == (("g", 1000, 950, 994, 6, 599),)
    assert ("objective", (("percent", 99),)) in [(note.key, note.values) for note in document.notes]


def test_of_a_group_with_an_sql_filter_it_is_not_known_what_waits():
    facts = empty_facts(latency=[("g", "t", "first", 105, 3)], findings=[("deliveries unknown", "g", 2, 0)])
    document = reports.make(snapshot_of(), {DAY: facts})[3]
    assert table(document, "groups").rows[0][2] is None
    assert table(document, "topics").rows[0][3] is None


@pytest.mark.parametrize(("now", "then"), [(19, 100), (100, 19)])
def test_a_few_messages_say_nothing_about_a_change(now: int, then: int):
    document = latency([("g", "t", "first", 5, now)], [("g", "t", "first", 3, then)])
    assert table(document, "groups").rows[0][-2:] == (10, None)
    assert [plot.key for plot in document.plots] == ["shares"]


def test_without_the_same_weekday_before_there_is_no_change():
    document = latency([("g", "t", "first", 5, 100)])
    assert ("no_week_before", (("day", WEEK_AGO),)) in [(note.key, note.values) for note in document.notes]


def test_six_curves_of_the_slowest_and_the_rest_counted():
    document = latency([(f"g{n:02}", "t", "first", n, 100) for n in range(20)] + [("few", "t", "first", 21, 1)])
    assert [name for _, _, name in document.plots[0].legend] == ["g19", "g18", "g17", "g16", "g15", "g14"]
    assert table(document, "groups").rows[0][0] == "few"
    assert {note.key: note.values for note in document.notes}["groups_left_out"] == (("shown", 6), ("of", 21))


def test_nothing_measured_is_no_plot_and_a_note():
    document = latency([])
    assert document.plots == ()
    assert "deliveries_not_measured" in {note.key for note in document.notes}
