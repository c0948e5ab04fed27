"""The client for asyncio: the same names and arguments as in `appliance.client`, and calls that wait are awaited.

    async with aio.Client("127.0.0.1:9876") as client:
        await client.producer().send("orders", "paid")

A client belongs to the event loop of its first call. It has no thread but for functions of yours that are no
coroutine functions; files and names are the loop's executor's. A caller that is cancelled while it waits has no
result; what was begun goes on, and `close` waits for it. Docstrings here say what differs.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from .acts import Acts, finish_awaiting, is_async
from .client import CLOSE_S, EXIT_S, ClientActs
from .core.pulling import Pulled
from .core.transactions import Decision
from .errors import ClientError, InvalidOption
from .message import CloseReport, Message, MessageQueue, ReceivedMessage, SendResult
from .options import ProducerOptions
from .packing import SendOptions, taken_apart
from .producer import ProducerActs
from .pull_consumer import POLL_MOST, PullActs
from .push_consumer import PushActs
from .reader import ReaderActs
from .session import Opening, Session
from .shells.shell import Done
from .shells.tasks import TaskBell, TaskShell, TaskWorker, TaskWorkers, is_own_end, settle
from .transactional import TransactionActs, TransactionalActs

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Unpack

    from .aio_admin import Admin

__all__ = ["Client", "Producer", "PullConsumer", "PushConsumer", "Reader", "Transaction", "TransactionalProducer"]

Result = TypeVar("Result")


class _Session(Session):
    """A session whose calls are awaited."""

    shell: TaskShell
    takes_coroutines = True

    def begin(self) -> None:
        """As of `Session`. Raises InvalidOption outside of this client's event loop."""
        self.check_usable()
        self.shell.bind()
        super().begin()

    def check_process(self) -> None:
        """As of `Session`. Raises InvalidOption in another event loop."""
        super().check_process()
        self.shell.check_loop()

    def abort(self) -> None:
        """End all connections at once, and refuse later calls."""
        self.is_closed = True
        self.shell.abort()

    def _make_shell(self) -> TaskShell:
        return TaskShell(self.core.opened, self.core.asked, self.notes, self.security)

    def perform(self, acts: Acts[Result]) -> Awaitable[Result]:
        return finish_awaiting(acts)

    async def wait_until(self, procedure: Generator[Any, Any, Result], deadline: float) -> Result | None:
        try:
            return await self.shell.wait(procedure, max(0.0, deadline - self.clock.monotonic()))
        except TimeoutError:
            return None

    def promise(self) -> tuple[asyncio.Future[Any], Done]:
        promised: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        return promised, partial(settle, promised)

    def result(self, promised: asyncio.Future[Result]) -> Awaitable[Result]:
        return asyncio.shield(promised)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        if is_async(function):
            return function(*arguments)
        return self.shell.in_thread(partial(function, *arguments))

    def call_later(self, worker: TaskWorker, act: Callable[[], None]) -> None:
        act()

    def stacks(self) -> str:
        from .stacks import of_tasks

        return of_tasks(self.shell.loop) + super().stacks()

    def bell(self, lock: object = None) -> TaskBell:
        return TaskBell()

    def mutex(self) -> asyncio.Lock:
        return asyncio.Lock()

    async def acquire(self, mutex: asyncio.Lock, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await mutex.acquire()
        except TimeoutError:
            return False

    def worker(self, name: str, most: int | None = None) -> TaskWorker:
        return TaskWorker(name, most)

    def workers(self, name: str, most: int, work: Callable[[Any], Acts[None]]) -> TaskWorkers:
        return TaskWorkers(name, most, lambda thing: finish_awaiting(work(thing)))

    def ends_worker(self, error: BaseException) -> bool:
        return is_own_end(error) or isinstance(error, GeneratorExit)


class Producer(ProducerActs):
    """Made by `Client.producer`. Tasks may share it."""

    async def send(
        self, message: Message | str, body: bytes | str | None = None, **options: Unpack[SendOptions]
    ) -> SendResult:
        """Send a message and return its place. One whose caller is cancelled may be stored, and stays in flight until
        that is known."""
        return await (await self.submit(message, body, **options))

    async def submit(
        self, message: Message | str, body: bytes | str | None = None, **options: Unpack[SendOptions]
    ) -> asyncio.Future[SendResult]:
        """Send a message; return a future of its place, which may have callbacks. This waits only while the producer
        has as many messages in flight as allowed."""
        message, where = taken_apart(message, body, options)
        promised: asyncio.Future[SendResult] = await finish_awaiting(self._submitting(message, where))
        return promised

    def send_many(
        self, messages: Iterable[Message] | AsyncIterable[Message], window: int = 256
    ) -> AsyncIterator[SendResult | ClientError]:
        """Send messages with up to `window` of them in flight; yield what became of each, in their order: its place, or
        its error. `aclose` waits for what is in flight."""
        if window < 1:
            raise InvalidOption(f"window is 1 or more, not {window!r}.")
        return self._send_many(messages, window)

    async def _send_many(
        self, messages: Iterable[Message] | AsyncIterable[Message], window: int
    ) -> AsyncIterator[SendResult | ClientError]:
        pending: deque[asyncio.Future[SendResult] | ClientError] = deque()
        try:
            async for message in _each(messages):
                pending.append(await finish_awaiting(self._attempting(message)))
                if len(pending) >= window:
                    self._close_parcels()
                    yield await _outcome(pending.popleft())
            self._close_parcels()
            while pending:
                yield await _outcome(pending.popleft())
        finally:
            self._close_parcels()
            for one in pending:
                await _outcome(one)

    async def send_batch(self, messages: Sequence[Message], timeout: float | None = None) -> list[SendResult]:
        return await finish_awaiting(self._batching(messages, timeout))

    async def send_oneway(
        self, message: Message | str, body: bytes | str | None = None, **options: Unpack[SendOptions]
    ) -> None:
        await finish_awaiting(self._telling(*taken_apart(message, body, options)))

    async def request(
        self, message: Message | str, body: bytes | str | None = None, **options: Unpack[SendOptions]
    ) -> ReceivedMessage:
        return await finish_awaiting(self._requesting(*taken_apart(message, body, options)))

    async def reply(self, asked: ReceivedMessage, body: bytes | str, **options: Unpack[SendOptions]) -> SendResult:
        return await finish_awaiting(self._replying(asked, body, options))

    async def recall(self, sent: SendResult, timeout: float | None = None) -> None:
        await finish_awaiting(self._recalling(sent, timeout))

    async def flush(self, timeout: float | None = None) -> int:
        return await finish_awaiting(self._flushing(timeout))


async def _each(messages: Iterable[Message] | AsyncIterable[Message]) -> AsyncIterator[Message]:
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            yield message
    else:
        for message in messages:
            yield message


async def _outcome(pending: asyncio.Future[SendResult] | ClientError) -> SendResult | ClientError:
    if isinstance(pending, ClientError):
        return pending
    try:
        return await pending
    except ClientError as error:
        return error


class TransactionalProducer(TransactionalActs, Producer):
    """Made by `Client.transactional_producer`.

    async with producer.transaction("orders", "17", keys=["order-17"]):
        await order.save()
    """

    def transaction(
        self, message: Message | str, body: bytes | str | None = None, **options: Unpack[SendOptions]
    ) -> Transaction:
        """Return a transaction for an `async with` block."""
        self._session.check_usable()
        return Transaction(self, *taken_apart(message, body, options))

    async def start(self, *topics: str) -> None:
        await finish_awaiting(self._starting(topics))


class Transaction(TransactionActs):
    """Made by `TransactionalProducer.transaction`, for one `async with` block. A cancellation that leaves the block
    decides nothing, as any exception."""

    async def __aenter__(self) -> Transaction:
        await finish_awaiting(self._entering())
        return self

    async def commit(self) -> None:
        await finish_awaiting(self._deciding(Decision.COMMIT))

    async def rollback(self) -> None:
        await finish_awaiting(self._deciding(Decision.ROLLBACK))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await finish_awaiting(self._leaving(kind))


class PullConsumer(PullActs):
    """Made by `Client.pull_consumer`. One task takes messages; any may close.

        async for message in consumer.subscribe("orders"):
            await store(message)

    A cancellation takes no message: while a call waits it has none.
    """

    async def poll(self, timeout: float = 5.0, most: int = POLL_MOST) -> list[ReceivedMessage]:
        return await finish_awaiting(self._polling(timeout, most, iterates=False))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        message = await finish_awaiting(self._iterating())
        if message is None:
            raise StopAsyncIteration
        return message

    async def commit(self) -> None:
        await finish_awaiting(self._committing())

    async def committed(self, queue: MessageQueue) -> int | None:
        return await finish_awaiting(self._asking_committed(queue))

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        await finish_awaiting(self._seeking(queue, offset))

    async def seek_to_begin(self, queues: Iterable[MessageQueue] | None = None) -> None:
        await finish_awaiting(self._seeking_all("min", queues))

    async def seek_to_end(self, queues: Iterable[MessageQueue] | None = None) -> None:
        await finish_awaiting(self._seeking_all("max", queues))

    async def seek_to(self, time: datetime, queues: Iterable[MessageQueue] | None = None) -> None:
        await finish_awaiting(self._seeking_all(time, queues))

    async def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        await finish_awaiting(self._pausing(queues))

    async def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        await finish_awaiting(self._resuming(queues))

    async def close(self) -> int:
        return await finish_awaiting(self._closing())

    def abort(self) -> None:
        """End iterations and polls. For the client's end."""
        self._core.is_closed = True
        self._ready.ring()
        self._has_parted(None, None)

    async def __aenter__(self) -> PullConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.done_with_current()
        else:
            self._has_handled(error)
        await self.close()


class PushConsumer(PushActs):
    """Made by `Client.push_consumer`. Handlers are coroutine functions, in up to `workers` tasks, or plain functions,
    in as many threads. At the end of `close`, handlers that go on are cancelled: their messages come
    again."""

    def __init__(self, session: Session, group: str, **options: Any) -> None:
        super().__init__(session, group, **options)
        self._ended = asyncio.Event()

    async def start(self) -> PushConsumer:
        await finish_awaiting(self._starting())
        return self

    async def run(self, signals: Iterable[signal.Signals] = (signal.SIGTERM, signal.SIGINT)) -> CloseReport:
        """Start, wait for one of the signals, for `close` or for a cancellation, and close. A signal ends all runs that
        wait for it; handlers of the loop's own get it, too. The next one does what it would without these consumers.
        Signals are only for the main thread."""
        try:
            if threading.current_thread() is threading.main_thread():
                for number in signals:
                    _wait_for_signal(number, self._ended)
            await self.start()
            await self._ended.wait()
        finally:
            _wait_no_more(self._ended)
            report = await self.close()
        return report

    async def close(self, timeout: float = CLOSE_S) -> CloseReport:
        return await finish_awaiting(self._closing(timeout))

    def abort(self) -> None:
        """Cancel its handlers, and end `run`. For the client's end."""
        self._workers.cancel()
        self._has_ended()

    def _has_ended(self) -> None:
        self._ended.set()

    async def __aenter__(self) -> PushConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


#: Signal -> (its handler without the runs that wait for it, their events). Owned by the main thread's loop.
_awaited: dict[int, tuple[Any, list[asyncio.Event]]] = {}


def _wait_for_signal(number: int, ended: asyncio.Event) -> None:
    """Have a signal set an event. Not by `loop.add_signal_handler`, which has one handler for each signal, and forgets
    the one before."""
    if number not in _awaited:
        loop = asyncio.get_running_loop()
        _awaited[number] = (signal.getsignal(number) or signal.SIG_DFL, [])
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(_signalled, number))
    _awaited[number][1].append(ended)


