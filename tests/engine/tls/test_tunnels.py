"""Frames over TLS: whole, split, large, many at once, to slow readers, and to peers that close half way."""

import contextlib
import random
import socket
import ssl
import struct

import pytest

from appliance.engine.remoting.event_loop import EventLoop
from appliance.engine.tls.tunnels import Tunnel, Tunnels
from tests.support.remoting import ECHO, HOT, request
from tests.support.tls import LARGE, client_context
from tests.support.waiting import wait_for

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])
@pytest.mark.parametrize("codec", [0, 1])
def test_a_request_is_answered_in_both_versions_and_codecs(rig, version, codec):
    peer = rig.peer(client_context(version))
    assert peer.sock.version() == {771: "TLSv1.2", 772: "TLSv1.3"}[version]
    assert peer.ask(ECHO, {"a": "b"}, b"body", codec=codec).body == b"body"
    plain = rig.plain()
    assert plain.ask(ECHO, {}, b"plain", codec=codec).body == b"plain"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1], ids=["1.0", "1.1"])
def test_older_versions_are_refused(rig, version):
    context = client_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = context.maximum_version = version
    with pytest.raises(ssl.SSLError):
        rig.peer(context)


def test_the_connection_has_the_address_of_its_peer(rig):
    peer = rig.peer()
    peer.ask(ECHO)
    (conn,) = rig.server.connections.values()
    assert conn.remote_host == "{}:{}".format(*peer.sock.getsockname())


def test_frames_come_byte_by_byte_and_many_in_one_record(rig):
    peer = rig.peer()
    for byte in request(ECHO, 1, b"slow"):
        peer.send_bytes(bytes([byte]))
    assert peer.receive().body == b"slow"
    peer.send_bytes(b"".join(request(ECHO, opaque, b"%d" % opaque) for opaque in range(5000)))
    assert [peer.receive().body for _ in range(5000)] == [b"%d" % opaque for opaque in range(5000)]


def test_large_bodies_pass_both_ways_whole(rig):
    peer = rig.peer()
    body = bytes(range(256)) * (14 << 12)  # 14 MiB
    assert peer.ask(ECHO, {}, body).body == body


def test_a_peer_that_reads_late_gets_everything_and_the_broker_waits(rig):
    rig.server.outbox_high_bytes = 1 << 20
    peer = rig.slow_peer()
    peer.sock.setblocking(False)
    bodies = [random.Random(opaque).randbytes(1 << 20) for opaque in range(24)]
    frames = memoryview(b"".join(request(ECHO, opaque, body) for opaque, body in enumerate(bodies)))
    while True:  # until neither side takes a byte: the answers are in the way
        try:
            frames = frames[peer.sock.send(frames[:16384]) :]
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            if any(conn.full for conn in list(rig.server.connections.values())):
                break
    (conn,) = rig.server.connections.values()
    assert conn.outbox_bytes < 4 << 20
    (tunnel,) = rig.door.tunnels.open
    assert len(tunnel._for_peer) < 128 << 10
    assert rig.plain().ask(ECHO, {}, b"others").body == b"others"
    peer.sock.setblocking(True)
    got = 0
    # The rest is sent as the answers are read.
    while got < len(bodies):
        if frames:
            peer.sock.settimeout(0.01)
            with contextlib.suppress(TimeoutError):
                while frames:
                    frames = frames[peer.sock.send(frames[:16384]) :]
        answer = peer.receive()
        assert answer.opaque == got
        assert answer.body == bodies[got]
        got += 1


def test_a_peer_that_takes_nothing_for_a_moment_is_sent_to_again(rig):
    peer = rig.slow_peer()
    peer.send_bytes(request(ECHO, 1, bytes(LARGE)))
    wait_for(lambda: rig.door.tunnels.blocked, "the tunnel waits for its peer")
    assert len(peer.receive().body) == LARGE
    wait_for(lambda: not rig.door.tunnels.blocked, "the peer has taken it")


