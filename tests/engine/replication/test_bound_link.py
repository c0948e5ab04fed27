"""A leader and its followers: members are bound to its epoch and counted, all others are served or refused."""

import socket
import struct
import time
from types import SimpleNamespace

import pytest

from appliance.engine.protocol.ha_preamble import Answer, Hello, Reason, Refusal, pack, set_hash
from appliance.engine.protocol.ha_stream import pack_taken
from appliance.engine.replication.bound_link import CONFIRM_S, MAX_MEMBERS, MAX_OBSERVERS, Pulse
from appliance.engine.replication.places import MAX_SILENT
from tests.support.bound import LeaderBox, PlayedMember
from tests.support.engine import RunningEngine, send_fields
from tests.support.ha import PlayedSlave
from tests.support.ports import reserve_port
from tests.support.set_of_brokers import SMALL
from tests.support.waiting import wait_for

FILE = SMALL["mapped_file_size_commit_log"]
WAITS = "WAIT\x01true\x02"


@pytest.fixture
def make(tmp_path):
    made = []

    def leader(epoch: int = 3, before: int = 2, **store) -> LeaderBox:
        made.append(LeaderBox(tmp_path, **store))
        made[0].running.put("Orders", *[b"before"] * before)
        made[0].lead(epoch)
        return made[0]

    yield leader
    for one in made:
        one.stop()


@pytest.fixture
def leader(make):
    return make()


def reports(leader: LeaderBox) -> dict[str, int]:
    return {one.uuid: one.durable for one in leader.position.members()}


def test_who_leads_hears_of_each_member_that_comes(leader):
    """It then registers with the name servers again: that member may have called itself the leader a moment ago."""
    for came in (1, 2):
        member = PlayedMember(leader.port)
        try:
            member.bind("m1", 3)
            wait_for(lambda came=came: leader.bindings == came, "it is told")
        finally:
            member.close()


def test_a_member_is_answered_and_gets_the_log_from_its_start(leader):
    member = PlayedMember(leader.port)
    end = leader.store.log.written
    assert member.bind("m1", 3) == Answer("leader", 3, 0, end, ((3, end),))
    member.take_to(end)
    member.report(end)
    wait_for(lambda: reports(leader) == {"m1": end}, "its report")
    [status] = leader.server.slaves
    assert (status.member, status.acknowledged, status.sent) == ("m1", end, end)
    member.close()
    wait_for(lambda: reports(leader) == {}, "it to be gone")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"set_hash": set_hash("broker-b")}, Reason.OTHER_SET),
        ({"uuid": "leader"}, Reason.SAME_UUID),
        ({"epoch": 2, "seen": 2}, Reason.OTHER_EPOCH),
        ({"epoch": 4, "seen": 3}, Reason.OTHER_EPOCH),
        ({"epoch": 3, "seen": 4}, Reason.HIGHER_EPOCH),
        ({"file_bytes": FILE * 2}, Reason.OTHER_FILE_SIZE),
    ],
)
def test_who_is_no_member_in_this_epoch_is_refused(leader, said, reason):
    member = PlayedMember(leader.port)
    member.say(**({"epoch": 3} | said))
    answer = member.answer()
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.epoch) == (reason, 3)
    assert member.is_closed()
    assert leader.position.members() == []
    assert leader.higher == ([4] if reason == Reason.HIGHER_EPOCH else [])


def test_a_fenced_leader_and_one_whose_disk_hangs_take_nobody(leader):
    leader.is_alive = False
    member = PlayedMember(leader.port)
    member.say(epoch=3)
    assert member.answer().reason == Reason.STALLED
    leader.is_alive = True
    leader.position.freeze()
    member = PlayedMember(leader.port)
    member.say(epoch=3)
    assert member.answer().reason == Reason.NOT_LEADING


def test_a_send_is_answered_when_every_awaited_member_has_it(leader):
    one, two, observer = PlayedMember(leader.port), PlayedMember(leader.port), PlayedSlave(leader.port)
    end = leader.store.log.written
    one.bind("m1", 3, end, end=end)
    two.bind("m2", 3, end, end=end)
    observer.report(end)
    wait_for(lambda: reports(leader) == {"m1": end, "m2": end}, "both")
    leader.await_members("m1", "m2")
    peer = leader.running.peer()
    peer.send(310, send_fields("Orders", 0, WAITS), b"x")
    after = wait_for(lambda: leader.store.log.written != end and leader.store.log.written, "it to be written")
    for each in (one, two):
        each.take_to(after)
    observer.copy_to(after)
    observer.report(after)
    one.report(after)
    two.report(after - 1)
    with pytest.raises(TimeoutError):
        peer.receive(0.3)
    assert leader.store.published == end
    two.report(after)
    assert peer.receive().code == 0
    assert leader.store.published == after


