"""`Reader`: reads queues at any place, without a group's offsets."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from .core.pulling import Pulled, ask_offset, pull
from .errors import InvalidOption
from .message import MessageQueue

if TYPE_CHECKING:
    from .client import Client

#: A pull has to name a group; this one exists on every broker, for tools.
_GROUP = "TOOLS_CONSUMER"


class Reader:
    """Made by `Client.reader`. Threads may share it. All methods raise NoNameServer, NoRoute, BrokerAway,
    RequestTimeout, RequestRefused, BadAnswer and Closed."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def queues(self, topic: str) -> list[MessageQueue]:
        """The topic's queues that can be read."""
        client = self._client
        deadline = client.clock.monotonic() + client.timeout
        return list(client.wait(client.core.directory.read_queues(topic, deadline)))

    def pull(self, queue: MessageQueue, offset: int, max: int = 32, wait: float = 0.0) -> Pulled:
        """Messages of a queue from `offset` on. wait: seconds that the broker may wait if there is none yet."""
        if offset < 0 or max < 1 or wait < 0:
            raise InvalidOption(f"offset and wait are 0 or more, max 1 or more; not {offset}, {wait}, {max}.")
        client = self._client
        self.queues(queue.topic)
        return client.wait(pull(client.core.directory, client.clock, _GROUP, queue, offset, most=max, wait=wait))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that is kept."""
        return self._ask(queue, "min")

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will have."""
        return self._ask(queue, "max")

    def offset_at(self, queue: MessageQueue, time: datetime) -> int:
        """The offset of the first message stored at that time or later; without one, that of the next message. (A
        broker of 4.9 gives the last message's.)"""
        return self._ask(queue, int(time.timestamp() * 1000))

    def _ask(self, queue: MessageQueue, what: str | int) -> int:
        client = self._client
        self.queues(queue.topic)
        return client.wait(ask_offset(client.core.directory, client.clock, client.timeout, queue, what))
