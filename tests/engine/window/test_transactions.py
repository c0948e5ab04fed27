"""Transactions in the window: open, discarded and ended ones, and acts of administrators on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from appliance.engine.broker.transactions.resolved import By, How, Resolved
from appliance.engine.errors import AdminError, Conflict, InvalidInput, NotFound, Unavailable
from appliance.engine.window.transactions import views as views
from appliance.engine.window.transactions.snapshots import HalfPlace, OpenTransaction, ParkedGroup
from tests.engine.broker.transactions.test_transactions import (
    COMMIT,
    GROUP,
    ROLL_BACK,
    TOPIC,
    end,
    question,
    send_half,
    stored,
)
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for

WHY = "the order was paid"
#: One check, soon; the next look discards the half message.
FAST = {"transaction_time_out_ms": 10, "transaction_check_interval_ms": 30, "transaction_check_max": 1}


def rows(running: RunningEngine, limit: int = 3, **filters: Any) -> list[OpenTransaction]:
    found: list[OpenTransaction] = []
    cursor = None
    while True:
        page = running.window.transactions.open(cursor=cursor, limit=limit, **filters)
        found += page.rows
        cursor = page.next_cursor
        if cursor is None:
            return found


def offsets(found: list[OpenTransaction]) -> list[int]:
    return [one.half_offset for one in found]


# --- open ones


def test_the_oldest_first_and_what_they_are(running):
    peer = running.peer()
    halves = [send_half(peer, f"K{number}", "KEYS\x01a b\x02", b"four") for number in range(7)]
    end(peer, halves[2], COMMIT)
    found = rows(running)
    assert offsets(found) == [0, 1, 3, 4, 5, 6]
    one = found[0]
    assert one.message is not None
    row = one.message
    assert (row.topic, row.queue_id, row.group, row.unique_id, row.keys, row.tags, row.body_bytes) == (
        TOPIC, 2, GROUP, "K0", ("a", "b"), "T", 4,
    )  # fmt: skip
    assert row.physical_offset == int(halves[0]["commitLogOffset"])
    assert running.window.messages.body(row.offset_id).text == "four"
    assert (one.checks, one.max_checks, one.waits_for_producer, one.problem, row.producers) == (0, 15, False, None, 0)
    assert one.age_ms is not None
    assert 0 <= one.age_ms < 60_000
    # Its immunity time is transactionTimeOut, 6 s.
    assert one.next_check_at_ms is not None
    assert 0 < one.next_check_at_ms - row.stored_at_ms < 6200
    page = running.window.transactions.open(limit=500)
    assert (page.open, page.ready, page.truncated, page.scanned) == (6, True, False, 6)


def test_filters(running):
    peer = running.peer()
    for number in range(4):
        send_half(peer, f"K{number}", f"KEYS\x01k{number} even{number % 2 == 0}\x02")
    assert offsets(rows(running, key="K2")) == [2]
    assert offsets(rows(running, key="k1")) == [1]
    assert offsets(rows(running, key="evenTrue", limit=1)) == [0, 2]
    assert offsets(rows(running, topic=TOPIC, group=GROUP)) == [0, 1, 2, 3]
    assert rows(running, group="other") == rows(running, topic="other") == rows(running, key="") == []


def test_who_waits_for_a_producer(make_running: Callable[..., RunningEngine]):
    running = make_running(broker={"transaction_time_out_ms": 10, "transaction_check_interval_ms": 60_000})
    peer = running.peer()
    send_half(peer, "K")
    [one] = wait_for(
        lambda: [one for one in rows(running) if one.waits_for_producer], "the half message waits for a producer"
    )
    assert one.next_check_at_ms is None
    counts = running.window.transactions.counts()
    assert (counts.open, counts.parked, counts.waiting, counts.asked) == (1, (ParkedGroup(GROUP, 1),), 1, 0)
    assert one.message is not None
    assert counts.oldest_stored_at_ms == one.message.stored_at_ms
    begin_ms = int(time.time() * 1000)
    producer = running.produce_as("p1", GROUP)
    question(producer)
    [one] = wait_for(lambda: [one for one in rows(running) if one.checks == 1], "the check is counted")
    assert one.message is not None
    assert (one.waits_for_producer, one.message.producers) == (False, 1)
    assert one.next_check_at_ms is not None
    assert begin_ms + 50_000 < one.next_check_at_ms < time.time() * 1000 + 61_000
    assert running.window.transactions.counts().asked == 1


def test_a_topic_that_is_no_more(running):
    send_half(running.peer(), "K")
    running.window.topic_commands.delete(TOPIC, force=True)
    [one] = rows(running)
    assert one.problem is not None
    assert str(one.problem) == "The topic Orders that it is for does not exist: it cannot be committed."


def test_a_page_ends_in_time_and_goes_on(running, monkeypatch):
    peer = running.peer()
    for number in range(150):
        send_half(peer, f"K{number}")
    monkeypatch.setattr(views, "BUDGET_MS", 0.0)
    page = running.window.transactions.open(key="K149", limit=50)
    assert (page.rows, page.truncated, page.scanned) == ((), True, 1)
    assert page.next_cursor is not None
    found = rows(running, key="K149", limit=50)
    assert offsets(found) == [149]


@pytest.mark.parametrize("cursor", ["", "zz", "00" * 20])
def test_a_cursor_of_something_else(running, cursor):
    send_half(running.peer(), "K")
    with pytest.raises(InvalidInput):
        running.window.transactions.open(cursor=cursor)
    other = running.window.transactions.open(limit=1)
    assert other.next_cursor is None


def test_a_cursor_goes_with_its_filter(running):
    peer = running.peer()
    for number in range(3):
        send_half(peer, f"K{number}")
    cursor = running.window.transactions.open(limit=1).next_cursor
    for wrong in ({"group": GROUP}, {"key": "K1"}):
        with pytest.raises(InvalidInput):
            running.window.transactions.open(cursor=cursor, **wrong)
    with pytest.raises(InvalidInput):
        running.window.transactions.ended(cursor=cursor)


@pytest.mark.parametrize("limit", [0, 501, -1])
def test_limits(running, limit):
    views = running.window.transactions
    for ask in (views.open, views.discarded, views.ended):
        with pytest.raises(InvalidInput):
            ask(limit=limit)


# --- discarded ones


def test_discarded_and_resumed(make_running: Callable[..., RunningEngine]):
    running = make_running(broker=FAST)
    producer = running.produce_as("p1", GROUP)
    half = send_half(producer, "K", body=b"four")
    window = running.window
    page = wait_for(lambda: (found := window.transactions.discarded()).rows and found, "the discarded one")
    [one] = page.rows
    row = one.message
    assert (one.queue_offset, row.topic, row.group, row.producers, one.checks) == (0, TOPIC, GROUP, 1, 1)
    assert str(one.why) == "Its producers were asked 1 time, and nobody had decided it."
    assert one.half_offset_id is not None
    assert window.messages.detail(one.half_offset_id).physical_offset == int(half["commitLogOffset"])
    assert (one.resumed_as, page.kept, page.resumed_known) == (None, 1, True)
    done = window.transaction_commands.resume(one.message.offset_id, reason=WHY, by="alice")
    assert (done.half_offset, done.unique_id) == (1, "K")
    assert window.transactions.discarded().rows[-1].resumed_as == done.offset_id
    for ref in (one.message.offset_id, "TRANS_CHECK_MAX_TIME_TOPIC/0/0"):
        with pytest.raises(Conflict, match="resumed before"):
            window.transaction_commands.resume(ref, reason=WHY)
    # The new one is not decided, either.
    found = wait_for(lambda: len(rows := window.transactions.discarded().rows) == 2 and rows, "the second one")
    assert [row.queue_offset for row in found] == [1, 0]
    assert window.transactions.discarded(limit=1).rows[0].queue_offset == 1


def test_what_cannot_be_resumed(running):
    send_half(running.peer(), "K")
    [one] = rows(running)
    assert one.message is not None
    with pytest.raises(InvalidInput, match="no discarded"):
        running.window.transaction_commands.resume(one.message.offset_id, reason=WHY)
    with pytest.raises(InvalidInput, match="Say why"):
        running.window.transaction_commands.resume(one.message.offset_id, reason="  ")
    with pytest.raises(NotFound):
        running.window.transaction_commands.resume("TRANS_CHECK_MAX_TIME_TOPIC/0/0", reason=WHY)
    with pytest.raises(InvalidInput):
        running.window.transaction_commands.resume("x", reason=WHY)


def test_one_that_was_too_old(make_running: Callable[..., RunningEngine]):
    running = make_running(broker=FAST | {"transaction_check_max": 15}, store={"file_reserved_time_hours": 0})
    send_half(running.peer(), "K")
    [one] = wait_for(lambda: running.window.transactions.discarded().rows, "the discarded one")
    assert (str(one.why), one.checks) == ("It was older than the 0 hours for which messages are kept.", 0)


# --- ended ones


def test_how_they_ended_and_who_said_so(running):
    producer = running.produce_as("p1", GROUP)
    halves = [send_half(producer, f"K{number}") for number in range(5)]
    window = running.window
    end(producer, halves[0], COMMIT)
    end(producer, halves[1], ROLL_BACK, fromTransactionCheck="true")
    window.transaction_commands.act("commit", [HalfPlace(2, "K2")], reason=f"{WHY}  by phone", by="alice")
    page = window.transactions.ended()
    assert [(one.half_offset, one.how, one.by) for one in page.rows] == [
        (2, "committed", "administrator"),
        (1, "rolled_back", "check"),
        (0, "committed", "producer"),
    ]
    by_admin, by_check, _ = page.rows
    assert (by_admin.admin, by_admin.reason, by_admin.client) == ("alice", f"{WHY} by phone", None)
    assert (by_check.admin, by_check.reason) == (None, None)
    assert by_check.client is not None
    assert by_check.client.startswith("127.0.0.1:")
    assert by_check.message is not None
    assert (by_check.message.unique_id, by_check.message.topic, by_check.message.group) == ("K1", TOPIC, GROUP)
    assert 0 <= by_check.age_ms < 60_000
    assert page.kept_from_ms == page.rows[-1].ended_at_ms
    assert [one.half_offset for one in window.transactions.ended(how="committed").rows] == [2, 0]
    assert [one.half_offset for one in window.transactions.ended(by="check").rows] == [1]
    assert [one.half_offset for one in window.transactions.ended(key="K0").rows] == [0]
    assert window.transactions.ended(group="other").rows == ()
    assert window.transactions.ended(from_ms=by_admin.ended_at_ms + 1).rows == ()
    first = window.transactions.ended(limit=2)
    assert first.next_cursor is not None
    second = window.transactions.ended(limit=2, cursor=first.next_cursor)
    assert [one.half_offset for one in second.rows] == [0]
    assert second.next_cursor is None
    for wrong in ({"how": "x"}, {"by": "x"}):
        with pytest.raises(InvalidInput):
            window.transactions.ended(**wrong)
    counts = window.transactions.counts()
    assert (counts.open, counts.committed, counts.rolled_back, counts.discarded) == (2, 2, 1, 0)
    running.restart()
    assert [(one.half_offset, one.admin) for one in running.window.transactions.ended().rows] == [
        (2, "alice"), (1, None), (0, None),
    ]  # fmt: skip


def test_an_end_that_the_log_has_lost_is_not_told(running):
    """A power cut may take the log's last part and leave the record of how it ended."""
    half = send_half(running.peer(), "K")
    running.engine.broker.transactions.resolved.note(
        Resolved(0, int(half["commitLogOffset"]), 1_700_000_000_000, 5, How(1), By(1), 0, b"")
    )
    page = running.window.transactions.ended()
    assert (page.rows, page.scanned) == ((), 1)
    assert offsets(rows(running)) == [0]


