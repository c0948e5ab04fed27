"""A member's broker in its roles: what it accepts and shows, its registrations; and that a change loses no message."""

from __future__ import annotations

import errno
import gc
import os
import socket
import threading
import time

import pytest

from appliance.engine import seat as seat_module
from appliance.engine.broker import member_side
from appliance.engine.broker.role import Kind, Role
from appliance.engine.errors import StartError, Unavailable
from appliance.engine.failover import brokers as brokers_module
from appliance.engine.failover import truncation
from tests.support.engine import RunningEngine, pull_fields, records, send_fields
from tests.support.members_of_set import PULL, SEND, bodies, wait_for_same_log
from tests.support.waiting import ends, wait_for

CONSUMERS, MAX_OFFSET = 38, 30
NOT_AVAILABLE, BUSY = 14, 2


def addresses(engine, topic="Orders"):
    """Return brokerId -> address from the name server."""
    if engine.namesrv.routes is None:
        return {}
    data = engine.namesrv.routes._brokers.get("broker-a")
    return {} if data is None else dict(data.addresses)


def answer_of(peer):
    """Return the next answer, skipping the broker's own requests."""
    while not (found := peer.receive()).is_response:
        pass
    return found


def test_a_fenced_broker_takes_nothing_shows_nothing_and_is_told_to_nobody(members):
    one, _ = members
    peer = one.peer()
    answer = peer.ask(SEND, send_fields("Orders"), b"x")
    assert (answer.code, "fenced" in answer.remark) == (NOT_AVAILABLE, True)
    assert peer.ask(PULL, pull_fields("Orders", 0, 0)).code == BUSY
    assert peer.ask(MAX_OFFSET, {"topic": "Orders", "queueId": 0}).code == BUSY
    assert addresses(one.engine) == {}
    assert one.brokers.role == "fenced"
    assert one.brokers.health().alive


def test_a_leader_and_its_follower_change_places_and_peers_stay(members):
    one, two = members
    one.lead(1)
    first, second = one.peer(), two.peer()
    assert first.ask(SEND, send_fields("Orders"), b"before").code == 0
    one.take_in(two)
    assert first.ask(SEND, send_fields("Orders"), b"both").code == 0
    wait_for(lambda: addresses(one.engine) == {0: one.leader.addr, 2: two.leader.addr}, "both to be told")
    wait_for(lambda: two.engine.broker.topics.get("Orders"), "the tables")
    wait_for(lambda: two.brokers.stream() and bodies(second) == [b"before", b"both"], "the follower to show it",
             not_yet=(Exception,))  # fmt: skip
    assert second.ask(SEND, send_fields("Orders"), b"x").code == NOT_AVAILABLE
    assert one.brokers.drain(60.0)
    two.lead(2)
    one.follow(two, 2)
    assert second.ask(SEND, send_fields("Orders"), b"after").code == 0
    assert first.ask(SEND, send_fields("Orders"), b"x").code == NOT_AVAILABLE
    wait_for(lambda: addresses(one.engine) == {0: two.leader.addr, 1: one.leader.addr}, "the new places to be told")
    wait_for_same_log(one, two)
    wait_for(lambda: one.brokers.stream() and bodies(first) == [b"before", b"both", b"after"], "the old leader to show",
             not_yet=(Exception,))  # fmt: skip


def test_the_history_counts_changes_of_role_and_goes_on_counting_over_them(members):
    one, two = members

    def happened(member):
        found = {name.name: name.value for some in member.engine.window.measurements.take(30) for name in some}
        return tuple(found[name] for name in ("starts", "role_changes", "refused_sends"))

    assert happened(one) == happened(two) == (1, 0, 0)
    one.lead(1)
    one.take_in(two)
    assert happened(one) == happened(two) == (0, 0, 0), "their first roles"
    one.engine.broker.store.log.not_taken += 3
    two.lead(2)
    one.follow(two, 2)
    assert happened(one) == (0, 1, 3)
    assert happened(two) == (0, 1, 0)
    one.follow(two, 2)
    assert happened(one) == (0, 0, 0)


