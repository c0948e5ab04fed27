"""RocketBox's own errors in the middle of a peer's stream: that connection closes, the error is logged once, and no
other peer notices."""

import logging
import os
import socket
import threading

import pytest

from appliance.engine.broker.long_polling import LongPolling
from appliance.engine.protocol.command import RemotingCommand, encode_command
from appliance.engine.remoting import outbox as outbox_module
from appliance.engine.remoting.peer_requests import PeerRequests
from tests.support.engine import Peer, pull_fields, send_fields, start_engine
from tests.support.remoting import ECHO, HOT, HotFields, request
from tests.support.waiting import wait_for

FILE = 6
BYTES = 300_000


def stacks(caplog):
    return [record for record in caplog.records if record.exc_info]


def check_others(rig, bystander):
    assert bystander.ask(ECHO, opaque=9).opaque == 9
    wait_for(lambda: len(rig.server.connections) == 1, "the connection was not closed")


@pytest.mark.parametrize("error", [KeyError("planted"), OSError(5, "planted"), BlockingIOError(11, "planted")])
def test_an_error_out_of_a_hot_handler_closes_that_connection_only(rig, caplog, error):
    bystander, peer = rig.peer(), rig.peer()
    assert bystander.ask(ECHO).code == 0

    def fail(conn, frame, body):
        raise error

    rig.server._listeners[0].dispatcher.add_hot(HOT, HotFields, fail)
    peer.send_bytes(request(ECHO, 1), request(HOT, 2, b"body", a="1"), request(ECHO, 3), request(ECHO, 4)[:20])
    assert [answer.opaque for answer in peer.receive_all()] in ([], [1])
    check_others(rig, bystander)
    assert len(stacks(caplog)) == 1
    assert rig.server._partial_total == 0


def test_an_error_out_of_a_handler_that_gets_a_frame_of_its_own_buffer_closes_that_connection_only(rig, caplog):
    bystander, peer = rig.peer(), rig.peer()
    assert bystander.ask(ECHO).code == 0

    def fail(conn, frame, body):
        raise BlockingIOError(11, "planted")

    rig.server._listeners[0].dispatcher.add_hot(HOT, HotFields, fail)
    peer.send_bytes(request(HOT, 2, bytes(1_000_000), a="1"))
    assert peer.is_closed()
    check_others(rig, bystander)
    assert len(stacks(caplog)) == 1


def test_an_error_among_kept_frames_closes_that_connection_only(rig, caplog):
    bystander, peer = rig.peer(), rig.peer()
    assert bystander.ask(ECHO).code == 0
    rig.loop.call_soon(lambda: rig.server.hold_producers(True))
    assert bystander.ask(ECHO).code == 0

    def fail(conn, frame, body):
        raise KeyError("planted")

    rig.server._listeners[0].dispatcher.add_hot(HOT, HotFields, fail)
    peer.send_bytes(request(HOT, 2, b"body", a="1"), request(ECHO, 3))
    wait_for(lambda: rig.server.held_back, "the send was not held back")
    rig.loop.call_soon(lambda: rig.server.hold_producers(False))
    assert peer.is_closed()
    check_others(rig, bystander)
    assert len(stacks(caplog)) == 1


class FailingSocket:
    """A socket whose named call fails."""

    def __init__(self, sock, call, error):
        self._sock, self._call, self._error = sock, call, error

    def __getattr__(self, name):
        if name != self._call:
            return getattr(self._sock, name)
        raise self._error

    def fileno(self):
        return self._sock.fileno()


@pytest.mark.parametrize(
    ("error", "closes"), [(BlockingIOError(11, "again"), False), (OSError(110, "timed out"), True)]
)
@pytest.mark.parametrize("kept", [10, 100_000])
def test_a_read_that_fails_closes_its_connection_unless_it_only_found_nothing(rig, error, closes, kept):
    bystander, peer = rig.peer(), rig.peer()
    assert bystander.ask(ECHO).code == 0
    frame = request(ECHO, 2, bytes(200_000))
    peer.send_bytes(frame[:kept])
    wait_for(lambda: rig.server._partial_total, "nothing is kept")
    conn = next(conn for conn in rig.server.connections.values() if conn.partial_bytes)
    real = conn._sock
    conn._socket = FailingSocket(real, "recv_into", error)
    peer.send_bytes(frame[kept : kept + 1])
    if closes:
        wait_for(lambda: conn.closed, "it was not closed")
        assert rig.server._partial_total == 0
    else:
        assert bystander.ask(ECHO, opaque=5).opaque == 5
        conn._socket = real
        peer.send_bytes(frame[kept + 1 :])
        assert peer.receive().opaque == 2
    assert bystander.ask(ECHO).code == 0


@pytest.fixture
def sent_file(rig, tmp_path):
    """Add a request whose answer is sent as a file; return the file's bytes."""
    (tmp_path / "file").write_bytes(os.urandom(BYTES))
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    body = (tmp_path / "file").read_bytes()

    def handler(question, conn):
        head = encode_command(RemotingCommand(0, opaque=question.opaque, flag=1))
        head = (len(head) - 4 + BYTES).to_bytes(4, "big") + head[4:]
        if not conn.send_file(head, fd, 0, BYTES):  # an earlier one is still waiting
            conn.send_parts([head, body], len(head) + BYTES)

    rig.server._listeners[0].dispatcher.add(FILE, handler)
    yield body
    os.close(fd)


def test_a_file_goes_out_whole(rig, sent_file):
    assert rig.peer().ask(FILE).body == sent_file


def failing(error):
    def call(*args):
        raise error

    return call


