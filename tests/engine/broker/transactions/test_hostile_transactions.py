"""Requests that no good client sends: half messages with invented properties, and decisions about anything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.broker.transactions.resolved import How
from appliance.engine.protocol.command import RemotingCommand, encode_command
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.protocol.record import decode_record, encode_record
from tests.engine.broker.transactions.test_put_back import delete_first_files, leave
from tests.engine.broker.transactions.test_transactions import (
    ASIDE,
    COMMIT,
    HALF,
    OP,
    ROLL_BACK,
    TOPIC,
    end,
    half_properties,
    question,
    send_half,
    stored,
)
from tests.support.engine import Peer, RunningEngine, pull_fields, records, send_fields
from tests.support.waiting import wait_for

KEY = "TRAN_MSG\x01true\x02UNIQ_KEY\x01K\x02"
SMALL_SYNCED = {"flush_disk_type": "SYNC_FLUSH", "mapped_file_size_commit_log": 1 << 16}
#: Nothing is set aside while a test goes on.
TIMES = {"transaction_time_out_ms": 100, "transaction_check_interval_ms": 100, "transaction_check_max": 254}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningEngine]:
    found = RunningEngine(tmp_path, broker=TIMES)
    yield found
    found.stop()


def ask_half(peer: Peer, properties: str, **fields: Any) -> Any:
    return peer.ask(310, send_fields(TOPIC, 0, properties, **({"f": 4} | fields)), b"x")


@pytest.mark.parametrize(
    ("properties", "fields"),
    [
        (KEY, {}),
        (KEY + "PGROUP\x01\x02", {}),
        (KEY + "PGROUP\x01no group\x02", {}),
        (KEY + f"PGROUP\x01{'g' * 256}\x02", {}),
        (KEY + "PGROUP\x01PG\x02DELAY\x01soon\x02", {}),
        (KEY + "PGROUP\x01PG\x02INNER_NUM\x013\x02", {}),
        (KEY + "PGROUP\x01PG\x02", {"f": 4 | 128}),
        (KEY + "PGROUP\x01PG\x02", {"m": "true"}),
        (KEY + f"PGROUP\x01PG\x02k\x01{chr(0) * 512}\x02", {}),
        (KEY.replace("true", "false") + "PGROUP\x01PG\x02", {}),
    ],
)
def test_half_messages_that_nothing_could_come_of_are_refused(running, properties, fields):
    peer = running.peer()
    answer = ask_half(peer, properties, **fields)
    assert answer.code == 13, answer
    assert stored(peer, HALF) == []
    assert running.engine.broker.transactions.open_halves.count == 0


@pytest.mark.parametrize("topic", [HALF, OP, ASIDE])
def test_nobody_sends_to_the_topics_of_transactions(running, topic):
    """A forged op message would decide other producers' transactions at the next start."""
    peer = running.peer()
    for properties, flags in ((KEY + "PGROUP\x01PG\x02", 4), ("UNIQ_KEY\x01K\x02TAGS\x01d\x02", 0)):
        assert peer.ask(310, send_fields(topic, 0, properties, f=flags), b"0,").code == 16
    assert running.engine.broker.store.find_queue(topic, 0) is None or stored(peer, topic) == []


def test_what_a_half_message_says_of_itself_does_not_count(running):
    """The broker alone decides where it goes, its transaction's id, and how often it was checked."""
    peer = running.peer()
    producer = running.produce_as("p1", "PG")
    claims = (
        "REAL_TOPIC\x01Elsewhere\x02REAL_QID\x0177\x02__transactionId__\x01other\x02"
        "TRANSACTION_CHECK_TIMES\x01254\x02TRAN_PREPARED_QUEUE_OFFSET\x010\x02"
    )
    half = send_half(peer, "K", claims)
    asked = decode_properties(decode_record(question(producer).body).properties)
    assert asked["TRANSACTION_CHECK_TIMES"] == "1"
    assert "TRAN_PREPARED_QUEUE_OFFSET" not in asked
    assert (asked["REAL_TOPIC"], asked["REAL_QID"], asked["__transactionId__"]) == (TOPIC, "2", "K")
    assert end(peer, half, COMMIT).code == 0
    assert [record.body for record in stored(peer, TOPIC, 2)] == [b"x"]
    assert stored(peer, ASIDE) == []


