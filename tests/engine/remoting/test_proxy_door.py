"""Connections of balancers: from named addresses, with headers whole, torn, slow, hostile, and TLS behind them."""

import contextlib
import ipaddress
import socket

import pytest

from appliance.engine.errors import StartError
from appliance.engine.protocol.message_id import decode_host
from appliance.engine.remoting import proxy_door
from appliance.engine.remoting.proxy_door import ProxyDoor
from tests.engine.protocol.test_proxy_header import BAD, TLVS, WHOLE, binary
from tests.engine.tls.conftest import TlsRig
from tests.support.engine import start_engine
from tests.support.peer import Peer
from tests.support.remoting import ECHO, Rig, request
from tests.support.tls import client_context, is_closed, raw
from tests.support.waiting import wait_for

BALANCER = "127.0.0.2"


class ProxiedRig(Rig):
    """A `Rig` that takes headers of BALANCER."""

    def prepare(self):
        self.proxy = ProxyDoor([ipaddress.ip_network(f"{BALANCER}/32")], self.server, None)
        self.server.door = self.proxy.take


class ProxiedTlsRig(TlsRig):
    def prepare(self):
        super().prepare()
        self.proxy = ProxyDoor([ipaddress.ip_network(f"{BALANCER}/32")], self.server, self.server.door)
        self.server.door = self.proxy.take


@pytest.fixture
def rig():
    rig = ProxiedRig()
    yield rig
    rig.stop()


class Through(Peer):
    """A peer whose bytes come from BALANCER, behind a header."""

    def __init__(self, rig, header):
        self.sock = socket.create_connection(("127.0.0.1", rig.port), 60, source_address=(BALANCER, 0))
        self.patience_s = 60.0
        self.unread = b""
        self._opaque = 0
        self.sock.sendall(header)
        rig.peers.append(self)


def seen(rig):
    """The addresses of the connections, and if a balancer told them."""
    return [(decode_host(conn.born_host), conn.relayed) for conn in rig.server.connections.values()]


def is_idle(rig):
    return not rig.proxy._waiting and not rig.server._of_addresses


@pytest.mark.parametrize(("header", "source"), WHOLE.values(), ids=WHOLE)
def test_a_connection_is_that_of_the_client_whom_the_header_names(rig, header, source):
    peer = Through(rig, header)
    assert peer.ask(ECHO, {}, b"x").body == b"x"
    [(address, relayed)] = seen(rig)
    assert address == (source or peer.sock.getsockname())
    assert relayed  # without a told address, too: a balancer may be on this machine


def test_a_frame_in_the_same_packet_and_a_header_in_single_bytes_are_taken(rig):
    peer = Through(rig, binary(tlvs=TLVS) + request(ECHO, opaque=5, body=b"together"))
    assert peer.receive().body == b"together"
    for header in (b"PROXY TCP4 10.1.2.4 10.0.0.1 1 2\r\n", binary(source="10.1.2.5", tlvs=TLVS)):
        drip = Through(rig, b"")
        drip.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(header)):
            drip.sock.sendall(header[at : at + 1])
        assert drip.ask(ECHO, {}, b"drip").body == b"drip"
    assert {address[0] for address, _ in seen(rig)} == {"10.1.2.3", "10.1.2.4", "10.1.2.5"}


def test_a_torn_header_does_not_keep_the_loop_awake(rig):
    Through(rig, binary()[:15])
    Through(rig, b"PROXY TCP4 10.1")
    wait_for(lambda: [len(one._header) for one in rig.proxy._waiting] == [15, 15], "both are read")
    ticks = []
    rig.loop.at_tick_end(lambda: ticks.append(1))
    plain = rig.peer()
    for _ in range(5):
        plain.ask(ECHO)
    assert len(ticks) < 50


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_a_bad_header_is_closed_with_a_line_in_the_log_and_nothing_is_left(rig, caplog, data):
    peer = Through(rig, data)
    assert is_closed(peer.sock)
    assert rig.seen == []
    assert f"closed a connection of {BALANCER}:" in caplog.text
    wait_for(lambda: is_idle(rig), "it is forgotten")


