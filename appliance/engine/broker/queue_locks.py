"""RebalanceLockManager: which consumer of a group holds a queue it consumes in order.

A lock is a lease of 60 s; clients renew every 20 s. Nothing is released when a client goes: the lease runs out, so that
a client that only lost its connection keeps its queues.
Source: RocketMQ `RebalanceLockManager`.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable
from typing import NamedTuple

from ..clock import Clock

logger = logging.getLogger(__name__)

#: rocketmq.broker.rebalance.lockMaxLiveTime
LEASE_S = 60.0
#: Leases are looked through for dead ones when the table has doubled since the last time, and at least this large.
_SWEEP_AT = 1024
#: Dead leases dropped, and groups looked at, at once; a millisecond. The next step comes with a lock, and not sooner
#: than the pause: strangers can ask for thousands of locks in one read.
_SWEEP_STEP = 2000
_SWEEP_PAUSE_S = 0.05
#: Leases in all, some 300 bytes each: 100,000 queues in order for two groups. What is free beyond it stays free.
MOST_LEASES = 200_000


class MessageQueue(NamedTuple):
    """A queue as clients name it."""

    topic: str
    broker_name: str
    queue_id: int


class RebalanceLockManager:
    """group -> queue -> (client id, end of the lease on the monotonic clock). Guarded by _lock, held for arithmetic.

    Within a group the lease that ends last comes last, so that dead ones are found without looking at the others.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._groups: dict[str, dict[MessageQueue, tuple[str, float]]] = {}
        self._count = 0
        self._sweep_at = _SWEEP_AT
        self._to_sweep: list[str] = []
        self._swept_at = -math.inf

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Those of the queues the client holds now: free ones, its own, and those whose lease ran out."""
        now = self._clock.monotonic()
        held: list[MessageQueue] = []
        taken_over: list[tuple[MessageQueue, str]] = []
        with self._lock:
            locks = self._groups.setdefault(group, {})
            before = len(locks)
            room = MOST_LEASES - self._count + before
            for queue in queues:
                if len(locks) >= room and queue not in locks:
                    continue
                owner, ends = locks.get(queue, (client_id, now))
                if owner != client_id and ends > now:
                    continue
                if owner != client_id:
                    taken_over.append((queue, owner))
                locks.pop(queue, None)  # to the end
                locks[queue] = (client_id, now + LEASE_S)
                held.append(queue)
            self._count += len(locks) - before
            if not locks:
                del self._groups[group]
            if self._count >= min(self._sweep_at, MOST_LEASES) and now - self._swept_at >= _SWEEP_PAUSE_S:
                self._swept_at = now
                self._sweep_locked(now)
        for queue, owner in taken_over:
            logger.warning("queue locks: lease ran out group=%s queue=%s from=%s to=%s", group, queue, owner, client_id)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release those of the queues the client holds."""
        with self._lock:
            locks = self._groups.get(group)
            if locks is None:
                return
            for queue in queues:
                owner = locks.get(queue)
                if owner is not None and owner[0] == client_id:
                    del locks[queue]
                    self._count -= 1
            if not locks:
                del self._groups[group]

    def is_locked(self, group: str) -> bool:
        """Whether any queue of the group is leased now (then the group consumes in order)."""
        now = self._clock.monotonic()
        with self._lock:
            locks = self._groups.get(group)
            return locks is not None and next(reversed(locks.values()), ("", now))[1] > now

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        """The client that holds a queue now."""
        with self._lock:
            client_id, ends = self._groups.get(group, {}).get(queue, ("", 0.0))
        return client_id if ends > self._clock.monotonic() else None

    def leases(self, group: str) -> dict[MessageQueue, tuple[str, float]]:
        """What is leased now: queue -> (client id, seconds that its lease still has)."""
        now = self._clock.monotonic()
        with self._lock:
            locks = dict(self._groups.get(group, {}))
        return {queue: (client_id, ends - now) for queue, (client_id, ends) in locks.items() if ends > now}

    def _sweep_locked(self, now: float) -> None:
        """Drop leases that ran out: they are free anyway. One step of a round; the next comes with the next lock."""
        if not self._to_sweep:
            self._to_sweep = list(self._groups)
        looked = 0
        while self._to_sweep and looked < _SWEEP_STEP:
            group = self._to_sweep[-1]
            leases = self._groups.get(group, {})
            dead = []
            for queue, (_, ends) in leases.items():
                if ends > now or looked >= _SWEEP_STEP:
                    break
                dead.append(queue)
                looked += 1
            for queue in dead:
                del leases[queue]
            self._count -= len(dead)
            if looked >= _SWEEP_STEP:
                break  # the group may have more
            looked += 1
            self._to_sweep.pop()
            if not leases:
                self._groups.pop(group, None)
        if not self._to_sweep:
            self._sweep_at = min(max(_SWEEP_AT, 2 * self._count), MOST_LEASES)
