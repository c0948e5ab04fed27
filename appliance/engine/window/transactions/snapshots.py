"""Transactions as the window returns them; the conventions are those of `snapshots.py`."""

from __future__ import annotations

from dataclasses import dataclass

from ..sentences import Sentence


@dataclass(frozen=True, slots=True)
class HalfRow:
    """A half message, or the copy of a discarded one. topic, queue_id: where it goes when committed. group: its
    producer group; producers: number of its connected producers. No body: `message_body(offset_id)`."""

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
    """An undecided half message. half_offset is its place, row.unique_id the check that it is the same.

    age_ms: time since it was stored. age_ms and row are None if its record is gone. checks: how often it was checked
    with its producers, of max_checks. next_check_ms: wall time of the next check; None if it waits until a producer of
    its group connects. problem: why it cannot be committed now.
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
    """Open transactions, the oldest first. open: how many there are in all. truncated: the time budget ended this page
    early, so an empty page may have a next one. scanned: half messages looked at. ready: False in the first moments
    after a start, when not all open transactions are known yet."""

    rows: tuple[OpenTransaction, ...]
    next_cursor: str | None
    open: int
    ready: bool
    scanned: int
    truncated: bool
    took_ms: float


@dataclass(frozen=True, slots=True)
class DiscardedTransaction:
    """A transaction that was set aside, in TRANS_CHECK_MAX_TIME_TOPIC at queue_offset. row: of that copy, so its
    stored_at_ms is the time of setting aside. half_offset_id: of the original half message, None if the copy does not
    name it. checks: number of checks that were made. why: the reason of setting aside. resumed_as: the offset id of the
    half message that it became again."""

    queue_offset: int
    row: HalfRow
    half_offset_id: str | None
    checks: int
    why: Sentence
    resumed_as: str | None


@dataclass(frozen=True, slots=True)
class DiscardedTransactionPage:
    """Discarded transactions, the newest first. kept: how many there are in all. resumed_known: False if the key index
    is off; then those resumed before the last start are not recognised."""

    rows: tuple[DiscardedTransaction, ...]
    next_cursor: str | None
    kept: int
    resumed_known: bool
    scanned: int
    truncated: bool
    took_ms: float


@dataclass(frozen=True, slots=True)
class ResolvedTransaction:
    """A transaction that has ended.

    how: "committed", "rolled_back", "discarded" or "lost" (its half message could no longer be read). by: "producer"
    (at once), "check" (a producer's answer to a check), "administrator" or "broker" (not decided in time). client: the
    producer's address. admin, reason: of an administrator's decision. age_ms: age of the half message at its end. row:
    None if its record is gone.
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
    """Ended transactions, the newest first; the last million is kept. kept_from_ms: end of the oldest one that is kept,
    None without any. lost: number of ends since the start that could not be recorded."""

    rows: tuple[ResolvedTransaction, ...]
    next_cursor: str | None
    kept_from_ms: int | None
    lost: int
    scanned: int
    truncated: bool
    took_ms: float


@dataclass(frozen=True, slots=True)
class TransactionCounts:
    """open: number of open transactions now. oldest_stored_ms: store time of the oldest open one. parked: (producer
    group, upper bound of how many wait for a producer of it), the most first, 20 groups; waiting: the sum over all
    groups. The others are counts since the start; asked: checks sent to producers."""

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
    """The place of an open transaction, as an argument. unique_id: None to act on any transaction at this offset."""

    half_offset: int
    unique_id: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionOutcome:
    """The result of one transaction. outcome: a value of `broker.transactions.admin_acts.Fate`; "possible" in a dry
    run. why: None if it was done or asked. decided: how it had ended before."""

    half_offset: int
    unique_id: str | None
    outcome: str
    why: Sentence | None
    decided: ResolvedTransaction | None


@dataclass(frozen=True, slots=True)
class TransactionAct:
    """The result of an act, or of its dry run. asked: number of transactions; counts: outcome -> number, which add up
    to `asked`; done: number of those decided, or checked. more: others that match the filter may be open, beyond the
    limit or the time."""

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
    """The half message that a discarded transaction became."""

    half_offset: int
    offset_id: str
    unique_id: str
