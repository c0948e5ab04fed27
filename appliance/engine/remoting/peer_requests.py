"""Requests that the broker sends to a client (221, 307, 309, 326), and the answers to them.

Source: RocketMQ `NettyRemotingAbstract.responseTable`.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import FrameError
from ..protocol.command import RemotingCommand
from ..shares import Shares
from .event_loop import EventLoop, Timer

if TYPE_CHECKING:
    from .connection import Connection
    from .server import RemotingServer

logger = logging.getLogger(__name__)

#: Called with the answer, or with None if none came in time, the connection closed, or the request is too large.
Done = Callable[[RemotingCommand | None], None]

#: Limits on requests that wait for their answers, chosen here: to all clients together, shared by client (`Shares`);
#: and to each client in any case.
MAX_WAITING, FEW_WAITING = 10_000, 16

#: One for the process: an answer never matches a request of another broker that ran before on the same connection.
_opaques = itertools.count(1)


class PeerRequests:
    """Owned by remoting-io."""

    def __init__(self, loop: EventLoop, server: RemotingServer) -> None:
        self._loop = loop
        self._server = server
        self._waiting: dict[Connection, dict[int, tuple[Done, Timer]]] = {}
        self._count = 0
        self._shares = Shares(FEW_WAITING)
        server.on_answer = self._answered
        server.on_close(self._closed)

    def ask(self, conn: Connection, command: RemotingCommand, timeout_s: float, done: Done) -> None:
        """Send a request; `done` is called exactly once, on remoting-io."""
        if conn.closed or not self._shares.take(conn.born_host, MAX_WAITING):
            done(None)
            return
        opaque = command.opaque = next(_opaques) & 0x7FFFFFFF

        def expired() -> None:
            self._finish(conn, opaque, None)

        timer = self._loop.call_later(timeout_s, expired)
        self._waiting.setdefault(conn, {})[opaque] = (done, timer)
        self._count += 1
        try:
            conn.send_command(command)
        except FrameError as error:  # a request that no frame holds with the broker's additions
            logger.warning("peer: a request cannot be sent code=%d to=%s: %s", command.code, conn.remote_host, error)
            self._finish(conn, opaque, None)

    @property
    def waiting(self) -> int:
        """Number of requests that wait for their answer."""
        return self._count

    def waiting_of(self, conn: Connection) -> int:
        """Return the number of them that were sent to this peer."""
        return len(self._waiting.get(conn, ()))

    def end(self) -> None:
        """End all waiting requests with None; no request may follow."""
        self._server.forget_listener(self._closed)
        for conn in list(self._waiting):
            self._closed(conn)

    def _finish(self, conn: Connection, opaque: int, answer: RemotingCommand | None) -> bool:
        """Call `done`; False if no request with this opaque waits."""
        own = self._waiting.get(conn)
        entry = None if own is None else own.pop(opaque, None)
        if own is None or entry is None:
            return False
        if not own:
            del self._waiting[conn]
        self._count -= 1
        self._shares.give(conn.born_host)
        done, timer = entry
        timer.cancel()
        try:
            done(answer)
        except Exception:  # the peer has answered properly, and others wait for their answers
            logger.exception("peer: handling an answer failed from=%s", conn.remote_host)
        return True

    def _answered(self, conn: Connection, answer: RemotingCommand) -> None:
        if not self._finish(conn, answer.opaque, answer):
            logger.debug("peer: an answer without a request code=%d from=%s", answer.code, conn.remote_host)

    def _closed(self, conn: Connection) -> None:
        for opaque in list(self._waiting.get(conn, ())):
            self._finish(conn, opaque, None)
