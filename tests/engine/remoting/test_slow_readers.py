"""Peers that request much and read nothing: their cost is bounded, and they get all of it when they read."""

import contextlib
import json
import socket
import threading
import time

import pytest

from appliance.engine.protocol.command import RemotingCommand, encode_command
from appliance.engine.remoting import outbox as outbox_module
from appliance.engine.remoting import server as server_module
from appliance.engine.remoting.outbox import OUTBOX_HIGH_BYTES
from tests.support.directories import shared_directory
from tests.support.engine import Peer, pull_fields, records, send_fields
from tests.support.remoting import ECHO, request
from tests.support.server import Server
from tests.support.waiting import wait_for

PULL, CREATE_GROUP, ALL_GROUPS = 11, 200, 201
MIB = 1024 * 1024
SLACK = 16 * MIB
LARGE, LARGE_IN_POOL, ORDER = 6, 7, 8
#: The kernel buffers little for a slow peer; below a few segments of the loopback it would wait for timers.
RECEIVE_BYTES = 256 * 1024


def peak_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def forget_peak(pid):
    with open(f"/proc/{pid}/clear_refs", "w") as file:
        file.write("5")


def slow(peer):
    """A connection for which the kernel buffers little."""
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    return peer


@pytest.fixture(scope="module")
def server(request):
    environment = {"ROCKETBOX_STORE_MESSAGE_INDEX_ENABLE": "false"}  # its first message makes 20 MB of slots
    with Server(shared_directory(request, "server") / "data", "--flush", "async", environment=environment) as server:
        yield server


def test_200_pipelined_pulls_of_a_large_message_cost_the_bound_and_one_answer(server):
    body = bytes(range(256)) * 4096
    peer = slow(Peer(server.broker))
    assert peer.ask(310, send_fields("Large"), body).code == 0
    answer = peer.ask(PULL, pull_fields("Large", 0, 0))
    assert len(answer.body) > len(body)
    forget_peak(server.pid)
    before = peak_bytes(server.pid)
    frames = b"".join(
        encode_command(
            RemotingCommand(PULL, opaque=n, ext_fields={k: str(v) for k, v in pull_fields("Large", 0, 0).items()})
        )
        for n in range(200)
    )
    peer.send_bytes(frames)
    time.sleep(2)
    assert peak_bytes(server.pid) - before < SLACK + OUTBOX_HIGH_BYTES + len(body)
    other = Peer(server.broker)
    assert other.ask(PULL, pull_fields("Large", 0, 0)).code == 0, "others are served meanwhile"
    other.close()
    for n in range(200):
        answer = peer.receive()
        assert (answer.opaque, answer.code) == (n, 0)
        (record,) = records(answer.body)
        assert record.body == body
    assert peak_bytes(server.pid) - before < SLACK + OUTBOX_HIGH_BYTES + len(body)
    peer.close()


def test_100_pipelined_requests_of_a_pool_cost_the_bound_and_one_answer(server):
    peer = slow(Peer(server.broker))
    for begin in range(0, 3000, 200):
        for n in range(begin, begin + 200):
            group = {"groupName": f"G{n}-" + "x" * 100}
            peer.send(CREATE_GROUP, body=json.dumps(group).encode())
        assert {peer.receive().code for _ in range(200)} == {0}
    size = len(peer.ask(ALL_GROUPS).body)
    assert size > MIB
    forget_peak(server.pid)
    before = peak_bytes(server.pid)
    first = None
    for _ in range(100):
        opaque = peer.send(ALL_GROUPS)
        first = opaque if first is None else first
    time.sleep(2)
    # Each pool may hold one answer, and those it made before it checked.
    bound = SLACK + OUTBOX_HIGH_BYTES + 4 * size
    assert peak_bytes(server.pid) - before < bound
    for n in range(100):
        answer = peer.receive()
        assert (answer.opaque, answer.code, len(answer.body)) == (first + n, 0, size)
    assert peak_bytes(server.pid) - before < bound
    peer.close()


# --- the parts, against a rig of their own


