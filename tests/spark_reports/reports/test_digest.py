from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_reports import reports
from spark_reports.reports.days import HOUR_MS, day_bounds
from spark_reports.reports.document import Note
from spark_reports.snapshot import TopicFacts

from .checks import check
from .made import DAY, MINUTE, empty_facts, snapshot_of

BEFORE = "2026-11-19"
BEGIN = day_bounds(DAY, "UTC")[0]


def digest(facts, before=None, **values):
    days = {DAY: empty_facts(**facts)}
    if before is not None:
        days[BEFORE] = empty_facts(**before)
    return reports.make(snapshot_of(**values), days)[0]


def worsened(facts, before, **values):
    return table(digest(facts, before, **values), "worsened").rows


def table(document, key):
    return next(one for one in document.tables if one.key == key)


def lag(group: str, worst_ms: int, over_ms: int = 0):
    return (group, BEGIN, 120, worst_ms, worst_ms, over_ms, 0)


def test_the_whole_document():
    facts = {
        "traffic": [
            ("orders", 0, BEGIN, 10, 1000, 700), ("orders", 1, BEGIN, 5, 500, 400), ("%RETRY%g", 0, BEGIN, 4, 400, 1),
            ("%DLQ%g", 0, BEGIN, 3, 300, 1), ("rmq_sys_wheel_timer", 0, BEGIN, 9, 9, 1), ("inner", 0, BEGIN, 8, 80, 1),
        ],
        "retries": [("g", "orders", 1, BEGIN, 4, 1)],
        "dead_letters": [("g", "orders", BEGIN, 3, 300)],
        "lag": [("g", BEGIN, 120, 5 * MINUTE, 9 * MINUTE, 60_000, 2), ("h", BEGIN, 120, 0, 0, 0, 0)],
        "groups": [("g", 1, 7, BEGIN, 300_000)],
        "findings": [("gap", "00000000000000000000", 1, 100), ("gap", "00000000001073741824", 2, 28)],
    }  # fmt: skip
    earlier = {
        BEFORE: {"messages": 12, "dead_letters": None},
        "2026-11-15": {"messages": 9},
        "2026-11-13": {"messages": 1},
    }
    document = digest(facts, topics=(TopicFacts("inner", "system"),), earlier=earlier)
    found = json.loads(document.to_json())
    assert found == {
        "report": "digest",
        "day": DAY,
        "zone": "UTC",
        "t0_ms": BEGIN + 26 * HOUR_MS,
        "format": 1,
        "plots": [],
        "figures": {
            "messages": 15, "bytes": 1500, "worst_behind_ms": 540_000, "groups_over_limit": 1, "rebalances": 2,
            "retries": 3, "dead_letters": 3, "refused_sends": None, "forced_deletions": None,
            "role_changes": None, "starts": None, "down": None,
        },
        "notes": [
            {"key": "worst_behind", "values": [["count", 540_000], ["group", "g"]]},
            {
                "key": "gap",
                "values": [["places", 2], ["first", "00000000000000000000"], ["count", 3], ["bytes", 128]],
            },
            {"key": "no_day_before", "values": [["day", BEFORE]]},
        ],
        "tables": [
            {
                "key": "worst", "left_out": 0, "rows": [["g", "behind", 540_000, "ms"]],
                "acts": [["open-group", "set-alert"]],
                "columns": [["group", "group"], ["what", "word"], ["now", "in_unit"], ["unit", "unit"]],
            },
            {
                "key": "worsened", "left_out": 0, "rows": [], "acts": [],
                "columns": [["group", "group"], ["topic", "topic"], ["what", "word"], ["before", "in_unit"],
                            ["now", "in_unit"], ["unit", "unit"]],
            }
        ],
        "tiles": [
            {"key": "messages", "value": 15, "unit": "messages", "before": 12, "where": [],
             "trend": [None, 9, None, None, None, 12, 15]},
            {"key": "bytes", "value": 1500, "unit": "bytes", "before": None, "where": [],
             "trend": [None] * 6 + [1500]},
            {"key": "worst_behind_ms", "value": 540_000, "unit": "ms", "before": None,
             "where": [["group", "g"], ["time_ms", BEGIN]], "trend": [None] * 6 + [540_000]},
            {"key": "groups_over_limit", "value": 1, "unit": "count", "before": None, "where": [],
             "trend": [None] * 6 + [1]},
            {"key": "retries", "value": 3, "unit": "messages", "before": None, "where": [],
             "trend": [None] * 6 + [3]},
            {"key": "dead_letters", "value": 3, "unit": "messages", "before": None, "where": [],
             "trend": [None] * 6 + [3]},
        ],
    }  # fmt: skip


