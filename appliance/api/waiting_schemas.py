"""Messages that wait, and transactions, as JSON; the conventions are those of `schemas`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from .schemas import In, Out, PageOut, SentenceOut, Text
from .times import Moment

_LAST = 1 << 63
Name = Annotated[str, Field(min_length=1, max_length=255)]
Offset = Annotated[int, Field(ge=0, lt=_LAST)]


class WaitingOut(Out):
    """A message that waits. level: 0 for a time of its own; with queue_offset its place, and unique_id the check that
    it is the same. topic, queue_id: where it goes. group: of a retry. problem: why it will not arrive."""

    level: int
    queue_offset: int
    due_at_ms: int = Field(validation_alias="due_ms")
    topic: Text | None
    queue_id: int | None
    group: Text | None
    origin_topic: Text | None
    unique_id: Text | None
    offset_id: str | None
    keys: list[Text]
    tags: Text | None
    reconsume_times: int | None
    stored_at_ms: int | None
    born_at_ms: int | None
    born_host: str | None
    body_bytes: int | None
    problem: SentenceOut | None


class WaitingPageOut(PageOut):
    """Messages that wait, those due first before others; a live list. pending: how many wait in all, null for a token
    with a pattern. truncated: the time limit ended this page early; go on with next_cursor."""

    items: list[WaitingOut]
    pending: int | None
    scanned: int
    truncated: bool


class PendingByDueOut(Out):
    """Numbers of messages by due time: counts of spans of bucket_ms from begin_at_ms on; before, after: due before and
    after these. truncated: scanned of pending are counted; ask again for more."""

    begin_at_ms: int = Field(validation_alias="begin_ms")
    bucket_ms: int
    counts: list[int]
    before: int
    after: int
    scanned: int
    pending: int
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


class WaitingActIn(In):
    """An act on messages before they are due, by their places or on the first `limit` ones of a filter; while there are
    more, ask again with next_cursor. drop: they never arrive."""

    action: Literal["deliver_now", "to_dead_letters", "drop"]
    places: Annotated[list[WaitingPlaceIn], Field(min_length=1, max_length=1000)] | None = None
    filter: WaitingFilterIn | None = None
    cursor: Annotated[str, Field(max_length=4096)] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 1000


class WaitingOutcomeOut(Out):
    """The result of one message. outcome: done, done_for_now, possible (dry run), or why not. copy_place: its present
    topic/queue/offset."""

    level: int
    queue_offset: int
    unique_id: Text | None
    outcome: str
    why: SentenceOut | None
    copy_place: Text | None = Field(validation_alias="copy")


class WaitingActOut(Out):
    """The effects of an act; counts add up to asked. more: others that fit may wait, from next_cursor on."""

    action: str
    dry_run: bool
    asked: int
    done: int
    counts: dict[str, int]
    results: list[WaitingOutcomeOut]
    more: bool
    next_cursor: str | None


# --- transactions


class HalfOut(Out):
    """A half message. topic, queue_id: its target. group: that of its producers; producers: how many of them are
    connected."""

    offset_id: str
    unique_id: Text | None
    topic: Text
    queue_id: int
    group: Text
    producers: int
    keys: list[Text]
    tags: Text | None
    stored_at_ms: int
    born_at_ms: int
    born_host: str
    body_bytes: int


class ResolvedTransactionOut(Out):
    """A transaction that has ended. how: committed, rolled_back, discarded or lost. by: producer (at once), check (a
    producer that was asked), administrator or broker. admin, reason: of an administrator. message: null when its record
    is gone."""

    half_offset: int
    message: HalfOut | None = Field(validation_alias="row")
    how: str
    ended_at_ms: int = Field(validation_alias="at_ms")
    by: str
    client: Text | None
    admin: Text | None
    reason: Text | None
    age_ms: int
    checks: int


class OpenTransactionOut(Out):
    """An undecided transaction. next_check_at_ms: null while it waits for a producer of its group. problem: why it
    cannot be committed."""

    half_offset: int
    message: HalfOut | None = Field(validation_alias="row")
    age_ms: int | None
    checks: int
    max_checks: int
    next_check_at_ms: int | None = Field(validation_alias="next_check_ms")
    waits_for_producer: bool
    problem: SentenceOut | None


class DiscardedTransactionOut(Out):
    """One that was set aside. half_offset_id: of its half message. resumed_as: the half message it became again."""

    queue_offset: int
    message: HalfOut = Field(validation_alias="row")
    half_offset_id: str | None
    checks: int
    why: SentenceOut
    resumed_as: str | None


class OpenTransactionPageOut(PageOut):
    """The oldest first; a live list. open: how many in all, null for a token with a pattern. ready: false just after a
    start, when not all are known."""

    items: list[OpenTransactionOut]
    open: int | None
    ready: bool
    scanned: int
    truncated: bool


class DiscardedTransactionPageOut(PageOut):
    """The newest first. kept: how many in all, null for a token with a pattern. resumed_known: false where the key
    index is off."""

    items: list[DiscardedTransactionOut]
    kept: int | None
    resumed_known: bool
    scanned: int
    truncated: bool


class ResolvedTransactionPageOut(PageOut):
    """The newest first. kept_from_at_ms: when the oldest that is kept ended. lost: ends that were not written down."""

    items: list[ResolvedTransactionOut]
    kept_from_at_ms: int | None
    lost: int
    scanned: int
    truncated: bool


class ParkedOut(Out):
    group: Text
    count: int


class TransactionCountsOut(Out):
    """Open ones now; what happened since the start. parked: producer groups whose transactions wait for a producer, 20
    at most; waiting: of all groups. asked: questions to producers."""

    open: int
    oldest_stored_at_ms: int | None = Field(validation_alias="oldest_stored_ms")
    parked: list[ParkedOut]
    waiting: int
    asked: int
    committed: int
    rolled_back: int
    discarded: int
    lost: int

    @model_validator(mode="before")
    @classmethod
    def _of_counts(cls, counts: Any) -> Any:
        if isinstance(counts, dict):
            return counts
        names = ("open", "oldest_stored_ms", "waiting", "asked", "committed", "rolled_back", "discarded", "lost")
        parked = [{"group": group, "count": count} for group, count in counts.parked]
        return {name: getattr(counts, name) for name in names} | {"parked": parked}


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


class TransactionOutcomeOut(Out):
    """The result of one transaction. outcome: done, asked, possible (dry run), decided_before (decided says how), or
    why not."""

    half_offset: int
    unique_id: Text | None
    outcome: str
    why: SentenceOut | None
    decided: ResolvedTransactionOut | None


class TransactionActOut(Out):
    """The effects of an act; counts add up to asked."""

    action: str
    dry_run: bool
    asked: int
    done: int
    counts: dict[str, int]
    results: list[TransactionOutcomeOut]
    more: bool


class ResumedOut(Out):
    """The half message that a discarded transaction became: its producers are asked about it, nothing is committed."""

    half_offset: int
    offset_id: str
    unique_id: Text
