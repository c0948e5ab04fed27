"""TLS handshakes, on a thread of their own: bounded in number, with a deadline, and with a share for each address.

A connection whose address has no room waits, as a bare socket, and begins when another one of its address is
done. So clients that all connect again at once, after a restart, come in one after the other. Between addresses turns
are taken.
"""

from __future__ import annotations

import functools
import logging
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable

from ..remoting.event_loop import READABLE, WRITABLE, EventLoop
from ..remoting.server import RefusalLog, RemotingServer
from ..shares import Shares, address_of
from .certificate import Certificate, Pair
from .tunnels import Tunnel, Tunnels
from .turns import Turns

logger = logging.getLogger(__name__)

#: Handshakes at a time, about 50 KiB each; one address may have what it leaves free, see `shares.py`.
MAX_HANDSHAKES = 512
#: Connections that may wait for their handshake, shared in the same way; half of all that peers may have, if fewer.
MAX_WAITING = 10_000
#: Time that a handshake may take, the wait for it included.
DEADLINE_S = 5.0
#: Bytes that a peer may send in one: its hello, and a few small records.
MAX_RECEIVED_BYTES = 64 * 1024
_READ_BYTES = 16 * 1024


class Handshakes:
    """Owned by the thread `tls-handshakes`."""

    def __init__(self, loop: EventLoop, server: RemotingServer, certificate: Certificate, tunnels: Tunnels) -> None:
        # Constant after construction.
        self.loop = loop
        self._server = server
        self._certificate = certificate
        self._tunnels = tunnels
        self.turns = Turns(loop)
        self._refusals = RefusalLog(loop)
        # Owned by the thread.
        self._shares = Shares()
        self._waits = Shares()
        self._under_way: set[_Handshake] = set()
        # Address -> those that wait, in order; the address that had its turn last is the last one.
        self._waiting: OrderedDict[bytes, OrderedDict[_Handshake, None]] = OrderedDict()

    @property
    def count(self) -> int:
        """Number of handshakes under way. Any thread."""
        return len(self._under_way)

    @property
    def waiting(self) -> int:
        """Number of connections that wait for theirs. Any thread."""
        return self._waits.taken

    def begin(self, sock: socket.socket, peer: bytes, adopt: Callable[[socket.socket], None]) -> None:
        """Begin a handshake, or have it wait for others of its address. adopt: serves the plain side; called on
        remoting-io."""
        if self.loop.stopped:
            sock.close()
            return
        address = address_of(peer)
        waiting = self._waiting.get(address)
        if waiting is None and self._shares.take(peer, MAX_HANDSHAKES):
            self._shake(_Handshake(self, sock, peer, adopt))
        elif not self._waits.take(peer, min(MAX_WAITING, self._server.descriptors_for_peers // 2)):
            sock.close()
            self._refusals.note("too many TLS handshakes at once, closed a new connection")
        else:
            if waiting is None:
                waiting = self._waiting[address] = OrderedDict()
            waiting[_Handshake(self, sock, peer, adopt)] = None

    def _shake(self, handshake: _Handshake) -> None:
        self._under_way.add(handshake)
        handshake.begin(self._certificate.pair)
        self.loop.watch(handshake.sock.fileno(), READABLE, handshake)

    def _leave(self, handshake: _Handshake) -> None:
        handshake.deadline.cancel()
        address = address_of(handshake.peer)
        if handshake not in self._under_way:
            self._wait_no_more(handshake, address)
            return
        if not handshake.parked:
            self.loop.unwatch(handshake.sock.fileno())
        self._under_way.discard(handshake)
        self._shares.give(handshake.peer)
        self._begin_next(address)
        if self._waiting:
            self._begin_next(next(iter(self._waiting)))

    def _begin_next(self, address: bytes) -> None:
        """Begin the first handshake that waits for this address, if there is one, and room for it."""
        waiting = self._waiting.get(address)
        if waiting is None:
            return
        self._waiting.move_to_end(address)
        handshake = next(iter(waiting))
        if self._shares.take(handshake.peer, MAX_HANDSHAKES):
            self._wait_no_more(handshake, address)
            self._shake(handshake)

    def _wait_no_more(self, handshake: _Handshake, address: bytes) -> None:
        waiting = self._waiting.get(address)
        if waiting is None or handshake not in waiting:  # it was over before, and has failed by an internal error since
            return
        del waiting[handshake]
        self._waits.give(handshake.peer)
        if not waiting:
            del self._waiting[address]

    def name_in(self, tls: ssl.SSLObject) -> str:
        """Return the name in the peer's certificate."""
        return self._certificate.name_in(tls)

    def is_under_way(self, handshake: _Handshake) -> bool:
        """True until a handshake was refused or finished."""
        return handshake in self._under_way

    def refuse(self, handshake: _Handshake, reason: str) -> None:
        """End a handshake that failed."""
        self._leave(handshake)
        handshake.sock.close()
        self._refusals.note(f"a TLS handshake failed: {reason}")

    def finish(self, handshake: _Handshake) -> None:
        """Serve a connection that has shaken hands."""
        self._leave(handshake)
        self._server.loop.call_soon(functools.partial(self._join, handshake))

    def _join(self, handshake: _Handshake) -> None:
        """One end of a socket pair becomes a connection of the server, the other one that of a tunnel. On
        remoting-io, which alone can make room for them."""
        sockets = [handshake.sock]
        try:
            pair = self._pair(handshake.peer)
            if pair is not None:
                sockets += pair
                near, far = pair
                far.setblocking(False)
                tunnel = Tunnel(
                    self._tunnels,
                    handshake.sock,
                    far,
                    handshake.tls,
                    handshake.ciphers,
                    handshake.unsent,
                    handshake.peer,
                )
                self._tunnels.loop.call_soon(tunnel.begin)
                sockets = [near]  # the others are the tunnel's now, which ends with this one
                fd = near.fileno()
                handshake.adopt(near)
                conn = self._server.connections.get(fd)
                if conn is not None:  # nothing of it was read yet
                    conn.certified, conn.channel = handshake.certified, handshake.channel
                return
            self._server.note_refusal("too many files and connections are open, closed a TLS connection")
        except OSError as error:
            self._server.note_refusal(f"no sockets for a TLS connection: {error}")
        except Exception:
            logger.exception("tls: closing a connection after an internal error")
        for sock in sockets:
            sock.close()

    def _pair(self, peer: bytes) -> tuple[socket.socket, socket.socket] | None:
        """Return a socket pair, if need be in place of two connections of the address with the most; None if there is
        no room."""
        server = self._server
        for _ in range(2):
            near, far = socket.socketpair()
            if max(near.fileno(), far.fileno()) < server.descriptors_for_peers:
                return near, far
            near.close()
            far.close()
            if not (server.make_room(peer) and server.make_room(peer)):
                break
        return None

    def close_all(self) -> None:
        """Close what is under way or waits, after the thread has ended."""
        for handshake in [*self._under_way, *(one for waiting in self._waiting.values() for one in waiting)]:
            handshake.sock.close()
        self._under_way.clear()
        self._waiting.clear()


class _Handshake:
    """One handshake. ciphers: (bytes from the peer, bytes for it). unsent: bytes that its socket did not take."""

    def __init__(
        self,
        owner: Handshakes,
        sock: socket.socket,
        peer: bytes,
        adopt: Callable[[socket.socket], None],
    ) -> None:
        self._owner = owner
        self.sock = sock
        self.peer = peer
        self.adopt = adopt
        self.unsent = b""
        #: True while its events wait for a turn of its address.
        self.parked = False
        #: The name in the client's certificate.
        self.certified = ""
        #: Digest of the certificate that is shown to it.
        self.channel = b""
        self.deadline = owner.loop.call_later(DEADLINE_S, lambda: owner.refuse(self, "it took too long"))
        self._received = 0

    def begin(self, pair: Pair) -> None:
        """Make what the handshake needs: not before, since thousands may wait."""
        self.ciphers = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = pair.context.wrap_bio(*self.ciphers, server_side=True)
        self.channel = pair.channel

    def on_event(self, mask: int) -> None:
        if not self._owner.turns.put_off(self, mask):
            self._step(mask)

    def park(self) -> None:
        self._owner.loop.unwatch(self.sock.fileno())
        self.parked = True

    def resume(self, mask: int) -> None:
        self.parked = False
        if self._owner.is_under_way(self):
            self._owner.loop.watch(self.sock.fileno(), READABLE | WRITABLE if self.unsent else READABLE, self)
            self._step(mask)

    def _step(self, mask: int) -> None:
        try:
            if mask & ~WRITABLE and not self._receive():
                return
            self._send()
        except (OSError, ssl.SSLError) as error:
            self._owner.refuse(self, str(error))
        except Exception as error:
            logger.exception("tls: a handshake failed by an internal error")
            self._owner.refuse(self, repr(error))

    def _receive(self) -> bool:
        """Take a step with what the peer has sent; False if the handshake is over."""
        try:
            data = self.sock.recv(_READ_BYTES)
        except BlockingIOError:
            return True
        self._received += len(data)
        if not data or self._received > MAX_RECEIVED_BYTES:
            self._owner.refuse(self, "it sent too much" if data else "it hung up")
            return False
        self.ciphers[0].write(data)
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return True
        except ssl.SSLError:
            self._send()  # the alert
            raise
        self.certified = self._owner.name_in(self.tls)
        self._send()
        self._owner.finish(self)
        return False

    def _send(self) -> None:
        data = self.unsent + self.ciphers[1].read()
        if data:
            try:
                data = data[self.sock.send(data) :]
            except BlockingIOError:
                pass
        if bool(data) != bool(self.unsent):
            self._owner.loop.rewatch(self.sock.fileno(), READABLE | WRITABLE if data else READABLE)
        self.unsent = data
