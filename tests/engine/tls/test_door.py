"""The first byte of a connection, the two modes, and handshakes that are hostile, slow or too many."""

import contextlib
import os
import socket
import ssl

import pytest

from appliance.engine.remoting import server as server_module
from appliance.engine.remoting.event_loop import READABLE
from appliance.engine.tls import door as door_module
from appliance.engine.tls import handshakes as handshakes_module
from appliance.engine.tls import tunnels as tunnels_module
from tests.support.remoting import ECHO, request
from tests.support.tls import LARGE, client_context, is_closed, raw
from tests.support.waiting import wait_for


def hello():
    """The first bytes of an honest client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        client_context().wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def test_enforcing_closes_a_connection_that_begins_without_tls(rigs):
    rig = rigs("enforcing")
    plain = rig.plain()
    plain.send(ECHO)
    assert is_closed(plain.sock)
    assert not rig.server.connections
    assert rig.seen == []
    assert rig.peer().ask(ECHO, {}, b"x").body == b"x"


def test_a_connection_that_says_nothing_holds_no_place_and_its_end_is_seen(rig):
    silent = raw(rig.address)
    wait_for(lambda: rig.door._silent, "it is waited for")
    assert not rig.server.connections
    silent.close()
    wait_for(lambda: not rig.door._silent, "it is forgotten")


def test_a_silent_connection_is_closed_after_as_long_as_an_idle_one(rig, monkeypatch):
    with raw(rig.address) as silent:
        wait_for(lambda: rig.door._silent, "it is waited for")
        monkeypatch.setattr("appliance.engine.tls.door.IDLE_SECONDS", -1.0)
        rig.loop.call_soon(rig.door._close_idle)
        assert is_closed(silent)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16" + bytes(200),
        b"\x16\x03\x01\xff\xff" + b"\xff" * 70_000,
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
        b"\x16\x03\x03\x00\x04\x0e\x00\x00\x00" * 8000,
        hello()[:-1] + b"\xff",
        hello() + hello(),
        hello() + b"\x15\x03\x03\x00\x02\x02\x28",
    ],
    ids=["zeros", "long record", "short hello", "other messages", "changed hello", "two hellos", "alert"],
)
def test_a_handshake_of_garbage_ends_and_leaves_nothing(rig, data):
    with raw(rig.address) as sock:
        with contextlib.suppress(OSError):  # it may have hung up already
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        assert is_closed(sock)
    wait_for(lambda: not rig.door.handshakes.count, "it is over")
    assert not rig.server.connections
    assert rig.door.handshakes._shares.taken == 0
    assert rig.peer().ask(ECHO).code == 0


def test_a_handshake_that_does_not_go_on_ends_at_its_deadline(rig, monkeypatch):
    monkeypatch.setattr(handshakes_module, "DEADLINE_S", 0.05)
    with raw(rig.address) as first, raw(rig.address) as second:
        first.sendall(b"\x16")
        second.sendall(hello())
        assert is_closed(first)
        assert is_closed(second)
    wait_for(lambda: not rig.door.handshakes.count, "they are over")


def test_half_open_handshakes_fill_a_share_only_and_hurt_nobody_else(rig, monkeypatch):
    monkeypatch.setattr(handshakes_module, "MAX_HANDSHAKES", 32)
    monkeypatch.setattr(handshakes_module, "DEADLINE_S", 600.0)
    plain = rig.plain()
    plain.ask(ECHO)
    earlier = rig.peer()
    earlier.ask(ECHO)
    with contextlib.ExitStack() as stack:
        half_open = [stack.enter_context(raw(rig.address)) for _ in range(100)]
        for sock in half_open:
            sock.sendall(b"\x16\x03\x01")
        # Half of the room, less what one more would leave to others; all of this machine is one address.
        wait_for(lambda: rig.door.handshakes.waiting == 85, "the others wait")
        assert rig.door.handshakes.count == 15
        assert plain.ask(ECHO, {}, b"x").body == b"x"
        assert earlier.ask(ECHO, {}, b"x").body == b"x"
        # From another address there is room.
        monkeypatch.setattr(
            "appliance.engine.tls.door.encode_host", lambda host, port: bytes([10, 0, 0, 7, 0, 0, 0, 1])
        )
        assert rig.peer().ask(ECHO).code == 0
    wait_for(lambda: not rig.door.handshakes.count, "they are gone")
    assert rig.door.handshakes._shares.taken == 0
    assert not rig.door.handshakes._waiting


def test_handshakes_that_wait_begin_when_others_of_their_address_are_done(rig, monkeypatch):
    monkeypatch.setattr(handshakes_module, "MAX_HANDSHAKES", 8)
    monkeypatch.setattr(handshakes_module, "DEADLINE_S", 600.0)
    with contextlib.ExitStack() as stack:
        first = [stack.enter_context(raw(rig.address)) for _ in range(3)]
        for sock in first:
            sock.sendall(b"\x16")
        wait_for(lambda: rig.door.handshakes.count == 3, "the share is used up")
        later = []
        for _ in range(20):
            sock = stack.enter_context(raw(rig.address))
            sock.sendall(hello())
            later.append(sock)
        wait_for(lambda: rig.door.handshakes.waiting == 20, "they wait")
        assert rig.door.handshakes.count == 3
        for sock in first:
            sock.close()
        for sock in later:
            assert sock.recv(1) == b"\x16", "its handshake has begun"
            sock.close()
    wait_for(lambda: not rig.door.handshakes.count, "they are gone")
    assert not rig.door.handshakes._waiting


@pytest.mark.parametrize("whose", ["another's", "their own"])
def test_a_handshake_that_ends_makes_room_for_its_address_and_for_one_other(rig, monkeypatch, whose):
    monkeypatch.setattr(handshakes_module, "MAX_HANDSHAKES", 8)
    monkeypatch.setattr(handshakes_module, "DEADLINE_S", 600.0)
    handshakes = rig.door.handshakes
    with contextlib.ExitStack() as stack:

        def come(address):
            """A handshake from another address; it goes no further than its first byte."""
            monkeypatch.setattr(
                door_module, "encode_host", lambda host, port: bytes([10, 0, 0, address]) + port.to_bytes(4, "big")
            )
            before = handshakes.count + handshakes.waiting
            sock = stack.enter_context(raw(rig.address))
            sock.sendall(b"\x16")
            wait_for(lambda: handshakes.count + handshakes.waiting > before, "it begins or waits")
            return sock

        if whose == "their own":  # while the first address has one that waits, and no room
            come(1), come(1), come(1), come(1)
            ending = come(2)
            come(2)
            assert (handshakes.count, handshakes.waiting) == (4, 2)
        else:
            ending = come(1)
            come(1), come(1), come(2), come(3)
            come(4)
            assert (handshakes.count, handshakes.waiting) == (5, 1)
        waiting = handshakes.waiting
        ending.close()
        wait_for(lambda: handshakes.waiting == waiting - 1, "one that waited has begun")
    wait_for(lambda: not handshakes.count, "they are gone")


def test_one_that_waits_is_closed_at_its_deadline_and_others_are_refused(rig, monkeypatch):
    monkeypatch.setattr(handshakes_module, "MAX_HANDSHAKES", 0)
    monkeypatch.setattr(handshakes_module, "MAX_WAITING", 4)
    monkeypatch.setattr(handshakes_module, "DEADLINE_S", 3.0)  # time to see that it waits
    with raw(rig.address) as first, raw(rig.address) as second:
        first.sendall(b"\x16")
        wait_for(lambda: rig.door.handshakes.waiting == 1, "it waits")
        second.sendall(b"\x16")
        assert is_closed(second)
        assert is_closed(first)
    wait_for(lambda: not rig.door.handshakes._waiting, "it waits no more")


def test_connections_that_wait_fill_a_share_only(rig, monkeypatch):
    monkeypatch.setattr(handshakes_module, "MAX_HANDSHAKES", 0)
    monkeypatch.setattr(handshakes_module, "DEADLINE_S", 600.0)
    handshakes = rig.door.handshakes
    monkeypatch.setattr(rig.server, "descriptors_for_peers", 64)
    with contextlib.ExitStack() as stack:

        def begin(address, port):
            near, far = socket.socketpair()
            near.settimeout(60)
            peer = bytes([10, 0, 0, address]) + port.to_bytes(4, "big")
            handshakes.loop.call_soon(lambda: handshakes.begin(far, peer, rig.server.adopt))
            return stack.enter_context(near)

        first = [begin(1, port) for port in range(40)]
        assert is_closed(first[-1])
        assert handshakes.waiting == 15, "half of the room for 32, half of all that peers may have"
        begin(2, 1)
        wait_for(lambda: handshakes.waiting == 16, "there is room for another address")


def test_an_internal_error_ends_one_connection_only(rig, monkeypatch):
    earlier = rig.peer()
    earlier.ask(ECHO)
    with monkeypatch.context() as broken:
        broken.setattr(handshakes_module, "Tunnel", lambda *arguments: 1 / 0)
        with pytest.raises(OSError):
            rig.peer().receive()
    with monkeypatch.context() as broken:
        broken.setattr(rig.server, "adopt", lambda *arguments: 1 / 0)
        with pytest.raises(OSError):
            rig.peer().receive()
    wait_for(lambda: rig.door.tunnels.count == 1, "nothing is left of either")
    assert rig.door.handshakes._shares.taken == 0
    assert earlier.ask(ECHO).code == rig.peer().ask(ECHO).code == 0


def test_a_peer_cannot_negotiate_again(rig):
    """Python's client cannot ask for it, so this looks at what the server's side got."""
    context = rig.door.certificate.context
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_connection_beyond_the_descriptors_is_closed(rig):
    assert rig.peer().ask(ECHO).code == 0
    with raw(rig.address) as sock:
        wait_for(lambda: rig.door._silent, "it was accepted")
        rig.server.descriptors_for_peers = 3
        tls = client_context().wrap_socket(sock, suppress_ragged_eofs=False)
        with pytest.raises(OSError):
            tls.recv(1)
    assert len(rig.server.connections) == 1
    wait_for(lambda: rig.door.tunnels.count == 1, "nothing is left of it")


def test_silent_connections_of_one_address_make_room_for_others_which_pass_the_door_too(rigs, monkeypatch):
    rig = rigs("enforcing")
    monkeypatch.setattr(server_module, "address_of", lambda peer: peer[:4])
    monkeypatch.setattr(server_module, "CROWD_SECONDS", 0.0)
    with contextlib.ExitStack() as stack:

        def connect(address):
            target = ("127.0.0.1", rig.port)
            return stack.enter_context(socket.create_connection(target, timeout=60, source_address=(address, 0)))

        for _ in range(9):
            connect("127.0.0.1")
        wait_for(lambda: len(rig.door._silent) == 9, "all are taken")
        with open(os.devnull) as lowest:
            rig.server.descriptors_for_peers = lowest.fileno()
        tls = stack.enter_context(client_context().wrap_socket(connect("127.0.0.2")))
        tls.sendall(request(ECHO))
        assert tls.recv(1)
        assert len(rig.door._silent) == 6, "one has given way for the connection, and two for its tunnel"
        (conn,) = rig.server.connections.values()
        assert conn.remote_host == "{}:{}".format(*tls.getsockname())
        plain = connect("127.0.0.3")
        plain.sendall(request(ECHO))
        assert is_closed(plain)
        assert len(rig.seen) == 1, "nothing is served without TLS"
    wait_for(lambda: not rig.server._of_addresses, "all have gone")


def test_a_peer_that_takes_nothing_is_not_read_from_while_much_waits_for_it(rig, monkeypatch):
    """Such as answers to its requests for new keys, which Python's client cannot make."""
    monkeypatch.setattr(tunnels_module, "MOST_UNSENT_BYTES", 1000)
    peer = rig.slow_peer()
    peer.send_bytes(request(ECHO, 1, bytes(LARGE)))
    wait_for(lambda: rig.door.tunnels.blocked, "the peer takes no more")
    (tunnel,) = rig.door.tunnels.open
    wait_for(lambda: not tunnel._peer.wanted & READABLE, "it is not read from")
    assert len(peer.receive().body) == LARGE
    assert peer.ask(ECHO, {}, b"again").body == b"again"


def test_what_a_peer_does_not_take_in_the_end_is_dropped(rig, monkeypatch):
    monkeypatch.setattr(tunnels_module, "RETRY_S", 0.01)
    monkeypatch.setattr(tunnels_module, "LINGER_S", 0.05)
    peer = rig.slow_peer()
    peer.send_bytes(request(ECHO, 1, bytes(LARGE)))
    wait_for(lambda: rig.door.tunnels.blocked, "the peer takes no more")
    (conn,) = rig.server.connections.values()
    conn.close()
    wait_for(lambda: not rig.door.tunnels.count, "the tunnel is closed")


def test_a_peer_that_takes_little_is_seen_to_take_it(rig, monkeypatch):
    """epoll says so only when a third of the send buffer is free."""
    monkeypatch.setattr(tunnels_module, "RETRY_S", 0.01)
    peer = rig.slow_peer()
    peer.send_bytes(request(ECHO, 1, bytes(LARGE)))
    wait_for(lambda: rig.door.tunnels.blocked, "the peer takes no more")
    (tunnel,) = rig.door.tunnels.open
    left = tunnel._taken_at
    socket.socket.recv(peer.sock, 1 << 18)
    wait_for(lambda: tunnel._taken_at > left, "it took something")
