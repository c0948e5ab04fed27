"""One table says what runs where: request code -> (handler, pool).

Three ways for a frame. A hot request (its header begins as Java, Go and C++ write it) goes to a function that reads
the frame in place. Any other is decoded into a RemotingCommand and handled inline on the I/O thread, or in a named pool
when it may block. Exceptions become response codes here and nowhere else.

Gates stand before all of that: a gate is asked about every request whose code it watches, with all of its header. A
code that is watched has no hot way; one that is not costs nothing.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..clock import Clock
from ..errors import FrameError, HeaderTextError, QueueBroken, RefusedRequest
from ..hotpath import FrameRunner
from ..named_tuple import NamedTuple
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import (
    CODEC_JSON,
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    MAX_HEADER_BYTES,
    RemotingCommand,
    Witness,
    decode_parts,
)
from ..service_thread import ServiceThread
from ..shares import Shares
from .peek import Peeked, peek

if TYPE_CHECKING:
    from .connection import Connection

logger = logging.getLogger(__name__)

Handler = Callable[[RemotingCommand, "Connection"], RemotingCommand | None]
#: (connection, frame buffer, header start, header end, frame end) -> handled? False sends it the cold way.
HotHandler = Callable[["Connection", memoryview, int, int, int], bool]

#: What the requests that wait in one pool may hold together, shared by connection and address (`Shares`); one alone may
#: always wait, and the only one of a connection until half of it is taken.
MAX_WAITING_BYTES = 64 * 1024 * 1024
#: What those of one connection may hold in any case, and what each counts at least.
FEW_WAITING_BYTES, LEAST_WAITING_BYTES = 64 * 1024, 4096
#: What the requests may hold that left one pool to wait for room at their peers, shared likewise. The peer is closed
#: whose request is more than its share: it takes no answers, and those of others are not refused for it.
MAX_PUT_OFF_BYTES = 64 * 1024 * 1024
#: Counted for a waiting request beyond its bytes: the objects of a command, and of each of its fields.
_REQUEST_BYTES = 1024
_FIELD_BYTES = 200

#: The header's first bytes tell the code: `{"code":310,"ext...` - 12 bytes reach behind the comma of 3 digits.
_HOT_PREFIX_BYTES = 12
#: What carries messages.
SEND_CODES = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    )
)
#: What stores messages: back-pressure stops these and nothing else.
STORING_CODES = SEND_CODES | {RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION}
#: A header in an unusual form may be this long, or have as many fields as follows: each is an object on the I/O thread.
_MANY_FIELDS_BYTES = 64 * 1024
_MANY_FIELDS = 4096


def _hot_prefix(code: int) -> bytes:
    return (b'{"code":%d,"extFields' % code)[:_HOT_PREFIX_BYTES]


_STORING_PREFIXES = frozenset(_hot_prefix(code) for code in STORING_CODES)


#: The remark of SYSTEM_BUSY for what a pool has no room for; clients know it.
OVERLOADED = "[OVERLOAD]system busy, start flow control for a while"


class _Job(NamedTuple):
    """What a pool is given. conn: who gets the answer, which is not built before there is room for it. number: of the
    pool's jobs."""

    run: Callable[[], None]
    size: int
    conn: Connection | None
    answered: bool
    number: int
    resumed: bool = False


class Waiting(NamedTuple):
    """How many wait in a queue, and for how long the first of them does."""

    number: int
    first_ms: int


