"""Dead letters and their replays, as JSON; the conventions are those of `schemas`."""

from __future__ import annotations

from typing import Annotated, Literal

from ninja import Query
from pydantic import Field, model_validator

from ..engine.window.dead_letters.snapshots import (
    DeadLetterGroup,
    DeadLetterRow,
    ReplayJob,
    ReplayResult,
    UnreadableReplay,
)
from .schemas import Asked, In, Out, PageOut
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


class ReplayList(Out):
    """Newest first. Finished ones are kept 30 days, at most 1,000 of them."""

    items: list[ReplayJob]
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


class ReplayResultPageOut(PageOut):
    """In the order of the replay. What it has not written down yet (about a second's work) counts as not reached.
    died_again: of the whole replay; null where that is not known (yet)."""

    items: list[ReplayResult] = Field(validation_alias="rows")
    total: int
    died_again: int | None
