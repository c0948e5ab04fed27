"""Days that were counted in part only, or long after their end: reports claim nothing about them that is unknown."""

from __future__ import annotations

from typing import Any

from spark_reports import reports
from spark_reports.reports.days import DAY_MS, HOUR_MS, day_bounds
from spark_reports.snapshot import TopicFacts

from .checks import check
from .made import DAY, days_until, disk_at, empty_facts, snapshot_of

BEGIN, END = day_bounds(DAY, "UTC")
#: Before the day's end; more than a day behind it.
PART_MS, LATE_MS = -HOUR_MS, 5 * DAY_MS


def made(count: int, facts: dict[str, Any], odd: dict[int, int], **values):
    """Return reports by name, of `count` days with the same facts. odd: number of days ago -> time from the day's end
    to its count, ms."""
    days = {}
    for ago, day in enumerate(reversed(days_until(DAY, count))):
        at = disk_at(day, used=400, log=300, late_ms=odd.get(ago, 2 * HOUR_MS))
        days[day] = empty_facts(disk=[at], **facts)
    t0_ms = END + odd.get(0, 2 * HOUR_MS)
    found = reports.make(snapshot_of(t0_ms=t0_ms, **values), days)
    for document in found:
        check(document)
    return {document.report: document for document in found}


def notes(document) -> dict[str, dict]:
    return {note.key: dict(note.values) for note in document.notes}


def rows(document, key: str):
    return next(table.rows for table in document.tables if table.key == key)


def tile(document, key: str):
    return next(tile for tile in document.tiles if tile.key == key)


def test_half_a_day_is_compared_with_nothing():
    facts = {"traffic": [("t", 0, BEGIN, 9, 90, 9)], "dead_letters": [("g", "t", BEGIN, 5, 50)]}
    whole, partly = made(5, facts, {}), made(5, facts, {1: PART_MS})
    assert "no_day_before" not in notes(whole["digest"])
    assert notes(partly["digest"])["no_day_before"] == {"day": "2026-11-19"}
    assert tile(whole["capacity"], "stored").before == 90
    assert tile(partly["capacity"], "stored").before is None
    assert rows(partly["capacity"], "days")[-2][:2] == ("2026-11-19", None)
    assert rows(partly["failures"], "days")[-2][:2] == ("2026-11-19", None)
    assert rows(whole["failures"], "pairs")[0][3:5] == (5, 25)
    assert rows(partly["failures"], "pairs")[0][3:5] == (None, 20)


def test_after_a_time_in_which_nothing_ran_one_look_is_one_look():
    """Nine days are counted at one moment, at which a group has no client."""
    facts = {"groups": [("g", 0, 0, -1, 1)]}
    seen = made(9, facts, {})["hygiene"]
    assert rows(seen, "groups") == (("g", "2026-11-12", 8, 9, 0),)
    late = {ago: ago * DAY_MS + 2 * HOUR_MS for ago in range(1, 9)}
    assert rows(made(9, facts, late)["hygiene"], "groups") == ()
    assert rows(made(9, facts, {**late, 8: HOUR_MS})["hygiene"], "groups") == (("g", "2026-11-12", 8, 2, 0),)


def test_deliveries_of_a_day_that_was_looked_at_late_are_a_client_all_the_same():
    days = days_until(DAY, 9)
    alone = {"groups": [("g", 0, 0, -1, 1)]}
    facts = {day: empty_facts(disk=[disk_at(day)], **alone) for day in days}
    delivered = [("g", "t", "first", 1, 4)]
    facts[days[4]] = empty_facts(disk=[disk_at(days[4], late_ms=LATE_MS)], latency=delivered, **alone)
    assert rows(reports.make(snapshot_of(), facts)[5], "groups") == ()


def test_a_topic_is_idle_since_its_queues_were_looked_at_and_not_since_their_day():
    days = days_until(DAY, 33)
    same = {"queues": [("t", 0, 9, 9)]}
    topics = (TopicFacts("t", "user"),)
    for late_ms, expected in ((HOUR_MS, 1), (4 * DAY_MS, 0)):
        facts = {
            days[0]: empty_facts(disk=[disk_at(days[0], late_ms=late_ms)], **same),
            DAY: empty_facts(disk=[disk_at(DAY)], **same),
        }
        document = reports.make(snapshot_of(topics=topics), facts)[5]
        assert len(rows(document, "topics")) == expected


def test_what_expired_is_not_known_of_days_that_were_looked_at_late():
    facts = {"queues": [("%DLQ%g", 0, 3, 9)]}
    days = [row[3] for row in rows(made(5, facts, {1: LATE_MS})["failures"], "days")]
    assert days[-5:] == [None, 0, 0, None, None]
    days = [row[3] for row in rows(made(5, facts, {})["failures"], "days")]
    assert days[-5:] == [None, 0, 0, 0, 0]


def test_a_report_that_is_made_late_says_so_and_forecasts_nothing():
    facts = {"traffic": [("t", 0, BEGIN, 9, 90, 9)]}
    late = made(6, facts, {0: LATE_MS})
    for document in late.values():
        assert notes(document)["made_late"] == {"until": END + LATE_MS}
    assert "forecast_late" in notes(late["capacity"])
    assert {"never_full", "not_full_within", "full_on"}.isdisjoint(notes(late["capacity"]))
    assert "forecast_late" not in notes(made(6, facts, {0: DAY_MS - 1})["capacity"])
    # Measurements of the disk from another time do not count.
    assert notes(made(4, facts, {1: LATE_MS, 2: LATE_MS})["capacity"])["forecast_needs_days"] == {"have": 2, "need": 3}


def test_nobody_says_that_fewer_messages_came_when_some_may_be_missing():
    before = empty_facts(traffic=[("t", 0, BEGIN, 9000, 9, 9)], disk=[disk_at("2026-11-19")])
    for kind, expected in (("log begins", 0), ("gap", 0), ("corrupt", 0), ("deliveries lost", 1)):
        today = empty_facts(findings=[(kind, "", 1, 1)], disk=[disk_at(DAY)])
        document = reports.make(snapshot_of(), {"2026-11-19": before, DAY: today})[0]
        assert len(rows(document, "worsened")) == expected, kind


def test_a_group_above_all_bounds_is_the_slowest():
    facts = {"latency": [("slow", "t", "first", 22, 30), ("quick", "t", "first", 3, 30)]}
    found = tile(made(1, facts, {})["latency"], "slowest_p95")
    assert (found.value, found.where) == (None, (("group", "slow"),))


def test_a_group_with_an_sql_filter_is_no_group_without_a_client_or_messages():
    """The messages in its answers are unknown, but there were answers."""
    facts = {"groups": [("g", 0, 0, -1, 1), ("h", 0, 0, -1, 1)], "findings": [("deliveries unknown", "g", 7, 0)]}
    found = made(9, facts, {})
    assert [row[0] for row in rows(found["hygiene"], "groups")] == ["h"]
    assert {row[0]: row[-1] for row in rows(found["group-health"], "groups")} == {"g": None, "h": 0}


def test_deliveries_that_nobody_recorded_are_no_nought():
    facts = {"groups": [("g", 0, 0, -1, 1)], "findings": [("deliveries begin", "", 0, 0)]}
    found = made(1, facts, {})
    assert rows(found["group-health"], "groups")[0][-1] is None
    assert tile(found["latency"], "delivered").value is None
    assert tile(made(1, {}, {})["latency"], "delivered").value == 0
