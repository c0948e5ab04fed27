"""The leader store of a simulation: slow, forgetful, sometimes behind; it may carry out a request later."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING

from appliance.engine.failover.decision import Read, Swap, Swapped
from appliance.engine.failover.leader_store import Revision
from appliance.engine.failover.set_state import SetState

if TYPE_CHECKING:
    from .member import SimulatedMember
    from .world import World

TIMEOUT_S = 0.5


class SimulatedStore:
    def __init__(self, world: World) -> None:
        self.world = world
        self.up = True
        #: Its quota is used up: it answers reads, and takes no writes.
        self.full = False
        self.state: SetState | None = None
        self.revision = 0
        self.history: deque[tuple[SetState | None, int]] = deque([(None, 0)], maxlen=400)
        #: Shares of lost answers, of reads that are old, and of swaps that are done later.
        self.lost, self.stale, self.late = 0.03, 0.02, 0.02

    def change(self, state: SetState | None) -> int:
        self.revision += 1
        self.state = state
        self.history.append((state, self.revision))
        self.world.oracle.electable_hold_all()
        return self.revision

    def look(self, member: SimulatedMember) -> Generator[float, None, Read | None]:
        """Return the key as a read finds it; None if there is no answer."""
        rng, world = self.world.rng, self.world
        yield rng.uniform(0.0005, 0.004)
        if not self.up or world.blocked(member.uuid, "store"):
            yield TIMEOUT_S
            return None
        state, revision = self.state, self.revision
        if rng.random() < self.stale:
            state, revision = rng.choice(self.history)
        yield rng.uniform(0.0005, 0.004)
        if world.blocked("store", member.uuid):
            yield TIMEOUT_S
            return None
        return Read(state, Revision(str(revision)), member.clock(), state is None)

    def exchange(self, member: SimulatedMember, swap: Swap) -> Generator[float, None, Swapped]:
        rng, world = self.world.rng, self.world
        sent_at = member.clock()
        unknown = Swapped("unknown", sent_at)
        yield rng.uniform(0.0005, 0.006)
        if world.blocked(member.uuid, "store"):
            yield TIMEOUT_S
            return unknown
        if not self.up or rng.random() < self.late:
            world.later(rng.uniform(0.01, 3.0), lambda: self._apply(swap))
            yield TIMEOUT_S
            return unknown
        if self.full:
            yield rng.uniform(0.0005, 0.006)
            return unknown
        done = self._apply(swap)
        state, revision = self.state, Revision(str(self.revision))
        yield rng.uniform(0.0005, 0.006)
        if world.blocked("store", member.uuid) or rng.random() < self.lost:
            yield TIMEOUT_S
            return unknown
        if done:
            return Swapped("done", sent_at, revision)
        return Swapped("conflict", sent_at, revision, state, state is None)

    def _apply(self, swap: Swap) -> bool:
        there = None if self.state is None else str(self.revision)
        if not self.up or self.full or there != swap.expected:
            return False
        if swap.state.elections[-1].why.startswith("forced"):
            self.world.oracle.forgive(swap.state)
        self.change(swap.state)
        return True
