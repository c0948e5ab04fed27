"""A follower bound to a leader and an epoch, over real sockets: a real leader, and leaders that a test plays."""

import errno
import os
import shutil
import socket
import time

import pytest

from appliance.engine.failover.set_state import Leader
from appliance.engine.protocol.ha_preamble import SAYS_TAKEN, Answer, Hello, Opening, Reason, Refusal, pack, set_hash
from appliance.engine.protocol.ha_stream import CHANGES, CONFIRM, pack_header
from appliance.engine.replication import bound_follower
from tests.engine.replication.test_bad_masters import PlayedMaster
from tests.support.bound import FollowerBox, LeaderBox, epochs_of
from tests.support.engine import RunningEngine, send_fields, start_engine
from tests.support.ports import reserve_port
from tests.support.set_of_brokers import FILE, SMALL, log_of, wait_same
from tests.support.waiting import ends, wait_for

WAITS = "WAIT\x01true\x02"


@pytest.fixture
def boxes(tmp_path):
    """(make a leader, make a follower); all are stopped at the end."""
    made = []

    def leader(name: str = "leader", **store) -> LeaderBox:
        made.append(LeaderBox(tmp_path / name, name, **store))
        return made[-1]

    def follower(name: str = "follower", **store) -> FollowerBox:
        made.append(FollowerBox(tmp_path / name, name, **store))
        return made[-1]

    yield leader, follower
    for one in reversed(made):
        if one.running.engine.loop.alive:
            one.stop()


