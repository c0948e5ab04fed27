"""The sending half of a connection: answers to be sent, and answers to be built.

An answer is built only when the outbox has room for it: a peer that requests much and takes nothing costs one full
outbox and one answer. Everything here belongs to the remoting-io thread except `post`, `take_place`, `leave_place`,
`must_wait`, `wait_for_room` and `resumed`, which the threads of pools call.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import termios
from array import array
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any, Protocol

from ..host_port import join_host_port
from ..hotpath import PeerState
from ..protocol.message_id import decode_host
from .event_loop import READABLE, WRITABLE, EventLoop

logger = logging.getLogger(__name__)

#: A peer with a longer outbox is not read from, and no answer is built for it, until it has taken half. As large as a
#: socket's send buffer can get (tcp_wmem), which is enough to keep any line busy.
OUTBOX_HIGH_BYTES = 4 * 1024 * 1024
#: A peer whose outbox still grows beyond this is closed: events at other clients cause notices that it did not request.
#: Four of the largest frames, since pools may be building as many.
OUTBOX_LIMIT_BYTES = 64 * 1024 * 1024
#: Limit on bytes of one connection's requests that wait in pools; a single request may always wait.
MAX_CONNECTION_WAITING_BYTES = 16 * 1024 * 1024
#: An outbox up to this size is added to the sum of all outboxes only at the end of the tick.
_SMALL_BYTES = 64 * 1024
#: An outbox up to this size is joined and sent in one call; for more, copying costs more than it saves.
_JOINED_BYTES = 1024 * 1024
#: Limit on pieces in one system call. Linux: IOV_MAX.
_MOST_PIECES = 1024
#: In place of a mask: the loop does not watch the connection. With any mask it would tell of the hang-up in each tick.
_NOT_WATCHED = 1 << 16
#: Linux: more follows at once, so the header is not sent in a segment of its own.
_MSG_MORE = getattr(socket, "MSG_MORE", 0)

#: Stays empty: the first number gives a peer a dictionary of its own, which those that pull nothing do without.
_NOTHING_TOLD: dict[Any, int] = {}

Piece = bytes | memoryview


class OutboxServer(Protocol):
    """State that the outboxes of a server share. Owned by the remoting-io thread, except pool_lock.

    dirty: outboxes to be flushed at the end of the tick. reading_paused: no peer is read from. outbox_high_bytes: no
    answers are built for a peer with more bytes than this to take. pool_lock: guards the counts of pools at
    connections.
    """

    loop: EventLoop
    dirty: list[Outbox]
    reading_paused: bool
    outbox_high_bytes: int
    pool_lock: Lock

    def account_outbox(self, conn: Outbox, change: int) -> None:
        """Add `change` to the bytes in the outboxes of all peers."""

    def go_on_soon(self, conn: Outbox) -> None:
        """Call `go_on` when it is this peer's turn."""


