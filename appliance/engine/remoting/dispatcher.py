"""The table of what runs where: request code -> (handler, pool).

A frame is handled in one of three ways. The header of a hot request, a send or a pull whose header begins as Java, Go
and C++ write it, is decoded straight into the fields of its request. Any other becomes a RemotingCommand and is handled
inline on the I/O thread, or in a named pool if it may block. Exceptions become response codes only here.

Hot requests serve both twins: the compiled one leaves sends with a delay, a time or a transaction to them. As commands
such sends take 1.6 times the processor time, and all sends of the pure twin 1.6 times the server's.

Gates come before all of that: a gate checks every request whose code it watches, with its whole header. A watched code
has no hot way; a code that is not watched costs nothing.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Generic, Protocol, TypeVar

import msgspec

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
from ..shares import Shares, address_of
from .peek import Peeked, peek

if TYPE_CHECKING:
    from ..few_lines import FewLines
    from .connection import Connection

logger = logging.getLogger(__name__)

Handler = Callable[[RemotingCommand, "Connection"], RemotingCommand | None]
_I32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_Fields = TypeVar("_Fields")


class Frame(msgspec.Struct, Generic[_Fields], gc=False):
    """The JSON header of a hot request. Its numbers may come as text (Java, Go) or as numbers (C++).

    A header with numbers outside 32 bits is none: the cold way refuses it, and closes.
    """

    extFields: _Fields
    opaque: _I32
    flag: _I32 = 0
    version: _I32 = 0


#: (connection, header, body). The body is a part of the read buffer: it is copied before the handler returns.
HotHandler = Callable[["Connection", Any, memoryview], None]

#: Limit on the bytes of requests that wait in one pool, shared by connection and address (`Shares`). A single request
#: may always wait, and so may the only one of a connection until half of the limit is taken.
MAX_WAITING_BYTES = 64 * 1024 * 1024
#: Bytes of requests that each connection may hold in any case; least bytes that a request counts as.
FEW_WAITING_BYTES, LEAST_WAITING_BYTES = 64 * 1024, 4096
#: Limit on the bytes of requests that left one pool to wait for room at their peers, shared likewise. A peer whose
#: request exceeds its share is closed, since it takes no answers; other peers' requests are not refused.
MAX_PUT_OFF_BYTES = 64 * 1024 * 1024
#: Counted for a waiting request besides its bytes: the objects of a command, and those of each field.
_REQUEST_BYTES = 1024
_FIELD_BYTES = 200

#: The header's first bytes contain the code: `{"code":310,"ext...` - 12 bytes reach behind the comma of 3 digits.
HOT_PREFIX_BYTES = 12
#: Requests that carry messages.
SEND_CODES = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    )
)
#: Requests that store messages: back-pressure stops only these.
STORING_CODES = SEND_CODES | {RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION}
#: Limits on a header in an unusual form, in bytes and in fields: each field is an object on the I/O thread.
_MANY_FIELDS_BYTES = 64 * 1024
_MANY_FIELDS = 4096


def hot_prefix(code: int) -> bytes:
    return (b'{"code":%d,"extFields' % code)[:HOT_PREFIX_BYTES]


_STORING_PREFIXES = frozenset(hot_prefix(code) for code in STORING_CODES)


#: Most lines of the log about frames that cannot be read, in this many seconds.
_TOLD, _TELL_S = 20, 60.0

#: Remark of SYSTEM_BUSY for a request that a pool has no room for; clients recognize it.
OVERLOADED = "[OVERLOAD]system busy, start flow control for a while"


class _Job(NamedTuple):
    """One request in a pool. conn: the peer that gets the answer, which is not built before there is room for it.
    number: counts the pool's jobs."""

    run: Callable[[], None]
    size: int
    conn: Connection | None
    answered: bool
    number: int
    resumed: bool = False


class Waiting(NamedTuple):
    """Number of requests that wait in a queue, and how long the first has waited."""

    number: int
    first_ms: int