def fill(box: LeaderBox, count: int, size: int = 4000) -> None:
    for n in range(count):
        box.running.put("Orders", b"%d " % n * (size // 4), queue=n % 4)


def wait_followed(leader: LeaderBox, follower: FollowerBox) -> None:
    wait_same(leader.running, follower.running)
    uuid = follower.files.uuid
    end = leader.store.log.written
    wait_for(lambda: {one.uuid: one.durable for one in leader.position.members()}.get(uuid) == end, "its report")


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_an_empty_follower_gets_all_of_several_files_and_shows_what_is_confirmed(boxes, flush):
    leader = boxes[0](flush_disk_type=flush)
    fill(leader, 300)
    leader.lead()
    assert leader.store.log.written > FILE
    follower = boxes[1](flush_disk_type=flush)
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    stream = follower.follow(leader.address)
    wait_followed(leader, follower)
    wait_for(lambda: stream.status.confirm == leader.store.published, "the confirm offset")
    status = stream.status
    assert (status.leader, status.epoch, status.cut_at, status.stranger) == ("leader", 1, -1, False)
    assert (status.refused, status.why) == (False, "")
    assert before < status.heard_at <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert follower.files.epochs == leader.files.epochs
    assert stream.agrees
    assert follower.confirmed.covers_start


def test_nothing_is_answered_or_shown_before_all_awaited_have_it(boxes):
    leader = boxes[0]()
    leader.lead()
    one, two = boxes[1]("one"), boxes[1]("two")
    for each in (one, two):
        each.follow(leader.address)
    wait_followed(leader, one)
    wait_followed(leader, two)
    leader.await_members("one", "two")
    leader.running.put("Orders", b"with both", properties=WAITS)
    wait_for(lambda: one.store.published == two.store.published == leader.store.published > 0, "it to be shown")
    two.close_stream()
    begin = leader.store.published
    peer = leader.running.peer()
    peer.send(310, send_fields("Orders", 0, WAITS), b"with one")
    wait_for(lambda: one.store.log.written > begin, "the one to have it")
    with pytest.raises(TimeoutError):
        peer.receive(0.5)
    # The follower has the message, and does not show it, as its leader does not.
    assert one.store.published == leader.store.published == begin
    leader.await_members("one")
    assert peer.receive().code == 0
    wait_for(lambda: one.store.published == leader.store.published > begin, "it to be shown")


def test_a_frozen_leader_answers_nothing_whoever_has_it(boxes):
    leader, follower = boxes[0](), boxes[1]()
    leader.lead()
    follower.follow(leader.address)
    wait_followed(leader, follower)
    leader.await_members("follower")
    leader.position.freeze()
    peer = leader.running.peer()
    peer.send(310, send_fields("Orders", 0, WAITS), b"x")
    wait_for(lambda: follower.store.log.written > 0, "the follower to have it")
    with pytest.raises(TimeoutError):
        peer.receive(0.5)
    assert leader.store.published == follower.store.published == 0


def test_it_goes_on_where_it_was_after_its_restart_and_the_leaders_epochs(boxes):
    """Epoch 1 and 2 of one leader: a member that was away for one of them follows in the third."""
    leader, follower = boxes[0](), boxes[1]()
    leader.lead(1)
    fill(leader, 20)
    follower.follow(leader.address, 1)
    wait_followed(leader, follower)
    follower.close_stream()
    leader.end_epoch()
    leader.lead(2)
    fill(leader, 20)
    leader.end_epoch()
    leader.lead(3)
    fill(leader, 20)
    stream = follower.follow(leader.address, 3)
    wait_followed(leader, follower)
    assert stream.status.cut_at == -1
    assert follower.files.epochs == leader.files.epochs
    assert len(follower.files.epochs) == 3


def test_a_new_epoch_closes_the_stream_of_the_old_one(boxes):
    leader, follower = boxes[0](), boxes[1]()
    leader.lead(1)
    stream = follower.follow(leader.address, 1)
    wait_followed(leader, follower)
    port = leader.port
    leader.end_epoch()
    leader.lead(2)
    wait_for(lambda: stream.status.leader == "", "the stream to close")
    assert leader.port != port
    stream = follower.follow(leader.address, 1)  # as if the key had been read too early
    wait_for(lambda: "it leads epoch 2, not 1" in stream.status.why, "it to be refused")
    stream = follower.follow(leader.address, 2)
    wait_followed(leader, follower)
    assert stream.status.epoch == 2


def diverge(boxes, tmp_path) -> tuple[LeaderBox, FollowerBox]:
    """Return a leader, and a follower that has led: both have the first 20 records, and different ones behind them."""
    leader = boxes[0]()
    leader.lead(1)
    fill(leader, 20)
    leader.end_epoch()
    leader.running.hang_up()
    leader.running.engine.stop()
    shutil.copytree(tmp_path / "leader" / "store", tmp_path / "follower" / "store")
    old = boxes[0]("follower")
    fill(old, 7)
    old.running.engine.stop()
    leader.running.engine = start_engine(leader.running.data_dir, **leader.running.options)
    follower = boxes[1]("follower")
    return leader, follower


def test_a_log_that_went_another_way_is_to_be_cut_and_is_left_as_it_is(boxes, tmp_path):
    leader, follower = diverge(boxes, tmp_path)
    fork = leader.store.log.written
    before = log_of(follower.running)
    assert len(before) > fork
    leader.lead(2)
    fill(leader, 30)
    follower.files.epochs = epochs_of((1, 0))
    stream = follower.follow(leader.address, 2)
    wait_for(lambda: stream.status.cut_at == fork, "it to say so")
    assert not stream.status.stranger
    assert stream.status.leader == ""
    assert not stream.agrees
    assert log_of(follower.running) == before
    assert follower.files.epochs == epochs_of((1, 0))  # unchanged: the log is not the leader's


def test_two_switches_one_after_the_other_are_seen_by_the_lists(boxes, tmp_path):
    """It led epoch 2 while another led 3 from an earlier place: the newest common epoch counts, not the offsets."""
    leader, follower = diverge(boxes, tmp_path)
    fork = leader.store.log.written
    follower.files.epochs = epochs_of((1, 0), (2, fork))
    leader.lead(3)
    fill(leader, 30)  # longer than the follower's
    assert leader.store.log.written > follower.store.log.written
    stream = follower.follow(leader.address, 3)
    wait_for(lambda: stream.status.cut_at == fork, "it to say so")


def test_the_last_record_is_compared_though_the_lists_agree(boxes, tmp_path):
    """The list of epochs may have been copied along: no byte of such a log is continued."""
    leader, follower = diverge(boxes, tmp_path)
    before = log_of(follower.running)
    fill(leader, 30)
    leader.files.epochs = epochs_of((1, 0))
    leader.lead(2)
    follower.files.epochs = epochs_of((1, 0), (2, leader.store.log.written))
    stream = follower.follow(leader.address, 2)
    wait_for(lambda: "is another than the last one here" in stream.status.why, "it to say so")
    assert not stream.agrees
    assert log_of(follower.running) == before


@pytest.mark.parametrize("epochs", [(), ((7, 0),)])
def test_a_log_without_a_common_epoch_is_a_strangers(boxes, epochs):
    leader, follower = boxes[0](), boxes[0]("follower")
    fill(follower, 3)
    follower.running.engine.stop()
    follower = boxes[1]("follower")
    follower.files.epochs = epochs_of(*epochs)
    leader.lead(8)
    fill(leader, 30)
    stream = follower.follow(leader.address, 8)
    wait_for(lambda: stream.status.stranger, "it to say so")
    assert "no epoch in common" in stream.status.why
    assert stream.status.cut_at == -1


class PlayedLeader(PlayedMaster):
    """A leader of epoch 1 whose every byte the test decides."""

    address = property(lambda self: Leader("played", 1, f"127.0.0.1:{self.port}", f"127.0.0.1:{self.port}"))

    def hello(self, sock: socket.socket) -> Hello:
        opening = Opening()
        while True:
            data = sock.recv(8)
            assert data, "closed"
            found = opening.feed(data)
            if found is not None:
                return found

    def bound(self, **other) -> socket.socket:
        """Accept a follower, and return its socket."""
        sock = self.accept()
        self.hello(sock)
        sock.sendall(pack(Answer("played", 1, 0, 0, ((1, 0),))._replace(**other)))
        return sock


@pytest.fixture
def played():
    leader = PlayedLeader()
    yield leader
    leader.server.close()


def test_what_it_says_of_itself(boxes, played):
    follower = boxes[1]()
    follower.files.epochs = epochs_of((1, 0))
    follower.follow(played.address)
    sock = played.accept()
    assert played.hello(sock) == Hello(
        set_hash("broker-a"), "follower", 1, 1, 1, 0, 0, FILE, ((1, 0),), SAYS_TAKEN
    )  # fmt: skip
    sock.close()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"epoch": 2, "epochs": ((2, 0),)}, "is not played in epoch 1"),
        ({"uuid": "other"}, "is not played in epoch 1"),
        (None, "refuses this member: go away"),
    ],
)
def test_an_answer_that_is_not_the_one_asked_for_is_refused(boxes, played, said, why):
    follower = boxes[1]()
    stream = follower.follow(played.address)
    sock = played.accept()
    played.hello(sock)
    answer = Answer("played", 1, 0, 0, ((1, 0),))
    sock.sendall(pack(Refusal(Reason.FULL, 1, "go away") if said is None else answer._replace(**said)))
    played.gone(sock)
    wait_for(lambda: why in stream.status.why, "it to say so")
    assert stream.status.leader == ""
    assert stream.status.heard_at == 0.0
    assert follower.files.epochs == ()
    played.accept().close()  # it tries again