# --- acts


def test_decide_one(running):
    peer = running.peer()
    halves = [send_half(peer, f"K{number}") for number in range(4)]
    window = running.window
    look = window.transaction_commands.act("commit", [HalfPlace(0, "K0")], reason=WHY, dry_run=True)
    assert (look.done, look.counts, len(rows(running))) == (0, {"possible": 1}, 4)
    done = window.transaction_commands.act("commit", [HalfPlace(0, "K0")], reason=WHY, by="alice")
    assert (done.done, done.counts) == (1, {"done": 1})
    assert len(stored(peer, TOPIC, 2)) == 1
    end(peer, halves[1], COMMIT)
    for place, error, text in (
        (HalfPlace(0), Conflict, "It was committed before by alice."),
        (HalfPlace(1), Conflict, "Its producer has committed it."),
        (HalfPlace(2, "other"), Conflict, "Another half message is there by now."),
        (HalfPlace(9), NotFound, "There is no transaction 9."),
    ):
        with pytest.raises(error) as caught:
            window.transaction_commands.act("roll_back", [place], reason=WHY)
        assert str(caught.value) == text
    act = window.transaction_commands.act("roll_back", [HalfPlace(number) for number in range(4)], reason=WHY, by="bob")
    assert [one.outcome for one in act.results] == ["decided_before", "decided_before", "done", "done"]
    assert (act.asked, act.done, act.counts) == (4, 2, {"decided_before": 2, "done": 2})
    assert act.results[1].decided is not None
    assert (act.results[1].decided.how, act.results[1].decided.by) == ("committed", "producer")
    assert rows(running) == []


