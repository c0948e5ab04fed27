"""Views of messages that wait: a group's retry ladder, and all waiting messages by the time they are due.

Entries of SCHEDULE_TOPIC_XXXX have the time when a message is due, and are read in pieces in the caller's thread; the
record has its target (`kinds.py`). A request ends after 250 ms with what it has found by then.
"""

from __future__ import annotations

import heapq
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypedDict, Unpack
from zlib import crc32

from ...broker.delays.levels import DelayLevels, queue_of_level
from ...broker.delays.settled import SettledDelays
from ...clock import Clock
from ...cursors import decode_cursor, encode_cursor
from ...errors import InvalidInput, NotFound, Unavailable
from ...protocol.message_id import decode_offset_id
from ...protocol.names import RETRY_PREFIX, TIMER_TOPIC
from ...protocol.properties import KEYS, REAL_QUEUE_ID, REAL_TOPIC, RETRY_TOPIC, TAGS, UNIQUE_KEY, decode_properties
from ...protocol.record import Record
from ...store.dispatch import SCHEDULE_TOPIC
from ...store.index.index_query import IndexQuery
from ...store.queues.consume_queue import ConsumeQueue
from ..figures.measures import Budget
from ..messages.queue_reader import Entry, QueueReader
from ..messages.views import row_of
from ..refusals import require_span, require_within
from ..sentences import Sentence, say
from ..snapshots import ByTopic
from ..sources import Sources
from .kinds import OTHER, SLICE, TEXT_LIMIT, Kind, LevelKinds, WaitingKinds, kind_of
from .snapshots import DelayLevel, LadderRung, PendingByDue, RetryLadder, WaitingPage, WaitingPlace, WaitingRow
from .timers import TIMED, UNREADABLE, TimedPlace, TimedWalk, WaitingTimers, count_by_due

MAX_LIMIT = 500
MAX_BUCKETS = 1000
#: Time after which a request ends early.
BUDGET_MS = 250.0
#: Entries that are read together if no records are needed.
_ENTRIES = 1024
_DESCRIPTORS = 32
#: Time that a search by name waits for the key index, and the longest name that is searched.
CATCH_UP_S = 0.15
_LONGEST_NAME = 1024
_MAX_MS = (1 << 63) - 1
_MAX_LEVEL = 1 << 31


class Delivering(Protocol):
    """The part of `broker.delays.delivery.DeliverDelayed` that this module uses."""

    def delivered_to(self, level: int) -> int:
        """Return the queue offset of a level's first message that is not delivered."""


class Filters(TypedDict, total=False):
    """The fields of Wanted, as arguments."""

    topic: str | None
    level: int | None
    from_ms: int | None
    to_ms: int | None
    retries: bool | None


class Wanted(NamedTuple):
    """A filter of waiting messages; None matches anything. topic: only messages that go there. level: 0 for timed
    messages. from_ms, to_ms: due in this span of the wall clock, both included. retries: True for messages on their way
    back to a group only, False for others only."""

    topic: str | None = None
    level: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    retries: bool | None = None

    @property
    def by_kind(self) -> bool:
        """True if the filter needs the messages' records."""
        return self.topic is not None or self.retries is not None

    @property
    def filter(self) -> Callable[[Kind], bool] | None:
        """The filter by kind; None if it needs no records."""
        return self.takes if self.by_kind else None

    def takes(self, kind: Kind | None) -> bool:
        if kind is None:
            return not self.by_kind
        if self.topic is not None and kind.topic != self.topic[:TEXT_LIMIT]:
            return False
        return self.retries in (None, kind.topic.startswith(RETRY_PREFIX))

    def numbers(self, kinds: WaitingKinds) -> list[int]:
        """Return the numbers of kinds that a matching message may have."""
        if self.topic is not None:
            return kinds.of_topic(self.topic)
        return kinds.of_retries(self.retries is True)


#: One message; also as (level, queue offset, unique id or None), for callers that import nothing of the engine.
WaitingPlaceLike = WaitingPlace | tuple[int, int, str | None]


def named(places: Iterable[WaitingPlaceLike]) -> list[WaitingPlace]:
    return [one if isinstance(one, WaitingPlace) else WaitingPlace(*one) for one in places]