@pytest.mark.parametrize("said", [b"\xff" * 80, pack_header(0, 0), b"\xd2BoxHA\0\x01\xff\xff\xff\xff\0\0\0\0",
                                  b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])  # fmt: skip
def test_who_does_not_answer_as_a_leader_is_left(boxes, played, said):
    follower = boxes[1]()
    stream = follower.follow(played.address)
    sock = played.accept()
    played.hello(sock)
    sock.sendall(said)
    if not said:
        sock.close()
    else:
        played.gone(sock)
    wait_for(lambda: stream.status.why != "no connection was made yet", "it to say so")
    assert stream.status.leader == ""


def test_a_master_without_a_set_is_left_after_two_seconds(boxes, played):
    """Apache's does not answer a request without an offset."""
    follower = boxes[1]()
    begun = time.monotonic()
    stream = follower.follow(played.address)
    sock = played.accept()
    played.hello(sock)
    played.gone(sock)
    assert time.monotonic() - begun > 1.5
    wait_for(lambda: "did not answer within 2 s" in stream.status.why, "it to say so")


@pytest.mark.parametrize(
    "frame",
    [
        pack_header(0, 0x7FFFFFFF),
        pack_header(0, -3),
        pack_header(-1, CHANGES),
        pack_header(-2, CONFIRM),
        pack_header(500, CONFIRM) + pack_header(499, CONFIRM),
        pack_header(FILE - 1, 2),
        pack_header(5, 10) + bytes(10),
    ],
)
def test_frames_that_no_leader_sends_end_the_stream(boxes, played, frame):
    follower = boxes[1]()
    stream = follower.follow(played.address)
    sock = played.bound()
    assert played.report(sock) == 0
    sock.sendall(frame)
    played.gone(sock)
    why = wait_for(lambda: stream.status.why, "it to say so")
    assert "nothing was heard" not in why, "a frame that is well"
    assert follower.store.log.written == 0