class WorkerPool(ServiceThread):
    """One thread `pool-<name>` that works off a bounded number of cold requests.

    Those of one connection in order, and of each connection one after the other: who asks for much is not before who
    asks once.
    """

    def __init__(self, name: str, capacity: int = 10_000, clock: Clock | None = None) -> None:
        super().__init__(f"pool-{name}")
        # Constant after construction.
        self.capacity = capacity
        self._clock = clock or Clock()
        # True for each job; None ends the thread.
        self._calls: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # Guarded by _lock: the jobs of each connection, that whose turn it is first; since when each job waits here, in
        # order; bytes that those and the running one hold; whose they are; and those of jobs put off.
        self._lines: dict[bytes | None, deque[_Job]] = {}
        self._number = 0
        self._since: dict[int, float] = {}
        self._held = 0
        self._shares = Shares(FEW_WAITING_BYTES)
        self._put_off = Shares(FEW_WAITING_BYTES)

    def submit(
        self, job: Callable[[], None], size: int = 0, conn: Connection | None = None, answered: bool = True
    ) -> bool:
        """Queue a job that holds `size` bytes of request; False when the queue is full, or `conn` has its share of it.

        A job that is answered to `conn` begins when that peer has taken enough of its earlier answers, or has gone.
        """
        if conn is not None:
            size = max(size, LEAST_WAITING_BYTES)
        with self._lock:
            if not self._has_room(size, conn) or (conn is not None and not conn.take_place(size)):
                return False
            self._number += 1
            self._since[self._number] = self._clock.monotonic()
            self._held += size
            self._shares.add(None if conn is None else conn.born_host, size)
            self._line_up_locked(_Job(job, size, conn, answered, self._number))
        self._calls.put(True)
        return True

    def _line_up_locked(self, job: _Job) -> None:
        whose = None if job.conn is None else job.conn.born_host
        line = self._lines.get(whose)
        if line is None:
            line = self._lines[whose] = deque()
        line.append(job)

    def _next(self) -> _Job | None:
        """Wait for a job; None at the end, behind all that were given before."""
        if self._calls.get() is None:
            return None
        with self._lock:
            whose = next(iter(self._lines))
            line = self._lines.pop(whose)
            job = line.popleft()
            if line:
                self._lines[whose] = line  # behind the others
        return job

    def _has_room(self, size: int, conn: Connection | None) -> bool:
        if not self._held:
            return True
        is_full = len(self._since) >= self.capacity
        if conn is None:
            return not is_full and self._held + size <= MAX_WAITING_BYTES
        own = self._shares.of(conn.born_host)
        if own + size <= FEW_WAITING_BYTES:
            return True
        if is_full:
            return False
        if not own and self._held + size <= MAX_WAITING_BYTES // 2:
            return True
        return size <= self._shares.room(conn.born_host, MAX_WAITING_BYTES)

    def waiting(self) -> Waiting:
        """What waits here now. Any thread."""
        with self._lock:
            number, since = len(self._since), next(iter(self._since.values()), 0.0)
        return Waiting(number, int((self._clock.monotonic() - since) * 1000) if number else 0)

    def run(self) -> None:
        while (job := self._next()) is not None:
            conn = job.conn
            if conn is not None and job.answered and not job.resumed and conn.must_wait():
                self._keep_for_later(job, conn)
                del job, conn
                continue
            with self._lock:
                if job.resumed:
                    assert conn is not None, "only a peer's answers wait for room"
                    self._put_off.give(conn.born_host, job.size)
                else:
                    del self._since[job.number]
            try:
                job.run()
            except Exception:
                logger.exception("pool: job failed name=%s", self.name)
                if conn is not None and job.answered:
                    conn.close()  # it would wait for an answer that does not come
            if not job.resumed:
                with self._lock:
                    self._held -= job.size
                    self._shares.give(None if conn is None else conn.born_host, job.size)
            if conn is not None:
                conn.leave_place(job.size)
                if job.resumed:
                    conn.resumed()
            del job, conn  # an idle pool keeps no request

    def _keep_for_later(self, job: _Job, conn: Connection) -> None:
        """The job gives its place up, so that a peer that takes nothing keeps nobody else out of the pool."""
        with self._lock:
            del self._since[job.number]
            self._held -= job.size
            self._shares.give(conn.born_host, job.size)
            too_much = job.size > self._put_off.room(conn.born_host, MAX_PUT_OFF_BYTES)
            self._put_off.add(conn.born_host, job.size)
        if too_much:
            logger.warning(
                "pool: too many requests wait for slow peers, closing %s name=%s", conn.remote_host, self.name
            )
            conn.close()
        again = job._replace(resumed=True)

        def resume() -> None:
            with self._lock:
                self._line_up_locked(again)
            self._calls.put(True)

        conn.wait_for_room(resume)

    def request_stop(self) -> None:
        super().request_stop()
        self._calls.put(None)


class Gate(Protocol):
    """Decides who may ask for what."""

    def watches(self, code: int) -> bool:
        """Whether requests with this code pass here; asked once, when the code is added to a table."""

    def admit(self, request: RemotingCommand, conn: Connection) -> Witness | None:
        """Raise RefusedRequest (NO_PERMISSION) for who may not. On the I/O thread, before any handler or pool.

        A witness is told how the request goes.
        """


class _Entry(NamedTuple):
    handler: Handler
    pool: WorkerPool | None
    gates: tuple[Gate, ...]


