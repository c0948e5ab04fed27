"""The slaves of this broker, or its master; a set of brokers with fail-over, as a member of it sees it.

The conventions are those of `window/snapshots.py`. Ages and lags are measured on this machine; `_at_ms` of other
members are by their own clocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ...lazy_dataclass import dataclass
from ..sentences import Sentence


@dataclass(frozen=True, slots=True)
class SlaveRow:
    """A slave that is connected. address: its end of the connection. acknowledged: so far it has the log; sent: so far
    it was sent. behind_ms: for how long the log has gone beyond what it has. heard_ms: since it last said anything.
    member: its uuid, where it is one of this broker's set; "" for an observer."""

    # acknowledged: physical offset, None before its first report.
    address: str
    acknowledged: int | None
    sent: int | None
    behind_bytes: int | None
    behind_ms: int | None
    behind_why: Sentence | None
    in_sync: bool
    bytes_per_s: float
    connected_ms: int
    heard_ms: int
    member: str


@dataclass(frozen=True, slots=True)
class GoneSlave:
    """A slave that was connected, from this host; none has connected from there since."""

    address: str
    acknowledged: int
    behind_bytes: int
    gone_at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """A host that asked to follow and may not. times: since the start."""

    address: str
    times: int
    last_at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The wait of a SYNC_MASTER. slaves: how many must have a message before it is acknowledged and shown; connected:
    how many follow. timeout_ms: after this a send is answered FLUSH_SLAVE_TIMEOUT. limit_bytes: distance to the slaves
    beyond which it refuses sends. waiting_bytes: stored bytes that wait for slaves."""

    slaves: int
    connected: int
    timeout_ms: int
    limit_bytes: int
    waiting_bytes: int


@dataclass(frozen=True, slots=True)
class FollowedMaster:
    """The master of a slave. address: for clients; ha_address: of its log. end: of its log, as it last said. since_ms:
    how long it is followed, or has not been. tables_why: why topics, groups and offsets are not taken over.
    serves_reads: this slave serves consumers."""

    # address, ha_address: None while not known.
    address: str | None
    ha_address: str | None
    following: bool
    why_not: Sentence | None
    end: int | None
    behind_bytes: int | None
    behind_ms: int | None
    behind_why: Sentence | None
    since_ms: int | None
    heard_ms: int | None
    bytes_per_s: float
    tables_why: str | None
    serves_reads: bool


@dataclass(frozen=True, slots=True)
class Replication:
    """This broker's slaves, or its master. log_end: the end of the log that this broker keeps. listens: the address for
    slaves, None if none are accepted. allowed: addresses that may follow, besides this machine. proves: followers prove
    the secret in haSecretFile; the allowed addresses need no proof. tls: the port's tlsMode. waiting: of a
    SYNC_MASTER that waits. refused: why sends are refused for slaves' sake. master: of a slave. A member of a set with
    fail-over that does not lead is a SLAVE without one: see GET /replication/set."""

    role: Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]
    broker_name: str
    broker_id: int
    log_begin: int
    log_end: int
    listens: str | None
    allowed: tuple[str, ...]
    proves: bool
    tls: Literal["disabled", "permissive", "enforcing"]
    waiting: Waiting | None
    refused: str | None
    slaves: tuple[SlaveRow, ...]
    gone: tuple[GoneSlave, ...]
    turned_away: tuple[TurnedAway, ...]
    master: FollowedMaster | None


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
    """The set as this member sees it. role: of this member; role_why: why it neither leads nor follows.
    store_warning: what the store lacks, or will soon. epoch: 0 before
    the first. leader: uuid, "" while there is none. fullest: uuid of the member whose log goes furthest, as last
    said: the newest epoch decides, and within it the end. elections: newest first. quarantine: of this member."""

    # set: its name. store: through which the leader is elected; store_ok: it answered last time. leader_addr:
    # "host:port". role: "leader", "follower", "fenced" or "frozen". uuid, slot: this member's. floor: an offset up to
    # which everything is acknowledged. confirm: end of the published log. min_in_sync: sends are refused while fewer
    # members are in sync. synchronous: an acknowledgement waits for all members in sync. settings: of sets, by name.
    set: str
    store: str
    store_ok: bool
    store_why: Sentence | None
    store_warning: Sentence | None
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
    fullest: str
    members: tuple[MemberView, ...]
    elections: tuple[ElectionView, ...]
    quarantine: tuple[QuarantineFile, ...]
    settings: dict[str, str]
