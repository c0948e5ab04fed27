"""TLS handshakes of the console's port: bounded in time, and in number together with the connections.

A handshake counts for its address among `Connections`, as one that waits for a request, so a crowd of them makes room
for others. Each begins with the certificate that is served by then, so a new pair needs no restart.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

from .http_connections import BoundedProtocol, Connections, address_of

logger = logging.getLogger(__name__)

#: Longest time of a handshake; as on the broker's ports.
HANDSHAKE_S = 5.0
#: Time that a peer has to confirm the end of a connection.
SHUTDOWN_S = 2.0
#: Bytes of an answer that wait, encrypted or not, before the answer pauses.
_SEND_BYTES = 64 * 1024


class Handshake(asyncio.Protocol):
    """One connection until it has shaken hands. Owned by the event loop's thread."""

    def __init__(self, worker: Any, all_of_them: Connections, context: Callable[[], ssl.SSLContext]) -> None:
        self._worker = worker
        self._all = all_of_them
        self._context = context
        self._transport: Any = None
        self._task: asyncio.Task[None] | None = None
        # Bytes that came with the end of the handshake, before the next protocol takes over.
        self._early: list[bytes] = []
        self._next: BoundedProtocol | None = None
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if not self._all.admit(self, address_of(transport.get_extra_info("peername"))):
            self._transport.abort()
            return
        self._transport.pause_reading()
        self._task = self._worker.loop.create_task(self._shake())

    async def _shake(self) -> None:
        try:
            transport: Any = await self._worker.loop.start_tls(
                self._transport,
                self,
                self._context(),
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError as error:  # an SSLError is one, and so is a time-out
            logger.debug("https: a handshake failed: %s", error)
            return
        finally:
            self._all.left(self)
        if self._lost or transport is None:
            return
        self._transport = transport
        transport.set_write_buffer_limits(_SEND_BYTES)
        taken = self._next = BoundedProtocol(self._worker, self._all)
        transport.set_protocol(taken)
        taken.connection_made(transport)
        for data in self._early:
            taken.data_received(data)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        self._all.left(self)
        if self._next is not None:  # the loop had looked up this protocol before
            self._next.connection_lost(error)

    def drop(self) -> None:
        """Close at once, to make room for another connection."""
        self._transport.abort()

    hang_up = drop

    def say_goodbye(self) -> None:
        """Do nothing: it is no WebSocket yet."""