class Sizes:
    """Handlers whose answers are much larger than the requests."""

    def __init__(self, rig):
        self.built = 0
        self.parked = []
        dispatcher = rig.server._listeners[0].dispatcher
        dispatcher.add(LARGE, self.large)
        dispatcher.add(LARGE_IN_POOL, self.large, "large")
        dispatcher.add(ORDER, self.park)
        rig.pools["large"].start()

    def large(self, request, conn):
        self.built += 1
        return RemotingCommand.response(0, ext=dict(request.ext_fields), body=bytes(MIB))

    def park(self, request, conn):
        self.parked.append((conn, request.opaque))


@pytest.fixture
def sizes(rig):
    return Sizes(rig)


def conn_of(rig):
    return next(iter(rig.server.connections.values()))


def quiet(rig, sizes):
    """Wait until no further answer is built."""
    seen = -1
    wait_for(lambda: sizes.built, "no answer is built")
    while seen != sizes.built:
        seen = sizes.built
        time.sleep(0.3)


@pytest.mark.parametrize("code", [LARGE, LARGE_IN_POOL])
def test_answers_are_built_when_their_peer_has_taken_the_earlier_ones(rig, sizes, code):
    peer = rig.peer()
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    peer.send_bytes(*[request(code, n) for n in range(100)])
    quiet(rig, sizes)
    conn = conn_of(rig)
    kernel = 8 * MIB  # both sockets' buffers
    assert sizes.built < (OUTBOX_HIGH_BYTES + kernel) // MIB + 3
    assert conn.outbox_bytes <= OUTBOX_HIGH_BYTES + 2 * MIB
    assert [peer.receive().opaque for _ in range(100)] == list(range(100))
    assert sizes.built == 100
    assert peer.ask(ECHO, opaque=7).opaque == 7
    wait_for(lambda: rig.server._partial_total == rig.server._outbox_total == 0, "something is still counted")
    assert conn._in_pools_bytes == conn._posted == conn._pool_waits == 0


def test_kept_frames_are_dispatched_though_no_more_bytes_come_and_a_partial_one_behind_them_too(rig, sizes):
    peer = rig.peer()
    last = request(ECHO, 99, b"last")
    peer.send_bytes(*[request(LARGE, n) for n in range(20)], last[:30])
    quiet(rig, sizes)
    assert sizes.built < 20
    wait_for(lambda: conn_of(rig).partial_bytes, "no frame is kept")
    assert [peer.receive().opaque for _ in range(20)] == list(range(20))
    peer.send_bytes(last[30:])
    assert peer.receive().body == b"last"


def test_a_peer_that_goes_while_its_requests_wait_leaves_nothing_behind(rig, sizes):
    peer = rig.peer()
    peer.send_bytes(*[request(LARGE_IN_POOL, n) for n in range(50)], *[request(LARGE, n) for n in range(50)])
    quiet(rig, sizes)
    conn = conn_of(rig)
    peer.close()
    wait_for(lambda: rig.closed, "the end was not noticed")
    wait_for(lambda: conn._in_pools_bytes == 0, "places in the pool are still taken")
    assert rig.server._partial_total == rig.server._outbox_total == 0
    assert rig.pools["large"]._held == rig.pools["large"].waiting().number == 0
    assert rig.peer().ask(LARGE_IN_POOL).code == 0


def test_what_is_woken_for_a_slow_reader_waits_until_it_reads(rig, sizes):
    """Parked pulls, which a publication wakes, do so."""
    peer = rig.peer()
    peer.send_bytes(*[request(ORDER, n) for n in range(100)])
    wait_for(lambda: len(sizes.parked) == 100, "not parked")

    def wake():
        for conn, opaque in sizes.parked:
            conn.when_room(lambda conn=conn, opaque=opaque: build(conn, opaque))

    def build(conn, opaque):
        sizes.built += 1
        conn.answer(opaque, RemotingCommand.response(0, body=bytes(MIB)))

    rig.loop.call_soon(wake)
    quiet(rig, sizes)
    assert sizes.built < 20
    assert [peer.receive().opaque for _ in range(100)] == list(range(100))


