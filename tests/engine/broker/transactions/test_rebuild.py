"""Open half messages found by a start: copies without op message, halves that Apache put back, and records that only
look like one of these."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.broker.transactions.op_runs import TOGETHER, OpRuns
from appliance.engine.broker.transactions.open_halves import LOOKED_AT_ONCE, OpenHalves
from appliance.engine.protocol.message_id import encode_host
from tests.engine.broker.transactions.test_transactions import (
    ASIDE,
    COMMIT,
    HALF,
    OP,
    ROLL_BACK,
    TOPIC,
    end,
    half_properties,
    send_half,
    stored,
)
from tests.support.engine import Peer, RunningEngine
from tests.support.waiting import wait_for


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningEngine]:
    found = RunningEngine(tmp_path, broker={"transaction_time_out_ms": 3_600_000})
    yield found
    found.stop()


def restart(running: RunningEngine) -> list[int]:
    """Restart; return the offsets of the half messages that are open then."""
    running.restart()
    broker = running.engine.broker
    assert broker is not None
    wait_for(lambda: broker.transactions.check.ready, "the store was looked at")
    return broker.transactions.open_halves.all(0, 1000)


def put_back_by_apache(running: RunningEngine, key: str, more: str, number: int = 0) -> None:
    """Store a half again as Apache does, with its birth; the running broker does not learn of it before the next start.
    number: which half of that key it copies."""
    broker = running.engine.broker
    assert broker is not None
    text = half_properties(key, f"REAL_TOPIC\x01{TOPIC}\x02REAL_QID\x012\x02__transactionId__\x01{key}\x02{more}")
    halves = [one for one in stored(running.peer(), HALF) if f"\x01{key}\x02" in one.properties]
    born = (halves[number].born_time_ms, encode_host(*halves[number].born_host)) if halves else (1, b"")
    half = OwnMessage(HALF, 0, b"x", text, key, *born)
    [outcome] = broker.sending.appends.submit([half]).result(60)
    assert outcome.is_stored


def write_no_ops(running: RunningEngine) -> None:
    """Skip op messages from now on, as if a crash had cut them off."""
    broker = running.engine.broker
    assert broker is not None
    broker.transactions.decisions._put_op = lambda offset: False  # type: ignore[method-assign]


def test_a_commit_without_op_message(running: RunningEngine) -> None:
    peer = running.peer()
    halves = [send_half(peer, f"K{number}") for number in range(3)]
    write_no_ops(running)
    assert end(peer, halves[1], COMMIT).code == 0
    assert restart(running) == [0, 2]
    peer = running.peer()
    assert end(peer, halves[1], COMMIT).code == 1
    assert len(stored(peer, TOPIC, 2)) == 1
    wait_for(lambda: [record.body for record in stored(peer, OP)] == [b"1"], "its op message comes after all")


def test_what_was_put_back_without_op_message(running: RunningEngine) -> None:
    peer = running.peer()
    half = send_half(peer, "K")
    write_no_ops(running)
    broker = running.engine.broker
    assert broker is not None
    edge = broker.store.log.written
    wait_for(lambda: broker.transactions.check.keeps(edge) is None, "it lies elsewhere")
    assert restart(running) == [1]
    peer = running.peer()
    wait_for(lambda: running.engine.broker.transactions.decisions.moved_to(0), "it was looked at")  # type: ignore[union-attr]
    assert end(peer, half, COMMIT).code == 0
    assert len(stored(peer, TOPIC, 2)) == 1


def test_what_was_set_aside_without_op_message(tmp_path: Path) -> None:
    fast = {"transaction_time_out_ms": 300, "transaction_check_interval_ms": 50, "transaction_check_max": 1}
    running = RunningEngine(tmp_path, broker=fast)
    write_no_ops(running)
    producer = running.produce_as("p", "PG")
    send_half(producer, "K")
    wait_for(lambda: stored(running.peer(), ASIDE), "it is set aside")
    assert restart(running) == []
    running.stop()


def test_a_body_that_looks_like_one_set_aside(running: RunningEngine) -> None:
    """It names no half. Read as a number, that would be offset 0, the log's first record."""
    half = send_half(running.peer(), "K")
    assert half["commitLogOffset"] == "0"
    running.put("Other", b"\x1aTRANS_CHECK_MAX_TIME_TOPIC")
    broker = running.engine.broker
    assert broker is not None
    broker.topics.create_retry_topic(ASIDE, 1, 6)
    aside_by_apache = OwnMessage(ASIDE, 0, b"x", half_properties("other"), "other", 1)
    assert broker.sending.appends.submit([aside_by_apache]).result(60)[0].is_stored
    assert restart(running) == [0]
    assert end(running.peer(), half, COMMIT).code == 0


