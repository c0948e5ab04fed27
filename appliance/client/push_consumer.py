"""`PushConsumer`: a member of a group whose messages are handed to functions. Java's push consumer."""

from __future__ import annotations

import enum
import inspect
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from .acts import Acts, finish, is_async
from .allocation import Allocation
from .core.group import Begin, check_begin
from .core.handling import DONE, Outcome, outcome_of
from .core.inspection import directly
from .core.ordered_group import OrderedGroup
from .core.push_group import Batch, Direct, Handling, PushGroup, PushHeld
from .ending import SIGNALS, ended_by, entry_of
from .errors import Closed, InvalidOption, Reject, Retry, Suspend
from .hooks import ConsumeCall, after_consume, before_consume
from .message import CloseReport, ReceivedMessage, TopicStats
from .notes import logger
from .session import Session
from .shells.shell import Joining
from .stacks import of_thread
from .subscribing import require_tags, subscription_of
from .wire import RETRY_PREFIX

if TYPE_CHECKING:
    from types import TracebackType

    from .core.push_group import OffsetFile

#: Takes a message, or a list of them if the consumer's `batch` is more than 1.
Handler: TypeAlias = Callable[[Any], object]
GivenHandler = TypeVar("GivenHandler", bound=Callable[[Any], object])

_COMMIT_S = 5.0
#: Deliveries after the first one, unless told otherwise: an ordered consumer gets its message again and again.
_MOST_RETRIES = 16
_NO_END = 2147483647