class Dispatcher:
    """The table of one listening port; ports may share handlers, pools and gates, not tables."""

    def __init__(self, pools: dict[str, WorkerPool], gates: tuple[Gate, ...] = (), clock: Clock | None = None) -> None:
        """gates: asked in their order; one refusal is enough. clock: of the pools that are made here."""
        # Filled before the first connection, constant afterwards.
        self._handlers: dict[int, _Entry] = {}
        self._hot: dict[bytes, HotHandler] = {}
        self._runs: dict[int, Any] = {}
        #: Takes the usual frames of a read; None in the pure twin.
        self.runner: Any = None
        self._pools = pools
        self._gates = gates
        self._clock = clock
        #: Nobody of this port is read from. On remoting-io.
        self.paused = False
        #: Why nothing that waits in a pool is handled any more: who would do it has ended. Replaced once.
        self.ended: RefusedRequest | None = None

    def add(self, code: int, handler: Handler, pool: str | None = None) -> None:
        """Serve `code`: inline (under 0.2 ms, never blocking) or in the pool of that name, made on first use."""
        self._handlers[code] = _Entry(handler, None if pool is None else self.pool(pool), self._gates_before(code))

    def _gates_before(self, code: int) -> tuple[Gate, ...]:
        return tuple(gate for gate in self._gates if gate.watches(code))

    def pool(self, name: str) -> WorkerPool:
        """The pool of that name, made on first use."""
        worker = self._pools.get(name)
        if worker is None:
            worker = self._pools[name] = WorkerPool(name, clock=self._clock)
        return worker

    def add_hot(self, code: int, handler: HotHandler) -> None:
        """Serve `code` in place when its JSON header begins with the code; `add` it too, for all other forms.

        Before a gate the request is decoded, since a hot handler reads only the fields that it needs.
        """
        if not self._gates_before(code):
            self._hot[_hot_prefix(code)] = handler

    def add_runs(self, code: int, runs: Any) -> None:
        """Have the usual frames of `code` taken by `runs`, of the compiled twin, before all others; None: nobody does.

        As with a hot handler there is no gate before it.
        """
        if runs is not None and not self._gates_before(code):
            self._runs[code] = runs
            self.runner = FrameRunner(self._runs)

    def give(self, code: int, handler: Handler) -> None:
        """Have all requests of a code handled by `handler`, inline, whatever their form. Before it serves."""
        self.add(code, handler)
        self._hot.pop(_hot_prefix(code), None)
        if self._runs.pop(code, None) is not None:
            self.runner = FrameRunner(self._runs) if self._runs else None

    def wrap(self, code: int, before: Callable[[], None]) -> None:
        """Call `before` first, which may refuse by raising. Before it serves; of a code without a hot way."""
        entry = self._handlers.get(code)
        if entry is None:
            return
        handler = entry.handler

        def first(request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
            before()
            return handler(request, conn)

        self._handlers[code] = entry._replace(handler=first)

    @property
    def codes(self) -> set[int]:
        return set(self._handlers)

    def without(self, *codes: int) -> Dispatcher:
        """A copy for a port that does not serve `codes` (pulls on the VIP port)."""
        copy = Dispatcher(self._pools, self._gates, self._clock)
        copy._handlers = {code: entry for code, entry in self._handlers.items() if code not in codes}
        gone = {_hot_prefix(code) for code in codes}
        copy._hot = {prefix: handler for prefix, handler in self._hot.items() if prefix not in gone}
        copy._runs = {code: runs for code, runs in self._runs.items() if code not in codes}
        copy.runner = FrameRunner(copy._runs) if copy._runs else None
        return copy

    def dispatch(self, conn: Connection, view: memoryview, header: int, end: int, meta: int) -> None:
        """Handle a frame whose header begins at `header`; meta: its second word. Raises FrameError for a bad header."""
        body = header + (meta & 0xFFFFFF)
        if body > end or body - header > MAX_HEADER_BYTES:
            self._refuse_header(conn, view, header, end, meta)
            return
        if meta < 0x1000000:
            hot = self._hot.get(bytes(view[header : header + _HOT_PREFIX_BYTES]))
            if hot is not None and hot(conn, view, header, body, end):
                return
        size = body - header
        if size > _MANY_FIELDS_BYTES and bytes(view[header:body]).count(b'":') > _MANY_FIELDS:
            self._refuse_header(conn, view, header, end, meta)
            return
        try:
            request = decode_parts(meta >> 24, view[header:body], bytes(view[body:end]))
        except HeaderTextError as error:  # of a client that writes another encoding: the frames behind it are sound
            self._refuse_header(conn, view, header, end, meta, str(error))
            return
        if request.flag & FLAG_RESPONSE:
            conn.on_response(request)
            return
        self.dispatch_request(conn, request, size)

    @staticmethod
    def _refuse_header(
        conn: Connection, view: memoryview, header: int, end: int, meta: int, why: str | None = None
    ) -> None:
        """A header that is too long, or what `why` says: answered as the request it is, as far as that can be told;
        else no frame."""
        size = meta & 0xFFFFFF
        found = peek(meta >> 24, view[header : header + size]) if header + size <= end else None
        if found is None:
            raise FrameError(why or f"header of {size} bytes in a frame of {end - header + 8}")
        logger.info("dispatcher: header of %d bytes refused code=%d from=%s", size, found.code, conn.remote_host)
        if found.flag & (FLAG_ONEWAY | FLAG_RESPONSE):
            return
        code = ResponseCode.MESSAGE_ILLEGAL if found.code in SEND_CODES else ResponseCode.SYSTEM_ERROR
        limit = f"{MAX_HEADER_BYTES} bytes" if size > MAX_HEADER_BYTES else f"{_MANY_FIELDS} fields"
        text = why or f"the header is too long: it has {size} bytes, at most {limit} are taken"
        conn.answer(found.opaque, RemotingCommand.response(code, text))

    def is_send(self, view: memoryview, header: int, end: int, meta: int, whole: bool) -> bool:
        """Whether a frame stores messages, as far as `view[header:end]` tells; a bad frame does not."""
        codec = meta >> 24
        if codec == CODEC_JSON:
            prefix = bytes(view[header : min(header + _HOT_PREFIX_BYTES, end)])
            if prefix in _STORING_PREFIXES:
                return True
            if prefix in self._hot:
                return False
        body = header + (meta & 0xFFFFFF)
        found: Peeked | None = peek(codec, view[header:body]) if whole and body <= end else None
        return found is not None and found.code in STORING_CODES

    def dispatch_request(self, conn: Connection, request: RemotingCommand, header_bytes: int = 0) -> None:
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
        handler, pool, gates = entry
        if gates and not self._is_admitted(gates, request, conn):
            return
        if pool is None:
            self._answer(handler, request, conn)
            return
        size = _REQUEST_BYTES + header_bytes + _FIELD_BYTES * len(request.ext_fields) + len(request.body)
        if not pool.submit(lambda: self._answer(handler, request, conn), size, conn, not request.is_oneway):
            conn.respond(
                request,
                RemotingCommand.response(ResponseCode.SYSTEM_BUSY, OVERLOADED),
            )

    @staticmethod
    def _is_admitted(gates: tuple[Gate, ...], request: RemotingCommand, conn: Connection) -> bool:
        try:
            for gate in gates:
                request.witness = gate.admit(request, conn) or request.witness
        except Exception as error:  # a gate that fails is closed
            conn.respond(request, _answer_to(error, request, conn))
            return False
        return True

    def _answer(self, handler: Handler, request: RemotingCommand, conn: Connection) -> None:
        try:
            if self.ended is not None:
                raise RefusedRequest(self.ended.code, self.ended.remark)  # not the one that stays: it would keep frames
            if request.witness is not None:
                request.witness.begins(request)
            response = handler(request, conn)
        except Exception as error:
            response = _answer_to(error, request, conn)
        if response is not None:
            conn.respond(request, response)


class Meanwhile(Dispatcher):
    """Of a port whose broker is being replaced by another: every request is refused, but those that nobody reads."""

    def __init__(self) -> None:
        super().__init__({})
        self.refusal = RefusedRequest(ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now")

    def refuse_because(self, why: str) -> None:
        """What is told to who asks."""
        self.refusal = RefusedRequest(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {why}")

    def dispatch_request(self, conn: Connection, request: RemotingCommand, header_bytes: int = 0) -> None:
        conn.respond(request, RemotingCommand.response(self.refusal.code, self.refusal.remark))


def _answer_to(error: Exception, request: RemotingCommand, conn: Connection) -> RemotingCommand:
    """Called while the exception is handled."""
    if isinstance(error, RefusedRequest):
        return RemotingCommand.response(error.code, str(error))
    if isinstance(error, QueueBroken):
        return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, str(error))
    logger.exception("dispatcher: request failed code=%d from=%s", request.code, conn.remote_host)
    return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