def frames(log: bytes, begin: int, end: int) -> bytes:
    return pack_header(begin, end - begin) + log[begin:end]


@pytest.fixture
def log(tmp_path) -> bytes:
    """Records of one file, as a RocketBox broker wrote them."""
    running = RunningEngine(tmp_path / "writer", store=SMALL)
    try:
        for n in range(20):
            running.put("Orders", b"%d " % n * 1000, queue=n % 4)
        return log_of(running)
    finally:
        running.stop()


def test_half_records_are_dropped_when_the_stream_closes_and_nothing_comes_after(boxes, played, log):
    follower = boxes[1]()
    stream = follower.follow(played.address)
    sock = played.bound()
    played.report(sock)
    sock.sendall(pack_header(15_000, CONFIRM) + frames(log, 0, 10_000) + frames(log, 10_000, 15_000)[:3000])
    kept = wait_for(lambda: follower.store.log.written, "the whole ones")
    assert 0 < kept < 10_000 + 3000
    played.heard(sock, follower.store.log.written)
    sock.sendall(log[12_988:15_000])
    assert stream.close()
    end = follower.store.log.written
    assert follower.store.kept() == end
    assert log_of(follower.running) == log[:end]
    record_end = 0
    while record_end < end:
        record_end += int.from_bytes(log[record_end : record_end + 4], "big")
    assert record_end == end
    assert not stream.alive
    assert stream.status.leader == ""
    played.gone(sock)
    # Its next stream begins at the last whole record, which the leader sends again.
    follower.files.epochs = epochs_of((1, 0))
    follower.follow(played.address)
    again = played.bound(end=len(log))
    last = played.report(again)
    assert last == follower.store.last_record_offset < end
    again.sendall(frames(log, last, len(log)))
    played.heard(again, len(log))
    assert log_of(follower.running) == log
    again.close()


def test_closing_does_not_wait_for_a_leader_that_does_not_answer(boxes, played, monkeypatch):
    monkeypatch.setattr(bound_follower, "ANSWER_S", 600.0)
    follower = boxes[1]()
    stream = follower.follow(played.address)
    sock = played.accept()
    played.hello(sock)
    assert ends(stream.close, "it waits for the answer")
    # Nor for a leader that cannot be reached: a listener whose queue is full.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        address = f"127.0.0.1:{full.getsockname()[1]}"
        stream = follower.follow(Leader("full", 1, address, address))
        time.sleep(0.2)  # so that it tries to connect, most times
        assert ends(stream.close, "it waits for the connection")
        for one in waiting:
            one.close()
    sock.close()


def test_a_process_that_is_gone_is_told_from_one_that_hangs_up(boxes, played):
    """Both of its ports refuse: the kernel has no such process."""
    follower = boxes[1]()
    main = socket.create_server(("127.0.0.1", 0))
    leader = Leader("played", 1, f"127.0.0.1:{main.getsockname()[1]}", f"127.0.0.1:{played.port}")
    stream = follower.follow(leader)
    sock = played.bound()
    played.report(sock)
    wait_for(lambda: stream.status.leader, "the stream")
    played.server.close()
    sock.close()
    wait_for(lambda: "Connection refused" in stream.status.why, "it to try again")
    assert not stream.status.refused  # its main port is there
    main.close()
    wait_for(lambda: stream.status.refused, "it to say so")
    back = socket.create_server(("127.0.0.1", played.port))
    wait_for(lambda: not stream.status.refused, "it to see a connection")
    back.close()


