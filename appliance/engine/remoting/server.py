"""The listening side: accepts connections, closes idle and slow ones, and limits what all peers together may hold.

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
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Protocol

from ..errors import StartError
from ..host_port import join_host_port
from ..hotpath import Reading, ServerState, flush_outboxes
from ..protocol.command import RemotingCommand
from ..protocol.message_id import decode_host, encode_host
from ..shares import address_of
from .connection import Connection
from .dispatcher import Dispatcher, Waiting
from .event_loop import READABLE, EventLoop
from .outbox import OUTBOX_HIGH_BYTES, Outbox

logger = logging.getLogger(__name__)

#: Apache's serverChannelMaxIdleTimeSeconds: time without bytes read or written.
IDLE_SECONDS = 120.0
#: Time that a partial frame may make no progress, against peers that send a byte now and then. Chosen here.
PARTIAL_IDLE_SECONDS = 30.0
#: Limit on the partial frames of all peers together (D13).
PARTIAL_TOTAL_BYTES = 256 * 1024 * 1024
#: Limit on the outboxes of all peers together. Above half of it, no answer is built for a peer that has not taken
#: everything; above it, the peer that has taken nothing for longest is closed.
OUTBOX_TOTAL_BYTES = 256 * 1024 * 1024
#: A peer whose outbox is full must take something within this time; as long as it may be idle.
STUCK_SECONDS = IDLE_SECONDS
#: Limit on one read while back-pressure stops producers, since the bytes behind the first send have to be kept; and
#: while so many bytes wait to be dispatched that other reads might exceed PARTIAL_TOTAL_BYTES.
PRESSURE_READ_BYTES = 16 * 1024
MANY_PARTIAL_BYTES = PARTIAL_TOTAL_BYTES // 4
#: Time in a tick for the turns of all connections; the last one may exceed it.
TURNS_S = 0.0005
#: Descriptors kept back from peers: for queue files (twice 1,024), log files, tables and HTTP. At most half of all.
RESERVED_DESCRIPTORS = 3072
#: Connections of the address with the most that are looked at, the oldest ones, when one of them has to give way; and
#: shortest time between two looks for that address.
CROWD_LOOKED_AT, CROWD_SECONDS = 4096, 0.5
#: Shortest time between two log lines about refused peers.
REFUSAL_LOG_SECONDS = 10.0
HOUSEKEEPING_SECONDS = 5.0
BACKLOG = 1024
ACCEPTS_PER_TICK = 256
ACCEPT_PAUSE_SECONDS = 0.5


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises StartError with the reason in one sentence."""
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
        raise StartError(f"Cannot listen on {join_host_port(host, port)}: {error.strerror}.") from None
    except UnicodeError:  # raised before the name is looked up
        sock.close()
        raise StartError(f"Cannot listen on {host}:{port}: that is no host name.") from None
    except OverflowError:
        sock.close()
        raise StartError(f"{port} is not a port number.") from None
    sock.setblocking(False)
    return sock


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one (D13); return the limit that then holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError) as error:
            logger.warning("server: the limit of open files stays at %d: %s", soft, error)
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
                # Out of descriptors: the peer stays in the backlog. An immediate retry would be a busy loop.
                self._server.note_refusal(f"accepting a connection failed, pausing: {error}")
                self._server.pause_listener(self, ACCEPT_PAUSE_SECONDS)
                return
            # A new descriptor is the lowest free number, so this process uses at least as many.
            if sock.fileno() >= self._server.descriptors_for_peers:
                # Behind this tick's events, some of which may be of the descriptor that becomes free.
                self._server.loop.call_soon(partial(self._server.take_in_place, sock, address, self))
                return  # one a tick, as these descriptors are not for peers
            self.take(sock, address)

    def take(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """Take an accepted socket: serve it, or have the door decide how."""
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._server.door is None:
                self._server.adopt(sock, address, self.dispatcher)
            else:
                self._server.door(sock, address, self._adopt)
        except OSError as error:  # the peer has gone already
            logger.info("server: lost a new connection: %s", error)
            sock.close()

    def _adopt(self, sock: socket.socket, address: tuple[str, int], kind: type[Connection] = Connection) -> None:
        """Serve a connection that the door lets in, by the table that the port has by then."""
        if self._server.accepts(self):
            self._server.adopt(sock, address, self.dispatcher, kind)
        else:
            sock.close()


class Guest(Protocol):
    """Counts for its address while it holds a descriptor: a connection, or one that the door still looks at."""

    born_host: bytes
    last_active: float

    @property
    def remote_host(self) -> str: ...

    @property
    def unread(self) -> bool: ...

    def close(self) -> None:
        """Close it at once, if called on remoting-io."""


class RefusalLog:
    """Counts refused peers, and logs them from time to time. Owned by the loop's thread."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._count = 0
        self._told_at = -math.inf

    def note(self, text: str) -> None:
        self._count += 1
        if self._loop.monotonic - self._told_at >= REFUSAL_LOG_SECONDS:
            logger.error("server: %s (%d times since this was last logged)", text, self._count)
            self._count, self._told_at = 0, self._loop.monotonic


class Adopt(Protocol):
    """Serves an accepted socket as a plain connection of a peer."""

    def __call__(self, sock: socket.socket, address: tuple[str, int], kind: type[Connection] = Connection) -> None: ...


#: Takes an accepted socket, its peer's address, and a function that serves it.
Door = Callable[[socket.socket, tuple[str, int], Adopt], None]


def text_of(born_host: bytes) -> str:
    """Return a peer's address (see `message_id.encode_host`) as "address:port"."""
    return join_host_port(*decode_host(born_host))


class Connections:
    """The connections of a server, each at the number of its descriptor: descriptors are small numbers, and a place
    takes less than a key. Changed on remoting-io, read by any thread."""

    def __init__(self) -> None:
        self._places: list[Connection | None] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return (fd for fd, conn in enumerate(list(self._places)) if conn is not None)

    def get(self, fd: int) -> Connection | None:
        places = self._places
        return places[fd] if 0 <= fd < len(places) else None

    def put(self, conn: Connection) -> None:
        places, fd = self._places, conn.fd
        places.extend([None] * (fd + 1 - len(places)))
        if places[fd] is None:
            self._count += 1
        places[fd] = conn

    def remove(self, conn: Connection) -> None:
        """Remove a connection, if it is here."""
        if self.get(conn.fd) is conn:
            self._places[conn.fd] = None
            self._count -= 1

    def values(self) -> list[Connection]:
        return [conn for conn in list(self._places) if conn is not None]


class RemotingServer(ServerState):
    """Every connection of the process. Owned by the remoting-io thread once the loop runs."""

    def __init__(self, loop: EventLoop) -> None:
        # Constant after construction.
        self.loop = loop
        # Owned by the remoting-io thread.
        self.connections = Connections()
        # Address -> its connections, the oldest first; and the address that had the most, as of when.
        self._of_addresses: dict[bytes, dict[Guest, None]] = {}
        self._crowd = b""
        self._crowd_at = -math.inf
        self.dirty: list[Outbox] = []
        #: True once no peer is read from, because the broker is stopping.
        self.reading_paused = False
        #: Back-pressure: connections that send messages wait, all others are served.
        self.producers_held = False
        self._holders: set[str] = set()
        #: Connection that waits -> since when.
        self.held_back: dict[Connection, float] = {}
        #: Limit on the bytes of one read; 0: as many as fit the buffer.
        self.read_bytes = 0
        #: No answers are built for a peer with more bytes than this to take.
        self.outbox_high_bytes = OUTBOX_HIGH_BYTES
        self._outbox_total = 0
        #: Guards the counts that pools keep at connections.
        self.pool_lock = threading.Lock()
        #: Peers get descriptors below this number. Set before the loop runs.
        self.descriptor_limit = self.descriptors_for_peers = sys.maxsize
        self.note_refusal = RefusalLog(loop).note
        #: Decides how new connections are served; None: all of them as plain ones. Set before the loop runs.
        self.door: Door | None = None
        self._listeners: list[_Listener] = []
        self._close_listeners: list[Callable[[Connection], None]] = []
        #: Called with each answer to a request that this server sent. Set before the loop runs.
        self.on_answer: Callable[[Connection, RemotingCommand], None] = lambda conn, answer: None
        self._partial_total = 0
        # Connections that wait for a turn, in order.
        self._turns: deque[Outbox] = deque()
        self._turns_due = False
        # Runner of a port -> what its connections share.
        self._readings: dict[Any, Any] = {}
        # Connections with frames that were not dispatched, by the bit length of their number of bytes, so that one of
        # the largest is found without a look at all of them.
        self._partials: list[dict[Connection, None]] = [{} for _ in range(64)]
        loop.call_every(HOUSEKEEPING_SECONDS, self._close_idle)

    def keep_descriptors(self, limit: int) -> None:
        """Keep some of the open files for the store. Before the loop starts."""
        if limit >= 0:  # there is one
            self.descriptor_limit = limit
            self.descriptors_for_peers = limit - min(RESERVED_DESCRIPTORS, limit // 2)

    def listen(self, sock: socket.socket, dispatcher: Dispatcher) -> None:
        """Serve a listening socket. Before the loop starts, or on its thread."""
        listener = _Listener(self, sock, dispatcher)
        self._listeners.append(listener)
        self.loop.watch(sock.fileno(), READABLE, listener)

    def on_close(self, listener: Callable[[Connection], None]) -> None:
        """Call `listener(conn)` on the I/O thread whenever a connection has closed."""
        self._close_listeners.append(listener)

    def forget_listener(self, listener: Callable[[Connection], None]) -> None:
        """Stop calling `listener`."""
        self._close_listeners = [one for one in self._close_listeners if one != listener]

    def serve_by(self, instead: Mapping[Dispatcher, Dispatcher]) -> None:
        """Have ports and their connections served by other tables, from the next frame on. On the I/O thread.

        Frames that were read but not dispatched go to the new table, too. While that is `paused`, nothing is read.
        """
        self._readings.clear()
        for listener in self._listeners:
            listener.dispatcher = instead.get(listener.dispatcher, listener.dispatcher)
        for conn in self.connections.values():
            dispatcher = instead.get(conn.dispatcher)
            if dispatcher is None or conn.closed:
                continue
            conn.dispatcher = dispatcher
            conn.told.clear()  # numbers of the other broker's events
            self._read_by(conn)
            conn.update_reading()

    def update_reading(self) -> None:
        """Check again which peers may be read from."""
        for conn in self.connections.values():
            conn.update_reading()

    def connections_of(self, dispatchers: Container[Dispatcher]) -> list[Connection]:
        """Return the connections of some ports."""
        return [conn for conn in self.connections.values() if conn.dispatcher in dispatchers]

    def _read_by(self, conn: Connection) -> None:
        """Have a connection's usual frames taken by its port's runner, if it has one."""
        runner = conn.dispatcher.runner
        reading = self._readings.get(runner)
        if reading is None and runner is not None:
            reading = self._readings[runner] = Reading(runner, self, self.loop)
        conn.reading = reading

    def accepts(self, listener: _Listener) -> bool:
        """True until the listener is closed."""
        return listener in self._listeners

    def adopt(
        self,
        sock: socket.socket,
        address: tuple[str, int],
        dispatcher: Dispatcher,
        kind: type[Connection] = Connection,
    ) -> None:
        # Python's own class of sockets takes twice the memory of the one below it.
        plain = socket.SocketType(sock.family, sock.type, sock.proto, sock.detach())
        plain.setblocking(False)
        host, port = address[0], address[1]
        conn = kind(self, plain, dispatcher, encode_host(host, port))
        self._read_by(conn)
        self.loop.watch(conn.fd, READABLE, conn)
        self.connections.put(conn)
        self.count(conn)
        if self.reading_paused or dispatcher.paused:
            conn.update_reading()
        if conn.reading is not None:  # now that it is known to all who close it
            conn.keep_descriptor()

    def count(self, guest: Guest) -> None:
        """Count a descriptor for the address of its peer, until `uncount`."""
        self._of_addresses.setdefault(address_of(guest.born_host), {})[guest] = None

    def uncount(self, guest: Guest) -> None:
        address = address_of(guest.born_host)
        others = self._of_addresses.get(address, {})
        others.pop(guest, None)
        if not others:
            self._of_addresses.pop(address, None)

    def take_in_place(self, sock: socket.socket, address: tuple[str, int], listener: _Listener) -> None:
        """Take a peer for which there is no descriptor in place of another one, from the address with the most
        connections; refuse it if its own address has as many."""
        found = None
        try:
            if self.accepts(listener) and self.make_room(encode_host(address[0], address[1])):
                found = sock.dup()  # under the number that has become free
        except OSError as error:
            logger.info("server: lost a new connection: %s", error)
        finally:
            sock.close()
        if found is not None and found.fileno() < self.descriptors_for_peers:
            listener.take(found, address)
            return
        if found is not None:
            found.close()
        self.note_refusal("too many files and connections are open, closed a new connection")

    def make_room(self, peer: bytes) -> bool:
        """Close the connection that was silent for longest of the address with the most. False if that has not at least
        two more than the address of `peer` (see `message_id.encode_host`): then no connection is closed."""
        least = len(self._of_addresses.get(address_of(peer), ())) + 2
        crowd = self._of_addresses.get(self._crowd, {})
        now = self.loop.monotonic
        if len(crowd) < least and now - self._crowd_at >= CROWD_SECONDS and self._of_addresses:
            self._crowd_at = now
            self._crowd = max(self._of_addresses, key=lambda one: len(self._of_addresses[one]))
            crowd = self._of_addresses[self._crowd]
        if len(crowd) < least:
            return False
        # A peer that is not read from may have sent something.
        silent = min(islice(crowd, CROWD_LOOKED_AT), key=lambda conn: (conn.unread, conn.last_active))
        self.note_refusal(f"too many files and connections are open, closed {silent.remote_host} for one of others")
        silent.close()
        return True

    def forget(self, conn: Connection) -> None:
        """Take a closing connection off the loop and call the listeners."""
        self.loop.unwatch(conn.fd)
        self.connections.remove(conn)
        self.uncount(conn)
        self.held_back.pop(conn, None)
        for listener in self._close_listeners:
            try:
                listener(conn)
            except Exception:
                logger.exception("server: a listener for closed connections failed for=%s", conn.remote_host)

    def go_on_soon(self, conn: Outbox) -> None:
        """Give this connection a turn, in this tick or a later one, after those that asked before it."""
        self._turns.append(conn)
        self._have_turns()

    def _have_turns(self) -> None:
        if self._turns and not self._turns_due:
            self._turns_due = True
            self.loop.call_soon(self._give_turns)

    def _give_turns(self) -> None:
        """Give each waiting connection a turn, as far as TURNS_S allows; then sends and other events come first."""
        now = self.loop.clock.monotonic
        end = now() + TURNS_S
        try:
            for _ in range(len(self._turns)):
                self._turns.popleft().go_on()
                if now() >= end:
                    break
        finally:
            self._turns_due = False
            self._have_turns()

    def flush_dirty(self) -> None:
        """Send the answers of this tick, with one send for each connection."""
        while self.dirty:
            batch = self.dirty
            self.dirty = []
            if flush_outboxes is not None:
                batch = flush_outboxes(batch, self.loop.monotonic)
            for conn in batch:
                try:
                    conn.flush()
                except Exception:
                    conn.fail()

    def hold_producers(self, held: bool, by: str = "store") -> None:
        """Switch back-pressure on or off, for when too many bytes wait for their sync (D6). A connection that sends a
        message waits, with everything behind that message; consumers, heartbeats and the name server go on. by: the
        part that calls; producers are held while any part holds them."""
        if held:
            self._holders.add(by)
        else:
            self._holders.discard(by)
        held = self.producers_held = bool(self._holders)
        self._bound_reads()
        if not held:
            # Not at once: the caller may be in the middle of a tick's end, or of another peer's frames.
            self.loop.call_soon(self._let_producers_go)

    def _bound_reads(self) -> None:
        scarce = self.producers_held or self._partial_total > MANY_PARTIAL_BYTES
        self.read_bytes = PRESSURE_READ_BYTES if scarce else 0

    def held_producers(self) -> Waiting:
        """Return how many producers back-pressure stops now, and how long the first has waited. Any thread."""
        since = list(self.held_back.values())
        return Waiting(len(since), int((self.loop.clock.monotonic() - since[0]) * 1000) if since else 0)

    def _let_producers_go(self) -> None:
        if self.producers_held:
            return
        held, self.held_back = self.held_back, {}
        for conn in held:
            conn.let_go()

    def pause_reading(self, paused: bool) -> None:
        """Stop reading from every peer, or resume; used to stop the broker."""
        if paused != self.reading_paused:
            self.reading_paused = paused
            self.update_reading()

    def account_partial(self, conn: Connection, change: int) -> None:
        """Count bytes of partial frames; above the limit, close one of the largest others (D13)."""
        self._partial_total += change
        self._bound_reads()
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
            self.note_refusal(f"partial frames hold too many bytes, closing {largest.remote_host}")
            largest.close()

    def _one_of_the_largest(self, but: Connection) -> Connection | None:
        """Return one that holds more than half as much as any other; of these, the one that has held it for longest."""
        for some in reversed(self._partials):
            for conn in some:
                if conn is not but and conn.partial_bytes:  # 0 while its frames are being dispatched
                    return conn
        return None

    def account_outbox(self, conn: Outbox, change: int) -> None:
        """Count bytes in the outboxes of all peers, and keep them within the limit (D13)."""
        self._outbox_total += change
        scarce = OUTBOX_TOTAL_BYTES // 2
        if self.outbox_high_bytes:
            if self._outbox_total > scarce:
                logger.warning("server: outboxes hold %d bytes, slow peers get no further answers", self._outbox_total)
                self.outbox_high_bytes = 0
        elif self._outbox_total < scarce // 2:
            self.outbox_high_bytes = OUTBOX_HIGH_BYTES
            self.loop.call_soon(self._look_for_room)
        while self._outbox_total > OUTBOX_TOTAL_BYTES:
            others = [other for other in self.connections.values() if other is not conn and other.outbox_bytes]
            if not others:
                return
            slowest = min(others, key=lambda other: (other.last_active, -other.outbox_bytes))
            logger.warning("server: outboxes hold too many bytes, closing %s", slowest.remote_host)
            slowest.close()

    def _look_for_room(self) -> None:
        for conn in self.connections.values():
            if conn.full:
                conn.update_reading()

    def _close_idle(self) -> None:
        now = self.loop.monotonic
        for conn in self.connections.values():
            if conn.full:
                conn.look_at_progress()
            idle = now - conn.last_active
            if conn.unread and not conn.closing:
                # It is not read from, so its silence means nothing; but it must take what is sent.
                if conn.full and idle > STUCK_SECONDS:
                    logger.info("server: closing %s, it has taken nothing for %.0f s", conn.remote_host, idle)
                    conn.close()
                continue
            if idle > IDLE_SECONDS or (idle > PARTIAL_IDLE_SECONDS and conn.partial_bytes):
                logger.info("server: closing %s, idle for %.0f s", conn.remote_host, idle)
                conn.close()

    def pause_listener(self, listener: _Listener, seconds: float) -> None:
        """Leave new connections in the backlog for some seconds."""
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
        for conn in self.connections.values():
            conn.close_after_flush()

    def drop_all(self) -> None:
        """Close every connection that is left now, whatever its peer has not taken."""
        for conn in self.connections.values():
            conn.close()