class WorkerPool(ServiceThread):
    """One thread `pool-<name>` that handles a bounded number of cold requests.

    Requests of one connection are handled in order. Addresses take turns, and so do the connections of each: a peer
    with many requests, or with many connections, does not delay one with a single request.
    """

    def __init__(self, name: str, capacity: int = 10_000, clock: Clock | None = None) -> None:
        super().__init__(f"pool-{name}")
        # Constant after construction.
        self.capacity = capacity
        self._clock = clock or Clock()
        # True for each job; None ends the thread.
        self._calls: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # Guarded by _lock: the jobs of each connection of each address, in the order of their turns; the time since
        # which each job waits, in order; bytes of those and of the running one; their shares; and the shares of jobs
        # put off.
        self._lines: dict[bytes | None, dict[bytes | None, deque[_Job]]] = {}
        self._number = 0
        self._since: dict[int, float] = {}
        self._held = 0
        self._shares = Shares(FEW_WAITING_BYTES)
        self._put_off = Shares(FEW_WAITING_BYTES)
        #: True once a stop has waited long enough: no further request is handled.
        self._lets_go = False

    def submit(
        self, job: Callable[[], None], size: int = 0, conn: Connection | None = None, answered: bool = True
    ) -> bool:
        """Queue a job with a request of `size` bytes; False if the queue is full, or `conn` has used up its share.

        A job whose answer goes to `conn` begins when that peer has taken enough of its earlier answers, or has gone.
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
        lines = self._lines.setdefault(None if whose is None else address_of(whose), {})
        lines.setdefault(whose, deque()).append(job)

    def _next(self) -> _Job | None:
        """Wait for a job; None at the end, after all jobs that were queued before."""
        if self._calls.get() is None:
            return None
        with self._lock:
            address = next(iter(self._lines))
            lines = self._lines.pop(address)
            whose = next(iter(lines))
            line = lines.pop(whose)
            job = line.popleft()
            if line:
                lines[whose] = line  # behind the others
            if lines:
                self._lines[address] = lines
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
        """Return the number of waiting jobs and the first one's age. Any thread."""
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
                if conn is None or not self._lets_go:
                    job.run()
            except Exception:
                logger.exception("pool: job failed name=%s", self.name)
                if conn is not None and job.answered:
                    conn.close()  # it would wait for an answer in vain
            if not job.resumed:
                with self._lock:
                    self._held -= job.size
                    assert self._held >= 0, "a job frees what it took, once"
                    self._shares.give(None if conn is None else conn.born_host, job.size)
            if conn is not None:
                conn.leave_place(job.size)
                if job.resumed:
                    conn.resumed()
            del job, conn  # an idle pool keeps no request

    def _keep_for_later(self, job: _Job, conn: Connection) -> None:
        """Put a job off and free its place, so that a peer which takes nothing keeps no other out of the pool."""
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

    def stop(self, deadline: float = 5.0) -> bool:
        """Also let go of the requests that still wait at the deadline: the parts that would handle them end next."""
        if super().stop(deadline):
            return True
        self._lets_go = True
        return False


class Gate(Protocol):
    """Decides which requests a peer may make. guard: compiled code that lets pass what the gate would admit; None
    without."""

    guard: Any

    def watches(self, code: int) -> bool:
        """True if this gate checks requests with `code`. Called once, when the code is added to a table."""

    def admit(self, request: RemotingCommand, conn: Connection) -> Witness | None:
        """Raise RefusedRequest (NO_PERMISSION) if the peer may not. On the I/O thread, before any handler or pool.

        May return a witness, which is called as the request proceeds.
        """


class _Entry(NamedTuple):
    handler: Handler
    pool: WorkerPool | None
    gates: tuple[Gate, ...]
    at_once: Handler | None = None


