"""Halves that cannot stay where they lie: stored again, ended once by old and new places, and after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.engine.broker.delays.levels import Place
from appliance.engine.broker.timers.waiting import ADDED_BYTES
from appliance.engine.broker.transactions import check
from appliance.engine.broker.transactions.half import Half, put_back_text, waited_ms, with_mark
from appliance.engine.protocol.properties import MAX_PROPERTIES_BYTES, decode_properties
from appliance.engine.store.queues.queue_repair import QueueRepair
from tests.engine.broker.transactions.test_transactions import (
    COMMIT,
    HALF,
    OP,
    ROLL_BACK,
    TOPIC,
    end,
    send_half,
    stored,
)
from tests.support.engine import RunningEngine, pull_fields, records
from tests.support.waiting import wait_for

DECIDED = "the transaction was decided before"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningEngine]:
    found = RunningEngine(
        tmp_path,
        broker={"transaction_time_out_ms": 60_000, "transaction_check_interval_ms": 60_000},
        store={"flush_disk_type": "SYNC_FLUSH", "mapped_file_size_commit_log": 1 << 16},
    )
    yield found
    found.stop()


def leave(running: RunningEngine) -> int:
    """Clear the log up to its end; return that end when no open half lies below it and the new places are published."""
    broker = running.engine.broker
    assert broker is not None
    store = broker.store
    edge = store.log.written
    wait_for(lambda: broker.transactions.check.keeps(edge) is None, "open halves are stored once more", every=0.01)
    wait_for(lambda: store.published >= store.log.written, "it is published", every=0.01)  # durable comes before that
    return edge


def delete_first_files(running: RunningEngine) -> None:
    """Fill the log's first file, and have the cleaner delete it as on a full disk."""
    broker = running.engine.broker
    assert broker is not None
    log = broker.store.log
    first = log.min_offset
    while len(log.segments) < 3:
        running.put("Filler", b"f" * 20_000)
    cleaner = broker.store.cleaner
    cleaner._count_forced = lambda usage, stages: int(log.min_offset == first)  # type: ignore[method-assign]

    def gone() -> bool:
        cleaner.wakeup()
        return log.min_offset > first

    wait_for(gone, "the file is gone", every=0.1)


def place(record: Any) -> dict[str, str]:
    return {"tranStateTableOffset": str(record.queue_offset), "commitLogOffset": str(record.physical_offset)}


@pytest.mark.parametrize("by", ["old place", "new place"])
@pytest.mark.parametrize("decision", [COMMIT, ROLL_BACK])
def test_it_is_ended_once_by_either_place(running: RunningEngine, by: str, decision: int) -> None:
    peer = running.peer()
    half = send_half(peer, "K", "x\x01y\x02")
    leave(running)
    [_, copy] = stored(peer, HALF)
    assert (copy.body, copy.flag, copy.prepared_transaction_offset) == (b"x", 7, int(half["commitLogOffset"]))
    assert decode_properties(copy.properties)["ROCKETBOX_FIRST_HALF"] == "0"
    assert [record.body for record in stored(peer, OP)] == [b"0"]
    first, second = half, half | place(copy)
    if by == "new place":
        first, second = second, first
    assert end(peer, first, decision).code == 0
    assert end(peer, second, COMMIT).remark == DECIDED
    assert end(peer, first, COMMIT).remark == DECIDED
    assert [record.body for record in stored(peer, OP)] == [b"0", b"1"]
    committed = stored(peer, TOPIC, 2)
    assert len(committed) == (decision == COMMIT)
    if committed:
        assert committed[0].prepared_transaction_offset == copy.physical_offset
        assert decode_properties(committed[0].properties)["x"] == "y"
    running.restart()
    peer = running.peer()
    assert end(peer, first, COMMIT).code == end(peer, second, COMMIT).code == 1
    assert len(stored(peer, TOPIC, 2)) == (decision == COMMIT)


