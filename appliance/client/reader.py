"""`Reader`: reads queues at any place, without a group's offsets."""

from __future__ import annotations

from datetime import datetime

from .core.pulling import Pulled, ask_offset, pull
from .errors import InvalidOption
from .message import MessageQueue
from .session import Session

#: A pull has to name a group; this one exists on every broker, for tools.
_GROUP = "TOOLS_CONSUMER"


class Reader:
    """Made by `Client.reader`. Threads may share it. All methods raise NoNameServer, NoRoute, BrokerAway,
    RequestTimeout, RequestRefused, BadAnswer and Closed."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the topic's queues that can be read."""
        session = self._session
        deadline = session.clock.monotonic() + session.timeout
        return list(session.wait(session.core.directory.read_queues(topic, deadline)))

    def pull(self, queue: MessageQueue, offset: int, max: int = 32, wait: float = 0.0) -> Pulled:
        """Return messages of a queue from `offset` on. wait: seconds that the broker may wait if there is none yet."""
        if offset < 0 or max < 1 or wait < 0:
            raise InvalidOption(f"offset and wait are 0 or more, max 1 or more; not {offset}, {wait}, {max}.")
        session = self._session
        self.queues(queue.topic)
        return session.wait(pull(session.core.directory, session.clock, _GROUP, queue, offset, most=max, wait=wait))

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that is kept."""
        return self._ask(queue, "min")

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message will have."""
        return self._ask(queue, "max")

    def offset_at(self, queue: MessageQueue, time: datetime) -> int:
        """Return the offset of the first message stored at that time or later; without one, that of the next message.
        (A broker of 4.9 gives the last message's.)"""
        return self._ask(queue, int(time.timestamp() * 1000))

    def _ask(self, queue: MessageQueue, what: str | int) -> int:
        session = self._session
        self.queues(queue.topic)
        return session.wait(ask_offset(session.core.directory, session.clock, session.timeout, queue, what))
