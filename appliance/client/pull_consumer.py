"""`PullConsumer`: a member of a group that takes messages when it wants them. Java's lite pull consumer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from .acts import Acts, finish
from .allocation import Allocation
from .core.group import Begin, check_begin
from .core.pull_group import PullGroup
from .errors import ClientError, Closed, InvalidOption
from .hooks import ConsumeCall, after_consume, before_consume
from .message import MessageQueue, ReceivedMessage
from .notes import logger
from .session import Session
from .shells.shell import Joining, log_error
from .subscribing import subscription_of

if TYPE_CHECKING:
    from types import TracebackType


#: Most messages of a `poll`.
POLL_MOST = 32
_LEAST_COMMIT_S = 0.1


class PullActs:
    """A pull consumer but for its calls."""

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        auto_commit: float | None,
        start: Begin,
        cache: int,
        allocation: Allocation,
    ) -> None:
        if auto_commit is not None and auto_commit < _LEAST_COMMIT_S:
            raise InvalidOption(f"auto_commit is None or {_LEAST_COMMIT_S} seconds or more, not {auto_commit!r}.")
        check_begin(start)
        if cache < 1:
            raise InvalidOption(f"cache_messages is 1 or more, not {cache!r}.")
        # Constant after construction.
        self.group = group
        self._session = session
        self._auto_commit = auto_commit
        #: Notified, with the client's lock, when there are messages, an error, or the end.
        self._ready = session.bell(session.shell.lock)
        self._core = PullGroup(
            group,
            session.core.surroundings,
            begin=start,
            wake=self._ready.ring,
            cache=cache,
            allocation=allocation,
        )
        #: Rings when it has left its group.
        self._gone = session.bell(session.shell.lock)
        #: Number of queues that were not committed, once it has left. Guarded by the client's lock.
        self._left: int | None = None
        # Owned by the thread or task that takes messages.
        self._assigned: tuple[MessageQueue, ...] = ()
        #: Promise of the membership, once it was begun.
        self._beginning: Any = None
        self._joining: Joining | None = None
        self._iterates = False
        #: The messages given last, until they are done, as hooks know them; one at most.
        self._calls: list[ConsumeCall] = []

    @property
    def is_closed(self) -> bool:
        return self._core.is_closed

    @property
    def has_left(self) -> bool:
        """True once it has left its group, so that this client can have another member."""
        return self._core.is_closed and self._session.core.groups.get(self.group) is not self._core

    # --- what to read

    def subscribe(self, topic: str, tags: str = "*", *, sql: str | None = None) -> Self:
        """Share the topic's queues with the other members of the group; call it before the first message is taken.

        tags: "paid", "paid || refunded", or "*" for all. sql: in their place a condition on properties, as "region =
        'EU' AND price > 10", if brokers have `enablePropertyFilter`; the first message that is taken raises
        RequestRefused if a broker does not take it. All members have to subscribe alike. Returns the consumer. Raises
        InvalidOption.
        """
        self._check_open()
        topic = self._session.named(topic)
        subscription = subscription_of(topic, tags, sql, self._session.clock.wall_ms())
        if self._beginning is not None or self._assigned:
            raise InvalidOption(
                "subscribe() comes before the first message is taken, and not beside assign(): make another consumer."
            )
        with self._session.shell.lock:
            self._core.subscriptions[topic] = subscription
        return self

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, no matter which other consumers do; `Reader.queues` lists them. Called instead of
        `subscribe`.

        Raises InvalidOption.
        """
        self._check_open()
        if self._beginning is not None or self._core.subscriptions:
            raise InvalidOption(
                "assign() comes before the first message is taken, and not beside subscribe(): make another consumer."
            )
        self._assigned = tuple(dict.fromkeys(map(self._session.placed, queues)))
        if not self._assigned:
            raise InvalidOption("assign() needs a queue at least.")

    def assignment(self) -> list[MessageQueue]:
        """The queues that this member reads now."""
        self._session.check_process()
        with self._session.shell.lock:
            return sorted(self._core.held)

    # --- messages

    def _polling(self, timeout: float | None, most: int, iterates: bool) -> Acts[list[ReceivedMessage]]:
        self._iterates = self._iterates and iterates
        yield from self._starting()
        self._has_handled(None)
        found: list[ReceivedMessage] = []
        trouble: ClientError | None = None

        def look() -> bool:
            nonlocal found, trouble
            self._check_open()
            found = self._core.take(most)
            trouble = None if found else self._core.take_trouble()
            return bool(found or trouble)

        session, core = self._session, self._core
        try:
            yield self._ready.wait_for(look, timeout)
            self._iterates = iterates
            if core.may_resume:
                session.shell.post(partial(session.shell.start, core.resume_all()))
            if trouble is not None:
                raise trouble
            session.shown(found)
            if found and session.hooks:
                self._begins(found)
            core.taken = []
            return found
        except BaseException:  # a signal's handler may raise, too
            with session.shell.lock:
                core.take_back()
            raise

    def _begins(self, messages: list[ReceivedMessage]) -> None:
        """Tell hooks that the user begins with messages. They are given, so an error is logged."""
        call = ConsumeCall(self.group, tuple(messages))
        try:
            before_consume(self._session.hooks, call)
        except Exception:
            logger.exception("client: a hook failed")
        else:
            self._calls.append(call)

    def _has_handled(self, error: BaseException | None) -> None:
        """Tell hooks that the user is done with the messages given last, or why not."""
        while self._calls:
            after_consume(self._session.hooks, self._calls.pop(), error)

    def _iterating(self) -> Acts[ReceivedMessage | None]:
        """Return the next message, None once the consumer is closed."""
        try:
            (message,) = yield from self._polling(None, 1, iterates=True)
            return message
        except Closed:
            if self._core.is_closed and self._beginning is not None:
                return None
            raise

    def _starting(self) -> Acts[None]:
        """Join the group, unless that has begun. If the caller is interrupted, it goes on."""
        self._check_open()
        core = self._core
        if self._beginning is None:
            if not core.subscriptions and not self._assigned:
                raise InvalidOption("Say what to read first: subscribe(topic), or assign(queues).")
            self._session.begin()
            beginning = core.start_assigned(self._assigned) if self._assigned else core.start()
            promised, complete = self._session.promise()
            joins = self._session.core.join(core, beginning, self._auto_commit)
            self._joining = Joining(self._session.shell, joins, complete)
            self._beginning = promised
        if self._joining is not None:
            self._joining.begin()
        try:
            yield self._session.result(self._beginning)
        except Exception:
            self._beginning = None
            raise

    # --- offsets

    def _committing(self) -> Acts[None]:
        self._check_open()
        with self._session.shell.lock:
            self._core.pass_given()
        self._has_handled(None)
        for error in (yield self._session.wait(self._core.commit())):
            raise error

    def _asking_committed(self, queue: MessageQueue) -> Acts[int | None]:
        yield from self._starting()
        return (yield self._session.wait(self._core.committed(self._session.placed(queue))))

    def _seeking(self, queue: MessageQueue, offset: int) -> Acts[None]:
        yield from self._starting()
        if offset < 0:
            raise InvalidOption(f"An offset is 0 or more, not {offset}.")
        with _reading():
            yield self._session.wait(self._core.seek(self._session.placed(queue), offset))

    def _seeking_all(self, what: str | datetime, queues: Iterable[MessageQueue] | None) -> Acts[None]:
        """what: "min", "max" or a time."""
        yield from self._starting()
        place = what if isinstance(what, str) else round(what.timestamp() * 1000)
        with _reading():
            yield self._session.wait(self._core.seek_all(self._chosen(queues), place))

    def _pausing(self, queues: Iterable[MessageQueue] | None) -> Acts[None]:
        yield from self._starting()
        chosen = self._chosen(queues)
        with _reading(), self._session.shell.lock:
            self._core.pause(chosen)

    def _resuming(self, queues: Iterable[MessageQueue] | None) -> Acts[None]:
        yield from self._starting()
        with _reading():
            yield self._session.wait(self._core.unpause(self._chosen(queues)))

    def paused(self) -> list[MessageQueue]:
        """The queues that it reads now, and that rest."""
        self._session.check_process()
        with self._session.shell.lock:
            return sorted(self._core.paused())

    def _chosen(self, queues: Iterable[MessageQueue] | None) -> list[MessageQueue] | None:
        return None if queues is None else list(map(self._session.placed, queues))

    # --- the end

    def done_with_current(self) -> None:
        """Mark the message that an iteration returned last as done."""
        if self._iterates and not self._session.is_parents:
            with self._session.shell.lock:
                self._core.pass_given()
            self._has_handled(None)

    def _closing(self) -> Acts[int]:
        return self.leaving(self._session.clock.monotonic() + 3 * self._session.timeout)

    def leaving(self, deadline: float) -> Acts[int]:
        """Do the same as `close`, with a deadline by the client's clock. What one caller began goes on if that is
        interrupted, and others wait for it, too."""
        session, core = self._session, self._core
        if session.is_parents:
            return 0
        self._has_handled(Closed("The consumer was closed before they were done: they come again."))
        with self._ready.lock:
            begins, core.is_closed = not core.is_closed, True
            if self._beginning is None:
                self._left = 0
            self._ready.ring()
        if begins and self._left is None:
            session.shell.run(core.leave(self._auto_commit is not None), self._has_parted)
        yield self._gone.wait_for(lambda: self._left is not None, max(0.0, deadline - session.clock.monotonic()))
        with session.shell.lock:
            session.core.part(core)
        return len(core.held) if self._left is None else self._left

    def _has_parted(self, uncommitted: int | None, error: BaseException | None) -> None:
        log_error(uncommitted, error)
        with self._gone.lock:
            self._left = len(self._core.held) if uncommitted is None else uncommitted
            self._session.core.part(self._core)
            self._gone.ring()

    def _check_open(self) -> None:
        if self._core.is_closed:
            raise Closed(f"The consumer of group {self.group} is closed: make a new one.")
        self._session.check_usable()


