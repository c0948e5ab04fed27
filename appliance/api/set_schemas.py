"""The set of brokers with fail-over, as JSON. `window.replica_set` explains its fields."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .schemas import In, Out, SentenceOut, Text


class MemberOut(Out):
    """slot: its brokerId while it does not lead, 0 for none yet. role: "leader", "follower", "fenced", "frozen" or
    "unknown". in_sync: it may be elected. connected, lag_bytes, lag_ms: null where only the leader knows. log_end:
    physical offset. heard_at_ms: when it announced itself last, by its own clock. log_begin: what lay before it in the
    log has been deleted there. differs: its settings that contradict those of the member that is asked. slow_ms: how
    long it takes to acknowledge, where that is too long; null where it is in time."""

    uuid: Text
    slot: int
    addr: Text
    ha_addr: Text
    version: Text
    role: Text
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
    differs: list[Text]
    slow_ms: int | None


class ElectionOut(Out):
    """start: where its epoch begins in the log. lost_bound: bytes that a forced one may have lost, null when none."""

    epoch: int
    uuid: Text
    start: int
    at_ms: int
    why: Text
    lost_bound: int | None


class QuarantineOut(Out):
    """Bytes that this member cut from its log. records, topics: what they hold."""

    name: Text
    bytes: int
    epoch: int
    from_offset: int
    to_offset: int
    at_ms: int
    records: int | None
    topics: list[Text]
    reason: Text


class SetOut(Out):
    """The set as this member sees it. role: of this member; role_why: why it neither leads nor follows.
    store_warning: what the store lacks, or will soon. epoch: 0 before
    the first. leader: uuid, "" while there is none. fullest: uuid of the member whose log goes furthest, as last
    said: the newest epoch decides, and within it the end. elections: newest first. quarantine: of this member."""

    set: Text
    store: Text
    store_ok: bool
    store_why: SentenceOut | None
    store_warning: SentenceOut | None
    epoch: int
    leader: Text
    leader_addr: Text
    role: str
    role_why: SentenceOut | None
    uuid: Text
    slot: int
    synchronous: bool
    min_in_sync: int
    floor: int
    confirm: int | None
    fullest: Text
    members: list[MemberOut]
    elections: list[ElectionOut]
    quarantine: list[QuarantineOut]
    settings: dict[str, Text]


class SwitchIn(In):
    """to: uuid or slot of a member; null: the one that is nearest."""

    to: Annotated[str, Field(min_length=1, max_length=100)] | None = None


class AdoptIn(In):
    """uuid: of the member that is asked. confirm: the set's name."""

    uuid: Annotated[str, Field(min_length=1, max_length=100)]
    confirm: Annotated[str, Field(max_length=127)] = ""