def _wait_no_more(ended: asyncio.Event) -> None:
    """Put back the handlers of signals for which only this event waited."""
    for number, (before, waiting) in list(_awaited.items()):
        if ended in waiting:
            waiting.remove(ended)
            if not waiting:
                del _awaited[number]
                signal.signal(number, before)


def _signalled(number: int) -> None:
    for ended in list(_awaited.get(number, (None, ()))[1]):
        _wait_no_more(ended)
        ended.set()


class Reader(ReaderActs):
    """Made by `Client.reader`. Tasks may share it."""

    async def queues(self, topic: str) -> list[MessageQueue]:
        return await finish_awaiting(self._reading_queues(topic))

    async def pull(self, queue: MessageQueue, offset: int, max: int = 32, wait: float = 0.0) -> Pulled:
        return await finish_awaiting(self._pulling(queue, offset, max, wait))

    async def min_offset(self, queue: MessageQueue) -> int:
        return await finish_awaiting(self._asking(queue, "min"))

    async def max_offset(self, queue: MessageQueue) -> int:
        return await finish_awaiting(self._asking(queue, "max"))

    async def offset_at(self, queue: MessageQueue, time: datetime) -> int:
        return await finish_awaiting(self._asking_at(queue, time))

    async def committed(self, queue: MessageQueue, group: str) -> int | None:
        return await finish_awaiting(self._asking_committed(queue, group))


