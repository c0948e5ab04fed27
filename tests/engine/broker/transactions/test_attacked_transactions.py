"""Transactions while something else goes wrong at the same moment."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.broker.transactions.admin_acts import COMMIT as BY_ADMIN
from appliance.engine.broker.transactions.admin_acts import Chosen, Fate
from appliance.engine.broker.transactions.admin_journal import DONE
from appliance.engine.protocol.command import RemotingCommand, encode_command
from tests.engine.broker.transactions.test_put_back import delete_first_files, leave, place
from tests.engine.broker.transactions.test_transactions import (
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
from tests.support.engine import RunningEngine, pull_fields, send_fields, start_engine
from tests.support.store import sync_in_python
from tests.support.waiting import wait_for

CHECKS = "CID_RMQ_SYS_TRANS"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningEngine]:
    found = RunningEngine(
        tmp_path,
        broker={"transaction_time_out_ms": 3_600_000},
        store={"flush_disk_type": "SYNC_FLUSH", "mapped_file_size_commit_log": 1 << 16},
    )
    yield found
    found.stop()


def open_after_restart(running: RunningEngine) -> list[int]:
    running.restart()
    return found_open(running)


def found_open(running: RunningEngine) -> list[int]:
    broker = running.engine.broker
    assert broker is not None
    wait_for(lambda: broker.transactions.check.ready, "the store was looked at")
    return broker.transactions.open_halves.all(0, 1000)


def test_a_decision_that_the_disk_did_not_take_leaves_it_open(running: RunningEngine) -> None:
    """The offsets of CID_RMQ_SYS_TRANS are saved each second and at the stop, even if the log's end was not written."""
    peer = running.peer()
    halves = [send_half(peer, f"K{number}") for number in range(2)]
    broker = running.engine.broker
    assert broker is not None
    wait_for(lambda: broker.offsets.get(CHECKS, HALF, 0) == 0, "progress is known")

    def no_write(fd: int, data: Any, offset: int) -> None:
        raise OSError(errno.EIO, "as the test wants it")

    broker.store.log._disk.write_all = no_write  # type: ignore[method-assign]
    assert end(peer, halves[0], COMMIT).code == 14
    assert end(peer, halves[1], ROLL_BACK).code == 14
    for _ in range(3):
        broker.transactions.check._save()
    assert broker.offsets.get(CHECKS, HALF, 0) == 0
    del broker.store.log._disk.write_all
    assert open_after_restart(running) == [0, 1]
    assert end(running.peer(), halves[0], COMMIT).code == 0


def test_a_half_that_is_not_durable_yet_is_decided_when_it_is(running: RunningEngine) -> None:
    """WAIT=false is answered before the sync; the producer decides at once."""
    peer = running.peer()
    broker = running.engine.broker
    assert broker is not None
    wait_for(lambda: broker.transactions.check.ready, "the store was looked at")
    log = broker.store.log
    hold, sync = threading.Event(), log._disk.fdatasync

    def slow(fd: int) -> None:
        hold.wait(60)
        sync(fd)

    log._disk.fdatasync = slow  # type: ignore[method-assign]
    sync_in_python(broker.store)
    halves = [send_half(peer, f"K{number}", "WAIT\x01false\x02") for number in range(3)]
    for half, decision in zip(halves, (COMMIT, ROLL_BACK, COMMIT), strict=True):
        peer.send(37, half | {"commitOrRollback": str(decision)})
    peer.send(37, halves[0] | {"commitOrRollback": str(COMMIT), "commitLogOffset": str(1 << 40)})
    assert peer.receive().code == 1, "nothing of the log waits there"
    assert peer.is_silent(0.1)
    hold.set()
    assert [peer.receive().code for _ in halves] == [0, 0, 0]
    assert len(stored(peer, TOPIC, 2)) == 2


def test_a_half_and_its_end_in_one_piece(running: RunningEngine) -> None:
    """The client guesses the half's place. The right guess is decided after the sync, one within the record refused."""
    peer = running.peer()
    first = send_half(peer, "K0")
    second = send_half(peer, "K1")
    step = int(second["commitLogOffset"]) - int(first["commitLogOffset"])
    guess = second | {"tranStateTableOffset": "2", "commitLogOffset": str(2 * step), "commitOrRollback": str(COMMIT)}
    half = send_fields(TOPIC, 2, half_properties("K2"), f=4, h=7)
    frames = [
        RemotingCommand(code, opaque=1000 + number, ext_fields={k: str(v) for k, v in fields.items()}, body=body)
        for number, (code, fields, body) in enumerate(
            [(310, half, b"x"), (37, guess | {"commitLogOffset": str(2 * step + 8)}, b""), (37, guess, b"")]
        )
    ]
    peer.send_bytes(b"".join(map(encode_command, frames)))
    answers = {answer.opaque: answer.code for answer in (peer.receive() for _ in frames)}
    assert answers == {1000: 0, 1001: 1, 1002: 0}
    assert len(stored(peer, TOPIC, 2)) == 1


