"""`PullConsumer`: a member of a group that takes messages when it wants them. Java's lite pull consumer."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .core.group import Begin, check_begin
from .core.pull_group import PullGroup
from .core.requests import Subscription
from .errors import Closed, InvalidOption
from .message import MessageQueue, ReceivedMessage
from .session import Session
from .wire import topic_name_error

if TYPE_CHECKING:
    from types import TracebackType


_POLL_MOST = 32
_LEAST_COMMIT_S = 0.1


class PullConsumer:
    """Made by `Client.pull_consumer`. One thread takes messages; any may close.

        consumer.subscribe("orders", tags="paid || refunded")
        for message in consumer:
            store(message)

    Delivery is at least once. A message is done when the next one is taken, and only offsets of messages that are done
    are committed; so messages that were being handled when the process died come again. `commit` marks all messages
    taken so far as done. When the `with` block of the consumer or the client ends without an exception, the current
    message of an iteration is done, too; messages that `poll` returned are done by `commit` or the next `poll`.
    """

    def __init__(self, session: Session, group: str, *, auto_commit: float | None, start: Begin, cache: int) -> None:
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
        self._ready = threading.Condition(session.shell.lock)
        self._core = PullGroup(group, session.core.surroundings, begin=start, wake=self._ready.notify_all, cache=cache)
        # Owned by the thread that takes messages.
        self._assigned: tuple[MessageQueue, ...] = ()
        self._is_started = False
        self._iterates = False

    @property
    def is_closed(self) -> bool:
        return self._core.is_closed

    @property
    def has_left(self) -> bool:
        """True once it has left its group, so that this client can have another member."""
        return self._core.is_closed and self._session.core.groups.get(self.group) is not self._core

    # --- what to read

    def subscribe(self, topic: str, tags: str = "*") -> PullConsumer:
        """Share the topic's queues with the other members of the group; call it before the first message is taken.

        tags: "paid", "paid || refunded", or "*" for all. All members have to subscribe alike. Returns the consumer.
        Raises InvalidOption.
        """
        self._check_open()
        why = topic_name_error(topic)
        if why is not None:
            raise InvalidOption(f"There can be no topic {topic[:300]!r}: {why}")
        tags = tags.strip() or "*"
        if tags != "*" and not all(part.strip() for part in tags.split("||")):
            raise InvalidOption(f'Tags are "*", or tags with || between them, not {tags!r}.')
        if self._is_started or self._assigned:
            raise InvalidOption(
                "subscribe() comes before the first message is taken, and not beside assign(): make another consumer."
            )
        with self._session.shell.lock:
            self._core.subscriptions[topic] = Subscription(topic, tags, self._session.clock.wall_ms())
        return self

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, no matter which other consumers do; `Reader.queues` lists them. Called instead of
        `subscribe`.

        Raises InvalidOption.
        """
        self._check_open()
        if self._is_started or self._core.subscriptions:
            raise InvalidOption(
                "assign() comes before the first message is taken, and not beside subscribe(): make another consumer."
            )
        self._assigned = tuple(dict.fromkeys(queues))
        if not self._assigned:
            raise InvalidOption("assign() needs a queue at least.")

    def assignment(self) -> list[MessageQueue]:
        """The queues that this member reads now."""
        self._session.check_process()
        with self._session.shell.lock:
            return sorted(self._core.held)

    # --- messages

    def poll(self, timeout: float = 5.0, most: int = _POLL_MOST) -> list[ReceivedMessage]:
        """Return messages, `most` at the most; an empty list if none arrives within `timeout` seconds.

        Marks the messages taken before as done. The first call joins the group. Raises NoNameServer at the first call,
        while later outages are logged and retried; NotPermitted and other errors that need a person; Closed.
        """
        self._iterates = False
        return self._poll(timeout, most)

    def _poll(self, timeout: float | None, most: int) -> list[ReceivedMessage]:
        self._start()
        end = None if timeout is None else self._session.clock.monotonic() + timeout
        with self._ready:
            while True:
                self._check_open()
                found = self._core.take(most)
                trouble = None if found else self._core.take_trouble()
                if found or trouble:
                    break
                left = None if end is None else end - self._session.clock.monotonic()
                if left is not None and left <= 0:
                    break
                self._ready.wait(left)
            resuming = self._core.resume_all()
        self._session.shell.start(resuming)
        if trouble is not None:
            raise trouble
        return found

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Yield messages one by one, until the consumer is closed. Raises as `poll`."""
        while True:
            try:
                found = self._poll(None, 1)
            except Closed:
                if self._core.is_closed and self._is_started:
                    return
                raise
            self._iterates = True
            yield from found

    def _start(self) -> None:
        self._check_open()
        if self._is_started:
            return
        core = self._core
        if not core.subscriptions and not self._assigned:
            raise InvalidOption("Say what to read first: subscribe(topic), or assign(queues).")
        self._session.begin()
        with self._session.shell.lock:
            self._session.core.groups[self.group] = core
        try:
            self._session.wait(core.start_assigned(self._assigned) if self._assigned else core.start())
        except BaseException:
            with self._session.shell.lock:
                self._session.core.groups.pop(self.group, None)
            raise
        self._is_started = True
        if self._auto_commit is not None:
            self._session.shell.start(core.keep_committed(self._auto_commit))

    # --- offsets

    def commit(self) -> None:
        """Mark all messages taken so far as done, and commit. Returns when brokers have it.

        Raises BrokerAway, RequestTimeout, RequestRefused: the next commit includes the offsets that failed.
        """
        self._check_open()
        with self._session.shell.lock:
            self._core.pass_given()
        errors = self._session.wait(self._core.commit())
        if errors:
            raise errors[0]

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's offset of a queue at its broker, that of the next message; None if there is none. Raises
        as `commit`."""
        self._start()
        return self._session.wait(self._core.committed(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset; the next commit is of that place. Raises InvalidOption for a queue that it does not
        read."""
        self._start()
        if offset < 0:
            raise InvalidOption(f"An offset is 0 or more, not {offset}.")
        try:
            self._session.wait(self._core.seek(queue, offset))
        except KeyError:
            raise InvalidOption(f"This consumer does not read {queue} now: assignment() says what it reads.") from None

    # --- the end

    def done_with_current(self) -> None:
        """Mark the message that an iteration returned last as done."""
        if self._iterates and not self._session.is_parents:
            with self._session.shell.lock:
                self._core.pass_given()

    def close(self) -> int:
        """Leave the group; commit messages that are done, unless auto_commit is None. Returns the number of queues
        whose offset could not be committed, so that some of their messages come again."""
        return self.leave(self._session.clock.monotonic() + 3 * self._session.timeout)

    def leave(self, deadline: float) -> int:
        """Do the same as `close`, with a deadline by the client's clock."""
        if self._core.is_closed or self._session.is_parents:
            return 0
        if not self._is_started:
            with self._ready:
                self._core.is_closed = True
                self._ready.notify_all()
            return 0
        left = self._session.wait_until(self._core.leave(self._auto_commit is not None), deadline)
        with self._session.shell.lock:
            self._session.core.groups.pop(self.group, None)
        return len(self._core.held) if left is None else left

    def __enter__(self) -> PullConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.done_with_current()
        self.close()

    def _check_open(self) -> None:
        if self._core.is_closed:
            raise Closed(f"The consumer of group {self.group} is closed: make a new one.")
        self._session.check_usable()