class Client(ClientActs[Producer, TransactionalProducer, PullConsumer, PushConsumer, Reader]):
    """A connection to a cluster, for the tasks of one event loop. It may be made before the loop runs.

    async with aio.Client("127.0.0.1:9876") as client:
        await client.producer().send("orders", "paid")
    """

    _session: _Session

    def _make_session(self, opening: Opening) -> _Session:
        return _Session(opening)

    def _make_producer(self, group: str, options: ProducerOptions) -> Producer:
        return Producer(self._session, group, options)

    def _make_transactional(self, group: str, check: Callable[[ReceivedMessage], object]) -> TransactionalProducer:
        return TransactionalProducer(self._session, group, check)

    def _make_pull(self, group: str, **options: Any) -> PullConsumer:
        return PullConsumer(self._session, group, **options)

    def _make_push(self, group: str, **options: Any) -> PushConsumer:
        return PushConsumer(self._session, group, **options)

    def _make_reader(self) -> Reader:
        return Reader(self._session)

    def admin(self) -> Admin:
        """Return an administrator of topics and groups."""
        from .aio_admin import Admin

        self._session.check_usable()
        return Admin(self._session)

    def transactional_producer(
        self, group: str, *, check: Callable[[ReceivedMessage], Decision | Awaitable[Decision]]
    ) -> TransactionalProducer:
        """Return the group's producer of transactions. check: a coroutine function, or a plain one."""
        return self._transactional(group, check)

    async def close(self, timeout: float = CLOSE_S) -> CloseReport:
        """As of `appliance.client.Client`. If this is cancelled, it ends everything at once: messages that no handler
        is done with come again, and sends in flight fail. Raises InvalidOption in another event loop."""
        if not self._session.is_parents:
            self._session.shell.check_loop()
        try:
            return await finish_awaiting(self._closing(timeout))
        except BaseException:
            self._session.abort()
            for handling in self._push_consumers.values():
                handling.abort()
            for consumer in self._consumers.values():
                consumer.abort()
            raise

    def _is_left_open(self) -> None:
        """Nothing: the loop has ended."""

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            for consumer in list(self._consumers.values()):
                consumer.done_with_current()
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt | asyncio.CancelledError)
        await self.close(EXIT_S if interrupted else CLOSE_S)