def test_one_that_is_put_back_after_its_topic_was_deleted_is_not_committed_into_the_next_one(
    running: RunningEngine,
) -> None:
    peer = running.peer()
    half = send_half(peer, "K")
    running.window.topic_commands.delete(TOPIC, force=True)
    edge = leave(running)
    running.put(TOPIC, b"new", queue=2)
    [_, copy] = stored(peer, HALF)
    for where in ({}, place(copy)):
        refused = end(peer, half | where, COMMIT)
        assert (refused.code, "was deleted after" in str(refused.remark)) == (1, True)
    assert decode_properties(copy.properties)["ROCKETBOX_OF_DELETED"] == "1"
    assert running.engine.broker is not None
    deleted = running.engine.broker.store.files.deleted_topics
    deleted.remember([], edge)
    deleted._begun.clear()  # as in the next life
    assert deleted.below(TOPIC) == 0, "all records of the old topic have left the log"
    refused = end(peer, half | place(copy), COMMIT)
    assert (refused.code, "was deleted after" in str(refused.remark)) == (1, True)
    assert end(peer, half, ROLL_BACK).code == 0
    answer = peer.ask(11, pull_fields(TOPIC, 2, 0, j=0))
    assert (answer.code, answer.ext_fields["maxOffset"]) == (0, "1")


def test_its_file_goes_only_when_it_lies_elsewhere(running: RunningEngine) -> None:
    peer = running.peer()
    halves = [send_half(peer, f"K{number}") for number in range(200)]
    assert end(peer, halves[7], COMMIT).code == 0
    delete_first_files(running)
    assert running.engine.broker is not None
    assert running.engine.broker.transactions.open_halves.count == 199
    assert end(peer, halves[0], COMMIT).code == 0, "its file is gone"
    assert end(peer, halves[0], COMMIT).code == 1
    assert end(peer, halves[0] | {"producerGroup": "Other"}, COMMIT).remark == "The producer group wrong"
    assert end(peer, halves[7], COMMIT).code == 1
    running.restart()
    peer = running.peer()
    assert running.engine.broker is not None
    wait_for(lambda: running.engine.broker.transactions.check.ready, "the store was looked at")
    assert running.engine.broker.transactions.open_halves.count == 198
    assert len(records(peer.ask(11, pull_fields(TOPIC, 2, 1, j=0)).body)) == 1, "beside the one that was deleted"


def test_one_in_the_file_being_written_is_not_stored_over_and_over(running: RunningEngine) -> None:
    """Each copy postpones the question to its producers. After a start the log has the next file, too, so that the file
    being written is not the last one."""
    half = send_half(running.peer(), "open")
    assert running.engine.broker is not None
    log = running.engine.broker.store.log
    while log.written < 110_000:
        running.put("Filler", b"f" * 10_000)
    wait_for(lambda: log._allocator._ready is not None, "the next file is prepared")
    running.restart()
    broker = running.engine.broker
    assert broker is not None
    log = broker.store.log
    assert [segment.start for segment in log.segments] == [0, 1 << 16, 2 << 16]
    assert log.written < log.segments[1].end
    wait_for(lambda: broker.transactions.check.ready, "the store was looked at")
    cleaner = broker.store.cleaner
    cleaner._count_forced = lambda usage, stages: 2  # type: ignore[method-assign]

    def gone() -> bool:
        cleaner.wakeup()
        return log.min_offset > 0

    wait_for(gone, "the first file is gone", every=0.1)
    cleaner._count_forced = lambda usage, stages: 0  # type: ignore[method-assign]
    for _ in range(3):
        broker.transactions.check._review_wanted = True
        broker.transactions.check.wakeup()
        wait_for(lambda: not broker.transactions.check._review_wanted, "the oldest are looked at")
    queue = broker.store.find_queue(HALF, 0)
    assert queue is not None
    assert queue.next_offset == 2, "it was stored at one other place"
    assert end(running.peer(), half, COMMIT).code == 0