def test_the_name_server_tells_leaders_apart_by_their_epoch(members):
    one, _ = members
    one.lead(7)
    wait_for(lambda: addresses(one.engine).get(0) == one.leader.addr, "the leader to be told")
    live = one.engine.namesrv.routes._live  # noted behind the address
    wait_for(lambda: [broker.data_version.state_version for broker in live.values()] == [7], "its epoch")


def test_nothing_is_shown_before_the_leader_has_confirmed_it(members):
    one, two = members
    one.lead(1)
    peer = one.peer()
    one.take_in(two)
    assert peer.ask(SEND, send_fields("Orders"), b"shown").code == 0
    wait_for(lambda: two.store.published == one.store.published, "the follower to show it")
    # An awaited member that never comes: a message that is sent now is copied, but must not be shown.
    one.brokers.await_members(frozenset(("nobody",)))
    peer.send(SEND, send_fields("Orders"), b"hidden")
    wait_for(lambda: one.store.log.written > one.store.published, "the second message")
    wait_for_same_log(one, two)
    assert two.store.published == one.store.published < two.store.log.written
    # A follower whose log already has that message when it begins shows nothing at all.
    two.fence()
    two.follow(one, 1)
    other = two.peer()
    time.sleep(0.3)  # heartbeats of the stream come each 0.25 s; none of them may open it
    two.brokers.stream()
    assert other.ask(PULL, pull_fields("Orders", 0, 0)).code == BUSY
    one.await_only(two)
    wait_for(lambda: two.brokers.stream() and other.ask(PULL, pull_fields("Orders", 0, 0)).code != BUSY, "to be shown")
    wait_for(lambda: bodies(other) == [b"shown", b"hidden"], "all of it", not_yet=(Exception,))


def test_a_fenced_leader_acknowledges_nothing_any_more(members):
    one, _ = members
    one.lead(1)
    wait_for(lambda: addresses(one.engine).get(0) == one.leader.addr, "the leader to be told")
    one.brokers.await_members(frozenset(("nobody",)))
    peer = one.peer()
    peer.send(SEND, send_fields("Orders"), b"pending")
    wait_for(lambda: one.store.log.written > one.store.published, "the message to be stored")
    one.brokers.fence("another one leads")
    answer = peer.receive()
    assert answer.code == NOT_AVAILABLE
    assert "another one leads" in answer.remark
    with pytest.raises((ConnectionError, EOFError, OSError, AssertionError)):
        peer.ask(PULL, pull_fields("Orders", 0, 0))
    wait_for(lambda: addresses(one.engine) == {}, "the name server to forget it")
    again = one.peer()
    assert again.ask(SEND, send_fields("Orders"), b"x").code == NOT_AVAILABLE
    assert one.brokers.role == "fenced"


def test_a_member_that_comes_takes_its_leaders_tables_at_once(members, monkeypatch):
    """Otherwise it could be in sync, and become the leader, with offsets of its own last life."""
    one, two = members
    monkeypatch.setattr(member_side, "PERIOD_S", 60.0)
    one.lead(1)
    two.follow(one, 1)
    wait_for(lambda: two.brokers._topics.whole_to >= 0, "the tables to have come")


def test_a_leader_that_says_nothing_holds_no_election_up(members):
    """The follower's stream is open, and its thread waits for the answer with the tables."""
    one, two = members
    one.lead(1)
    two.follow(one, 1)
    one.lead(1, two)
    wait_for_same_log(one, two)
    sync = two.brokers._topics
    wait_for(lambda: sync.whole_to >= 0, "the tables to have come")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sync._master = lambda: f"127.0.0.1:{silent.getsockname()[1]}"
        silent.settimeout(60)
        peer, _ = silent.accept()
        with peer:
            peer.settimeout(60)
            assert peer.recv(1)
            ends(two.brokers.close_stream, "it waits for a leader that says nothing")


