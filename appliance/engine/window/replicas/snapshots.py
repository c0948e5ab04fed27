"""The slaves of this broker, or its master; the conventions are those of `snapshots.py`."""

from __future__ import annotations

from dataclasses import dataclass

from ..sentences import Sentence


@dataclass(frozen=True, slots=True)
class SlaveRow:
    """A connected slave. address: its end of the connection. acknowledged: physical offset up to which it has the log,
    None before its first report. sent: offset up to which the log was sent to it. behind_ms: for how long the log has
    been ahead of the slave. heard_ms: time since its last report. member: its uuid if it is a member of this broker's
    set; "" for an observer."""

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
    """A slave that was connected; no slave has connected from its host since."""

    address: str
    acknowledged: int
    behind_bytes: int
    gone_at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """A host whose connections were refused. times: how often since the start."""

    address: str
    times: int
    last_at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A SYNC_MASTER's wait for its slaves. slaves: how many must have a message before it is acknowledged and
    published; connected: how many follow. timeout_ms: after this time a send is answered FLUSH_SLAVE_TIMEOUT.
    limit_bytes: how far it may be ahead of the slaves before it refuses sends. waiting_bytes: size of the stored
    messages that wait for slaves."""

    slaves: int
    connected: int
    timeout_ms: int
    limit_bytes: int
    waiting_bytes: int


@dataclass(frozen=True, slots=True)
class FollowedMaster:
    """The master of a slave. address: for clients; ha_address: for slaves; None while not known. end: end of its log as
    last reported. since_ms: for how long it has been followed, or has not been. tables_why: why topics, groups and
    offsets are not copied. serves_reads: this slave serves consumers."""

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
    """This broker's side of replication. role: ASYNC_MASTER, SYNC_MASTER or SLAVE. log_end: end of the log that this
    broker keeps. listens: address for slaves, None if it accepts none. allowed: addresses that may connect besides this
    machine. waiting: on a SYNC_MASTER that waits for slaves. refused: why sends are refused because of slaves. master:
    on a slave."""

    role: str
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