def test_what_left_the_log_is_not_open_after_a_start_that_finds_its_queue_as_it_was(
    running: RunningEngine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may stop after deleting a file and before correcting its queues; the next start corrects them later."""
    monkeypatch.setattr(QueueRepair, "_correct_min_offset", lambda *arguments: None)
    peer = running.peer()
    halves = [send_half(peer, f"K{number}") for number in range(200)]
    assert end(peer, halves[7], COMMIT).code == 0
    assert running.engine.broker is not None
    store = running.engine.broker.store
    store.cleaner._trimmer.follow_log = lambda file_pause_s: 0  # type: ignore[method-assign]
    delete_first_files(running)
    running.restart()
    assert running.engine.broker is not None
    wait_for(lambda: running.engine.broker.transactions.check.ready, "the store was looked at")
    assert running.engine.broker.transactions.open_halves.count == 199
    assert "cannot be read" not in caplog.text


def test_twice_and_after_a_restart(running: RunningEngine) -> None:
    peer = running.peer()
    half = send_half(peer, "K")
    leave(running)
    leave(running)
    places = [half | place(record) for record in stored(peer, HALF)]
    assert [one["tranStateTableOffset"] for one in places] == ["0", "1", "2"]
    running.restart()
    assert running.engine.broker is not None
    broker = running.engine.broker
    wait_for(lambda: broker.transactions.decisions.moved_to(0) is not None, "it was looked at")
    peer = running.peer()
    assert end(peer, places[0], COMMIT).code == 0
    assert [end(peer, one, COMMIT).code for one in places] == [1, 1, 1]
    assert len(stored(peer, TOPIC, 2)) == 1


def test_its_producers_are_asked_when_they_would_have_been(running: RunningEngine) -> None:
    """Where log files go faster than questions come, a half would never be asked about."""
    send_half(running.peer(), "K")
    assert running.engine.broker is not None
    halves = running.engine.broker.transactions.open_halves
    due_ms = halves.due_times({0})[0]
    for number in (1, 2, 3):
        leave(running)
        assert halves.due_times({number}) == {number: due_ms}
    assert halves.count == 1


def test_old_ones_are_put_back_when_much_was_decided_behind_them(
    running: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "MOST_OPS", 100)
    peer = running.peer()
    old = send_half(peer, "old")
    for number in range(150):
        assert end(peer, send_half(peer, f"K{number}"), ROLL_BACK).code == 0
    assert running.engine.broker is not None
    broker = running.engine.broker
    broker.transactions.check._review_wanted = True
    wait_for(lambda: broker.transactions.open_halves.lowest == 151, "the old one lies behind them")
    assert broker.transactions.decisions.progress()[0] == 151
    assert end(peer, old, COMMIT).code == 0
    assert len(stored(peer, TOPIC, 2)) == 1


def test_a_half_in_a_file_that_has_to_go_is_stored_once_more_though_the_disk_is_full(running: RunningEngine) -> None:
    engine = running.engine
    assert engine.broker is not None
    peer = running.peer()
    first = send_half(peer, "open")
    log = engine.broker.store.log
    engine.broker._loop.call_soon(lambda: log.refuse("the broker's disk is full", "disk"))
    wait_for(lambda: log.refused is not None, "it is full")
    edge = log.written
    keeps = engine.broker.transactions.check.keeps
    wait_for(lambda: keeps(edge) is None, "open halves are stored once more", every=0.01)
    assert log.refused is not None
    engine.broker._loop.call_soon(lambda: log.refuse(None, "disk"))
    wait_for(lambda: log.refused is None, "it has room")
    assert end(peer, first, COMMIT).code == 0


def test_a_file_may_go_when_its_halves_were_put_back_and_those_behind_it_cannot_be(
    running: RunningEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = running.engine.broker
    assert broker is not None
    peer = running.peer()
    send_half(peer, "first")
    log = broker.store.log
    while len(log.segments) < 2:
        running.put("Filler", b"f" * 20_000)
    send_half(peer, "behind")
    first, edge = log.segments[0].end, log.written
    decisions, keeps = broker.transactions.decisions, broker.transactions.check.keeps
    real = decisions.put_back
    monkeypatch.setattr(
        decisions, "put_back", lambda half, *rest: half.record.physical_offset < first and real(half, *rest)
    )

    def is_stuck() -> bool:
        return "the log takes nothing" in (keeps(edge) or "")

    wait_for(is_stuck, "the second one cannot be stored again", every=0.01)
    wait_for(lambda: keeps(first) is None, "the first file may go", every=0.01)
    assert keeps(edge) is not None
    monkeypatch.undo()
    wait_for(lambda: keeps(edge) is None, "open halves are stored once more", every=0.01)
    assert len(stored(peer, HALF)) == 4


@pytest.mark.parametrize("timed", [False, True])
def test_the_time_that_it_waited_takes_no_room_of_what_else_is_added(timed: bool) -> None:
    """Halves of older versions leave 96 bytes free. One that cannot be stored again would keep its file for ever."""
    for free in range(96, 200):
        text = "TIMER_DELAY_SEC\x019\x02" * timed + "k\x01"
        text += "v" * (MAX_PROPERTIES_BYTES - ADDED_BYTES * timed - free - len(text) - 1) + "\x02"
        for checks, waited in ((0, 9), (2, 10**12), (15, 10**13 - 1)):
            record: Any = SimpleNamespace(properties=text, queue_offset=10**18)
            text = put_back_text(Half(record, b"", "PG", Place(TOPIC, 0)), checks, waited)
            assert len(with_mark(text)) <= MAX_PROPERTIES_BYTES - ADDED_BYTES * timed
        assert waited_ms(text) == (waited if free >= 126 else 0)
