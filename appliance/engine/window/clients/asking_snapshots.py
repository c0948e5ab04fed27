"""A client's report about itself, and its result for one message: frozen values, as in `snapshots.py`.

The fields depend on the client and its language; a field that the client does not send is None.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..snapshots import Subscription


@dataclass(frozen=True, slots=True)
class MemberQueue:
    """A queue that is assigned to the client. committed: the offset it will commit next. cached: number of messages it
    holds; first_cached, last_cached: their offsets; cached_mib: their size in MiB, rounded down. locked: the client
    holds the lock of this queue, which is consumed in order. dropped: the client is giving the queue up."""

    topic: str
    broker: str
    queue_id: int
    committed: int | None
    cached: int | None
    cached_mib: int | None
    first_cached: int | None
    last_cached: int | None
    locked: bool | None
    dropped: bool | None
    last_lock_at_ms: int | None
    last_pull_at_ms: int | None
    last_consume_at_ms: int | None


@dataclass(frozen=True, slots=True)
class MemberRates:
    """The client's figures of a topic: spans in ms and rates a second of its last minute; failed: of its last hour."""

    topic: str
    pull_ms: float | None
    pull_rate: float | None
    consume_ms: float | None
    consumed_rate: float | None
    failed_rate: float | None
    failed: int | None


@dataclass(frozen=True, slots=True)
class RunningInfo:
    """A consumer's report about itself. properties: its settings as the client names them, by name. stack: its thread
    dump, if it was asked for and the client can make one. left_out: number of parts of the answer that are not shown
    because they are too many or cannot be read."""

    group: str
    client_id: str
    address: str
    language: str
    version: str
    took_ms: float
    started_at_ms: int | None
    properties: tuple[tuple[str, str], ...]
    subscriptions: tuple[Subscription, ...]
    queues: tuple[MemberQueue, ...]
    rates: tuple[MemberRates, ...]
    stack: str | None
    left_out: int


@dataclass(frozen=True, slots=True)
class DirectConsumption:
    """A client's result for one message. result: "CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT",
    "CR_THROW_EXCEPTION", "CR_RETURN_NULL", or "" if the client sent none. The group's offsets do not change."""

    group: str
    client_id: str
    offset_id: str
    result: str
    in_order: bool | None
    auto_commit: bool | None
    remark: str
    spent_ms: int | None
    took_ms: float
