"""`Reader`: reads queues at any place, without a group's offsets."""

from __future__ import annotations

from datetime import datetime

from .acts import Acts, finish
from .core.pulling import Pulled, PullFrom, ask_committed, ask_offset, pull
from .errors import InvalidOption
from .message import MessageQueue
from .session import Session

#: A pull has to name a group; this one exists on every broker, for tools.
_GROUP = "TOOLS_CONSUMER"


class ReaderActs:
    """A reader but for its calls."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _reading_queues(self, topic: str) -> Acts[list[MessageQueue]]:
        topic = self._session.named(topic)
        deadline = self._session.clock.monotonic() + self._session.timeout
        return list((yield self._session.wait(self._session.core.directory.read_queues(topic, deadline))))

    def _pulling(self, queue: MessageQueue, offset: int, most: int, wait: float) -> Acts[Pulled]:
        if offset < 0 or most < 1 or wait < 0:
            raise InvalidOption(f"offset and wait are 0 or more, max 1 or more; not {offset}, {wait}, {most}.")
        session = self._session
        queue = session.placed(queue)
        yield from self._reading_queues(queue.topic)
        steps = pull(session.core.directory, session.clock, PullFrom(_GROUP, queue, offset, most, wait))
        pulled = yield session.wait(steps)
        session.shown(pulled.messages)
        return pulled

    def _asking(self, queue: MessageQueue, what: str | int) -> Acts[int]:
        session = self._session
        queue = session.placed(queue)
        yield from self._reading_queues(queue.topic)
        steps = ask_offset(session.core.directory, session.clock, session.timeout, queue, what)
        return (yield session.wait(steps))

    def _asking_committed(self, queue: MessageQueue, group: str) -> Acts[int | None]:
        session = self._session
        yield from self._reading_queues(queue.topic)
        group = session.named(group)
        return (yield session.wait(ask_committed(session.core.directory, session.clock, session.timeout, group, queue)))

    def _asking_at(self, queue: MessageQueue, time: datetime) -> Acts[int]:
        return self._asking(queue, round(time.timestamp() * 1000))


class Reader(ReaderActs):
    """Made by `Client.reader`. Threads may share it. All methods raise NoNameServer, NoRoute, BrokerAway,
    RequestTimeout, RequestRefused, BadAnswer and Closed."""

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the topic's queues that can be read."""
        return finish(self._reading_queues(topic))

    def pull(self, queue: MessageQueue, offset: int, max: int = 32, wait: float = 0.0) -> Pulled:
        """Return messages of a queue from `offset` on. wait: seconds that the broker may wait if there is none yet."""
        return finish(self._pulling(queue, offset, max, wait))

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that is kept."""
        return finish(self._asking(queue, "min"))

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message will have."""
        return finish(self._asking(queue, "max"))

    def offset_at(self, queue: MessageQueue, time: datetime) -> int:
        """Return the offset of the first message stored at that time or later; without one, that of the next message.
        (A broker of 4.9 gives the last message's.)"""
        return finish(self._asking_at(queue, time))

    def committed(self, queue: MessageQueue, group: str) -> int | None:
        """Return the offset that a consumer group has committed, which is that of its next message; None if none."""
        return finish(self._asking_committed(queue, group))