def test_the_confirm_offset_is_said_soon_after_it_moved_and_not_often(leader):
    member = PlayedMember(leader.port)
    end = leader.store.log.written
    member.bind("m1", 3, end, end=end)
    assert member.header() == (end, -1)
    begun = time.monotonic()
    said: list[int] = []
    at, sent = end, 0

    def read_to(last: int, last_said: int) -> None:
        nonlocal at
        while at < last or (last_said and said[-1:] != [last_said]):
            offset, size = member.header()
            if size > 0:
                assert offset == at
                at += size
            elif size == -1:
                said.append(offset)

    while sent < 40 or len(said) < 3:
        leader.running.put("Orders", b"x" * 100)
        sent += 1
        read_to(leader.store.log.written, 0)
    read_to(at, at)
    assert said == sorted(said)
    assert len(said) <= (time.monotonic() - begun) / 0.05 + 2


def test_heartbeats_come_each_quarter_of_a_second_and_stop_with_the_disk(leader):
    member = PlayedMember(leader.port)
    end = leader.store.log.written
    member.bind("m1", 3, end, end=end)
    member.header()
    begun = time.monotonic()
    for _ in range(8):  # a heartbeat and the confirm offset each
        assert member.header()[0] == end
    assert time.monotonic() - begun > 0.6
    leader.is_alive = False
    member.sock.settimeout(0.7)
    with pytest.raises(TimeoutError):
        member.take_to(-2)  # never
    leader.is_alive = True
    member.sock.settimeout(60)
    assert member.header()[0] == end


@pytest.mark.parametrize("say", ["more than was sent", "less than before", "nothing sensible"])
def test_a_report_that_cannot_be_true_ends_the_connection_and_counts_for_nothing(leader, say):
    member = PlayedMember(leader.port)
    end = leader.store.log.written
    member.bind("m1", 3, 0)
    member.take_to(end)
    member.report(end - 5)
    wait_for(lambda: reports(leader) == {"m1": end - 5}, "its report")
    leader.await_members("m1")
    bad = {"more than was sent": end + 1, "less than before": end - 6, "nothing sensible": -1}[say]
    # A good report behind it in the same packet does not help.
    member.sock.sendall(struct.pack(">qq", bad, end))
    assert member.is_closed()
    wait_for(lambda: reports(leader) == {}, "it to be gone")
    assert leader.position() == leader.store.published == end


def test_a_first_report_behind_the_end_of_the_log_ends_it(leader):
    member = PlayedMember(leader.port)
    member.say("m1", 3)
    member.answer()
    member.report(leader.store.log.written + 1)
    assert member.is_closed()


def test_the_second_connection_of_a_member_replaces_the_first(leader):
    first, second = PlayedMember(leader.port), PlayedMember(leader.port)
    end = leader.store.log.written
    first.bind("m1", 3, end, end=end)
    wait_for(lambda: reports(leader) == {"m1": end}, "the first")
    second.bind("m1", 3, 0)
    assert first.is_closed()
    wait_for(lambda: reports(leader) == {"m1": 0}, "the second")
    second.take_to(end)
    second.report(end)
    wait_for(lambda: reports(leader) == {"m1": end}, "its report")


@pytest.mark.parametrize("cut", [1, 7, 8, 15, 16, 40])
def test_half_a_preamble_waits_for_its_rest(leader, cut):
    end = leader.store.log.written
    words = pack(Hello(set_hash("broker-a"), "m1", 1, 3, 3, end, 0, FILE, ()))
    member = PlayedMember(leader.port)
    member.sock.sendall(words[:cut])
    member.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        member.receive(1)
    member.sock.settimeout(60)
    # The first report may come in the same packet as the preamble's end.
    member.sock.sendall(words[cut:] + struct.pack(">q", end))
    assert isinstance(member.answer(), Answer)
    assert member.header()[0] == end


@pytest.mark.parametrize(
    "said",
    [b"\x80" * 8, b"\xff" * 64, b"\xd2BoxHA\0\x01\xff\xff\xff\xff\0\0\0\0", pack(Answer("x", 3, 0, 0, ())),
     pack(Refusal(1, 3, "no")), b"GET / HTTP/1.1\r\n\r\n"],
)  # fmt: skip
def test_garbage_is_hung_up_on(leader, said):
    member = PlayedMember(leader.port)
    member.sock.sendall(said)
    assert member.is_closed()
    assert leader.position.members() == []