def test_of_two_places_the_older_one_stays(running: RunningEngine) -> None:
    half = send_half(running.peer(), "K")
    put_back_by_apache(running, "K", "TRANSACTION_CHECK_TIMES\x012\x02")
    put_back_by_apache(running, "K", "TRANSACTION_CHECK_TIMES\x013\x02")
    assert restart(running) == [0]
    peer = running.peer()
    places = [half | {"tranStateTableOffset": str(record.queue_offset), "commitLogOffset": str(record.physical_offset)}
              for record in stored(peer, HALF)]  # fmt: skip
    assert end(peer, places[1], COMMIT).code == 0
    assert [end(peer, place, COMMIT).code for place in places] == [1, 1, 1]
    assert len(stored(peer, TOPIC, 2)) == 1
    assert restart(running) == []


@pytest.mark.parametrize("decision", [COMMIT, ROLL_BACK])
@pytest.mark.parametrize("open_before", [False, True], ids=["passed", "not passed"])
def test_a_copy_of_what_was_decided(running: RunningEngine, decision: int, open_before: bool) -> None:
    """It is recognised by its first place, even if Apache or RocketBox had passed the op message by then."""
    peer = running.peer()
    if open_before:
        send_half(peer, "older")
    decided = send_half(peer, "K")
    assert end(peer, decided, decision).code == 0
    first = decided["tranStateTableOffset"]
    if not open_before:
        offsets = running.engine.broker.offsets  # type: ignore[union-attr]
        wait_for(lambda: offsets.get("CID_RMQ_SYS_TRANS", HALF, 0) == 1, "it is passed")
    put_back_by_apache(running, "K", f"TRANSACTION_CHECK_TIMES\x011\x02TRAN_PREPARED_QUEUE_OFFSET\x01{first}\x02")
    send_half(running.peer(), "younger")
    last = int(first) + 2
    if open_before:
        assert restart(running) == [0, last]
    else:
        running.engine.broker.offsets.commit_own(HALF, 1)  # type: ignore[union-attr]
        running.engine.broker.transactions.check._progress = None  # type: ignore[union-attr]
        running.engine.broker.transactions.check.ready = False  # type: ignore[union-attr]
        assert restart(running) == [last]


def test_a_committed_message_with_the_key_of_a_copy(running: RunningEngine) -> None:
    """Apache had put the half back before, so that only the key links the two."""
    peer = running.peer()
    send_half(peer, "older")
    decided = send_half(peer, "K")
    assert end(peer, decided, COMMIT).code == 0
    put_back_by_apache(running, "K", "TRANSACTION_CHECK_TIMES\x011\x02")
    put_back_by_apache(running, "L", "TRANSACTION_CHECK_TIMES\x011\x02")
    assert restart(running) == [0, 3]


def test_what_a_producer_says_of_checks_counts_for_nothing(running: RunningEngine) -> None:
    """A producer may send properties again that it once received."""
    more = "TRANSACTION_CHECK_TIMES\x0199\x02TRAN_PREPARED_QUEUE_OFFSET\x010\x02ROCKETBOX_FIRST_HALF\x010\x02"
    peer = running.peer()
    first = send_half(peer, "K")
    assert end(peer, first, COMMIT).code == 0
    second = send_half(peer, "K", more)
    [_, half] = stored(peer, HALF)
    assert "\x0199\x02" not in half.properties
    assert restart(running) == [1]
    assert end(running.peer(), second, COMMIT).code == 0


def send_back(running: RunningEngine, peer: Peer, physical: int) -> None:
    """Turn a committed message into a dead letter, which has the "committed" flag and names offset 0."""
    fields = {"offset": str(physical), "group": "G", "delayLevel": "-1", "originMsgId": "x", "originTopic": TOPIC}
    assert peer.ask(36, fields).code == 0