def test_what_a_fenced_leader_stored_alone_is_cut_off_and_kept(members):
    one, two = members
    one.lead(1)
    peer = one.peer()
    one.take_in(two)
    assert peer.ask(SEND, send_fields("Orders"), b"both have it").code == 0
    wait_for_same_log(one, two)
    two.lead(2)
    peer.send(SEND, send_fields("Orders"), b"nobody else")
    wait_for(lambda: one.store.log.written > two.store.log.written, "the message to be stored")
    one.brokers.fence("another one leads")
    assert peer.receive().code == NOT_AVAILABLE
    assert two.peer().ask(SEND, send_fields("Orders"), b"the new one's").code == 0
    one.follow(two, 2)
    wait_for_same_log(one, two)
    assert any((one.engine.config.data_dir / "rocketbox" / "quarantine").glob("diverged-*.log"))
    other = one.peer()
    wait_for(lambda: one.brokers.stream() and bodies(other) == [b"both have it", b"the new one's"], "the leader's log",
             not_yet=(Exception,))  # fmt: skip


def test_a_cut_that_fails_on_its_way_is_finished_before_anything_is_stored(members, monkeypatch):
    one, two = members
    one.lead(1)
    one.take_in(two)
    assert one.peer().ask(SEND, send_fields("Orders"), b"both have it").code == 0
    wait_for_same_log(one, two)
    two.lead(2)
    one.peer().send(SEND, send_fields("Orders"), b"nobody else")
    wait_for(lambda: one.store.log.written > two.store.log.written, "the message to be stored")
    one.brokers.fence("another one leads")
    assert two.peer().ask(SEND, send_fields("Orders"), b"the new one's").code == 0
    cut_tail, failed = truncation.cut_tail, []

    def fail_once(*arguments):
        monkeypatch.setattr(truncation, "cut_tail", cut_tail)
        failed.append(arguments)
        raise OSError(errno.EIO, "the disk refuses")

    monkeypatch.setattr(truncation, "cut_tail", fail_once)
    one.files.see(2)
    one.brokers.follow(two.leader, 2)
    wait_for(lambda: one.brokers.stream().cut_at >= 0, "the place where to cut")
    with pytest.raises(OSError, match="the disk refuses"):
        one.brokers.cut(one.brokers.stream().cut_at, two.leader, 2)
    assert len(failed) == 1
    intent = one.engine.config.data_dir / "rocketbox" / "ha" / "truncation"
    assert intent.exists()
    one.follow(two, 2)
    assert not intent.exists()
    wait_for_same_log(one, two)


def test_consumers_and_producers_are_known_without_a_new_heartbeat(members):
    one, _ = members
    one.lead(1)
    one.running.join("c1", "readers", also="writers")
    peer = one.peer()
    for epoch in (2, 3):
        one.lead(epoch)
        answer = peer.ask(CONSUMERS, {"consumerGroup": "readers"})
        assert (answer.code, b"c1" in answer.body) == (0, True)
        assert [channel.client_id for channel in one.engine.broker.clients.producer_channels("writers")] == ["c1"]
    one.hang_up()
    wait_for(lambda: one.engine.broker.clients.consumer_group("readers") is None, "the one who left to be forgotten")


def test_a_parked_pull_is_answered_and_the_next_one_goes_on(members):
    one, _ = members
    one.lead(1)
    one.running.put("Orders", b"a")
    consumer = one.running.join("c1", "g")
    fields = pull_fields("Orders", 0, 1) | {"sysFlag": 2, "suspendTimeoutMillis": 20_000, "consumerGroup": "g"}
    consumer.send(PULL, fields)
    wait_for(lambda: one.engine.broker.pull.long_polling.count == 1, "the pull to be held")
    one.lead(2)
    assert answer_of(consumer).code == 19
    consumer.send(PULL, fields)
    wait_for(lambda: one.engine.broker.pull.long_polling.count == 1, "the next pull to be held")
    one.running.put("Orders", b"b")
    assert [record.body for record in records(answer_of(consumer).body)] == [b"b"]


