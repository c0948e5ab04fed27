"""Connections of the console: how many, how long each may take, and how one ends.

gunicorn's protocol parses and answers; this one adds what it has no settings for. Whoever has not finished asking may
be kept waiting no longer than `HEAD_TIMEOUT_S`, and is the first to go when there are too many connections, the longest
silent one first: so a crowd that only connects keeps nobody out. Whoever does not take an answer is cut off, and is the
next to go. Streams (the live feed) are answers like others, and live as long as they are read.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
from collections import Counter
from itertools import chain
from typing import Any

from gunicorn.asgi.protocol import ASGIProtocol

from . import runtime

logger = logging.getLogger(__name__)

# Connections of all peers. A browser opens six, and one more for each live page.
CONNECTIONS = 512
# Of the descriptors that the process may have, this part at most is the console's: the store comes first.
DESCRIPTOR_SHARE = 8
# Of one address, when no proxy stands before us.
CONNECTIONS_EACH = 128
# When all are being answered, an address with more than this part of that gives way to newcomers of others: a few
# addresses that keep us busy shut nobody out.
CROWD_SHARE = 8
# The first byte to the header's end. A keep-alive connection has this long from its next request's first byte.
HEAD_TIMEOUT_S = 10.0
# All of a request's header; gunicorn bounds the lines (`http_server`).
HEAD_BYTES = 64 * 1024
# An answer of which the peer takes less than 48 KiB in so long is given up.
STALL_S = 30.0
# After an answer to a request that was not read to its end: what still comes is thrown away so long, and so much of it,
# for a connection closed with unread bytes takes the answer along before its reader saw it.
LINGER_S = 2.0
LINGER_BYTES = 1024 * 1024

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 22\r\nRetry-After: 2\r\n"
    b"Connection: close\r\n\r\nToo many connections.\n"
)


class Connections:
    """All of them. Owned by the event loop's thread."""

    def __init__(self, limit: int, each: int) -> None:
        """limit: of all peers; each: of one address."""
        self._limit = limit
        self._each = each
        # Address of each open connection.
        self._open: dict[BoundedProtocol, str] = {}
        self._by_address: Counter[str] = Counter()
        # Those that have not finished asking, the longest silent one first.
        self._waiting: dict[BoundedProtocol, None] = {}
        # Those that do not take what they asked for, the longest stalled one first.
        self._stalled: dict[BoundedProtocol, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, one: BoundedProtocol, address: str) -> bool:
        """Whether a new connection may stay; another one may have to go for it."""
        if self._by_address[address] >= self._each and not self._send_away(address):
            return False
        if len(self._open) >= self._limit and not self._send_away(None) and not self._send_one_of_a_crowd_away(address):
            return False
        self._open[one] = address
        self._by_address[address] += 1
        self._waiting[one] = None
        return True

    def waits(self, one: BoundedProtocol) -> None:
        """It has nothing to do until its peer asks."""
        if one in self._open:
            self._waiting[one] = None

    def works(self, one: BoundedProtocol) -> None:
        """Its peer's request is complete."""
        self._waiting.pop(one, None)

    def stalls(self, one: BoundedProtocol) -> None:
        """Its peer does not take what it asked for."""
        if one in self._open:
            self._stalled[one] = None

    def flows(self, one: BoundedProtocol) -> None:
        """Its peer takes it again."""
        self._stalled.pop(one, None)

    def left(self, one: BoundedProtocol) -> None:
        """It is closed, or soon will be."""
        self._waiting.pop(one, None)
        self._stalled.pop(one, None)
        address = self._open.pop(one, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def close_waiting(self) -> None:
        """Close those nobody is asking on; when the server stops."""
        for one in list(self._waiting):
            one.hang_up()

    def _send_away(self, address: str | None) -> bool:
        """Close the longest silent connection, else the longest stalled one, of an address or of all; False when all
        are being answered."""
        for one in chain(self._waiting, self._stalled):
            if address is None or self._open[one] == address:
                self.left(one)
                one.drop()
                return True
        return False

    def _send_one_of_a_crowd_away(self, newcomer: str) -> bool:
        """Close the oldest connection of the address that has most, for somebody of an address with far fewer."""
        address, count = self._by_address.most_common(1)[0]
        if count <= max(self._each // CROWD_SHARE, self._by_address[newcomer] + 1):
            return False
        one = next(one for one, where in self._open.items() if where == address)
        self.left(one)
        one.drop()
        return True


def connections() -> Connections:
    """With the bounds of this process."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(CONNECTIONS, max(descriptors // DESCRIPTOR_SHARE, 16))
    # Behind a proxy everybody comes from one address.
    each = limit if runtime.place().public_url else min(CONNECTIONS_EACH, limit)
    return Connections(limit, each)


def address_of(peer: Any) -> str:
    """What counts as one address: an IPv4 address, or an IPv6 network of 64 bits, which one host may have."""
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
        # Bytes of a header that is not complete.
        self._head_bytes = 0
        # Bytes thrown away at the end; None before.
        self._thrown_away: int | None = None
        # The server itself refused what came, so nobody knows where the next request would begin.
        self._lost_track = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if not self._all.admit(self, address_of(transport.get_extra_info("peername"))):
            self._closed = self._conn_lost_handled = True  # nothing of gunicorn's has begun
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

    # --- what comes in

    def data_received(self, data: bytes) -> None:
        if self._thrown_away is None:
            super().data_received(data)
            return
        self._thrown_away += len(data)
        if self._thrown_away > LINGER_BYTES:
            self.transport.abort()

    def _feed_callback_parser(self, data: bytes) -> bool:
        """False when the connection ends."""
        try:
            going: bool = super()._feed_callback_parser(data)
        except Exception as error:  # the parser meets a stranger's bytes; what it did not expect is theirs, too
            logger.debug("http: not understood error=%r", error)
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
        """gunicorn's answer is out and nothing else has come yet."""
        if self._head_timer is None:
            super()._arm_keepalive_timer()
        self._all.waits(self)

    # --- what goes out

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

    # --- the end

    def _send_error_response(self, status: int, message: str, extra_headers: Any = ()) -> None:
        """What the server itself says; the connection ends with it."""
        self._lost_track = True
        super()._send_error_response(status, message, extra_headers)

    def drop(self) -> None:
        """Close at once, for a newer one."""
        self.transport.abort()
        if self._request_ready is not None:
            self._request_ready.set()

    def hang_up(self) -> None:
        """Close, and have the task that waits for a request notice."""
        self._close_transport()
        if self._request_ready is not None:
            self._request_ready.set()

    def _close_transport(self) -> None:
        """Close when the peer has taken what we said; it has a bounded time for that."""
        if self._closed or self.transport is None:
            return
        self._closed = True
        self._stop_waiting_for_head()
        self._all.waits(self)  # nobody is kept out by one that ends
        receiver = self._body_receiver
        if self._lost_track or (receiver is not None and not receiver._complete):
            self._thrown_away = 0
            self._resume_reading()
            self._end_timer = self.worker.loop.call_later(LINGER_S, self.transport.abort)
            if self.transport.can_write_eof():
                self.transport.write_eof()
            return
        if self.transport.get_write_buffer_size():
            self._end_timer = self.worker.loop.call_later(STALL_S, self.transport.abort)
        self.transport.close()
