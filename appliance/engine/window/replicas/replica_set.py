"""A set of brokers with fail-over, as a member of it sees it; the conventions are those of `snapshots.py`.

Ages and lags are measured on this machine; `_at_ms` of other members are by their own clocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ...errors import Unavailable
from ..sentences import Sentence
from ..snapshots import Change


@dataclass(frozen=True, slots=True)
class MemberView:
    """slot: its brokerId while it does not lead, 0 for none yet. role: "leader", "follower", "fenced", "frozen" or
    "unknown". in_sync: it may be elected. connected, lag_bytes, lag_ms: None where only the leader knows. log_end:
    physical offset. heard_at_ms: when it announced itself last, by its own clock. log_begin: what lay before it in the
    log has been deleted there. differs: its settings that contradict those of the member that is asked. slow_ms: how
    long it takes to acknowledge, where that is too long; None where it is in time."""

    # role: "unknown" if it has not announced itself. in_sync: it has all acknowledged messages. connected: it follows
    # this leader now; None for this member itself. log_end: as last reported. last_epoch: the newest in its list, 0 for
    # none. log_begin: if that is more than at the leader, its disk is fuller. slow_ms: by its leader's measure; it is
    # removed from those in sync then if enough others are.
    uuid: str
    slot: int
    addr: str
    ha_addr: str
    version: str
    role: str
    in_sync: bool
    is_leader: bool
    is_here: bool
    connected: bool | None
    log_end: int | None
    lag_bytes: int | None
    lag_ms: int | None
    last_epoch: int
    heard_at_ms: int | None
    log_begin: int | None
    differs: tuple[str, ...]
    slow_ms: int | None


def fullest_of(members: Iterable[MemberView]) -> str:
    """Return the uuid of the member whose log goes furthest, by its newest epoch and then by its end. "" if no log is
    known, or if a longer log has no epoch: then that log or the others are not this set's."""
    ends = [(one.last_epoch, one.log_end, one.is_leader, one.uuid) for one in members if one.log_end is not None]
    if not ends:
        return ""
    furthest = max(ends)
    return "" if any(not epoch and end > furthest[1] for epoch, end, _, _ in ends) else furthest[3]


@dataclass(frozen=True, slots=True)
class ElectionView:
    """start: where its epoch begins in the log. lost_bound: bytes that a forced one may have lost, None when none."""

    epoch: int
    uuid: str
    start: int
    at_ms: int
    why: str
    lost_bound: int | None


@dataclass(frozen=True, slots=True)
class QuarantineFile:
    """Bytes that this member cut from its log. records, topics: what they hold."""

    # from_offset, to_offset: their place in the log.
    name: str
    bytes: int
    epoch: int
    from_offset: int
    to_offset: int
    at_ms: int
    records: int | None
    topics: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class SetView:
    """The set, seen from this member.

    set: its name. store: the store through which the leader is elected. store_ok: it answered last time; store_why: the
    reason if it did not. store_warning: what the store lacks, or will lack soon.
    epoch: 0 before the first. leader: uuid, or "" while there is none. leader_addr: "host:port". role: this member's:
    "leader", "follower", "fenced" or "frozen"; role_why: why it neither leads nor follows, None if it does. uuid, slot:
    this member's. floor: an offset up to which everything is acknowledged. confirm: end of the published log.
    min_in_sync: sends are refused while fewer members are in sync. synchronous: an acknowledgement waits for all
    members in sync. settings: RocketMQ-like name and value of each setting of sets.
    """

    set: str
    store: str
    store_ok: bool
    store_why: Sentence | None
    epoch: int
    leader: str
    leader_addr: str
    role: str
    role_why: Sentence | None
    uuid: str
    slot: int
    synchronous: bool
    min_in_sync: int
    floor: int
    confirm: int | None
    members: tuple[MemberView, ...]
    elections: tuple[ElectionView, ...]
    quarantine: tuple[QuarantineFile, ...]
    settings: tuple[tuple[str, str], ...]
    store_warning: Sentence | None = None

    @property
    def fullest(self) -> str:
        """The uuid of the member to adopt if it is not known whose log is complete."""
        return fullest_of(self.members)


def seen(replica_set: ReplicaSet | None) -> SetView | None:
    """Return the present view of the set; None without a set, and before the first view was made."""
    if replica_set is None:
        return None
    try:
        return replica_set.view()
    except Unavailable:
        return None


def leader_of(replica_set: ReplicaSet) -> str | None:
    """Return the clients' address of the set's leader; None if this member leads, and while it is not known."""
    view = seen(replica_set)
    return None if view is None or view.leader in ("", view.uuid) else view.leader_addr


class ReplicaSet(Protocol):
    """A member's set, as the window needs it; any thread."""

    def view(self) -> SetView: ...

    def switch(self, to: str = "", *, dry_run: bool = False, by: str = "") -> Change:
        """Have another member lead: no acknowledged message is lost, sends meanwhile are passed on. On the leader only.

        to: uuid or slot of a member in sync; "": the most suitable one. Returns when the other member leads, or when
        leadership was given up and no member has taken it within 10 s. NotFound (member), Conflict (this member does
        not lead; the other is not in sync; there is no other; no set), Unavailable (the store does not answer; not
        drained in time: this member stays the leader).
        """

    def adopt(self, uuid: str, confirm: str, *, dry_run: bool = False, by: str = "") -> Change:
        """Have a member lead although its log may be incomplete: after the store was wiped or restored, or if the only
        members in sync are gone for good. Messages that others acknowledged and this member does not have are lost;
        `warnings` give the amount. confirm: the set's name.

        On the member itself. NotFound (member), InvalidInput (confirm), Conflict (a leader lives; no set), Unavailable.
        """