class PushActs:
    """A push consumer but for its calls."""

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        ordered: bool,
        broadcast: bool,
        start: Begin,
        workers: int,
        batch: int,
        max_attempts: int | None,
        handler_timeout: float,
        cache: int,
        cache_bytes: int,
        allocation: Allocation,
    ) -> None:
        check_begin(start)
        if not 1 <= workers <= 1000 or not 1 <= batch <= 1024 or cache < 1 or cache_bytes < 1:
            raise InvalidOption(
                "workers are 1 to 1000, batch is 1 to 1024, cache_messages and cache_bytes are 1 or more."
            )
        if (max_attempts is not None and max_attempts < 1) or not handler_timeout > 0:
            raise InvalidOption("max_attempts is None or 1 or more, handler_timeout is seconds, more than 0.")
        # Constant after construction.
        self.group = group
        self._session = session
        self._batch = batch
        self._workers = session.workers(f"rocketbox-{group}", workers, self._working)
        #: Rings when the last handler has ended.
        self._idle = session.bell(session.shell.lock)
        self._offsets = session.local_offsets(group) if broadcast else None
        offsets: OffsetFile | None = self._offsets
        retries = (_NO_END if ordered else _MOST_RETRIES) if max_attempts is None else max_attempts - 1
        make = OrderedGroup if ordered else PushGroup
        self._core = make(
            group,
            session.core.surroundings,
            begin=start,
            wake=self._idle.ring,
            handling=Handling(cache, cache_bytes, batch, retries, handler_timeout),
            offsets=offsets,
            dispatch=self._workers.put,
            allocation=allocation,
        )
        self._core.stack_of = of_thread
        self._is_ordered = ordered
        self._core.settings |= {
            "PROP_CONSUMEORDERLY": "true" if ordered else "false",
            "PROP_THREADPOOL_CORE_SIZE": str(workers),
            "consumeMessageBatchMaxSize": str(batch),
            "consumeTimeout": f"{handler_timeout / 60:g}",
            "maxReconsumeTimes": str(retries),
            "pullThresholdForQueue": str(cache),
        }
        #: By topic. Not changed after the start.
        self._handlers: dict[str, Handler] = {}
        #: Held while it leaves its group.
        self._leaving = session.mutex()
        # Guarded by lock.
        self._lock = threading.Lock()
        #: Promise of the membership, once it was begun.
        self._beginning: Any = None
        self._joining: Joining | None = None
        self._report: CloseReport | None = None

    @property
    def is_closed(self) -> bool:
        return self._core.is_stopping

    @property
    def has_left(self) -> bool:
        """True once it has left its group, so that this client can have another member."""
        return self._core.is_closed and self._session.core.groups.get(self.group) is not self._core

    # --- what to read

    @overload
    def subscribe(
        self, topic: str, tags: str = "*", *, sql: str | None = None, handler: None = None
    ) -> Callable[[GivenHandler], GivenHandler]: ...

    @overload
    def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None, handler: Handler) -> Handler: ...

    def subscribe(
        self, topic: str, tags: str = "*", *, sql: str | None = None, handler: Handler | None = None
    ) -> Handler | Callable[[GivenHandler], GivenHandler]:
        """Have a function handle the messages of a topic; a decorator without `handler`. It comes before the start.

        tags: "paid", "paid || refunded", or "*" for all. sql: in their place a condition on properties, as "region =
        'EU' AND price > 10", if brokers have `enablePropertyFilter`. All members of the group have to subscribe alike.
        Raises InvalidOption.
        """
        require_tags(tags)
        if handler is None:
            return lambda given: self._subscribe(topic, tags, sql, given)
        return self._subscribe(topic, tags, sql, handler)

    def _subscribe(self, topic: str, tags: str, sql: str | None, handler: GivenHandler) -> GivenHandler:
        self._check_open()
        topic = self._session.named(topic)
        subscription = subscription_of(topic, tags, sql, self._session.clock.wall_ms())
        if not callable(handler) or (is_async(handler) and not self._session.takes_coroutines):
            raise InvalidOption(f"A handler is a plain function, not {handler!r}.")
        if self._beginning is not None:
            raise InvalidOption("subscribe() comes before start(): make another consumer.")
        with self._session.shell.lock:
            self._core.subscriptions[topic] = subscription
        self._handlers[topic] = handler
        return handler

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that have a handler, as brokers name them."""
        return tuple(self._handlers)

    def assignment(self) -> list[Any]:
        """The queues that this member reads now; those with messages that come again are among them."""
        self._session.check_process()
        with self._session.shell.lock:
            return sorted(self._core.held)

    # --- its life

    def _starting(self) -> Acts[None]:
        """Join the group, unless that has begun. If the caller is interrupted, it goes on."""
        self._check_open()
        if not self._handlers:
            raise InvalidOption("Say what to handle first: subscribe(topic).")
        if self._offsets is not None and self._beginning is None:
            yield self._session.call(self._offsets.load)
        self._session.begin()
        core, session = self._core, self._session
        with self._lock:
            if self._beginning is None:
                self._workers.start()
                promised, complete = session.promise()
                self._joining = Joining(session.shell, session.core.join(core, core.start(), _COMMIT_S), complete)
                self._beginning = promised
        if self._joining is not None:
            self._joining.begin()
        try:
            yield session.result(self._beginning)
        except Exception:
            with session.shell.lock:
                core.is_stopping = core.is_closed = True
            yield self._workers.end(0.0)
            raise

    def stats(self) -> list[TopicStats]:
        with self._session.shell.lock:
            rates = sorted(self._core.rates.items())
            found = [(topic, one.consumed, one.failed) for topic, one in rates if not topic.startswith(RETRY_PREFIX)]
        return [TopicStats(topic, self.group, consumed=done, failed=failed) for topic, done, failed in found]

    def pause(self) -> None:
        """Stop fetching; messages that were fetched are handled."""
        self._session.check_process()
        with self._session.shell.lock:
            self._core.is_paused = True

    def resume(self) -> None:
        self._session.check_process()
        with self._session.shell.lock:
            self._core.is_paused = False
            resuming = self._core.resume_all()
        self._session.shell.start(resuming)

    # --- handling, in the workers' threads

    def _working(self, held: PushHeld | Direct) -> Acts[None]:
        if isinstance(held, Direct):
            yield from self._handling_directly(held)
            return
        lock, core = self._session.shell.lock, self._core
        with lock:
            batch = core.begin_batch(held)
        if batch is not None:
            outcome: Outcome | None = None
            if self._session.has_threads:
                batch.thread = threading.get_ident()
            try:
                outcome = yield from self._handling(batch)
            finally:
                if outcome is DONE and not self._is_ordered:
                    with lock:
                        left = core.has_done(batch)
                else:
                    left = core.finish(batch, outcome)
                if left is not None:
                    self._session.shell.start(left)

    def _handling(self, batch: Batch) -> Acts[Outcome]:
        try:
            yield from self._calling(batch.topic, batch.messages)
        except BaseException as error:
            if self._session.ends_worker(error):
                raise
            try:
                self._log(batch, error)
                return outcome_of(error, batch.messages)
            except Exception:  # as for Retry(after="soon"); it must not end the thread and drop the message
                logger.exception("group %s cannot tell what a handler raised, and gets its message again", self.group)
                return Outcome(batch.messages)
        return DONE

    def _handling_directly(self, direct: Direct) -> Acts[None]:
        """Handle a message for an administrator, and answer."""
        begin = self._session.clock.monotonic()
        result, remark = "CR_SUCCESS", ""
        try:
            yield from self._calling(direct.message.full_topic, [direct.message])
        except BaseException as error:
            if self._session.ends_worker(error):
                raise
            if isinstance(error, Retry | Reject | Suspend):
                result, remark = "CR_LATER", f"{type(error).__name__}: {error}"
            else:
                result, remark = "CR_THROW_EXCEPTION", "".join(traceback.format_exception(error, limit=-20))
            logger.warning("group %s handled %r for an administrator: %s", self.group, direct.message, remark)
        finally:
            with self._session.shell.lock:
                self._core.directs -= 1
        spent_ms = round((self._session.clock.monotonic() - begin) * 1000)
        direct.reply(directly(result, remark, spent_ms, self._is_ordered))

    def _calling(self, topic: str, messages: list[ReceivedMessage]) -> Acts[None]:
        """Call the handler of a topic, between the hooks. Raises what it raises."""
        handler = self._handlers.get(topic)
        if handler is None:
            raise InvalidOption(f"Group {self.group} has no handler for the topic {topic}.")
        self._session.shown(messages)
        hooks = self._session.hooks
        call = ConsumeCall(self.group, tuple(messages)) if hooks else None
        failed: BaseException | None = None
        if call is not None:
            before_consume(hooks, call)
        try:
            result = yield self._session.call(handler, messages if self._batch > 1 else messages[0])
            if result is not None and _is_no_end(result):
                raise InvalidOption(f"A handler returned {result!r}: it is done when it returns, and raises if not.")
        except BaseException as error:
            failed = error
            raise
        finally:
            if call is not None:
                after_consume(hooks, call, failed)

    def _log(self, batch: Batch, error: BaseException) -> None:
        first: ReceivedMessage = batch.messages[0]
        what = f"{len(batch.messages)} messages, the first is {first!r}" if len(batch.messages) > 1 else repr(first)
        if isinstance(error, Reject):
            logger.warning("group %s rejects %s: %s", self.group, what, error)
        elif isinstance(error, Retry) or (isinstance(error, Suspend) and self._is_ordered):
            logger.debug("group %s gets %s again: %s", self.group, what, error)
        else:
            logger.warning("a handler of %s failed, attempt %d: %s", self.group, first.attempt, what, exc_info=error)

    # --- the end

    def _closing(self, timeout: float) -> Acts[CloseReport]:
        return self.leaving(self._session.clock.monotonic() + timeout)

    def draining(self, deadline: float) -> Acts[float]:
        """Stop handing out messages and wait for running handlers, until the deadline by the client's clock. Returns
        the deadline for what comes next: a handler that closes its own consumer cannot wait for itself."""
        if self._workers.is_own():
            deadline = 0.0
        with self._idle.lock:
            self._core.stop()
        yield self._idle.wait_for(lambda: not self._core.active, max(0.0, deadline - self._session.clock.monotonic()))
        return deadline

    def leaving(self, deadline: float) -> Acts[CloseReport]:
        """Do the same as `close`, with a deadline by the client's clock."""
        session = self._session
        if session.is_parents:
            return CloseReport()
        deadline = yield from self.draining(deadline)
        latest = max(deadline, session.clock.monotonic() + session.timeout)
        if not (yield session.acquire(self._leaving, latest - session.clock.monotonic())):
            return CloseReport(0, len(self._core.held))  # another call closes it, and has a later deadline
        try:
            if self._report is not None:
                return self._report
            uncommitted: int | None = 0
            still_running: tuple[str, ...] = ()
            if self._beginning is not None:
                uncommitted = yield session.wait_until(self._core.leave(True), latest)
                still_running = yield self._workers.end(deadline)
            with session.shell.lock:
                self._core.is_closed = True
                session.core.part(self._core)
            left = len(self._core.held) if uncommitted is None else uncommitted
            self._report = CloseReport(0, left, still_running)
        finally:
            self._leaving.release()
        self._has_ended()
        return self._report

    def _has_ended(self) -> None:
        """Called at the end, for `run`."""
        raise NotImplementedError

    def _check_open(self) -> None:
        if self._core.is_stopping:
            raise Closed(f"The consumer of group {self.group} is closed: make a new one.")
        self._session.check_usable()