def test_a_header_that_does_not_come_in_time_is_closed(rig, caplog, monkeypatch):
    monkeypatch.setattr(proxy_door, "DEADLINE_S", 0.05)
    late = Through(rig, binary()[:20])
    silent = Through(rig, b"")
    assert is_closed(late.sock)
    assert is_closed(silent.sock)
    assert "its PROXY header is late" in caplog.text
    wait_for(lambda: is_idle(rig), "they are forgotten")
    monkeypatch.undo()
    whole = Through(rig, binary()[:20])
    wait_for(lambda: rig.proxy._waiting, "it waits")
    [arriving] = rig.proxy._waiting
    whole.sock.sendall(binary()[20:])
    assert whole.ask(ECHO).code == 0
    assert arriving.deadline.cancelled


def test_a_check_of_the_port_is_no_fault(rig, caplog):
    Through(rig, b"").close()
    Through(rig, b"PROXY").close()
    wait_for(lambda: is_idle(rig), "they are forgotten")
    assert "closed a connection" not in caplog.text


def test_others_are_served_without_a_header_and_not_believed_with_one(rig, caplog):
    caplog.set_level("INFO")
    assert rig.peer().ask(ECHO, {}, b"x").body == b"x"
    for header in (WHOLE["v1"][0], WHOLE["v2"][0]):
        caplog.clear()
        liar = rig.peer()
        liar.sock.sendall(header + request(ECHO))
        assert is_closed(liar.sock)
        wait_for(lambda: "a PROXY header, but proxyProtocolFrom does not name this address" in caplog.text, "the line")
    assert len(rig.seen) == 1


def test_a_second_header_is_a_bad_frame(rig):
    peer = Through(rig, binary() + binary(source="10.9.9.9"))
    assert is_closed(peer.sock)
    assert rig.seen == []


def test_the_share_is_that_of_the_client_and_headers_that_wait_count_for_the_balancer(rig):
    first, second = Through(rig, binary(source="10.0.0.1")), Through(rig, binary(source="10.0.0.2"))
    first.ask(ECHO)
    second.ask(ECHO)
    assert sorted(rig.server._of_addresses) == [bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])]
    waiting = Through(rig, b"PROXY")
    wait_for(lambda: len(rig.proxy._waiting) == 1, "it waits")
    assert len(rig.server._of_addresses) == 3
    waiting.close()
    wait_for(lambda: len(rig.server._of_addresses) == 2, "it is forgotten")


def test_connections_whose_header_is_not_whole_end_with_the_server(rig):
    peer = Through(rig, b"PROXY")
    wait_for(lambda: rig.proxy._waiting, "it waits")
    rig.loop.call_soon(rig.proxy.turn_away)
    assert is_closed(peer.sock)


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_tls_follows_the_header(tmp_path, mode, caplog):
    rig = ProxiedTlsRig(tmp_path, mode)
    try:
        for header in (WHOLE["v1"][0], WHOLE["v2 with TLVs"][0]):
            peer = Through(rig, header)
            peer.sock = client_context().wrap_socket(peer.sock)
            assert peer.ask(ECHO, {}, b"tls").body == b"tls"
        assert set(seen(rig)) == {(("10.1.2.3", 4711), True)}
        plain = Through(rig, binary())
        if mode == "permissive":
            assert plain.ask(ECHO).code == 0
        else:
            plain.send(ECHO)
            assert is_closed(plain.sock)
            with raw(rig.address) as liar:
                with contextlib.suppress(OSError):
                    liar.sendall(WHOLE["v1"][0])
                assert is_closed(liar)
    finally:
        rig.stop()


def test_a_balancer_with_the_address_that_the_broker_registers_from_is_refused_at_the_start(tmp_path):
    with pytest.raises(StartError, match=r"registers at its own name server"):
        start_engine(tmp_path, broker={"proxy_protocol_from": "10.0.0.5;127.0.0.0/30"})