def test_requests_in_pools_count_with_their_headers_and_one_peer_has_its_share_only(rig, monkeypatch):
    monkeypatch.setattr(outbox_module, "MAX_CONNECTION_WAITING_BYTES", 200_000)
    greedy, other = rig.peer(), rig.peer()
    greedy.send_bytes(*[request(4, n, k="v" * 50_000) for n in range(8)])
    refused = [greedy.receive() for _ in range(5)]
    assert {answer.code for answer in refused} == {2}
    assert [answer.opaque for answer in refused] == [3, 4, 5, 6, 7]
    assert "OVERLOAD" in refused[0].remark
    other.send_bytes(request(4, 1))
    rig.release.set()
    assert [greedy.receive().body for _ in range(3)] == [b"slow"] * 3
    assert other.receive().body == b"slow"
    assert greedy.ask(4, opaque=9).body == b"slow", "its share is free again"


def test_outboxes_of_all_peers_together_are_bounded(rig, sizes, monkeypatch):
    monkeypatch.setattr(server_module, "OUTBOX_TOTAL_BYTES", 12 * MIB)
    peers = [rig.peer() for _ in range(12)]
    for peer in peers:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        peer.send_bytes(*[request(LARGE, n) for n in range(12)])
        time.sleep(0.05)
    quiet(rig, sizes)
    assert rig.server._outbox_total <= 12 * MIB
    assert rig.server._outbox_total == sum(conn.outbox_bytes for conn in rig.server.connections.values())
    alive = []
    for peer in peers:
        answers = []
        with contextlib.suppress(ConnectionError):
            while len(answers) < 12:
                answers.append(peer.receive().opaque)
        assert answers == list(range(len(answers)))
        alive.append(len(answers) == 12)
    assert any(alive), "those that are left get everything"
    wait_for(lambda: rig.server._outbox_total == 0, "something is still counted")
    assert rig.server.outbox_high_bytes == OUTBOX_HIGH_BYTES
    assert rig.peer().ask(LARGE).code == 0


def test_a_peer_that_takes_nothing_for_long_is_closed_and_one_that_takes_little_is_not(rig, sizes, monkeypatch):
    monkeypatch.setattr(server_module, "STUCK_SECONDS", 2.0)
    monkeypatch.setattr(server_module, "IDLE_SECONDS", 2.0)
    monkeypatch.setattr(server_module, "PARTIAL_IDLE_SECONDS", 1.0)
    stuck, slow = rig.peer(), rig.peer()
    for peer in stuck, slow:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        peer.send_bytes(*[request(LARGE, n) for n in range(40)])
    quiet(rig, sizes)

    def is_closed():
        """Take a little, so much that the kernel asks for more, and have the server look at once."""
        enough = len(slow.unread) + RECEIVE_BYTES
        while len(slow.unread) < enough:
            slow.unread += slow.sock.recv(RECEIVE_BYTES)
        rig.loop.call_soon(rig.server._close_idle)
        return len(rig.server.connections) == 1

    wait_for(is_closed, "who takes nothing is kept", every=0.1)
    monkeypatch.setattr(server_module, "STUCK_SECONDS", 60.0)
    assert [slow.receive().opaque for _ in range(40)] == list(range(40))


def test_what_others_cause_to_be_sent_to_a_peer_that_does_not_read_is_bounded_too(rig):
    peer = rig.peer()
    assert peer.ask(ECHO).code == 0
    conn = conn_of(rig)
    notice = bytes(64 * 1024)
    sent = []

    def notify():
        for _ in range(16):
            conn.send(notice)
        sent.append(16)
        if len(sent) < 300 and not conn.closed:
            rig.loop.call_soon(notify)

    rig.loop.call_soon(notify)
    wait_for(lambda: conn.closed, "300 MiB of notices are kept for it")
    assert sum(sent) * 64 / 1024 < 100


def test_many_small_answers_in_a_large_outbox_arrive_in_order(rig):
    peer = rig.peer()
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    body = bytes(500)
    count = 30_000
    sender = threading.Thread(target=lambda: [peer.send_bytes(request(ECHO, n, body)) for n in range(count)])
    sender.start()
    time.sleep(1)
    assert conn_of(rig).outbox_bytes < OUTBOX_HIGH_BYTES + 64 * 1024
    assert [peer.receive().opaque for _ in range(count)] == list(range(count))
    sender.join(60)
