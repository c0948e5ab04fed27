"""Dead letters and their replay as the window returns them; the conventions are those of `snapshots.py`."""

from __future__ import annotations

from dataclasses import field

from ...lazy_dataclass import dataclass
from ..messages.snapshots import MessageCopy, MessageLine, MessageRow
from ..sentences import Sentence
from ..snapshots import HIDDEN, ByTopic


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """One dead letter. message.stored_at_ms: dead since. origin_topic, origin_id: where it was sent to. times_replayed:
    before it came here, and since. came_by_job: the replay whose copy it is. replayed_by: replays from here, the newest
    first. copies: dead letters of the group that were this message once; None where that was not counted."""

    # message.reconsume_times: how often it was retried. expires_not_before_at_ms: it stays at least until then, unless
    # the disk gets too full. came_by_job: the copy of that replay became a dead letter again. replayed_by: of the
    # group's last 20 jobs. copies: this one included.
    message: MessageLine | MessageRow
    origin_topic: str | None
    origin_id: str | None
    expires_not_before_at_ms: int | None
    times_replayed: int
    came_by_job: str | None
    replayed_by: tuple[str, ...]
    copies: int | None


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Dead letters of a group, newest first. The other fields are those of MessagePage; total and seen count all dead
    letters of the requested time, also those that the filter leaves out."""

    rows: tuple[DeadLetterRow, ...]
    next_cursor: str | None
    total: int
    seen: int
    skipped: int
    truncated: bool
    snapshot_at_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetterCopies:
    """Whole dead letters with their bodies, newest first. The other fields are those of DeadLetterPage."""

    rows: tuple[MessageCopy, ...]
    next_cursor: str | None
    total: int
    seen: int
    skipped: int


@dataclass(frozen=True, slots=True)
class DeadLetterCell:
    """topic: they were first sent to, "" when they do not say. hour_at_ms: when the hour begins that they died in."""

    topic: str
    retries: int
    hour_at_ms: int
    count: int


@dataclass(frozen=True, slots=True)
class DeadLetterSummary:
    """A group's dead letters by where they come from, their retries and the hour they died in. counted of the total are
    looked at so far (truncated: ask again, it goes on from there); cells and unreadable add up to it. messages: how
    many different ones they once were; None where that was not counted. again: copies of replays that died again."""

    # cells: in no order. unreadable: how many of `counted` have no record. again: of replayed copies.
    group: str
    total: int
    counted: int
    unreadable: int
    truncated: bool
    cells: tuple[DeadLetterCell, ...]
    messages: int | None
    again: int
    took_ms: float = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class ExpiringGroup:
    # count: dead letters of the group that may be deleted within the requested time; first_at_ms: the first ones stay
    # at least until then.
    group: str
    count: int
    first_at_ms: int


@dataclass(frozen=True, slots=True)
class ExpiringLetters:
    """Dead letters that may expire within the time: their log file has been kept long enough by then."""

    # groups: those with the most first.
    within_ms: int
    total: int
    groups: tuple[ExpiringGroup, ...]


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """A group that has dead letters. known: whether there still is such a group. oldest_at_ms, newest_at_ms: when they
    died. expires_not_before_at_ms: of the oldest. job: the replay that is not finished."""

    group: str
    known: bool
    count: int
    oldest_at_ms: int | None
    newest_at_ms: int | None
    expires_not_before_at_ms: int | None
    job: str | None


@dataclass(frozen=True, slots=True)
class ReplayFilter:
    topic: str | None = None
    retries: int | None = None
    key: str | None = None
    replayed: str | None = None

    @property
    def origin(self) -> str:
        return self.topic or ""

    @property
    def no_origin(self) -> bool:
        """True for letters that do not say where they were sent to."""
        return self.topic == ""


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """A replay of dead letters of one group. target: group (its retry topic), original (each to the topic it was sent
    to) or topic. state: running, paused, done, cancelled or failed; why: the reason, if the broker put it there.
    checking: it looks for copies that are stored already, and sends nothing. total = replayed + skipped_by_guard + gone
    + failed + unknown + not_chosen + not_reached. not_chosen: left out by its filter. tries_again: paused for something
    that passes; the broker has it go on by itself."""

    # topic: where copies go, None for "original". unknown: sent, but it can no longer be found out if they were stored.
    # rate: messages a second, at most. changed_at_ms: when it entered its state.
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
    filter: ReplayFilter | None
    by: str
    created_at_ms: int
    changed_at_ms: int

    @property
    def reached(self) -> int:
        """Number of messages whose result is known, good or bad."""
        return self.total - self.not_reached

    @property
    def worked_off(self) -> int:
        """Number of chosen messages whose result is known."""
        return self.reached - self.not_chosen

    @property
    def left_s(self) -> float:
        """Seconds that the remaining messages take at least, at the job's rate."""
        return self.not_reached / self.rate

    @property
    def chosen(self) -> int:
        """Number of messages that are to be sent, as far as is known; the filter may still leave out more of them."""
        return self.total - self.not_chosen

    @property
    def finished(self) -> bool:
        return self.state in ("done", "cancelled", "failed")


@dataclass(frozen=True, slots=True)
class UnreadableReplay:
    """A replay whose journal cannot be read: nothing is sent for it."""

    id: str
    why: Sentence
    modified_at_ms: int


@dataclass(frozen=True, slots=True)
class ReplayJobs:
    """jobs: newest first. Finished ones are kept 30 days, at most 1,000 of them."""

    jobs: tuple[ReplayJob, ...]
    unreadable: tuple[UnreadableReplay, ...]


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The effects of a replay. job: the replay that was started; None after a dry run. A dry run looks at `scanned` of
    the total; by_topic: how many of those would be sent, by the topic they were first sent to."""

    # total: messages in the selection. A dry run reads for two seconds at most (truncated: not all were looked at).
    # by_topic: the most first. skipped_by_guard, gone, failed: how many would not be sent.
    total: int
    scanned: int
    truncated: bool
    by_topic: tuple[ByTopic, ...]
    skipped_by_guard: int
    gone: int
    failed: int
    not_chosen: int
    warnings: tuple[Sentence, ...]
    job: ReplayJob | None


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of one message of a replay. queue_id, queue_offset, and the fields behind died_again: of the letter,
    None when it can no longer be read. died_again: True if its copy is again a dead letter of the group; None if that
    is not known."""

    # result: "replayed", "skipped_by_guard", "gone", "failed", "unknown", "not_chosen" or "not_reached"; why: None for
    # replayed ones.
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
    """Results in the order of the job. Results that it has not recorded yet (about a second's work) are "not_reached"
    here. next_cursor: None at the end. died_again: number of the whole job's copies that became dead letters of the
    group again; None if that is not known (yet)."""

    rows: tuple[ReplayResult, ...]
    next_cursor: str | None
    total: int
    died_again: int | None
