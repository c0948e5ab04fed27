"""Dead letters of a group: their origin, when they expire, and which jobs have replayed them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ...broker.replay.history import History, replays_of, times_replayed
from ...broker.replay.job import spans_of
from ...broker.replay.letter_filter import REPLAYS, LetterFilter
from ...broker.replay.provenance import provenance_of
from ...broker.replay.service import ReplayService
from ...broker.topic_config import reserve_hours_of
from ...errors import InvalidInput, NotFound, Unavailable
from ...protocol.names import DLQ_PREFIX
from ...protocol.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC, decode_properties, find_property
from ...protocol.record import Record
from ...store.queues.consume_queue import ConsumeQueue
from ...store.retention.clean_rules import HOUR_MS
from .. import snapshots as s
from ..figures.measures import Budget
from ..messages.queue_reader import QueueReader
from ..messages.snapshots import MessageCopy
from ..messages.views import MessageViews, copy_of, row_of
from ..options import Options
from ..refusals import require_within
from ..sentences import say
from ..sources import Sources
from ..tables import page_of, sorted_by
from .expiry import Expiry
from .facts import LetterFacts, copies_of, digest_of
from .snapshots import (
    DeadLetterCell,
    DeadLetterCopies,
    DeadLetterGroup,
    DeadLetterPage,
    DeadLetterRow,
    DeadLetterSummary,
    ExpiringGroup,
    ExpiringLetters,
)
from .walk import BUDGET_MS, LetterWalk, Walked

#: Time limit for counting the copies of a page's rows.
COPIES_MS = 60.0
#: Queues for which `_offset_behind` remembers its result.
MOST_EDGES = 10_000


def filter_of(wanted: Mapping[str, Any] | None) -> LetterFilter:
    """Make a filter from a caller's fields. Raises InvalidInput."""
    found = LetterFilter(**wanted) if wanted else LetterFilter()
    check_filter(found)
    return found


def check_filter(wanted: LetterFilter) -> None:
    if wanted.replayed not in (None, *REPLAYS):
        raise InvalidInput("replayed", say("one_of", field="replayed", choices=", ".join(REPLAYS)))
    if wanted.retries is not None and not 0 <= wanted.retries < 1 << 31:
        raise InvalidInput("retries", say("out_of_range", field="retries", low=0, high=(1 << 31) - 1))


