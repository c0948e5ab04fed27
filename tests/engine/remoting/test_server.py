"""The I/O loop and its connections against real sockets: whole frames, torn ones, hostile ones, slow peers."""

import os
import socket
import struct
import threading
import time
import tracemalloc

import pytest

from appliance.engine.errors import StartError
from appliance.engine.protocol.command import CODEC_ROCKETMQ, MAX_FRAME_BYTES
from appliance.engine.remoting import server as server_module
from appliance.engine.remoting.event_loop import EventLoop
from appliance.engine.remoting.outbox import OUTBOX_HIGH_BYTES
from appliance.engine.remoting.server import listen
from tests.support.remoting import BIG, BUG, ECHO, HOT, REFUSE, SLOW, request
from tests.support.waiting import wait_for


def test_a_request_is_answered_with_its_opaque(rig):
    answer = rig.peer().ask(ECHO, {"key": "value"}, b"body", opaque=-12345)
    assert (answer.code, answer.opaque, answer.flag, answer.version) == (0, -12345, 1, 479)
    assert (answer.ext_fields, answer.body) == ({"key": "value"}, b"body")


def test_binary_requests_are_answered_in_json_as_5_3_3_does(rig):
    peer = rig.peer()
    peer.send_bytes(request(ECHO, 9, b"x", codec=CODEC_ROCKETMQ, k="v"))
    answer = peer.receive()
    assert (answer.codec, answer.opaque, answer.ext_fields) == (0, 9, {"k": "v"})
    assert rig.seen[0].codec == 1


def test_ten_thousand_idle_connections_take_six_megabytes(rig):
    """The connection, its socket, its reader and its places in tables, as tracemalloc counts them."""
    rig.peer().ask(ECHO)
    peers = []
    tracemalloc.start()
    try:
        peers += [socket.create_connection(("127.0.0.1", rig.port)) for _ in range(200)]
        wait_for(lambda: len(rig.server.connections) == 201, "all of them are accepted")
        places = 20 * max(rig.server.connections)  # of the tables of all descriptors, however many this process has
        places += 12 * 1024  # of the events of one look
        ours = [tracemalloc.Filter(True, f"*/engine/{place}/*") for place in ("remoting", "protocol")]
        taken = tracemalloc.take_snapshot().filter_traces(ours)
    finally:
        tracemalloc.stop()
        for peer in peers:
            peer.close()
    assert sum(one.size for one in taken.traces) < 200 * 600 + places, "\n".join(map(str, taken.statistics("lineno")))


def test_many_frames_in_one_segment_are_all_answered_in_order(rig):
    peer = rig.peer()
    peer.send_bytes(*[request(ECHO, i, b"%d" % i) for i in range(500)])
    answers = [peer.receive() for _ in range(500)]
    assert [a.opaque for a in answers] == list(range(500))
    assert [a.body for a in answers] == [b"%d" % i for i in range(500)]


def test_a_frame_that_arrives_byte_by_byte_is_one_frame(rig):
    peer = rig.peer()
    peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in request(ECHO, 3, b"slowly"):
        peer.send_bytes(bytes((byte,)))
    assert peer.receive().body == b"slowly"


@pytest.mark.parametrize("size", [60_000, 64 * 1024, 70_000, 600_000, 4 * 1024 * 1024, MAX_FRAME_BYTES - 1000])
def test_large_frames_come_through_whole_between_small_ones(rig, size):
    peer = rig.peer()
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    frames = [request(ECHO, 1, b"before"), request(ECHO, 2, body), request(ECHO, 3, b"after")]
    sender = threading.Thread(target=peer.send_bytes, args=frames)
    sender.start()
    assert peer.receive().body == b"before"
    assert peer.receive().body == body
    assert peer.receive().body == b"after"
    sender.join(60)


def test_one_way_requests_get_no_answer_at_all(rig):
    peer = rig.peer()
    peer.send_bytes(
        request(ECHO, 1, flag=2), request(REFUSE, 2, flag=2), request(BUG, 3, flag=2), request(999, 4, flag=2)
    )
    assert peer.ask(ECHO, opaque=5).opaque == 5


