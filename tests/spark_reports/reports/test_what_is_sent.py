"""The reports of what producers send, and of the week: their figures against a plain recount."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_reports import reports
from spark_reports.facts.contents import bucket_of
from spark_reports.facts.tables import ADDED, DELETED_UNREAD
from spark_reports.reports import digest, sizes
from spark_reports.reports.days import HOUR_MS, View, day_bounds
from spark_reports.reports.document import REPORTS, Document

from .checks import check
from .made import DAY, days_until, disk_at, empty_facts, shop, snapshot_of

BEGIN = day_bounds(DAY, "UTC")[0]


def made(report: str, days: dict | None = None, **facts) -> Document:
    document = reports.make(snapshot_of(), {DAY: empty_facts(**facts), **(days or {})})[REPORTS.index(report)]
    check(document)
    return document


def rows(document: Document, key: str) -> list[dict]:
    table = next(table for table in document.tables if table.key == key)
    return [dict(zip((name for name, _ in table.columns), row, strict=True)) for row in table.rows]


def tiles(document: Document) -> dict:
    return {tile.key: tile.value for tile in document.tiles}


def test_producers_by_address_over_all_topics() -> None:
    document = made("producers", producers=[
        ("orders", "10.0.0.1", 60, 6000, 50, 500, 2, 90), ("clicks", "10.0.0.1", 20, 2000, 0, 0, 0, 0),
        ("clicks", "10.0.0.2", 15, 900, 15, -30_000, -2500, 40), ("", "", 5, 100, 5, 0, -9000, 0),
        ("rmq_sys_x", "10.0.0.9", 1000, 9, 1, 1, 1, 1),
    ])  # fmt: skip
    assert rows(document, "producers") == [
        {"host": "10.0.0.1", "messages": 80, "share": 800, "bytes": 8000, "topics": 2, "after": 10, "most_after": 90,
         "ahead": 0},
        {"host": "10.0.0.2", "messages": 15, "share": 150, "bytes": 900, "topics": 1, "after": -2000, "most_after": 40,
         "ahead": 2500},
    ]  # fmt: skip
    assert [(row["topic"], row["host"], row["messages"]) for row in rows(document, "pairs")] == [
        ("orders", "10.0.0.1", 60), ("clicks", "10.0.0.1", 20), ("clicks", "10.0.0.2", 15),
    ]  # fmt: skip
    assert tiles(document) == {"producers": 2, "largest_share": 800, "clocks_ahead": 1}
    assert ("producers_left_out", (("messages", 5),)) in [(note.key, note.values) for note in document.notes]


def test_a_host_whose_topics_have_no_rows_has_its_messages_all_the_same() -> None:
    document = made("producers", producers=[
        ("orders", "10.0.0.1", 60, 6000, 60, 600, 10, 10), ("", "10.0.0.1", 30, 2000, 30, 300, 10, 10),
        ("", "10.0.0.2", 10, 900, 0, 0, 0, 0),
    ])  # fmt: skip
    found = [(row["host"], row["messages"], row["share"], row["topics"]) for row in rows(document, "producers")]
    assert found == [("10.0.0.1", 90, 900, None), ("10.0.0.2", 10, 100, None)]
    assert [row["topic"] for row in rows(document, "pairs")] == ["orders"]
    assert not [note for note in document.notes if note.key == "producers_left_out"]


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 3000), min_size=1, max_size=8), min_size=1),
    st.integers(1, 3),
)
def test_skew_is_the_largest_queue_against_the_average(spread: dict[str, list[int]], hours: int) -> None:
    traffic = [
        (topic, queue, BEGIN + hour * HOUR_MS, count // hours + (hour < count % hours), 10, 1)
        for topic, counts in spread.items()
        for queue, count in enumerate(counts)
        for hour in range(hours)
        if count
    ]
    queues = [(topic, queue, 0, 9) for topic, counts in spread.items() for queue in range(len(counts))]
    document = made("queues", traffic=traffic, queues=queues)
    found = {row["topic"]: row for row in rows(document, "topics")}
    assert set(found) == {topic for topic, counts in spread.items() if any(counts)}
    for topic, row in found.items():
        counts = spread[topic]
        enough = len(counts) > 1 and sum(counts) >= 20 * len(counts)
        assert row["skew"] == (max(counts) * 1000 * len(counts) // sum(counts) if enough else None)
        assert (row["queues"], row["idle"], row["messages"]) == (len(counts), counts.count(0), sum(counts))
        assert (row["largest_queue"], row["largest"], row["least"]) == (
            str(counts.index(max(counts))), max(counts), min(counts)
        )  # fmt: skip
    detail = rows(document, "queues")
    for topic in {row["topic"] for row in detail}:
        assert sum(row["messages"] for row in detail if row["topic"] == topic) == sum(spread[topic])
    skews = [row["skew"] for row in rows(document, "topics") if row["skew"] is not None]
    assert skews == sorted(skews, reverse=True)
    assert tiles(document)["skewed_topics"] == sum(skew >= 2000 for skew in skews)


@given(st.lists(st.integers(0, 1 << 22), min_size=1, max_size=200), st.sampled_from((500, 950, 990, 1000)))
def test_a_percentile_of_sizes_is_within_a_sixteenth(found: list[int], permille: int) -> None:
    buckets: dict[int, int] = {}
    for size in found:
        buckets[bucket_of(size)] = buckets.get(bucket_of(size), 0) + 1
    true = sorted(found)[ceil(len(found) * permille / 1000) - 1]
    assert sizes.percentile(buckets, permille) == pytest.approx(true, rel=1 / 16, abs=0)


def test_sizes_and_the_largest_messages() -> None:
    document = made(
        "sizes",
        sizes=[("orders", bucket_of(10), 99, 990), ("orders", bucket_of(5000), 1, 5000), ("clicks", 8, 100, 800)],
        largest=[("orders", 5000, 5200, 3, 77, BEGIN, "ID1"), ("clicks", 8, 100, 0, 5, BEGIN, "")],
    )
    assert rows(document, "topics") == [
        {"topic": "orders", "messages": 100, "mean": 59, "p50": 10, "p95": 10, "p99": 10, "largest": 5000,
         "bytes": 5990},
        {"topic": "clicks", "messages": 100, "mean": 8, "p50": 8, "p95": 8, "p99": 8, "largest": 8, "bytes": 800},
    ]  # fmt: skip
    assert rows(document, "largest")[0] == {
        "topic": "orders", "largest": 5000, "size": 5200, "queue": "3", "offset": "77", "at": BEGIN, "id": "ID1",
    }  # fmt: skip
    steps = {row["up_to"]: row["messages"] for row in rows(document, "steps")}
    assert steps == {(1 << bits) - 1: {4: 199, 13: 1}.get(bits, 0) for bits in range(4, 14)}
    assert tiles(document) == {"median": 8, "p99": 10, "largest": 5000}


def test_duplicates_and_keys_are_estimated_from_samples() -> None:
    document = made(
        "repeats",
        traffic=[("orders", 0, BEGIN, 10_000, 1, 1), ("rare", 0, BEGIN, 90, 1, 1)],
        repeats=[("orders", 900, 80, 100, 10), ("rare", 9, 9, 9, 10)],
        frequent=[("key", "orders", "hot", 500, 8), ("key", "rare", "k", 80, 8), ("id", "orders", "A", 6300, 1),
                  ("shard", "orders", "s", 100, 8)],
    )  # fmt: skip
    assert rows(document, "topics") == [
        {"topic": "orders", "copies": 1000, "repeated": 800, "share": 100, "ids": 900},
        {"topic": "rare", "copies": None, "repeated": None, "share": None, "ids": 9},
    ]
    assert rows(document, "keys") == [
        {"topic": "orders", "key": "hot", "messages": 4000, "share": 400},
        {"topic": "rare", "key": "k", "messages": 90, "share": 1000},
    ]
    assert rows(document, "ids") == [{"topic": "orders", "id": "A", "messages": 6300, "share": 630}]
    assert {note.key for note in document.notes} >= {"ids_sampled", "keys_sampled"}
    assert tiles(document)["hottest"] == 1000


def test_a_week_beside_the_week_before() -> None:
    days, facts = days_until(DAY, 14), {}
    for at, day in enumerate(days):
        begin = day_bounds(day, "UTC")[0]
        facts[day] = empty_facts(
            traffic=[("orders", 0, begin, 100 if at < 7 else 150, 1000, 1)], disk=[disk_at(day)],
            lag=[("billing", begin, 10, 5, at * 1000, 60_000, 0)] if at >= 7 else [],
            dead_letters=[("billing", "orders", begin, at, 1)] if at >= 7 else [],
            # The same messages, which two groups had not read.
            deleted_unread=[(group, "orders", 0, begin, 5, 0, 5, begin) for group in ("a", "b")] if at == 9 else [],
        )  # fmt: skip
    earlier = {day: digest.figures(View(replace(snapshot_of(), day=day), {day: facts[day]})) for day in days[:-1]}
    document = reports.make(snapshot_of(earlier=earlier), facts)[REPORTS.index("week")]
    check(document)
    assert tiles(document) == {
        "messages": 1050, "bytes": 7000, "worst_behind_ms": 13_000, "retries": 0, "dead_letters": sum(range(7, 14)),
        "budget": None,
    }  # fmt: skip
    assert [tile.before for tile in document.tiles][:2] == [700, 7000]
    assert rows(document, "topics") == [{"topic": "orders", "messages": 1050, "week_before": 700, "change": 500}]
    assert rows(document, "groups") == [
        {"group": "billing", "over_ms": 7 * 60_000, "worst_ms": 13_000, "dead_letters": 70, "retries": 0,
         "deleted_unread": 0},
        *({"group": group, "over_ms": 0, "worst_ms": 0, "dead_letters": 0, "retries": 0, "deleted_unread": 5}
          for group in ("a", "b")),
    ]  # fmt: skip
    assert [row["deleted_unread"] for row in rows(document, "days")] == [0] * 9 + [5] + [0] * 4
    assert [row["messages"] for row in rows(document, "days")] == [100] * 7 + [150] * 7


def test_a_week_has_dashes_for_what_an_older_version_did_not_count() -> None:
    days, facts = days_until(DAY, 14), {}
    for at, day in enumerate(days):
        begin = day_bounds(day, "UTC")[0]
        counted = empty_facts(dead_letters=[("billing", "orders", begin, 2, 1)], disk=[disk_at(day)])
        facts[day] = {name: rows for name, rows in counted.items() if at == 13 or name not in ADDED}
    document = reports.make(snapshot_of(), facts)[REPORTS.index("week")]
    check(document)
    assert [row["deleted_unread"] for row in rows(document, "days")] == [None] * 13 + [0]
    assert [row["refused_sends"] for row in rows(document, "days")] == [None] * 14
    assert [row["deleted_unread"] for row in rows(document, "groups")] == [0]
    del facts[DAY][DELETED_UNREAD.name]
    document = reports.make(snapshot_of(), facts)[REPORTS.index("week")]
    check(document)
    assert [(row["dead_letters"], row["deleted_unread"]) for row in rows(document, "groups")] == [(14, None)]


@pytest.mark.parametrize(("days", "before"), [(1, None), (8, 5)])
def test_a_week_before_that_was_not_counted_is_a_dash(days, before) -> None:
    traffic = {
        day: empty_facts(traffic=[("orders", 0, 0, 5, 9, 9)], disk=[disk_at(day)]) for day in days_until(DAY, days)
    }
    (row,) = rows(made("week", traffic, traffic=[("orders", 0, 0, 5, 9, 9)]), "topics")
    assert (row["week_before"], row["change"]) == (before, None)


def test_a_shop_has_all_of_them() -> None:
    snapshot, facts = shop()
    documents = {document.report: document for document in reports.make(snapshot, facts)}
    for report in ("week", "producers", "queues", "sizes", "repeats"):
        assert documents[report].plots
        assert all(table.rows for table in documents[report].tables if table.key != "topics" or report != "week")
