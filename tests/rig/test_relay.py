"""The relay disturbs connections exactly as ordered: the rounds depend on it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.rig.relay import CLIENTS, Relay
from tests.support.ports import reserve_port
from tests.support.waiting import wait_for

HOST = "127.0.0.1"
SEEN_S = 0.3


class Echo:
    """Sends back what it gets, until it is closed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.socks: list[socket.socket] = []
        self.listener = socket.create_server((HOST, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                self.socks.append(sock)
                threading.Thread(target=self._echo, args=(sock,), daemon=True).start()

    def _echo(self, sock: socket.socket) -> None:
        with suppress(OSError):
            while data := sock.recv(65_536):
                sock.sendall(data)
            sock.close()

    def close(self) -> None:
        """Close all sockets, as the end of a process does."""
        for sock in (self.listener, *self.socks):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


class Net:
    def __init__(self) -> None:
        self.echo = Echo(reserve_port())
        self.listen = ("127.0.0.2", self.echo.port)
        self.relay = Relay()
        self.relay.route("b1", self.listen, (HOST, self.echo.port))

    def connect(self) -> socket.socket:
        sock = socket.create_connection(self.listen, timeout=60)
        sock.settimeout(60)
        return sock

    def echoes(self, sock: socket.socket, data: bytes = b"hello", seconds: float = 60.0) -> bool:
        """Send `data`; return whether it comes back in time."""
        sock.sendall(data)
        return self.receives(sock, data, seconds)

    @staticmethod
    def receives(sock: socket.socket, data: bytes, seconds: float = SEEN_S) -> bool:
        sock.settimeout(seconds)
        got = b""
        with suppress(TimeoutError):
            while len(got) < len(data):
                more = sock.recv(65_536)
                if not more:
                    break
                got += more
        assert got in (b"", data), "bytes changed, or a part came"
        return bool(got)


@pytest.fixture
def net() -> Iterator[Net]:
    made = Net()
    yield made
    made.relay.close()
    made.echo.close()


def test_bytes_pass_in_order_and_so_do_both_ends(net: Net) -> None:
    sock = net.connect()
    assert net.echoes(sock)
    data = os.urandom(8 << 20)
    threading.Thread(target=sock.sendall, args=(data,), daemon=True).start()
    assert net.receives(sock, data, 60)
    assert net.relay.connections() == {f"{CLIENTS}>b1": 1}
    sock.shutdown(socket.SHUT_WR)
    assert sock.recv(1) == b""
    wait_for(lambda: not net.relay.connections(), "the connection to be gone")


@pytest.mark.parametrize("way", ["to", "from", "both"])
def test_what_is_held_passes_when_it_is_healed(net: Net, way: str) -> None:
    sock = net.connect()
    assert net.echoes(sock)
    net.relay.fault(CLIENTS, "b1", way, hold=True)
    assert not net.echoes(sock, seconds=SEEN_S)
    later = net.connect()  # as into a network that loses everything: it seems to be there
    assert not net.echoes(later, b"later", seconds=SEEN_S)
    net.relay.heal()
    assert net.receives(sock, b"hello", 60)
    assert net.receives(later, b"later", 60)


def test_one_way_is_one_way(net: Net) -> None:
    sock = net.connect()
    assert net.echoes(sock)
    [far] = net.echo.socks
    net.relay.fault(CLIENTS, "b1", "from", hold=True)
    sock.sendall(b"x" * 1000)
    wait_for(lambda: _received(far) >= 1005, "it to arrive, though no answer does")


def _received(sock: socket.socket) -> int:
    """Return tcpi_bytes_received of TCP_INFO."""
    return int.from_bytes(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)[128:136], "little")


def test_an_end_is_held_too_and_a_healed_link_may_reset(net: Net) -> None:
    sock, other = net.connect(), net.connect()
    assert net.echoes(sock)
    assert net.echoes(other)
    net.relay.fault("*", "b1", "both", hold=True)
    net.echo.socks[0].shutdown(socket.SHUT_RDWR)
    assert not net.receives(sock, b"")  # TimeoutError inside: no end is seen
    net.relay.heal(reset=True)
    for one in (sock, other):
        one.settimeout(60)
        with pytest.raises(ConnectionResetError):
            one.recv(1)


def test_delay_and_drip(net: Net) -> None:
    sock = net.connect()
    assert net.echoes(sock)
    net.relay.fault(CLIENTS, "b1", "to", delay_ms=150)
    net.relay.fault(CLIENTS, "b1", "from", delay_ms=150)
    begin = time.monotonic()
    sock.sendall(b"hello")
    assert net.receives(sock, b"hello", 60)
    assert time.monotonic() - begin >= 0.3
    net.relay.heal()
    net.relay.fault(CLIENTS, "b1", "to", drip=100)
    begin = time.monotonic()
    sock.sendall(b"y" * 5000)
    assert net.receives(sock, b"y" * 5000, 60)
    assert time.monotonic() - begin >= 0.05


def test_while_the_target_refuses_so_does_the_relay(net: Net) -> None:
    sock = net.connect()
    assert net.echoes(sock)
    net.echo.close()
    sock.settimeout(60)
    with suppress(ConnectionResetError):
        assert sock.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        net.connect()
    net.echo = Echo(net.echo.port)
    again = wait_for(net.connect, "the relay to listen again", not_yet=(OSError,))
    assert net.echoes(again)


def test_a_firewall_that_rejects(net: Net) -> None:
    sock = net.connect()
    assert net.echoes(sock)
    net.relay.refuse("b1")
    with pytest.raises(ConnectionResetError):
        sock.recv(1)
    with pytest.raises(ConnectionRefusedError):
        net.connect()
    net.relay.accept("b1")
    again = wait_for(net.connect, "the relay to listen again", not_yet=(OSError,))
    assert net.echoes(again)


def test_links_are_told_apart_by_who_owns_the_socket(net: Net) -> None:
    net.relay.name_process(os.getpid(), "b2")
    mine = net.connect()
    assert net.echoes(mine)
    assert net.relay.connections() == {"b2>b1": 1}
    net.relay.fault(CLIENTS, "b1", hold=True)
    assert net.echoes(mine)
    net.relay.name_process(1, "b2")
    theirs = net.connect()
    assert not net.echoes(theirs, seconds=SEEN_S)
    cut = net.relay.fault("b2", "b1", hold=True)
    assert not net.echoes(mine, seconds=SEEN_S)
    net.relay.lift(cut)
    assert net.receives(mine, b"hello", 60)
    assert not net.receives(theirs, b"hello")