class Found(NamedTuple):
    """The place of a waiting message, and when it is due."""

    due_ms: int
    level: int
    queue_offset: int
    physical_offset: int
    size: int


class WaitingViews:
    """Any thread; one request after the other, in the callers' threads."""

    def __init__(
        self,
        sources: Sources,
        levels: DelayLevels,
        delivering: Delivering,
        settled: SettledDelays,
        timers: WaitingTimers,
        clock: Clock,
    ) -> None:
        # Constant after construction.
        self._store, self._index, self._topics = sources.store, sources.sampler.index, sources.topics
        self._groups, self._lag = sources.groups, sources.lag
        self.timers = timers
        self._levels = levels
        self._delivering = delivering
        self._settled = settled
        self._clock = clock
        self._query = IndexQuery(self._store.index, self._store.records)
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._kinds = WaitingKinds(self._store, settled)

    @contextmanager
    def _asking(self) -> Iterator[WaitingKinds]:
        """Lend the kinds to one caller at a time; Unavailable if others hold them for too long."""
        if not self._lock.acquire(timeout=4 * BUDGET_MS / 1000):
            raise Unavailable(say("too_busy"))
        try:
            self._kinds.make_room()
            yield self._kinds
        finally:
            self._lock.release()

    # --- levels

    def queues(self) -> list[tuple[int, ConsumeQueue, int]]:
        """Return (level, its queue, the first offset that waits) for the levels that ever had messages, by level."""
        found = []
        for queue in self._index.of(SCHEDULE_TOPIC):
            level = queue.queue_id + 1
            begin = max(self._delivering.delivered_to(level), queue.min_offset)
            found.append((level, queue, min(begin, queue.max_offset)))
        return found

    def _pending(self, level: int, queue: ConsumeQueue, begin: int) -> int:
        return queue.max_offset - begin - self._settled.between(level, begin, queue.max_offset)

    def pending(self) -> int:
        """Return the number of waiting messages. For timed messages this includes the marks that recall others."""
        return sum(self._pending(*one) for one in self.queues()) + self.timers.pending()

    def levels(self) -> tuple[DelayLevel, ...]:
        """Return every delay level: how many messages wait, when the next is due."""
        now = self._clock.wall_ms()
        rows = {level: DelayLevel(level, self._delay_ms(level), 0, None, False) for level in self._configured()}
        with QueueReader(self._store, _DESCRIPTORS) as reader:
            for level, queue, begin in self.queues():
                waiting = self._pending(level, queue, begin)
                if waiting or level in rows:
                    due = self._next_due(level, queue, begin, reader) if waiting else None
                    rows[level] = DelayLevel(level, self._delay_ms(level), waiting, due, due is not None and due <= now)
        return tuple(rows[level] for level in sorted(rows))

    def _configured(self) -> range:
        return range(1, self._levels.highest + 1)

    def _delay_ms(self, level: int) -> int | None:
        return self._levels.delay_ms(level) if level <= self._levels.highest else None

    def _next_due(self, level: int, queue: ConsumeQueue, at: int, reader: QueueReader) -> int | None:
        """Return when the first message of a level is due; None if that cannot be read now."""
        budget = Budget(BUDGET_MS / 10)
        while at < queue.max_offset and not budget.spent:
            entries = reader.entries(queue, at, SLICE)
            if not entries:
                return None
            for offset, (_, _, due) in enumerate(entries, at):
                if not self._settled.holds(level, offset):
                    return due
            at += len(entries)
        return None

    # --- a group's ladder

    def ladder(self, group: str) -> RetryLadder:
        """Return a group's messages on their way back to it: how many wait at each level, when the next is due, their
        origin topics, and how many came back and are not consumed yet. NotFound.

        The first calls on a large backlog are `truncated`: each continues the count.
        """
        begin = time.monotonic()
        config = self._groups.get(group)
        lag = self._lag.snapshot()
        topic = RETRY_PREFIX + group
        budget = Budget(BUDGET_MS)
        rungs = {level: LadderRung(level, self._delay_ms(level), 0, None, None, ()) for level in self._configured()}
        scanned = pending = 0
        whole = True
        with self._asking() as kinds, QueueReader(self._store, _DESCRIPTORS) as reader:
            for level, queue, first in self.queues():
                known = kinds.of(level, first)
                whole = kinds.fill(known, queue, reader, budget) and not known.counts[OTHER] and whole
                scanned += len(known.ids)
                pending += queue.max_offset - first
                found = {
                    number: count
                    for number, count in known.counts.items()
                    if count > 0 and (kind := kinds.kind(number)) is not None and kind.topic == topic
                }
                if not found:
                    continue
                at = known.first_of(found, known.base)
                due = [code for _, _, code in reader.entries(queue, at, 1)]
                rungs[level] = LadderRung(
                    level,
                    self._delay_ms(level),
                    sum(found.values()),
                    due[0] if due else None,
                    reader.stored_at_ms(queue, at),
                    _most_first({kind.origin: found[number] for number in found if (kind := kinds.kind(number))}),
                )
        waiting = sum(rung.waiting for rung in rungs.values())
        if config is None and not waiting and whole and topic not in lag.queues and self._topics.get(topic) is None:
            raise NotFound("group", group)  # a deleted group's retries still wait
        origins: dict[str | None, int] = {}
        for rung in rungs.values():
            for one in rung.by_topic:
                origins[one.topic] = origins.get(one.topic, 0) + one.count
        return RetryLadder(
            group=group,
            rungs=tuple(rungs[level] for level in sorted(rungs)),
            waiting=waiting,
            by_topic=_most_first(origins),
            ready=lag.retries(group),
            max_retries=config.retry_max_times if config is not None else 0,
            scanned=scanned,
            pending=pending,
            truncated=not whole,
            took_ms=(time.monotonic() - begin) * 1000,
        )

    def retries_waiting(self, budget: Budget) -> dict[str, int]:
        """Return group -> number of its retries that wait for their next try, as far as the budget allows counting."""
        found: dict[str, int] = {}
        with self._asking() as kinds, QueueReader(self._store, _DESCRIPTORS) as reader:
            for level, queue, first in self.queues():
                known = kinds.of(level, first)
                kinds.fill(known, queue, reader, budget)
                for number, count in known.counts.items():
                    kind = kinds.kind(number)
                    if count > 0 and kind is not None and kind.topic.startswith(RETRY_PREFIX):
                        group = kind.topic.removeprefix(RETRY_PREFIX)
                        found[group] = found.get(group, 0) + count
        return found

    def awaited_topics(self, budget: Budget) -> set[str] | None:
        """Return the topics for which messages wait, %RETRY% topics too; None if not all of them could be found."""
        found: set[str] = set()
        with self._asking() as kinds, QueueReader(self._store, _DESCRIPTORS) as reader:
            for level, queue, first in self.queues():
                known = kinds.of(level, first)
                if not kinds.fill(known, queue, reader, budget) or known.counts[OTHER] > 0:
                    return None
                found.update(
                    kind.topic
                    for number, count in known.counts.items()
                    if count > 0 and (kind := kinds.kind(number)) is not None
                )
            whole = self._add_timed(found, reader, budget)
        return found if whole else None

    def _add_timed(self, found: set[str], reader: QueueReader, budget: Budget) -> bool:
        """Add the topics of timed messages. Return True if all of these were looked at."""
        indexed = self.timers.indexed()  # first: messages that are not in the index yet are read from the topic

        def note(kind: Kind) -> bool:
            found.add(kind.topic)
            return False

        try:
            with self.timers.look() as look:
                walk = TimedWalk(self.timers, look, TimedPlace(), 0, _MAX_MS, note, budget)
                walk.next()
        except UNREADABLE:
            return False
        for queue in self._index.of(TIMER_TOPIC):
            for offset in range(max(indexed, queue.min_offset), queue.max_offset):
                record = reader.record(queue, offset)
                if record is None or budget.spent:
                    return False
                note(kind_of(record[0].properties))
        return walk.ended

    # --- all that wait

    def wanted(self, group: str | None, **filters: Unpack[Filters]) -> Wanted:
        """Make a filter. group: only its retries, of no topic. Raises InvalidInput."""
        wanted = Wanted(**filters)
        require_span(wanted.from_ms, wanted.to_ms)
        if wanted.level is not None and not TIMED <= wanted.level < _MAX_LEVEL:
            raise InvalidInput(
                "level", say("out_of_range", field="level", low=TIMED, high=max(1, self._levels.highest))
            )
        if group is None:
            return wanted
        if wanted.topic is not None:
            raise InvalidInput("topic", say("group_or_topic"))
        return wanted._replace(topic=RETRY_PREFIX + group)

    def page(
        self, *, group: str | None = None, cursor: str | None = None, limit: int = 50, **filters: Unpack[Filters]
    ) -> WaitingPage:
        """Return a page of waiting messages, delayed ones, retries and timed ones, in the order in which they are due.

        group: only its retries. The list is live: messages delivered or handled meanwhile are left out. `next_cursor`
        goes with the same filter. limit: 1 to 500. No bodies: `messages.body(row.offset_id)` has them. InvalidInput.
        """
        wanted = self.wanted(group, **filters)
        begin = time.monotonic()
        require_within("limit", limit, 1, MAX_LIMIT)
        places = _places_of(cursor, wanted)
        budget = Budget(BUDGET_MS)
        with QueueReader(self._store, _DESCRIPTORS) as reader:
            with self._asking() as kinds, _Walk(self, kinds, reader, wanted, places, budget) as walk:
                found = walk.take(limit)
            rows = tuple(self._row(one, reader) for one in found)
        return WaitingPage(
            rows=rows,
            next_cursor=_cursor_of(walk, wanted),
            pending=self.pending(),
            scanned=walk.scanned,
            truncated=walk.truncated,
            took_ms=(time.monotonic() - begin) * 1000,
        )

    def find(self, wanted: Wanted, cursor: str | None, limit: int) -> tuple[list[Found], str | None]:
        """Return (the first messages that match, the cursor of the next ones or None at the end). InvalidInput."""
        places = _places_of(cursor, wanted)
        with (
            QueueReader(self._store, _DESCRIPTORS) as reader,
            self._asking() as kinds,
            _Walk(self, kinds, reader, wanted, places, Budget(BUDGET_MS)) as walk,
        ):
            return walk.take(limit), _cursor_of(walk, wanted)

    def by_name(self, text: str, limit: int = 50) -> WaitingPage:
        """Find waiting messages by a key, unique id or offset id; those due first come first.

        There is no next page: the result is `truncated` if there are more than `limit` (1 to 500), or if the time did
        not suffice to look at all. InvalidInput, Unavailable.
        """
        begin = time.monotonic()
        require_within("limit", limit, 1, MAX_LIMIT)
        text = text.strip()[:_LONGEST_NAME]
        records: list[Record] = []
        truncated = False
        if text:
            records += self._by_offset_id(text)
            self._query.catch_up(CATCH_UP_S)
            for topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
                deadline = begin + BUDGET_MS / 1000
                found = self._query.find(topic, text, limit, 0, _MAX_MS, below=self._store.published, deadline=deadline)
                records += [record for record, _ in found.records]
                truncated = truncated or not found.complete
        with QueueReader(self._store, _DESCRIPTORS) as reader:
            waiting = sorted({one.physical_offset: one for one in self._that_wait(records, reader)}.values())
            rows = tuple(self._row(one, reader) for one in waiting[:limit])
        return WaitingPage(
            rows=rows,
            next_cursor=None,
            pending=self.pending(),
            scanned=len(records),
            truncated=truncated or len(waiting) > limit,
            took_ms=(time.monotonic() - begin) * 1000,
        )

    def _by_offset_id(self, text: str) -> list[Record]:
        try:
            _, _, physical = decode_offset_id(text)
        except ValueError:
            return []
        found = self._store.records.get(physical)
        return [] if found is None else [found.record]

    def still_wait(self, records: list[Record]) -> set[int]:
        """Return the physical offsets of those records that still wait; of all records if that cannot be read."""
        indexed = self.timers.indexed()
        # These are not in the schedule index yet, so they wait.
        new = {one.physical_offset for one in records if one.topic == TIMER_TOPIC and one.queue_offset >= indexed}
        with QueueReader(self._store, 1) as reader:
            try:
                return new | {found.physical_offset for found in self._that_wait(records, reader)}
            except Unavailable:
                return {record.physical_offset for record in records}

    def _that_wait(self, records: list[Record], reader: QueueReader) -> Iterator[Found]:
        """Yield those of these records that still wait."""
        timed = [record for record in records if record.topic == TIMER_TOPIC]
        if timed:
            try:
                with self.timers.look() as look:
                    for one in timed:
                        due_ms = self.timers.waits(look, one, one.physical_offset, one.size)
                        if due_ms is not None:
                            yield Found(due_ms, TIMED, one.queue_offset, one.physical_offset, one.size)
            except UNREADABLE as error:
                raise Unavailable(str(error)) from None
        for record in records:
            if record.topic != SCHEDULE_TOPIC:
                continue
            level, offset = record.queue_id + 1, record.queue_offset
            if offset < self.delivered_to(level) or self._settled.holds(level, offset):
                continue
            found = self.at(level, offset)
            if found is not None and found.physical_offset == record.physical_offset:
                yield found

    def at(self, level: int, queue_offset: int) -> Found | None:
        """Return the entry at one place; None if there is none (or it has gone)."""
        queue = self._queue(level)
        if queue is None:
            return None
        with QueueReader(self._store, 4) as reader:
            for physical, size, due in reader.entries(queue, queue_offset, 1):
                if level == TIMED:
                    return self._timed(reader, queue, queue_offset, physical, size)
                return Found(due, level, queue_offset, physical, size)
        return None

    def rows_at(self, places: Sequence[WaitingPlaceLike]) -> tuple[WaitingRow | None, ...]:
        """Return the message at each of these places (1000 at most), also one that waits no longer; None for an empty
        place. No time limit: each takes two reads."""
        with QueueReader(self._store, _DESCRIPTORS) as reader:
            found = (self.at(place.level, place.queue_offset) for place in named(places[:1000]))
            return tuple(None if one is None else self._row(one, reader) for one in found)

    def check_retries(self, group: str, places: Sequence[WaitingPlaceLike]) -> None:
        """Raise InvalidInput if one of these waiting messages is not a retry of the group; NotFound (group)."""
        self.ladder(group)
        if any(row is not None and row.group != group for row in self.rows_at(places)):
            raise InvalidInput("places", say("retry_of_another"))

    def _queue(self, level: int) -> ConsumeQueue | None:
        if level == TIMED:
            return self._store.find_queue(TIMER_TOPIC, 0)
        return self._store.find_queue(SCHEDULE_TOPIC, queue_of_level(level))

    def _timed(
        self, reader: QueueReader, queue: ConsumeQueue, queue_offset: int, physical: int, size: int
    ) -> Found | None:
        stored = reader.record_at(physical, size)
        if stored is None or not reader.belongs(stored[0], queue, queue_offset):
            return None
        due_ms = self.timers.due_ms(stored[0].properties)
        return None if due_ms is None else Found(due_ms, TIMED, queue_offset, physical, size)

    def delivered_to(self, level: int) -> int:
        """Return the queue offset of a level's first message that is not delivered; 0 for timed messages, which are not
        delivered in the order of their offsets."""
        return 0 if level == TIMED else self._delivering.delivered_to(level)

    def settled(self, level: int, queue_offset: int) -> None:
        """Note that a message was handled early, so that the counts leave it out."""
        with self._lock:
            self._kinds.settled(level, queue_offset)

    def is_settled(self, level: int, begin: int, end: int) -> bool:
        """True if some messages in [begin, end) were handled early."""
        return self._settled.between(level, begin, end) > 0

    def _row(self, found: Found, reader: QueueReader) -> WaitingRow:
        stored = reader.record_at(found.physical_offset, found.size)
        queue = self._queue(found.level)
        if stored is None or queue is None or not reader.belongs(stored[0], queue, found.queue_offset):
            return WaitingRow(
                found.level, found.queue_offset, found.due_ms, found.physical_offset, None, None, None, None, None,
                None, (), None, None, None, None, None, None, say("waiting_record_gone"),
            )  # fmt: skip
        record = stored[0]
        row = row_of(record)
        properties = decode_properties(record.properties)
        topic = properties.get(REAL_TOPIC)
        text = properties.get(REAL_QUEUE_ID, "")
        return WaitingRow(
            level=found.level,
            queue_offset=found.queue_offset,
            due_at_ms=found.due_ms,
            physical_offset=found.physical_offset,
            topic=topic,
            queue_id=int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None,
            group=topic[len(RETRY_PREFIX) :] if topic is not None and topic.startswith(RETRY_PREFIX) else None,
            origin_topic=properties.get(RETRY_TOPIC),
            unique_id=properties.get(UNIQUE_KEY),
            offset_id=row.offset_id,
            keys=tuple(properties.get(KEYS, "").split()),
            tags=properties.get(TAGS),
            reconsume_times=record.reconsume_times,
            stored_at_ms=record.store_time_ms,
            born_at_ms=record.born_time_ms,
            born_host=row.born_host,
            body_bytes=len(record.body),
            problem=self._problem(topic),
        )

    def _problem(self, topic: str | None) -> Sentence | None:
        if topic is None:
            return say("waiting_target_missing")
        if self._topics.get(topic) is None:
            return say("waiting_topic_gone", topic=topic)
        return None

    # --- by the time they are due

    def by_due(
        self,
        bucket_ms: int = 60_000,
        buckets: int = 120,
        *,
        begin_ms: int | None = None,
        group: str | None = None,
        topic: str | None = None,
        level: int | None = None,
        retries: bool | None = None,
    ) -> PendingByDue:
        """Count messages by the time they are due, in `buckets` (1 to 1000) of `bucket_ms` from `begin_ms` (now) on.

        A recall of an unknown message counts as one less. Without a topic, recalled messages before and behind the
        buckets still count.
        """
        wanted = self.wanted(group, topic=topic, level=level, retries=retries)
        begin = time.monotonic()
        require_within("buckets", buckets, 1, MAX_BUCKETS)
        require_within("bucket_ms", bucket_ms, 1, (1 << 40) - 1)
        if begin_ms is not None and not 0 <= begin_ms < _MAX_MS - (MAX_BUCKETS << 40):
            raise InvalidInput("begin_ms", say("not_a_time", field="begin_ms"))
        first = self._clock.wall_ms() // bucket_ms * bucket_ms if begin_ms is None else begin_ms
        edges = [first + number * bucket_ms for number in range(buckets + 1)]
        counts = [0] * (buckets + 2)
        budget = Budget(BUDGET_MS)
        scanned = pending = 0
        truncated = False
        with QueueReader(self._store, _DESCRIPTORS) as reader, self._asking() as kinds:
            for level, queue, at in self.queues():
                if wanted.level not in (None, level):
                    continue
                pending += self._pending(level, queue, at)
                begins = at
                while at < queue.max_offset:
                    if budget.spent:
                        truncated = True
                        break
                    if wanted.by_kind:
                        begin_at, at = at, kinds.of(level, begins).first_of(wanted.numbers(kinds), at)
                        scanned += at - begin_at
                    entries = reader.entries(queue, at, SLICE if wanted.by_kind else _ENTRIES)
                    if not entries:
                        truncated = truncated or at < queue.max_offset
                        break
                    found, others = self._dues(kinds, kinds.of(level, begins), queue, at, entries, wanted)
                    _count(found, edges, counts)
                    truncated = truncated or others
                    scanned += len(entries)
                    at += len(entries)
            if wanted.level in (None, TIMED):
                pending += self.timers.pending()
                try:
                    found, looked, whole = count_by_due(self.timers, edges, wanted.filter, budget)
                except UNREADABLE:
                    truncated = True
                else:
                    counts = [one + other for one, other in zip(counts, found, strict=True)]
                    scanned += looked
                    truncated = truncated or not whole
        return PendingByDue(
            begin_at_ms=first,
            bucket_ms=bucket_ms,
            counts=tuple(counts[1:-1]),
            before=counts[0],
            after=counts[-1],
            scanned=scanned,
            pending=pending,
            truncated=truncated,
            took_ms=(time.monotonic() - begin) * 1000,
        )

    def _dues(
        self,
        kinds: WaitingKinds,
        known: LevelKinds,
        queue: ConsumeQueue,
        at: int,
        entries: list[Entry],
        wanted: Wanted,
    ) -> tuple[list[int], bool]:
        """Return (due times of the entries that match and wait, True if the kind of some entries is not known)."""
        if wanted.by_kind:
            numbers = kinds.ids(known, queue, at, entries)
            found = [
                due for (_, _, due), number in zip(entries, numbers, strict=True) if wanted.takes(kinds.kind(number))
            ]
            return found, OTHER in numbers
        level = queue.queue_id + 1
        if self._settled.between(level, at, at + len(entries)):
            return [due for at, (_, _, due) in enumerate(entries, at) if not self._settled.holds(level, at)], False
        return [due for _, _, due in entries], False


