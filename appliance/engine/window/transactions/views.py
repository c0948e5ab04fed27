"""Views of transactions: open half messages, discarded ones, and how others ended.

The states of half messages are copied from memory a page at a time; their records are read from the log, in the
caller's thread. A request ends after 250 ms with what it has found by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypedDict, Unpack
from zlib import crc32

from ...broker.topics import TopicConfigManager
from ...broker.transactions.half import DISCARDED_TOPIC, HALF_QUEUE, Half, checks_of, half_like, half_of, waited_ms
from ...broker.transactions.open_halves import MOST_CHECKS, PAGE, OpenHalves
from ...broker.transactions.resolved import By, EntryPlace, How, Resolved
from ...broker.transactions.resume import CATCH_UP_S
from ...broker.transactions.transactions import Transactions
from ...cursors import decode_cursor, encode_cursor
from ...errors import InvalidInput, Unavailable
from ...protocol.message_id import decode_host, encode_host, encode_offset_id
from ...protocol.names import HALF_TOPIC
from ...protocol.properties import KEYS, UNIQUE_KEY, decode_properties, find_property
from ...store.message_store import MessageStore
from ...store.record_reader import Missing, StoredRecord
from ..figures.measures import Budget
from ..messages.queue_reader import Entry, QueueReader
from ..messages.views import row_of
from ..refusals import require_within
from ..sentences import Sentence, say
from ..topics.views import host_text
from .snapshots import (
    DiscardedTransaction,
    DiscardedTransactionPage,
    HalfRow,
    OpenTransaction,
    OpenTransactionPage,
    ParkedGroup,
    ResolvedTransaction,
    ResolvedTransactionPage,
    TransactionCounts,
)

MAX_LIMIT = 500
#: Time after which a request ends early.
BUDGET_MS = 250.0
#: Entries that are read together.
_SLICE = 64
_DESCRIPTORS = 8
#: Groups with half messages that wait for a producer that are listed at most.
_GROUPS_TOLD = 20

HOW = {How.COMMITTED: "committed", How.ROLLED_BACK: "rolled_back", How.DISCARDED: "discarded", How.LOST: "lost"}
BY = {By.PRODUCER: "producer", By.CHECK: "check", By.ADMINISTRATOR: "administrator", By.BROKER: "broker"}


class Filters(TypedDict, total=False):
    """The fields of Wanted, as arguments."""

    topic: str | None
    group: str | None
    key: str | None


class Wanted(NamedTuple):
    """A filter of transactions; None matches anything. topic: that they are for. group: their producer group. key:
    their unique id, or one of their keys."""

    topic: str | None = None
    group: str | None = None
    key: str | None = None

    def takes(self, half: Half) -> bool:
        if self.topic is not None and half.target.topic != self.topic:
            return False
        if self.group is not None and half.group != self.group:
            return False
        if self.key is None:
            return True
        text = half.record.properties
        return self.key == find_property(text, UNIQUE_KEY) or self.key in (find_property(text, KEYS) or "").split()

    @property
    def anything(self) -> bool:
        return self == (None, None, None)


class OpenHalf(NamedTuple):
    """An open half message. half: None if its record is gone. checks: as counted in memory."""

    offset: int
    checks: int
    half: Half | None


class TransactionViews:
    """Any thread; reads in the caller's."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        transactions: Transactions,
        producers: Callable[[str], int],
    ) -> None:
        """producers: returns how many of a group are connected."""
        # Constant after construction.
        self._store = store
        self._topics = topics
        self._halves = transactions.open_halves
        self._checking = transactions.check
        self._producers = producers
        self._resolved = transactions.resolved
        self._journal = transactions.acts.journal
        self._discarded = transactions.resume
        self._decisions = transactions.decisions
        self._settings = transactions.settings
        self._clock = transactions.check.clock
        # Replaced whole: (queue offset of the oldest open half message, its store time).
        self._oldest: tuple[int, int | None] = (-1, None)

    # --- open ones

    def open(self, *, cursor: str | None = None, limit: int = 50, **filters: Unpack[Filters]) -> OpenTransactionPage:
        """Return a page of undecided transactions, the oldest first.

        The list is live: transactions that end meanwhile are left out. `next_cursor` goes with the same filter. limit:
        1 to 500. InvalidInput.
        """
        wanted = Wanted(**filters)
        begin = time.monotonic()
        require_within("limit", limit, 1, MAX_LIMIT)
        crc = crc32(repr(("open", wanted)).encode())
        at = 0 if cursor is None else _cursor_of(cursor, crc, 1)[0]
        walk = OpenWalk(self._store, self._halves, wanted, at, Budget(BUDGET_MS))
        found = walk.take(limit)
        return OpenTransactionPage(
            rows=self._open_rows(found),
            next_cursor=None if walk.ended else encode_cursor((crc, walk.at)),
            open=self._halves.count,
            ready=self._checking.ready,
            scanned=walk.scanned,
            truncated=walk.truncated,
            took_ms=(time.monotonic() - begin) * 1000,
        )

    def find_open(self, wanted: Wanted, limit: int) -> tuple[list[Half], bool]:
        """Return (the first open half messages that match, True if there may be more)."""
        walk = OpenWalk(self._store, self._halves, wanted, 0, Budget(BUDGET_MS))
        found = walk.take(limit)
        return [one.half for one in found if one.half is not None], not walk.ended

    def _open_rows(self, found: list[OpenHalf]) -> tuple[OpenTransaction, ...]:
        wanted = {one.offset for one in found}
        due = self._halves.due_times(wanted)
        groups = {one.half.group for one in found if one.half is not None}
        parked = {offset for group in groups for offset in self._halves.parked_among(group, wanted)}
        now_ms, steady_ms = self._clock.wall_ms(), self._checking.now_ms()
        most = min(self._settings().most, MOST_CHECKS)
        rows = []
        for offset, checks, half in found:
            waits = offset in parked
            # A half message in neither table is being checked at this moment.
            next_ms = None if waits else int(now_ms + max(0.0, due.get(offset, steady_ms) - steady_ms))
            if half is None:
                rows.append(OpenTransaction(offset, None, None, checks, most, next_ms, waits, say("half_gone")))
                continue
            rows.append(
                OpenTransaction(
                    half_offset=offset,
                    message=self._row(half),
                    age_ms=max(0, now_ms - half.record.store_time_ms + waited_ms(half.record.properties)),
                    checks=max(checks, checks_of(half.record.properties)),
                    max_checks=most,
                    next_check_at_ms=next_ms,
                    waits_for_producer=waits,
                    problem=self._problem(half),
                )
            )
        return tuple(rows)

    def open_at(self, half_offsets: Sequence[int]) -> tuple[OpenTransaction | None, ...]:
        """Return the open transactions of these half messages (1000 at most); None for each that is not open."""
        return tuple(self.one_open(offset) for offset in half_offsets[:1000])

    def one_open(self, offset: int) -> OpenTransaction | None:
        """Return the open transaction of the half message at a queue offset; None if it is not open."""
        checks = self._halves.checks(offset)
        if checks is None:
            return None
        found = OpenWalk(self._store, self._halves, Wanted(), offset, Budget(BUDGET_MS)).take(1)
        return next(iter(self._open_rows([one for one in found if one.offset == offset])), None)

    def _problem(self, half: Half) -> Sentence | None:
        if self._topics.get(half.target.topic) is None:
            return say("half_topic_gone", topic=half.target.topic)
        return None

    def _row(self, half: Half) -> HalfRow:
        record = half.record
        row, properties = row_of(record), decode_properties(record.properties)
        return HalfRow(
            offset_id=row.offset_id,
            physical_offset=record.physical_offset,
            unique_id=properties.get(UNIQUE_KEY),
            topic=half.target.topic,
            queue_id=half.target.queue_id,
            group=half.group,
            producers=self._producers(half.group),
            keys=row.keys,
            tags=row.tags,
            stored_at_ms=record.store_time_ms,
            born_at_ms=record.born_time_ms,
            born_host=row.born_host,
            body_bytes=row.body_bytes,
        )

    # --- discarded ones

    def discarded(
        self, *, cursor: str | None = None, limit: int = 50, **filters: Unpack[Filters]
    ) -> DiscardedTransactionPage:
        """Return a page of transactions that were set aside because they were not decided, the newest first. As
        `open`."""
        wanted = Wanted(**filters)
        begin = time.monotonic()
        require_within("limit", limit, 1, MAX_LIMIT)
        crc = crc32(repr(("discarded", wanted)).encode())
        queue = self._store.find_queue(DISCARDED_TOPIC, 0)
        end = 0 if queue is None else queue.max_offset
        at = end if cursor is None else min(end, _cursor_of(cursor, crc, 1)[0])
        index = self._store.index
        rows: list[DiscardedTransaction] = []
        budget, scanned = Budget(BUDGET_MS), 0
        if queue is not None:
            self._discarded.catch_up(CATCH_UP_S / 10)
            with QueueReader(self._store, _DESCRIPTORS) as reader:
                while at > queue.min_offset and len(rows) < limit and not budget.spent:
                    at -= 1
                    scanned += 1
                    found = reader.record(queue, at)
                    half = None if found is None else half_like(StoredRecord(*found))
                    if half is not None and wanted.takes(half):
                        rows.append(self._discarded_row(half))
        ended = queue is None or at <= queue.min_offset
        return DiscardedTransactionPage(
            rows=tuple(rows),
            next_cursor=None if ended else encode_cursor((crc, at)),
            kept=0 if queue is None else queue.max_offset - queue.min_offset,
            resumed_known=index.enabled,
            scanned=scanned,
            truncated=not ended and len(rows) < limit,
            took_ms=(time.monotonic() - begin) * 1000,
        )

    def _discarded_row(self, half: Half) -> DiscardedTransaction:
        record, settings = half.record, self._settings()
        checks = checks_of(record.properties)
        resumed = self._discarded.resumed_as(StoredRecord(record, half.data))
        kept = settings.kept_ms
        if checks < settings.most and record.store_time_ms - record.born_time_ms > kept:
            why = say("half_too_old", hours=kept // 3_600_000)
        else:
            why = say("half_checks_used_up", checks=checks)
        return DiscardedTransaction(
            queue_offset=record.queue_offset,
            message=self._row(half),
            half_offset_id=self._id_of_half(half),
            checks=checks,
            why=why,
            resumed_as=None if resumed is None else self._offset_id(resumed),
        )

    def _id_of_half(self, half: Half) -> str | None:
        """Return the offset id of the half message that was copied; None for Apache's copies of discarded ones, which
        do not name it."""
        physical = half.record.prepared_transaction_offset
        found = self._store.records.get(physical)
        if found is None or half_of(found) is None:
            return None
        one = found.record
        same = find_property(one.properties, UNIQUE_KEY) == half.unique_key and one.was_born_with(half.record)
        return row_of(one).offset_id if same else None

    def _offset_id(self, physical: int) -> str:
        found = self._store.records.get(physical)
        host = self._store.store_host if found is None else encode_host(*found.record.store_host)
        return encode_offset_id(host, physical)

    # --- ended ones

    def ended(
        self,
        *,
        how: str | None = None,
        by: str | None = None,
        from_ms: int | None = None,
        cursor: str | None = None,
        limit: int = 50,
        **filters: Unpack[Filters],
    ) -> ResolvedTransactionPage:
        """Return a page of transactions that have ended, the newest first; the last million is kept.

        how: "committed", "rolled_back", "discarded" or "lost". by: "producer", "check", "administrator" or "broker".
        from_ms: only those that ended since this wall time. Otherwise as `open`. Unavailable.
        """
        wanted = Wanted(**filters)
        begin = time.monotonic()
        require_within("limit", limit, 1, MAX_LIMIT)
        for field, value, choices in (("how", how, HOW.values()), ("by", by, BY.values())):
            if value is not None and value not in choices:
                raise InvalidInput(field, say("one_of", field=field, choices=", ".join(choices)))
        crc = crc32(repr(("ended", wanted, how, by, from_ms)).encode())
        before = None if cursor is None else EntryPlace(*_cursor_of(cursor, crc, 2))
        rows: list[ResolvedTransaction] = []
        budget, scanned = Budget(BUDGET_MS), 0
        last, truncated, ended = before, False, True
        try:
            for place, entry in self._resolved.newest_first(before):
                if len(rows) >= limit or budget.spent:
                    truncated, ended = len(rows) < limit, False
                    break
                if from_ms is not None and entry.at_ms < from_ms:
                    break
                last = place
                scanned += 1
                if how not in (None, HOW[entry.how]) or by not in (None, BY[entry.by]):
                    continue
                found = self._ended_row(entry, wanted)
                if found is not None:
                    rows.append(found)
            oldest = self._resolved.oldest_ms()
        except OSError as error:
            raise Unavailable(say("ends_unreadable", reason=error.strerror or str(error))) from None
        return ResolvedTransactionPage(
            rows=tuple(rows),
            next_cursor=None if ended or last is None else encode_cursor((crc, *last)),
            kept_from_ms=oldest,
            lost=self._resolved.lost,
            scanned=scanned,
            truncated=truncated,
            took_ms=(time.monotonic() - begin) * 1000,
        )

    def end_of(self, half_offset: int, physical: int) -> ResolvedTransaction | None:
        """Return how a half message's transaction ended; None if that is not kept."""
        try:
            entry = self._resolved.find(half_offset, physical)
        except OSError:
            return None
        return None if entry is None else self._ended_row(entry, Wanted())

    def _ended_row(self, entry: Resolved, wanted: Wanted) -> ResolvedTransaction | None:
        """Return the row of an end; None if the filter does not match, or if the half message is open: then the log
        lost the end in a power cut."""
        half = self._half_of(entry)
        if half is not None and self._halves.checks(entry.half_offset) is not None:
            return None
        if not wanted.anything and (half is None or not wanted.takes(half)):
            return None
        act = self._journal.of(entry.physical_offset) if entry.by is By.ADMINISTRATOR else None
        return ResolvedTransaction(
            half_offset=entry.half_offset,
            message=None if half is None else self._row(half),
            how=HOW[entry.how],
            ended_at_ms=entry.at_ms,
            by=BY[entry.by],
            client=host_text(decode_host(entry.host)) if len(entry.host) in (8, 20) else None,
            admin=None if act is None else act.by,
            reason=None if act is None else act.reason,
            age_ms=entry.age_ms,
            checks=entry.checks,
        )

    def _half_of(self, entry: Resolved) -> Half | None:
        found = self._store.records.find(entry.physical_offset)
        half = None if isinstance(found, Missing) else half_of(found)
        if half is None or half.record.queue_offset != entry.half_offset:
            return None
        return half

    # --- numbers

    def counts(self) -> TransactionCounts:
        """Return the number of open transactions, and counts since the start."""
        parked = sorted(self._halves.parked_groups(), key=lambda one: -one[1])
        ends = self._decisions.counts
        return TransactionCounts(
            open=self._halves.count,
            oldest_stored_at_ms=self.oldest_stored_ms(),
            parked=tuple(ParkedGroup(*one) for one in parked[:_GROUPS_TOLD]),
            waiting=sum(count for _, count in parked),
            asked=self._checking.asked,
            committed=ends.get(How.COMMITTED, 0),
            rolled_back=ends.get(How.ROLLED_BACK, 0),
            discarded=ends.get(How.DISCARDED, 0),
            lost=ends.get(How.LOST, 0),
        )

    def oldest(self) -> int | None:
        """Return the queue offset of the oldest open half message; None if none is open."""
        for number in self._halves.page_numbers():
            states = self._halves.page(number)
            left = states.lstrip(b"\0")
            if left:
                return number * PAGE + len(states) - len(left)
        return None

    def oldest_stored_ms(self) -> int | None:
        """Return the store time of the oldest open half message; None if there is none. Its record is read once."""
        offset = self.oldest()
        if offset is None:
            return None
        known, stored = self._oldest
        if known != offset:
            queue = self._store.find_queue(HALF_TOPIC, HALF_QUEUE)
            if queue is None:
                return None
            with QueueReader(self._store, 1) as reader:
                stored = reader.stored_at_ms(queue, offset)
            if stored is not None:
                self._oldest = offset, stored
        return stored


class OpenWalk:
    """A walk over the open half messages that a filter matches, the oldest first."""

    def __init__(self, store: MessageStore, halves: OpenHalves, wanted: Wanted, at: int, budget: Budget) -> None:
        self._store = store
        self._halves = halves
        self._wanted = wanted
        self._budget = budget
        #: Offset at which the next page begins.
        self.at = at
        self.scanned = 0
        self.truncated = False
        self.ended = False

    def take(self, limit: int) -> list[OpenHalf]:
        """Return the next half messages, at most `limit`."""
        found: list[OpenHalf] = []
        with QueueReader(self._store, _DESCRIPTORS) as reader:
            for one in self._open(reader):
                if len(found) >= limit:
                    self.at = one.offset
                    return found
                if one.half is None:
                    if self._wanted.anything:
                        found.append(one)
                elif self._wanted.takes(one.half):
                    found.append(one)
                self.at = one.offset + 1
                if self._budget.spent:
                    self.truncated = True
                    return found
        self.ended = True
        return found

    def _open(self, reader: QueueReader) -> Iterator[OpenHalf]:
        queue = self._store.find_queue(HALF_TOPIC, HALF_QUEUE)
        for number in self._halves.page_numbers():
            base = number * PAGE
            states = self._halves.page(number) if base + PAGE > self.at else b""
            for first in range(max(0, self.at - base) // _SLICE * _SLICE, len(states), _SLICE):
                part = states[first : first + _SLICE]
                wanted = [index for index, state in enumerate(part) if state and base + first + index >= self.at]
                if not wanted:
                    continue
                begin, end, entries = 0, base + first + wanted[-1] + 1, list[Entry]()
                for index in wanted:
                    offset, half = base + first + index, None
                    if self._halves.checks(offset) is None:
                        continue  # decided meanwhile
                    if queue is not None and offset - begin >= len(entries):  # entries end at the end of a file
                        begin, entries = offset, reader.entries(queue, offset, end - offset)
                    if offset - begin < len(entries):
                        physical, size, _ = entries[offset - begin]
                        record = reader.record_at(physical, size)
                        half = None if record is None else half_of(StoredRecord(*record))
                    elif queue is not None and offset >= queue.max_offset:
                        continue  # it is not published yet
                    if half is not None and half.record.queue_offset != offset:
                        half = None
                    self.scanned += 1
                    yield OpenHalf(offset, part[index] - 1, half)


def _cursor_of(text: str, crc: int, count: int) -> tuple[int, ...]:
    """Return the numbers in a cursor; InvalidInput if it is none, or belongs to another request."""
    try:
        found: tuple[int, ...] = decode_cursor(text, tuple[int, ...])
        if len(found) != 1 + count or found[0] != crc or not 0 <= min(found) <= max(found) < 1 << 62:
            raise ValueError("another question's")
    except ValueError:
        raise InvalidInput("cursor", say("bad_cursor")) from None
    return found[1:]
