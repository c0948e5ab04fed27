"""One peer: its socket, the partial frame it has sent, what is waiting to be sent to it.

Everything here belongs to the remoting-io thread but `respond`, `send_command` and `close`, which any thread may call.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
from typing import TYPE_CHECKING, Any

from ..errors import FrameError
from ..protocol.codes import ResponseCode
from ..protocol.command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    RemotingCommand,
    encode_command,
)
from ..protocol.message_id import decode_host
from .event_loop import READABLE, WRITABLE

if TYPE_CHECKING:
    from .dispatcher import Dispatcher
    from .server import RemotingServer

logger = logging.getLogger(__name__)

#: A peer whose outbox is longer is not read from until it has taken what it asked for.
OUTBOX_HIGH_BYTES = 4 * 1024 * 1024
#: A partial frame longer than this gets a buffer of its own instead of being moved to the shared one.
_OWN_BUFFER_BYTES = 64 * 1024

_PREFIX = struct.Struct(">iI")
_LENGTH = struct.Struct(">i")
#: Linux: more follows at once, so the header does not leave in a segment of its own.
_MSG_MORE = getattr(socket, "MSG_MORE", 0)


class Connection:
    """One accepted connection.

    born_host: the peer's address and port as records hold them, 8 or 20 bytes. client_id, language, version: as the
    last heartbeat said. parked: head of the list of this peer's pulls that are being held.
    """

    __slots__ = (
        "_filled",
        "_mask",
        "_out",
        "_out_bytes",
        "_partial",
        "_server",
        "_sock",
        "born_host",
        "client_id",
        "closed",
        "closing",
        "dirty",
        "dispatcher",
        "fd",
        "language",
        "last_active",
        "max_header_bytes",
        "parked",
        "version",
    )

    def __init__(self, server: RemotingServer, sock: socket.socket, dispatcher: Dispatcher, born_host: bytes) -> None:
        self._server = server
        self._sock = sock
        self.fd = sock.fileno()
        self.dispatcher = dispatcher
        self.born_host = born_host
        self.client_id: str | None = None
        self.language = "JAVA"
        self.version = 0
        self.closed = False
        self.closing = False  # no more reading; close once the outbox is empty
        self.parked: Any = None
        self.last_active = server.loop.monotonic
        self.max_header_bytes = MAX_HEADER_BYTES
        self._partial: bytearray | None = None
        self._filled = 0
        self._out: list[Any] = []
        self._out_bytes = 0
        self.dirty = False
        self._mask = READABLE

    @property
    def remote_host(self) -> str:
        """ "address:port" as messages name it."""
        host, port = decode_host(self.born_host)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def __repr__(self) -> str:
        return f"<Connection {self.remote_host} client_id={self.client_id}>"

    # --- any thread

    def respond(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Answer `request`; nothing is sent when it was one-way."""
        if not request.flag & FLAG_ONEWAY:
            self.answer(request.opaque, response)

    def answer(self, opaque: int, response: RemotingCommand) -> None:
        """Send a response; its opaque and the response bit are set here."""
        response.opaque = opaque
        response.flag |= FLAG_RESPONSE
        try:
            frame = encode_command(response)
        except FrameError as error:
            logger.error("connection: answer cannot be sent to=%s: %s", self.remote_host, error)
            refusal = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"the answer is too large: {error}")
            refusal.opaque = opaque
            frame = encode_command(refusal)
        self._send_from_anywhere(frame)

    def send_command(self, command: RemotingCommand) -> None:
        """Send a request of ours to the peer."""
        self._send_from_anywhere(encode_command(command))

    def _send_from_anywhere(self, frame: bytes) -> None:
        if self._server.loop.on_loop_thread():
            self.send(frame)
        else:
            self._server.loop.call_soon(lambda: self.send(frame))

    def close(self) -> None:
        """Close now; what was not sent is dropped."""
        if self._server.loop.on_loop_thread():
            self._close()
        else:
            self._server.loop.call_soon(self._close)

    # --- the remoting-io thread

    def send(self, data: bytes | memoryview) -> None:
        """Queue a frame; it leaves at the end of this tick."""
        if self.closed:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if not self.dirty:
            self.dirty = True
            self._server.dirty.append(self)

    def send_parts(self, parts: list[bytes | memoryview], size: int) -> None:
        """Queue one frame in pieces; buffers must not change until they are sent."""
        if self.closed:
            return
        self._out += parts
        self._out_bytes += size
        if not self.dirty:
            self.dirty = True
            self._server.dirty.append(self)

    def send_now(self, parts: list[bytes | memoryview], size: int) -> None:
        """Send one frame from buffers that will be reused: what the socket does not take at once is copied."""
        if self.closed:
            return
        sent = 0
        if not self._out:
            self.last_active = self._server.loop.monotonic
            try:
                sent = self._sock.sendmsg(parts)
            except BlockingIOError:
                pass
            except OSError:
                self._close()
                return
            if sent == size:
                return
        self.send(memoryview(b"".join(parts))[sent:])

    def send_file(self, head: bytes, fd: int, position: int, count: int) -> bool:
        """Send one frame, its body straight from a file whose bytes are in the page cache; False when it was not begun.

        What the socket does not take at once is read and queued.
        """
        if self.closed or self._out:
            return False
        self.last_active = self._server.loop.monotonic
        sent = -len(head)
        try:
            sent += self._sock.send(head, _MSG_MORE)
            if sent == 0:
                sent = os.sendfile(self.fd, fd, position, count)
        except BlockingIOError:
            pass
        except OSError:
            self._close()
            return True
        if sent < count:
            rest = os.pread(fd, count - max(sent, 0), position + max(sent, 0))
            self.send_parts([head[sent:], rest] if sent < 0 else [rest], len(rest) - min(sent, 0))
        return True

    def flush(self) -> None:
        """Send what the outbox holds, as far as the socket takes it."""
        self.dirty = False
        out = self._out
        if not out or self.closed:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close()
            return
        left = len(data) - sent
        if left:
            out.append(memoryview(data)[sent:])
        elif self.closing:
            self._close()
            return
        self._out_bytes = left
        server = self._server
        self.last_active = server.loop.monotonic
        if left or self._mask != READABLE or server.reading_paused:
            self._update_mask()

    def _update_mask(self) -> None:
        mask = WRITABLE if self._out else 0
        if not (self.closing or self._out_bytes > OUTBOX_HIGH_BYTES or self._server.reading_paused):
            mask |= READABLE
        if mask != self._mask:
            self._mask = mask
            self._server.loop.rewatch(self.fd, mask)

    def update_reading(self) -> None:
        """Look again whether this peer may be read from."""
        if not self.closed:
            self._update_mask()

    def on_event(self, mask: int) -> None:
        if mask & READABLE:
            self._read()
        elif mask & ~WRITABLE:  # error or hang-up with nothing to read
            self._close()
            return
        if mask & WRITABLE and not self.closed:
            self.flush()

    def _read(self) -> None:
        loop = self._server.loop
        view = loop.receive_view
        kept = 0
        partial = self._partial
        try:
            if partial is None:
                received = self._sock.recv_into(view)
            elif len(partial) > _OWN_BUFFER_BYTES:
                self._read_own_buffer(partial)
                return
            else:
                kept = len(partial)
                view[:kept] = partial
                received = self._sock.recv_into(view[kept:])
        except BlockingIOError:
            return
        except OSError:
            self._close()
            return
        if not received:
            self._close()
            return
        self.last_active = loop.monotonic
        end = kept + received
        try:
            consumed = self._consume(view, end)
        except FrameError as error:
            self._refuse(error)
            return
        if self.closed or (consumed == end and partial is None):
            return
        self._keep(view, consumed, end)

    def _consume(self, view: memoryview, end: int) -> int:
        """Dispatch every whole frame of `view[:end]`; return where the first partial one begins.

        A length that no frame has is refused as soon as it can be read, before the rest arrives.
        """
        dispatch = self.dispatcher.dispatch
        position = 0
        while end - position >= 8:
            length, meta = _PREFIX.unpack_from(view, position)
            if length > MAX_FRAME_BYTES - 4 or length < 4:
                raise FrameError(f"frame length {length}")
            stop = position + 4 + length
            if stop > end:
                break
            dispatch(self, view, position + 8, stop, meta)
            position = stop
            if self.closed or self.closing:
                return position
        if 4 <= end - position < 8:
            (length,) = _LENGTH.unpack_from(view, position)
            if length > MAX_FRAME_BYTES - 4 or length < 4:
                raise FrameError(f"frame length {length}")
        return position

    def _keep(self, view: memoryview, consumed: int, end: int) -> None:
        """Keep a partial frame; a long one in a buffer of its own size, so that its bytes move once."""
        before = 0 if self._partial is None else len(self._partial)
        rest = end - consumed
        if not rest or self.closing:
            self._partial = None
        else:
            total = 4 + int.from_bytes(view[consumed : consumed + 4], "big") if rest >= 4 else 0
            if total > _OWN_BUFFER_BYTES:
                own = bytearray(total)
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
        received = self._sock.recv_into(view[self._filled :])
        if not received:
            self._close()
            return
        self.last_active = self._server.loop.monotonic
        self._filled += received
        if self._filled < len(partial):
            return
        self._partial = None
        self._server.account_partial(self, -len(partial))
        try:
            self._consume(view, len(partial))
        except FrameError as error:
            self._refuse(error)

    @property
    def partial_bytes(self) -> int:
        return 0 if self._partial is None else len(self._partial)

    def _refuse(self, error: FrameError) -> None:
        """Say why, then close: a peer that sends no frames is not listened to any more."""
        logger.info("connection: refused from=%s: %s", self.remote_host, error)
        self._drop_partial()
        self.closing = True
        self.send(encode_command(RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"bad frame: {error}")))

    def close_after_flush(self) -> None:
        """Read no more; close once everything answered so far was sent."""
        if self.closed:
            return
        self.closing = True
        if self._out:
            self._update_mask()
        else:
            self._close()

    def on_response(self, response: RemotingCommand) -> None:
        """An answer to a request of ours."""
        self._server.on_answer(self, response)

    def _drop_partial(self) -> None:
        if self._partial is not None:
            size = len(self._partial)
            self._partial = None
            self._server.account_partial(self, -size)

    def _close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._drop_partial()
        self._out.clear()
        self._server.forget(self)
        self._sock.close()
