"""TLS between the brokers of one name: on the port for slaves, and as the client of such a port or of a broker.

A handshake takes place on the thread that serves the connection, or that made it. Then a tunnel (`tunnels.py`) passes
plain bytes on through a socket pair, so what reads and writes the log does the same as without TLS. The tunnels have a
thread of their own, which ends after those that replicate; clients' TLS cannot hold it up.

The other broker's certificate is checked: it has to be this broker's own, or signed by an authority in
`tlsClientCaFile`, where that is set. Names in certificates are not looked at, since brokers are known by address.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable

from ..clock import Clock
from ..config import BrokerConfig
from ..host_port import for_resolver, split_host_port
from ..named_tuple import NamedTuple
from ..protocol.message_id import encode_host
from ..regular_file import require_regular
from ..remoting.event_loop import EventLoop
from .certificate import Certificate, Pair, channel_of, trusting
from .door import HANDSHAKE
from .handshakes import DEADLINE_S, MAX_RECEIVED_BYTES
from .tunnels import Tunnel, Tunnels

_READ_BYTES = 16 * 1024

#: (socket, poll events, seconds): waits for one of the events. Raises TimeoutError, and others to give up.
Wait = Callable[[socket.socket, int, float], None]


class Ends(NamedTuple):
    """A connection for plain bytes. channel: digest of the certificate that the server showed; empty without TLS."""

    sock: socket.socket
    channel: bytes = b""


class BetweenBrokers:
    """TLS of this broker's connections to others of its name. Any thread; `start` before, `stop` after those."""

    def __init__(self, options: BrokerConfig, certificate: Certificate, clock: Clock) -> None:
        #: True if nothing but TLS is taken, and spoken.
        self.is_required = options.tls_mode == "enforcing"
        # Constant after construction.
        self._certificate = certificate
        self._files = options.tls_cert_file, options.tls_key_file
        self._authorities = options.tls_client_ca_file
        self._clock = clock
        self._loop = EventLoop(clock, "tls-brokers")
        self._tunnels = Tunnels(self._loop)
        self._lock = threading.Lock()
        # Guarded by _lock. The context of calls, and the pair that it was made for.
        self._calling: tuple[Pair, ssl.SSLContext] | None = None

    def start(self) -> None:
        """Start the thread."""
        self._loop.start()

    def stop(self) -> None:
        """End the thread; connections that are left are closed."""
        if self._loop.stop():
            self._tunnels.close_all()
        if not self._loop.alive:
            self._loop.close()

    def serve(self, sock: socket.socket, wait: Wait, seconds: float) -> Ends:
        """Wait for the first byte of a connection, so long, and shake hands if it begins with TLS.

        sock: does not block; if it speaks TLS, the tunnel owns it from then on. Raises OSError if the handshake fails,
        or if the peer speaks no TLS where that is required, and what `wait` raises.
        """
        wait(sock, select.POLLIN, seconds)
        first = sock.recv(1, socket.MSG_PEEK)
        if first != HANDSHAKE:
            if first and self.is_required:
                raise ConnectionError("it speaks no TLS, and tlsMode is enforcing; Apache's slaves cannot follow so")
            return Ends(sock)
        pair = self._certificate.pair
        return self._through(sock, pair.context, wait, pair.der)

    def call(self, sock: socket.socket, wait: Wait) -> Ends:
        """Shake hands on a connection that was made here, and does not block; the tunnel owns it from then on. Raises
        OSError, and what `wait` raises."""
        return self._through(sock, self._context(), wait)

    def is_own(self, channel: bytes) -> bool:
        """True if the certificate with this digest is this broker's own."""
        return channel == self._certificate.pair.channel

    def connect(self, address: str, seconds: float) -> Ends:
        """Return a connection to a broker. Raises OSError, UnicodeError."""
        host, port = split_host_port(address)
        until = self._clock.monotonic() + seconds
        sock = socket.create_connection((for_resolver(host), port), seconds)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            return self.call(sock, lambda one, events, left: _poll(one, events, until - self._clock.monotonic()))
        except BaseException:
            sock.close()
            raise

    def _context(self) -> ssl.SSLContext:
        """Return the context of calls; it is made again when the pair of files was loaded again."""
        pair = self._certificate.pair
        with self._lock:
            if self._calling is None or self._calling[0] is not pair:
                require_regular(*self._files, self._authorities)
                if self._authorities:
                    context = trusting(pair.der, at_any_time=False)
                    context.load_verify_locations(self._authorities)
                else:
                    context = trusting(pair.der)
                context.minimum_version = ssl.TLSVersion.TLSv1_2
                context.load_cert_chain(*self._files, password=str)  # an empty one, instead of a question
                self._calling = pair, context
            return self._calling[1]

    def _through(self, sock: socket.socket, context: ssl.SSLContext, wait: Wait, shown: bytes | None = None) -> Ends:
        """Shake hands, and put a tunnel before the socket. shown: the certificate of this side as the server; None: it
        is the client."""
        host, port = sock.getpeername()[:2]
        ciphers = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(*ciphers, server_side=shown is not None)
        self._shake_hands(sock, tls, ciphers, wait)
        if shown is None:
            shown = tls.getpeercert(True) or b""
        else:
            self._certificate.name_in(tls)  # refuses what has expired
        near, far = socket.socketpair()
        try:
            for end in (near, far):
                end.setblocking(False)
            peer = encode_host(host.partition("%")[0], port)
            tunnel = Tunnel(self._tunnels, sock, far, tls, ciphers, b"", peer)
        except BaseException:
            near.close()
            far.close()
            raise
        self._loop.call_soon(tunnel.begin)
        return Ends(near, channel_of(shown))

    def _shake_hands(
        self, sock: socket.socket, tls: ssl.SSLObject, ciphers: tuple[ssl.MemoryBIO, ssl.MemoryBIO], wait: Wait
    ) -> None:
        """Return when the handshake is done, and all its bytes are sent. Raises OSError."""
        incoming, outgoing = ciphers
        until = self._clock.monotonic() + DEADLINE_S
        received = 0
        while True:
            failure: ssl.SSLError | None = None
            done = False
            try:
                tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                failure = error
            data = outgoing.read()
            while data:
                try:
                    data = data[sock.send(data) :]
                except BlockingIOError:
                    wait(sock, select.POLLOUT, until - self._clock.monotonic())
            if failure is not None:
                raise failure
            if done:
                return
            wait(sock, select.POLLIN, until - self._clock.monotonic())
            try:
                piece = sock.recv(_READ_BYTES)
            except BlockingIOError:
                continue
            received += len(piece)
            if not piece or received > MAX_RECEIVED_BYTES:
                raise ConnectionError("it sent too much in a TLS handshake" if piece else "it hung up on TLS")
            incoming.write(piece)


def _poll(sock: socket.socket, events: int, seconds: float) -> None:
    poller = select.poll()
    poller.register(sock, events)
    if not poller.poll(max(0.0, seconds) * 1000):
        raise TimeoutError("it did not answer in time")
