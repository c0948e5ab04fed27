"""Messages that wait, at a delay level or for a time of their own, as the window hands them out.

The conventions are those of `snapshots.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .sentences import Sentence


@dataclass(frozen=True, slots=True)
class DelayLevel:
    """One delay level. delay_ms: None for one that is not configured any more, whose messages wait all the same.

    waiting: messages not delivered yet, those handled early left out. next_due_ms: when the first of them is due, by
    the wall clock. due: whether that time has come.
    """

    level: int
    delay_ms: int | None
    waiting: int
    next_due_ms: int | None
    due: bool


@dataclass(frozen=True, slots=True)
class LadderRung:
    """A group's messages that wait at one level. next_due_ms: of the first one; oldest_stored_ms: when the one that
    waits longest was sent back. origins: (topic first consumed from, how many), the most first."""

    level: int
    delay_ms: int | None
    waiting: int
    next_due_ms: int | None
    oldest_stored_ms: int | None
    origins: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RetryLadder:
    """A group's messages on their way back to it.

    rungs: every configured level, and others that have some. waiting: of all of them; origins as in a rung. ready:
    messages that were due and lie in its retry topic, not consumed yet. max_retries: of the group's settings; a message
    that fails once more after so many is a dead letter. truncated: the time budget ended the count early, so numbers
    are lower bounds: `scanned` of `pending` messages (of all groups) are counted; ask again, it goes on from there.
    """

    group: str
    rungs: tuple[LadderRung, ...]
    waiting: int
    origins: tuple[tuple[str, int], ...]
    ready: int
    max_retries: int
    scanned: int
    pending: int
    truncated: bool
    took_ms: float


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A message that waits. level (0: for a time of its own) and queue_offset are its place, unique_id the check that
    it is the same one.

    due_ms: when it is due, by the wall clock. topic, queue_id: where it goes then. group: of a retry, None else.
    origin_topic: of a retry, the topic it was first consumed from. problem: why it will not arrive as things are; the
    fields from the record are None or empty when that is gone.
    """

    level: int
    queue_offset: int
    due_ms: int
    physical_offset: int
    topic: str | None
    queue_id: int | None
    group: str | None
    origin_topic: str | None
    unique_id: str | None
    offset_id: str | None
    keys: tuple[str, ...]
    tags: str | None
    reconsume_times: int | None
    stored_at_ms: int | None
    born_at_ms: int | None
    born_host: str | None
    body_bytes: int | None
    problem: Sentence | None


@dataclass(frozen=True, slots=True)
class WaitingPage:
    """Messages that wait, those due first before others.

    pending: how many wait in all, of all groups and topics. next_cursor: for the next page, None at the end. truncated:
    the time budget ended this page early, so an empty page may have a next one. scanned: entries looked through.
    """

    rows: tuple[WaitingRow, ...]
    next_cursor: str | None
    pending: int
    scanned: int
    truncated: bool
    took_ms: float


@dataclass(frozen=True, slots=True)
class PendingByDue:
    """How many messages come due when. counts: of buckets of `bucket_ms`, the first one beginning at `begin_ms`;
    before, after: due before the first, behind the last one. truncated: as in WaitingPage, of `pending` messages."""

    begin_ms: int
    bucket_ms: int
    counts: tuple[int, ...]
    before: int
    after: int
    scanned: int
    pending: int
    truncated: bool
    took_ms: float


@dataclass(frozen=True, slots=True)
class WaitingPlace:
    """One waiting message, as a caller names it. level: 0 for one with a time of its own. unique_id: None to act on
    whatever waits there."""

    level: int
    queue_offset: int
    unique_id: str | None = None


@dataclass(frozen=True, slots=True)
class WaitingOutcome:
    """What became of one message. outcome: a value of `broker.delays.early_batch.Fate`; "possible" in a dry run. why:
    None when it was done. copy: "topic/queue/offset" of where it is now, None without one."""

    level: int
    queue_offset: int
    unique_id: str | None
    outcome: str
    why: Sentence | None
    copy: str | None


@dataclass(frozen=True, slots=True)
class WaitingAct:
    """What an act did, or would do. asked: messages; counts: outcome -> how many, which add up to it; done: those that
    do not wait any more. more: others that fit the filter may wait, beyond the limit or the time; `next_cursor` is
    where they begin, None without more."""

    action: str
    dry_run: bool
    asked: int
    done: int
    counts: dict[str, int]
    results: tuple[WaitingOutcome, ...]
    more: bool
    next_cursor: str | None
    took_ms: float
