"""Invariants of a simulated set after each step, checked with a view of all members."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from appliance.engine.failover.set_state import SetState

    from .member import SimulatedMember
    from .world import World


class Violation(Exception):
    """Something was lost, changed, or never came back."""


class Oracle:
    """The acknowledged log: shown[offset] is the id that any member published there."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.shown: list[int] = []
        self.published = 0

    def publish(self, member: SimulatedMember, until: int) -> None:
        """Note that a leader published its log from member.published to `until`, which acknowledges and serves it."""
        log, shown = member.log, self.shown
        for offset in range(member.published, until):
            if offset >= len(shown):
                shown.append(log[offset])
            elif shown[offset] == log[offset]:
                continue
            elif not self.world.synchronous:
                del shown[offset:]
                shown.append(log[offset])
            else:
                raise Violation(f"{member} published {log[offset]} at {offset}, where {shown[offset]} was")
        member.published = until
        self.published += 1
        if self.world.synchronous:
            self.electable_hold_all()
        else:
            self.nobody_else_rules(member)

    def serve(self, member: SimulatedMember, until: int) -> None:
        """Check that a follower serves the acknowledged messages up to `until`."""
        if self.world.synchronous and until and self.shown[until - 1 : until] != member.log[until - 1 : until]:
            raise Violation(f"{member} serves another message at {until - 1} than was acknowledged")

    def electable_hold_all(self) -> None:
        """Check, after each change, that every log that can be elected holds all acknowledged ids."""
        state = self.world.store.state
        if state is None or not self.world.synchronous:
            return
        if any(member.seen > state.epoch for member in self.world.members):
            return  # a restored key: no member is elected by it
        shown = self.shown
        for uuid in state.isr:
            member = self.world.by_uuid[uuid]
            if member.durable < len(shown) or member.log[: len(shown)] != shown:
                raise Violation(f"{member} is in sync in epoch {state.epoch} and has not all that was acknowledged")

    def forgive(self, state: SetState) -> None:
        """Forget ids whose loss the operator accepted."""
        assert state.leader is not None
        del self.shown[len(self.world.by_uuid[state.leader.uuid].log) :]

    def nobody_else_rules(self, member: SimulatedMember) -> None:
        """Check that an asynchronous leader acknowledges nothing after the next election: it could be lost."""
        state = self.world.store.state
        if state is not None and state.epoch > member.leads:
            raise Violation(f"{member} acknowledged in epoch {member.leads} after epoch {state.epoch} had begun")
