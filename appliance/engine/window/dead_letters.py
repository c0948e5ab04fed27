"""Dead letters of a group: where they come from, when they expire, and which jobs have replayed them."""

from __future__ import annotations

import time

from ..broker.groups import SubscriptionGroupManager
from ..broker.queue_index import QueueIndex
from ..broker.replay.history import History, replays_of, times_replayed
from ..broker.replay.job import spans_of
from ..broker.replay.provenance import provenance_of
from ..broker.replay.service import ReplayService
from ..broker.topic_config import reserve_hours_of
from ..broker.topics import TopicConfigManager
from ..errors import NotFound
from ..protocol.names import DLQ_PREFIX
from ..protocol.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC, decode_properties
from ..protocol.record import Record
from ..store.message_store import MessageStore
from ..store.retention.clean_rules import HOUR_MS, is_cleaning_hour
from . import snapshots as s
from .messages import MessageViews, row_of
from .options import Options
from .queue_reader import QueueReader
from .replay_snapshots import DeadLetterGroup, DeadLetterPage, DeadLetterRow
from .tables import cut, page_of, sorted_by


class Expiry:
    """Until when messages stay at least. Belongs to one question: it looks at each log file once.

    Source of the rule: `store/retention/clean_service.py`; a full disk may take files before that.
    """

    def __init__(self, store: MessageStore, options: Options) -> None:
        self._store = store
        self._options = options.config.store
        self._files: dict[int, int | None] = {}

    def of(self, physical: int, stored_ms: int, topic_hours: int | None) -> int | None:
        """topic_hours: of the topic's own time, None without one. None when nothing can be said."""
        segments = self._store.log.segments
        index = next((i for i, segment in enumerate(segments) if segment.start <= physical < segment.end), -1)
        if index < 0:
            return None
        start = segments[index].start
        if start not in self._files:
            self._files[start] = self._not_before(index)
        found = self._files[start]
        if topic_hours is not None:
            own = stored_ms + topic_hours * HOUR_MS
            return own if found is None else min(found, own)
        return found

    def _not_before(self, index: int) -> int | None:
        """Of one log file: its reserved time counts from its last record on; then it waits for deleteWhen."""
        store = self._store
        segments = store.log.segments
        if index + 1 >= len(segments):
            last_ms = int(time.time() * 1000)  # it is still being written
        else:
            try:
                last_ms = max(
                    store.log.modified_ms(segments[index]), store.records.store_time(segments[index + 1].start)
                )
            except OSError:
                return None
        at = last_ms + self._options.file_reserved_time_hours * HOUR_MS
        for _ in range(48):
            if is_cleaning_hour(self._options.delete_when, at):
                break
            at = (at // HOUR_MS + 1) * HOUR_MS
        return at


def _as_it_is(record: Record) -> Record:
    return record


class DeadLetterViews:
    """Any thread; reads in the caller's."""

    def __init__(
        self,
        messages: MessageViews,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        store: MessageStore,
        index: QueueIndex,
        replays: ReplayService,
        options: Options,
    ) -> None:
        # Constant after construction.
        self._messages = messages
        self._topics = topics
        self._groups = groups
        self._store = store
        self._index = index
        self._replays = replays
        self._history: History = replays.history
        self._options = options

    def page(
        self, group: str, from_ms: int | None, to_ms: int | None, cursor: str | None, limit: int
    ) -> DeadLetterPage:
        topic = DLQ_PREFIX + group
        self.check(group)
        found = self._messages.page(topic, None, from_ms, to_ms, True, cursor, limit, make_row=_as_it_is)
        records: tuple[Record, ...] = found.rows  # type: ignore[assignment]
        jobs = self._history.of(group, spans_of([(one.queue_id, one.queue_offset) for one in records]))
        expiry, hours = Expiry(self._store, self._options), self._hours(topic)
        rows = []
        for record in records:
            properties = decode_properties(record.properties)
            of_this = jobs.get((record.queue_id, record.queue_offset), [])
            rows.append(
                DeadLetterRow(
                    row=row_of(record),
                    origin_topic=properties.get(RETRY_TOPIC),
                    origin_id=properties.get(ORIGIN_MESSAGE_ID),
                    expires_not_before_ms=expiry.of(record.physical_offset, record.store_time_ms, hours),
                    times_replayed=times_replayed(record, of_this),
                    came_by_job=provenance_of(properties).job,
                    replayed_by=tuple(state.spec.id for state in replays_of(record, of_this)),
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

    def check(self, group: str) -> None:
        """NotFound unless there is such a group, or dead letters of one that was deleted."""
        if self._groups.get(group) is None and self._topics.get(DLQ_PREFIX + group) is None:
            raise NotFound("group", group)
        if self._topics.get(DLQ_PREFIX + group) is None:
            raise NotFound("topic", DLQ_PREFIX + group)

    def _hours(self, topic: str) -> int | None:
        config = self._topics.get(topic)
        return None if config is None else reserve_hours_of(config)

    def groups(self, q: str, sort: str, page: int, page_size: int) -> s.Page:
        """A page of DeadLetterGroup; only those with dead letters."""
        wanted = q.lower()
        rows = []
        for topic, queues in self._index.by_topic().items():
            if topic.startswith(DLQ_PREFIX) and self._topics.get(topic) is not None:
                group = topic[len(DLQ_PREFIX) :]
                count = sum(queue.max_offset - queue.min_offset for queue in queues)
                if count and wanted in group.lower():
                    rows.append((group, count))
        ordered = sorted_by(rows, sort, {"group": lambda row: row[0], "count": lambda row: (row[1], row[0])})
        shown, page, pages, page_size = cut(ordered, page, page_size)
        jobs = {view.state.spec.group: view.state.spec.id for view in self._replays.jobs() if not view.state.finished}
        expiry = Expiry(self._store, self._options)
        with QueueReader(self._store, 16) as reader:
            found = [self._group(group, count, jobs.get(group), expiry, reader) for group, count in shown]
        return page_of(ordered, found, page, pages, page_size)

    def _group(self, group: str, count: int, job: str | None, expiry: Expiry, reader: QueueReader) -> DeadLetterGroup:
        topic = DLQ_PREFIX + group
        firsts, lasts = [], []
        for queue in self._index.of(topic):
            if queue.max_offset > queue.min_offset:
                firsts += [r for r in (reader.record(queue, queue.min_offset),) if r is not None]
                lasts += [r for r in (reader.record(queue, queue.max_offset - 1),) if r is not None]
        oldest = min((record for record, _ in firsts), key=lambda record: record.store_time_ms, default=None)
        newest = max((record.store_time_ms for record, _ in lasts), default=None)
        return DeadLetterGroup(
            group=group,
            known=self._groups.get(group) is not None,
            count=count,
            oldest_ms=None if oldest is None else oldest.store_time_ms,
            newest_ms=newest,
            expires_not_before_ms=None
            if oldest is None
            else expiry.of(oldest.physical_offset, oldest.store_time_ms, self._hours(topic)),
            job=job,
        )
