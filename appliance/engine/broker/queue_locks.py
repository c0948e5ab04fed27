"""RebalanceLockManager: which consumer of a group holds a queue it consumes in order.

A lock is a lease of 60 s; clients renew every 20 s. A member that signs off (35) loses its leases. One whose connection
has closed keeps them as long as the client itself may take them for valid: it may only have lost its connection, and
still process the messages it has pulled. It is back with its next renewal, or heartbeat. With Apache the leases of both
run out.
Source: RocketMQ `RebalanceLockManager`.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable

from ..clock import Clock
from ..named_tuple import NamedTuple
from ..shares import Shares

logger = logging.getLogger(__name__)

#: rocketmq.broker.rebalance.lockMaxLiveTime
LEASE_S = 60.0
#: Leases are searched for dead ones when the table has doubled since the last time, and is at least this large.
_SWEEP_AT = 1024
#: Dead leases dropped, and groups looked at, in one step, which takes a millisecond. The next step comes with a lock,
#: and not sooner than the pause: any client can ask for thousands of locks in one read.
_SWEEP_STEP = 2000
_SWEEP_PAUSE_S = 0.05
#: Leases in all, some 300 bytes each: 100,000 queues in order for two groups. Beyond it free queues stay free.
MOST_LEASES = 200_000
#: Leases that each connection may hold in any case: a client's queues of some topics.
FEW_LEASES = 64
#: A client takes a lease for valid for 30 s from the answer on (`ProcessQueue.REBALANCE_LOCK_MAX_LIVE_TIME`), and
#: processes its messages for that long, connected or not.
BELIEVED_S = 32.0


class MessageQueue(NamedTuple):
    """A queue as clients name it."""

    topic: str
    broker_name: str
    queue_id: int


class _Line:
    """A connection over which clients asked for locks."""

    __slots__ = ("closed",)

    def __init__(self) -> None:
        self.closed = False


class _Holder:
    """A client of a group that holds queues. peer: address of the connection over which it first asked. line: the
    connection over which it asked last. ends: end of its last lease. gone_at: when it counts as gone."""

    __slots__ = ("client_id", "count", "ends", "gone_at", "line", "peer")

    def __init__(self, client_id: str, peer: bytes | None) -> None:
        self.client_id = client_id
        self.peer = peer
        self.count = 0
        self.ends = 0.0
        self.line: _Line | None = None
        self.gone_at = math.inf

    def leaves_at(self) -> float:
        """Return when it counts as gone, whatever its leases have left. A closed line counts as a hang-up, since maybe
        no heartbeat has named this client."""
        line = self.line
        return self.gone_at if line is None or not line.closed else min(self.gone_at, self.believes_until())

    def is_there(self, now: float) -> bool:
        return self.leaves_at() > now

    def believes_until(self) -> float:
        return self.ends - LEASE_S + BELIEVED_S


Lease = tuple[_Holder, float]


class RebalanceLockManager:
    """group -> queue -> (holder, end of the lease on the monotonic clock). Guarded by _lock, held for arithmetic.

    Within a group leases stand in the order of their ends, so that dead ones are found without looking at the others;
    so do holders, by the end of their last lease.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._groups: dict[str, dict[MessageQueue, Lease]] = {}
        self._holders: dict[str, dict[str, _Holder]] = {}
        self._shares = Shares(FEW_LEASES)
        self._lines: dict[object, _Line] = {}
        self._count = 0
        self._sweep_at = _SWEEP_AT
        self._to_sweep: list[str] = []
        self._swept_at = -math.inf

    def lock(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        peer: bytes | None = None,
        conn: object | None = None,
    ) -> list[MessageQueue]:
        """Lock queues for a client; return those that it holds now: its own and, as far as its share goes, free ones
        and those whose lease ran out. peer: the client's address, see `Shares`. conn: its connection, for which
        `closed` is called when it is gone."""
        now = self._clock.monotonic()
        held: list[MessageQueue] = []
        taken_over: list[tuple[MessageQueue, str]] = []
        with self._lock:
            locks = self._groups.setdefault(group, {})
            holders = self._holders.setdefault(group, {})
            holder = holders.get(client_id)
            if holder is None or not holder.is_there(now):
                holders.pop(client_id, None)
                holder = holders[client_id] = _Holder(client_id, peer)
            holder.gone_at = math.inf
            if conn is not None:
                holder.line = self._lines.setdefault(conn, _Line())
            room = self._shares.room(holder.peer, MOST_LEASES)
            is_short = False
            ends = now + LEASE_S
            for queue in queues:
                lease = locks.get(queue)
                if lease is not None and lease[0] is not holder:
                    other, until = lease
                    if until > now and other.is_there(now):
                        continue
                    if other.client_id != client_id and other.is_there(now):
                        taken_over.append((queue, other.client_id))
                    del locks[queue]
                    self._end_locked(group, other)
                    lease = None
                    room = self._shares.room(holder.peer, MOST_LEASES)
                if lease is not None:
                    del locks[queue]  # to the end
                elif room > 0:
                    room -= 1
                    holder.count += 1
                    self._count += 1
                    self._shares.add(holder.peer)
                else:
                    is_short = True
                    continue
                locks[queue] = (holder, ends)
                holder.ends = ends
                held.append(queue)
            if held:
                holders[client_id] = holders.pop(client_id)  # to the end
            self._tidy_locked(group, holder)
            if not locks:
                del self._groups[group]
            look = is_short or self._count >= min(self._sweep_at, MOST_LEASES)
            if look and now - self._swept_at >= _SWEEP_PAUSE_S:
                self._swept_at = now
                self._sweep_locked(now)
        for queue, owner in taken_over:
            logger.warning("queue locks: lease ran out group=%s queue=%s from=%s to=%s", group, queue, owner, client_id)
        return held

    def _end_locked(self, group: str, holder: _Holder) -> None:
        """Stop counting one of a holder's leases."""
        self._count -= 1
        self._shares.give(holder.peer)
        holder.count -= 1
        assert self._count >= holder.count >= 0, "the holders' leases add up to all"
        self._tidy_locked(group, holder)

    def _tidy_locked(self, group: str, holder: _Holder) -> None:
        """Forget a holder without leases, and a group without holders."""
        holders = self._holders.get(group)
        if holders is not None and not holder.count and holders.get(holder.client_id) is holder:
            del holders[holder.client_id]
        if not holders:
            self._holders.pop(group, None)

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release those of the queues that the client holds."""
        with self._lock:
            locks = self._groups.get(group)
            if locks is None:
                return
            for queue in queues:
                lease = locks.get(queue)
                if lease is not None and lease[0].client_id == client_id:
                    del locks[queue]
                    self._end_locked(group, lease[0])
            if not locks:
                del self._groups[group]

    def signed_off(self, group: str, client_id: str) -> None:
        """Free the queues of a client that has left the group."""
        now = self._clock.monotonic()
        with self._lock:
            holder = self._held_locked(group, client_id, now)
            if holder is not None:
                holder.gone_at = now

    def hung_up(self, group: str, client_id: str) -> float:
        """Note that a client has lost its last connection in the group. Its queues are free once the client no longer
        takes its leases for valid, unless it is back by then. Return the seconds until that; 0.0 if it holds none."""
        now = self._clock.monotonic()
        with self._lock:
            holder = self._held_locked(group, client_id, now)
            if holder is None:
                return 0.0
            holder.gone_at = min(holder.gone_at, holder.believes_until())
            return max(0.0, holder.gone_at - now)

    def _held_locked(self, group: str, client_id: str, now: float) -> _Holder | None:
        holder = self._holders.get(group, {}).get(client_id)
        return None if holder is None or holder.ends <= now else holder

    def closed(self, conn: object) -> None:
        """Note that a connection is gone. Clients that asked over it and sent no heartbeat, as after a restart of the
        broker, then count as hung up, too (see `hung_up`)."""
        line = self._lines.pop(conn, None)
        if line is not None:
            line.closed = True

    def came_back(self, group: str, client_id: str) -> None:
        """Let a client keep the queues that it held: it is a member again, over another connection."""
        if group not in self._holders:  # as for all groups that lock nothing
            return
        now = self._clock.monotonic()
        with self._lock:
            holder = self._holders.get(group, {}).get(client_id)
            if holder is not None and holder.is_there(now):
                holder.gone_at = math.inf
                holder.line = None

    def is_locked(self, group: str) -> bool:
        """True if any queue of the group is leased now (then the group consumes in order)."""
        now = self._clock.monotonic()
        with self._lock:
            holders = self._holders.get(group)
            while holders:
                client_id, holder = next(reversed(holders.items()))
                if holder.ends <= now:
                    return False  # the leases of all others have ended, too
                if holder.is_there(now):
                    return True
                del holders[client_id]  # its leases are found to be free one by one
            return False

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        """Return the client that holds a queue now."""
        now = self._clock.monotonic()
        with self._lock:
            lease = self._groups.get(group, {}).get(queue)
        return lease[0].client_id if lease is not None and _is_alive(lease, now) else None

    def leases(self, group: str) -> dict[MessageQueue, tuple[str, float]]:
        """Return the present leases: queue -> (client id, seconds until it is free unless the client renews it)."""
        now = self._clock.monotonic()
        with self._lock:
            locks = dict(self._groups.get(group, {}))
        return {
            queue: (holder.client_id, min(until, holder.leaves_at()) - now)
            for queue, (holder, until) in locks.items()
            if min(until, holder.leaves_at()) > now
        }

    def _sweep_locked(self, now: float) -> None:
        """Drop leases that ran out: their queues are free anyway. One step of a round; the next comes with a lock."""
        assert self._lock.locked()
        if not self._to_sweep:
            self._to_sweep = list(self._groups)
        looked = 0
        while self._to_sweep and looked < _SWEEP_STEP:
            group = self._to_sweep[-1]
            leases = self._groups.get(group, {})
            dead = []
            for queue, lease in leases.items():
                if _is_alive(lease, now) or looked >= _SWEEP_STEP:
                    break
                dead.append(queue)
                looked += 1
            for queue in dead:
                self._end_locked(group, leases.pop(queue)[0])
            if looked >= _SWEEP_STEP:
                break  # the group may have more
            looked += 1
            self._to_sweep.pop()
            if not leases:
                self._groups.pop(group, None)
        if not self._to_sweep:
            self._sweep_at = min(max(_SWEEP_AT, 2 * self._count), MOST_LEASES)


def _is_alive(lease: Lease, now: float) -> bool:
    return lease[1] > now and lease[0].is_there(now)
