"""A client's report about itself, and its result for one message: frozen values, as in `snapshots.py`.

The fields depend on the client and its language; a field that the client does not send is None.
"""

from __future__ import annotations

from ...lazy_dataclass import dataclass
from ..snapshots import Subscription


@dataclass(frozen=True, slots=True)
class MemberQueue:
    """A queue that the client says it has. committed: what it will commit next. cached: messages that it holds."""

    # first_cached, last_cached: offsets of the messages that it holds; cached_mib: their size in MiB, rounded down.
    # locked: it holds the lock of this queue, which is consumed in order. dropped: it is giving the queue up.
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
    """The client's figures for a topic, over its last minute; failed: over its last hour."""

    # Spans in ms, rates a second.
    topic: str
    pull_ms: float | None
    pull_rate: float | None
    consume_ms: float | None
    consumed_rate: float | None
    failed_rate: float | None
    failed: int | None


@dataclass(frozen=True, slots=True)
class RunningInfo:
    """A consumer's own account of itself, just asked for. properties: its settings, in its own words. stack: its
    threads, if they were asked for and it can say. left_out: parts of its answer that are not shown."""

    # left_out: because they are too many or cannot be read.
    group: str
    client_id: str
    address: str
    language: str
    version: str
    took_ms: float
    started_at_ms: int | None
    properties: dict[str, str]
    subscriptions: tuple[Subscription, ...]
    queues: tuple[MemberQueue, ...]
    rates: tuple[MemberRates, ...]
    stack: str | None
    left_out: int


@dataclass(frozen=True, slots=True)
class DirectConsumption:
    """The client's result: CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION, CR_RETURN_NULL, or empty
    if it gave none, or for a dry run (`delivered` is false then)."""

    # The group's offsets do not change.
    delivered: bool
    group: str
    client_id: str
    offset_id: str
    result: str
    in_order: bool | None
    auto_commit: bool | None
    remark: str
    spent_ms: int | None
    took_ms: float
