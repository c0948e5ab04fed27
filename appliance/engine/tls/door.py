"""Tells TLS from plain connections by their first byte, and has the TLS ones served."""

from __future__ import annotations

import functools
import logging
import socket
import time
from collections.abc import Callable

from ..clock import Clock
from ..config import BrokerConfig
from ..errors import StartError
from ..protocol.message_id import encode_host
from ..remoting.event_loop import READABLE, EventLoop
from ..remoting.server import HOUSEKEEPING_SECONDS, IDLE_SECONDS, Adopt, RemotingServer, text_of
from .certificate import Certificate
from .handshakes import Handshakes
from .tunnels import Tunnels

logger = logging.getLogger(__name__)

#: First byte of a TLS connection: a record of a handshake. The first byte of a frame is 0 or 1.
HANDSHAKE = b"\x16"
#: First bytes of PROXY headers; those of named balancers have been taken before.
_PROXY_HEADERS = (b"P", b"\r")
#: Time between two looks if the certificate's files have changed.
WATCH_S = 5.0

#: Serves the plain side of an accepted socket. On remoting-io.
Serve = Callable[[socket.socket], None]


class Door:
    """All that TLS needs in one process. `take` on remoting-io, `start` and `stop` on any other thread."""

    def __init__(self, options: BrokerConfig, server: RemotingServer, clock: Clock) -> None:
        """Raises StartError if there is no pair of files that can be loaded."""
        if not options.tls_cert_file or not options.tls_key_file:
            raise StartError(f"tlsMode={options.tls_mode} needs tlsCertFile and tlsKeyFile: paths of two PEM files.")
        if options.tls_config_file:
            logger.info("tls: the options that are not given are those of %s", options.tls_config_file)
        # Constant after construction.
        self._server = server
        self._clock = clock
        self._plain_too = options.tls_mode == "permissive"
        if options.tls_client_auth != "none" and not options.tls_client_ca_file:
            raise StartError(
                f"tlsClientAuth={options.tls_client_auth} needs tlsClientCaFile: a PEM file with the certificates of "
                "the authorities that sign those of clients."
            )
        self.certificate = Certificate(
            options.tls_cert_file,
            options.tls_key_file,
            options.tls_client_auth,
            options.tls_client_ca_file,
            options.tls_client_crl_file,
        )
        handshake_loop, tunnel_loop = EventLoop(clock, "tls-handshakes"), EventLoop(clock, "tls-io")
        self._loops = handshake_loop, tunnel_loop
        self.tunnels = Tunnels(tunnel_loop)
        self.handshakes = Handshakes(handshake_loop, server, self.certificate, self.tunnels)
        handshake_loop.call_every(WATCH_S, self._look_at_files)
        # Owned by remoting-io.
        self._silent: dict[int, _Unknown] = {}
        server.loop.call_every(HOUSEKEEPING_SECONDS, self._close_idle)

    def _look_at_files(self) -> None:
        self.certificate.look()

    def start(self) -> None:
        """Start the two threads."""
        for loop in self._loops:
            loop.start()

    def take(self, sock: socket.socket, address: tuple[str, int], adopt: Adopt) -> None:
        """Wait for the first byte of a new connection, then have it served."""
        sock.setblocking(False)
        born_host = encode_host(address[0], address[1])
        unknown = _Unknown(self, sock, born_host, lambda one: adopt(one, address), self._server.loop.monotonic)
        self._server.loop.watch(sock.fileno(), READABLE, unknown)
        self._silent[sock.fileno()] = unknown
        self._server.count(unknown)

    def decide(self, unknown: _Unknown, first: bytes) -> None:
        """Pass a connection on. first: the byte it begins with; empty if it has ended."""
        sock = unknown.sock
        self._drop(unknown)
        if first == HANDSHAKE:
            handshakes = self.handshakes
            handshakes.loop.call_soon(functools.partial(handshakes.begin, sock, unknown.born_host, unknown.adopt))
        elif first and self._plain_too:
            try:
                unknown.adopt(sock)
            except OSError as error:  # the peer has gone already
                logger.info("tls: lost a new connection: %s", error)
                sock.close()
        else:
            if first:
                hint = ", perhaps with a PROXY header: proxyProtocolFrom" if first in _PROXY_HEADERS else ""
                self._server.note_refusal(
                    f"tlsMode is enforcing, closed a connection of {unknown.remote_host} without TLS{hint}"
                )
            sock.close()

    def _drop(self, unknown: _Unknown) -> None:
        fd = unknown.sock.fileno()
        self._server.loop.unwatch(fd)
        del self._silent[fd]
        self._server.uncount(unknown)

    def _close_idle(self) -> None:
        now = self._server.loop.monotonic
        for unknown in list(self._silent.values()):
            if now - unknown.last_active > IDLE_SECONDS:
                unknown.close()

    def turn_away(self) -> None:
        """Close the connections that have sent nothing yet. On remoting-io."""
        for unknown in list(self._silent.values()):
            unknown.close()

    def stop(self, seconds: float) -> None:
        """Give the tunnels so long to pass their last bytes on, then end the threads. The server's connections are
        closed already."""
        handshake_loop, tunnel_loop = self._loops
        handshake_loop.stop()
        if tunnel_loop.alive:
            end = self._clock.monotonic() + seconds
            while self.tunnels.count and self._clock.monotonic() < end:
                time.sleep(0.01)
        if tunnel_loop.stop():
            self.tunnels.close_all()
        self.handshakes.close_all()
        for loop in self._loops:
            if not loop.alive:
                loop.close()


class _Unknown:
    """Watches a new connection until its first byte is there. Counts for its address, as connections do."""

    __slots__ = ("_door", "adopt", "born_host", "last_active", "sock")
    #: Its silence means something.
    unread = False

    def __init__(self, door: Door, sock: socket.socket, born_host: bytes, adopt: Serve, since: float) -> None:
        self._door = door
        self.sock = sock
        self.born_host = born_host
        self.adopt = adopt
        self.last_active = since

    @property
    def remote_host(self) -> str:
        """ "address:port", for logs."""
        return text_of(self.born_host)

    def close(self) -> None:
        self._door.decide(self, b"")

    def on_event(self, mask: int) -> None:
        try:
            first = self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            first = b""
        self._door.decide(self, first)