def test_a_broker_that_cannot_be_built_leaves_a_seat_that_says_why(members, monkeypatch):
    one, _ = members
    one.lead(1)
    peer = one.peer()
    assert peer.ask(SEND, send_fields("Orders"), b"a").code == 0

    class Refusing:
        def __init__(self, *_):
            raise StartError("The disk is gone.")

    with monkeypatch.context() as patch:
        patch.setattr(seat_module, "Broker", Refusing)
        with pytest.raises(StartError):
            one.lead(2)
        answer = peer.ask(SEND, send_fields("Orders"), b"b")
        assert (answer.code, "The disk is gone." in answer.remark) == (NOT_AVAILABLE, True)
        assert one.brokers.role == "fenced"
        health = one.brokers.health()
        assert (health.electable, "The disk is gone." in health.why_not) == (False, True)
        assert not one.engine.health()["broker"]["ok"]
        with pytest.raises(Unavailable, match="changing its role"):
            one.running.window.overview.snapshot()
    one.brokers.lead(2, frozenset())
    assert peer.ask(SEND, send_fields("Orders"), b"c").code == 0
    assert bodies(peer) == [b"a", b"c"]
    assert one.running.window.topics.detail("Orders").row.messages == 2


def open_files():
    return len(os.listdir("/proc/self/fd"))


def wait_for_no_more(files, threads):
    """What is closed ends in its own time: the name server's side of a link when it sees the other one go."""
    wait_for(lambda: open_files() <= files, f"at most {files} open files")
    wait_for(lambda: threading.active_count() <= threads, f"at most {threads} threads")


def test_one_that_fails_halfway_closes_what_it_opened(members, monkeypatch):
    one, _ = members
    one.lead(1)
    before, threads = open_files(), threading.active_count()

    def fail(*_):
        raise OSError(5, "the disk")

    with monkeypatch.context() as patch:
        patch.setattr("appliance.engine.broker.broker.Broker._build_services", fail)
        for _ in range(5):
            with pytest.raises(OSError, match="the disk"):
                one.brokers.lead(2, frozenset())
        wait_for_no_more(before, threads)
    one.brokers.lead(2, frozenset())
    one.running.put("Orders", b"a")


def test_an_empty_seat_is_taken_again_by_itself(members, monkeypatch):
    one, _ = members
    one.lead(1)
    with monkeypatch.context() as patch:
        patch.setattr(brokers_module, "MEND_S", 0.0)
        patch.setattr(seat_module.Seat, "_build", lambda self, role: (_ for _ in ()).throw(OSError(5, "the disk")))
        with pytest.raises(OSError, match="the disk"):
            one.brokers.lead(2, frozenset())
        assert "the disk" in one.brokers.health().why_not
        patch.undo()
        patch.setattr(brokers_module, "MEND_S", 0.0)
        assert one.brokers.health().electable
    assert one.brokers.role == "fenced"
    one.lead(2)
    one.running.put("Orders", b"a")


def resident_kb() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def test_fifty_changes_leave_no_memory_threads_or_descriptors_behind(tmp_path):
    running = RunningEngine(tmp_path)
    try:
        seat = running.engine.seat
        running.put("Orders", b"a")

        def change(number: int) -> None:
            seat.change(Role(Kind.LEADER, 0, number))
            assert running.peers[0].ask(SEND, send_fields("Orders"), b"b").code == 0
            if number % 5 == 0:
                running.window.overview.snapshot()
                gc.collect()

        for number in range(1, 21):  # arenas and tables reach their size
            change(number)
        gc.collect()
        before = (resident_kb(), open_files(), threading.active_count())
        for number in range(21, 71):
            change(number)
        gc.collect()
        wait_for_no_more(before[1] + 2, before[2] + 1)
        assert resident_kb() <= before[0] + 16 * 1024, "a broker takes more than 2 MiB: fifty of them would show"
        assert running.window.topics.detail("Orders").row.messages == 71
    finally:
        running.stop()
