"""Leases of queues for ordered consumption (41, 42): one client of a group holds a queue at a time.

A lease ends 60 s after its last renewal; clients renew every 20 s. Nothing is released when a connection closes: the
lease runs out. Source: RocketMQ `RebalanceLockManager`.
"""

from __future__ import annotations

from typing import NamedTuple

from ..clock import Clock

#: `rocketmq.broker.rebalance.lockMaxLiveTime`.
LEASE_S = 60.0


class QueueName(NamedTuple):
    """A MessageQueue as the client names it; answers repeat it exactly."""

    topic: str
    broker_name: str
    queue_id: int


class _Lease(NamedTuple):
    client_id: str
    until: float


class RebalanceLockManager:
    """group -> queue -> lease. Owned by remoting-io."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[QueueName, _Lease]] = {}

    def lock(self, group: str, queues: list[QueueName], client_id: str) -> list[QueueName]:
        """Take or renew leases; returns the queues `client_id` holds now, out of the given ones."""
        now = self._clock.monotonic()
        leases = self._groups.setdefault(group, {})
        held = []
        for queue in queues:
            lease = leases.get(queue)
            if lease is None or lease.client_id == client_id or lease.until <= now:
                leases[queue] = _Lease(client_id, now + LEASE_S)
                held.append(queue)
        return held

    def unlock(self, group: str, queues: list[QueueName], client_id: str) -> None:
        """Give back the leases `client_id` holds out of the given ones."""
        leases = self._groups.get(group, {})
        for queue in queues:
            lease = leases.get(queue)
            if lease is not None and lease.client_id == client_id:
                del leases[queue]

    def is_locked(self, group: str) -> bool:
        """Whether any client of the group holds a lease that has not run out."""
        now = self._clock.monotonic()
        return any(lease.until > now for lease in self._groups.get(group, {}).values())
