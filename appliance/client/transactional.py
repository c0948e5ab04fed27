"""`TransactionalProducer`: messages that are delivered if, and only if, something else of yours succeeded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from .acts import Acts, finish
from .core.steps import Steps
from .core.transactions import Decision, Half, end, half_of
from .errors import ClientError, InvalidOption, StoredUnconfirmed
from .message import Message, ReceivedMessage, SendResult
from .options import ProducerOptions
from .packing import SendOptions, Where, taken_apart
from .producer import Producer, ProducerActs
from .session import Session

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Unpack

logger = logging.getLogger("rocketbox.client")

#: Time for telling a decision, or a third of the client's time-out if that is longer. The broker asks `check` if it got
#: none, so there is little use in waiting.
_DECISION_S = 1.0
#: Most checks that wait; brokers ask again for what is beyond them.
_MOST_CHECKS = 2000


class TransactionalActs(ProducerActs):
    """A producer of transactions but for its calls."""

    #: Brokers ask the parent's how its transactions ended.
    survives_forks = False

    def __init__(self, session: Session, group: str, check: Callable[[ReceivedMessage], object]) -> None:
        super().__init__(session, group, ProducerOptions())
        # Constant after construction.
        self._check = check
        self._checks = session.worker("rocketbox-checks", _MOST_CHECKS)

    def _starting(self, topics: tuple[str, ...]) -> Acts[None]:
        self._session.check_usable()
        self._register()
        deadline = self._session.clock.monotonic() + self._session.timeout
        yield self._session.wait(self._session.core.announce(tuple(map(self._session.named, topics)), deadline))

    def retiring(self, deadline: float) -> Acts[None]:
        self._checks.drop()
        yield from super().retiring(deadline)
        yield self._checks.join(deadline - self._session.clock.monotonic())

    def stopping(self, deadline: float) -> Acts[tuple[str, ...]]:
        ended = yield self._checks.join(deadline - self._session.clock.monotonic())
        return (*(yield from super().stopping(deadline)), *(() if ended else (self._checks.name,)))

    def _register(self) -> None:
        super()._register()
        core = self._session.core
        with self._session.shell.lock:
            fresh = self.group not in core.checkers
            core.checkers[self.group] = self._was_asked
        if fresh:  # connections that are open already are this group's, too
            self._session.shell.start(core.beat_all())

    # --- for transactions

    def sending_half(self, message: Message, where: Where) -> Acts[tuple[SendResult, Half]]:
        """Send the half message. One that a broker stored less safely than it should is rolled back."""
        try:
            promised = yield from self._submitting(message, where, half=True)
            sent = yield self._session.result(promised)
            return sent, half_of(self.group, sent)
        except StoredUnconfirmed as error:
            try:
                yield from self.ending(half_of(self.group, error.result), Decision.ROLLBACK)
            except ClientError as failed:
                self._session.note(str(failed))
            raise

    def ending(self, half: Half, decision: Decision, remark: str | None = None) -> Acts[None]:
        """Tell the broker the decision."""
        yield self._session.wait(self._end(half, decision, remark))

    def note(self, error: ClientError) -> None:
        self._session.note(str(error))

    def _end(self, half: Half, decision: Decision, remark: str | None = None) -> Steps[None]:
        timeout = self._session.timeout
        deadline = self._session.clock.monotonic() + min(timeout, max(_DECISION_S, timeout / 3))
        return end(self._session.core.directory, half, decision, deadline, remark)

    # --- checks

    def _was_asked(self, half: Half, message: ReceivedMessage) -> None:
        """Have `check` called. Called with the lock, on the I/O thread."""
        self._checks.put_locked(partial(self._answer, half, message))

    def _answer(self, half: Half, message: ReceivedMessage) -> Any:
        return self._session.perform(self._answering(half, message))

    def _answering(self, half: Half, message: ReceivedMessage) -> Acts[None]:
        decision, remark = Decision.UNKNOWN, None
        self._session.shown([message])
        try:
            said = yield self._session.call(self._check, message)
            if not isinstance(said, Decision):
                raise InvalidOption(f"check returns a Decision, and returned {said!r}.")
            decision = said
        except Exception as error:
            remark = f"checkLocalTransactionState Exception: {type(error).__name__}"
            logger.exception("client: check failed, and is asked again: group=%s message=%r", self.group, message)
        try:
            yield self._session.shell.wait(self._end(half, decision, remark))
        except ClientError as error:
            self._session.note(str(error))


class TransactionalProducer(TransactionalActs, Producer):
    """Made by `Client.transactional_producer`. A producer like others, and of transactions.

        with producer.transaction("orders", "17", keys=["order-17"]):
            order.save()

    The message is stored before the block begins, where no consumer sees it. When the block ends it is delivered; when
    the block raises, the broker hears that this proves nothing, and calls `check` later, as it does when this process
    dies: it asks any producer of the group, so all of them need a `check` that can say what became of any message.
    """

    def transaction(
        self, message: Message | str, body: bytes | str | None = None, **options: Unpack[SendOptions]
    ) -> Transaction:
        """Return a transaction for a `with` block, which sends the message as it begins. The arguments are those of
        `send`; no message of a transaction has a delay. Raises InvalidMessage, Closed."""
        self._session.check_usable()
        return Transaction(self, *taken_apart(message, body, options))

    def start(self, *topics: str) -> None:
        """Answer the checks of these topics' brokers from now on, before anything is sent: for a process that takes
        over what another left. Raises NoNameServer, NoRoute, Closed."""
        finish(self._starting(topics))


class TransactionActs:
    """A transaction but for its calls."""

    result: SendResult

    def __init__(self, producer: TransactionalActs, message: Message, where: Where) -> None:
        # Constant after construction.
        self._producer = producer
        self._message = message
        self._where = where
        # Owned by the thread or task of the block.
        self._half: Half | None = None
        self._is_decided = False

    def _entering(self) -> Acts[None]:
        if self._half is not None:
            raise InvalidOption("A transaction is for one block: make another.")
        self.result, self._half = yield from self._producer.sending_half(self._message, self._where)

    def _deciding(self, decision: Decision) -> Acts[None]:
        if self._half is None or self._is_decided:
            raise InvalidOption("A transaction is decided once, in its `with` block.")
        self._is_decided = True
        yield from self._producer.ending(self._half, decision)

    def _leaving(self, kind: type[BaseException] | None) -> Acts[None]:
        if self._is_decided:
            return
        if kind is None:
            yield from self._deciding(Decision.COMMIT)
            return
        assert self._half is not None, "the block has begun"
        self._is_decided = True
        remark = f"executeLocalTransactionBranch exception: {kind.__name__}"
        try:
            yield from self._producer.ending(self._half, Decision.UNKNOWN, remark)
        except ClientError as failed:  # the broker checks without it
            self._producer.note(failed)


class Transaction(TransactionActs):
    """Made by `TransactionalProducer.transaction`, for one `with` block.

    The end of the block commits, unless `commit` or `rollback` was called in it; an exception that leaves it decides
    nothing. result: the place of the half message, once the block has begun; its `message_id` is the delivered
    message's, too.
    """

    def __enter__(self) -> Transaction:
        finish(self._entering())
        return self

    def commit(self) -> None:
        """Have the message delivered. Raises BrokerAway, RequestTimeout, RequestRefused, BadAnswer: the broker may have
        been told, and asks `check` if not. Raises Closed and ForkedError: it was not told. Raises InvalidOption when
        the transaction is decided."""
        finish(self._deciding(Decision.COMMIT))

    def rollback(self) -> None:
        """Have the message removed. Raises as `commit`."""
        finish(self._deciding(Decision.ROLLBACK))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finish(self._leaving(kind))