def test_unknown_codes_refusals_and_bugs_are_answers_not_deaths(rig):
    peer = rig.peer()
    unknown = peer.ask(4711)
    assert (unknown.code, unknown.remark) == (3, " request type 4711 not supported")
    refused = peer.ask(REFUSE)
    assert (refused.code, refused.remark) == (17, "no such thing")
    bug = peer.ask(BUG)
    assert bug.code == 1
    assert "ZeroDivisionError" in bug.remark
    assert peer.ask(ECHO).code == 0


def test_a_slow_handler_holds_nobody_else(rig):
    slow, other = rig.peer(), rig.peer()
    slow.send_bytes(request(SLOW, 1))
    assert other.ask(ECHO).code == 0
    assert slow.ask(ECHO, opaque=2).opaque == 2
    rig.release.set()
    assert slow.receive().body == b"slow"


def test_an_answer_larger_than_a_frame_becomes_an_error(rig):
    answer = rig.peer().ask(BIG)
    assert answer.code == 1
    assert "too large" in answer.remark


def test_hot_requests_are_read_in_place_if_their_fields_are_the_usual_ones(rig):
    peer = rig.peer()
    answer = peer.ask(HOT, {"a": "1"}, b"hot", opaque=7)
    assert (answer.body, rig.hot_calls) == (b"hot", 1)
    declined = peer.ask(HOT, {"other": "1"}, b"cold", opaque=8)
    assert (declined.body, declined.opaque, rig.hot_calls) == (b"cold", 8, 1)
    peer.send_bytes(request(HOT, 9, b"binary", codec=CODEC_ROCKETMQ))
    assert peer.receive().body == b"binary"
    assert rig.hot_calls == 1


HOSTILE = {
    "zero length": struct.pack(">i", 0),
    "length too short for a header": struct.pack(">i", 3) + b"abc",
    "negative length": struct.pack(">i", -1),
    "two gigabytes": struct.pack(">i", 2**31 - 1),
    "a byte over the limit": struct.pack(">i", MAX_FRAME_BYTES - 3),
    "header longer than the frame": struct.pack(">iI", 8, 5) + b"{}{}",
    "a long header of nothing": struct.pack(">iI", 4 + 300_000, 300_000) + b"x" * 300_000,
    "unknown serializer": struct.pack(">iI", 8, 9 << 24 | 4) + b"abcd",
    "not json": struct.pack(">iI", 12, 8) + b"not json",
    "deep json": struct.pack(">iI", 4 + 40_020, 40_020) + b'{"code":1,"deep":  ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "wrong types": struct.pack(">iI", 4 + 17, 17) + b'{"code":"ninety"}',
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),
    "short binary header": struct.pack(">iI", 8, 1 << 24 | 4) + b"abcd",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_get_a_refusal_and_a_closed_connection_and_others_feel_nothing(rig, name):
    bystander = rig.peer()
    assert bystander.ask(ECHO).code == 0
    bad = rig.peer()
    bad.send_bytes(HOSTILE[name])
    answer = bad.receive()
    assert answer.code == 1
    assert answer.remark.startswith("bad frame: ")
    assert bad.is_closed()
    assert bystander.ask(ECHO).code == 0
    wait_for(lambda: len(rig.closed) == 1, "the connection was not forgotten")
    assert len(rig.server.connections) == 1


def test_good_frames_before_a_bad_one_are_answered(rig):
    peer = rig.peer()
    peer.send_bytes(request(ECHO, 1), struct.pack(">i", -5))
    assert peer.receive().opaque == 1
    assert peer.receive().code == 1
    assert peer.is_closed()


def test_random_bytes_never_hurt_others(rig):
    import random

    chance = random.Random(7)
    bystander = rig.peer()
    for _ in range(60):
        peer = rig.peer()
        try:
            peer.send_bytes(chance.randbytes(chance.randrange(1, 400)))
        except OSError:
            pass
        peer.close()
        assert bystander.ask(ECHO).code == 0


def test_half_a_frame_for_ever_is_closed(rig, monkeypatch):
    peer, idle = rig.peer(), rig.peer()
    peer.send_bytes(request(ECHO)[:20])
    assert idle.ask(ECHO).code == 0
    wait_for(lambda: rig.server._partial_total, "nothing is kept")
    monkeypatch.setattr(server_module, "PARTIAL_IDLE_SECONDS", -1)  # as if they had been over for a second
    rig.loop.call_soon(rig.server._close_idle)
    assert peer.is_closed()
    assert idle.ask(ECHO).code == 0, "a peer that is merely quiet stays"