@pytest.mark.parametrize(
    ("action", "more", "field"),
    [
        ("commit", {"places": [HalfPlace(0)]}, "reason"),
        ("commit", {"places": [HalfPlace(0)], "reason": "x" * 501}, "reason"),
        ("commit", {"places": [HalfPlace(0)], "reason": "\ud800"}, "reason"),
        ("commit", {"reason": WHY}, "places"),
        ("commit", {"reason": WHY, "group": GROUP}, "places"),
        ("commit", {"places": [HalfPlace(0)] * 2, "reason": WHY}, "places"),
        ("commit", {"places": [HalfPlace(n) for n in range(101)], "reason": WHY}, "places"),
        ("commit", {"places": [HalfPlace(-1)], "reason": WHY}, "places"),
        ("check", {"places": [HalfPlace(0)], "group": GROUP}, "places"),
        ("check", {"limit": 0}, "limit"),
        ("drop", {}, "action"),
    ],
)
def test_what_cannot_be_asked(running, action, more, field):
    send_half(running.peer(), "K")
    with pytest.raises(InvalidInput) as caught:
        running.window.transaction_commands.act(action, **more)
    assert caught.value.field == field
    assert len(rows(running)) == 1


def test_check_now(running):
    peer = running.peer()
    for number in range(40):
        send_half(peer, f"K{number}")
    window = running.window
    with pytest.raises(Unavailable, match="No producer"):
        window.transaction_commands.act("check", [HalfPlace(3)])
    assert window.transaction_commands.act("check", dry_run=True).counts == {"no_producer": 40}
    producer = running.produce_as("p1", GROUP)
    assert window.transaction_commands.act("check", [HalfPlace(3)]).counts == {"asked": 1}
    assert question(producer).ext_fields["tranStateTableOffset"] == "3"
    act = window.transaction_commands.act("check", group=GROUP, limit=25)
    assert (act.asked, act.done, act.more) == (25, 25, True)
    asked = [int(question(producer).ext_fields["tranStateTableOffset"]) for _ in range(25)]
    assert asked == list(range(25))
    assert window.transaction_commands.act("check", group="other").asked == 0
    assert {one.checks for one in rows(running, 500)} == {0}
    assert window.transactions.counts().asked == 26


