from __future__ import annotations

from spark_reports import reports
from spark_reports.reports.days import DAY_MS, HOUR_MS, day_bounds
from spark_reports.snapshot import ClientFacts, GroupFacts, TopicFacts

from .checks import check, drawn_of
from .made import DAY, days_until, disk_at, empty_facts, snapshot_of

T0 = day_bounds(DAY, "UTC")[1] + 2 * HOUR_MS
DAYS = days_until(DAY, 36)


def hygiene(by_day, **values):
    """Return the report. by_day: number of days ago -> facts."""
    days = {DAYS[-1 - n]: found for n, found in {0: {}, **by_day}.items()}
    facts = {day: empty_facts(**{"disk": [disk_at(day)], **found}) for day, found in days.items()}
    document = reports.make(snapshot_of(**values), facts)[5]
    check(document)
    return document


def rows(document, key: str):
    return next(table.rows for table in document.tables if table.key == key)


def notes(document) -> dict[str, dict]:
    return {note.key: dict(note.values) for note in document.notes}


def group(name: str, *clients: ClientFacts, conflicts: tuple[str, ...] = ()) -> GroupFacts:
    return GroupFacts(name, "", clients, None, None, 1, conflicts)


def test_topics_that_nobody_has_written_to_for_thirty_days():
    month = T0 - 30 * DAY_MS
    topics = (
        TopicFacts("old", "user", month), TopicFacts("older", "user", month - 1), TopicFacts("new", "user", month + 1),
        TopicFacts("TBW102", "system", 1), TopicFacts("%RETRY%g", "retry", 1), TopicFacts("%DLQ%g", "dead-letter", 1),
    )  # fmt: skip
    document = hygiene({0: {"queues": [("old", 0, 2, 9), ("old", 1, 0, 1)]}}, topics=topics, groups=(group("g"),))
    assert rows(document, "topics") == (
        ("older", month - 1, "last_message", 0), ("old", month, "last_message", 8),
    )  # fmt: skip
    assert document.tables[0].acts[0] == ("delete-topic", "open-topic")
    assert "topics_not_known_yet" not in notes(document)


def test_a_topic_without_messages_is_idle_at_least_since_its_ends_were_the_same():
    same = {"queues": [("t", 0, 9, 9), ("t", 1, 4, 4)]}
    topics = (TopicFacts("t", "user"),)
    # 31 and 35 days ago. Missing days in between do not matter, since a queue's end never goes back.
    assert rows(hygiene({0: same, 31: same}, topics=topics), "topics") == (("t", T0 - 31 * DAY_MS, "at_least", 0),)
    assert rows(hygiene({0: same, 35: same, 31: same}, topics=topics), "topics")[0][1] == T0 - 35 * DAY_MS


def test_what_is_not_known_is_not_claimed():
    topics = (TopicFacts("t", "user"),)
    same, other = {"queues": [("t", 0, 9, 9)]}, {"queues": [("t", 0, 8, 8)]}
    for days in (
        {0: same},
        {0: same, 29: same},  # not as long yet
        {0: same, 31: other, 29: same},  # written to in between
        {0: same, 31: {}, 29: same},  # it was made since
        {0: same, 31: {"queues": [("t", 0, 9, 9), ("t", 1, 0, 0)]}},  # it has other queues now
        # The run was late, so that its ends are from after the write.
        {0: same, 33: {**same, "disk": [disk_at(DAYS[-34], late_ms=19 * DAY_MS)]}},
    ):
        document = hygiene(days, topics=topics)
        assert rows(document, "topics") == ()
        first = DAYS[-1 - max(days)]
        assert notes(document)["topics_not_known_yet"] == {"topics": 1, "day": first, "need": 30}