def test_a_member_finds_a_place_whoever_else_is_there(leader):
    observers = []
    for n in range(MAX_OBSERVERS + 1):
        observers.append(PlayedSlave(leader.port))
        observers[n].report(0)
        if n < MAX_OBSERVERS:
            observers[n].frame()
    assert observers[-1].is_closed()
    silent = [socket.create_connection(("127.0.0.1", leader.port)) for _ in range(3 * MAX_SILENT)]
    member = PlayedMember(leader.port)
    end = leader.store.log.written
    member.bind("m1", 3, end, end=end)
    wait_for(lambda: reports(leader) == {"m1": end}, "the member")
    wait_for(lambda: len(leader.server.slaves) <= MAX_OBSERVERS + MAX_SILENT + 1, "the oldest silent ones to go")
    assert sum(not one.member and one.sent >= 0 for one in leader.server.slaves) == MAX_OBSERVERS
    for one in silent:
        one.close()
    # Members are bounded, too, except for one that comes again.
    members = []
    for n in range(MAX_MEMBERS):
        members.append(PlayedMember(leader.port))
        members[n].say(f"n{n}", 3)
        assert isinstance(members[n].answer(), Answer if n < MAX_MEMBERS - 1 else Refusal)
    again = PlayedMember(leader.port)
    assert isinstance(again.bind("m1", 3, end, end=end), Answer)


def test_an_observer_has_its_bytes_from_before_this_epoch_or_from_this_leader(leader):
    start = leader.store.log.written
    leader.running.put("Orders", b"in this epoch")
    end = leader.store.log.written
    ahead = PlayedSlave(leader.port)
    ahead.report(start + 1)
    assert ahead.is_closed()
    prefix = PlayedSlave(leader.port)
    prefix.report(start)
    prefix.copy_to(end)
    wait_for(lambda: [s.sent for s in leader.server.slaves] == [end], "it to be known")  # bytes come a moment before
    again = PlayedSlave(leader.port)  # while the leader still takes the first connection for alive
    again.report(end)
    wait_for(lambda: len([s for s in leader.server.slaves if s.acknowledged == end]) == 1, "it")
    prefix.close()
    again.close()
    wait_for(lambda: not leader.server.slaves, "both to go")
    later = PlayedSlave(leader.port)
    later.report(end)
    wait_for(lambda: [s.acknowledged for s in leader.server.slaves] == [end], "it")


def test_observers_are_never_waited_for_and_hear_apaches_stream(leader):
    observer = PlayedSlave(leader.port)
    observer.report(0)
    end = leader.store.log.written
    observer.copy_to(end)
    observer.sock.settimeout(0.6)  # no heartbeat is due for a minute, and no other frame
    with pytest.raises(TimeoutError):
        observer.receive(1)
    leader.running.put("Orders", b"x")
    assert leader.store.published > end


def test_an_old_leader_without_a_set_hangs_up(tmp_path):
    """Older versions of RocketBox did so, since an observer's place is none for a member."""
    port = reserve_port()
    running = RunningEngine(tmp_path, store=SMALL | {"ha_listen_port": port})
    try:
        member = PlayedMember(port)
        member.say()
        assert member.is_closed()
    finally:
        running.stop()


def test_changes_of_topics_wait_for_members_that_say_when_they_have_them_and_not_for_older_ones(leader):
    end = leader.store.log.written
    older, newer = PlayedMember(leader.port), PlayedMember(leader.port)
    try:
        older.bind("older", 3, report=end, features=0)
        newer.bind("newer", 3, report=end)
        leader.await_members("older")
        wait_for(lambda: reports(leader) == {"older": end, "newer": end}, "their reports")
        assert leader.position.all_have(1)
        leader.await_members("older", "newer")
        assert not leader.position.all_have(1)
        newer.sock.sendall(pack_taken(1))
        wait_for(lambda: leader.position.all_have(1), "it to say so")
        assert not leader.position.all_have(2)
    finally:
        older.close()
        newer.close()


def test_a_leader_times_what_it_sends_until_it_is_acknowledged(leader):
    end = leader.store.log.written
    member = PlayedMember(leader.port)
    try:
        member.bind("m1", 3, report=end)
        wait_for(lambda: reports(leader) == {"m1": end}, "its first report")
        assert [one.took_s for one in leader.position.members()] == [0.0], "nothing was sent to it yet"
        leader.running.put("Orders", b"timed")
        end = leader.store.log.written
        member.take_to(end)
        assert leader.position.members()[0].took_s > 0, "it is on its way"
        member.report(end)
        wait_for(lambda: reports(leader) == {"m1": end}, "its report")
        took = leader.position.members()[0].took_s
        assert took > 0
        assert leader.position.members()[0].took_s == took, "it is over"
    finally:
        member.close()


def test_a_link_sleeps_between_looks_while_a_member_has_not_acknowledged():
    """Else its thread would not sleep at all until that member, or another one, has what was sent."""
    confirmed = 100
    leading = SimpleNamespace(alive=lambda: True, confirm=lambda: confirmed, changes=lambda: 0)
    pulse = Pulse(leading)  # type: ignore[arg-type]
    now = 50.0
    assert pulse.due(now, now, 300, 0)
    for _ in range(3):
        now = pulse.next_at(now, 300) + 0.001
        assert not pulse.due(now, now, 300, 0)
        assert pulse.next_at(now, 300) == pytest.approx(now + CONFIRM_S)
    confirmed = 200
    now += CONFIRM_S
    assert pulse.due(now, now, 300, 0), "the members' positions are sent within that time"
