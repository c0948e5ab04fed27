"""After a planned switch: passes messages that clients still send to the old leader on to the new one, and returns its
answers.

One connection carries all of them, for a while; clients' own connections stay, and clients find the new leader when
they next read the route. A record that came this way has the relay's address as its born host. When the new leader does
not lead yet (it answers 14, or refuses the connection) a request waits and is passed again: nothing of it was stored.
When the connection breaks, requests that wait for an answer get 14 here: they may have been stored, and when the client
sends them again they are there twice.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ..clock import Clock
from ..errors import FrameError, RemotingError
from ..protocol.codes import ResponseCode
from ..protocol.command import MAX_FRAME_BYTES, RemotingCommand, decode_frame, encode_command
from ..protocol.member_proof import FOR_USER
from ..remoting.client import Connect, RemotingClient
from ..remoting.connection import Connection
from ..replication.wake_pipe import WakePipe
from ..service_thread import ServiceThread

if TYPE_CHECKING:
    from ..replication.shared_secret import Greeting

logger = logging.getLogger(__name__)

#: Most requests, and bytes of them, that may wait or be under way.
MOST, MOST_BYTES = 10_000, 64 * 1024 * 1024
#: A request that the new leader has not answered by then is refused; clients wait for 3 s.
WAIT_S = 2.5
_CONNECT_MS, AGAIN_S = 500, 0.05
_RECEIVE_BYTES = 256 * 1024
_GONE = "service not available now: the broker that leads the set now does not answer"


class _Passed(NamedTuple):
    """conn, opaque: of the client's request, for the answer. until: monotonic seconds."""

    request: RemotingCommand
    conn: Connection
    opaque: int
    oneway: bool
    size: int
    until: float


