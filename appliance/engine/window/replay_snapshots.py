"""Dead letters and their replay as the window hands them out; the conventions are those of `snapshots.py`."""

from __future__ import annotations

from dataclasses import dataclass

from .message_snapshots import MessageCopy, MessageRow
from .sentences import Sentence


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """One dead letter. row.stored_at_ms: dead since; row.reconsume_times: how often it was tried again.

    origin_topic, origin_id: the topic it was sent to, and its offset id there. expires_not_before_ms: it stays at least
    until then, unless the disk gets too full; its log file may live longer. times_replayed: before it came here, and
    since. came_by_job: the job whose copy it is, dead once more. replayed_by: jobs that have replayed it from here, the
    newest first (of the group's last 20). copies: dead letters of this group that were this message once, this one
    included; None where that was not counted.
    """

    row: MessageRow
    origin_topic: str | None
    origin_id: str | None
    expires_not_before_ms: int | None
    times_replayed: int
    came_by_job: str | None
    replayed_by: tuple[str, ...]
    copies: int | None


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Dead letters of a group, newest first; the other fields are those of MessagePage: total and seen count all of the
    time that was asked for, also those that the filter leaves out."""

    rows: tuple[DeadLetterRow, ...]
    next_cursor: str | None
    total: int
    seen: int
    skipped: int
    truncated: bool
    snapshot_at_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetterCopies:
    """All there is of some dead letters, newest first. The other fields are those of DeadLetterPage."""

    rows: tuple[MessageCopy, ...]
    next_cursor: str | None
    total: int
    seen: int
    skipped: int


@dataclass(frozen=True, slots=True)
class DeadLetterCell:
    """Dead letters of one origin topic ("" when they do not say), retry count and hour that begins at hour_ms."""

    topic: str
    retries: int
    hour_ms: int
    count: int


@dataclass(frozen=True, slots=True)
class DeadLetterSummary:
    """A group's dead letters by where they come from, their retries, and the hour they died in.

    total: there are now; counted: looked at so far (truncated: not all; ask again, it goes on from there); unreadable:
    of those, without a record. cells: add up with `unreadable` to `counted`; in no order. messages: how many different
    ones they once were; None where that was not counted. again: copies of replays that died once more.
    """

    group: str
    total: int
    counted: int
    unreadable: int
    truncated: bool
    cells: tuple[DeadLetterCell, ...]
    messages: int | None
    again: int
    took_ms: float


@dataclass(frozen=True, slots=True)
class ExpiringGroup:
    """count: dead letters of the group that may go within the time asked for; first_ms: the first ones stay at least
    until then."""

    group: str
    count: int
    first_ms: int


@dataclass(frozen=True, slots=True)
class ExpiringLetters:
    """Dead letters that may go within `within_ms` from now on: the log file they lie in has been kept long enough by
    then. groups: the most first."""

    within_ms: int
    total: int
    groups: tuple[ExpiringGroup, ...]


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """A group that has dead letters. known: whether there still is such a group. oldest_ms, newest_ms: when they died.
    expires_not_before_ms: of the oldest. job: the replay job that is not finished."""

    group: str
    known: bool
    count: int
    oldest_ms: int | None
    newest_ms: int | None
    expires_not_before_ms: int | None
    job: str | None


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """A job that replays dead letters of one group.

    target: "group" (its retry topic), "original" (each to the topic it was sent to), "topic". topic: where copies go,
    None for "original". state: "running", "paused", "done", "cancelled", "failed"; why: the reason, if the broker put
    it there. checking: it is looking for copies that are stored already, and sends nothing. total = replayed +
    skipped_by_guard + gone + failed + unknown + not_chosen + not_reached. unknown: sent, and whether it was stored can
    no longer be found out. not_chosen: its filter leaves them out. tries_again: it is paused for something that passes,
    and the broker has it go on by itself. rate: messages a second, at most. changed_ms: when it came into its state.
    """

    id: str
    group: str
    target: str
    topic: str | None
    state: str
    why: Sentence | None
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
    filter: dict[str, str | int] | None
    by: str
    created_ms: int
    changed_ms: int

    @property
    def reached(self) -> int:
        """Messages whose result is known, for better or worse."""
        return self.total - self.not_reached

    @property
    def worked_off(self) -> int:
        """Of the chosen ones, those whose result is known."""
        return self.reached - self.not_chosen

    @property
    def left_s(self) -> float:
        """Seconds that the rest takes at least, at its rate."""
        return self.not_reached / self.rate

    @property
    def chosen(self) -> int:
        """Messages that are to be sent, as far as is known; with a filter others may still turn out not to be."""
        return self.total - self.not_chosen

    @property
    def finished(self) -> bool:
        return self.state in ("done", "cancelled", "failed")


@dataclass(frozen=True, slots=True)
class UnreadableReplay:
    """A job whose journal cannot be read: nothing is sent for it, and nothing more is known of it."""

    id: str
    why: Sentence
    modified_ms: int


@dataclass(frozen=True, slots=True)
class ReplayJobs:
    """jobs: newest first. Finished ones are kept 30 days, at most 1,000 of them."""

    jobs: tuple[ReplayJob, ...]
    unreadable: tuple[UnreadableReplay, ...]


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What a replay does, or would do.

    total: messages in the selection. job: what was started; None after a dry run. Of a dry run, which reads for two
    seconds at most: scanned of them were looked at (truncated: not all); by_topic: (origin topic, how many of the
    scanned would be sent), most first, None for an unknown one; skipped_by_guard, gone, failed: what would not be;
    not_chosen: what the filter leaves out. Without a dry run nothing is scanned.
    """

    total: int
    scanned: int
    truncated: bool
    by_topic: tuple[tuple[str | None, int], ...]
    skipped_by_guard: int
    gone: int
    failed: int
    not_chosen: int
    warnings: tuple[Sentence, ...]
    job: ReplayJob | None


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What became of one message of a job. queue_id, queue_offset: of the dead letter. result: "replayed",
    "skipped_by_guard", "gone", "failed", "unknown", "not_chosen" or "not_reached"; why: the reason, None for replayed
    ones. died_again: its copy is a dead letter of the group once more; None where that is not known. The other fields
    are the dead letter's, None and empty when it cannot be read any more."""

    number: int
    queue_id: int
    queue_offset: int
    result: str
    why: Sentence | None
    died_again: bool | None
    origin_topic: str | None
    origin_id: str | None
    unique_id: str | None
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplayResultPage:
    """Results in the order of the job. What it has not written down yet (about a second's work) counts as not reached
    here. next_cursor: None at the end. died_again: how many copies of the whole job are dead letters of the group once
    more; None where that is not known (yet)."""

    rows: tuple[ReplayResult, ...]
    next_cursor: str | None
    total: int
    died_again: int | None