def test_a_quiet_day_is_noughts_and_what_was_not_measured_is_not_nought():
    document = digest({}, {})
    assert [tile.value for tile in document.tiles] == [0, 0, None, None, 0, 0]
    assert [note.key for note in document.notes] == ["lag_not_measured"]
    assert document.tables[0].rows == document.tables[1].rows == ()


def test_the_worst_of_the_day_is_told_without_a_day_before():
    facts = {
        "dead_letters": [("shipping", "orders", BEGIN, 122, 300), ("mail", "t", BEGIN, 9, 9)],
        "lag": [
            lag("abandoned", 60 * MINUTE, 50 * MINUTE), lag("ledger", 20 * MINUTE, 15 * MINUTE), lag("quick", 30_000),
        ],
        "groups": [(group, group != "abandoned", 7, BEGIN, 300_000) for group in ("abandoned", "ledger", "shipping")],
    }  # fmt: skip
    document = digest(facts, None)
    check(document)
    assert document.tables[0].rows == (
        ("ledger", "behind", 20 * MINUTE, "ms"),
        ("shipping", "dead_letters", 122, "messages"),
        ("abandoned", "behind", 60 * MINUTE, "ms"),
    )
    tile = document.tiles[2]
    assert (tile.value, tile.where[0]) == (20 * MINUTE, ("group", "ledger")), "not the one that nobody runs"


def test_what_was_deleted_unread_is_said_first():
    unread = [
        ("clicks", "events", 1, BEGIN, 40, 0, 40, BEGIN + 1), ("clicks", "events", 0, BEGIN, 60, 5, 65, BEGIN + 2),
        ("clicks", "events", 0, BEGIN + HOUR_MS, 10, 65, 75, BEGIN + HOUR_MS), ("a", "t", 0, BEGIN, 3, 0, 3, BEGIN),
    ]  # fmt: skip
    document = digest({"deleted_unread": unread, "findings": [("gap", "0" * 20, 1, 100)]}, {})
    check(document)
    assert document.notes[0] == Note(
        "deleted_unread", (("messages", 113), ("pairs", 2), ("group", "clicks"), ("topic", "events"), ("most", 110))
    )
    assert [note.key for note in document.notes[1:]] == ["gap", "lag_not_measured"]
    assert table(document, "deleted_unread").rows == (
        ("clicks", "events", 110, "0, 1", BEGIN + HOUR_MS), ("a", "t", 3, "0", BEGIN),
    )  # fmt: skip


def test_what_the_broker_summed_up_is_in_the_number_and_has_no_name():
    unread = [
        ("*", "*", -1, BEGIN, 900, 0, 900, BEGIN), ("a", "t", -1, BEGIN, 30, 0, 30, BEGIN),
        ("a", "t", -1, BEGIN + HOUR_MS, 20, 0, 20, BEGIN + HOUR_MS), ("b", "t", -1, BEGIN, 30, 0, 30, BEGIN),
        ("b", "t", 3, BEGIN, 7, 0, 7, BEGIN),
    ]  # fmt: skip
    document = digest({"deleted_unread": unread}, {})
    check(document)
    assert document.notes[0] == Note(
        "deleted_unread", (("messages", 957), ("pairs", 3), ("group", "a"), ("topic", "t"), ("most", 50))
    )
    assert table(document, "deleted_unread").rows[:2] == (
        (None, None, 900, "", BEGIN),
        ("a", "t", 50, "", BEGIN + HOUR_MS),
    )
    assert table(document, "deleted_unread").acts[:2] == (
        ("retention",),
        ("open-group", "set-unread-alert", "retention"),
    )


def test_a_sum_alone_names_nobody():
    document = digest({"deleted_unread": [("*", "*", -1, BEGIN, 900, 0, 900, BEGIN)]}, {})
    check(document)
    assert document.notes[0] == Note("deleted_unread_by_some", (("messages", 900),))


