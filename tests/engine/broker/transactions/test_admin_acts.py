"""Administrators end transactions: in the journal before it is done, and only one decision counts."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from appliance.engine.broker.transactions.admin_acts import COMMIT, ROLL_BACK, Chosen, Fate
from appliance.engine.broker.transactions.admin_journal import DONE, TOO_LATE
from appliance.engine.broker.transactions.resolved import By, How
from appliance.engine.disk import Disk
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.protocol.record import decode_record
from tests.engine.broker.transactions import test_transactions as t
from tests.engine.broker.transactions.test_transactions import (
    ASIDE,
    GROUP,
    OP,
    TOPIC,
    end,
    question,
    send_half,
    stored,
)
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for

WHY = "the order was paid"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningEngine]:
    found = RunningEngine(tmp_path, broker={"transaction_time_out_ms": 3_600_000})  # only tests ask
    yield found
    found.stop()


def acts(running: RunningEngine):
    return running.engine.broker.transactions.acts


def test_commit_and_roll_back(running):
    peer = running.peer()
    halves = [send_half(peer, f"K{number}") for number in range(3)]
    [done] = acts(running).decide(COMMIT, [Chosen(0, "K0")], WHY, "alice")
    assert done.fate is Fate.DONE
    [done] = acts(running).decide(ROLL_BACK, [Chosen(1)], WHY, "alice")
    assert done.fate is Fate.DONE
    [message] = stored(peer, TOPIC, 2)
    assert message.prepared_transaction_offset == int(halves[0]["commitLogOffset"])
    assert [record.body for record in stored(peer, OP)] == [b"0", b"1"]
    # The producers come too late, and get that answer.
    for half, decision in ((halves[0], t.ROLL_BACK), (halves[1], t.COMMIT)):
        answer = end(peer, half, decision)
        assert (answer.code, answer.remark) == (1, "the transaction was decided before")
    assert len(stored(peer, TOPIC, 2)) == 1
    found = running.engine.broker.transactions.resolved.find(1, int(halves[1]["commitLogOffset"]))
    assert (found.how, found.by) == (How.ROLLED_BACK, By.ADMINISTRATOR)
    act = acts(running).journal.of(int(halves[1]["commitLogOffset"]))
    assert (act.action, act.by, act.reason, act.topic, act.group) == (ROLL_BACK, "alice", WHY, TOPIC, GROUP)
    assert acts(running).journal.unfinished() == []


def test_what_cannot_be_decided_changes_nothing(running):
    peer = running.peer()
    halves = [send_half(peer, f"K{number}") for number in range(2)]
    end(peer, halves[0], t.COMMIT)
    wanted = [Chosen(0, "K0"), Chosen(1, "another"), Chosen(2), Chosen(-1)]
    found = [one.fate for one in acts(running).decide(COMMIT, wanted, WHY, "alice")]
    assert found == [Fate.DECIDED, Fate.ANOTHER, Fate.GONE, Fate.GONE]
    assert acts(running).journal.newest(10) == []
    assert running.engine.broker.transactions.open_halves.count == 1


def test_a_commit_that_is_refused_leaves_it_open(running):
    peer = running.peer()
    send_half(peer, "K")
    running.window.topic_commands.delete(TOPIC, force=True)
    [found] = acts(running).decide(COMMIT, [Chosen(0)], WHY, "alice")
    assert (found.fate, found.reason) == (Fate.REFUSED, f"topic[{TOPIC}] not exist")
    assert running.engine.broker.transactions.open_halves.checks(0) == 0
    assert acts(running).journal.unfinished() == []
    [found] = acts(running).decide(ROLL_BACK, [Chosen(0)], WHY, "alice")
    assert found.fate is Fate.DONE


def test_without_its_journal_nothing_is_done(running):
    peer = running.peer()
    half = send_half(peer, "K")
    acts(running).journal.close()
    [found] = acts(running).decide(COMMIT, [Chosen(0)], WHY, "alice")
    assert found.fate is Fate.NOT_SAVED
    assert stored(peer, TOPIC, 2) == []
    assert end(peer, half, t.COMMIT).code == 0


def test_what_a_dead_process_had_written_down_is_done_at_the_next_start(running):
    peer = running.peer()
    halves = [send_half(peer, f"K{number}") for number in range(4)]
    found = acts(running)
    ids = found.journal.next_ids(4)
    looked = [found.look(Chosen(number)) for number in range(4)]
    actions = (COMMIT, ROLL_BACK, COMMIT, COMMIT)
    written = [
        found._act(act_id, action, one, WHY, "alice") for act_id, action, one in zip(ids, actions, looked, strict=True)
    ]
    end(peer, halves[2], t.ROLL_BACK)  # the producer was first
    written[3] = msgspec.structs.replace(written[3], stored_ms=written[3].stored_ms + 1)  # another half by now
    found.journal.append(written)
    running.restart()
    journal = acts(running).journal
    wait_for(lambda: not journal.unfinished(), "the acts to be finished")
    assert [record.prepared_transaction_offset for record in stored(running.peer(), TOPIC, 2)] == [
        int(halves[0]["commitLogOffset"])
    ]
    assert [running.engine.broker.transactions.open_halves.checks(number) for number in range(4)] == [
        None,
        None,
        None,
        0,
    ]
    assert [ended.outcome for _, ended in journal.newest(4)][::-1] == [DONE, DONE, TOO_LATE, TOO_LATE]
    running.restart()
    assert len(stored(running.peer(), TOPIC, 2)) == 1


@pytest.mark.parametrize("seed", range(3))
def test_one_of_two_decisions_wins_and_the_other_is_told(running, seed):
    """A producer and an administrator decide at the same time, over many half messages."""
    peer, some, count = running.peer(), random.Random(seed), 30
    halves = [send_half(peer, f"K{number}") for number in range(count)]
    order = list(range(count))
    some.shuffle(order)
    admin: dict[int, Fate] = {}

    def decide() -> None:
        for part in (order[:10], order[10:20], order[20:]):
            for found in acts(running).decide(ROLL_BACK, [Chosen(number) for number in part], WHY, "alice"):
                admin[found.chosen.half_offset] = found.fate

    thread = threading.Thread(target=decide)
    thread.start()
    producer = {number: end(peer, halves[number], t.COMMIT).code == 0 for number in reversed(order)}
    thread.join()
    for number in range(count):
        assert producer[number] != (admin[number] is Fate.DONE), number
        assert admin[number] in (Fate.DONE, Fate.DECIDED)
    committed = {record.prepared_transaction_offset for record in stored(peer, TOPIC, 2)}
    assert committed == {int(halves[number]["commitLogOffset"]) for number in range(count) if producer[number]}
    for number in range(count):
        found = running.engine.broker.transactions.resolved.find(number, int(halves[number]["commitLogOffset"]))
        assert found.by is (By.PRODUCER if producer[number] else By.ADMINISTRATOR)


class Crossing(Disk):
    """A producer that ends the transaction while the act is being synced."""

    def __init__(self, ends: Callable[[], None]) -> None:
        self._ends: Callable[[], None] | None = ends

    def fdatasync(self, fd: int) -> None:
        super().fdatasync(fd)
        if self._ends is not None:
            ends, self._ends = self._ends, None
            ends()


def test_a_producer_that_is_faster_than_the_journal(running):
    peer = running.peer()
    half = send_half(peer, "K")
    journal = acts(running).journal
    journal._file.disk = Crossing(lambda: end(peer, half, t.COMMIT))
    [found] = acts(running).decide(ROLL_BACK, [Chosen(0)], WHY, "alice")
    assert found.fate is Fate.DECIDED
    assert len(stored(peer, TOPIC, 2)) == 1
    assert running.engine.broker.transactions.resolved.find(0, int(half["commitLogOffset"])).by is By.PRODUCER
    assert [ended.outcome for _, ended in journal.newest(1)] == [TOO_LATE]
    assert journal.of(int(half["commitLogOffset"])) is None


def test_asked_now_is_no_check(running):
    peer = running.peer()
    half = send_half(peer, "K")
    one = acts(running).half_at(0)
    assert [found.fate for found in acts(running).ask_now([one])] == [Fate.NO_PRODUCER]
    producer = running.produce_as("p1", GROUP)
    assert [found.fate for found in acts(running).ask_now([one] * 20)] == [Fate.ASKED] * 20
    asked = question(producer)
    assert asked.ext_fields["commitLogOffset"] == half["commitLogOffset"]
    assert decode_properties(decode_record(asked.body).properties)["TRANSACTION_CHECK_TIMES"] == "1"
    assert running.engine.broker.transactions.open_halves.checks(0) == 0
    assert end(producer, half, t.COMMIT, fromTransactionCheck="true").code == 0
    found = running.engine.broker.transactions.resolved.find(0, int(half["commitLogOffset"]))
    assert (found.how, found.by, len(found.host)) == (How.COMMITTED, By.CHECK, 8)
    assert [found.fate for found in acts(running).ask_now([one])] == [Fate.DECIDED]


def test_resume_is_written_down(tmp_path):
    fast = {"transaction_time_out_ms": 10, "transaction_check_interval_ms": 30, "transaction_check_max": 0}
    running = RunningEngine(tmp_path, broker=fast)
    send_half(running.peer(), "K")
    [aside] = wait_for(lambda: stored(running._ours(), ASIDE), "the discarded one")
    found = running.engine.broker.transactions.resolved.find(0, aside.prepared_transaction_offset)
    assert (found.how, found.by) == (How.DISCARDED, By.BROKER)
    acts(running).resume(aside.physical_offset, WHY, "alice")
    act = acts(running).journal.of(aside.physical_offset)
    assert (act.action, act.by, act.reason, act.unique_key) == ("resume", "alice", WHY, "K")
    running.stop()
