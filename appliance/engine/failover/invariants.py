"""Invariants of fail-over, checked before any act leaves the decision: a bug stops the member, and harms no data.

I1  only a swap changes the key; an election adds one to the epoch, and only its leader changes it otherwise
I2  only bytes that all members in sync hold are published, by the key and by every swap whose outcome is unknown
I3  a candidate closed its stream before its swap, and opens none before that is decided
I4  a member may be elected if it is in sync, its log is whole and reaches the floor, and it has seen no higher epoch
I5  an epoch is on disk as seen before anything is done for it; nothing is done for a lower one
I6  an epoch is not resumed: a member that led it, and no longer does, takes another one
I7  a swap whose outcome is unknown is repeated as it was, and no other is begun
"""

from __future__ import annotations

from ..errors import RocketBoxError
from .decision import Act, Await, BeginEpoch, Cut, Follow, Lead, Memory, Reign, Relay, Rules, SetAside, Sight, Swap


class InvariantBroken(RocketBoxError):
    """The decision was wrong; none of its acts was done."""


def awaited_by(memory: Memory, uuid: str) -> frozenset[str]:
    """Return the members, without this leader, that must hold what it publishes. While a swap is pending, both its
    in-sync set and the one before count."""
    if memory.reign is None:
        return frozenset()
    awaited = memory.joining.union(memory.reign.state.isr)
    if memory.pending is not None:
        awaited = awaited.union(memory.pending.swap.state.isr)
    return awaited - {uuid}


def check(before: Memory, after: Memory, acts: tuple[Act, ...], sight: Sight, rules: Rules) -> None:
    """Raises InvariantBroken. acts: what a decision answers to `sight`; after: the memory that it returns."""
    for act in acts:
        kind = type(act)
        if kind is Swap:
            _check_swap(act, before, after, sight, rules)  # type: ignore[arg-type]
        elif kind is Await or kind is Lead:
            _check_awaited(act, after, sight, rules)  # type: ignore[arg-type]
        elif kind is Follow or kind is Cut or kind is Relay or kind is SetAside:
            _hold(after.pending is None, "I7: a stream is opened while a swap is unknown")
            _hold(after.reign is None, "I5: a leader follows")
            state = after.key.state if after.key is not None else None
            _hold(state is not None and state.epoch == sight.seen, "I5: not the highest epoch that was seen")
        elif kind is BeginEpoch:
            _hold(sight.closed_at >= 0, "I3: an epoch begins while the stream is open")
            _hold(act.epoch == sight.seen and act.epoch > sight.epoch, "I6: an epoch is begun twice")  # type: ignore


def _hold(holds: bool, what: str) -> None:
    if not holds:
        raise InvariantBroken(what)


def _check_awaited(act: Await | Lead, after: Memory, s: Sight, r: Rules) -> None:
    reign = after.reign
    if reign is None:
        raise InvariantBroken("I1: leads without an epoch of its own")
    wanted = awaited_by(after, r.uuid)
    _hold(act.awaited == wanted if r.synchronous else not act.awaited, "I2: not all are awaited")
    if type(act) is Lead:
        _hold(not reign.led and act.epoch == reign.state.epoch, "I6: an epoch is resumed")
        _hold(s.seen == act.epoch == s.epoch, "I5: leads in an epoch that is not on disk")
        _hold(s.closed_at >= 0, "I3: leads while its stream is open")


def _check_swap(swap: Swap, before: Memory, after: Memory, s: Sight, r: Rules) -> None:
    reign, pending, old = after.reign, after.pending, before.pending
    _hold(pending is not None and pending.swap is swap, "I7: a swap is forgotten")
    if old is not None and (old.swap is swap or s.swapped is None or s.swapped.how == "unknown"):
        _hold(old.swap is swap, "I7: another swap while one is unknown")
    elif swap.purpose == "elect":
        _check_election(swap, after, s, r)
    elif reign is None:
        raise InvariantBroken("I1: the key is changed by who does not lead")
    else:
        _check_change(swap, reign, s, r)
    _hold(swap.purpose != "elect" or s.closed_at >= 0, "I3: a candidate's stream is open")


def _check_change(swap: Swap, reign: Reign, s: Sight, r: Rules) -> None:
    state, own = swap.state, reign.state
    _hold(state.epoch == own.epoch and swap.expected == reign.revision, "I1: not the leader's epoch or revision")
    _hold(state.beat == own.beat + 1 and state.floor >= own.floor, "I1: beat and floor only grow")
    _hold(state.floor <= max(s.health.published, own.floor), "I1: the floor is above what was acknowledged")
    _hold(r.uuid in state.isr, "I1: a leader takes itself out of the in-sync set")
    if not r.synchronous:
        return
    _hold(s.awaited >= frozenset(state.isr) - {r.uuid}, "I2: proposed before it was awaited")
    durable = {report.uuid: report.durable for report in s.members}
    for uuid in frozenset(state.isr).difference(own.isr):
        _hold(durable.get(uuid, -1) >= s.health.published, "I2: proposed without all that was published")


def _check_election(swap: Swap, after: Memory, s: Sight, r: Rules) -> None:
    state, key = swap.state, after.key
    _hold(after.reign is None and s.role != "leader", "I1: a leader asks for another epoch")
    _hold(state.isr == (r.uuid,) and state.leader == s.me, "I1: elected is another than the candidate")
    _hold(s.closed_at == s.health.end, "I3: a log grew after its stream was closed")
    _hold(s.health.kept >= s.closed_at, "I3: a candidate's log is not on the disk")
    _hold(state.epoch > s.seen, "I5: an epoch that was seen is asked for again")
    if swap.forced or key is None:
        return
    if key.state is None:
        _hold(swap.expected is None and state.epoch == 1, "I1: a set without a key begins with epoch 1")
        return
    old = key.state
    _hold(swap.expected == key.revision and state.epoch == old.epoch + 1, "I1: not the epoch after the one replaced")
    _hold(r.uuid in old.isr, "I4: a candidate is not in sync")
    _hold(s.closed_at >= old.floor - (0 if r.synchronous else r.max_lag), "I4: its log ends below the floor")
    _hold(s.health.electable and s.health.alive, "I4: its log or its disk is not sound")
