"""The slaves of this broker, or its master; the conventions are those of `snapshots.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    slaves, None if none are accepted. allowed: addresses that may follow, besides this machine. waiting: of a
    SYNC_MASTER that waits. refused: why sends are refused for slaves' sake. master: of a slave. A member of a set with
    fail-over that does not lead is a SLAVE without one: see GET /replication/set."""

    role: Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]
    broker_name: str
    broker_id: int
    log_begin: int
    log_end: int
    listens: str | None
    allowed: tuple[str, ...]
    waiting: Waiting | None
    refused: str | None
    slaves: tuple[SlaveRow, ...]
    gone: tuple[GoneSlave, ...]
    turned_away: tuple[TurnedAway, ...]
    master: FollowedMaster | None
