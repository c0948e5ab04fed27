"""TLS connections after their handshake: a thread that decrypts what peers send, and encrypts what they are sent.

A tunnel joins the peer's socket and one end of a socket pair; the other end is a connection of the server. Each
direction holds at most one piece that its receiver has not taken yet, and stops reading until it has. So the server's
own limits for slow peers and for back-pressure reach the peer through the tunnel.
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
from collections.abc import Callable

from ..remoting.event_loop import READABLE, WRITABLE, EventLoop
from .turns import Turns

logger = logging.getLogger(__name__)

#: Bytes that are read of one side at a time.
CHUNK_BYTES = 64 * 1024
#: Nothing is read from a peer with more bytes than this to take. An answer's piece is smaller; requests for new keys
#: have answers, too, which OpenSSL makes at once.
MOST_UNSENT_BYTES = 4 * CHUNK_BYTES
#: Time between two tries to send to a peer that takes nothing: epoll reports room only when a third of the send buffer
#: is free, and the server closes a peer that has taken nothing for two minutes.
RETRY_S = 5.0
#: Time that a peer may take nothing of the last bytes, after the server has closed its connection.
LINGER_S = 30.0

ENDED = (ssl.SSLZeroReturnError, ssl.SSLEOFError)


class Tunnels:
    """All tunnels. Owned by the thread `tls-io`."""

    def __init__(self, loop: EventLoop) -> None:
        # Constant after construction.
        self.loop = loop
        self.turns = Turns(loop)
        # Owned by the thread.
        self.open: set[Tunnel] = set()
        self.blocked: set[Tunnel] = set()
        self._trying = False

    @property
    def count(self) -> int:
        """Number of tunnels. Any thread."""
        return len(self.open)

    def block(self, tunnel: Tunnel) -> None:
        """Try again later to send to this peer."""
        self.blocked.add(tunnel)
        self._try_later()

    def _try_later(self) -> None:
        if self.blocked and not self._trying:
            self._trying = True
            self.loop.call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._trying = False
        for tunnel in list(self.blocked):
            tunnel.try_again()
        self._try_later()

    def close_all(self) -> None:
        """Close what is left, after the thread has ended."""
        for tunnel in list(self.open):
            tunnel.close()


class _End:
    """One socket of a tunnel. It is watched only while something is wanted of it: a hang-up is reported always. peer:
    address of the tunnel's peer, for the turns."""

    __slots__ = ("_handle", "_loop", "_parked", "_turns", "peer", "sock", "wanted")

    def __init__(
        self, loop: EventLoop, turns: Turns, peer: bytes, sock: socket.socket, handle: Callable[[int], None]
    ) -> None:
        self._loop = loop
        self._turns = turns
        self.peer = peer
        self._parked = False
        self.sock = sock
        self._handle: Callable[[int], None] | None = handle
        self.wanted = 0

    def want(self, mask: int) -> None:
        if mask == self.wanted or self._handle is None:
            return
        if not self._parked:
            fd = self.sock.fileno()
            if not mask:
                self._loop.unwatch(fd)
            elif self.wanted:
                self._loop.rewatch(fd, mask)
            else:
                self._loop.watch(fd, mask, self)
        self.wanted = mask

    def on_event(self, mask: int) -> None:
        if self._handle is not None and not self._turns.put_off(self, mask):
            self._handle(mask)

    def park(self) -> None:
        self._loop.unwatch(self.sock.fileno())
        self._parked = True

    def resume(self, mask: int) -> None:
        self._parked = False
        if self._handle is None:
            return
        if self.wanted:
            self._loop.watch(self.sock.fileno(), self.wanted, self)
        self._handle(mask)

    def close(self) -> None:
        self.want(0)
        self._handle = None
        self.sock.close()