def test_groups_without_a_client_for_seven_days():
    alone = {"groups": [("g", 0, 12, -1, 1), ("h", 1, 0, -1, 1), ("CID_RMQ_SYS_TRANS", 0, 0, -1, 1)]}
    document = hygiene(dict.fromkeys(range(8), alone))
    assert rows(document, "groups") == (("g", DAYS[-8], 7, 8, 12),)
    assert document.tables[1].acts == (("delete-group", "open-group"),)
    assert "groups_not_known_yet" not in notes(document)
    # The row reports missing days: three of eight were counted.
    assert rows(hygiene({0: alone, 3: alone, 7: alone}), "groups") == (("g", DAYS[-8], 7, 3, 12),)


def test_groups_that_had_a_client_or_may_have_had():
    alone = {"groups": [("g", 0, -1, -1, 1)]}
    for days in (
        {0: alone, 6: alone},
        {0: alone, 7: alone, 3: {"groups": [("g", 2, 0, -1, 1)]}},
        {0: alone, 7: alone, 3: {}},  # there was no such group
        # The group had no client at the moment of the count, but fetched messages within the day.
        {0: alone, 7: alone, 3: {**alone, "latency": [("g", "t", "first", 3, 9)]}},
        {0: {"groups": [("g", 1, 0, -1, 1)]}, 7: alone},
        {0: {}, 7: alone},  # deleted
    ):
        assert rows(hygiene(days), "groups") == ()
    assert notes(hygiene({0: alone, 6: alone}))["groups_not_known_yet"] == {"day": DAYS[-7], "need": 7}


def test_a_group_that_only_waits_fetched_nothing():
    alone = {"groups": [("g", 0, -1, -1, 1)], "latency": [("g", "t", "late", 0, 9), ("g", "t", "waiting", 0, 9)]}
    assert rows(hygiene(dict.fromkeys(range(8), alone)), "groups") == (("g", DAYS[-8], 7, 8, None),)


def test_a_lag_that_is_not_known_is_none():
    alone = {"groups": [("g", 0, -1, -1, 1)]}
    assert rows(hygiene({0: alone, 7: alone}), "groups") == (("g", DAYS[-8], 7, 2, None),)


def test_topics_left_over_from_groups_and_topics_that_are_gone():
    names = (
        "%RETRY%here",
        "%RETRY%gone",
        "%RETRY%here+t",
        "%RETRY%here+away",
        "%RETRY%gone+t",
        "%RETRY%CID_RMQ_SYS_TRANS",
    )
    topics = (
        *(TopicFacts(name, "retry") for name in names), TopicFacts("%DLQ%here", "dead-letter"),
        TopicFacts("%DLQ%gone", "dead-letter"), TopicFacts("t", "user", T0),
    )  # fmt: skip
    document = hygiene({0: {"queues": [("%DLQ%gone", 0, 3, 8)]}}, topics=topics, groups=(group("here"),))
    assert rows(document, "leftovers") == (
        ("%DLQ%gone", "dead-letter", "gone", 5), ("%RETRY%gone", "retry", "gone", 0),
        ("%RETRY%gone+t", "retry", "gone", 0), ("%RETRY%here+away", "retry", "away", 0),
    )  # fmt: skip


def test_conflicts_and_clients():
    one, two = ClientFacts("1", "JAVA", "5.3.3"), ClientFacts("2", "JAVA", "5.3.3")
    three = ClientFacts("3", "GO", "5.0.0")
    document = hygiene(
        {}, groups=(group("b", one, two, conflicts=("u", "t")), group("a", one, three, conflicts=("t",)))
    )
    assert rows(document, "conflicts") == (("a", "t"), ("b", "t"), ("b", "u"))
    assert document.tables[2].acts[0] == ("subscriptions", "clients")
    assert rows(document, "clients") == (("JAVA", "5.3.3", 2), ("GO", "5.0.0", 1))
    assert [tile.value for tile in document.tiles] == [0, 0, 2, 0], "groups, not subscriptions"
    assert "JAVA 5.3.3 · 2" in drawn_of(document)["clients"].decode()


def test_nobody_is_connected():
    document = hygiene({}, groups=(group("a"),))
    assert document.plots == ()
    assert "no_clients" in notes(document)
