"""The listening side: accepts, closes the idle, bounds what all peers together may hold.

Several listeners (broker, VIP, name server) share one event loop; each has its own dispatcher.
"""

from __future__ import annotations

import errno
import logging
import resource
import socket
from collections.abc import Callable

from ..errors import StartError
from ..protocol.command import RemotingCommand
from ..protocol.message_id import encode_host
from .connection import Connection
from .dispatcher import Dispatcher
from .event_loop import READABLE, EventLoop

logger = logging.getLogger(__name__)

#: Apache's serverChannelMaxIdleTimeSeconds: neither read nor written.
IDLE_SECONDS = 120.0
#: A frame must be whole this long after its connection last made progress (a slow-loris bound of ours).
PARTIAL_IDLE_SECONDS = 30.0
#: Partial frames of all peers together (D13).
PARTIAL_TOTAL_BYTES = 256 * 1024 * 1024
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
                logger.error("server: accept failed, pausing: %s", error)
                self._server.pause_listener(self, ACCEPT_PAUSE_SECONDS)
                return
            self._server.adopt(sock, address, self.dispatcher)


class RemotingServer:
    """Every connection of the process. Owned by the remoting-io thread once the loop runs."""

    def __init__(self, loop: EventLoop) -> None:
        # Constant after construction.
        self.loop = loop
        # Owned by the remoting-io thread.
        self.connections: dict[int, Connection] = {}
        self.dirty: list[Connection] = []
        self.reading_paused = False
        self._listeners: list[_Listener] = []
        self._close_listeners: list[Callable[[Connection], None]] = []
        #: What becomes of answers to requests of ours; set before the loop runs.
        self.on_answer: Callable[[Connection, RemotingCommand], None] = lambda conn, answer: None
        self._partial_total = 0
        loop.call_every(HOUSEKEEPING_SECONDS, self._close_idle)

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
        self.connections[conn.fd] = conn
        self.loop.watch(conn.fd, READABLE, conn)
        if self.reading_paused:
            conn.update_reading()

    def forget(self, conn: Connection) -> None:
        """Drop a closing connection from the loop and tell whoever wants to know."""
        self.loop.unwatch(conn.fd)
        self.connections.pop(conn.fd, None)
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
                conn.flush()

    def pause_reading(self, paused: bool) -> None:
        """Stop or resume reading from every peer: back-pressure while too many bytes wait for their sync (D6)."""
        if paused != self.reading_paused:
            self.reading_paused = paused
            for conn in list(self.connections.values()):
                conn.update_reading()

    def account_partial(self, conn: Connection, change: int) -> None:
        """Count bytes of partial frames; past the bound the largest other one is closed (D13)."""
        self._partial_total += change
        while self._partial_total > PARTIAL_TOTAL_BYTES:
            largest = max(self.connections.values(), key=lambda c: c.partial_bytes if c is not conn else 0)
            if largest is conn or not largest.partial_bytes:
                return
            logger.warning("server: partial frames over the bound, closing %s", largest.remote_host)
            largest.close()

    def _close_idle(self) -> None:
        now = self.loop.monotonic
        for conn in list(self.connections.values()):
            idle = now - conn.last_active
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
