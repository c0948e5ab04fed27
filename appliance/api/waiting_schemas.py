"""Messages that wait, and transactions, as JSON; the conventions are those of `schemas`."""

from __future__ import annotations

from typing import Annotated, Literal

from ninja import Query
from pydantic import Field

from ..engine.window.transactions.snapshots import DiscardedTransaction, OpenTransaction, ResolvedTransaction
from ..engine.window.waiting.snapshots import WaitingRow
from .schemas import Asked, In, PageOut
from .times import Moment

_LAST = 1 << 63
Name = Annotated[str, Field(min_length=1, max_length=255)]
Offset = Annotated[int, Field(ge=0, lt=_LAST)]


class WaitingPageOut(PageOut):
    """Messages that wait, those due first before others; a live list. pending: how many wait in all, null for a token
    with a pattern. truncated: the time limit ended this page early; go on with next_cursor."""

    items: list[WaitingRow]
    pending: int | None
    scanned: int
    truncated: bool


class WaitingPlaceIn(In):
    """A message that waits, by its place. unique_id: act on it only if it is that one."""

    level: Annotated[int, Field(ge=0, lt=1 << 31)]
    queue_offset: Offset
    unique_id: Annotated[str, Field(min_length=1, max_length=1024)] | None = None


class WaitingFilterIn(In):
    """Selects waiting messages. retries: only those on their way back to a group, or only others."""

    group: Name | None = None
    topic: Name | None = None
    level: Annotated[int, Field(ge=0, lt=1 << 31)] | None = None
    from_ms: Moment | None = None
    to_ms: Moment | None = None
    retries: bool | None = None


class WaitingFilter(Asked):
    """Selects waiting messages in an address."""

    topic: str | None = Query(None, max_length=255, description="Only those that go there.")
    group: str | None = Query(None, max_length=255, description="Only retries of this consumer group.")
    level: int | None = Query(
        None, ge=0, lt=1 << 31, description="Only of this delay level; 0: for a time of their own."
    )
    retries: bool | None = Query(None, description="true: only retries; false: only others.")


class WaitingActIn(In):
    """An act on messages before they are due, by their places or on the first `limit` ones of a filter; while there are
    more, ask again with next_cursor. drop: they never arrive."""

    action: Literal["deliver_now", "to_dead_letters", "drop"]
    places: Annotated[list[WaitingPlaceIn], Field(min_length=1, max_length=1000)] | None = None
    filter: WaitingFilterIn | None = None
    cursor: Annotated[str, Field(max_length=4096)] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 1000


# --- transactions


class TransactionFilter(Asked):
    """Selects transactions in an address."""

    topic: str | None = Query(None, max_length=255, description="Only those that go there.")
    group: str | None = Query(None, max_length=255, description="Only of this producer group.")
    key: str | None = Query(None, max_length=1024, description="Only with this key or unique id.")


class OpenTransactionPageOut(PageOut):
    """The oldest first; a live list. open: how many in all, null for a token with a pattern. ready: false just after a
    start, when not all are known."""

    items: list[OpenTransaction]
    open: int | None
    ready: bool
    scanned: int
    truncated: bool


class DiscardedTransactionPageOut(PageOut):
    """The newest first. kept: how many in all, null for a token with a pattern. resumed_known: false where the key
    index is off."""

    items: list[DiscardedTransaction]
    kept: int | None
    resumed_known: bool
    scanned: int
    truncated: bool


class ResolvedTransactionPageOut(PageOut):
    """The newest first. kept_from_at_ms: when the oldest that is kept ended. lost: ends that were not written down."""

    items: list[ResolvedTransaction]
    kept_from_at_ms: int | None = Field(validation_alias="kept_from_ms")
    lost: int
    scanned: int
    truncated: bool


class HalfPlaceIn(In):
    """An open transaction, by its half message. unique_id: act only if it is that one."""

    half_offset: Annotated[int, Field(ge=0, lt=1 << 62)]
    unique_id: Annotated[str, Field(min_length=1, max_length=1024)] | None = None


class ChecksIn(In):
    """Selects the transactions whose producers to ask now: these, or the first `limit` ones that fit (all without a
    filter)."""

    places: Annotated[list[HalfPlaceIn], Field(min_length=1, max_length=1000)] | None = None
    topic: Name | None = None
    group: Name | None = None
    key: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 1000


class DecisionsIn(In):
    """An end for these transactions, with a reason. It may contradict what the producer's own records say: prefer a
    check."""

    action: Literal["commit", "roll_back"]
    places: Annotated[list[HalfPlaceIn], Field(min_length=1, max_length=100)]
    reason: Annotated[str, Field(min_length=1, max_length=500)]


class ResumeIn(In):
    """ref: of the message in TRANS_CHECK_MAX_TIME_TOPIC: its offset id, or topic/queue/offset."""

    ref: Annotated[str, Field(min_length=1, max_length=255)]
    reason: Annotated[str, Field(min_length=1, max_length=500)]
