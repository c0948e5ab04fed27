"""Replication as JSON: `engine.window.replicas.snapshots`, whose docstrings hold for these."""

from __future__ import annotations

from typing import Literal

from .schemas import Out, SentenceOut, Text


class SlaveOut(Out):
    """A slave that is connected. address: its end of the connection. acknowledged: so far it has the log; sent: so far
    it was sent. behind_ms: for how long the log has gone beyond what it has. heard_ms: since it last said anything.
    member: its uuid, where it is one of this broker's set; "" for an observer."""

    address: str
    acknowledged: int | None
    sent: int | None
    behind_bytes: int | None
    behind_ms: int | None
    behind_why: SentenceOut | None
    in_sync: bool
    bytes_per_s: float
    connected_ms: int
    heard_ms: int
    member: str


class GoneSlaveOut(Out):
    """A slave that was connected, from this host; none has connected from there since."""

    address: str
    acknowledged: int
    behind_bytes: int
    gone_at_ms: int
    reason: Text


class TurnedAwayOut(Out):
    """A host that asked to follow and may not. times: since the start."""

    address: str
    times: int
    last_at_ms: int
    reason: Text


class WaitingForSlavesOut(Out):
    """The wait of a SYNC_MASTER. slaves: how many must have a message before it is acknowledged and shown; connected:
    how many follow. timeout_ms: after this a send is answered FLUSH_SLAVE_TIMEOUT. limit_bytes: distance to the slaves
    beyond which it refuses sends. waiting_bytes: stored bytes that wait for slaves."""

    slaves: int
    connected: int
    timeout_ms: int
    limit_bytes: int
    waiting_bytes: int


class FollowedMasterOut(Out):
    """The master of a slave. address: for clients; ha_address: of its log. end: of its log, as it last said. since_ms:
    how long it is followed, or has not been. tables_why: why topics, groups and offsets are not taken over.
    serves_reads: this slave serves consumers."""

    address: str | None
    ha_address: str | None
    following: bool
    why_not: SentenceOut | None
    end: int | None
    behind_bytes: int | None
    behind_ms: int | None
    behind_why: SentenceOut | None
    since_ms: int | None
    heard_ms: int | None
    bytes_per_s: float
    tables_why: Text | None
    serves_reads: bool


class ReplicationOut(Out):
    """This broker's slaves, or its master. log_end: the end of the log that this broker keeps. listens: the address for
    slaves, null if none are accepted. allowed: addresses that may follow, besides this machine. waiting: of a
    SYNC_MASTER that waits. refused: why sends are refused for slaves' sake. master: of a slave. A member of a set with
    fail-over that does not lead is a SLAVE without one: see GET /replication/set."""

    role: Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]
    broker_name: str
    broker_id: int
    log_begin: int
    log_end: int
    listens: str | None
    allowed: list[str]
    waiting: WaitingForSlavesOut | None
    refused: Text | None
    slaves: list[SlaveOut]
    gone: list[GoneSlaveOut]
    turned_away: list[TurnedAwayOut]
    master: FollowedMasterOut | None


class KeptMessageOut(Out):
    """One message that was cut off. offset: where it lay in the log. keys, unique_key, tags: "" without."""

    offset: int
    size: int
    topic: Text
    queue_id: int
    queue_offset: int
    keys: Text
    unique_key: Text
    tags: Text
    store_time_ms: int
    born_time_ms: int


class QuarantinePageOut(Out):
    """next_offset: send it as `offset` for the next page; null on the last page."""

    name: Text
    epoch: int
    from_offset: int
    to_offset: int
    records: int
    reason: Text
    cut_at_ms: int
    messages: list[KeptMessageOut]
    next_offset: int | None
