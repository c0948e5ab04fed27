"""One peer: its socket, and the receiving half of the connection. The sending half is in `outbox.py`.

All connections read into the loop's one receive buffer. Whole frames are dispatched from there, uncopied; the rest, a
partial frame, is kept in one of two ways:

    up to 64 KiB    copied aside, and back to the front of the shared buffer at the next read
    longer          a buffer of the frame's own size, into which the socket is read until the frame is whole

Frames are dispatched in their order. While the peer's outbox is full, or back-pressure stops its sends, the frames
behind are kept as received bytes and nothing is read from the peer (`halted`).

A read may hold thousands of small requests, and each may take a twentieth of a millisecond. So a connection has turns:
when frames that Python handles have taken TURN_S, those behind them are held, too, until the other connections that
wait for a turn have had theirs (`server.go_on_soon`). Sends and pulls that the compiled twin takes cost a twentieth of
that; they are bounded by the size of a read.

Everything here belongs to the remoting-io thread except `respond`, `answer`, `send_command` and `close`, which any
thread may call.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import FrameError
from ..protocol.codes import ResponseCode
from ..protocol.command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    MAX_FRAME_BYTES,
    RemotingCommand,
    encode_command,
)
from .event_loop import READABLE, WRITABLE
from .outbox import Outbox, OutboxServer

if TYPE_CHECKING:
    from .dispatcher import Dispatcher

logger = logging.getLogger(__name__)

#: A partial frame longer than this gets its own buffer instead of being moved to the shared one.
_OWN_BUFFER_BYTES = 64 * 1024
#: That buffer has at most this size until as many bytes of the frame have arrived, and then the frame's size:
#: allocating 16 MiB takes the I/O thread 1 to 15 ms, which no peer may cause by sending eight bytes.
_TRUSTED_BYTES = 128 * 1024

#: Time that a connection's frames may use the I/O thread before those of others get a turn; one more frame may follow.
TURN_S = 0.0005
#: After this long in a tick, a turn is one frame: hundreds of connections may have something to read at once.
LONG_TICK_S = 0.002

#: Shared by all peers that have not authenticated: `frozenset()` makes a new one of 216 bytes.
_NOBODY: frozenset[str] = frozenset()

_PREFIX = struct.Struct(">iI")
_LENGTH = struct.Struct(">i")
#: The first four bytes of a PROXY header, of version 1 and 2.
_PROXY_HEADERS = (0x50524F58, 0x0D0A0D0A)


def _bad_length(length: int) -> FrameError:
    hint = ": a PROXY header, but proxyProtocolFrom does not name this address" if length in _PROXY_HEADERS else ""
    return FrameError(f"frame length {length}{hint}")


class ConnectionServer(OutboxServer, Protocol):
    """State that the connections of a server share. Owned by the remoting-io thread.

    producers_held: back-pressure is on. held_back: connection that waits for its end -> since when. read_bytes: limit
    on one read, 0 for as many bytes as fit. on_answer: takes an answer to a request of this server.
    """

    producers_held: bool
    held_back: dict[Connection, float]
    read_bytes: int
    on_answer: Callable[[Connection, RemotingCommand], None]

    def account_partial(self, conn: Connection, change: int) -> None:
        """Add `change` to the bytes of all peers' partial frames."""

    def forget(self, conn: Connection) -> None:
        """Remove a connection that closes."""


