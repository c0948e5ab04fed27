"""Resets by the wire (222, 314, 220): the answers, notices and nudges, and which commits do not count."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.engine import fastjson
from appliance.engine.broker.offset_resets import pending as pendings
from appliance.engine.broker.offset_resets import service as services
from appliance.engine.broker.offset_resets.journal import ResetJournal
from appliance.engine.broker.offset_resets.pending import PendingResets
from appliance.engine.broker.offset_resets.records import NONE, Move, ResetRecord
from appliance.engine.broker.offset_resets.targets import Latest, PlannedMove
from appliance.engine.broker.processors import admin_offsets
from appliance.engine.errors import InvalidInput, RefusedRequest
from appliance.engine.protocol.command import RemotingCommand, encode_command
from appliance.engine.remoting.connection import Connection
from tests.support.clock import FakeClock
from tests.support.engine import Peer, RunningEngine, pull_fields

PULL, ASK, COMMIT, RESET, CLONE, ASKED_TO_MOVE, NOTICE, MAKE_GROUP, OPTIONS = 11, 14, 15, 222, 314, 220, 40, 200, 25
KEY = ("CG", "T", 0)


@pytest.fixture
def running(tmp_path):
    found = RunningEngine(tmp_path)
    found.put("T", *[b"%d" % number for number in range(6)])
    assert found._ours().ask(MAKE_GROUP, {}, json.dumps({"groupName": "CG"}).encode()).code == 0
    for queue in range(4):
        found.commit("CG", "T", queue, 5 if queue == 0 else 0)
    yield found
    found.stop()


def reset(running: RunningEngine, time_ms: int = 0, group: str = "CG", topic: str = "T", **more: Any) -> Any:
    fields = {"group": group, "topic": topic, "timestamp": time_ms, "isForce": "true"}
    return running._ours().ask(RESET, fields | more)


def table(answer: Any) -> dict[int, int]:
    return {
        fastjson.loads(key)["queueId"]: offset for key, offset in fastjson.loads(answer.body)["offsetTable"].items()
    }


def committed(running: RunningEngine, queue: int = 0, group: str = "CG") -> int:
    return running.engine.broker.offsets.get(group, "T", queue)


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"topic": "Nothing"}, 17, "Topic Nothing does not exist"),
        ({"group": "Nobody"}, 26, "Group Nobody does not exist"),
        ({"queueId": 4}, 1, "Topic T has no queue 4 to read"),
        ({"queueId": 0, "offset": 7}, 1, "Target offset 7 not in consume queue range [0-6]"),
        ({"offset": 6}, 1, "Target offset 6 not in consume queue range [0-0]"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_moves(running, more, code, remark):
    answer = reset(running, **more)
    assert (answer.code, answer.remark) == (code, remark)
    assert committed(running) == 5
    assert running.engine.broker.offsets.resets == {}


def test_a_negative_queue_is_all_of_them_and_a_negative_offset_none(running):
    assert table(reset(running, -1, queueId=-7, offset=-3)) == {0: 6, 1: 0, 2: 0, 3: 0}


def test_a_clone_is_one_act_that_can_be_taken_back(running):
    assert (
        running._ours().ask(CLONE, {"srcGroup": "CG", "destGroup": "Copy", "topic": "T", "offline": "true"}).code == 0
    )
    assert committed(running, group="Copy") == 5
    [done] = running.window.offsets.of_group("Copy")
    assert (done.kind, done.asked) == ("clone", "CG")


# --- clients that move themselves


def option(running: RunningEngine, server_side: bool) -> None:
    text = f"useServerSideResetOffset={str(server_side).lower()}".encode()
    assert running._ours().ask(OPTIONS, {}, text).code == 0


def asked_to_move(peer: Peer) -> Any:
    while (frame := peer.receive()).code != ASKED_TO_MOVE:
        assert frame.code in (0, NOTICE)
    return frame


def test_members_are_asked_in_their_language(running):
    option(running, False)
    java = running.join("c1", "CG", "T")
    cpp = running.peer()
    body = {
        "clientID": "c2",
        "consumerDataSet": [{"groupName": "CG", "subscriptionDataSet": [{"topic": "T", "subString": "*"}]}],
    }
    cpp.send_bytes(encode_command(RemotingCommand(34, opaque=1, language="CPP", body=json.dumps(body).encode())))
    assert cpp.receive().code in (0, NOTICE)
    assert table(reset(running, 0)) == {0: 0, 1: 0, 2: 0, 3: 0}
    asked = asked_to_move(java)
    assert asked.is_oneway
    assert asked.ext_fields == {"topic": "T", "group": "CG", "timestamp": "0", "isForce": "true"}
    assert b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:0,' in asked.body
    assert json.loads(asked_to_move(cpp).body)["offsetTable"][0] == {
        "brokerName": "broker-a", "offset": 0, "queueId": 0, "topic": "T"
    }  # fmt: skip
    assert committed(running) == 5, "they say so themselves"


@pytest.mark.parametrize("pulls", [False, True])
def test_a_member_that_pulls_nothing_more_is_asked_to_move_itself(running, monkeypatch, pulls):
    """Its cache is full of what waits behind the message that it stands on."""
    monkeypatch.setattr(services, "_ASKS_S", (0.05, 0.1))
    member = running.join("c1", "CG", "T")
    assert member.receive().code == NOTICE
    assert table(reset(running, 0, queueId=0, offset=1)) == {0: 1}
    if pulls:
        fields = pull_fields("T", 0, 5, consumerGroup="CG", sysFlag=4)
        assert member.ask(PULL, fields).code == 21, "who pulls gets the offset with it"
        assert member.is_silent()
        return
    asked = asked_to_move(member)
    assert asked.is_oneway
    assert asked.body == b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:1}}'
    assert asked_to_move(member).body == asked.body, "once more, should it have been busy"
    assert member.ask(ASK, {"consumerGroup": "CG", "topic": "T", "queueId": 0}).ext_fields["offset"] == "1"
    assert member.ask(PULL, pull_fields("T", 0, 1, consumerGroup="CG", sysFlag=4)).code == 0
    assert not running.engine.broker.offsets.pending.table, "it has taken the offset over"


def test_it_is_asked_after_a_restart_too(running, monkeypatch):
    """It comes back with its heartbeat, and its cache is still full."""
    assert table(reset(running, 0, queueId=0, offset=1)) == {0: 1}
    again = []
    ask_later = services.OffsetResets._ask_later
    monkeypatch.setattr(services.OffsetResets, "_ask_later", lambda *args: again.append(args))
    running.restart()
    member = running.join("c1", "CG", "T")
    ((resets, records, after_s),) = again
    assert after_s == services._ASKS_AGAIN_S
    running.engine.loop.call_soon(lambda: ask_later(resets, records, (0.0,)))
    assert asked_to_move(member).body == b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:1}}'


def test_many_members_are_asked_in_several_ticks(running, monkeypatch):
    monkeypatch.setattr(admin_offsets, "MEMBERS_A_TICK", 3)
    option(running, False)
    members = [running.join(f"c{n}", "CG", "T") for n in range(8)]
    loop = running.engine.loop
    ticks: list[int] = [0]
    loop.call_soon(lambda: loop.at_tick_end(lambda: ticks.append(0)))
    send = Connection.send

    def counted(conn: Connection, data: bytes) -> None:
        ticks[-1] += b'"code":220' in bytes(data[:20])
        send(conn, data)

    monkeypatch.setattr(Connection, "send", counted)
    assert table(reset(running, 0)) == {0: 0, 1: 0, 2: 0, 3: 0}
    for member in members:
        assert asked_to_move(member).is_oneway
    assert [count for count in ticks if count] == [3, 3, 2]


def test_without_force_nobody_goes_forward(running):
    option(running, False)
    running.join("c1", "CG", "T")
    assert table(reset(running, -1, isForce="false"))[0] == 5
    assert table(reset(running, -1))[0] == 6


def test_nobody_to_ask(running):
    option(running, False)
    answer = reset(running, -1)
    assert (answer.code, answer.remark) == (
        206, "Consumer not online, so can not reset offset, Group: CG Topic: T Timestamp: -1"
    )  # fmt: skip
    answer = reset(running, 0, group="Fresh")
    assert (answer.code, answer.remark) == (1, "THe consumer group <Fresh> not exist")
    option(running, True)
    assert reset(running, -1).code == 0


# --- what members have yet to take over


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def pending(clock):
    return PendingResets(clock)


def test_who_is_told_must_go_there(pending):
    pending.arm(KEY, 3, 1)
    assert [pending.answer(KEY, offset) for offset in (3, 9, 9, 3)] == [3, 3, 3, None]
    assert pending.table == {}
    assert list(pending.over) == [(1, "T", 0)]


def test_a_client_that_does_as_it_pleases_may_in_the_end(pending, clock):
    pending.arm(KEY, 3, 1)
    told = 0
    while pending.answer(KEY, 9) is not None:
        told += 1
    assert told == pendings.MOST_TELLINGS
    pending.arm(KEY, 3, 2)
    assert pending.answer(KEY, 9) == 3
    clock.advance(round(pendings.TELLING_S * 1000))
    assert pending.answer(KEY, 9) is None
    assert list(pending.over) == [(1, "T", 0), (2, "T", 0)]


def test_while_it_is_written_down_nobody_hears_of_it(pending):
    pending.arm(KEY, 3, 1)
    before = pending.hold([KEY, ("CG", "T", 1)], 2)
    assert pending.answer(KEY, 9) is None
    assert KEY in pending.table, "commits do not count"
    pending.restore(before)
    assert pending.answer(KEY, 9) == 3
    assert list(pending.table) == [KEY]


def test_a_member_that_takes_its_time_is_nudged(running, monkeypatch):
    monkeypatch.setattr(services, "_NUDGES_S", (0.05,))
    member = running.join("c1", "CG", "T")
    assert member.receive().code == NOTICE, "it is to share out the queues"
    reset(running, 0, queueId=0)
    opaque = member.send(PULL, pull_fields("T", 0, 5, consumerGroup="CG", sysFlag=4))
    frames = [member.receive(), member.receive()]
    assert [(frame.code, frame.opaque if frame.is_response else -1) for frame in frames] == [(21, opaque), (NOTICE, -1)]
    assert member.ask(PULL, pull_fields("T", 0, 0, consumerGroup="CG", sysFlag=4)).code == 0
    reset(running, 0, queueId=1)
    assert member.ask(PULL, pull_fields("T", 1, 0, consumerGroup="CG", sysFlag=4)).code == 21
    assert member.ask(PULL, pull_fields("T", 1, 0, consumerGroup="CG", sysFlag=4)).code == 19
    assert member.is_silent(), "it is there already"


def test_too_many_that_nobody_comes_for(running, monkeypatch):
    monkeypatch.setattr(services, "MOST_PENDING", 3)
    answer = reset(running, 0)
    assert (answer.code, answer.remark) == (2, "too many moved offsets wait for their consumers")
    assert committed(running) == 5
    assert reset(running, 0, queueId=0).code == 0


def test_one_act_moves_so_many_queues_and_no_more(running, monkeypatch):
    monkeypatch.setattr(services, "MOST_QUEUES", 3)
    answer = reset(running, 0)
    assert (answer.code, answer.remark) == (1, "4 queues at once, at most 3 are taken")
    assert committed(running) == 5
    assert reset(running, 0, queueId=0).code == 0


def test_a_journal_that_cannot_be_written_moves_nothing(running):
    journal = running.engine.broker.offset_resets.journal
    member = running.join("c1", "CG", "T")

    class Full(type(journal._file.disk)):
        def pwrite(self, fd, data, position):
            raise OSError(28, "No space left on device")

    journal._file.disk, kept = Full(), journal._file.disk
    answer = reset(running, 0)
    assert (answer.code, answer.remark) == (1, "the offsets were not moved: No space left on device")
    assert running.window.offsets.of_group("CG") == ()
    assert member.ask(PULL, pull_fields("T", 0, 5, consumerGroup="CG", sysFlag=4)).code == 0
    running.commit("CG", "T", 0, 6)
    assert committed(running) == 6, "members go on as before"
    journal._file.disk = kept
    assert reset(running, 0).code == 0


def test_it_is_over_in_the_journal_when_the_offsets_since_are_on_disk(running):
    """Else a kill in between would leave the group where it was before."""
    reset(running, 0, queueId=0)
    member = running.join("c1", "CG", "T")
    pulls = [pull_fields("T", 0, offset, consumerGroup="CG", sysFlag=4) for offset in (5, 0)]
    assert [member.ask(PULL, fields).code for fields in pulls] == [21, 0]
    offsets, journal = running.engine.broker.offsets, running.engine.broker.offset_resets.journal

    class Full(type(offsets._disk)):
        def pwrite(self, fd, data, position):
            raise OSError(28, "No space left on device")

    offsets._disk, kept = Full(), offsets._disk
    with pytest.raises(OSError, match="No space"):
        offsets.persist()
    assert [move.queue_id for _, move in journal.unfinished()] == [0]
    offsets._disk = kept
    offsets.persist()
    assert journal.unfinished() == []


def test_a_deleted_groups_resets_are_over(running):
    reset(running, 0)
    running.window.group_commands.delete("CG", force=True)
    offsets, journal = running.engine.broker.offsets, running.engine.broker.offset_resets.journal
    assert offsets.resets == {}
    offsets.persist()
    assert journal.unfinished() == []
    running.window.group_commands.create("CG")
    running.restart()
    assert committed(running) == -1


def test_while_it_is_written_down_commits_do_not_count(running):
    """An undo returns to the offset that was recorded, so commits in between must not change it."""
    offsets = running.engine.broker.offsets
    member = running.join("c1", "CG", "T")
    before = offsets.pending.hold([KEY], 1)
    running.commit("CG", "T", 0, 6)
    fields = pull_fields("T", 0, 5, consumerGroup="CG", sysFlag=5, commitOffset=6)
    assert member.ask(PULL, fields).code == 0, "it is served as ever"
    assert committed(running) == 5
    offsets.pending.restore(before)
    assert member.ask(PULL, fields).code == 0
    assert committed(running) == 6


@pytest.mark.parametrize(
    ("planned", "remark"),
    [
        (("T", 0, 5, 9, 9, 0, 9), "Target offset 9 not in consume queue range [0-6]"),
        (("Nothing", 0, 5, 0, 0, 0, 9), "Topic Nothing does not exist"),
    ],
)
def test_what_has_changed_since_it_was_planned(running, planned, remark):
    """A topic was deleted since the plan, or deleted and made again."""
    resets = running.engine.broker.offset_resets
    with pytest.raises(RefusedRequest, match=remark.replace("[", r"\[")):
        resets.apply("reset", "CG", [PlannedMove("T", 1, 0, 0, 0, 0, 0), PlannedMove(*planned)], "alice", "latest")
    assert (committed(running), committed(running, 1)) == (5, 0)
    assert running.engine.broker.offsets.resets == {}
    assert running.window.offsets.of_group("CG") == ()


def test_what_was_written_down_and_not_done_is_done_by_the_next_start(running):
    """All of it: queues that move, and one that gets no offset."""
    journal = running.engine.broker.offset_resets.journal
    moves = (Move("T", 0, 5, 2), Move("T", 1, 0, NONE), Move("T", 2, 0, 0))
    journal.append(ResetRecord(journal.next_id(), "undo", "CG", "alice", journal._clock.wall_ms(), "1", moves, 1))
    running.restart()
    assert [committed(running, queue) for queue in range(4)] == [2, NONE, 0, 0]
    assert set(running.engine.broker.offsets.resets) == {("CG", "T", 0), ("CG", "T", 2)}


def test_other_bytes_are_told_of_in_a_few_lines(tmp_path, caplog):
    path = tmp_path / "offset-resets.journal"
    path.write_bytes(b"what is this\n" * 1000)
    journal = ResetJournal(path, FakeClock())
    assert journal.unfinished() == []
    journal.close()
    assert len(caplog.records) == 11
    assert "lines=1000" in caplog.text


# --- offsets that no queue has, and groups of the broker's own

TRANS, HALF = "CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC"


@pytest.mark.parametrize("offset", [7, 1000, (1 << 63) - 1])
def test_messages_that_are_yet_to_come_never_count_as_read(running, offset):
    peer = running._ours()
    said = {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": offset}
    assert peer.ask(COMMIT, said).code == 29
    assert peer.ask(PULL, pull_fields("T", 0, 0, sysFlag=5, commitOffset=offset)).code == 0
    assert committed(running) == 5
    assert peer.ask(COMMIT, said | {"commitOffset": 6}).code == 0
    assert committed(running) == 6


def test_a_commit_of_a_queue_without_messages(running):
    said = {"consumerGroup": "CG", "topic": "T", "queueId": 3, "commitOffset": 1}
    assert running._ours().ask(COMMIT, said).code == 29
    assert running._ours().ask(COMMIT, said | {"commitOffset": 0}).code == 0


def test_a_slave_takes_its_end_for_what_lies_behind_it(running):
    """The slave may lack messages that its master delivered."""
    running.engine.broker.offsets.cuts = True
    running.commit("CG", "T", 0, 1000)
    assert committed(running) == 6


def test_an_offset_behind_the_end_is_brought_to_it_by_a_start(running):
    offsets = running.engine.broker.offsets
    offsets._keep("CG", "T", 0, 1000)
    offsets._keep("CG", "Nowhere", 0, 1000)
    running.restart()
    assert committed(running) == 6
    [entry] = [one for one in running.engine.broker.offsets.all() if one.topic == "Nowhere"]
    assert entry.queues == {0: 0}, "of a queue that is not there nothing was read"


def test_an_offset_that_a_start_brought_back_stays_there_whatever_comes_next(running):
    """As after a power cut that took the queue's last messages. Both files say so before the broker serves: after a
    kill, with messages at these places, they would count as read."""
    broker = running.engine.broker
    journal = broker.offset_resets.journal
    moves = (Move("T", 0, 5, 9), Move("T", 1, 0, 0))
    journal.append(ResetRecord(journal.next_id(), "reset", "CG", "alice", journal._clock.wall_ms(), "1", moves))
    broker.offsets._keep("CG", "T", 2, 3)
    running.restart()
    assert (committed(running), committed(running, 2)) == (6, 0)
    own = running.engine.broker.store.paths.own
    saved = fastjson.loads((own.parent / "store/config/consumerOffset.json").read_bytes())
    assert {int(queue): offset for queue, offset in saved["offsetTable"]["T@CG"].items()} == {0: 6, 1: 0, 2: 0, 3: 0}
    again = ResetJournal(own / "offset-resets.journal", FakeClock())
    assert [(move.queue_id, move.target) for _, move in again.unfinished()] == [(0, 6), (1, 0)]
    again.close()


def ways_to_move(running, group: str) -> dict[str, int]:
    """Return the answer of each way by which clients and administrators can change a group's offsets; 0 if accepted."""
    peer, window = running._ours(), running.window
    running.commit("CG", "T", 0, 4)
    peer.ask(PULL, pull_fields("T", 0, 0, consumerGroup=group))  # this makes the group
    said = {"consumerGroup": group, "topic": "T", "queueId": 0, "commitOffset": 3}

    def by_window(act) -> int:
        try:
            return 0 if act().applied else -1
        except InvalidInput as refusal:
            return 16 if getattr(refusal.sentence, "code", "") == "system_group" else -2

    codes = {
        "15": peer.ask(COMMIT, said).code,
        "222": reset(running, -1, group=group).code,
        "314": peer.ask(CLONE, {"srcGroup": "CG", "destGroup": group, "topic": "T", "offline": "true"}).code,
        "314 of nothing": peer.ask(CLONE, {"srcGroup": "CG", "destGroup": group, "topic": "No"}).code,
        "window": by_window(lambda: window.offset_commands.reset(group, "T", Latest())),
        "clone": by_window(lambda: window.offset_commands.clone("CG", group)),
    }
    before = running.engine.broker.offsets.get(group, "T", 0)
    peer.ask(PULL, pull_fields("T", 0, 0, consumerGroup=group, sysFlag=5, commitOffset=2))
    return codes | {"11 moves": int(running.engine.broker.offsets.get(group, "T", 0) not in (before, -1))}


def test_no_way_into_the_table_moves_the_brokers_own_offsets(running):
    assert ways_to_move(running, TRANS) == {
        "15": 16, "222": 16, "314": 16, "314 of nothing": 16, "window": 16, "clone": 16, "11 moves": 0
    }  # fmt: skip
    assert running.engine.broker.offsets.queues_of(TRANS, "T") == {}
    assert not running.window.groups.detail(TRANS).movable


@pytest.mark.parametrize("group", ["CID_RMQ_SYS_else", "TOOLS_CONSUMER", "CID_ONSAPI_PULL"])
def test_all_ways_into_the_table_take_groups_that_clients_consume_by(running, group):
    assert set(ways_to_move(running, group).values()) == {0}
    assert running.window.groups.detail(group).movable


def test_how_far_half_messages_were_read_outlives_what_clients_ask(running):
    peer, offsets = running._ours(), running.engine.broker.offsets
    offsets.commit_own(HALF, 0)
    assert reset(running, -1, group=TRANS, topic=HALF).code == 16
    assert peer.ask(207, {"groupName": TRANS, "cleanOffset": "true"}).code in (0, 1, 16)
    assert offsets.get(TRANS, HALF, 0) == 0
