"""A set of brokers with fail-over, as a member of it sees it; the conventions are those of `snapshots.py`.

Ages and lags are measured on this machine; `_at_ms` of other members are by their own clocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ..errors import Unavailable
from .sentences import Sentence
from .snapshots import Change


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member. slot: its brokerId while it does not lead; 0: none yet. role: "leader", "follower", "fenced",
    "frozen", or "unknown" when it has not announced itself. in_sync: it holds all that was acknowledged, and may be
    elected. connected: it follows this leader now; None where only the leader knows. log_end: physical offset, as last
    heard. lag_bytes, lag_ms: how far it is behind the leader; None where only the leader knows. heard_at_ms: when it
    announced itself last. last_epoch: the newest in its list, 0 for none. log_begin: what lay before it in the log has
    been deleted there; where that is more than at the leader, its disk is fuller. differs: its settings that contradict
    this member's. slow_ms: so long it takes to acknowledge, as its leader says, where that is too long: it is left out
    of those in sync if enough others are; None where it is in time."""

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
    log_begin: int | None = None
    differs: tuple[str, ...] = ()
    slow_ms: int | None = None


def fullest_of(members: Iterable[MemberView]) -> str:
    """The uuid of the member whose log goes furthest: the newest epoch decides, and within it the end. "": nobody's is
    known, or a longer one is of no epoch at all: then it is not this set's, or the others are not."""
    ends = [(one.last_epoch, one.log_end, one.is_leader, one.uuid) for one in members if one.log_end is not None]
    if not ends:
        return ""
    furthest = max(ends)
    return "" if any(not epoch and end > furthest[1] for epoch, end, _, _ in ends) else furthest[3]


@dataclass(frozen=True, slots=True)
class ElectionView:
    """One of the last elections, newest first. start: where its epoch begins in the log. lost_bound: bytes that a
    forced one may have lost; None when nothing was."""

    epoch: int
    uuid: str
    start: int
    at_ms: int
    why: str
    lost_bound: int | None


@dataclass(frozen=True, slots=True)
class QuarantineFile:
    """Bytes that this member cut from its log. from_offset, to_offset: where they lay. records, topics: what they
    hold; None when that is not known."""

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

    set: its name. store: where it is decided who leads. store_ok: it answered last time; store_why: what is wrong else.
    store_warning: what it lacks, or will soon.
    epoch: 0 before the first. leader: uuid, or "" while there is none. leader_addr: "host:port". role: this member's:
    "leader", "follower", "fenced" or "frozen"; role_why: why it neither leads nor follows, None when it does. uuid,
    slot: this member's. floor: an offset known to be acknowledged. confirm: published up to here. min_in_sync: sends
    are refused while fewer are in sync. synchronous: an acknowledgement waits for all in sync. settings: RocketMQ-like
    name and value of each setting of sets.
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
        """Who is adopted when nobody can vouch for any log."""
        return fullest_of(self.members)


def seen(replica_set: ReplicaSet | None) -> SetView | None:
    """The set as it is seen now; None without one, and in the moment before it was looked at first."""
    if replica_set is None:
        return None
    try:
        return replica_set.view()
    except Unavailable:
        return None


class ReplicaSet(Protocol):
    """What EngineAdmin asks about the set; any thread."""

    def view(self) -> SetView: ...

    def switch(self, to: str, dry_run: bool, by: str) -> Change: ...

    def adopt(self, uuid: str, confirm: str, dry_run: bool, by: str) -> Change: ...