class Connection(Outbox):
    """One accepted connection.

    born_host: the peer's address and port in the form of records, 8 or 20 bytes. client_id, language, version: from the
    last heartbeat. parked: the newest of this peer's held pulls, by which the others are found; of remoting-io.
    parked_count: their number; counted on remoting-io, read by any thread.
    """

    _server: ConnectionServer
    __slots__ = (
        "certified",
        "challenge",
        "channel",
        "client_id",
        "dispatcher",
        "language",
        "parked",
        "principals",
        "session_key",
        "version",
    )

    #: True if it comes through a balancer: then it never counts as this machine's.
    relayed = False

    def __init__(
        self, server: ConnectionServer, sock: socket.SocketType, dispatcher: Dispatcher, born_host: bytes
    ) -> None:
        super().__init__(server, sock, born_host)
        self.dispatcher = dispatcher
        self.client_id: str | None = None
        self.language = "JAVA"
        self.version = 0
        #: The users that the peer has authenticated as, for the gates of the dispatcher.
        self.principals = _NOBODY
        #: The name in the certificate that the peer showed, and the door checked; empty without one.
        self.certified = ""
        #: Digest of the certificate that this side showed; empty without TLS.
        self.channel = b""
        #: The nonce that a member of the set has to answer, and the key that it shares with this broker once it has
        #: proved itself; empty for all other peers.
        self.challenge = ""
        self.session_key = b""
        self.parked: Any = None
        self.parked_count = 0
        #: Index of the server's list of partial frames that contains this; set by the server.
        self.partial_magnitude = 0
        self._partial: bytearray | None = None
        self._filled = 0

    def __repr__(self) -> str:
        return f"<Connection {self.remote_host} client_id={self.client_id}>"

    @property
    def _paused(self) -> bool:
        return self._server.reading_paused or self.dispatcher.paused

    # --- any thread

    def respond(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Send the answer to `request`, unless it was one-way."""
        if request.witness is not None:
            request.witness.answered(request, response)
        if not request.flag & FLAG_ONEWAY:
            self.answer(request.opaque, response)

    def answer(self, opaque: int, response: RemotingCommand) -> None:
        """Send a response; its opaque and the response bit are set here."""
        response.opaque = opaque
        response.flag |= FLAG_RESPONSE
        try:
            frame = encode_command(response)
        except Exception as error:  # whatever the response holds, the peer gets one
            logger.error("connection: an answer could not be encoded to=%s: %s", self.remote_host, error)
            reason = f"the answer is too large: {error}" if isinstance(error, FrameError) else "it cannot be encoded"
            refusal = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, reason)
            refusal.opaque = opaque
            frame = encode_command(refusal)
        self._send_from_anywhere(frame)

    def send_command(self, command: RemotingCommand) -> None:
        """Send a request to the peer."""
        self._send_from_anywhere(encode_command(command))

    def _send_from_anywhere(self, frame: bytes) -> None:
        size = len(frame)
        if self._server.loop.on_loop_thread():
            self.send_parts([frame], size)
        else:
            self.post(lambda: self.send_parts([frame], size), size)

    def close(self) -> None:
        """Close now, dropping everything that was not sent."""
        if self._server.loop.on_loop_thread():
            self._close()
        else:
            self._server.loop.call_soon(self._close)

    # --- the remoting-io thread

    def handle_event(self, mask: int) -> None:
        try:
            if mask & READABLE and self._mask & READABLE and not self.halted:
                self._read()
            elif mask & ~(READABLE | WRITABLE):  # an error or hang-up, and no read is due
                self._hang_up()
                return
            if mask & WRITABLE and not self.closed:
                self.flush()
        except FrameError as error:
            self._refuse(error)
        except Exception:
            self.fail()

    def fail(self) -> None:
        """Close after an internal error amid this peer's frames: where the next one begins is unknown."""
        logger.exception("connection: closing after an internal error from=%s", self.remote_host)
        self._close()

    def _read(self) -> None:
        loop = self._server.loop
        view = loop.receive_view
        kept = 0
        partial = self._partial
        if partial is not None:
            if len(partial) > _OWN_BUFFER_BYTES:
                self._read_own_buffer(partial)
                return
            kept = len(partial)
            view[:kept] = partial
        try:
            received = (self._socket or self._sock).recv_into(view[kept:] if kept else view, self._server.read_bytes)
        except BlockingIOError:
            return
        except OSError:
            self._close()
            return
        if not received:
            self._close()
            return
        self.last_active = loop.monotonic
        self._received(0, kept + received)

    def received(self, consumed: int, end: int) -> None:
        """Take this peer's bytes in the loop's buffer, up to `end`; those before `consumed` are handled already."""
        try:
            self._received(consumed, end)
        except FrameError as error:
            self._refuse(error)
        except Exception:
            self.fail()

    def _received(self, consumed: int, end: int) -> None:
        view = self._server.loop.receive_view
        consumed = self._consume(view, end, consumed)
        if self.closed or (consumed == end and self._partial is None):
            return
        if not self.halted or self.closing:
            self._keep(view, consumed, end)
        else:
            self._drop_partial()
            if consumed < end:
                self._hold(memoryview(bytes(view[consumed:end])))

    def _consume(self, view: memoryview, end: int, position: int = 0) -> int:
        """Dispatch the whole frames from `view[position]` on. Return the position of the first partial one, or of the
        one where it halted, such as at the end of this turn.

        A length that no frame can have is refused as soon as it has arrived, before the rest. While back-pressure stops
        producers, this halts at the first send, even at the beginning of one. Everything behind that send waits with
        it, even heartbeats and pulls: frames of one connection keep their order, and how many of them are sends is
        unknown.
        """
        dispatch = self.dispatcher.dispatch_one_way if self._hung_up else self.dispatcher.dispatch
        now = self._server.loop.clock.monotonic
        turn_ends = 0.0
        producers_held = self._server.producers_held
        runner = None if producers_held or self._hung_up else self.dispatcher.runner
        while end - position >= 8:
            if runner is not None:
                position = runner.run(self, view, position, end)
                if end - position < 8 or self.halted:
                    break
            length, meta = _PREFIX.unpack_from(view, position)
            if length > MAX_FRAME_BYTES - 4 or length < 4:
                raise _bad_length(length)
            stop = position + 4 + length
            if (
                producers_held
                and self.dispatcher.is_send(view, position + 8, min(stop, end), meta, whole=stop <= end)
                and not (self._hung_up and stop <= end and self.dispatcher.wants_answer(view, position + 8, stop, meta))
            ):
                self._held_back = self.halted = True
                self._server.held_back[self] = self._server.loop.monotonic
                return position
            if stop > end:
                break
            if not turn_ends:
                turn_ends = now()
                if turn_ends - self._server.loop.monotonic < LONG_TICK_S:
                    turn_ends += TURN_S
            dispatch(self, view, position + 8, stop, meta)
            position = stop
            if not self.halted and position < end and now() >= turn_ends:
                self.halted = True  # until the rest is held
            if self.halted:
                return position
        if 4 <= end - position < 8:
            (length,) = _LENGTH.unpack_from(view, position)
            if length > MAX_FRAME_BYTES - 4 or length < 4:
                raise _bad_length(length)
        return position

    def _keep(self, view: memoryview, consumed: int, end: int) -> None:
        """Keep a partial frame. A long one gets a buffer of its own size, so that its bytes are copied at most
        twice."""
        before = 0 if self._partial is None else len(self._partial)
        rest = end - consumed
        if not rest or self.closing:
            self._partial = None
        else:
            total = 4 + int.from_bytes(view[consumed : consumed + 4], "big") if rest >= 4 else 0
            if total > _OWN_BUFFER_BYTES:
                own = bytearray(total if rest >= _TRUSTED_BYTES else min(total, _TRUSTED_BYTES))
                own[:rest] = view[consumed:end]
                self._partial = own
                self._filled = rest
            else:
                self._partial = bytearray(view[consumed:end])
        after = 0 if self._partial is None else len(self._partial)
        if after != before:
            self._server.account_partial(self, after - before)

    def _read_own_buffer(self, partial: bytearray) -> None:
        """Fill a long frame's own buffer; dispatch it when it is whole."""
        view = memoryview(partial)
        try:
            received = (self._socket or self._sock).recv_into(view[self._filled :])
        except BlockingIOError:
            return
        except OSError:
            self._close()
            return
        if not received:
            self._close()
            return
        self.last_active = self._server.loop.monotonic
        self._filled += received
        if self._filled < len(partial):
            return
        total = 4 + int.from_bytes(view[:4], "big")
        if self._filled < total:
            self._partial = own = bytearray(total)
            own[: self._filled] = view
            self._server.account_partial(self, total - len(partial))
            return
        self._drop_partial()
        if not self._consume(view, len(partial)) and not self.closed:
            self._hold(view)

    # --- received, but not to be dispatched yet

    def _hold(self, view: memoryview) -> None:
        """Keep frames until the peer has taken its answers, back-pressure ends, or its next turn comes; meanwhile
        nothing is read."""
        self._held = view
        self._server.account_partial(self, view.nbytes)
        if not self.closed:
            self._settle()

    def go_on(self) -> None:
        """Build the answers that wait, then dispatch the held frames, because there may be room again, or it is this
        peer's turn."""
        self._going_on = False
        if self.closed:
            return
        try:
            self._build_waiting()
            if not self.halted and not self._waiting and self._has_more():
                self._dispatch_held()
        except FrameError as error:
            self._refuse(error)
        except Exception:
            self.fail()
        if not self.closed:
            self._settle()

    def _dispatch_held(self) -> None:
        held = self._held
        if held is None:
            return
        self._held = None
        end = held.nbytes
        try:
            consumed = self._consume(held, end)
        finally:
            self._server.account_partial(self, -end)
        if self.closed or consumed == end:
            return
        if not self.halted or self.closing:
            self._keep(held, consumed, end)
        else:
            self._hold(held[consumed:])

    def let_go(self) -> None:
        """Continue after the end of back-pressure or of a rest."""
        if self.closed:
            return
        self._held_back = False
        self._settle()

    def rest(self, seconds: float) -> None:
        """Neither dispatch nor read from this peer for some seconds, because its requests cost others too much."""
        if self.wait():
            self._server.loop.call_later(seconds, self.let_go)

    def wait(self) -> bool:
        """Neither dispatch nor read from this peer until `let_go`; False if it waits already, or is closed."""
        if self._held_back or self.closed:
            return False
        self._held_back = True
        self._settle()  # now: no event may follow, and data that arrives would wake the loop in vain
        return True

    @property
    def partial_bytes(self) -> int:
        """Bytes of frames that have not been dispatched."""
        return (0 if self._partial is None else len(self._partial)) + (0 if self._held is None else self._held.nbytes)

    def _refuse(self, error: FrameError) -> None:
        """Send the reason, then close, since bytes behind a bad frame cannot be read."""
        self.dispatcher.tell("connection: refused from=%s: %s", self.remote_host, error)
        self._drop_partial()
        self.closing = self.halted = True
        self.send(encode_command(RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"bad frame: {error}")))

    def close_after_flush(self) -> None:
        """Stop reading, and close when all answers so far have been sent."""
        if self.closed:
            return
        self.closing = self.halted = True
        if self._out:
            self._settle()
        else:
            self._close()

    def on_response(self, response: RemotingCommand) -> None:
        """Take the answer to a request that `send_command` sent."""
        self._server.on_answer(self, response)

    def _drop_partial(self) -> None:
        size = self.partial_bytes
        if size:
            self._partial = self._held = None
            self._server.account_partial(self, -size)

    def _close(self) -> None:
        if self.closed:
            return
        self.closed = self.halted = True
        self.full = False  # answers that wait for room are built, see `closed`, and end
        self._drop_partial()
        self._out = None
        self._out_bytes = 0
        self._account(0)
        try:
            self._server.forget(self)
        finally:
            self._sock.close()
        self._drop_waiting()


class RelayedConnection(Connection):
    """A connection through a balancer. born_host: as the balancer's PROXY header tells it, else the balancer's own."""

    __slots__ = ()
    relayed = True
