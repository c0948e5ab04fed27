"""The listening side: accepts, closes the idle, bounds what all peers together may hold.

Several listeners (broker, VIP, name server) share one event loop; each has its own dispatcher.
"""

from __future__ import annotations

import errno
import logging
import math
import resource
import socket
import sys
import threading
from collections.abc import Callable

from ..errors import StartError
from ..protocol.command import RemotingCommand
from ..protocol.message_id import encode_host
from .connection import Connection
from .dispatcher import Dispatcher, Waiting
from .event_loop import READABLE, EventLoop
from .outbox import OUTBOX_HIGH_BYTES, Outbox

logger = logging.getLogger(__name__)

#: Apache's serverChannelMaxIdleTimeSeconds: neither read nor written.
IDLE_SECONDS = 120.0
#: A frame must be whole this long after its connection last made progress (a slow-loris bound of ours).
PARTIAL_IDLE_SECONDS = 30.0
#: Partial frames of all peers together (D13).
PARTIAL_TOTAL_BYTES = 256 * 1024 * 1024
#: Outboxes of all peers together. From half of it on nothing is built for a peer that still has to take something; past
#: all of it the peer that took nothing for longest is closed.
OUTBOX_TOTAL_BYTES = 256 * 1024 * 1024
#: A peer that is not read from, because its outbox is full, must take a byte this often: as long as it may be idle.
STUCK_SECONDS = IDLE_SECONDS
#: Read from one peer at once while back-pressure stops producers: what is behind the first send is kept until it ends.
PRESSURE_READ_BYTES = 16 * 1024
#: Of the descriptors: what queue files (twice 1024), log rolls, tables and HTTP may still open when peers have taken
#: all others; at most half of the limit.
RESERVED_DESCRIPTORS = 3072
#: Peers that find no descriptor are told of in the log this often at most.
REFUSAL_LOG_SECONDS = 10.0
HOUSEKEEPING_SECONDS = 5.0
BACKLOG = 1024
ACCEPTS_PER_TICK = 256
ACCEPT_PAUSE_SECONDS = 0.5


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises StartError with the reason in one sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise StartError(f"Port {port} on {host} is already in use.") from None
        raise StartError(f"Cannot listen on {host}:{port}: {error.strerror}.") from None
    except OverflowError:
        sock.close()
        raise StartError(f"{port} is not a port number.") from None
    sock.setblocking(False)
    return sock


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one (D13); returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError) as error:
            logger.warning("server: open file limit stays at %d: %s", soft, error)
    return soft


class _Listener:
    """One listening socket on the loop."""

    def __init__(self, server: RemotingServer, sock: socket.socket, dispatcher: Dispatcher) -> None:
        self._server = server
        self.sock = sock
        self.dispatcher = dispatcher

    def on_event(self, mask: int) -> None:
        for _ in range(ACCEPTS_PER_TICK):
            try:
                sock, address = self.sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Out of descriptors: it stays in the backlog. Looking again at once would spin.
                self._server.note_refusal(f"accept failed, pausing: {error}")
                self._server.pause_listener(self, ACCEPT_PAUSE_SECONDS)
                return
            # A new descriptor is the lowest free number: so many are in use, by whatever part of the process.
            if sock.fileno() >= self._server.descriptors_for_peers:
                sock.close()
                self._server.note_refusal("too many files and connections are open, a new peer was closed")
                continue
            try:
                self._server.adopt(sock, address, self.dispatcher)
            except OSError as error:  # gone already
                logger.info("server: a new peer was lost: %s", error)
                sock.close()


