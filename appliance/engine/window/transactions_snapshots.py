"""Transactions, as the window hands them out; the conventions are those of `snapshots.py`."""

from __future__ import annotations

from dataclasses import dataclass

from .sentences import Sentence


@dataclass(frozen=True, slots=True)
class HalfRow:
    """What a half message, or the copy of a discarded one, says of itself. topic, queue_id: where it is to go. group:
    its producers'; producers: how many of them are connected. No body: `message_body(offset_id)`."""

    offset_id: str
    physical_offset: int
    unique_id: str | None
    topic: str
    queue_id: int
    group: str
    producers: int
    keys: tuple[str, ...]
    tags: str | None
    stored_at_ms: int
    born_at_ms: int
    born_host: str
    body_bytes: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A half message that nobody has decided. half_offset is its place, row.unique_id the check that it is the same.

    age_ms: since it was stored; None when its record is gone, as `row` is then. checks: how often its producers were
    asked, of max_checks. next_check_ms: when they are asked next, by the wall clock; None when it waits until a
    producer of its group comes. problem: why it cannot be committed as things are.
    """

    half_offset: int
    row: HalfRow | None
    age_ms: int | None
    checks: int
    max_checks: int
    next_check_ms: int | None
    waits_for_producer: bool
    problem: Sentence | None


@dataclass(frozen=True, slots=True)
class OpenTransactionPage:
    """Open ones, the oldest first. open: how many there are in all. truncated: the time budget ended this page early,
    so an empty page may have a next one. scanned: half messages looked at. ready: False in the first moments after a
    start, when not all open ones are known yet."""

    rows: tuple[OpenTransaction, ...]
    next_cursor: str | None
    open: int
    ready: bool
    scanned: int
    truncated: bool
    took_ms: float


@dataclass(frozen=True, slots=True)
class DiscardedTransaction:
    """One that was set aside, in TRANS_CHECK_MAX_TIME_TOPIC at queue_offset; row is of that copy, so stored_at_ms says
    when. half_offset_id: of the half message it was, None where the copy does not say. checks: questions that were
    asked. why: what for it was set aside. resumed_as: the offset id of the half message that it became again."""

    queue_offset: int
    row: HalfRow
    half_offset_id: str | None
    checks: int
    why: Sentence
    resumed_as: str | None


@dataclass(frozen=True, slots=True)
class DiscardedTransactionPage:
    """Discarded ones, the newest first. kept: how many there are in all. resumed_known: False where the key index is
    off, which would tell of those that were resumed before the last start."""

    rows: tuple[DiscardedTransaction, ...]
    next_cursor: str | None
    kept: int
    resumed_known: bool
    scanned: int
    truncated: bool
    took_ms: float


@dataclass(frozen=True, slots=True)
class ResolvedTransaction:
    """One that has ended.

    how: "committed", "rolled_back", "discarded" or "lost" (its half message could not be read any more). by: "producer"
    (at once), "check" (a producer that was asked), "administrator" or "broker" (nobody said so in time). client: the
    producer's address. admin, reason: who and why, of an administrator. age_ms: how old the half message was. row: None
    when its record is gone.
    """

    half_offset: int
    row: HalfRow | None
    how: str
    at_ms: int
    by: str
    client: str | None
    admin: str | None
    reason: str | None
    age_ms: int
    checks: int


@dataclass(frozen=True, slots=True)
class ResolvedTransactionPage:
    """Ended ones, the newest first. kept_from_ms: when the oldest one that is kept ended, None without any: a million
    are. lost: ends since the start that could not be written down."""

    rows: tuple[ResolvedTransaction, ...]
    next_cursor: str | None
    kept_from_ms: int | None
    lost: int
    scanned: int
    truncated: bool
    took_ms: float


@dataclass(frozen=True, slots=True)
class TransactionCounts:
    """Open ones now; what happened since the start. oldest_stored_ms: of the oldest open one. parked: (producer group,
    how many wait for a producer of it at most), the most first, 20 groups; waiting: of all groups. asked: questions to
    producers."""

    open: int
    oldest_stored_ms: int | None
    parked: tuple[tuple[str, int], ...]
    waiting: int
    asked: int
    committed: int
    rolled_back: int
    discarded: int
    lost: int


@dataclass(frozen=True, slots=True)
class HalfPlace:
    """One open transaction, as a caller names it. unique_id: None to act on whatever is there."""

    half_offset: int
    unique_id: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionOutcome:
    """What became of one. outcome: a value of `broker.transactions.admin_acts.Fate`; "possible" in a dry run. why: None
    when it was done or asked. decided: how it had ended before."""

    half_offset: int
    unique_id: str | None
    outcome: str
    why: Sentence | None
    decided: ResolvedTransaction | None


@dataclass(frozen=True, slots=True)
class TransactionAct:
    """What an act did, or would do. asked: transactions; counts: outcome -> how many, which add up to it; done: those
    that were decided, or asked about. more: others that fit the filter may be open, beyond the limit or the time."""

    action: str
    dry_run: bool
    asked: int
    done: int
    counts: dict[str, int]
    results: tuple[TransactionOutcome, ...]
    more: bool
    took_ms: float


@dataclass(frozen=True, slots=True)
class ResumedTransaction:
    """The half message that a discarded one became."""

    half_offset: int
    offset_id: str
    unique_id: str