def test_ends_that_cannot_be_written_down_are_a_check(running):
    """No transaction waits for these records, so it is a warning; the record notes that something is missing."""

    def check() -> Any:
        [found] = [one for one in running.window.checks() if one.name == "transactions"]
        return found

    assert check().level == "ok"
    resolved = running.engine.broker.transactions.resolved
    resolved.directory.parent.mkdir(exist_ok=True)
    resolved.directory.write_bytes(b"in the way")
    peer = running.peer()
    end(peer, send_half(peer, "K"), COMMIT)
    wait_for(lambda: check().level == "warning", "the check warns")
    text = str(check().sentence)
    assert text.startswith("How transactions end cannot be written down (")
    assert text.endswith("). 1 entry has been dropped so far.")
    assert running.window.transactions.ended().lost == 1
    resolved.directory.unlink()
    end(peer, send_half(peer, "K2"), COMMIT)
    wait_for(lambda: check().level == "ok", "it is written again")
    assert [one.half_offset for one in running.window.transactions.ended().rows] == [1]


def test_refusals_are_sentences(running):
    """A page can show each in another language."""
    send_half(running.peer(), "K")
    running.window.topic_commands.delete(TOPIC, force=True)
    with pytest.raises(Unavailable) as caught:
        running.window.transaction_commands.act("commit", [HalfPlace(0)], reason=WHY)
    assert caught.value.sentence is not None
    assert str(caught.value) == "It was not decided: topic[Orders] not exist. It is still open."
    found: list[AdminError] = []
    for reason in ("", "x" * 501):
        with pytest.raises(InvalidInput) as wrong:
            running.window.transaction_commands.act("commit", [HalfPlace(0)], reason=reason)
        found.append(wrong.value)
    assert all(error.sentence is not None for error in found)
