"""The I/O loop and its connections against real sockets: whole frames, torn ones, hostile ones, slow peers."""

import socket
import struct
import threading
import time

import pytest

from appliance.engine.errors import RefusedRequest, StartError
from appliance.engine.protocol.command import (
    CODEC_ROCKETMQ,
    MAX_FRAME_BYTES,
    RemotingCommand,
    decode_frame,
    encode_command,
)
from appliance.engine.remoting import server as server_module
from appliance.engine.remoting.connection import OUTBOX_HIGH_BYTES
from appliance.engine.remoting.dispatcher import Dispatcher
from appliance.engine.remoting.event_loop import EventLoop
from appliance.engine.remoting.server import RemotingServer, listen

ECHO, REFUSE, BUG, SLOW, BIG, HOT = 1, 2, 3, 4, 5, 310


class Peer:
    """A blocking client that speaks bytes."""

    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.buffer = b""

    def send(self, *frames):
        self.sock.sendall(b"".join(frames))

    def receive(self):
        """The next frame, or None when the server closed."""
        while True:
            if len(self.buffer) >= 4:
                size = 4 + struct.unpack_from(">i", self.buffer)[0]
                if len(self.buffer) >= size:
                    frame, self.buffer = self.buffer[:size], self.buffer[size:]
                    return decode_frame(frame)
            try:
                data = self.sock.recv(1 << 20)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.buffer += data

    def ask(self, code, opaque=1, body=b"", **ext):
        self.send(request(code, opaque, body, **ext))
        return self.receive()

    def close(self):
        self.sock.close()


def request(code, opaque=1, body=b"", codec=0, flag=0, **ext):
    return encode_command(RemotingCommand(code, opaque=opaque, flag=flag, ext_fields=ext, body=body), codec)


class Rig:
    """A server with a few handlers, and peers that are closed with it."""

    def __init__(self):
        self.loop = EventLoop()
        self.server = RemotingServer(self.loop)
        self.pools = {}
        self.seen = []
        self.closed = []
        self.release = threading.Event()
        dispatcher = Dispatcher(self.pools)
        dispatcher.add(ECHO, self.echo)
        dispatcher.add(REFUSE, self.refuse)
        dispatcher.add(BUG, lambda request, conn: 1 / 0)
        dispatcher.add(SLOW, self.slow, "slow")
        dispatcher.add(BIG, lambda request, conn: RemotingCommand.response(0, body=bytes(MAX_FRAME_BYTES)))
        dispatcher.add(HOT, self.echo)
        dispatcher.add_hot(HOT, self.hot)
        self.hot_calls = 0
        self.server.on_close(self.closed.append)
        self.loop.at_tick_end(self.server.flush_dirty)
        sock = listen("127.0.0.1", 0)
        self.port = sock.getsockname()[1]
        self.server.listen(sock, dispatcher)
        self.loop.start()
        for pool in self.pools.values():
            pool.start()
        self.peers = []

    def echo(self, request, conn):
        self.seen.append(request)
        return RemotingCommand.response(0, ext=dict(request.ext_fields), body=request.body)

    def refuse(self, request, conn):
        raise RefusedRequest(17, "no such thing")

    def slow(self, request, conn):
        self.release.wait(5)
        return RemotingCommand.response(0, body=b"slow")

    def hot(self, conn, view, header, body, end):
        if b'"decline"' in bytes(view[header:body]):
            return False
        self.hot_calls += 1
        return_frame = RemotingCommand.response(0, body=bytes(view[body:end]))
        conn.answer(7, return_frame)
        return True

    def peer(self):
        peer = Peer(self.port)
        self.peers.append(peer)
        return peer

    def stop(self):
        self.release.set()
        for peer in self.peers:
            peer.close()
        for pool in self.pools.values():
            pool.stop()
        self.loop.stop()
        self.loop.close()


@pytest.fixture
def rig():
    rig = Rig()
    yield rig
    rig.stop()


def wait_until(condition, message, seconds=5):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, message
        time.sleep(0.005)


def test_a_request_is_answered_with_its_opaque(rig):
    answer = rig.peer().ask(ECHO, opaque=-12345, body=b"body", key="value")
    assert (answer.code, answer.opaque, answer.flag, answer.version) == (0, -12345, 1, 479)
    assert (answer.ext_fields, answer.body) == ({"key": "value"}, b"body")


def test_binary_requests_are_answered_in_json_as_5_3_3_does(rig):
    peer = rig.peer()
    peer.send(request(ECHO, 9, b"x", codec=CODEC_ROCKETMQ, k="v"))
    answer = peer.receive()
    assert (answer.codec, answer.opaque, answer.ext_fields) == (0, 9, {"k": "v"})
    assert rig.seen[0].codec == 1


def test_many_frames_in_one_segment_are_all_answered_in_order(rig):
    peer = rig.peer()
    peer.send(*[request(ECHO, i, b"%d" % i) for i in range(500)])
    answers = [peer.receive() for _ in range(500)]
    assert [a.opaque for a in answers] == list(range(500))
    assert [a.body for a in answers] == [b"%d" % i for i in range(500)]


def test_a_frame_that_arrives_byte_by_byte_is_one_frame(rig):
    peer = rig.peer()
    peer.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in request(ECHO, 3, b"slowly"):
        peer.send(bytes((byte,)))
    assert peer.receive().body == b"slowly"


