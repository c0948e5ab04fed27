"""Transactions as the window returns them; the conventions are those of `snapshots.py`."""

from __future__ import annotations

from dataclasses import field

from ...lazy_dataclass import dataclass
from ..sentences import Sentence
from ..snapshots import HIDDEN


@dataclass(frozen=True, slots=True)
class HalfRow:
    """A half message. topic, queue_id: its target. group: that of its producers; producers: how many of them are
    connected."""

    offset_id: str
    physical_offset: int = field(metadata=HIDDEN)
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
    """An undecided transaction. next_check_at_ms: None while it waits for a producer of its group. problem: why it
    cannot be committed."""

    # half_offset: its place, message.unique_id the check that it is the same. age_ms: since it was stored; age_ms and
    # message are None if its record is gone. checks: of max_checks. next_check_at_ms: by the wall clock.
    half_offset: int
    message: HalfRow | None
    age_ms: int | None
    checks: int
    max_checks: int
    next_check_at_ms: int | None
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
    """One that was set aside. half_offset_id: of its half message. resumed_as: the half message it became again."""

    # In TRANS_CHECK_MAX_TIME_TOPIC at queue_offset. message: that copy, so its stored_at_ms is the time of setting
    # aside. half_offset_id: None if the copy does not name it. why: the reason of setting aside.
    queue_offset: int
    message: HalfRow
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
    """A transaction that has ended. how: committed, rolled_back, discarded or lost. by: producer (at once), check (a
    producer that was asked), administrator or broker. admin, reason: of an administrator. message: None when its record
    is gone."""

    # lost: its half message could no longer be read. broker: not decided in time. client: the producer's address.
    # age_ms: of the half message at its end.
    half_offset: int
    message: HalfRow | None
    how: str
    ended_at_ms: int
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
class ParkedGroup:
    group: str
    count: int


@dataclass(frozen=True, slots=True)
class TransactionCounts:
    """Open ones now; what happened since the start. parked: producer groups whose transactions wait for a producer, 20
    at most; waiting: of all groups. asked: questions to producers."""

    # parked: upper bounds, the most first.
    open: int
    oldest_stored_at_ms: int | None
    parked: tuple[ParkedGroup, ...]
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
    """The result of one transaction. outcome: done, asked, possible (dry run), decided_before (decided says how), or
    why not."""

    # outcome: a value of `broker.transactions.admin_acts.Fate`, or "possible". why: None if it was done or asked.
    half_offset: int
    unique_id: str | None
    outcome: str
    why: Sentence | None
    decided: ResolvedTransaction | None


@dataclass(frozen=True, slots=True)
class TransactionAct:
    """The effects of an act; counts add up to asked."""

    # counts: outcome -> number. done: those decided, or checked. more: others that match the filter may be open, beyond
    # the limit or the time.
    action: str
    dry_run: bool
    asked: int
    done: int
    counts: dict[str, int]
    results: tuple[TransactionOutcome, ...]
    more: bool
    took_ms: float = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class ResumedTransaction:
    """The half message that a discarded transaction became: its producers are asked about it, nothing is committed."""

    half_offset: int
    offset_id: str
    unique_id: str