class Relay(ServiceThread):
    """The thread `relay-sends`. Owns: the connection to the new leader. Woken by: it, requests to be passed."""

    def __init__(
        self,
        address: str,
        seconds: float,
        clock: Clock,
        greeting: Greeting | None = None,
        connect: Connect | None = None,
    ) -> None:
        """address: the new leader's, "host:port". seconds: for how long requests are taken. greeting: proves this
        member, so that the leader believes which users it passes requests on for. connect: see `RemotingClient`."""
        super().__init__("relay-sends", clock)
        # Constant after construction.
        self.address = address
        self._greeting = greeting
        self._connector = connect
        self._ends_at = clock.monotonic() + seconds
        self._wake = WakePipe()
        self._lock = threading.Lock()
        # Guarded by _lock. _count, _bytes: requests in all, and their bytes.
        self._new: deque[_Passed] = deque()
        self._count = self._bytes = 0
        self._closed = False
        # Owned by this thread.
        self._sock: socket.socket | None = None
        self._out = bytearray()
        self._in = bytearray()
        self._under_way: dict[int, _Passed] = {}
        self._again: deque[tuple[float, _Passed]] = deque()
        self._next_opaque = 0
        self._connect_at = 0.0
        #: Number of requests that got the new leader's answer.
        self.passed = 0

    # --- remoting-io

    def take(self, request: RemotingCommand, conn: Connection) -> bool:
        """Pass a request on; False when it is too late, or there is no room."""
        now = self.clock.monotonic()
        size = len(request.body) + 512
        with self._lock:
            if self._closed or now >= self._ends_at or self._count >= MOST or self._bytes + size > MOST_BYTES:
                return False
            self._count += 1
            self._bytes += size
            self._new.append(_Passed(request, conn, request.opaque, request.is_oneway, size, now + WAIT_S))
        self._wake.wake()
        return True

    def wakeup(self) -> None:
        super().wakeup()
        self._wake.wake()

    # --- this thread

    def run(self) -> None:
        try:
            while not self.stopped and not self._is_over():
                try:
                    self._turn()
                except (OSError, FrameError) as error:
                    self._broken(str(error))
        finally:
            with self._lock:
                self._closed = True
            self._broken("the relay ends")
            for one in [*self._drain(), *(one for _, one in self._again)]:
                self._refuse(one)
            self._wake.close()

    def _is_over(self) -> bool:
        return self.clock.monotonic() >= self._ends_at and not self._count

    def _drain(self) -> list[_Passed]:
        with self._lock:
            found = list(self._new)
            self._new.clear()
        return found

    def _turn(self) -> None:
        now = self.clock.monotonic()
        waiting = [one for at, one in self._again if at <= now]
        self._again = deque([(at, one) for at, one in self._again if at > now])
        waiting += self._drain()
        if waiting and self._sock is None:
            if now >= self._connect_at:
                self._connect()
            if self._sock is None:
                self._put_off(waiting, now)
                waiting = []
        for one in waiting:
            self._pass_on(one, now)
        self._flush()
        self._wait(now)

    def _connect(self) -> None:
        try:
            client = RemotingClient(
                self.address, _CONNECT_MS, self.clock, greet=self._greeting, connect=self._connector
            )
            sock = client.take_socket(_CONNECT_MS)
        except RemotingError as error:
            self._connect_at = self.clock.monotonic() + AGAIN_S
            logger.debug("relay: no connection to=%s: %s", self.address, error)
            return
        sock.setblocking(False)
        self._sock = sock
        logger.info("relay: passing on what is sent here to=%s", self.address)

    def _put_off(self, some: list[_Passed], now: float) -> None:
        for one in some:
            if one.until <= now:
                self._refuse(one)
            else:
                self._again.append((now + AGAIN_S, one))

    def _pass_on(self, one: _Passed, now: float) -> None:
        if one.conn.closed or one.until <= now:
            self._refuse(one)
            return
        self._next_opaque = (self._next_opaque + 1) & 0x7FFFFFFF
        request = one.request
        request.opaque = self._next_opaque
        request.ext_fields.pop(FOR_USER, None)
        if request.caller is not None:
            request.ext_fields[FOR_USER] = request.caller.told
        try:
            self._out += encode_command(request, request.codec)
        except FrameError as error:
            self._answer(one, RemotingCommand.response(ResponseCode.SYSTEM_ERROR, str(error)))
            return
        if one.oneway:
            self._done(one)
        else:
            self._under_way[request.opaque] = one

    def _flush(self) -> None:
        if self._sock is not None and self._out:
            try:
                del self._out[: self._sock.send(self._out)]
            except BlockingIOError:
                pass

    def _wait(self, now: float) -> None:
        """Wait until something arrives or is due, receive answers, and refuse requests that are late."""
        due = [at for at, _ in self._again] + ([self._ends_at] if self._ends_at > now else [])
        seconds = min([max(0.0, at - now) for at in due] + [0.5])
        poller = select.poll()
        poller.register(self._wake.fileno(), select.POLLIN)
        if self._sock is not None:
            poller.register(self._sock, select.POLLIN | (select.POLLOUT if self._out else 0))
        poller.poll(seconds * 1000 + 1)
        self._wake.drain()
        if self._sock is not None:
            self._receive()
        late = [opaque for opaque, one in self._under_way.items() if one.until <= self.clock.monotonic()]
        for opaque in late:
            self._refuse(self._under_way.pop(opaque))

    def _receive(self) -> None:
        assert self._sock is not None
        try:
            data = self._sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionError("it closed the connection")
        self._in += data
        while len(self._in) >= 4:
            end = 4 + int.from_bytes(self._in[:4], "big")
            if not 8 <= end <= MAX_FRAME_BYTES:
                raise FrameError(f"frame length {end - 4}")
            if len(self._in) < end:
                return
            answer = decode_frame(bytes(self._in[:end]))
            del self._in[:end]
            one = self._under_way.pop(answer.opaque, None) if answer.is_response else None
            if one is None:
                continue
            if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE and one.until > self.clock.monotonic():
                self._again.append((self.clock.monotonic() + AGAIN_S, one))  # it does not lead yet
            else:
                self.passed += 1
                self._answer(one, answer)

    def _broken(self, why: str) -> None:
        """Close the connection and refuse the requests under way: they may have been stored, or not."""
        sock, self._sock = self._sock, None
        if sock is not None:
            logger.warning("relay: the connection to=%s ended: %s", self.address, why)
            sock.close()
        self._connect_at = self.clock.monotonic() + AGAIN_S
        self._out.clear()
        self._in.clear()
        lost, self._under_way = list(self._under_way.values()), {}
        for one in lost:
            self._refuse(one)

    def _refuse(self, one: _Passed) -> None:
        self._answer(one, RemotingCommand.response(ResponseCode.SERVICE_NOT_AVAILABLE, _GONE))

    def _answer(self, one: _Passed, answer: RemotingCommand) -> None:
        if not one.oneway and not one.conn.closed:
            one.conn.answer(one.opaque, answer)
        self._done(one)

    def _done(self, one: _Passed) -> None:
        with self._lock:
            self._count -= 1
            self._bytes -= one.size