@pytest.mark.parametrize("size", [60_000, 64 * 1024, 70_000, 600_000, 4 * 1024 * 1024, MAX_FRAME_BYTES - 1000])
def test_large_frames_come_through_whole_between_small_ones(rig, size):
    peer = rig.peer()
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    frames = [request(ECHO, 1, b"before"), request(ECHO, 2, body), request(ECHO, 3, b"after")]
    sender = threading.Thread(target=peer.send, args=frames)
    sender.start()
    assert peer.receive().body == b"before"
    assert peer.receive().body == body
    assert peer.receive().body == b"after"
    sender.join(5)


def test_one_way_requests_get_no_answer_at_all(rig):
    peer = rig.peer()
    peer.send(request(ECHO, 1, flag=2), request(REFUSE, 2, flag=2), request(BUG, 3, flag=2), request(999, 4, flag=2))
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
    slow.send(request(SLOW, 1))
    assert other.ask(ECHO).code == 0
    assert slow.ask(ECHO, opaque=2).opaque == 2
    rig.release.set()
    assert slow.receive().body == b"slow"


def test_an_answer_larger_than_a_frame_becomes_an_error(rig):
    answer = rig.peer().ask(BIG)
    assert answer.code == 1
    assert "too large" in answer.remark


def test_hot_requests_are_read_in_place_and_may_decline(rig):
    peer = rig.peer()
    answer = peer.ask(HOT, opaque=7, body=b"hot", a="1")
    assert (answer.body, rig.hot_calls) == (b"hot", 1)
    declined = peer.ask(HOT, opaque=8, body=b"cold", decline="1")
    assert (declined.body, declined.opaque, rig.hot_calls) == (b"cold", 8, 1)
    peer.send(request(HOT, 9, b"binary", codec=CODEC_ROCKETMQ))
    assert peer.receive().body == b"binary"
    assert rig.hot_calls == 1


HOSTILE = {
    "zero length": struct.pack(">i", 0),
    "length too short for a header": struct.pack(">i", 3) + b"abc",
    "negative length": struct.pack(">i", -1),
    "two gigabytes": struct.pack(">i", 2**31 - 1),
    "a byte over the limit": struct.pack(">i", MAX_FRAME_BYTES - 3),
    "header longer than the frame": struct.pack(">iI", 8, 5) + b"{}{}",
    "header over 64 KiB": struct.pack(">iI", 4 + 70_000, 70_000) + b'{"code":1' + b" " * 69_990 + b"}",
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
    bad.send(HOSTILE[name])
    answer = bad.receive()
    assert answer is not None
    assert answer.code == 1
    assert answer.remark.startswith("bad frame: ")
    assert bad.receive() is None
    assert bystander.ask(ECHO).code == 0
    wait_until(lambda: len(rig.closed) == 1, "the connection was not forgotten")
    assert len(rig.server.connections) == 1


def test_good_frames_before_a_bad_one_are_answered(rig):
    peer = rig.peer()
    peer.send(request(ECHO, 1), struct.pack(">i", -5))
    assert peer.receive().opaque == 1
    assert peer.receive().code == 1
    assert peer.receive() is None


def test_random_bytes_never_hurt_others(rig):
    import random

    chance = random.Random(7)
    bystander = rig.peer()
    for _ in range(60):
        peer = rig.peer()
        try:
            peer.send(chance.randbytes(chance.randrange(1, 400)))
        except OSError:
            pass
        peer.close()
        assert bystander.ask(ECHO).code == 0


def test_half_a_frame_for_ever_is_closed(rig, monkeypatch):
    monkeypatch.setattr(server_module, "PARTIAL_IDLE_SECONDS", 0.1)
    peer, idle = rig.peer(), rig.peer()
    peer.send(request(ECHO)[:20])
    assert idle.ask(ECHO).code == 0
    time.sleep(0.3)
    rig.loop.call_soon(rig.server._close_idle)
    assert peer.receive() is None
    assert idle.ask(ECHO).code == 0, "a peer that is merely quiet stays"


def test_idle_connections_are_closed(rig, monkeypatch):
    peer = rig.peer()
    assert peer.ask(ECHO).code == 0
    monkeypatch.setattr(server_module, "IDLE_SECONDS", 0.05)
    time.sleep(0.2)
    rig.loop.call_soon(rig.server._close_idle)
    assert peer.receive() is None


def test_partial_frames_of_all_peers_are_bounded(rig, monkeypatch):
    monkeypatch.setattr(server_module, "PARTIAL_TOTAL_BYTES", 3_100_000)
    peers = [rig.peer() for _ in range(4)]
    for peer in peers:
        peer.send(struct.pack(">iI", 1_000_000, 10) + b"x" * 100)
        time.sleep(0.05)
    wait_until(lambda: rig.server._partial_total <= 3_100_000, "the bound is not kept")
    wait_until(lambda: len(rig.server.connections) == 3, "nobody was closed")


def test_a_slow_reader_is_not_read_from_until_it_has_taken_its_answers(rig):
    peer = rig.peer()
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    body = bytes(256 * 1024)
    count = 120
    sender = threading.Thread(target=lambda: [peer.send(request(ECHO, i, body)) for i in range(count)])
    sender.start()
    time.sleep(0.5)
    conn = next(iter(rig.server.connections.values()))
    held = conn._out_bytes
    assert held < OUTBOX_HIGH_BYTES * 3, f"{held} bytes are queued for a peer that reads nothing"
    assert len(rig.seen) < count
    assert [peer.receive().opaque for _ in range(count)] == list(range(count))
    sender.join(10)


def test_a_peer_that_vanishes_is_forgotten(rig):
    peer = rig.peer()
    assert peer.ask(ECHO).code == 0
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    wait_until(lambda: rig.closed, "a reset connection was not noticed")
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
    wait_until(lambda: "once" in fired and fired.count("often") >= 3, "timers did not fire")
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