def test_idle_connections_are_closed(rig, monkeypatch):
    peer = rig.peer()
    assert peer.ask(ECHO).code == 0
    monkeypatch.setattr(server_module, "IDLE_SECONDS", -1)  # as if they had been over for a second
    rig.loop.call_soon(rig.server._close_idle)
    assert peer.is_closed()


def test_partial_frames_of_all_peers_are_bounded(rig, monkeypatch):
    monkeypatch.setattr(server_module, "PARTIAL_TOTAL_BYTES", 3_100_000)
    peers = [rig.peer() for _ in range(4)]
    for count, peer in enumerate(peers, 1):
        peer.send_bytes(struct.pack(">iI", 1_000_000, 10) + b"x" * 300_000)
        # A whole frame's room each once enough of it has come; the fourth is too many.
        wait_for(lambda count=count: rig.server._partial_total >= min(count, 3) * 1_000_000, "nothing is kept")
    wait_for(lambda: rig.server._partial_total <= 3_100_000, "the bound is not kept")
    wait_for(lambda: len(rig.server.connections) == 3, "nobody was closed")


def test_one_address_with_all_connections_makes_room_for_others(rig, monkeypatch):
    monkeypatch.setattr(server_module, "address_of", lambda peer: peer[:4])
    monkeypatch.setattr(server_module, "CROWD_SECONDS", 0.0)
    sockets = []

    def connect(address):
        sock = socket.create_connection(("127.0.0.1", rig.port), timeout=60, source_address=(address, 0))
        sockets.append(sock)
        return sock

    def is_served(sock):
        try:
            sock.sendall(request(ECHO))
            return sock.recv(1) != b""
        except ConnectionError:
            return False

    crowd = [connect("127.0.0.1") for _ in range(9)]
    wait_for(lambda: len(rig.server.connections) == 9, "all are taken")
    assert all(is_served(sock) for sock in crowd[:5] + crowd[6:]), "one is silent for longer"
    with open(os.devnull) as lowest:
        rig.server.descriptors_for_peers = lowest.fileno()
    assert is_served(connect("127.0.0.2"))
    assert crowd[5].recv(1) == b""
    assert not is_served(connect("127.0.0.1")), "who has the most gets no more"
    # One after the other: a socket of this side could take the descriptor that becomes free for one.
    others = [is_served(connect("127.0.0.2")) for _ in range(6)]
    assert others == [True] * 3 + [False] * 3, "no more than the crowd has"
    assert len(rig.server.connections) == 9
    assert max(rig.server.connections) < rig.server.descriptors_for_peers
    for conn in list(rig.server.connections.values()):
        assert conn._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    for sock in sockets:
        sock.close()
    wait_for(lambda: not rig.server._of_addresses, "all have gone")


def test_the_one_that_is_closed_for_partial_frames_is_found_without_a_look_at_all_others():
    """A thousand peers that began a large frame at once held the thread for a second."""
    server = server_module.RemotingServer(EventLoop())
    looked = []

    class Partial:
        partial_magnitude = 0
        remote_host = "1.2.3.4:5"
        size = 0

        @property
        def partial_bytes(self):
            looked.append(self)
            return self.size

        def take(self, size):
            change, self.size = size - self.size, size
            server.account_partial(self, change)

        def close(self):
            self.take(0)

    small, largest = [Partial() for _ in range(2000)], [Partial() for _ in range(500)]
    for one in small:
        one.take(100_000)
    for one in largest:
        one.take(16 << 20)
    assert server._partial_total <= server_module.PARTIAL_TOTAL_BYTES
    assert all(one.size for one in small) or not any(one.size for one in largest[:-1]), "the largest go first"
    assert largest[-1].size, "and never the one that has just come"
    assert len(looked) < 3 * 2500
    for one in small + largest:
        one.take(0)
    assert server._partial_total == 0
    assert not any(server._partials)