@pytest.mark.parametrize("seconds", ["x", "-1", "-99", "9" * 30, "1e5", " 5", "٣", ""])
def test_an_immunity_that_is_none_is_the_brokers_own(running, seconds):
    producer = running.produce_as("p1", "PG")
    send_half(running.peer(), "K", f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{seconds}\x02")
    assert question(producer).ext_fields["msgId"] == "K"


def test_properties_as_long_as_they_may_be_are_asked_about_and_set_aside(tmp_path):
    """The broker writes its check count into them."""
    running = RunningEngine(tmp_path, broker=TIMES | {"transaction_check_max": 2})
    peer = running.peer()
    taken, refused = 32_000, 32_767
    while refused - taken > 1:
        length = (taken + refused) // 2
        if ask_half(peer, half_properties("L", f"k\x01{'v' * length}\x02")).code == 13:
            refused = length
        else:
            taken = length
    producer = running.produce_as("p1", "PG")
    send_half(peer, "M", f"k\x01{'v' * taken}\x02")
    asked = decode_properties(decode_record(question(producer).body).properties)
    while asked["UNIQ_KEY"] != "M":
        asked = decode_properties(decode_record(question(producer).body).properties)
    assert (len(asked["k"]), asked["TRANSACTION_CHECK_TIMES"]) == (taken, "1")
    wait_for(lambda: running.engine.broker.transactions.open_halves.count == 0, "all were set aside")
    running.stop()


@pytest.mark.parametrize("decision", [0, 1, 99, -8, 2**31 - 1])
def test_what_is_no_decision_changes_nothing(running, decision):
    peer = running.peer()
    half = send_half(peer, "K")
    peer.send(37, {**half, "commitOrRollback": decision})
    assert peer.is_silent(0.1)
    assert end(peer, half, COMMIT).code == 0


@pytest.mark.parametrize("field", ["commitOrRollback", "commitLogOffset", "tranStateTableOffset", "producerGroup"])
@pytest.mark.parametrize("value", ["", "x", "9" * 40, str(-(2**63)), str(2**63 - 1), "0x10"])
def test_decisions_with_fields_of_nonsense(running, field, value):
    peer = running.peer()
    half = send_half(peer, "K")
    answer = peer.ask(37, {**half, "commitOrRollback": "8", field: value})
    assert (answer.code, bool(answer.remark)) == (1, True)
    assert stored(peer, TOPIC, 2) == []
    assert end(peer, half, ROLL_BACK).code == 0


def test_a_decision_about_what_is_no_half_message(running):
    """Another message of the log, a committed copy, an op message, and bytes within a body that look like a half."""
    peer = running.peer()
    half = send_half(peer, "K")
    other = send_half(peer, "O", body=b"\0" * 300)
    assert end(peer, half, COMMIT).code == 0
    [copy] = stored(peer, TOPIC, 2)
    [op] = stored(peer, OP)
    wrong = [copy.physical_offset, op.physical_offset, int(other["commitLogOffset"]) + 100]
    for physical in wrong:
        for offset in ("0", "1"):
            answer = end(peer, other, COMMIT, commitLogOffset=str(physical), tranStateTableOffset=offset)
            assert (answer.code, "Find prepared transaction message failed" in answer.remark) == (1, True)
    assert end(peer, other, ROLL_BACK).code == 0
    assert len(stored(peer, TOPIC, 2)) == 1


def test_a_copy_that_names_no_half_ends_none_at_the_next_start(tmp_path):
    """The half lies at the very beginning of the log, at 0: neither a delivered message nor a body may be read as
    naming it."""
    running = RunningEngine(tmp_path, store={"message_delay_level": "0s"})
    peer = running.peer()
    first = send_half(peer, "K")
    assert first["commitLogOffset"] == "0"
    delayed = send_half(peer, "D", "DELAY\x011\x02")
    assert end(peer, delayed, COMMIT).code == 0
    assert peer.ask(310, send_fields(TOPIC, 0, "UNIQ_KEY\x01B\x02"), b"\x1aTRANS_CHECK_MAX_TIME_TOPIC").code == 0
    [copy] = wait_for(lambda: stored(peer, TOPIC, 2), "the delayed message")
    assert (copy.sys_flag & 0xC, copy.prepared_transaction_offset) == (COMMIT, 0)
    running.restart()
    peer = running.peer()
    answer = end(peer, first, COMMIT)
    assert (answer.code, answer.remark) == (0, None)
    assert end(peer, delayed, COMMIT).remark == "the transaction was decided before"
    running.stop()


def test_producers_that_read_no_question_cost_a_bounded_memory(running):
    """Each producer gets checks until a mebibyte waits for it; a check that was not sent does not count."""
    deaf = running.produce_as("deaf", "PG")
    peer = running.peer()
    for number in range(40):
        send_half(peer, f"K{number}", body=b"\1" * 300_000)
    broker = running.engine.broker
    checks, halves = broker.transactions.check, broker.transactions.open_halves
    wait_for(lambda: checks.asked > 0, "a question")

    def stands_still() -> bool:
        before = checks.asked
        time.sleep(0.5)  # several rounds
        return checks.asked == before

    wait_for(stands_still, "nobody is asked any more")
    [channel] = broker.clients.producer_channels("PG")
    assert channel.conn.outbox_bytes < (1 << 20) + 400_000
    assert halves.count == 40
    assert any(halves.checks(offset) == 0 for offset in range(40))
    assert deaf.receive().code == 39
    while checks.asked < 200:  # it reads again, and gets checks again
        deaf.receive()


def test_a_thousand_decisions_in_one_piece_each_twice(running):
    """Each counts once, in order."""
    peer = running.peer()
    halves = [send_half(peer, f"K{number}", body=b"%d" % number) for number in range(1000)]
    decisions = [COMMIT if number % 3 else ROLL_BACK for number in range(1000)]
    ends = [
        RemotingCommand(37, opaque=1, flag=2, ext_fields={**half, "commitOrRollback": str(decision)})
        for half, decision in zip(halves, decisions, strict=True)
        for decision in (decision, COMMIT)
    ]
    peer.send_bytes(*(encode_command(one) for one in ends))
    wait_for(lambda: running.engine.broker.transactions.open_halves.count == 0, "all were decided")
    expected = [b"%d" % number for number in range(1000) if decisions[number] == COMMIT]
    assert all_stored(peer, TOPIC, 2) == expected
    listed = wait_for(lambda: found if len(found := all_stored(peer, OP)) == 1000 else None, "their op messages")
    assert sorted(map(int, listed)) == list(range(1000))
    assert running.engine.broker.transactions.decisions.counts == {
        How.COMMITTED: len(expected),
        How.ROLLED_BACK: 1000 - len(expected),
    }


def all_stored(peer: Peer, topic: str, queue_id: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while (answer := peer.ask(11, pull_fields(topic, queue_id, len(found)))).code == 0:
        found += [record.body for record in records(answer.body)]
    return found


def test_a_topic_that_was_deleted_between_half_and_commit(running):
    """The commit is refused, also when a topic of that name exists again, which is another one. Nothing is lost: the
    half stays open, and is set aside at last."""
    peer = running.peer()
    half, other = send_half(peer, "K"), send_half(peer, "O")
    assert peer.ask(215, {"topic": TOPIC}).code == 0
    answer = end(peer, half, COMMIT)
    assert (answer.code, answer.remark) == (1, f"topic[{TOPIC}] not exist")
    assert end(peer, other, ROLL_BACK).code == 0
    assert running.engine.broker.transactions.open_halves.count == 1
    send_half(peer, "N")  # this makes the topic
    answer = end(peer, half, COMMIT)
    assert (answer.code, "was deleted after the half message was sent" in answer.remark) == (1, True)
    assert stored(peer, TOPIC, 2) == []
    assert running.engine.broker.transactions.open_halves.count == 2


def test_a_topic_with_fewer_queues_than_at_the_half(running):
    """The committed message goes to a queue that consumers read."""
    peer = running.peer()
    half = send_half(peer, "K", queue_id=3)
    fields = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    assert peer.ask(17, fields).code == 0
    assert end(peer, half, COMMIT).code == 0
    assert len(stored(peer, TOPIC, 0)) + len(stored(peer, TOPIC, 3)) == 1
    assert stored(peer, TOPIC, 0) != []


def test_a_log_that_takes_nothing_keeps_the_transaction_open(running):
    """The log is read-only: the decision is refused, and the transaction is checked after the restart."""
    peer = running.peer()
    half, other = send_half(peer, "K"), send_half(peer, "O")
    store = running.engine.broker.store
    running.engine.broker._loop.call_soon(lambda: store.log.fail("as the test wants it"))
    wait_for(lambda: store.log.broken is not None, "a broken log")
    assert end(peer, half, COMMIT).code == 14
    assert end(peer, other, ROLL_BACK).code in (1, 14)
    running.restart()
    peer = running.peer()
    assert stored(peer, TOPIC, 2) == []
    assert end(peer, half, COMMIT).code == 0
    assert end(peer, other, ROLL_BACK).code == 0


@pytest.mark.parametrize("gone", [False, True])
def test_a_body_that_looks_like_a_half_message_that_was_put_back(tmp_path, gone):
    """Its old place is no open one, and still ends it."""
    running = RunningEngine(tmp_path, broker={"transaction_time_out_ms": 60_000}, store=SMALL_SYNCED)
    peer = running.peer()
    victim = send_half(peer, "VICTIM", body=b"real")
    [half] = stored(peer, HALF)
    leave(running)
    if gone:
        delete_first_files(running)
    running.put(TOPIC, b"where the log ends")
    [last] = stored(peer, TOPIC)
    forged_at = last.physical_offset + last.size + 88
    hosts = b"\x7f\0\0\1\0\0\0\1", b"\x7f\0\0\1\0\0\0\1"
    running.put(TOPIC, encode_record(half._replace(physical_offset=forged_at, body=b"forged"), *hosts))
    answer = end(peer, victim, COMMIT, commitLogOffset=str(forged_at))
    assert (answer.code, answer.remark) == (1, "Find prepared transaction message failed: no record begins there")
    assert end(peer, victim, COMMIT).code == 0
    assert [record.body for record in stored(peer, TOPIC, 2)] == [b"real"]
    running.stop()


@pytest.mark.parametrize("decision", [COMMIT, ROLL_BACK])
@pytest.mark.parametrize("in_files", [False, True])
def test_a_body_that_looks_like_somebodys_half_message_ends_nothing(running, decision, in_files):
    """The forgery names its own place and has all properties of the real half message, which stays open."""
    peer = running.peer()
    victim = send_half(peer, "VICTIM", body=b"real")
    [half] = stored(peer, HALF)
    running.put(TOPIC, b"where the log ends")
    [last] = stored(peer, TOPIC)
    forged_at = last.physical_offset + last.size + 88  # the body of the next record
    hosts = b"\x7f\0\0\1\0\0\0\1", b"\x7f\0\0\1\0\0\0\1"
    running.put(TOPIC, encode_record(half._replace(physical_offset=forged_at, body=b"forged"), *hosts))
    queue = running.engine.broker.store.find_queue(HALF, 0)
    assert queue is not None
    if in_files:
        wait_for(lambda: queue.tail_base > 0, "the queue's file has its entry")
    answer = end(peer, victim, decision, commitLogOffset=str(forged_at))
    assert (answer.code, answer.remark) == (
        1,
        "Find prepared transaction message failed: no record begins there",
    )
    assert end(peer, victim, COMMIT).code == 0
    assert [record.body for record in stored(peer, TOPIC, 2)] == [b"real"]