class Tunnel:
    """One connection. Made on remoting-io; everything else on `tls-io`."""

    def __init__(
        self,
        tunnels: Tunnels,
        sock: socket.socket,
        inner: socket.socket,
        tls: ssl.SSLObject,
        ciphers: tuple[ssl.MemoryBIO, ssl.MemoryBIO],
        unsent: bytes,
        peer: bytes,
    ) -> None:
        """sock: the peer's; peer: its address. inner: this side's end of the socket pair. ciphers: the two ends of
        `tls`, (from the peer, for it); the first may hold bytes already. unsent: bytes for the peer that are older."""
        self._tunnels = tunnels
        self._loop = tunnels.loop
        self._tls = tls
        self._incoming, self._outgoing = ciphers
        self._peer = _End(self._loop, tunnels.turns, peer, sock, self._on_peer)
        self._server = _End(self._loop, tunnels.turns, peer, inner, self._on_server)
        self._for_peer = memoryview(unsent)  # encrypted
        self._for_server = memoryview(b"")
        self._peer_ended = False  # the peer is no longer read
        self._peer_gone = False  # it takes nothing any more; what it sent before counts
        self._server_ended = False
        self._closed = False
        self._taken_at = -math.inf  # monotonic, when the peer last took something

    def begin(self) -> None:
        """Pass on what came with the end of the handshake, then watch both sides."""
        if self._loop.stopped:
            self.close()
            return
        self._tunnels.open.add(self)
        self._taken_at = self._loop.monotonic
        self._guarded(self._decrypt)

    def try_again(self) -> None:
        """Send to a peer that took nothing for a while."""
        self._guarded(self._send_to_peer)
        if not self._closed and self._server_ended and self._loop.monotonic - self._taken_at > LINGER_S:
            logger.info("tls: closing a connection, its peer does not take the last bytes")
            self.close()

    def _on_peer(self, mask: int) -> None:
        if mask & WRITABLE and self._for_peer:
            self._guarded(self._send_to_peer)
        if mask & ~WRITABLE and self._peer.wanted:  # data, its end, or an error
            self._guarded(self._read_peer if self._peer.wanted & READABLE else self._send_to_peer)

    def _on_server(self, mask: int) -> None:
        if mask & WRITABLE and self._for_server:
            self._guarded(self._send_to_server)
        if mask & ~WRITABLE and self._server.wanted:
            self._guarded(self._read_server if self._server.wanted & READABLE else self._send_to_server)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Take a step, then watch for what is wanted next; close the tunnel if that fails."""
        if self._closed:
            return
        try:
            step()
            if not self._closed:
                self._settle()
        except OSError as error:  # of the peer's socket, or its TLS
            logger.debug("tls: lost a connection: %s", error)
            self.close()
        except Exception:
            logger.exception("tls: closing a connection after an internal error")
            self.close()

    def _settle(self) -> None:
        is_all_passed_on = self._peer_ended and not self._for_server
        if (self._server_ended and not self._for_peer) or (self._peer_gone and is_all_passed_on):
            self.close()
            return
        if self._for_peer:
            self._tunnels.block(self)
        else:
            self._tunnels.blocked.discard(self)
        wanted = WRITABLE if self._for_peer else 0
        if not (self._for_server or self._peer_ended or len(self._for_peer) > MOST_UNSENT_BYTES):
            wanted |= READABLE
        self._peer.want(wanted)
        wanted = WRITABLE if self._for_server else 0
        if not (self._for_peer or self._server_ended):
            wanted |= READABLE
        self._server.want(wanted)

    # --- from the peer to the server

    def _read_peer(self) -> None:
        view = self._loop.receive_view
        try:
            received = self._peer.sock.recv_into(view[:CHUNK_BYTES])
        except BlockingIOError:
            return
        if received:
            self._incoming.write(view[:received])
        else:
            self._incoming.write_eof()
        self._decrypt()

    def _decrypt(self) -> None:
        """Pass on all that can be decrypted: at most what was read, and one record of 16 KiB."""
        view = self._loop.receive_view
        size = 0
        try:
            while True:
                got: int = self._tls.read(len(view) - size, view[size:])  # type: ignore[assignment]
                if not got:
                    self._peer_ended = True
                    break
                size += got
        except ssl.SSLWantReadError:
            pass
        except ENDED:
            self._peer_ended = True
        except ssl.SSLError:
            self._send_to_peer()  # the alert
            raise
        if self._outgoing.pending:
            self._send_to_peer()
        self._for_server = view[:size]
        self._send_to_server()

    def _send_to_server(self) -> None:
        data = self._for_server
        try:
            if data:
                data = data[self._server.sock.send(data) :]
            if self._peer_ended and not data:
                self._server.sock.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:  # it has closed the connection; what it sent before is still to be read
            data = memoryview(b"")
            self._peer_ended = True
        # What is kept must leave the buffer that all share.
        self._for_server = data if data.obj is not self._loop.receive_buffer else memoryview(bytes(data))

    # --- from the server to the peer

    def _read_server(self) -> None:
        view = self._loop.receive_view
        try:
            received = self._server.sock.recv_into(view[:CHUNK_BYTES])
        except BlockingIOError:
            return
        except ConnectionError:  # it closed without reading all
            received = 0
        done = 0
        while done < received:
            done += self._tls.write(view[done:received])
        if not received:
            self._server_ended = self._peer_ended = True
            try:
                self._tls.unwrap()  # says that nothing follows; the peer's answer is not waited for
            except ssl.SSLError:
                pass
        self._send_to_peer()

    def _send_to_peer(self) -> None:
        data = self._for_peer
        if self._outgoing.pending:
            more = self._outgoing.read()
            data = memoryview(bytes(data) + more) if data else memoryview(more)
        try:
            if data:
                data = data[self._peer.sock.send(data) :]
                self._taken_at = self._loop.monotonic
        except BlockingIOError:
            pass
        except ConnectionError:  # a client that stops commits its offsets, and reads no answer
            self._peer_gone = True
        finally:
            self._for_peer = memoryview(b"") if self._peer_gone else data

    def close(self) -> None:
        """Close both sides."""
        self._closed = True
        self._tunnels.open.discard(self)
        self._tunnels.blocked.discard(self)
        self._peer.close()
        self._server.close()
