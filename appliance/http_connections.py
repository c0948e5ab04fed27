"""Connections of the console: bounds of their number and duration, and the way they are closed.

gunicorn's protocol parses and answers; this one adds bounds that gunicorn has no settings for. A header must be
complete within `HEAD_TIMEOUT_S`. When there are too many connections, those without a complete request are closed
first, the longest silent one first, so that a crowd that only connects does not keep others out. Next are those that do
not take their answer. Streams (the live feed) are answers like others, and last as long as the browser reads them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import socket
from collections import Counter
from itertools import chain
from typing import Any, Protocol

from gunicorn.asgi.protocol import ASGIProtocol

from . import runtime

logger = logging.getLogger(__name__)

# Connections of all peers. A browser opens six, and one more for each live page.
CONNECTIONS = 512
# The console may use one of this many of the process's descriptors: the store needs the others.
DESCRIPTOR_SHARE = 8
# Connections of one address, when there is no proxy.
CONNECTIONS_EACH = 128
# When all connections are being answered, an address with more than 1 / CROWD_SHARE of CONNECTIONS_EACH loses its
# oldest one to a newcomer from another address, so that a few busy addresses do not shut others out.
CROWD_SHARE = 8
# Longest time from the first byte of a request to the end of its header.
HEAD_TIMEOUT_S = 10.0
# A request's whole header. gunicorn bounds its lines (`http_server`).
HEAD_BYTES = 64 * 1024
# An answer of which the peer takes less than 48 KiB in this time is given up.
STALL_S = 30.0
# After an answer to a request that was not read to its end, its rest is read and dropped, for this long and up to this
# many bytes: if a connection is closed with unread bytes the peer gets a reset, and may lose the answer.
LINGER_S = 2.0
LINGER_BYTES = 1024 * 1024
# Bytes that the kernel holds for the peer of a WebSocket.
SOCKET_SEND_BYTES = 128 * 1024

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 22\r\nRetry-After: 2\r\n"
    b"Connection: close\r\n\r\nToo many connections.\n"
)
# Most bytes that a browser may send through a WebSocket in this time, pings and empty pieces included; the console's
# pages send single words.
SOCKET_SAID_BYTES = 16 * 1024
SOCKET_SAID_S = 15.0

# The closing frames of a WebSocket: 1001, the server stops; 1008, the peer sent too much.
_GOING_AWAY = b"\x88\x02\x03\xe9"
_SAID_TOO_MUCH = b"\x88\x02\x03\xf0"


class Counted(Protocol):
    """Counts for its address: a connection, or one that still shakes hands."""

    def drop(self) -> None: ...

    def hang_up(self) -> None: ...

    def say_goodbye(self) -> None: ...


class Connections:
    """All connections. Owned by the event loop's thread."""

    def __init__(self, limit: int, each: int) -> None:
        """limit: of all peers; each: of one address."""
        self._limit = limit
        self._each = each
        # Address of each open connection.
        self._open: dict[Counted, str] = {}
        self._by_address: Counter[str] = Counter()
        # Those without a complete request, the longest silent one first.
        self._waiting: dict[Counted, None] = {}
        # Those that do not take their answer, the longest stalled one first.
        self._stalled: dict[Counted, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, one: Counted, address: str) -> bool:
        """True if a new connection may stay; another one may be closed for it."""
        if self._by_address[address] >= self._each and not self._send_away(address):
            return False
        if len(self._open) >= self._limit and not self._send_away(None) and not self._send_one_of_a_crowd_away(address):
            return False
        self._open[one] = address
        self._by_address[address] += 1
        self._waiting[one] = None
        return True

    def waits(self, one: Counted) -> None:
        """Note that a connection waits for its peer's request."""
        if one in self._open:
            self._waiting[one] = None

    def works(self, one: Counted) -> None:
        """Note that a connection has a complete request."""
        self._waiting.pop(one, None)

    def stalls(self, one: Counted) -> None:
        """Note that a connection's peer does not take its answer."""
        if one in self._open:
            self._stalled[one] = None

    def flows(self, one: Counted) -> None:
        """Note that a connection's peer takes its answer again."""
        self._stalled.pop(one, None)

    def left(self, one: Counted) -> None:
        """Forget a connection that is closed, or soon will be."""
        self._waiting.pop(one, None)
        self._stalled.pop(one, None)
        address = self._open.pop(one, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def close_waiting(self) -> None:
        """Close all connections that wait for a request; called when the server stops."""
        for one in list(self._waiting):
            one.hang_up()

    def close_sockets(self) -> None:
        """Close all WebSockets with a closing frame; called when the server stops."""
        for one in list(self._open):
            one.say_goodbye()

    def _send_away(self, address: str | None) -> bool:
        """Close the longest silent connection, or else the longest stalled one, of one address or of all. False if all
        are being answered."""
        for one in chain(self._waiting, self._stalled):
            if address is None or self._open[one] == address:
                self.left(one)
                one.drop()
                return True
        return False

    def _send_one_of_a_crowd_away(self, newcomer: str) -> bool:
        """Close the oldest connection of the address with the most, for a newcomer from an address with far fewer."""
        address, count = self._by_address.most_common(1)[0]
        if count <= max(self._each // CROWD_SHARE, self._by_address[newcomer] + 1):
            return False
        one = next(one for one, where in self._open.items() if where == address)
        self.left(one)
        one.drop()
        return True


def connections() -> Connections:
    """Return an empty set of connections, with the bounds of this process."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(CONNECTIONS, max(descriptors // DESCRIPTOR_SHARE, 16))
    # Behind a proxy all callers have the same address.
    each = limit if runtime.place().is_behind_proxy else min(CONNECTIONS_EACH, limit)
    return Connections(limit, each)


def address_of(peer: Any) -> str:
    """Return what counts as one address: an IPv4 address, or an IPv6 network of 64 bits, since one host may have all of
    it."""
    host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    if ":" not in host:
        return host
    found = ipaddress.IPv6Address(host.partition("%")[0])
    return str(found.ipv4_mapped or found.packed[:8].hex())


class BoundedProtocol(ASGIProtocol):
    """One connection; see the module."""

    def __init__(self, worker: Any, all_of_them: Connections) -> None:
        super().__init__(worker)
        self._all = all_of_them
        # Timers of the loop; None when they do not run.
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        # Bytes of a header that is not complete yet.
        self._head_bytes = 0
        # Bytes thrown away after the last answer; None before that.
        self._thrown_away: int | None = None
        # Bytes that the peer of a WebSocket has sent, and since when they are counted.
        self._said_bytes = 0
        self._said_since = 0.0
        # gunicorn refused the request, so it is unknown where the next one would begin.
        self._lost_track = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if not self._all.admit(self, address_of(transport.get_extra_info("peername"))):
            self._closed = self._conn_lost_handled = True  # gunicorn's own state was never set up
            transport.write(_FULL)
            transport.close()
            return
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.left(self)
        for timer in (self._head_timer, self._stall_timer, self._end_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    # --- receiving

    def data_received(self, data: bytes) -> None:
        if self._thrown_away is None:
            if self._websocket is not None and not self._may_say(len(data)):
                self.transport.write(_SAID_TOO_MUCH)
                self._lost_track = True
                self.hang_up()
                return
            super().data_received(data)
            return
        self._thrown_away += len(data)
        if self._thrown_away > LINGER_BYTES:
            self.transport.abort()

    def _may_say(self, count: int) -> bool:
        """True while a WebSocket's peer keeps to its bound. gunicorn answers each ping and keeps each piece."""
        now = self.worker.loop.time()
        if now - self._said_since > SOCKET_SAID_S:
            self._said_since, self._said_bytes = now, 0
        self._said_bytes += count
        return self._said_bytes <= SOCKET_SAID_BYTES

    def _feed_callback_parser(self, data: bytes) -> bool:
        """Parse received bytes; False when the connection ends."""
        try:
            going: bool = super()._feed_callback_parser(data)
        except Exception as error:  # a stranger's bytes: errors that the parser does not expect are their fault, too
            logger.debug("http: bad request error=%r", error)
            self._send_error_response(400, "Not understood")
            going = False
        if going and self._current_request is None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._send_error_response(431, "The header is too long")
                going = False
            elif self._keepalive_handle is not None:
                self._wait_for_head()
        if not going:
            self.hang_up()
        return going

    def _on_headers_complete(self) -> bool:
        self._head_bytes = 0
        self._stop_waiting_for_head()
        skip: bool = super()._on_headers_complete()
        return skip

    def _on_message_complete(self) -> None:
        super()._on_message_complete()
        self._all.works(self)

    def _wait_for_head(self) -> None:
        self._cancel_keepalive_timer()
        if self._head_timer is None:
            self._head_timer = self.worker.loop.call_later(HEAD_TIMEOUT_S, self._head_is_late)

    def _stop_waiting_for_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._head_bytes:
            self._send_error_response(408, "The request did not come in time")
        self.hang_up()

    def _arm_keepalive_timer(self) -> None:
        """Called when gunicorn has sent its answer, and nothing else has arrived yet."""
        if self._head_timer is None:
            super()._arm_keepalive_timer()
        self._all.waits(self)

    # --- sending

    def pause_writing(self) -> None:
        super().pause_writing()
        self._all.stalls(self)
        if self._stall_timer is None:
            self._stall_timer = self.worker.loop.call_later(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._all.flows(self)
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    # --- closing

    def _send_error_response(self, status: int, message: str, extra_headers: Any = ()) -> None:
        """Answer a request that the server itself refuses. The connection is closed afterwards."""
        self._lost_track = True
        super()._send_error_response(status, message, extra_headers)

    def drop(self) -> None:
        """Close at once, to make room for another connection."""
        self.transport.abort()
        if self._request_ready is not None:
            self._request_ready.set()

    async def _handle_websocket(self, request: Any, sockname: Any, peername: Any) -> None:
        """Run gunicorn's, with a small send buffer. Bytes that a slow peer leaves unread stay in this process, where
        they are counted, and not in the kernel, which would take megabytes of them."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_SEND_BYTES)
        await super()._handle_websocket(request, sockname, peername)

    def say_goodbye(self) -> None:
        """End a WebSocket, if it is one."""
        if self._websocket is not None and not self._closed:
            self.transport.write(_GOING_AWAY)
            self.hang_up()

    def hang_up(self) -> None:
        """Close, and wake the task that waits for a request."""
        self._close_transport()
        if self._request_ready is not None:
            self._request_ready.set()

    def _close_transport(self) -> None:
        """Close when the peer has taken the answer, or after a time."""
        if self._closed or self.transport is None:
            return
        self._closed = True
        self._stop_waiting_for_head()
        self._all.waits(self)  # so that it makes room for newcomers
        receiver = self._body_receiver
        if self._lost_track or (receiver is not None and not receiver._complete):
            self._thrown_away = 0
            self._resume_reading()
            self._end_timer = self.worker.loop.call_later(LINGER_S, self.transport.abort)
            try:
                if self.transport.can_write_eof():
                    self.transport.write_eof()
            except OSError:  # the peer has reset the connection, and the loop does not know it yet
                self.transport.abort()
            return
        if self.transport.get_write_buffer_size():
            self._end_timer = self.worker.loop.call_later(STALL_S, self.transport.abort)
        self.transport.close()