def test_a_slow_reader_is_not_read_from_until_it_has_taken_its_answers(rig):
    peer = rig.peer()
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    body = bytes(256 * 1024)
    count = 120
    sender = threading.Thread(target=lambda: [peer.send_bytes(request(ECHO, i, body)) for i in range(count)])
    sender.start()
    wait_for(lambda: rig.server.connections, "the connection is accepted")
    conn = next(iter(rig.server.connections.values()))
    wait_for(lambda: conn._out_bytes > OUTBOX_HIGH_BYTES, "answers queue up")
    for _ in range(50):
        held = conn._out_bytes
        assert held <= OUTBOX_HIGH_BYTES + len(body) + 1000, f"{held} bytes are queued for a peer that reads nothing"
        time.sleep(0.01)
    assert len(rig.seen) < count
    assert [peer.receive().opaque for _ in range(count)] == list(range(count))
    sender.join(60)


def test_a_peer_that_vanishes_is_forgotten(rig):
    peer = rig.peer()
    assert peer.ask(ECHO).code == 0
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    wait_for(lambda: rig.closed, "a reset connection was not noticed")
    assert not rig.server.connections


def test_a_taken_port_is_one_sentence(rig):
    with pytest.raises(StartError, match=f"Port {rig.port} on 127.0.0.1 is already in use."):
        listen("127.0.0.1", rig.port)


def test_timers_fire_and_can_be_cancelled(rig):
    fired = []
    rig.loop.call_soon(lambda: rig.loop.call_later(0.05, lambda: fired.append("once")))
    cancelled = []

    def schedule():
        timer = rig.loop.call_later(0.05, lambda: cancelled.append(1))
        timer.cancel()

    rig.loop.call_soon(schedule)
    rig.loop.call_soon(lambda: rig.loop.call_every(0.02, lambda: fired.append("often")))
    wait_for(lambda: "once" in fired and fired.count("often") >= 3, "timers did not fire")
    assert not cancelled


def test_running_out_of_descriptors_pauses_accepting_and_passes(rig, monkeypatch):
    first = rig.peer()
    assert first.ask(ECHO).code == 0
    listener = rig.server._listeners[0]
    real, calls = listener.sock, []

    class OutOfDescriptors:
        def fileno(self):
            return real.fileno()

        def accept(self):
            calls.append(1)
            if len(calls) <= 2:
                raise OSError(24, "Too many open files")
            return real.accept()

        def close(self):
            real.close()

    listener.sock = OutOfDescriptors()
    second = rig.peer()
    assert first.ask(ECHO).code == 0, "others are served meanwhile"
    assert second.ask(ECHO).code == 0
    assert len(calls) < 10, "it spun"


def test_memory_for_a_long_frame_is_made_when_its_beginning_has_come(rig):
    """Eight bytes once had 16 MiB filled with zeros on the I/O thread."""
    peer = rig.peer()
    frame = request(ECHO, 1, bytes(range(256)) * 4096 * 15)
    peer.send_bytes(frame[:1000])
    wait_for(lambda: rig.server._partial_total, "nothing is kept")
    assert rig.server._partial_total <= 128 * 1024
    peer.send_bytes(frame[1000 : 300 * 1024])
    wait_for(lambda: rig.server._partial_total == len(frame), "there is no room for the rest")
    peer.send_bytes(frame[300 * 1024 :])
    assert peer.receive().body == bytes(range(256)) * 4096 * 15
    assert rig.server._partial_total == 0


@pytest.mark.parametrize("around", [64 * 1024, 128 * 1024, 512 * 1024, 1024 * 1024])
def test_frames_of_every_length_around_a_buffers_arrive_whole_however_they_are_cut(rig, around):
    for change in (-1, 0, 1):
        empty = len(request(ECHO, 1, b"x")) - 1
        body = bytes(number * 7 & 255 for number in range(around + change - empty))
        frame = request(ECHO, 1, body) + request(ECHO, 2, b"behind")
        for cut in (5, 1000, 64 * 1024, 128 * 1024, 128 * 1024 + 1):
            peer = rig.peer()
            peer.send_bytes(frame[:cut])
            time.sleep(0.005)
            peer.send_bytes(frame[cut:])
            assert peer.receive().body == body
            assert peer.receive().body == b"behind"
            peer.close()
    wait_for(lambda: rig.server._partial_total == 0, "something is still counted")