def test_what_happened_to_the_broker_comes_next():
    rows = [
        ("measured", BEGIN, 3_600_000), ("measured", BEGIN + HOUR_MS, 3_000_000), ("down", BEGIN + HOUR_MS, 600_000),
        ("refused_sends", BEGIN, 7), ("refused_sends", BEGIN + 2 * HOUR_MS, 5), ("starts", BEGIN + HOUR_MS, 1),
        ("role_changes", BEGIN + HOUR_MS, 2),
    ]  # fmt: skip
    unread = [("clicks", "events", 1, BEGIN, 40, 0, 40, BEGIN + 1)]
    document = digest({"incidents": rows, "deleted_unread": unread}, {})
    check(document)
    assert document.notes == (
        Note("deleted_unread_by_one", (("messages", 40), ("group", "clicks"), ("topic", "events"))),
        Note("refused_sends", (("count", 12),)), Note("role_changes", (("count", 2),)), Note("starts", (("count", 1),)),
        Note("down", (("count", 600_000),)),
        Note("lag_not_measured"),
    )  # fmt: skip
    figures = {"refused_sends": 12, "forced_deletions": 0, "role_changes": 2, "starts": 1, "down": 600_000}
    assert document.figures.items() >= figures.items()
    assert [one.key for one in document.tables] == ["deleted_unread", "incidents", "worst", "worsened"]
    assert table(document, "incidents").rows == (
        ("refused_sends", 12, BEGIN, BEGIN + 2 * HOUR_MS, "messages"),
        ("role_changes", 2, BEGIN + HOUR_MS, BEGIN + HOUR_MS, "count"),
        ("starts", 1, BEGIN + HOUR_MS, BEGIN + HOUR_MS, "count"),
        ("down", 600_000, BEGIN + HOUR_MS, BEGIN + HOUR_MS, "ms"),
    )  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 90), st.integers(1, 40)), min_size=2)
)
def test_a_message_that_several_groups_had_not_read_is_lost_once(deletions):
    """Each group loses some ranges of a queue, one in each hour, from where it had read to."""
    rows, gone, read_to = [], set(), {}
    for hour, (group, queue, skipped, count) in enumerate(deletions):
        begin = read_to.get((group, queue), 0) + skipped
        read_to[group, queue] = begin + count
        rows.append((group, "t", queue, BEGIN + hour * HOUR_MS, count, begin, begin + count, BEGIN + hour * HOUR_MS))
        gone |= {(queue, offset) for offset in range(begin, begin + count)}
    document = digest({"deleted_unread": rows}, {})
    check(document)
    assert dict(document.notes[0].values)["messages"] == len(gone)


def test_messages_of_a_topic_that_was_made_anew_are_others():
    """Its offsets begin again."""
    unread = [("a", "t", 0, BEGIN + hour * HOUR_MS, 10, 0, 10, BEGIN + hour * HOUR_MS) for hour in (0, 5)]
    unread.append(("b", "t", 0, BEGIN, 10, 0, 10, BEGIN))
    document = digest({"deleted_unread": unread}, {})
    check(document)
    assert document.notes[0].values[0] == ("messages", 20)
    assert document.notes[0].values[-1] == ("most", 20)


@pytest.mark.parametrize(
    ("facts", "is_well"),
    [
        ({"incidents": [("measured", BEGIN, 23 * HOUR_MS)]}, True),
        ({"incidents": [("measured", BEGIN, 12 * HOUR_MS)]}, False),  # of half of the day nothing is known
        ({}, False),
        ({"incidents": [("measured", BEGIN, 23 * HOUR_MS), ("starts", BEGIN, 1)]}, False),
        (
            {
                "incidents": [("measured", BEGIN, 24 * HOUR_MS)],
                "deleted_unread": [("clicks", "events", 1, BEGIN, 40, 0, 40, BEGIN + 1)],
            },
            False,
        ),
    ],
)
def test_a_day_on_which_nothing_happened_to_the_broker_says_so(facts, is_well):
    document = digest(facts, {})
    check(document)
    assert ("nothing_wrong" in {note.key for note in document.notes}) is is_well
    assert len(document.tables) == 2 + (not is_well and len(facts) > 1) + (not is_well and "starts" in str(facts))
    if is_well:
        assert (document.figures["refused_sends"], document.figures["down"]) == (0, 0)


def test_nobody_behind_has_no_where():
    document = digest({"lag": [lag("g", 0)]}, {})
    assert (document.tiles[2].value, document.tiles[2].where) == (0, ())


def test_an_hour_without_samples_is_not_measured():
    document = digest({"lag": [("g", BEGIN, 0, -1, -1, 0, 4)]}, {})
    assert document.figures["worst_behind_ms"] is None


