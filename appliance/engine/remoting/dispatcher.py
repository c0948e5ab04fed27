"""One table says what runs where: request code -> (handler, pool).

Three ways for a frame. A hot request (its header begins as Java, Go and C++ write it) goes to a function that reads
the frame in place. Any other is decoded into a RemotingCommand and handled inline on the I/O thread, or in a named pool
when it may block. Exceptions become response codes here and nowhere else.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import FrameError, RefusedRequest
from ..protocol.codes import ResponseCode
from ..protocol.command import RemotingCommand, decode_parts
from ..service_thread import ServiceThread

if TYPE_CHECKING:
    from .connection import Connection

logger = logging.getLogger(__name__)

Handler = Callable[[RemotingCommand, "Connection"], RemotingCommand | None]
#: (connection, frame buffer, header start, header end, frame end) -> handled? False sends it the cold way.
HotHandler = Callable[["Connection", memoryview, int, int, int], bool]

#: What the bodies of a pool's waiting requests may hold together; one alone may always wait.
MAX_WAITING_BYTES = 64 * 1024 * 1024

#: The header's first bytes tell the code: `{"code":310,"ext...` - 12 bytes reach behind the comma of 3 digits.
_HOT_PREFIX_BYTES = 12


class WorkerPool(ServiceThread):
    """One thread `pool-<name>` that works off a bounded queue of cold requests, in order."""

    def __init__(self, name: str, capacity: int = 10_000) -> None:
        super().__init__(f"pool-{name}")
        self._jobs: queue.Queue[tuple[Callable[[], None], int] | None] = queue.Queue(capacity)
        self._lock = threading.Lock()
        # Guarded by _lock: bytes that waiting jobs and the running one hold.
        self._held = 0

    def submit(self, job: Callable[[], None], size: int = 0) -> bool:
        """Queue a job that holds `size` bytes of request; False when the queue is full."""
        with self._lock:
            if self._held and self._held + size > MAX_WAITING_BYTES:
                return False
            self._held += size
        try:
            self._jobs.put_nowait((job, size))
        except queue.Full:
            self._release(size)
            return False
        return True

    def _release(self, size: int) -> None:
        with self._lock:
            self._held -= size

    def run(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, size = entry
            try:
                job()
            except Exception:
                logger.exception("pool: job failed name=%s", self.name)
            self._release(size)

    def request_stop(self) -> None:
        super().request_stop()
        try:
            self._jobs.put_nowait(None)
        except queue.Full:
            logger.warning("pool: stopping with a full queue name=%s", self.name)


class Dispatcher:
    """The table of one listening port; ports may share handlers and pools, not tables."""

    def __init__(self, pools: dict[str, WorkerPool]) -> None:
        # Filled before the first connection, constant afterwards.
        self._handlers: dict[int, tuple[Handler, WorkerPool | None]] = {}
        self._hot: dict[bytes, HotHandler] = {}
        self._pools = pools

    def add(self, code: int, handler: Handler, pool: str | None = None) -> None:
        """Serve `code`: inline (under 0.2 ms, never blocking) or in the pool of that name, made on first use."""
        self._handlers[code] = (handler, None if pool is None else self.pool(pool))

    def pool(self, name: str) -> WorkerPool:
        """The pool of that name, made on first use."""
        worker = self._pools.get(name)
        if worker is None:
            worker = self._pools[name] = WorkerPool(name)
        return worker

    def add_hot(self, code: int, handler: HotHandler) -> None:
        """Serve `code` in place when its JSON header begins with the code; `add` it too, for all other forms."""
        prefix = (b'{"code":%d,"extFields' % code)[:_HOT_PREFIX_BYTES]
        self._hot[prefix] = handler

    @property
    def codes(self) -> set[int]:
        return set(self._handlers)

    def without(self, *codes: int) -> Dispatcher:
        """A copy for a port that does not serve `codes` (pulls on the VIP port)."""
        copy = Dispatcher(self._pools)
        copy._handlers = {code: entry for code, entry in self._handlers.items() if code not in codes}
        gone = {(b'{"code":%d,"extFields' % code)[:_HOT_PREFIX_BYTES] for code in codes}
        copy._hot = {prefix: handler for prefix, handler in self._hot.items() if prefix not in gone}
        return copy

    def dispatch(self, conn: Connection, view: memoryview, header: int, end: int, meta: int) -> None:
        """Handle a frame whose header begins at `header`; meta: its second word. Raises FrameError for a bad header."""
        body = header + (meta & 0xFFFFFF)
        if body > end or body - header > conn.max_header_bytes:
            raise FrameError(f"header of {body - header} bytes in a frame of {end - header + 8}")
        if meta < 0x1000000:
            hot = self._hot.get(bytes(view[header : header + _HOT_PREFIX_BYTES]))
            if hot is not None and hot(conn, view, header, body, end):
                return
        request = decode_parts(meta >> 24, view[header:body], bytes(view[body:end]))
        if request.flag & 1:
            conn.on_response(request)
            return
        self.dispatch_request(conn, request)

    def dispatch_request(self, conn: Connection, request: RemotingCommand) -> None:
        """Handle a decoded request, inline or in its pool."""
        entry = self._handlers.get(request.code)
        if entry is None:
            conn.respond(
                request,
                RemotingCommand.response(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
                ),
            )
            return
        handler, pool = entry
        if pool is None:
            self._answer(handler, request, conn)
        elif not pool.submit(lambda: self._answer(handler, request, conn), len(request.body)):
            conn.respond(
                request,
                RemotingCommand.response(
                    ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while"
                ),
            )

    @staticmethod
    def _answer(handler: Handler, request: RemotingCommand, conn: Connection) -> None:
        try:
            response = handler(request, conn)
        except RefusedRequest as refusal:
            response = RemotingCommand.response(refusal.code, str(refusal))
        except Exception as error:
            logger.exception("dispatcher: request failed code=%d from=%s", request.code, conn.remote_host)
            response = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if response is not None:
            conn.respond(request, response)
