"""Chooses the queue of a message. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidMessage
from ..message import MessageQueue
from ..wire import java_hash

#: (latency, time for which a broker that slow is avoided) in seconds: 5.3.3's table.
_AVOIDED = ((15.0, 30.0), (5.0, 10.0), (3.0, 6.0), (1.8, 5.0), (0.55, 2.0))
SLOW_S = _AVOIDED[-1][0]
#: Seconds for which a broker that failed is avoided.
_AVOIDED_AFTER_FAILURE = 10.0


class Faults:
    """Brokers that were slow or failed lately, and until when to avoid them. That time is extended, never shortened."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def answered(self, broker: str, latency: float, now: float) -> None:
        for least, avoided in _AVOIDED:
            if latency >= least:
                self._avoid(broker, now + avoided)
                return

    def failed(self, broker: str, now: float) -> None:
        self._avoid(broker, now + _AVOIDED_AFTER_FAILURE)

    def _avoid(self, broker: str, until: float) -> None:
        self._until[broker] = max(until, self._until.get(broker, 0.0))

    def are_none(self, now: float) -> bool:
        """True if no broker is to be avoided."""
        if not self._until:
            return True
        self._until = {broker: until for broker, until in self._until.items() if until > now}
        return not self._until

    def is_available(self, broker: str, now: float) -> bool:
        return self._until.get(broker, 0.0) <= now


class NoFaults(Faults):
    """Avoids no broker, but for the one of the last attempt."""

    def _avoid(self, broker: str, until: float) -> None:
        pass


class RoundRobin:
    """Takes queues in turn, preferring those of available brokers."""

    def __init__(self, begin: int) -> None:
        """begin: start of the round, so that many producers do not all begin at one queue."""
        self._next = begin

    def choose(self, queues: Sequence[MessageQueue], faults: Faults, now: float, failed: str | None) -> MessageQueue:
        """Return the next queue of an available broker other than `failed`, the broker of the last attempt; else the
        next of any other broker; else the next."""
        first = self._next
        self.take(len(queues))
        in_turn = [queues[(first + step) % len(queues)] for step in range(len(queues))]
        others = [queue for queue in in_turn if queue.broker_name != failed]
        available = (queue for queue in others if faults.is_available(queue.broker_name, now))
        return next(available, others[0] if others else in_turn[0])

    def take(self, count: int) -> int:
        """Return the number of the next of `count` queues, which are all available."""
        first = self._next
        self._next = first + 1 & 0x7FFFFFFF
        return first % count


def queue_of_shard(shard: str | int, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Return the queue that Java's selector by hash takes: for a text by `String.hashCode`, for a number by Long's.

    Raises InvalidMessage for a number that does not fit 64 bits.
    """
    if isinstance(shard, str):
        value = java_hash(shard)
    elif not isinstance(shard, int):
        raise InvalidMessage(f"A shard is a text or a number, not {shard!r}.")
    elif -(1 << 63) <= shard < 1 << 63:
        bits = shard & 0xFFFFFFFFFFFFFFFF
        value = (bits ^ bits >> 32) & 0xFFFFFFFF
        value -= (value >> 31) << 32
    else:
        raise InvalidMessage(f"The shard {shard} does not fit 64 bits; use its text.")
    return queues[abs(value) % len(queues)]