@contextmanager
def _reading() -> Iterator[None]:
    """Around what looks for queues that the consumer has to read now. Raises InvalidOption for another one."""
    try:
        yield
    except KeyError as error:
        queue = error.args[0]
        raise InvalidOption(f"This consumer does not read {queue} now: assignment() says what it reads.") from None


class PullConsumer(PullActs):
    """Made by `Client.pull_consumer`. One thread takes messages; any may close.

        consumer.subscribe("orders", tags="paid || refunded")
        for message in consumer:
            store(message)

    Delivery is at least once. A message is done when the next one is taken, and only offsets of messages that are done
    are committed; so messages that were being handled when the process died come again. `commit` marks all messages
    taken so far as done. When the `with` block of the consumer or the client ends without an exception, the current
    message of an iteration is done, too; messages that `poll` returned are done by `commit` or the next `poll`.
    """

    def poll(self, timeout: float = 5.0, most: int = POLL_MOST) -> list[ReceivedMessage]:
        """Return messages, `most` at the most; an empty list if none arrives within `timeout` seconds.

        Marks the messages taken before as done. The first call joins the group. Raises NoNameServer at the first call,
        while later outages are logged and retried; NotPermitted and other errors that need a person; Closed.
        """
        return finish(self._polling(timeout, most, iterates=False))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Yield messages one by one, until the consumer is closed. Raises as `poll`."""
        while (message := finish(self._iterating())) is not None:
            yield message

    def commit(self) -> None:
        """Mark all messages taken so far as done, and commit. Returns when brokers have it.

        Raises BrokerAway, RequestTimeout, RequestRefused: the next commit includes the offsets that failed.
        """
        finish(self._committing())

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's offset of a queue at its broker, that of the next message; None if there is none. Raises
        as `commit`."""
        return finish(self._asking_committed(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset; the next commit is of that place. Raises InvalidOption for a queue that it does not
        read."""
        finish(self._seeking(queue, offset))

    def seek_to_begin(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on at the first messages that are kept. queues: None for all that it reads now.

        If a place cannot be read, nothing moves. Raises InvalidOption for a queue that it does not read; BrokerAway,
        RequestTimeout, RequestRefused.
        """
        finish(self._seeking_all("min", queues))

    def seek_to_end(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on with messages that are sent from now on. queues, errors: as of `seek_to_begin`."""
        finish(self._seeking_all("max", queues))

    def seek_to(self, time: datetime, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on at the first messages that were stored at that time or later, as `Reader.offset_at` finds them; without
        a time zone it is in this machine's. queues, errors: as of `seek_to_begin`."""
        finish(self._seeking_all(time, queues))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Hold back the messages of these queues, None for all that it reads now, until `resume`. They stay this
        member's; one that leaves and comes back does not rest. Raises InvalidOption for a queue that it does not
        read."""
        finish(self._pausing(queues))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Give messages of these queues again, None for all that rest. Raises as `pause`."""
        finish(self._resuming(queues))

    def close(self) -> int:
        """Leave the group; commit messages that are done, unless auto_commit is None. Returns the number of queues
        whose offset could not be committed, so that some of their messages come again; a second call the same."""
        return finish(self._closing())

    def __enter__(self) -> PullConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.done_with_current()
        else:
            self._has_handled(error)
        self.close()
