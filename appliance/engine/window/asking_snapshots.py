"""What one client says of itself, and what became of a message it was given: frozen values, as in `snapshots.py`.

A client says what it likes, in its language's way; what it does not say is None.
"""

from __future__ import annotations

from dataclasses import dataclass

from .snapshots import Subscription


@dataclass(frozen=True, slots=True)
class MemberQueue:
    """A queue that the client has now. committed: what it will commit next. cached: messages it holds; first_cached and
    last_cached: their offsets. cached_mib: in MiB, rounded down. locked: it holds the lock of a queue in order.
    dropped: it is giving the queue up."""

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
    """What the client counts of a topic. Spans in ms, rates a second, of its last minute; failed: of its last hour."""

    topic: str
    pull_ms: float | None
    pull_rate: float | None
    consume_ms: float | None
    consumed_rate: float | None
    failed_rate: float | None
    failed: int | None


@dataclass(frozen=True, slots=True)
class RunningInfo:
    """A consumer's own account of itself. properties: its settings, in its own words, by name. stack: its threads, if
    they were asked for and it can say. left_out: parts of the answer that are not shown, too many or not understood."""

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
    """What a client made of one message. result: "CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT",
    "CR_THROW_EXCEPTION", "CR_RETURN_NULL", or "" when it did not say. The group's offsets are as they were."""

    group: str
    client_id: str
    offset_id: str
    result: str
    in_order: bool | None
    auto_commit: bool | None
    remark: str
    spent_ms: int | None
    took_ms: float