@pytest.mark.parametrize("how", ["close_notify", "fin", "reset", "in a frame"])
def test_a_peer_that_goes_closes_its_connection(rig, how):
    peer = rig.peer()
    peer.ask(ECHO)
    if how == "close_notify":
        with contextlib.suppress(OSError):
            peer.sock.unwrap()
    elif how == "fin":
        socket.socket.shutdown(peer.sock, socket.SHUT_WR)
    elif how == "reset":
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    else:
        peer.send_bytes(request(ECHO, 2, bytes(100_000))[:70_000])
    if how not in ("close_notify", "fin"):
        peer.sock.close()
    wait_for(lambda: not rig.server.connections, "the connection is closed")
    wait_for(lambda: not rig.door.tunnels.count, "its tunnel, too")
    assert len(rig.closed) == 1


def test_a_peer_that_goes_half_way_through_a_large_answer_leaves_nothing_behind(rig):
    peer = rig.slow_peer()
    peer.send_bytes(request(ECHO, 1, bytes(LARGE)))
    peer.sock.recv(100_000)
    peer.sock.close()
    wait_for(lambda: not rig.server.connections and not rig.door.tunnels.count, "all is closed")


def test_a_refusal_arrives_before_the_connection_ends(rig):
    peer = rig.peer()
    peer.send_bytes(b"\x7f\xff\xff\xff" + bytes(100))
    assert "bad frame" in peer.receive().remark
    assert peer.is_closed()


def shaken_hands(pair):
    """Return a client and a server after their handshake, and what is on its way to the server and to the client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context().wrap_bio(to_client, to_server)
    tls = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, tls, client, tls):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return client, tls, (to_server, to_client)


def test_an_answer_arrives_though_the_server_has_closed_and_takes_no_more(pair):
    client, tls, (to_server, to_client) = shaken_hands(pair)
    client.write(b"one more request")
    peer, sock = socket.socketpair()
    near, far = socket.socketpair()
    near.sendall(b"the answer")
    near.close()
    sock.setblocking(False)
    far.setblocking(False)
    loop = EventLoop(name="tls-io")
    tunnel = Tunnel(Tunnels(loop), sock, far, tls, (to_server, to_client), b"", bytes(8))
    loop.call_soon(tunnel.begin)
    loop.start()
    with peer:  # what is for the client passes its BIO first, so nothing goes back there meanwhile
        came = b"".join(iter(lambda: peer.recv(65536), b""))
    to_client.write(came)
    assert client.read(65536) == b"the answer"
    loop.stop()
    loop.close()


def test_what_a_peer_sent_before_it_went_arrives_though_it_takes_no_answer(pair):
    """A server under back-pressure reads it later: a client that stops commits its offsets so."""
    client, tls, ciphers = shaken_hands(pair)
    sent = random.Random(1).randbytes(60_000)
    client.write(sent)
    peer, sock = socket.socketpair()
    peer.close()
    near, far = socket.socketpair()
    far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    near.sendall(b"an answer")
    sock.setblocking(False)
    far.setblocking(False)
    loop = EventLoop(name="tls-io")
    tunnels = Tunnels(loop)
    loop.call_soon(Tunnel(tunnels, sock, far, tls, ciphers, b"", bytes(8)).begin)
    loop.start()
    with near:
        arrived = b"".join(iter(lambda: near.recv(65536), b""))
    wait_for(lambda: not tunnels.count, "the tunnel is closed")
    loop.stop()
    loop.close()
    assert arrived == sent


def test_bytes_that_are_no_tls_end_the_connection(rig):
    peer = rig.peer()
    peer.ask(ECHO)
    socket.socket.send(peer.sock, bytes(100))
    wait_for(lambda: not rig.server.connections and not rig.door.tunnels.count, "all is closed")


def test_a_request_may_come_with_the_end_of_the_handshake(rig):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context().wrap_bio(incoming, outgoing)
    with rig.plain().sock as sock:
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        sock.sendall(outgoing.read())
        while True:
            incoming.write(sock.recv(65536))
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                pass
        tls.write(request(HOT, 7, b"early"))
        sock.sendall(outgoing.read())
        answer = b""
        while b"early" not in answer:
            incoming.write(sock.recv(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                answer += tls.read(65536)


def test_the_last_answers_leave_at_the_stop(rigs):
    rig = rigs()
    peer = rig.peer()
    assert peer.ask(ECHO).code == 0
    rig.loop.call_soon(rig.server.close_all)
    assert peer.is_closed()
    wait_for(lambda: not rig.door.tunnels.count, "the tunnel is closed")
