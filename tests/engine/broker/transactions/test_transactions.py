"""Half messages as a producer sees them: kept, committed, rolled back, asked about, and after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.broker.transactions import decisions
from appliance.engine.broker.transactions.half import half_of
from appliance.engine.protocol.message_id import decode_offset_id
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.protocol.record import decode_record
from tests.support.engine import Peer, RunningEngine, pull_fields, records, send_fields
from tests.support.waiting import wait_for

TOPIC, GROUP = "Orders", "PG"
HALF, OP, ASIDE = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLL_BACK, UNKNOWN = 8, 12, 0


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningEngine]:
    often = {"transaction_time_out_ms": 200, "transaction_check_interval_ms": 200, "transaction_check_max": 254}
    found = RunningEngine(tmp_path, broker=often)
    yield found
    found.stop()


def half_properties(key: str, more: str = "") -> str:
    return f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01{key}\x02TAGS\x01T\x02{more}"


def send_half(
    peer: Peer, key: str, more: str = "", body: bytes = b"x", queue_id: int = 2, **changes: Any
) -> dict[str, Any]:
    """Send a half message; return the fields of the request that ends it."""
    answer = peer.ask(310, send_fields(TOPIC, queue_id, half_properties(key, more), f=4, h=7) | changes, body)
    assert answer.code == 0, answer
    fields = answer.ext_fields
    assert (fields["queueId"], fields["transactionId"]) == (str(queue_id), key)
    return {
        "producerGroup": GROUP,
        "tranStateTableOffset": fields["queueOffset"],
        "commitLogOffset": str(decode_offset_id(fields["msgId"])[2]),
        "msgId": key,
        "transactionId": key,
        "fromTransactionCheck": "false",
    }


def end(peer: Peer, half: dict[str, Any], decision: int, **changes: Any) -> Any:
    return peer.ask(37, {**half, "commitOrRollback": str(decision), **changes})


def stored(peer: Peer, topic: str, queue_id: int = 0) -> list[Any]:
    answer = peer.ask(11, pull_fields(topic, queue_id, 0, j=0))
    return records(answer.body) if answer.code == 0 else []


def question(peer: Peer) -> Any:
    return next(frame for frame in iter(peer.receive, None) if frame.code == 39 and not frame.is_response)


def test_committed_and_rolled_back(running):
    peer = running.peer()
    kept, dropped = send_half(peer, "K1", "x\x01y\x02"), send_half(peer, "K2")
    assert stored(peer, TOPIC, 2) == []
    assert end(peer, kept, COMMIT).code == 0
    assert end(peer, dropped, ROLL_BACK).code == 0
    [message] = stored(peer, TOPIC, 2)
    assert (message.body, message.flag, message.sys_flag & 0xC) == (b"x", 7, 8)
    assert message.prepared_transaction_offset == int(kept["commitLogOffset"])
    found = decode_properties(message.properties)
    assert found["x"] == "y"
    assert found["__transactionId__"] == "K1"
    ops = [record.body for record in stored(peer, OP)]
    assert ops == [b"0", b"1"]
    half = stored(peer, HALF)[0]
    assert half.sys_flag & 0xC == 0
    assert (decode_properties(half.properties)["REAL_TOPIC"], decode_properties(half.properties)["REAL_QID"]) == (
        TOPIC,
        "2",
    )


@pytest.mark.parametrize(("first", "second"), [(COMMIT, COMMIT), (ROLL_BACK, COMMIT), (COMMIT, ROLL_BACK)])
def test_it_is_decided_once(running, first, second):
    peer = running.peer()
    half = send_half(peer, "K")
    assert end(peer, half, first).code == 0
    answer = end(peer, half, second)
    assert (answer.code, answer.remark) == (1, "the transaction was decided before")
    assert len(stored(peer, TOPIC, 2)) == (first == COMMIT)
    assert len(stored(peer, OP)) == 1


def test_a_commit_that_the_log_refuses_leaves_it_open(running):
    """The disk is full: the producer gets an error, and tries again."""
    peer = running.peer()
    half = send_half(peer, "K")
    log = running.engine.broker.store.log
    running.engine._on_loop(lambda: log.refuse("the disk is full", "test"))
    assert end(peer, half, COMMIT).code == 14
    running.engine._on_loop(lambda: log.refuse(None, "test"))
    assert end(peer, half, COMMIT).code == 0
    assert len(stored(peer, TOPIC, 2)) == 1


def test_more_op_messages_than_a_tick_takes_come_in_the_next_ones(running, monkeypatch):
    monkeypatch.setattr(decisions, "OPS_AT_ONCE", 2)
    peer, broker = running.peer(), running.engine.broker
    halves = [half_of(broker.store.records.find(int(send_half(peer, f"K{n}")["commitLogOffset"]))) for n in range(5)]

    def roll_all_back():
        for half in halves:
            broker.transactions.decisions.roll_back(half, decisions.NOBODY)

    running.engine._on_loop(roll_all_back)
    wait_for(lambda: len(stored(peer, OP)) == 5, "all are written")
    assert [record.body for record in stored(peer, OP)] == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"producerGroup": "Other"}, "The producer group wrong"),
        ({"tranStateTableOffset": "7"}, "The transaction state table offset wrong"),
        ({"commitLogOffset": "3"}, "Find prepared transaction message failed: no record begins there"),
        ({"commitLogOffset": "-1"}, "Find prepared transaction message failed: its file has left the log"),
        (
            {"commitLogOffset": str(1 << 62)},
            "Find prepared transaction message failed: the log does not reach there yet",
        ),
    ],
)
def test_another_half_than_the_named_one(running, changes, remark):
    peer = running.peer()
    half = send_half(peer, "K")
    answer = end(peer, half, COMMIT, **changes)
    assert (answer.code, answer.remark) == (1, remark)
    assert end(peer, half, COMMIT).code == 0


def test_its_producers_are_asked(running):
    producer = running.produce_as("p1", GROUP)
    half = send_half(producer, "K")
    asked = question(producer)
    assert asked.is_oneway
    assert asked.ext_fields["tranStateTableOffset"] == half["tranStateTableOffset"]
    record = decode_record(asked.body)
    assert (record.topic, record.queue_id, record.body) == (TOPIC, 2, b"x")
    assert decode_properties(record.properties)["TRANSACTION_CHECK_TIMES"] == "1"
    assert decode_properties(decode_record(question(producer).body).properties)["TRANSACTION_CHECK_TIMES"] == "2"
    assert end(producer, half, COMMIT, fromTransactionCheck="true").code == 0
    assert len(stored(running.peer(), TOPIC, 2)) == 1


def test_who_comes_later_is_asked(running):
    peer = running.peer()
    half = send_half(peer, "K")
    later = running.produce_as("p2", GROUP)
    assert question(later).ext_fields["commitLogOffset"] == half["commitLogOffset"]


def test_set_aside_after_the_last_question(tmp_path):
    running = RunningEngine(
        tmp_path,
        broker={"transaction_time_out_ms": 10, "transaction_check_interval_ms": 60, "transaction_check_max": 3},
    )
    producer = running.produce_as("p1", GROUP)
    half = send_half(producer, "K")
    for times in ("1", "2", "3"):
        assert decode_properties(decode_record(question(producer).body).properties)["TRANSACTION_CHECK_TIMES"] == times
    [aside] = wait_for(lambda: stored(running.peer(), ASIDE), "the message that was set aside")
    assert (aside.body, decode_properties(aside.properties)["TRANSACTION_CHECK_TIMES"]) == (b"x", "3")
    assert end(running.peer(), half, COMMIT).code == 1
    assert stored(running.peer(), TOPIC, 2) == []
    running.stop()


def test_after_a_restart(running):
    peer = running.peer()
    halves = [send_half(peer, f"K{number}") for number in range(5)]
    assert end(peer, halves[0], COMMIT).code == 0
    assert end(peer, halves[3], ROLL_BACK).code == 0
    running.restart()
    peer = running.peer()
    assert end(peer, halves[0], COMMIT).remark == "the transaction was decided before"
    assert end(peer, halves[3], COMMIT).remark == "the transaction was decided before"
    assert end(peer, halves[1], COMMIT).code == 0
    producer = running.produce_as("p1", GROUP)
    asked = {question(producer).ext_fields["msgId"] for _ in range(2)}
    assert asked == {"K2", "K4"}
    assert [record.queue_offset for record in stored(peer, TOPIC, 2)] == [0, 1]


def test_apache_would_go_on_from_the_oldest_open_one(running):
    peer = running.peer()
    halves = [send_half(peer, f"K{number}") for number in range(3)]
    end(peer, halves[0], COMMIT)
    end(peer, halves[2], ROLL_BACK)

    def saved() -> dict[str, int]:
        found = running.engine.broker.offsets
        return {topic: found.get("CID_RMQ_SYS_TRANS", topic, 0) for topic in (HALF, OP)}

    # Op messages are kept in runs: the first one is not passed while another one of its run counts.
    wait_for(lambda: saved() == {HALF: 1, OP: 0}, "the saved offsets")
    end(peer, halves[1], COMMIT)
    wait_for(lambda: saved() == {HALF: 3, OP: 3}, "the saved offsets")
