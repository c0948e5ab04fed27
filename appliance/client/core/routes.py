"""Routes: the brokers and queues of a topic, from name servers. PURE.

Everything in a route comes from a peer, so it is checked once, here: a Route can be used without further checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import BadAnswer
from ..message import MessageQueue
from ..wire import PERM_READ, PERM_WRITE, parse_host_port, read_json

MASTER = 0
#: Number of queues of a topic that a send creates, as Java requests it.
DEFAULT_QUEUES = 4

#: Own limit of values in one route; a topic of a hundred brokers has some 1,500.
_MOST_VALUES = 100_000
#: Own limit of queues of a topic on one broker. A route with more would take the client's memory.
_MOST_QUEUES = 10_000


@dataclass(frozen=True, slots=True)
class QueueData:
    broker_name: str
    read_queues: int
    write_queues: int
    perm: int


@dataclass(frozen=True, slots=True)
class Route:
    """queues: by broker name. brokers: name -> {id: "host:port"}; 0 is the master. order_conf: of an ordered topic,
    (broker name, number of queues) in its order; producers then use exactly these."""

    queues: tuple[QueueData, ...]
    brokers: dict[str, dict[int, str]]
    order_conf: tuple[tuple[str, int], ...] = ()

    def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues to send to, in Java's order: shards depend on it."""
        if self.order_conf:
            return tuple(
                MessageQueue(topic, name, number) for name, count in self.order_conf for number in range(count)
            )
        return tuple(
            MessageQueue(topic, data.broker_name, number)
            for data in self.queues
            if data.perm & PERM_WRITE and MASTER in self.brokers.get(data.broker_name, ())
            for number in range(data.write_queues)
        )

    def read_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues to consume; their brokers need no master."""
        return tuple(
            MessageQueue(topic, data.broker_name, number)
            for data in self.queues
            if data.perm & PERM_READ
            for number in range(data.read_queues)
        )

    def borrowed(self) -> Route:
        """Return this route of the template topic as that of a topic which the next send creates."""
        queues = tuple(
            QueueData(data.broker_name, count, count, data.perm)
            for data in self.queues
            for count in [min(DEFAULT_QUEUES, data.read_queues)]
        )
        return Route(queues, self.brokers)

    def addresses(self) -> Iterator[str]:
        for by_id in self.brokers.values():
            yield from by_id.values()


def read_route(body: bytes) -> Route:
    """Decode the route in the body of an answer to 105. Raises BadAnswer."""
    try:
        found = read_json(body, max_values=_MOST_VALUES)
        brokers = {
            _text(data["brokerName"]): {
                _number(int(number)): parse_host_port(_text(address))
                for number, address in (data["brokerAddrs"] or {}).items()
            }
            for data in found["brokerDatas"] or ()
        }
        queues = [
            QueueData(
                _text(data["brokerName"]),
                _count(data["readQueueNums"]),
                _count(data["writeQueueNums"]),
                _number(data["perm"]),
            )
            for data in found["queueDatas"] or ()
        ]
        order_conf = tuple(_order_conf(found.get("orderTopicConf")))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadAnswer(f"the route of the name server cannot be read: {error!r}") from None
    return Route(tuple(sorted(queues, key=lambda data: data.broker_name)), brokers, order_conf)


def _order_conf(text: Any) -> Iterator[tuple[str, int]]:
    """Parse "broker-a:4;broker-b:2"."""
    if text:
        for part in _text(text).split(";"):
            name, colon, count = part.partition(":")
            if not name or not colon:
                raise ValueError(f"orderTopicConf {part!r}")
            yield name, _count(int(count))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no number")
    return value


def _count(value: Any) -> int:
    if not 0 <= _number(value) <= _MOST_QUEUES:
        raise ValueError(f"{value} queues")
    return int(value)