class PushConsumer(PushActs):
    """Made by `Client.push_consumer`.

        consumer = client.push_consumer("billing")

        @consumer.subscribe("orders", tags="paid || refunded")
        def bill(message):
            charge(message.json())

        consumer.run()

    A handler that returns is done with its message; one that raises gets it again, later and later, and after
    `max_attempts` it is a dead letter. `Retry`, `Reject` and, for ordered consumers, `Suspend` say what else to do.
    Delivery is at least once: what a handler had begun when the process died comes again.
    """

    def __init__(self, session: Session, group: str, **options: Any) -> None:
        super().__init__(session, group, **options)
        #: Has an entry at the end, for `run`. A signal may come at any moment: this can be put to in any.
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()

    def start(self) -> PushConsumer:
        """Join the group and have messages handled from now on, by threads of this consumer. Returns the consumer.

        Raises NoNameServer; RequestRefused if a broker does not take an `sql` condition; BadAnswer or OSError if the
        offsets of a broadcasting consumer cannot be read. Later outages are logged and retried.
        """
        finish(self._starting())
        return self

    def run(self, signals: Iterable[signal.Signals] = SIGNALS) -> CloseReport:
        """Start, wait for one of the signals or for `close`, and close; a second signal ends the process as it would
        without this consumer. Signals are only for the main thread."""
        try:
            with ended_by(self._ended, signals):
                self.start()
                entry_of(self._ended)
        finally:
            report = self.close()
        return report

    def close(self, timeout: float = 30.0) -> CloseReport:
        """Stop fetching, wait for running handlers, commit, leave the group. Messages that were fetched and not begun
        go to other members, or come with the next start.

        Returns a report of what was not done within `timeout` seconds. From within a handler it does not wait: that
        message comes again. A second call returns the same report.
        """
        return finish(self._closing(timeout))

    def _has_ended(self) -> None:
        self._ended.put(None)

    def __enter__(self) -> PushConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_no_end(result: object) -> bool:
    """True for what a handler returns that has not done its work: a status of another client, or work that is only
    begun, as by an `async` method or a function with `yield`."""
    if result is False or isinstance(result, enum.Enum):
        return True
    return inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)