class _Walk:
    """A walk over the messages of all levels that match a filter, in the order in which they are due."""

    def __init__(
        self,
        views: WaitingViews,
        kinds: WaitingKinds,
        reader: QueueReader,
        wanted: Wanted,
        places: dict[int, int],
        budget: Budget,
    ) -> None:
        self._kinds = kinds
        self._views = views
        self._reader = reader
        self._wanted = wanted
        self._budget = budget
        self._scanned = 0
        #: True if the time was over before the next message was found.
        self.truncated = False
        self._levels: dict[int, tuple[ConsumeQueue, int]] = {}
        #: level -> queue offset at which its next message is looked for.
        self._at: dict[int, int] = {}
        self._heads: list[Found] = []
        self._waiting: dict[int, list[Found]] = {}
        for level, queue, begin in views.queues():
            if wanted.level in (None, level):
                self._levels[level] = (queue, begin)
                self._at[level] = max(begin, places.get(level, 0))
        #: The walk over timed messages; None if those do not match, or cannot be read.
        self._timed: TimedWalk | None = None
        self._stack = ExitStack()
        if wanted.level in (None, TIMED):
            place = TimedPlace(places.get(TIMED, 0), places.get(_MAX_LEVEL, 0))
            try:
                look = self._stack.enter_context(views.timers.look())
            except UNREADABLE:
                self.truncated = True
            else:
                low, high = wanted.from_ms or 0, _MAX_MS if wanted.to_ms is None else wanted.to_ms
                self._timed = TimedWalk(views.timers, look, place, low, high, wanted.filter, budget)

    def __enter__(self) -> _Walk:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    @property
    def scanned(self) -> int:
        return self._scanned + (self._timed.scanned if self._timed is not None else 0)

    def take(self, limit: int) -> list[Found]:
        """Return the next messages, at most `limit`."""
        found: list[Found] = []
        for level in self._levels:
            self._push(level)
        if self._timed is not None:
            self._push_timed(self._timed)
        while self._heads and len(found) < limit and not self.truncated:
            one = heapq.heappop(self._heads)
            found.append(one)
            self._waiting[one.level].pop(0)
            if one.level == TIMED and self._timed is not None:
                self._push_timed(self._timed)
            else:
                self._push(one.level)
        return found

    def _push_timed(self, timed: TimedWalk) -> None:
        entry = timed.next()
        if entry is not None:
            one = Found(entry.due_ms, TIMED, entry.queue_offset, entry.physical_offset, entry.size)
            self._waiting.setdefault(TIMED, []).append(one)
            heapq.heappush(self._heads, one)
        self.truncated = self.truncated or timed.truncated

    def _push(self, level: int) -> None:
        """Find the level's next message, unless the time is over."""
        waiting = self._waiting.setdefault(level, [])
        while not waiting and self._at[level] < self._levels[level][0].max_offset:
            if self._budget.spent:
                self.truncated = True
                return
            if not self._look(level, waiting):
                return
        if waiting:
            heapq.heappush(self._heads, waiting[0])

    def _look(self, level: int, waiting: list[Found]) -> bool:
        """Read some more entries; False if they cannot be read now."""
        queue, begin = self._levels[level]
        at, wanted = self._at[level], self._wanted
        if wanted.by_kind:
            known = self._kinds.of(level, begin)
            at = self._at[level] = known.first_of(wanted.numbers(self._kinds), at)
            if at >= queue.max_offset:
                return True
        entries = self._reader.entries(queue, at, SLICE)
        if not entries:
            if at >= queue.min_offset:
                self.truncated = True
                return False
            self._at[level] = queue.min_offset
            return True
        self._scanned += len(entries)
        self._at[level] = at + len(entries)
        low, high = wanted.from_ms or 0, _MAX_MS if wanted.to_ms is None else wanted.to_ms
        dues = [due for _, _, due in entries]
        if max(dues) < low or min(dues) > high:
            return True
        numbers = None
        if wanted.by_kind:
            numbers = self._kinds.ids(self._kinds.of(level, begin), queue, at, entries)
        settled = self._views.is_settled(level, at, at + len(entries))
        for number, (physical, size, due) in enumerate(entries):
            if not low <= due <= high:
                continue
            if numbers is not None and not self._takes(numbers[number], physical, size):
                continue
            if settled and self._views.is_settled(level, at + number, at + number + 1):
                continue
            waiting.append(Found(due, level, at + number, physical, size))
        return True

    def _takes(self, number: int, physical: int, size: int) -> bool:
        if number != OTHER:
            return self._wanted.takes(self._kinds.kind(number))
        found = self._reader.record_at(physical, size)
        return found is not None and self._wanted.takes(kind_of(found[0].properties))

    @property
    def ended(self) -> bool:
        """True if no message is left."""
        if self._timed is not None and not self._timed.ended:
            return False
        return not any(self._waiting.values()) and all(
            self._at[level] >= queue.max_offset for level, (queue, _) in self._levels.items()
        )

    def standing(self) -> list[tuple[int, int]]:
        """Return pairs (level, queue offset where the next walk begins); for timed messages (0, due ms) and another
        pair with the offset."""
        found = [
            (level, waiting[0].queue_offset if (waiting := self._waiting.get(level)) else at)
            for level, at in self._at.items()
        ]
        if self._timed is not None:
            timed = self._waiting.get(TIMED)
            place = TimedPlace(timed[0].due_ms, timed[0].queue_offset) if timed else self._timed.standing
            found += [(TIMED, place.due_ms), (_MAX_LEVEL, place.queue_offset)]
        return found