class RemotingServer:
    """Every connection of the process. Owned by the remoting-io thread once the loop runs."""

    def __init__(self, loop: EventLoop) -> None:
        # Constant after construction.
        self.loop = loop
        # Owned by the remoting-io thread.
        self.connections: dict[int, Connection] = {}
        self.dirty: list[Outbox] = []
        #: Nobody is read from any more: the stop has begun.
        self.reading_paused = False
        #: Back-pressure: who sends messages waits, all others are served.
        self.producers_held = False
        #: Who waits, since when.
        self.held_back: dict[Connection, float] = {}
        #: What one read takes at most; 0: what fits.
        self.read_bytes = 0
        #: Beyond it nothing is built for a peer; 0: while it has anything to take.
        self.outbox_high_bytes = OUTBOX_HIGH_BYTES
        self._outbox_total = 0
        #: Guards what pools count at connections.
        self.pool_lock = threading.Lock()
        #: Peers get descriptors below this one. Set before the loop runs.
        self.descriptor_limit = self.descriptors_for_peers = sys.maxsize
        self._refusals = 0
        self._refusals_told_at = -math.inf
        self._listeners: list[_Listener] = []
        self._close_listeners: list[Callable[[Connection], None]] = []
        #: What becomes of answers to requests of ours; set before the loop runs.
        self.on_answer: Callable[[Connection, RemotingCommand], None] = lambda conn, answer: None
        self._partial_total = 0
        # Who has frames that were not dispatched, by the magnitude of what is kept: the largest is found without a look
        # at the others, of which each of a thousand small ones would cost one.
        self._partials: list[dict[Connection, None]] = [{} for _ in range(64)]
        loop.call_every(HOUSEKEEPING_SECONDS, self._close_idle)

    def keep_descriptors(self, limit: int) -> None:
        """Leave enough of the limit of open files to the store; before the loop starts."""
        if limit >= 0:  # there is one
            self.descriptor_limit = limit
            self.descriptors_for_peers = limit - min(RESERVED_DESCRIPTORS, limit // 2)

    def note_refusal(self, text: str) -> None:
        """Log that peers are refused, once in a while."""
        self._refusals += 1
        if self.loop.monotonic - self._refusals_told_at >= REFUSAL_LOG_SECONDS:
            logger.error("server: %s (%d times since the last such line)", text, self._refusals)
            self._refusals, self._refusals_told_at = 0, self.loop.monotonic

    def listen(self, sock: socket.socket, dispatcher: Dispatcher) -> None:
        """Serve a listening socket; before the loop starts or on its thread."""
        listener = _Listener(self, sock, dispatcher)
        self._listeners.append(listener)
        self.loop.watch(sock.fileno(), READABLE, listener)

    def on_close(self, listener: Callable[[Connection], None]) -> None:
        """Call `listener(conn)` on the I/O thread whenever a connection is gone."""
        self._close_listeners.append(listener)

    def adopt(self, sock: socket.socket, address: tuple[str, int], dispatcher: Dispatcher) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = address[0], address[1]
        conn = Connection(self, sock, dispatcher, encode_host(host, port))
        self.loop.watch(conn.fd, READABLE, conn)
        self.connections[conn.fd] = conn
        if self.reading_paused:
            conn.update_reading()

    def forget(self, conn: Connection) -> None:
        """Drop a closing connection from the loop and tell whoever wants to know."""
        self.loop.unwatch(conn.fd)
        self.connections.pop(conn.fd, None)
        self.held_back.pop(conn, None)
        for listener in self._close_listeners:
            try:
                listener(conn)
            except Exception:
                logger.exception("server: close listener failed for=%s", conn.remote_host)

    def flush_dirty(self) -> None:
        """Send what this tick answered: one send a connection."""
        while self.dirty:
            batch = self.dirty
            self.dirty = []
            for conn in batch:
                try:
                    conn.flush()
                except Exception:
                    conn.fail()

    def hold_producers(self, held: bool) -> None:
        """Back-pressure while too many bytes wait for their sync (D6): whoever sends a message now waits, with what it
        wrote behind it, until that is over. Consumers, heartbeats and the name server go on."""
        self.producers_held = held
        self.read_bytes = PRESSURE_READ_BYTES if held else 0
        if not held:
            # Not at once: this may be the middle of a tick's end, or of another peer's frames.
            self.loop.call_soon(self._let_producers_go)

    def held_producers(self) -> Waiting:
        """Producers that back-pressure stops now. Any thread."""
        since = list(self.held_back.values())
        return Waiting(len(since), int((self.loop.clock.monotonic() - since[0]) * 1000) if since else 0)

    def _let_producers_go(self) -> None:
        if self.producers_held:
            return
        held, self.held_back = self.held_back, {}
        for conn in held:
            conn.let_go()

    def pause_reading(self, paused: bool) -> None:
        """Stop or resume reading from every peer: the stop has begun."""
        if paused != self.reading_paused:
            self.reading_paused = paused
            for conn in list(self.connections.values()):
                conn.update_reading()

    def account_partial(self, conn: Connection, change: int) -> None:
        """Count bytes of partial frames; past the bound one of the largest others is closed (D13)."""
        self._partial_total += change
        magnitude = conn.partial_bytes.bit_length()
        if magnitude != conn.partial_magnitude:
            if conn.partial_magnitude:
                del self._partials[conn.partial_magnitude][conn]
            if magnitude:
                self._partials[magnitude][conn] = None
            conn.partial_magnitude = magnitude
        while self._partial_total > PARTIAL_TOTAL_BYTES:
            largest = self._one_of_the_largest(conn)
            if largest is None:
                return
            self.note_refusal(f"partial frames over the bound, closing {largest.remote_host}")
            largest.close()

    def _one_of_the_largest(self, but: Connection) -> Connection | None:
        """Of those with more than half of what any has, the one that has it for longest."""
        for some in reversed(self._partials):
            for conn in some:
                if conn is not but and conn.partial_bytes:  # not one whose frames are being dispatched
                    return conn
        return None

    def account_outbox(self, conn: Outbox, change: int) -> None:
        """Count bytes that wait for all peers together, and keep them within the bound (D13)."""
        self._outbox_total += change
        scarce = OUTBOX_TOTAL_BYTES // 2
        if self.outbox_high_bytes:
            if self._outbox_total > scarce:
                logger.warning("server: outboxes hold %d bytes, slow peers get no more", self._outbox_total)
                self.outbox_high_bytes = 0
        elif self._outbox_total < scarce // 2:
            self.outbox_high_bytes = OUTBOX_HIGH_BYTES
            self.loop.call_soon(self._look_for_room)
        while self._outbox_total > OUTBOX_TOTAL_BYTES:
            others = [other for other in self.connections.values() if other is not conn and other.outbox_bytes]
            if not others:
                return
            slowest = min(others, key=lambda other: (other.last_active, -other.outbox_bytes))
            logger.warning("server: outboxes over the bound, closing %s", slowest.remote_host)
            slowest.close()

    def _look_for_room(self) -> None:
        for conn in list(self.connections.values()):
            if conn.full:
                conn.update_reading()

    def _close_idle(self) -> None:
        now = self.loop.monotonic
        for conn in list(self.connections.values()):
            if conn.full:
                conn.look_at_progress()
            idle = now - conn.last_active
            if conn.unread and not conn.closing:
                # We do not read from it, so its silence says nothing; that it takes nothing does.
                if conn.full and idle > STUCK_SECONDS:
                    logger.info("server: closing %s, it took nothing for %.0f s", conn.remote_host, idle)
                    conn.close()
                continue
            if idle > IDLE_SECONDS or (idle > PARTIAL_IDLE_SECONDS and conn.partial_bytes):
                logger.info("server: closing idle connection %s after %.0f s", conn.remote_host, idle)
                conn.close()

    def pause_listener(self, listener: _Listener, seconds: float) -> None:
        """Leave new connections in the backlog for a while."""
        self.loop.unwatch(listener.sock.fileno())

        def resume() -> None:
            if listener in self._listeners:
                self.loop.watch(listener.sock.fileno(), READABLE, listener)

        self.loop.call_later(seconds, resume)

    def stop_accepting(self) -> None:
        for listener in self._listeners:
            self.loop.unwatch(listener.sock.fileno())
            listener.sock.close()
        self._listeners.clear()

    def close_all(self) -> None:
        """Flush, then close every connection."""
        self.flush_dirty()
        for conn in list(self.connections.values()):
            conn.close_after_flush()