@pytest.mark.parametrize(
    ("now", "before", "row"),
    [
        ({"lag": [lag("g", 10 * MINUTE)]}, {"lag": [lag("g", MINUTE)]}, ("g", None, "behind", 60_000, 600_000, "ms")),
        ({"lag": [lag("g", 9, 70_000)]}, {"lag": [lag("g", 9)]}, ("g", None, "over_limit", 0, 70_000, "ms")),
        ({"dead_letters": [("g", "t", BEGIN, 10, 1)]}, {}, ("g", None, "dead_letters", 0, 10, "messages")),
        ({"retries": [("g", "t", 1, BEGIN, 150, 50)]}, {}, ("g", None, "retries", 0, 100, "messages")),
        (
            {"traffic": [("t", 0, BEGIN, 500, 1, 1)]},
            {"traffic": [("t", 0, BEGIN, 2000, 1, 1)]},
            (None, "t", "fewer_messages", 2000, 500, "messages"),
        ),
        ({}, {"traffic": [("t", 0, BEGIN, 1000, 1, 1)]}, (None, "t", "fewer_messages", 1000, 0, "messages")),
    ],
)  # fmt: skip
def test_what_got_worse(now, before, row):
    assert worsened(now, before) == (row,)
    assert worsened(before, now) == ()


@pytest.mark.parametrize(
    ("now", "before"),
    [
        ({"lag": [lag("g", 10 * MINUTE)]}, {}),  # without facts of the day before
        ({"lag": [lag("g", 89_000)]}, {"lag": [lag("g", 30_000)]}),
        ({"dead_letters": [("g", "t", BEGIN, 9, 1)]}, {}),
        ({"retries": [("g", "t", 1, BEGIN, 150, 51)]}, {}),  # copies of a replay are no failures
        ({"traffic": [("t", 0, BEGIN, 501, 1, 1)]}, {"traffic": [("t", 0, BEGIN, 2000, 1, 1)]}),
        ({"traffic": [("t", 0, BEGIN, 9000, 1, 1)]}, {"traffic": [("t", 0, BEGIN, 1, 1, 1)]}),  # more work is no harm
        ({}, {"traffic": [("%RETRY%g", 0, BEGIN, 9000, 1, 1)]}),
    ],
)
def test_what_did_not(now, before):
    assert worsened(now, before) == ()


def test_fewer_messages_are_not_told_of_a_day_that_is_not_over():
    document = digest({}, {"traffic": [("t", 0, BEGIN, 5000, 1, 1)]}, to_ms=BEGIN + HOUR_MS, t0_ms=BEGIN + HOUR_MS)
    assert document.tables[0].rows == document.tables[1].rows == ()
    assert document.notes[0].key == "unfinished_day"
    assert document.notes[0].values == (("until", BEGIN + HOUR_MS),)


def test_five_at_most_the_largest_growth_first_and_each_group_once():
    now = {
        "dead_letters": [(f"g{n}", "t", BEGIN, 20 * n, 1) for n in range(1, 8)],
        "retries": [("g1", "t", 1, BEGIN, 9000, 0)],
    }
    rows = worsened(now, {"dead_letters": [("g7", "t", BEGIN, 100, 1)]})
    assert [(row[0], row[2], row[4]) for row in rows] == [
        ("g1", "retries", 9000), ("g6", "dead_letters", 120), ("g5", "dead_letters", 100), ("g4", "dead_letters", 80),
        ("g3", "dead_letters", 60),
    ]  # fmt: skip


def test_each_row_has_what_can_be_done_about_it():
    now = {
        "dead_letters": [("g", "t", BEGIN, 99, 1)],
        "retries": [("r", "t", 1, BEGIN, 900, 0)],
        "lag": [lag("b", 600_000)],
    }
    found = digest(now, {"lag": [lag("b", 0)], "traffic": [("t", 0, BEGIN, 5000, 1, 1)]}).tables[1]
    acts = {row[0] or row[1]: acts for row, acts in zip(found.rows, found.acts, strict=True)}
    assert acts == {
        "g": ("open-group", "dead-letters"), "r": ("open-group", "retries"), "b": ("open-group", "set-alert"),
        "t": ("open-topic",),
    }  # fmt: skip


#: A day on which the broker had no fault.
WELL = {"incidents": [("measured", BEGIN, 24 * HOUR_MS)]}
ONE_CLIENT, NO_CLIENT = {"groups": [("g", 1, 7, BEGIN, 300_000)]}, {"groups": [("g", 0, 7, BEGIN, 300_000)]}