@pytest.mark.parametrize("more", ["", "DELAY\x011\x02"], ids=["at once", "delayed"])
def test_a_half_at_offset_0_stays_open_when_one_of_its_key_ends(running: RunningEngine, more: str) -> None:
    """A Java message that is sent twice has one key; copies of copies name offset 0, whichever half they come from."""
    peer = running.peer()
    first, twin = send_half(peer, "K", more), send_half(peer, "K", more)
    assert first["commitLogOffset"] == "0"
    assert end(peer, twin, COMMIT).code == 0
    wait_for(lambda: stored(peer, TOPIC, 2), "its copy is there")
    [copy] = stored(peer, TOPIC, 2)
    send_back(running, peer, copy.physical_offset)
    wait_for(lambda: stored(peer, "%DLQ%G"), "it is a dead letter")
    assert restart(running) == [0]
    assert end(running.peer(), first, COMMIT).code == 0


@pytest.mark.parametrize("more", ["", "DELAY\x015\x02", "TIMER_DELAY_SEC\x0160\x02"], ids=["", "delay", "timer"])
def test_a_half_at_offset_0_that_was_committed_without_op_message(running: RunningEngine, more: str) -> None:
    peer = running.peer()
    half = send_half(peer, "K", more)
    write_no_ops(running)
    assert end(peer, half, COMMIT).code == 0
    assert restart(running) == []


def test_of_two_halves_of_one_key_that_apache_put_back_both_stay(running: RunningEngine) -> None:
    peer = running.peer()
    halves = [send_half(peer, "K"), send_half(peer, "K", g=5)]
    for number, half in enumerate(halves):
        put_back_by_apache(running, "K", "TRANSACTION_CHECK_TIMES\x011\x02", number)
        assert end(peer, half, ROLL_BACK).code == 0  # as Apache writes it about the old place
    assert restart(running) == [2, 3]


# --- parts


def test_a_look_at_what_is_due_passes_so_many_decided_ones() -> None:
    """A hundred thousand that ended meanwhile do not delay the open one."""
    halves = OpenHalves()
    for offset in range(100_000):
        halves.open(offset, 0)
    halves.open(100_000, 0)
    for offset in range(100_000):
        halves.close(offset)
    found, looks, passed = [], 0, 0
    while halves.is_due(1000):
        before = sum(len(bucket) for bucket in halves._buckets.values())
        found += halves.take_due(1000, 64)
        passed = before - sum(len(bucket) for bucket in halves._buckets.values())
        looks += 1
        assert passed <= LOOKED_AT_ONCE
    assert found == [100_000]
    assert looks >= 100_000 // LOOKED_AT_ONCE


def test_runs_of_op_messages() -> None:
    runs = OpRuns()
    for offset in range(3 * TOGETHER):
        runs.note(offset, 1000 + offset)
    assert (runs.count, runs.first) == (3 * TOGETHER, 0)
    assert runs.highest_of_older_half() == 1000 + 2 * TOGETHER - 1
    runs.pass_below(1000 + TOGETHER)
    assert (runs.count, runs.first) == (2 * TOGETHER, TOGETHER)
    earlier = OpRuns()
    earlier.note(0, 1)
    later, later_count = runs, runs.count
    later.put_before(earlier)
    assert (later.first, later.count) == (0, later_count + 1)
    later.pass_below(1 << 40)
    assert (later.first, later.count, later.highest_of_older_half()) == (None, 0, -1)


@pytest.mark.parametrize("name", ["TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "ROCKETBOX_FIRST_HALF"])
def test_halves_of_one_key_that_only_speak_of_being_put_back(running: RunningEngine, name: str) -> None:
    """A client that sends a half message again reuses its key."""
    peer = running.peer()
    for _ in range(2):
        send_half(peer, "K", f"x\x01{name}\x02")
    assert restart(running) == [0, 1]


def test_halves_of_one_key_that_we_put_back(running: RunningEngine) -> None:
    """They stay two, however often their producers were checked."""
    peer = running.peer()
    for _ in range(2):
        send_half(peer, "K")
    broker = running.engine.broker
    assert broker is not None
    broker._loop.call_soon(lambda: broker.transactions.open_halves.set_checks(0, 3))
    wait_for(lambda: broker.transactions.open_halves.checks(0) == 3, "it counts")
    edge = broker.store.log.written
    wait_for(lambda: broker.transactions.check.keeps(edge) is None, "they lie elsewhere")
    assert restart(running) == [2, 3]
    assert restart(running) == [2, 3]