@pytest.mark.parametrize(
    ("sendfile", "pread"),
    [
        (failing(BlockingIOError(11, "again")), failing(OSError(5, "planted"))),
        (failing(BlockingIOError(11, "again")), lambda fd, count, at: b"short"),
        (lambda *args: 0, lambda fd, count, at: b""),
        (failing(OSError(5, "planted")), os.pread),
        (failing(ValueError("planted")), os.pread),
    ],
)
def test_a_file_that_cannot_be_sent_to_its_end_closes_that_connection_only(
    rig, sent_file, monkeypatch, caplog, sendfile, pread
):
    bystander, peer = rig.peer(), rig.peer()
    assert bystander.ask(ECHO).code == 0
    monkeypatch.setattr(outbox_module.os, "sendfile", sendfile)
    monkeypatch.setattr(outbox_module.os, "pread", pread)
    peer.send_bytes(request(FILE, 1), request(ECHO, 2))
    assert peer.is_closed(), "bytes behind a torn frame"
    check_others(rig, bystander)
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


def test_more_pieces_than_the_system_takes_at_once_are_one_frame(rig):
    body = os.urandom(5000)

    def handler(question, conn):
        head = encode_command(RemotingCommand(0, opaque=question.opaque, flag=1))
        parts = [(len(head) - 4 + len(body)).to_bytes(4, "big"), head[4:], *[body[n : n + 1] for n in range(5000)]]
        conn.send_now(parts, sum(map(len, parts)))

    rig.server._listeners[0].dispatcher.add(FILE, handler)
    assert rig.peer().ask(FILE).body == body


def test_a_flush_that_fails_costs_one_connection_and_the_others_get_their_answers(rig, caplog):
    failing_one, other = rig.peer(), rig.peer()
    for peer in failing_one, other:
        assert peer.ask(ECHO).code == 0
    first, second = rig.server.connections.values()
    first._socket = FailingSocket(first._sock, "send", ValueError("planted"))
    first._settled = False  # compiled code leaves it to Python then, and that uses the socket
    done = threading.Event()

    def answer_both():
        for conn in first, second:
            conn.answer(3, RemotingCommand.response(0))
        done.set()

    rig.loop.call_soon(answer_both)
    assert done.wait(60)
    assert other.receive().opaque == 3
    assert failing_one.is_closed()
    assert len(stacks(caplog)) == 1


def test_an_answer_that_cannot_be_encoded_is_an_answer(rig):
    rig.server._listeners[0].dispatcher.add(FILE, lambda request, conn: RemotingCommand.response(0, "\ud800"))
    peer = rig.peer()
    answer = peer.ask(FILE, opaque=4)
    assert (answer.code, answer.opaque) == (1, 4)
    assert peer.ask(ECHO).code == 0


def test_an_error_of_a_close_listener_leaves_no_socket_open_and_the_others_are_told(rig, caplog):
    def fail(conn):
        raise KeyError("planted")

    rig.server._close_listeners.insert(0, fail)
    peer = rig.peer()
    assert peer.ask(ECHO).code == 0
    (conn,) = rig.server.connections.values()
    peer.close()
    wait_for(lambda: conn._sock.fileno() == -1, "the socket stays open")
    assert rig.closed == [conn]
    assert len(stacks(caplog)) == 1


def test_an_error_of_who_asked_a_peer_is_not_the_peers(rig, caplog):
    requests = PeerRequests(rig.loop, rig.server)
    peer = rig.peer()
    assert peer.ask(ECHO).code == 0
    (conn,) = rig.server.connections.values()
    answered = []

    def fail(answer):
        answered.append(answer)
        raise KeyError("planted")

    rig.loop.call_soon(lambda: requests.ask(conn, RemotingCommand(307), 5, fail))
    question = peer.receive()
    answer = RemotingCommand.response(0)
    answer.opaque = question.opaque
    peer.send_bytes(encode_command(answer), request(ECHO, 8))
    assert peer.receive().opaque == 8
    assert len(answered) == len(stacks(caplog)) == 1
    for _ in range(3):
        rig.loop.call_soon(lambda: requests.ask(conn, RemotingCommand(307), 5, fail))
        peer.receive()
    peer.close()
    wait_for(lambda: len(answered) == 4, "one error kept others from hearing of the end")
    assert answered[1:] == [None] * 3


def test_an_error_for_one_parked_pull_keeps_no_other_from_its_answer(tmp_path, monkeypatch, caplog):
    engine = start_engine(tmp_path)
    try:
        peers = [Peer(engine.broker_address) for _ in range(4)]
        assert peers[0].ask(310, send_fields("Parked"), b"first").code == 0
        for number, peer in enumerate(peers[1:]):
            fields = pull_fields("Parked", 0, 1, sysFlag=6, suspendTimeoutMillis=9000, consumerGroup=f"G{number}")
            peer.send(11, fields)
            wait_for(lambda number=number: engine.broker.pull.long_polling.count == number + 1, "not parked")
        real = engine.broker.pull._path._resume

        def resume(parked):
            if parked.group.group_name == "G0":
                raise KeyError("planted")
            real(parked)

        monkeypatch.setattr(engine.broker.pull.long_polling, "_resume", resume)
        assert isinstance(engine.broker.pull.long_polling, LongPolling)
        assert peers[0].ask(310, send_fields("Parked"), b"second").code == 0
        with pytest.raises(ConnectionError):
            peers[1].receive()
        for peer in peers[2:]:
            assert peer.receive().code == 0
        assert len(stacks(caplog)) == 1
    finally:
        engine.stop()


def test_a_peer_that_resets_in_the_middle_of_a_file_is_no_error(rig, sent_file, caplog):
    peer = rig.peer()
    assert peer.ask(ECHO).code == 0
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    peer.send_bytes(*[request(FILE, n) for n in range(50)])
    peer.close()
    wait_for(lambda: not rig.server.connections, "it is kept")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
