"""Messages that wait at a delay level or for a delivery time, as the window returns them.

The conventions are those of `snapshots.py`.
"""

from __future__ import annotations

from dataclasses import field

from ...lazy_dataclass import dataclass
from ..sentences import Sentence
from ..snapshots import HIDDEN, ByTopic


@dataclass(frozen=True, slots=True)
class DelayLevel:
    """One delay level. delay_ms: None if the level is no longer configured; its messages still wait.

    waiting: number of messages not delivered yet, without those handled early. next_due_ms: when the first of them is
    due, by the wall clock. due: True if that time has come.
    """

    level: int
    delay_ms: int | None
    waiting: int
    next_due_ms: int | None
    due: bool


@dataclass(frozen=True, slots=True)
class LadderRung:
    """Messages of a group that wait at a level. by_topic: where they were first consumed from."""

    # next_due_at_ms: of the first one. oldest_stored_at_ms: when the message that has waited longest was sent back.
    # by_topic: the most first.
    level: int
    delay_ms: int | None
    waiting: int
    next_due_at_ms: int | None
    oldest_stored_at_ms: int | None
    by_topic: tuple[ByTopic, ...]


@dataclass(frozen=True, slots=True)
class RetryLadder:
    """A group's messages on their way back to it. ready: those that were due and are not consumed yet. truncated: the
    time budget ended the count early, after `scanned` of `pending` messages of all groups; ask again, it goes on."""

    # rungs: every configured level, and other levels that have messages. by_topic: over all rungs. ready: they lie in
    # the retry topic. max_retries: of the group's settings; a message that fails again after this many is a dead
    # letter. truncated: the numbers are lower bounds.
    group: str
    rungs: tuple[LadderRung, ...]
    waiting: int
    by_topic: tuple[ByTopic, ...]
    ready: int
    max_retries: int
    scanned: int
    pending: int
    truncated: bool
    took_ms: float = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A message that waits. level: 0 for a time of its own; with queue_offset its place, and unique_id the check that
    it is the same. topic, queue_id: where it goes. group: of a retry. problem: why it will not arrive."""

    # due_at_ms: by the wall clock. origin_topic: of a retry, the topic it was first consumed from. Fields from the
    # record are None or empty if that is gone.
    level: int
    queue_offset: int
    due_at_ms: int
    physical_offset: int = field(metadata=HIDDEN)
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
    """Messages that wait, in the order in which they are due.

    pending: number of all waiting messages, of all groups and topics. next_cursor: for the next page, None at the end.
    truncated: the time budget ended this page early, so an empty page may have a next one. scanned: entries looked at.
    """

    rows: tuple[WaitingRow, ...]
    next_cursor: str | None
    pending: int
    scanned: int
    truncated: bool
    took_ms: float


@dataclass(frozen=True, slots=True)
class PendingByDue:
    """Numbers of messages by due time: counts of spans of bucket_ms from begin_at_ms on; before, after: due before and
    after these. truncated: scanned of pending are counted; ask again for more."""

    # truncated: the time budget ended the count early.
    begin_at_ms: int
    bucket_ms: int
    counts: tuple[int, ...]
    before: int
    after: int
    scanned: int
    pending: int
    truncated: bool
    took_ms: float = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class WaitingPlace:
    """The place of a waiting message, as an argument. level: 0 for a timed message. unique_id: None to act on any
    message that waits there."""

    level: int
    queue_offset: int
    unique_id: str | None = None


@dataclass(frozen=True, slots=True)
class WaitingOutcome:
    """The result of one message. outcome: done, done_for_now, possible (dry run), or why not. copy_place: its present
    topic/queue/offset."""

    # outcome: a value of `broker.delays.early_batch.Fate`, or "possible". why: None if it was done. copy_place: None
    # without a copy.
    level: int
    queue_offset: int
    unique_id: str | None
    outcome: str
    why: Sentence | None
    copy_place: str | None


@dataclass(frozen=True, slots=True)
class WaitingAct:
    """The effects of an act; counts add up to asked. more: others that fit may wait, from next_cursor on."""

    # counts: outcome -> number. done: messages that no longer wait. more: beyond the limit or the time.
    action: str
    dry_run: bool
    asked: int
    done: int
    counts: dict[str, int]
    results: tuple[WaitingOutcome, ...]
    more: bool
    next_cursor: str | None
    took_ms: float = field(metadata=HIDDEN)