@pytest.mark.parametrize(
    ("now", "before", "first"),
    [
        ({"dead_letters": [("g", "t", BEGIN, 10, 1)]}, {}, "worst_dead_letters count=10 group=g"),
        ({"retries": [("g", "t", 1, BEGIN, 200, 0)]}, {}, "worst_retries count=200 group=g"),
        ({"retries": [("g", "t", 1, BEGIN, 200, 0)]}, {"retries": [("g", "t", 1, 0, 101, 0)]}, "nothing_wrong"),
        ({"lag": [lag("g", 9 * MINUTE, 1)], **ONE_CLIENT}, {}, "worst_behind count=540000 group=g"),
        (
            {"lag": [lag("g", 9 * MINUTE, 12 * MINUTE)], **ONE_CLIENT},
            {"lag": [lag("g", 9 * MINUTE, 12 * MINUTE)]},
            "worst_over_limit count=720000 group=g",
        ),
        ({"lag": [lag("g", 9 * MINUTE)], **ONE_CLIENT}, {}, "nothing_wrong"),  # within its limit
        # One whose consumers ended on this day, and one that was abandoned long ago.
        ({"lag": [lag("g", 9 * MINUTE, 1)], **NO_CLIENT}, {"lag": [lag("g", 4 * MINUTE)]}, "worst_behind count=540000 "
         "group=g"),
        ({"lag": [lag("g", 9 * MINUTE, 1)], **NO_CLIENT}, {"lag": [lag("g", 5 * MINUTE)]}, "nothing_wrong"),
        ({"traffic": [("t", 0, BEGIN, 9, 9, 9)]}, {"traffic": [("t", 0, 0, 5000, 9, 9)]},
         "fewer_messages count=9 topic=t before=5000"),
        ({"findings": [("corrupt", "f", 1, 9)]}, {}, "corrupt places=1 first=f count=1 bytes=9"),
        (
            {"findings": [("corrupt", "f", 1, 9)], "deleted_unread": [("g", "t", 1, BEGIN, 40, 0, 40, BEGIN + 1)]},
            {}, "corrupt places=1 first=f count=1 bytes=9",
        ),
        ({}, {}, "nothing_wrong"),
    ],
)  # fmt: skip
def test_the_first_line_names_the_worst_of_the_day(now, before, first):
    document = digest({**WELL, **now}, before)
    check(document)
    note = document.notes[0]
    assert " ".join([note.key, *(f"{name}={value}" for name, value in note.values)]) == first
    assert len({note.key for note in document.notes}) == len(document.notes)


@pytest.mark.parametrize(("week_ago", "first"), [(5000, "fewer_messages"), (9, "nothing_wrong")])
def test_a_topic_without_messages_on_this_weekday_is_no_first_line(week_ago, first):
    days = {"2026-11-13": week_ago, BEFORE: 5000, DAY: 9}
    facts = {day: empty_facts(traffic=[("t", 0, 0, count, 9, 9)], **WELL) for day, count in days.items()}
    document = reports.make(snapshot_of(), facts)[0]
    assert document.notes[0].key == first
    assert document.tables[1].rows == ((None, "t", "fewer_messages", 5000, 9, "messages"),)


def test_the_worst_group_comes_behind_what_happened_to_the_broker():
    facts = {"incidents": [("refused_sends", BEGIN, 3)], "dead_letters": [("g", "t", BEGIN, 99, 1)]}
    notes = digest(facts, {}).notes
    assert [note.key for note in notes] == ["refused_sends", "worst_dead_letters", "lag_not_measured"]


@pytest.mark.parametrize(
    ("what", "before", "first"),
    [
        ({"dead_letters": [("z", "t", BEGIN, 50, 1)]}, {}, "worst_dead_letters"),
        ({"dead_letters": [("0", "t", BEGIN, 50, 1)]}, {}, "worst_dead_letters"),  # that is behind, too
        ({"traffic": [("t", 0, BEGIN, 9, 9, 9)]}, {"traffic": [("t", 0, 0, 5000, 9, 9)]}, "fewer_messages"),
    ],
)
def test_groups_that_are_behind_within_their_limits_hide_nothing_from_the_first_line(what, before, first):
    names = "0123456"
    lags = {"lag": [lag(name, 9 * MINUTE) for name in names], "groups": [(name, 1, 7, BEGIN, 1) for name in names]}
    earlier = {"lag": [lag(name, 0) for name in names], **before}
    document = digest({**WELL, **lags, **what}, earlier)
    check(document)
    assert document.notes[0].key == first
    assert [len(table.rows) for table in document.tables] == [5, 5]