@pytest.mark.parametrize(("half_at", "op_at"), [(100, 100), (3, 1), (0, 100)])
def test_how_far_the_checks_are_no_client_says(running: RunningEngine, half_at: int, op_at: int) -> None:
    """Otherwise a start would take open half messages below it for decided, or decided ones for open."""
    peer = running.peer()
    halves = [send_half(peer, f"K{number}") for number in range(4)]
    assert end(peer, halves[1], COMMIT).code == 0
    assert end(peer, halves[2], ROLL_BACK).code == 0
    for topic, offset in ((HALF, half_at), (OP, op_at)):
        fields = {"consumerGroup": CHECKS, "topic": topic, "queueId": 0, "commitOffset": offset}
        assert peer.ask(15, fields).code == 16
        peer.ask(11, pull_fields(topic, 0, 0, consumerGroup=CHECKS, sysFlag=5, commitOffset=offset))
    assert open_after_restart(running) == [0, 3]


def test_an_offset_of_the_op_messages_beyond_their_end(running: RunningEngine) -> None:
    """A log that lost its end leaves such an offset, or another program."""
    peer = running.peer()
    halves = [send_half(peer, f"K{number}") for number in range(3)]
    assert end(peer, halves[1], ROLL_BACK).code == 0
    running.hang_up()
    running.engine.stop()
    path = running.data_dir / "store" / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": {f"{OP}@{CHECKS}": {"0": 100}}}))
    running.engine = start_engine(running.data_dir, **running.options)
    assert found_open(running) == [0, 2]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("file", ["is there", "has gone"])
def test_an_act_of_a_dead_process_that_names_an_old_place(running: RunningEngine, times: int, file: str) -> None:
    """The half was put back after the administrator's decision was recorded, and before it was carried out."""
    half = send_half(running.peer(), "K")
    broker = running.engine.broker
    assert broker is not None
    acts = broker.transactions.acts
    looked = acts.look(Chosen(0))
    for _ in range(times):
        leave(running)
    if file == "has gone":
        delete_first_files(running)
    [act_id] = acts.journal.next_ids(1)
    acts.journal.append([acts._act(act_id, BY_ADMIN, looked, "why", "alice")])
    running.restart()
    assert running.engine.broker is not None
    journal = running.engine.broker.transactions.acts.journal
    wait_for(lambda: not journal.unfinished(), "the act to be finished")
    [(_, ended)] = journal.newest(1)
    assert ended is not None
    assert ended.outcome == DONE
    peer = running.peer()
    assert len(stored(peer, TOPIC, 2)) == 1
    assert end(peer, half, COMMIT).code == 1
    assert running.engine.broker.transactions.open_halves.count == 0


def test_an_administrator_who_saw_it_before_its_file_went(running: RunningEngine) -> None:
    send_half(running.peer(), "K")
    leave(running)
    leave(running)
    delete_first_files(running)
    broker = running.engine.broker
    assert broker is not None
    acts = broker.transactions.acts
    [done] = acts.decide(BY_ADMIN, [Chosen(0, "another")], "why", "alice")
    assert done.fate is Fate.ANOTHER
    [done] = acts.decide(BY_ADMIN, [Chosen(0, "K")], "why", "alice")
    assert done.fate is Fate.DONE
    [message] = stored(running.peer(), TOPIC, 2)
    assert done.half is not None
    assert message.prepared_transaction_offset == done.half.record.physical_offset
    [done] = acts.decide(BY_ADMIN, [Chosen(0, "K")], "why", "alice")
    assert done.fate in (Fate.DECIDED, Fate.GONE)


@pytest.mark.parametrize("by", [0, 1, 2])
def test_each_place_ends_it_from_the_first_moment_on(running: RunningEngine, by: int) -> None:
    peer = running.peer()
    half = send_half(peer, "K")
    leave(running)
    leave(running)
    places = [half | place(record) for record in stored(peer, HALF)]
    running.restart()
    peer = running.peer()
    assert end(peer, places[by], COMMIT).code == 0
    assert [end(peer, one, COMMIT).code for one in places] == [1, 1, 1]
    assert len(stored(peer, TOPIC, 2)) == 1
