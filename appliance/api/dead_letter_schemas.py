"""Dead letters and their replays, as JSON; the conventions are those of `schemas`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from .message_schemas import MessageRowOut
from .schemas import In, Out, PageOut, SentenceOut, Text
from .times import Moment

Result = Literal["replayed", "skipped_by_guard", "gone", "failed", "unknown", "not_reached"]
#: Dead letters that one request may name.
MOST_OFFSETS = 10_000


class DeadLetterGroupOut(Out):
    """A group that has dead letters. known: whether there still is such a group. oldest_at_ms, newest_at_ms: when they
    died. expires_not_before_at_ms: of the oldest. job: the replay that is not finished."""

    group: Text
    known: bool
    count: int
    oldest_at_ms: int | None = Field(validation_alias="oldest_ms")
    newest_at_ms: int | None = Field(validation_alias="newest_ms")
    expires_not_before_at_ms: int | None = Field(validation_alias="expires_not_before_ms")
    job: str | None


class DeadLetterGroupPage(PageOut):
    items: list[DeadLetterGroupOut]
    total: int


class DeadLetterOut(Out):
    """One dead letter. message.stored_at_ms: dead since. origin_topic, origin_id: where it was sent to. times_replayed:
    before it came here, and since. came_by_job: the replay whose copy it is. replayed_by: replays from here, the newest
    first."""

    message: MessageRowOut = Field(validation_alias="row")
    origin_topic: Text | None
    origin_id: Text | None
    expires_not_before_at_ms: int | None = Field(validation_alias="expires_not_before_ms")
    times_replayed: int
    came_by_job: str | None
    replayed_by: list[str]


class DeadLetterPageOut(PageOut):
    """Dead letters of a snapshot, newest first. truncated: the time limit ended this page early; go on with
    next_cursor. skipped: entries whose record could not be read or has expired."""

    items: list[DeadLetterOut]
    total: int
    seen: int
    skipped: int
    truncated: bool
    snapshot_at_ms: int

    @model_validator(mode="before")
    @classmethod
    def _of_page(cls, page: Any) -> Any:
        if isinstance(page, dict):
            return page
        names = ("next_cursor", "total", "seen", "skipped", "truncated", "snapshot_at_ms")
        return {name: getattr(page, name) for name in names} | {"items": page.rows}


class ReplayOut(Out):
    """A replay of dead letters of one group. target: group (its retry topic), original (each to the topic it was sent
    to) or topic. state: running, paused, done, cancelled or failed; why: the reason, if the broker put it there.
    checking: it looks for copies that are stored already, and sends nothing. total = replayed + skipped_by_guard + gone
    + failed + unknown + not_reached."""

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
    not_reached: int
    rate: int
    max_replays: int
    by: Text
    created_at_ms: int = Field(validation_alias="created_ms")
    changed_at_ms: int = Field(validation_alias="changed_ms")


class UnreadableReplayOut(Out):
    """A replay whose journal cannot be read: nothing is sent for it."""

    id: str
    why: SentenceOut
    modified_at_ms: int = Field(validation_alias="modified_ms")


class ReplayList(Out):
    """Newest first. Finished ones are kept 30 days, at most 1,000 of them."""

    items: list[ReplayOut]
    unreadable: list[UnreadableReplayOut]


class ReplayIn(In):
    """Which dead letters, where to, how fast. Without times and offsets: all there are now. offsets: pairs of queue id
    and offset. max_replays: messages that were replayed so often are skipped."""

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
    rate: Annotated[int, Field(ge=1, le=10_000)] = 100
    max_replays: Annotated[int, Field(ge=1, le=1000)] = 3


class ByTopicOut(Out):
    topic: Text | None
    count: int


class ReplayPlanOut(Out):
    """What a replay does, or would do. job: what was started; null after a dry run. Of a dry run: scanned of the total
    were looked at; by_topic says how many of those would be sent, by the topic they were first sent to."""

    total: int
    scanned: int
    truncated: bool
    by_topic: list[ByTopicOut]
    skipped_by_guard: int
    gone: int
    failed: int
    warnings: list[SentenceOut]
    job: ReplayOut | None

    @model_validator(mode="before")
    @classmethod
    def _of_plan(cls, plan: Any) -> Any:
        if isinstance(plan, dict):
            return plan
        names = ("total", "scanned", "truncated", "skipped_by_guard", "gone", "failed", "warnings", "job")
        by_topic = [{"topic": topic, "count": count} for topic, count in plan.by_topic]
        return {name: getattr(plan, name) for name in names} | {"by_topic": by_topic}


class ReplayResultOut(Out):
    """What became of one message of a replay. queue_id, queue_offset: of the dead letter."""

    number: int
    queue_id: int
    queue_offset: int
    result: str
    why: SentenceOut | None


class ReplayResultPageOut(PageOut):
    """In the order of the replay. What it has not written down yet (about a second's work) counts as not reached."""

    items: list[ReplayResultOut]
    total: int

    @model_validator(mode="before")
    @classmethod
    def _of_page(cls, page: Any) -> Any:
        if isinstance(page, dict):
            return page
        return {"items": page.rows, "next_cursor": page.next_cursor, "total": page.total}
