"""Dead letters and their replays, as JSON; the conventions are those of `schemas`."""

from __future__ import annotations

from typing import Annotated, Literal

from ninja import Query
from pydantic import Field, model_validator

from ..engine.window.dead_letters.snapshots import DeadLetterGroup, DeadLetterRow, ReplayResult, UnreadableReplay
from .schemas import Asked, In, OfTuple, Out, PageOut, SentenceOut, Text
from .times import Moment

Result = Literal[
    "chosen", "replayed", "skipped_by_guard", "gone", "failed", "unknown", "not_chosen", "not_reached"
]  # fmt: skip
Replayed = Literal["no", "yes", "again"]
#: Dead letters that one request may name.
MOST_OFFSETS = 10_000


class DeadLetterGroupPage(PageOut):
    items: list[DeadLetterGroup]
    total: int


class DeadLetterFilter(Asked):
    """Selects a group's dead letters."""

    origin_topic: str | None = Query(
        None, max_length=255, description="Only those first sent to it; empty for those that do not say."
    )
    retries: int | None = Query(None, ge=0, lt=1 << 31, description="Only those with exactly so many.")
    key: str | None = Query(None, min_length=1, max_length=1024, description="A key, unique id or origin's offset id.")
    replayed: Replayed | None = Query(None, description="Not from here yet, already, or the copy of a replay.")


class DeadLetterPageOut(PageOut):
    """Dead letters of a snapshot, newest first. truncated: the time limit ended this page early; go on with
    next_cursor. skipped: entries whose record could not be read or has expired."""

    items: list[DeadLetterRow] = Field(validation_alias="rows")
    total: int
    seen: int
    skipped: int
    truncated: bool
    snapshot_at_ms: int


class FilterOut(Out):
    topic: Text | None = None
    retries: int | None = None
    key: Text | None = None
    replayed: str | None = None


class ByTopicOut(OfTuple):
    topic: Text | None
    count: int


class RungOut(Out):
    """Messages of a group that wait at a level. by_topic: where they were first consumed from."""

    level: int
    delay_ms: int | None
    waiting: int
    next_due_at_ms: int | None = Field(validation_alias="next_due_ms")
    oldest_stored_at_ms: int | None = Field(validation_alias="oldest_stored_ms")
    by_topic: list[ByTopicOut] = Field(validation_alias="origins")


class RetryLadderOut(Out):
    """A group's messages on their way back to it. ready: those that were due and are not consumed yet. truncated: the
    time budget ended the count early, after `scanned` of `pending` messages of all groups; ask again, it goes on."""

    group: Text
    rungs: list[RungOut]
    waiting: int
    by_topic: list[ByTopicOut] = Field(validation_alias="origins")
    ready: int
    max_retries: int
    scanned: int
    pending: int
    truncated: bool


class RetryPlaceIn(In):
    """A retry that waits. unique_id: the check that it is still the same one."""

    level: Annotated[int, Field(ge=1, lt=1 << 31)]
    queue_offset: Annotated[int, Field(ge=0, lt=1 << 62)]
    unique_id: Annotated[str, Field(max_length=1024)] | None = None


class RetryActIn(In):
    """action: deliver_now (retry now), to_dead_letters or drop. Either `places`, or all of the group, or of one level:
    the first `limit`, those due first; with `next_cursor` of the answer it goes on."""

    action: Literal["deliver_now", "to_dead_letters", "drop"]
    places: Annotated[list[RetryPlaceIn], Field(min_length=1, max_length=1000)] | None = None
    level: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    cursor: Annotated[str, Field(max_length=4096)] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 1000


class ReplayOut(Out):
    """A replay of dead letters of one group. target: group (its retry topic), original (each to the topic it was sent
    to) or topic. state: running, paused, done, cancelled or failed; why: the reason, if the broker put it there.
    checking: it looks for copies that are stored already, and sends nothing. total = replayed + skipped_by_guard + gone
    + failed + unknown + not_chosen + not_reached. not_chosen: left out by its filter. tries_again: paused for something
    that passes; the broker has it go on by itself."""

    id: str
    group: Text
    target: str
    topic: Text | None
    state: str
    why: SentenceOut | None
    checking: bool
    total: int
    replayed: int
    skipped_by_guard: int
    gone: int
    failed: int
    unknown: int
    not_chosen: int
    not_reached: int
    tries_again: bool
    rate: int
    max_replays: int
    filter: FilterOut | None
    by: Text
    created_at_ms: int = Field(validation_alias="created_ms")
    changed_at_ms: int = Field(validation_alias="changed_ms")


class ReplayList(Out):
    """Newest first. Finished ones are kept 30 days, at most 1,000 of them."""

    items: list[ReplayOut]
    unreadable: list[UnreadableReplay]


class FilterIn(In):
    """Selects dead letters. topic: the one they were first sent to, "" for letters that do not have it. key: one of
    their keys, their unique id, or the offset id they once had. replayed: not yet replayed from here, already replayed,
    or the copy of a replay."""

    topic: Annotated[str, Field(max_length=255)] | None = None
    retries: Annotated[int, Field(ge=0, lt=1 << 31)] | None = None
    key: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    replayed: Replayed | None = None


class ArchiveIn(In):
    """Selects dead letters: all; those of a time or a filter; or `offsets`, pairs of queue id and offset."""

    from_ms: Moment | None = None
    to_ms: Moment | None = None
    filter: FilterIn | None = None
    offsets: (
        Annotated[
            list[Annotated[list[Annotated[int, Field(ge=0, lt=1 << 62)]], Field(min_length=2, max_length=2)]],
            Field(min_length=1, max_length=500),
        ]
        | None
    ) = None
    format: Literal["ndjson", "csv"] = "ndjson"

    @model_validator(mode="after")
    def _either(self) -> ArchiveIn:
        if self.offsets is not None and (self.filter is not None or self.from_ms is not None or self.to_ms is not None):
            raise ValueError("give offsets, or a time and filter, not both")
        return self


class ReplayIn(In):
    """Selects dead letters, their target and the speed. Without times, filter and offsets: all there are now. offsets:
    pairs of queue id and offset, without a filter. max_replays: messages that were replayed this often are skipped."""

    target: Literal["group", "original", "topic"] = "group"
    topic: Annotated[str, Field(min_length=1, max_length=127)] | None = None
    from_ms: Moment | None = None
    to_ms: Moment | None = None
    offsets: (
        Annotated[
            list[Annotated[list[Annotated[int, Field(ge=0, lt=1 << 63)]], Field(min_length=2, max_length=2)]],
            Field(min_length=1, max_length=MOST_OFFSETS),
        ]
        | None
    ) = None
    filter: FilterIn | None = None
    rate: Annotated[int, Field(ge=1, le=10_000)] = 100
    max_replays: Annotated[int, Field(ge=1, le=1000)] = 3


class ReplayPlanOut(Out):
    """The effects of a replay. job: the replay that was started; null after a dry run. A dry run looks at `scanned` of
    the total; by_topic: how many of those would be sent, by the topic they were first sent to."""

    total: int
    scanned: int
    truncated: bool
    by_topic: list[ByTopicOut]
    skipped_by_guard: int
    gone: int
    failed: int
    not_chosen: int
    warnings: list[SentenceOut]
    job: ReplayOut | None


class ReplayResultPageOut(PageOut):
    """In the order of the replay. What it has not written down yet (about a second's work) counts as not reached.
    died_again: of the whole replay; null where that is not known (yet)."""

    items: list[ReplayResult] = Field(validation_alias="rows")
    total: int
    died_again: int | None