class Outbox(PeerState):
    """Answers and other frames to be sent to one peer.

    full: no answers are built for now. halted: no frames of the peer are dispatched for now, for any reason.
    last_active: monotonic, when bytes last moved. listening_since: monotonic, since when the peer is read from.
    connected_at: monotonic.
    """

    __slots__ = (
        "_held",
        "_socket",
        "_waiting",
    )

    def __init__(self, server: OutboxServer, sock: socket.SocketType, born_host: bytes) -> None:
        self._server = server
        self._socket: socket.SocketType | None = sock
        self.fd = sock.fileno()
        self.born_host = born_host
        self.closed = False
        self.closing = False  # stop reading; close once the outbox is empty
        self.full = False
        self.grants = None
        self.halted = False
        self.dirty = False
        self.told = _NOTHING_TOLD
        self.reading = None
        self.last_active = self.listening_since = self.connected_at = server.loop.monotonic
        self._held: memoryview | None = None  # frames that were received and must not be dispatched yet
        self._hung_up = False  # the peer takes no answers any longer; its one-way requests still count
        self._held_back = False  # nothing is dispatched or read until `let_go`: back-pressure, or a rest
        self._out: list[Piece] | None = None  # ten thousand peers with a waiting pull have nothing to be sent
        self._out_bytes = 0
        self._in_socket = -1  # bytes in the socket's send buffer at the last look
        self._accounted = 0  # bytes of _out_bytes included in the server's sum
        self._mask = READABLE
        self._settled = True  # watched for reading only, nothing accounted, not halted
        # Functions that build answers, in order, when there is room.
        self._waiting: deque[Callable[[], None]] | None = None
        self._going_on = False
        self._in_pool = False  # one of those was returned to its pool and is being built
        # Guarded by the server's pool_lock.
        self._posted = 0  # bytes of answers built by pools that have not reached the I/O thread yet
        self._pool_waits = 0  # jobs of pools that found no room
        self._in_pools_bytes = 0

    @property
    def _sock(self) -> socket.SocketType:
        """The socket, made anew if only its descriptor is held. Each read and send looks at `_socket` first, which
        costs no call."""
        sock = self._socket
        if sock is None:  # whatever its family is: only addresses depend on that
            sock = self._socket = socket.SocketType(socket.AF_INET, socket.SOCK_STREAM, 0, self.fd)
            sock.setblocking(False)
        return sock

    def keep_descriptor(self) -> None:
        """Hold the descriptor without its socket, until something needs one: compiled reads and sends do not, and ten
        thousand connections with a waiting pull hold nothing larger beside the connection and the pull."""
        sock, self._socket = self._sock, None
        sock.detach()

    # --- queueing

    def send(self, data: Piece) -> None:
        """Queue a small frame; it leaves at the end of this tick."""
        if self.closed:
            return
        if self._out is None:
            self._out = [data]
        else:
            self._out.append(data)
        self._out_bytes += len(data)
        if not self.dirty:
            self.dirty = True
            self._server.dirty.append(self)

    def send_parts(self, parts: list[Piece], size: int) -> None:
        """Queue one frame of any size, in pieces. They must not change until they are sent."""
        if self.closed:
            return
        if self._out is None:
            self._out = [*parts]
        else:
            self._out += parts
        self._out_bytes += size
        if self._out_bytes > _SMALL_BYTES:
            self._account(self._out_bytes)
            self._look_for_room()
        if not self.dirty:
            self.dirty = True
            self._server.dirty.append(self)

    def send_now(self, parts: list[Piece], size: int) -> None:
        """Send one frame from buffers that will be reused; bytes that the socket does not take at once are copied."""
        if self.closed:
            return
        sent = 0
        if not self._out:
            self.last_active = self._server.loop.monotonic
            try:
                sent = (self._socket or self._sock).sendmsg(parts)
            except (BlockingIOError, ConnectionError):  # `flush` handles a peer that has hung up
                pass
            except OSError as error:
                if error.errno != errno.EMSGSIZE:  # more pieces than the system takes in one call
                    self._close()
                    return
            if sent == size:
                return
        rest = b"".join(_behind(parts, sent))
        self.send_parts([rest], len(rest))

    def send_file(self, head: bytes, fd: int, position: int, count: int) -> bool:
        """Send one frame with sendfile, its body straight from the page cache. Return False, with nothing sent, if the
        connection is closed or other frames wait.

        Bytes that the socket does not take at once are read and queued. If the file has fewer bytes than the frame's
        length says, the connection is closed, since the peer is in the middle of a frame.
        """
        if self.closed or self._out:
            return False
        self.last_active = self._server.loop.monotonic
        sent = -len(head)
        try:
            sent += (self._socket or self._sock).send(head, _MSG_MORE)
            if sent == 0:
                sent = os.sendfile(self.fd, fd, position, count)
        except (BlockingIOError, ConnectionError):  # as in `send_now`
            pass
        except Exception:
            self.fail()
            return True
        if sent < count:
            self.send_rest_of_file(head, sent, fd, position, count)
        return True

    def send_rest_of_file(self, head: bytes, sent: int, fd: int, position: int, count: int) -> None:
        """Read and queue the bytes that the socket did not take at once. sent: bytes of the body that were sent;
        negative if part of the head is left, too."""
        done = max(sent, 0)
        try:
            rest = os.pread(fd, count - done, position + done)
        except Exception:
            self.fail()
            return
        if len(rest) != count - done:
            got = len(rest) + done
            logger.error("connection: closing, read %d of %d bytes of the log for=%s", got, count, self.remote_host)
            self._close()
            return
        self.send_parts([head[sent:], rest] if sent < 0 else [rest], len(rest) - min(sent, 0))

    # --- sending

    def flush(self) -> None:
        """Send the bytes in the outbox, as far as the socket takes them."""
        self.dirty = False
        out = self._out
        if self.closed:
            return
        if self._hung_up:
            out, self._out, self._out_bytes = None, None, 0
        left = 0
        if out:
            try:
                if self._out_bytes <= _JOINED_BYTES:
                    data = out[0] if len(out) == 1 else b"".join(out)
                    sent = (self._socket or self._sock).send(data)
                    left = len(data) - sent
                    self._out = [memoryview(data)[sent:]] if left else None
                else:
                    sent = (self._socket or self._sock).sendmsg(out[:_MOST_PIECES])
                    left = self._out_bytes - sent
                    self._out = _behind(out, sent) or None
                self.last_active = self._server.loop.monotonic
            except BlockingIOError:  # the peer took nothing, so `last_active` stays
                left = self._out_bytes
            except ConnectionError:
                self._hang_up()
                return
            except OSError:
                self._close()
                return
            self._out_bytes = left
            if self.closing and not left:
                self._close()
                return
        if left or not self._settled:
            self._settle()

    def _hang_up(self) -> None:
        """Handle what the peer sent one-way before it hung up, then close. A client that stops commits its offsets so.
        It waits for nothing but a paused port, and for back-pressure at a one-way send."""
        if self._hung_up or self.closing or self._server.reading_paused:
            if not self._going_on:
                self._close()
            return
        self._hung_up, self._held_back = True, False
        self._out, self._out_bytes = None, 0
        self._settle()

    def took(self, sent: int) -> None:
        """Handle a flush of which the socket took only `sent` bytes."""
        self.dirty = False
        self._out = _behind(self._out or [], sent) or None
        self._out_bytes -= sent
        self.last_active = self._server.loop.monotonic
        self._settle()

    def _settle(self) -> None:
        """Act on a changed size of the outbox, or another change of state."""
        if self._out_bytes > OUTBOX_LIMIT_BYTES:
            logger.warning("connection: closing, it has not taken %d bytes to=%s", self._out_bytes, self.remote_host)
            self._close()
            return
        if self._out_bytes != self._accounted:
            self._account(self._out_bytes)
        self._look_for_room()
        if not self.halted and not self._going_on and self._has_more():
            self._going_on = True
            self._server.go_on_soon(self)
        mask = WRITABLE if self._out else 0
        if not (self.halted or self._going_on or self._held is not None or self._paused):
            mask |= READABLE
        if self._hung_up and (self._held_back or self._paused):
            mask = _NOT_WATCHED
        if mask != self._mask:
            self._watch(mask)
        self._settled = mask == READABLE and not self._accounted

    def _watch(self, mask: int) -> None:
        before, self._mask = self._mask, mask
        loop = self._server.loop
        if mask & READABLE and not before & READABLE:
            # The peer was not read from for a while, so its silence counts from now.
            self.last_active = self.listening_since = loop.monotonic
        if mask == _NOT_WATCHED:
            loop.unwatch(self.fd)
        elif before == _NOT_WATCHED:
            loop.watch(self.fd, mask, self)
        else:
            loop.rewatch(self.fd, mask)

    def _account(self, size: int) -> None:
        change = size - self._accounted
        self._accounted = size
        self._settled = False
        self._server.account_outbox(self, change)

    def _look_for_room(self) -> None:
        high = self._server.outbox_high_bytes
        self.full = self._out_bytes > (high >> 1 if self.full else high) and not self.closed
        self.halted = self.full or self._held_back or self.closing or self.closed
        if self.halted:
            self._settled = False

    @property
    def remote_host(self) -> str:
        """ "address:port", for logs."""
        return join_host_port(*decode_host(self.born_host))

    @property
    def unread(self) -> bool:
        """True while the peer is not read from, so that its silence means nothing."""
        return self.halted or self._held is not None or self._paused

    @property
    def _paused(self) -> bool:
        """True while no peer of this port is read from."""
        return self._server.reading_paused

    def look_at_progress(self) -> None:
        """Note if the peer has taken something: epoll reports it only when a third of the send buffer is free."""
        left = array("i", [0])
        try:
            fcntl.ioctl(self._sock, termios.TIOCOUTQ, left)
        except OSError:
            return
        if left[0] != self._in_socket:
            self._in_socket = left[0]
            self.last_active = self._server.loop.monotonic

    @property
    def outbox_bytes(self) -> int:
        """Bytes that the peer has not taken yet."""
        return self._out_bytes

    def update_reading(self) -> None:
        """Check again if this peer may be read from."""
        if not self.closed:
            self._settle()

    # --- answers that wait for room

    def when_room(self, build: Callable[[], None]) -> None:
        """Call `build` when the peer has taken enough of its earlier answers; at once if it has.

        `build` is also called when the connection closes; it must check `closed`.
        """
        if self.closed or not (self.full or self._waiting or self._in_pool):
            build()
            return
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(build)
        self._settled = False
        if not self.dirty:  # so that the end of this tick checks for room
            self.dirty = True
            self._server.dirty.append(self)

    @property
    def lags(self) -> bool:
        """True while answers wait until the peer has taken earlier ones."""
        with self._server.pool_lock:
            return bool(self._waiting or self._pool_waits or self._in_pool)

    def _has_more(self) -> bool:
        """True if there is something to continue with."""
        if self._in_pool:
            return False
        return bool(self._waiting) or (self._held is not None and not self._paused)

    def _build_waiting(self) -> None:
        waiting = self._waiting
        while waiting and not self.full and not self._in_pool and not self.closed:
            waiting.popleft()()

    def go_on(self) -> None:
        """Continue with answers to be built and held frames, if there are any."""
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError

    def fail(self) -> None:
        """Close after an internal error."""
        raise NotImplementedError

    def _drop_waiting(self) -> None:
        """After the connection has closed, call the waiting functions, which check `closed` and end."""
        waiting, self._waiting = self._waiting, None
        for build in waiting or ():
            try:
                build()
            except Exception:
                logger.exception("connection: an answer failed after the connection closed to=%s", self.remote_host)

    # --- from the threads of pools

    def post(self, deliver: Callable[[], None], size: int) -> None:
        """Call `deliver` on the I/O thread, with an answer of `size` bytes; these count from now on.

        If it raises, the connection is closed, since its peer would wait for the answer in vain.
        """
        with self._server.pool_lock:
            self._posted += size

        def arrived() -> None:
            with self._server.pool_lock:
                self._posted -= size
            try:
                deliver()
            except Exception:
                self.fail()

        self._server.loop.call_soon(arrived)

    def take_place(self, size: int) -> bool:
        """Count a request that goes to a pool; False if too many bytes of this connection wait in pools."""
        with self._server.pool_lock:
            if self._in_pools_bytes and self._in_pools_bytes + size > MAX_CONNECTION_WAITING_BYTES:
                return False
            self._in_pools_bytes += size
            return True

    def leave_place(self, size: int) -> None:
        """Note that a pool has finished a request of `size` bytes."""
        with self._server.pool_lock:
            self._in_pools_bytes -= size

    def must_wait(self) -> bool:
        """True if a job's answer must not be built now; the pool then calls `wait_for_room`."""
        with self._server.pool_lock:
            if self.closed:
                return False
            if self._pool_waits or self._out_bytes + self._posted > self._server.outbox_high_bytes:
                self._pool_waits += 1
                return True
            return False

    def wait_for_room(self, resume: Callable[[], None]) -> None:
        """Call `resume` when there is room; it returns the job to its pool. One job at a time."""

        def go() -> None:
            self._in_pool = not self.closed
            resume()

        self._server.loop.call_soon(lambda: self.when_room(go))

    def resumed(self) -> None:
        """Note that the job which had to wait is done."""
        with self._server.pool_lock:
            self._pool_waits -= 1

        def done() -> None:
            self._in_pool = False
            self.update_reading()

        self._server.loop.call_soon(done)


def _behind(parts: list[Piece], sent: int) -> list[Piece]:
    """Return the rest of `parts` behind its first `sent` bytes."""
    for index, part in enumerate(parts):
        if sent < len(part):
            rest = parts[index:]
            if sent:
                rest[0] = memoryview(part)[sent:]
            return rest
        sent -= len(part)
    return []
