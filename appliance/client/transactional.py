"""`TransactionalProducer`: messages that are delivered if, and only if, something else of yours succeeded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from .core.steps import Steps
from .core.transactions import Decision, Half, end, half_of
from .errors import ClientError, InvalidOption, StoredUnconfirmed
from .message import Message, ReceivedMessage, SendResult
from .producer import Producer, SendOptions, Where, taken_apart
from .session import Session
from .shells.worker import Worker

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Unpack

logger = logging.getLogger("rocketbox.client")

#: Most checks that wait; brokers ask again for what is beyond them.
_MOST_CHECKS = 2000


class TransactionalProducer(Producer):
    """Made by `Client.transactional_producer`. A producer like others, and of transactions.

        with producer.transaction("orders", "17", keys=["order-17"]):
            order.save()

    The message is stored before the block begins, where no consumer sees it. When the block ends it is delivered; when
    the block raises, the broker is told that this proves nothing, and asks `check` later, as it does when this process
    dies: it asks any producer of the group, so all of them need a `check` that can say what became of any message.
    """

    def __init__(self, session: Session, group: str, check: Callable[[ReceivedMessage], Decision]) -> None:
        super().__init__(
            session, group, retries=2, max_in_flight=10_000, max_in_flight_bytes=64 << 20, compress_over=4096
        )
        # Constant after construction.
        self._check = check
        self._checks = Worker("rocketbox-checks", session.shell.lock, _MOST_CHECKS)

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
        self._session.check_usable()
        self._register()
        deadline = self._session.clock.monotonic() + self._session.timeout
        self._session.wait(self._session.core.announce(topics, deadline))

    def retire(self, deadline: float) -> None:
        self._checks.drop()
        super().retire(deadline)
        self._checks.join(deadline - self._session.clock.monotonic())

    def stop(self, deadline: float) -> tuple[str, ...]:
        ended = self._checks.join(deadline - self._session.clock.monotonic())
        return (*super().stop(deadline), *(() if ended else (self._checks.name,)))

    def _register(self) -> None:
        super()._register()
        core = self._session.core
        with self._session.shell.lock:
            fresh = self.group not in core.checkers
            core.checkers[self.group] = self._was_asked
        if fresh:  # connections that are open already are this group's, too
            self._session.shell.start(core.beat_all())

    # --- for Transaction

    def _send_half(self, message: Message, where: Where) -> tuple[SendResult, Half]:
        """Send the half message. One that a broker stored less safely than it should is rolled back."""
        try:
            sent = self._submit(message, where, half=True).result()
            return sent, half_of(self.group, sent)
        except StoredUnconfirmed as error:
            try:
                self._end(half_of(self.group, error.result), Decision.ROLLBACK)
            except ClientError as failed:
                self._session.note(str(failed))
            raise

    def _end(self, half: Half, decision: Decision, remark: str | None = None) -> None:
        self._session.wait(self._ending(half, decision, remark))

    def _ending(self, half: Half, decision: Decision, remark: str | None = None) -> Steps[None]:
        deadline = self._session.clock.monotonic() + self._session.timeout
        return end(self._session.core.directory, half, decision, deadline, remark)

    # --- checks

    def _was_asked(self, half: Half, message: ReceivedMessage) -> None:
        """Have `check` called. Called with the lock, on the I/O thread."""
        self._checks.put_locked(partial(self._answer, half, message))

    def _answer(self, half: Half, message: ReceivedMessage) -> None:
        decision, remark = Decision.UNKNOWN, None
        try:
            said = self._check(message)
            if not isinstance(said, Decision):
                raise InvalidOption(f"check returns a Decision, and returned {said!r}.")
            decision = said
        except Exception as error:
            remark = f"checkLocalTransactionState Exception: {type(error).__name__}"
            logger.exception("client: check failed, and is asked again: group=%s message=%r", self.group, message)
        try:
            self._session.shell.wait(self._ending(half, decision, remark))
        except ClientError as error:
            self._session.note(str(error))


class Transaction:
    """Made by `TransactionalProducer.transaction`, for one `with` block.

    The end of the block commits, unless `commit` or `rollback` was called in it; an exception that leaves it decides
    nothing. result: the place of the half message, once the block has begun; its `message_id` is the delivered
    message's, too.
    """

    result: SendResult

    def __init__(self, producer: TransactionalProducer, message: Message, where: Where) -> None:
        # Constant after construction.
        self._producer = producer
        self._message = message
        self._where = where
        # Owned by the thread of the block.
        self._half: Half | None = None
        self._is_decided = False

    def __enter__(self) -> Transaction:
        if self._half is not None:
            raise InvalidOption("A transaction is for one block: make another.")
        self.result, self._half = self._producer._send_half(self._message, self._where)
        return self

    def commit(self) -> None:
        """Have the message delivered. Raises BrokerAway, RequestTimeout, RequestRefused, BadAnswer: the broker may have
        been told, and asks `check` if not. Raises Closed and ForkedError: it was not told. Raises InvalidOption when
        the transaction is decided."""
        self._decide(Decision.COMMIT)

    def rollback(self) -> None:
        """Have the message removed. Raises as `commit`."""
        self._decide(Decision.ROLLBACK)

    def _decide(self, decision: Decision) -> None:
        if self._half is None or self._is_decided:
            raise InvalidOption("A transaction is decided once, in its `with` block.")
        self._is_decided = True
        self._producer._end(self._half, decision)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_decided:
            return
        if kind is None:
            self.commit()
            return
        assert self._half is not None, "the block has begun"
        self._is_decided = True
        try:
            self._producer._end(
                self._half, Decision.UNKNOWN, f"executeLocalTransactionBranch exception: {kind.__name__}"
            )
        except ClientError as failed:  # the broker asks without being told
            self._producer._session.note(str(failed))