def _count(dues: list[int], edges: list[int], counts: list[int]) -> None:
    """Add due times to the buckets between the edges; counts[0] and counts[-1]: before and behind all buckets."""
    dues.sort()  # they nearly are
    at = 0
    for number in range(bisect_left(edges, dues[0] + 1) if dues else 0, len(edges)):
        end = bisect_left(dues, edges[number], at)
        counts[number] += end - at
        at = end
        if at == len(dues):
            return
    counts[-1] += len(dues) - at


def _most_first(counts: Mapping[Any, int]) -> tuple[ByTopic, ...]:
    return tuple(ByTopic(*one) for one in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _hash_of(wanted: Wanted) -> int:
    """Return the hash of a filter, by which a cursor is tied to it."""
    return crc32(repr(tuple(wanted)).encode())


def _cursor_of(walk: _Walk, wanted: Wanted) -> str | None:
    if walk.ended:
        return None
    return encode_cursor((_hash_of(wanted), *(number for place in walk.standing() for number in place)))


def _places_of(text: str | None, wanted: Wanted) -> dict[int, int]:
    """Return level -> queue offset of a cursor; InvalidInput unless it belongs to the same filter."""
    if text is None:
        return {}
    try:
        numbers = decode_cursor(text, tuple[int, ...])
    except ValueError:
        raise InvalidInput("cursor", say("bad_cursor")) from None
    if not numbers or len(numbers) % 2 != 1 or min(numbers) < 0 or max(numbers) >= _MAX_MS:
        raise InvalidInput("cursor", say("bad_cursor"))
    if numbers[0] != _hash_of(wanted):
        raise InvalidInput("cursor", say("foreign_cursor"))
    return dict(zip(numbers[1::2], numbers[2::2], strict=True))