class Dispatcher:
    """The table of one listening port; ports may share handlers, pools and gates, not tables."""

    def __init__(self, pools: dict[str, WorkerPool], gates: tuple[Gate, ...] = (), clock: Clock | None = None) -> None:
        """gates: called in their order; one refusal is enough. clock: for the pools that are made here."""
        # Filled before the first connection, constant afterwards.
        self._handlers: dict[int, _Entry] = {}
        self._hot: dict[bytes, tuple[Callable[[memoryview], Frame[Any]], HotHandler]] = {}
        self._runs: dict[int, Any] = {}
        # Checks the frames of `_runs` first; None without access control.
        self._guard: Any = None
        #: Handles the usual frames of a read; None in the pure twin.
        self.runner: Any = None
        self._pools = pools
        self._gates = gates
        self._clock = clock
        # Owned by remoting-io.
        self._lines: FewLines | None = None
        #: True while no peer of this port is read from. On remoting-io.
        self.paused = False
        #: Reason to refuse all jobs that still wait in a pool: the part that would handle them has ended. Set once.
        self.ended: RefusedRequest | None = None

    def add(self, code: int, handler: Handler, pool: str | None = None, at_once: Handler | None = None) -> None:
        """Serve `code` inline (under 0.2 ms, never blocking), or in the pool of that name, made on first use.

        at_once: tried inline before the pool gets the request; it returns None if it has no answer without waiting.
        """
        where = None if pool is None else self.pool(pool)
        self._handlers[code] = _Entry(handler, where, self._gates_before(code), at_once)

    def _gates_before(self, code: int) -> tuple[Gate, ...]:
        return tuple(gate for gate in self._gates if gate.watches(code))

    def pool(self, name: str) -> WorkerPool:
        """Return the pool of that name, made on first use."""
        worker = self._pools.get(name)
        if worker is None:
            worker = self._pools[name] = WorkerPool(name, clock=self._clock)
        return worker

    def add_hot(self, code: int, fields: type, handler: HotHandler) -> None:
        """Give `handler` the requests whose JSON header begins with `code` and is a Frame[fields]; `add` the code, too,
        for all other forms.

        Not used if a gate watches the code: a gate checks fields that `fields` leaves out. In the pure twin
        `access/pure_guard.py` checks those, too.
        """
        if self._is_hot(code):
            self._hot[hot_prefix(code)] = (msgspec.json.Decoder(Frame[fields], strict=False).decode, handler)  # type: ignore[valid-type]

    def _is_hot(self, code: int) -> bool:
        return not self._gates_before(code)

    def _empty(self) -> Dispatcher:
        """Return one with the same gates and no codes."""
        return Dispatcher(self._pools, self._gates, self._clock)

    def add_runs(self, code: int, runs: Any) -> None:
        """Have `runs` of the compiled twin handle the usual frames of `code` before any other way; None: not used.

        Not used if a gate watches the code, unless it is the only one and has a guard.
        """
        gates = self._gates_before(code)
        if len(gates) == 1 and gates[0].guard is not None:
            self._guard = gates[0].guard
        elif gates:
            return
        if runs is not None:
            self._runs[code] = runs
            self.runner = self._new_runner()

    def _new_runner(self) -> Any:
        return FrameRunner(self._runs, self._guard) if self._runs else None

    def give(self, code: int, handler: Handler) -> None:
        """Have all requests of a code handled by `handler`, inline, in any form. Before it serves."""
        self.add(code, handler)
        self._hot.pop(hot_prefix(code), None)
        if self._runs.pop(code, None) is not None:
            self.runner = self._new_runner()

    def wrap(self, code: int, before: Callable[[], None]) -> None:
        """Call `before` first, which may refuse by raising. Before it serves; for a code without a hot way."""
        entry = self._handlers.get(code)
        if entry is None:
            return
        handler = entry.handler

        def first(request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
            before()
            return handler(request, conn)

        self._handlers[code] = entry._replace(handler=first, at_once=None)

    @property
    def codes(self) -> set[int]:
        return set(self._handlers)

    def without(self, *codes: int) -> Dispatcher:
        """Return a copy for a port that does not serve `codes` (pulls on the VIP port)."""
        copy = self._empty()
        copy._handlers = {code: entry for code, entry in self._handlers.items() if code not in codes}
        gone = {hot_prefix(code) for code in codes}
        copy._hot = {prefix: handler for prefix, handler in self._hot.items() if prefix not in gone}
        copy._runs = {code: runs for code, runs in self._runs.items() if code not in codes}
        copy._guard = self._guard
        copy.runner = copy._new_runner()
        return copy

    def dispatch(self, conn: Connection, view: memoryview, header: int, end: int, meta: int) -> None:
        """Handle a frame whose header begins at `header`; meta: its second word. Raises FrameError for a bad header."""
        body = header + (meta & 0xFFFFFF)
        if body > end or body - header > MAX_HEADER_BYTES:
            self._refuse_header(conn, view, header, end, meta)
            return
        if meta < 0x1000000:
            hot = self._hot.get(bytes(view[header : header + HOT_PREFIX_BYTES]))
            if hot is not None:
                decode, handler = hot
                try:
                    frame = decode(view[header:body])
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    pass  # the decoder below tells what is wrong, or takes it
                else:
                    handler(conn, frame, view[body:end])
                    return
        self._dispatch_cold(conn, view, header, end, meta)

    def dispatch_one_way(self, conn: Connection, view: memoryview, header: int, end: int, meta: int) -> None:
        """Handle a frame as `dispatch` does if it wants no answer; its peer has hung up."""
        if not self.wants_answer(view, header, end, meta):
            self.dispatch(conn, view, header, end, meta)

    def wants_answer(self, view: memoryview, header: int, end: int, meta: int) -> bool:
        """True if a whole frame is a request that is no one-way one; False for a bad frame."""
        found = peek(meta >> 24, view[header : min(end, header + (meta & 0xFFFFFF))])
        return found is not None and not found.flag & (FLAG_ONEWAY | FLAG_RESPONSE)

    def _dispatch_cold(self, conn: Connection, view: memoryview, header: int, end: int, meta: int) -> None:
        """Handle a frame as a command. Its header is of a right size."""
        body = header + (meta & 0xFFFFFF)
        size = body - header
        if size > _MANY_FIELDS_BYTES and bytes(view[header:body]).count(b'":') > _MANY_FIELDS:
            self._refuse_header(conn, view, header, end, meta)
            return
        try:
            request = decode_parts(meta >> 24, view[header:body], bytes(view[body:end]))
        except HeaderTextError as error:  # from a client that writes another encoding: the frames behind it are sound
            self._refuse_header(conn, view, header, end, meta, str(error))
            return
        if request.flag & FLAG_RESPONSE:
            conn.on_response(request)
            return
        self.dispatch_request(conn, request, size)

    def _refuse_header(
        self, conn: Connection, view: memoryview, header: int, end: int, meta: int, why: str | None = None
    ) -> None:
        """Refuse a header that is too long, or for the reason `why`: answer the request as far as the header shows it,
        else raise FrameError."""
        size = meta & 0xFFFFFF
        found = peek(meta >> 24, view[header : header + size]) if header + size <= end else None
        if found is None:
            raise FrameError(why or f"header of {size} bytes in a frame of {end - header + 8}")
        self.tell("dispatcher: header of %d bytes refused code=%d from=%s", size, found.code, conn.remote_host)
        limit = f"{MAX_HEADER_BYTES} bytes" if size > MAX_HEADER_BYTES else f"{_MANY_FIELDS} fields"
        text = why or f"the header is too long: it has {size} bytes, at most {limit} are taken"
        if found.flag & FLAG_RESPONSE:
            # The requester hears of it now, not after its time-out.
            answer = RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"the client's answer cannot be read: {text}")
            answer.opaque = found.opaque
            conn.on_response(answer)
        elif not found.flag & FLAG_ONEWAY:
            code = ResponseCode.MESSAGE_ILLEGAL if found.code in SEND_CODES else ResponseCode.SYSTEM_ERROR
            conn.answer(found.opaque, RemotingCommand.response(code, text))

    def tell(self, text: str, *arguments: object) -> None:
        """Log that a peer has sent something that cannot be read, unless that was logged often in the last minute."""
        if self._lines is None:
            from ..few_lines import FewLines

            self._lines = FewLines(logger.info, _TOLD, _TELL_S, (self._clock or Clock()).monotonic)
        self._lines.log(text, *arguments)

    def is_send(self, view: memoryview, header: int, end: int, meta: int, whole: bool) -> bool:
        """True if a frame stores messages, as far as `view[header:end]` shows; False for a bad frame."""
        codec = meta >> 24
        if codec == CODEC_JSON:
            prefix = bytes(view[header : min(header + HOT_PREFIX_BYTES, end)])
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
        if entry.gates:
            if not self._is_admitted(entry.gates, request, conn):
                return
            caller, size = request.caller, header_bytes + len(request.body)
            if caller is not None and not caller.passes(
                request, conn, size, lambda: self._proceed(entry, request, conn, header_bytes)
            ):
                return
        self._proceed(entry, request, conn, header_bytes)

    def _proceed(self, entry: _Entry, request: RemotingCommand, conn: Connection, header_bytes: int) -> None:
        """Handle a request that was admitted."""
        handler, pool, _, at_once = entry
        if pool is None:
            self._answer(handler, request, conn)
            return
        if at_once is not None and self.ended is None:
            try:
                response = at_once(request, conn)
            except Exception as error:
                response = _answer_to(error, request, conn)
            if response is not None:
                if request.witness is not None:
                    request.witness.begins(request)
                conn.respond(request, response)
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
        except Exception as error:  # a gate that fails refuses
            conn.respond(request, _answer_to(error, request, conn))
            return False
        return True

    def _answer(self, handler: Handler, request: RemotingCommand, conn: Connection) -> None:
        try:
            if self.ended is not None:
                raise RefusedRequest(self.ended.code, self.ended.remark)  # raising `ended` itself would keep frames
            if request.witness is not None:
                request.witness.begins(request)
            response = handler(request, conn)
        except Exception as error:
            response = _answer_to(error, request, conn)
        if response is not None:
            conn.respond(request, response)


class Meanwhile(Dispatcher):
    """Dispatcher of a port whose broker is being replaced: refuses every request; none is read while `paused`."""

    def __init__(self) -> None:
        super().__init__({})
        self.refusal = RefusedRequest(ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now")

    def refuse_because(self, why: str) -> None:
        """Set the reason in the refusals."""
        self.refusal = RefusedRequest(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {why}")

    def dispatch_request(self, conn: Connection, request: RemotingCommand, header_bytes: int = 0) -> None:
        conn.respond(request, RemotingCommand.response(self.refusal.code, self.refusal.remark))


def _answer_to(error: Exception, request: RemotingCommand, conn: Connection) -> RemotingCommand:
    """Return the response for an error. Called while the exception is handled."""
    if isinstance(error, RefusedRequest):
        return RemotingCommand.response(error.code, str(error))
    if isinstance(error, QueueBroken):
        return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, str(error))
    logger.exception("dispatcher: request failed code=%d from=%s", request.code, conn.remote_host)
    return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