class DeadLetterViews:
    """Any thread; reads in the caller's."""

    def __init__(
        self,
        sources: Sources,
        messages: MessageViews,
        replays: ReplayService,
        options: Options,
    ) -> None:
        # Constant after construction.
        self._topics, self._groups, self._store = sources.topics, sources.groups, sources.store
        self._index, self._measures = sources.sampler.index, sources.measures
        self._messages = messages
        self._replays = replays
        self._history: History = replays.history
        self._options = options
        # Any thread: each step is one C call. Queue -> (physical offset, first queue offset behind it).
        self._edges: dict[ConsumeQueue, tuple[int, int]] = {}
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._facts = LetterFacts(self._store)

    def page(
        self,
        group: str,
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
        wanted: Mapping[str, Any] | None = None,
        cursor: str | None = None,
        limit: int = 50,
        body_chars: int = 0,
    ) -> DeadLetterPage:
        """Return a page of a group's dead letters stored in [from_ms, to_ms], newest first, over a snapshot as
        `messages.page`.

        wanted: fields of a filter: topic (that it was first sent to; "" if its properties lack that), retries, key (or
        unique id, or its original offset id), replayed ("no", "yes": from its place; "again": it is the copy of a
        replay). With a filter a page ends after 250 ms, and may be empty although there is a next one. body_chars:
        characters of each body to return, which needs the grant to read bodies; the caller checks that. NotFound
        (group; its dead letter topic), InvalidInput.
        """
        topic = DLQ_PREFIX + group
        chosen = filter_of(wanted)
        self.check(group, with_letters=False)
        found: Any
        if chosen.all and self._topics.get(topic) is not None:
            found = self._messages.page(
                topic, from_ms=from_ms, to_ms=to_ms, cursor=cursor, limit=limit, gentle=0.0, make_row=lambda one: one
            )
        else:
            found = self._filtered(group, from_ms, to_ms, chosen, cursor, limit)
        records: Sequence[Record] = found.rows
        jobs = self._history.of(group, spans_of([(one.queue_id, one.queue_offset) for one in records]))
        copies = self._copies(topic, records)
        expiry, hours = Expiry(self._store, self._options), self._hours(topic)
        rows = []
        for record in records:
            properties = decode_properties(record.properties)
            of_this = jobs.get((record.queue_id, record.queue_offset), [])
            rows.append(
                DeadLetterRow(
                    message=self._messages.line_of(record, body_chars) if body_chars else row_of(record),
                    origin_topic=properties.get(RETRY_TOPIC),
                    origin_id=properties.get(ORIGIN_MESSAGE_ID),
                    expires_not_before_at_ms=expiry.of(record.physical_offset, record.store_time_ms, hours),
                    times_replayed=times_replayed(record, of_this),
                    came_by_job=provenance_of(properties).job,
                    replayed_by=tuple(state.spec.id for state in replays_of(record, of_this)),
                    copies=copies.get(digest_of(properties.get(ORIGIN_MESSAGE_ID))),
                )
            )
        return DeadLetterPage(
            rows=tuple(rows),
            next_cursor=found.next_cursor,
            total=found.total,
            seen=found.seen,
            skipped=found.skipped,
            truncated=found.truncated,
            snapshot_at_ms=found.snapshot_at_ms,
        )

    def copies(
        self,
        group: str,
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
        wanted: Mapping[str, Any] | None = None,
        cursor: str | None = None,
        limit: int = 50,
        budget_ms: float = 250.0,
    ) -> DeadLetterCopies:
        """As `page`, with body and all properties: needs the grants to read bodies and to export. budget_ms:
        time after which the page ends, 250 at most; it may be empty although there is a next one."""
        chosen = filter_of(wanted)
        self.check(group, with_letters=False)
        require_within("budget_ms", budget_ms, 1, int(BUDGET_MS))
        found = self._filtered(group, from_ms, to_ms, chosen, cursor, limit, budget_ms)
        rows = tuple(copy_of(record) for record in found.rows)
        return DeadLetterCopies(rows, found.next_cursor, found.total, found.seen, found.skipped)

    def copy(self, group: str, queue_id: int, offset: int) -> MessageCopy:
        """Return one dead letter with body and all properties. NotFound. Needs the same grants."""
        self.check(group)
        return copy_of(self._messages.record(f"{DLQ_PREFIX}{group}/{queue_id}/{offset}")[0])

    def _filtered(
        self,
        group: str,
        from_ms: int | None,
        to_ms: int | None,
        wanted: LetterFilter,
        cursor: str | None,
        limit: int,
        budget_ms: float = BUDGET_MS,
    ) -> Walked:
        topic = DLQ_PREFIX + group
        with self._knowing() as facts, QueueReader(self._store, 16) as reader:
            walk = LetterWalk(topic, self._index.of(topic), wanted, reader, facts, partial(self._times, group))
            return walk.page(walk.begin(from_ms, to_ms) if cursor is None else walk.cursor_of(cursor), limit, budget_ms)

    def _times(self, group: str, records: list[Record]) -> list[int]:
        """Return for each record how often it was replayed from its place in the dead letter queue."""
        jobs = self._history.of(group, spans_of([(one.queue_id, one.queue_offset) for one in records]))
        return [len(replays_of(one, jobs.get((one.queue_id, one.queue_offset), []))) for one in records]

    def _copies(self, topic: str, records: Sequence[Record]) -> dict[int, int]:
        """Return {digest of an origin id: number of the group's dead letters from it}; empty while some dead letters
        have not been read."""
        if not records:
            return {}
        with self._knowing() as facts, QueueReader(self._store, 16) as reader:
            budget = Budget(COPIES_MS)
            known = []
            for queue in self._index.of(topic):
                if not facts.fill(queue, reader, budget):
                    return {}
                known.append(facts.of(queue))
            return copies_of(known, {digest_of(find_property(one.properties, ORIGIN_MESSAGE_ID)) for one in records})

    def died_again(self, group: str, job: str) -> frozenset[int] | None:
        """Return the numbers of a job's messages that became dead letters of the group again; None while some dead
        letters have not been read.

        Copies that became dead letters of another group are not included.
        """
        found: set[int] = set()
        with self._knowing() as facts, QueueReader(self._store, 16) as reader:
            budget = Budget(COPIES_MS)
            for queue in self._index.of(DLQ_PREFIX + group):
                if not facts.fill(queue, reader, budget):
                    return None
                found.update(facts.of(queue).again.get(job, ()))
        return frozenset(found)

    @contextmanager
    def _knowing(self) -> Iterator[LetterFacts]:
        """Lend the facts to one caller at a time; Unavailable if others hold them for too long."""
        if not self._lock.acquire(timeout=4 * BUDGET_MS / 1000):
            raise Unavailable(say("too_busy"))
        try:
            yield self._facts
        finally:
            self._lock.release()

    def summary(self, group: str) -> DeadLetterSummary:
        """Count a group's dead letters by origin topic, retries and hour. The first calls on a large backlog are
        `truncated`: each continues the count for a quarter of a second. NotFound."""
        begin = time.monotonic()
        self.check(group, with_letters=False)
        counts: Counter[tuple[str, int, int]] = Counter()
        total = counted = unreadable = again = 0
        whole, known = True, []
        with self._knowing() as facts, QueueReader(self._store, 16) as reader:
            budget = Budget(BUDGET_MS)
            for queue in self._index.of(DLQ_PREFIX + group):
                whole = facts.fill(queue, reader, budget) and whole
                one = facts.of(queue)
                known.append(one)
                total += max(queue.max_offset - queue.min_offset, len(one.codes))
                counted += len(one.codes)
                for code, count in list(one.counts.items()):
                    kind = facts.kind(code)
                    if kind is None:
                        unreadable += count
                        continue
                    counts[kind.topic, kind.retries, (code >> 16) * HOUR_MS] += count
                    again += count if kind.again else 0
            messages = facts.distinct(known) if whole else None
        return DeadLetterSummary(
            group=group,
            total=total,
            counted=counted,
            unreadable=unreadable,
            truncated=not whole,
            cells=tuple(DeadLetterCell(*key, count) for key, count in counts.items() if count > 0),
            messages=messages,
            again=again,
            took_ms=(time.monotonic() - begin) * 1000,
        )

    # --- what goes soon

    def expiring(self, within_ms: int = 24 * 3600000) -> ExpiringLetters:
        """Return by group how many dead letters may be deleted within the next hours. Cheap enough to be called every
        second for a page: it reads next to nothing."""
        require_within("within_ms", within_ms, 1, (1 << 40) - 1)
        until = int(time.time() * 1000) + within_ms
        expiry = Expiry(self._store, self._options)
        edge = expiry.edge(until)
        found = []
        with QueueReader(self._store, 16) as reader:
            for topic, queues in self._index.by_topic().items():
                if not topic.startswith(DLQ_PREFIX) or self._topics.get(topic) is None:
                    continue
                hours = self._hours(topic)
                count, first = 0, None
                for queue in queues:
                    low = queue.min_offset
                    if low >= queue.max_offset:
                        continue
                    place = self._measures.place(reader, queue, low)
                    if hours is None and (place is None or place >= edge):
                        continue
                    end = low if place is None or place >= edge else self._offset_behind(reader, queue, edge)
                    if hours is not None:
                        end = max(end, reader.offset_at(queue, max(0, until - hours * HOUR_MS)))
                    stored = self._measures.stored_at_ms(reader, queue, low)
                    if end > low and place is not None and stored is not None:
                        count += end - low
                        at = expiry.of(place, stored, hours)
                        first = at if first is None or (at is not None and at < first) else first
                if count and first is not None:
                    found.append(ExpiringGroup(topic[len(DLQ_PREFIX) :], count, first))
        found.sort(key=lambda one: (-one.count, one.group))
        return ExpiringLetters(within_ms, sum(one.count for one in found), tuple(found))

    def _offset_behind(self, reader: QueueReader, queue: ConsumeQueue, edge: int) -> int:
        """Return the first offset whose record lies at or behind the physical offset `edge`; remembers the result."""
        known = self._edges.get(queue)
        if known is not None and known[0] == edge:
            return max(known[1], queue.min_offset)
        if len(self._edges) >= MOST_EDGES:
            self._edges.clear()
        first = reader.first_behind(queue, edge)
        self._edges[queue] = (edge, first)
        return first

    def check(self, group: str, with_letters: bool = True) -> None:
        """Raise NotFound unless the group exists, or was deleted and its dead letter topic is left.

        with_letters: also raise NotFound if there is no dead letter topic.
        """
        has_topic = self._topics.get(DLQ_PREFIX + group) is not None
        if self._groups.get(group) is None and not has_topic:
            raise NotFound("group", group)
        if with_letters and not has_topic:
            raise NotFound("topic", DLQ_PREFIX + group)

    def _hours(self, topic: str) -> int | None:
        config = self._topics.get(topic)
        return None if config is None else reserve_hours_of(config)

    def groups(self, q: str = "", sort: str = "-count", page: int = 1, page_size: int = 50) -> s.Page:
        """Return a page of DeadLetterGroup: the groups that have dead letters, deleted groups too.

        q: part of the name. sort: group, count; "-" before it for the largest first.
        """
        wanted = q.lower()
        rows = []
        for topic, queues in self._index.by_topic().items():
            if topic.startswith(DLQ_PREFIX) and self._topics.get(topic) is not None:
                group = topic[len(DLQ_PREFIX) :]
                count = sum(queue.max_offset - queue.min_offset for queue in queues)
                if count and wanted in group.lower():
                    rows.append((group, count))
        ordered = sorted_by(rows, sort, {"group": lambda row: row[0], "count": lambda row: (row[1], row[0])})
        jobs = {view.state.spec.group: view.state.spec.id for view in self._replays.jobs() if not view.state.finished}
        expiry = Expiry(self._store, self._options)
        with QueueReader(self._store, 16) as reader:
            return page_of(ordered, page, page_size, lambda row: self._group(*row, jobs.get(row[0]), expiry, reader))

    def _group(self, group: str, count: int, job: str | None, expiry: Expiry, reader: QueueReader) -> DeadLetterGroup:
        topic = DLQ_PREFIX + group
        firsts, lasts = [], []
        for queue in self._index.of(topic):
            if queue.max_offset > queue.min_offset:
                firsts.append(reader.without_body(queue, queue.min_offset))
                lasts.append(reader.without_body(queue, queue.max_offset - 1))
        oldest = min(
            (record for record in firsts if record is not None), key=lambda record: record.store_time_ms, default=None
        )
        newest = max((record.store_time_ms for record in lasts if record is not None), default=None)
        return DeadLetterGroup(
            group=group,
            known=self._groups.get(group) is not None,
            count=count,
            oldest_at_ms=None if oldest is None else oldest.store_time_ms,
            newest_at_ms=newest,
            expires_not_before_at_ms=None
            if oldest is None
            else expiry.of(oldest.physical_offset, oldest.store_time_ms, self._hours(topic)),
            job=job,
        )