def test_a_leader_that_was_never_reached_is_not_called_gone(boxes):
    follower = boxes[1]()
    address = f"127.0.0.1:{reserve_port()}"
    stream = follower.follow(Leader("never", 1, address, address))
    wait_for(lambda: "Connection refused" in stream.status.why, "it to try")
    time.sleep(0.5)
    assert not stream.status.refused


def test_an_epoch_that_is_over_is_not_followed(boxes, played):
    follower = boxes[1]()
    stream = follower.follow(played.address)
    sock = played.bound()
    played.report(sock)
    follower.files.see(2)
    sock.close()
    wait_for(lambda: "is not the newest" in stream.status.why, "it to say so")
    # It only checks that the port accepts, and sends nothing.
    assert [played.accept().recv(8) for _ in range(3)] == [b""] * 3


def test_a_silent_leader_is_heard_of_no_more_and_left_later(boxes, played, monkeypatch):
    monkeypatch.setattr(bound_follower, "SETTINGS", bound_follower.SETTINGS._replace(silence_s=3.0))
    follower = boxes[1]()
    stream = follower.follow(played.address)
    sock = played.bound()
    played.report(sock)
    begun = time.clock_gettime(time.CLOCK_BOOTTIME)
    sock.sendall(pack_header(0, 0) + pack_header(77, CONFIRM))
    wait_for(lambda: stream.status.confirm == 77, "the confirm offset")
    heard = wait_for(lambda: (at := stream.status.heard_at) > begun and at, "it to be noted when")
    played.gone(sock)
    assert stream.status.heard_at == heard
    assert follower.confirmed() == 77
    wait_for(lambda: "nothing was heard" in stream.status.why, "it to say so")


def test_only_what_is_confirmed_is_shown_and_what_was_here_at_the_start_is_known_to_be_later(boxes, played, log):
    follower = boxes[1]()
    follower.follow(played.address)
    sock = played.bound()
    played.report(sock)
    sock.sendall(frames(log, 0, len(log)))
    played.heard(sock, len(log))
    assert follower.store.published == 0
    sock.sendall(pack_header(len(log), CONFIRM))
    wait_for(lambda: follower.store.published == len(log), "it to be shown")
    sock.close()
    follower.stop()
    follower = boxes[1]()
    follower.files.epochs = epochs_of((1, 0))
    assert not follower.confirmed.covers_start
    follower.follow(played.address)
    sock = played.bound(end=len(log))
    played.report(sock)
    sock.sendall(pack_header(len(log) - 1, CONFIRM) + frames(log, follower.store.last_record_offset, len(log)))
    played.heard(sock, len(log))
    assert not follower.confirmed.covers_start
    sock.sendall(pack_header(len(log), CONFIRM))
    wait_for(lambda: follower.confirmed.covers_start, "it to be covered")
    sock.close()


def test_errors_of_this_machine_do_not_end_it(boxes, played, monkeypatch):
    """For a moment there are no descriptors."""
    follower = boxes[1]()
    real, broken = socket.socket.connect_ex, [1, 1]

    def connect_ex(self, where):
        if where[1] == played.port and broken:
            broken.pop()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(self, where)

    monkeypatch.setattr(bound_follower.socket.socket, "connect_ex", connect_ex)
    stream = follower.follow(played.address)
    sock = played.bound()
    played.report(sock)
    wait_for(lambda: stream.status.leader == "played", "the stream")
    sock.close()


def test_without_its_stream_nobody_takes_another_process_for_the_leader(boxes):
    """An empty machine in the leader's place, with its address, would answer for its tables."""
    leader, follower = boxes[0](), boxes[1]()
    leader.lead()
    stream = follower.follow(leader.address)
    wait_followed(leader, follower)
    assert stream.agrees
    leader.stop()
    wait_for(lambda: not stream.status.leader, "the end of the stream")
    assert not stream.agrees
