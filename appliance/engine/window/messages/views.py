"""Messages of a topic by time, and one message by its place.

Pages walk a fixed snapshot. Records lie in the log in the order of their store times, so a span of time is a span of
physical offsets, and so is the rest of a snapshot. Therefore a cursor is a few numbers however many queues a topic has,
and each queue's place is found again by a binary search over its entries.
"""

from __future__ import annotations

import heapq
import re
import time
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ...cursors import decode_cursor, encode_cursor
from ...errors import InvalidInput, NotFound
from ...protocol.compression import compression_of
from ...protocol.message_id import decode_offset_id, encode_host, encode_offset_id
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ...protocol.properties import KEYS, TAGS, UNIQUE_KEY, decode_properties, find_property
from ...protocol.record import Record
from ...store.index.index_query import IndexQuery
from ...store.queues.consume_queue import HOLE_SIZE, ConsumeQueue
from ..figures.measures import Pace
from ..refusals import require_span, require_within
from ..sentences import say
from ..snapshots import fields_of
from ..sources import Sources
from ..topics.views import host_text
from . import snapshots as m
from .bodies import decompressed, glance_at, view_body
from .draft import draft_of, topic_of
from .matching import BATCH, PAGE_BYTES, MessageLook, Step, batches, query_of
from .queue_reader import QueueReader
from .raw_record import raw_of
from .story import MessageStories, detail_of

if TYPE_CHECKING:
    from ...bodies.schemas import BodyReader

MAX_LIMIT = 500
#: Time after which a page ends early.
PAGE_BUDGET_MS = 250.0
#: Rest as a multiple of a page's work: a user asks for one page at a time, so a page rests less than a job.
PAGE_GENTLE = 0.5
#: Entries of a queue that are read at a time.
CHUNK = 64
#: Rows between two rests: with 64, an export worked for 1.4 ms at a time, and sends waited.
ROWS = 16
_MAX_I64 = (1 << 63) - 1
#: Time that the search for a unique id waits for the index, and its time limit.
CATCH_UP_S, RESOLVE_S = 0.15, 0.5
_UNIQUE_ID = re.compile(r"[0-9A-Fa-f]{32,64}\Z", re.ASCII)


class Cursor(NamedTuple):
    """The state of a walk. The snapshot is [low, high) in the log. position: physical offset; the next record lies
    before it (newest first), or at or behind it. queue_id -1: all queues. seen_bytes: size of the records passed.
    question: CRC of the filter."""

    topic_crc: int
    newest_first: bool
    queue_id: int
    low: int
    high: int
    position: int
    seen: int
    total: int
    snapshot_at_ms: int
    seen_bytes: int = 0
    question: int = 0


class _Found(NamedTuple):
    """A page's rows, the cursor behind them, and the numbers of other entries."""

    rows: list[Any]
    cursor: Cursor
    scanned: int
    skipped: int
    undecided: int
    truncated: bool


def cursor_of(text: str, topic: str, question: int = 0) -> Cursor:
    """Decode a cursor. Raises InvalidInput unless it belongs to this topic and filter."""
    try:
        cursor = decode_cursor(text, Cursor)
    except ValueError:
        raise InvalidInput("cursor", say("bad_cursor")) from None
    if min(cursor[3:]) < 0:
        raise InvalidInput("cursor", say("bad_cursor"))
    if cursor.topic_crc != zlib.crc32(topic.encode()):
        raise InvalidInput("cursor", say("foreign_cursor"))
    if cursor.question != question:
        raise InvalidInput("cursor", say("cursor_of_another_filter"))
    return cursor


class MessageViews:
    """Any thread; reads in the caller's."""

    def __init__(
        self,
        sources: Sources,
        stories: MessageStories,
        schema_of: Callable[[str], BodyReader | None] = lambda topic: None,
    ) -> None:
        """schema_of: returns what decodes the bodies of a topic."""
        # Constant after construction.
        self._topics, self._store, self._index = sources.topics, sources.store, sources.sampler.index
        self._lag = sources.lag
        self._schema_of = schema_of
        self._stories = stories

    # --- by time

    def page(
        self,
        topic: str,
        *,
        queue_id: int | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        newest_first: bool = True,
        cursor: str | None = None,
        limit: int = 50,
        filter_text: str | None = None,
        budget_ms: float | None = None,
        since: int = 0,
        gentle: float = PAGE_GENTLE,
        patient: bool = False,
        make_row: Callable[[Record], Any] | None = None,
    ) -> m.MessagePage:
        """Return a page of a topic's messages stored in [from_ms, to_ms], over a snapshot without later messages.

        The first call fixes the snapshot; `next_cursor` continues in it and holds the times, queue and direction,
        so only topic, limit and filter go with it. The cursor is no secret and gives no access: it is checked, and
        valid for this topic and filter only. limit: 1 to 500. No bodies. filter_text: an expression of
        `filter/query` that messages must match. A page ends after budget_ms, or PAGE_BUDGET_MS, with a filter also
        after 64 MiB, however few it has found by then. A user without the grant to read bodies may not filter by
        them; the caller checks that with `filter_reads_bodies`. since: only messages at or behind this physical
        offset (`log_span`). gentle: time of a rest as a multiple of the work; there are many rests within the
        budget. patient: a filter waits for a schema registry; for jobs. NotFound (topic, queue), InvalidInput
        (cursor, limit, times, filter). make_row: makes the row of a record; None for MessageRow, `copy_of` for
        whole messages, which need the grants to read bodies and to export.
        """
        begin = time.monotonic()
        query = query_of(filter_text)
        question = 0 if query is None else zlib.crc32(query.text.strip().encode("utf-8", "replace")) or 1
        require_within("limit", limit, 1, MAX_LIMIT)
        if self._topics.get(topic) is None:
            raise NotFound("topic", topic)
        with QueueReader(self._store, 64) as reader:
            if cursor is None:
                at = self._begin(topic, queue_id, from_ms, to_ms, newest_first, reader, since)
                at = at._replace(question=question)
            else:
                at = cursor_of(cursor, topic, question)
            budget = Pace(PAGE_BUDGET_MS if budget_ms is None else budget_ms, gentle)
            if query is None:
                found = self._walk(topic, at, limit, reader, make_row or row_of, budget)
            else:
                look = MessageLook(self._store, reader, query, self._schema_of, patient)
                found = self._look(topic, at, limit, reader, make_row or row_of, budget, look)
            at = found.cursor
            ended = at.seen >= at.total
            return m.MessagePage(
                rows=tuple(found.rows),
                next_cursor=None if ended else encode_cursor(at),
                total=at.total,
                seen=at.seen,
                skipped=found.skipped,
                truncated=found.truncated,
                scanned_bytes=reader.read_bytes,
                took_ms=(time.monotonic() - begin) * 1000,
                snapshot_at_ms=at.snapshot_at_ms,
                scanned=found.scanned,
                seen_bytes=at.seen_bytes,
                total_bytes=at.seen_bytes if ended else at.seen_bytes * at.total // max(at.seen, 1),
                undecided=found.undecided,
            )

    def copies(self, topic: str, **asked: Any) -> m.MessagePage:
        """As `page`, from the oldest unless asked otherwise, but its rows are `MessageCopy`: whole messages with their
        bodies. Needs the grants to read bodies and to export; the caller checks that."""
        return self.page(topic, **{"newest_first": False, **asked}, make_row=copy_of)

    def lines(self, topic: str, body_chars: int, **asked: Any) -> m.MessagePage:
        """Return a page whose rows are `MessageLine`, with at most `body_chars` characters of each body. Needs the
        grant to read bodies; the caller checks that."""

        return self.page(topic, **asked, make_row=lambda record: self.line_of(record, body_chars))

    def line_of(self, record: Record, body_chars: int) -> m.MessageLine:
        """Return the row of a record with at most `body_chars` characters of its body."""
        schema = self._schema_of(topic_of(record))
        glance, binary, cut = glance_at(record.body, record.sys_flag, body_chars, schema)
        return m.MessageLine(**fields_of(row_of(record)), glance=glance, binary=binary, cut=cut)

    @staticmethod
    def filter_reads_bodies(filter_text: str | None) -> bool:
        """True if an expression looks into bodies. InvalidInput if it is wrong."""
        query = query_of(filter_text)
        return query is not None and query.reads_bodies

    def log_span(self) -> tuple[int, int]:
        """Return the physical offsets (begin of the log, end of its published part), for use as `since`."""
        return self._store.log.min_offset, self._store.published

    def _queues(self, topic: str, queue_id: int) -> list[ConsumeQueue]:
        return [queue for queue in self._index.of(topic) if queue_id < 0 or queue.queue_id == queue_id]

    def _begin(
        self,
        topic: str,
        queue_id: int | None,
        from_ms: int | None,
        to_ms: int | None,
        newest_first: bool,
        reader: QueueReader,
        since: int,
    ) -> Cursor:
        """Fix the snapshot: the messages that are published now and were stored in the span of time."""
        require_span(from_ms, to_ms)
        wanted = -1 if queue_id is None else queue_id
        config = self._topics.get(topic)
        count = 0 if config is None else max(config.read_queue_nums, config.write_queue_nums)
        queues = self._queues(topic, wanted)
        if queue_id is not None and not queues and not 0 <= queue_id < count:
            raise NotFound("queue", f"{topic}/{queue_id}")
        low, high, total = _MAX_I64, 0, 0
        for queue in queues:
            end = queue.max_offset if to_ms is None else reader.end_at(queue, to_ms)
            first = queue.min_offset if from_ms is None else reader.offset_at(queue, from_ms)
            if since:
                first = max(first, reader.first_behind(queue, since))
            if first < end:
                low = min(low, _edge(queue, range(first, min(end, first + CHUNK)), reader, _MAX_I64))
                high = max(high, _edge(queue, range(end - 1, max(first, end - CHUNK) - 1, -1), reader, -1) + 1)
                total += end - first
        low = min(low, high)
        at = high if newest_first else low
        return Cursor(
            zlib.crc32(topic.encode()), newest_first, wanted, low, high, at, 0, total, int(time.time() * 1000)
        )

    def _steps(self, topic: str, cursor: Cursor, chunk: int, reader: QueueReader) -> Iterator[Step]:
        """Yield the snapshot's entries from the cursor on, in its direction."""
        walks = [_entries_of(queue, cursor, chunk, reader) for queue in self._queues(topic, cursor.queue_id)]
        return walks[0] if len(walks) == 1 else heapq.merge(*walks, key=lambda step: step[0])

    def _walk(
        self,
        topic: str,
        cursor: Cursor,
        limit: int,
        reader: QueueReader,
        make_row: Callable[[Record], Any],
        budget: Pace,
    ) -> _Found:
        rows: list[Any] = []
        position, scanned, size_seen, skipped, truncated = cursor.position, 0, 0, 0, False
        ended = True
        for _, physical, size, queue, offset in self._steps(topic, cursor, min(limit, CHUNK), reader):
            if len(rows) >= limit or truncated:
                ended = False
                break
            scanned += 1
            size_seen += size
            position = physical if cursor.newest_first else physical + 1
            found = reader.record_at(physical, size)
            if found is not None and not reader.belongs(found[0], queue, offset):
                found = reader.record(queue, offset)
            if found is None:
                skipped += 1
            else:
                rows.append(make_row(found[0]))
            truncated = budget.spent
            if not scanned % ROWS:
                budget.rest()
        return _Found(
            rows, _moved(cursor, position, scanned, size_seen, ended), scanned, skipped, 0, truncated and not ended
        )

    def _look(
        self,
        topic: str,
        cursor: Cursor,
        limit: int,
        reader: QueueReader,
        make_row: Callable[[Record], Any],
        budget: Pace,
        look: MessageLook,
    ) -> _Found:
        """As `_walk`, with only the messages that match a filter."""
        rows: list[Any] = []
        position, scanned, size_seen, skipped, undecided = cursor.position, 0, 0, 0, 0
        truncated, ended = False, True
        for batch in batches(self._steps(topic, cursor, CHUNK, reader), BATCH):
            if len(rows) >= limit or truncated:
                ended = False
                break
            for data, step in zip(look.read(batch), batch, strict=True):
                if len(rows) >= limit or truncated:
                    ended = False
                    break
                _, physical, size, queue, offset = step
                scanned += 1
                size_seen += size
                position = physical if cursor.newest_first else physical + 1
                found = look.judge(data, step)
                if found is None:  # its file has gone, or the entry was of a tail that moved
                    again = reader.record(queue, offset)
                    found = None if again is None else look.judge(again[1], (0, again[0].physical_offset, *step[2:]))
                if found is None:
                    skipped += 1
                elif found is True:
                    undecided += 1
                elif found is not False:
                    rows.append(make_row(found))
                truncated = budget.spent or look.work > PAGE_BYTES
            budget.rest()
        return _Found(
            rows,
            _moved(cursor, position, scanned, size_seen, ended),
            scanned,
            skipped,
            undecided,
            truncated and not ended,
        )

    # --- one message

    def record(self, ref: str, by_unique_id: bool = True) -> tuple[Record, bytes]:
        """Return (record, its bytes) for an offset id, a unique id or `topic/queue/offset`. InvalidInput, NotFound."""
        with QueueReader(self._store, 4) as reader:
            if "/" in ref:
                found = self._by_place(ref, reader)
            elif _UNIQUE_ID.match(ref.strip()):
                found = self._by_offset_id(ref, reader)
                if found is None and by_unique_id:
                    found = self._by_unique_id(ref.strip(), reader)
            else:
                raise InvalidInput("ref", say("bad_offset_id"))
        if found is None:
            raise NotFound("message", ref[:200])
        return found

    def _by_place(self, ref: str, reader: QueueReader) -> tuple[Record, bytes] | None:
        parts = ref.split("/")
        if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) <= 19 for part in parts[1:]):
            raise InvalidInput("ref", say("bad_place"))
        queue = self._store.find_queue(parts[0], int(parts[1]))
        return None if queue is None else reader.record(queue, int(parts[2]))

    def _by_offset_id(self, ref: str, reader: QueueReader) -> tuple[Record, bytes] | None:
        """Return the record at an offset id if its queue points at it."""
        try:
            host, port, physical = decode_offset_id(ref.strip())
        except ValueError:
            return None
        found = self._store.records.get(physical)
        if found is None or found[0].store_host != (host, port):
            return None
        return found if self._is_there(found[0], reader) else None

    def _is_there(self, record: Record, reader: QueueReader) -> bool:
        """True if the record's queue points at it. This excludes deleted topics, and bytes inside a body that look like
        a record."""
        queue = self._store.find_queue(record.topic, record.queue_id)
        if queue is None:
            return False
        span = reader.span(queue, record.queue_offset, record.queue_offset + 1)
        return [at for _, at, _ in span] == [record.physical_offset]

    def _by_unique_id(self, unique_id: str, reader: QueueReader) -> tuple[Record, bytes] | None:
        """Return the newest message with this id in the first topic by name that has one. A copy in a retry or system
        topic is returned only if no user topic has one."""
        query = IndexQuery(self._store.index, self._store.records)
        query.catch_up(CATCH_UP_S)
        end = time.monotonic() + RESOLVE_S
        names = [config.topic_name for config in self._topics.all()]
        system = self._topics.is_system_topic
        names.sort(key=lambda name: (name.startswith((RETRY_PREFIX, DLQ_PREFIX)) or system(name), name))
        for topic in names:
            for key in dict.fromkeys((unique_id, unique_id.upper())):
                found = query.find(topic, key, 1, 0, _MAX_I64, deadline=end)
                for stored in found.records:
                    is_named = find_property(stored.record.properties, UNIQUE_KEY) == key
                    if is_named and self._is_there(stored.record, reader):
                        return stored
            if time.monotonic() > end:
                break
        return None

    def detail(self, ref: str, story: bool = True) -> m.MessageDetail:
        """Return one message without its body: ref is an offset id, a unique id or `topic/queue/offset`.

        story: also what happened to it and to its copies, and which groups have it; that reads the key index, the files
        of delivery events and the groups' offsets, for less than a second.
        InvalidInput if ref is none of these; NotFound if no message is there (or it has expired).
        """
        record, _ = self.record(ref)
        return detail_of(record, row_of(record), self._stories.tell(record, self._lag.snapshot()) if story else None)

    def body(self, ref: str, max_bytes: int = 65_536, most_whole: int | None = None) -> m.BodyView:
        """Return a message's body, decompressed, as JSON, text, hex and base64; at most `max_bytes` (1 MiB) of it. Also
        the whole body decoded by its topic's schema, if there is one. most_whole: longer bodies (in bytes) are not
        shown as a whole, as JSON and by the schema.

        Needs the grant to read bodies; the caller checks that, and gives `most_whole` to users who may not export.
        Errors as `detail`.
        """
        require_within("max_bytes", max_bytes, 1, 1 << 20)
        record = self.record(ref)[0]
        return view_body(record.body, record.sys_flag, max_bytes, self._schema_of(topic_of(record)), most_whole)

    def body_bytes(self, ref: str) -> bytes:
        """Return a message's body as stored, for a download. Needs the grant to read bodies."""
        return self.record(ref)[0].body

    def draft(self, ref: str, body: bool = True) -> m.MessageDraft:
        """Return the input fields to send a message like this one. body: include the body, which needs the grant to
        read bodies. Errors as `detail`."""
        return draft_of(self.record(ref)[0], body)

    def raw(self, ref: str, dump_bytes: int = 4096) -> m.RawRecord:
        """Return the record in the log, field by field, with a hex dump. It has the body: needs the grant, too."""
        require_within("dump_bytes", dump_bytes, 0, 1 << 16)
        record, data = self.record(ref)
        return raw_of(record, data, dump_bytes)


def row_of(record: Record) -> m.MessageRow:
    """Make the row of a record."""
    properties = decode_properties(record.properties)
    host, port = record.store_host
    return m.MessageRow(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        offset_id=encode_offset_id(encode_host(host, port), record.physical_offset),
        unique_id=properties.get(UNIQUE_KEY),
        stored_at_ms=record.store_time_ms,
        born_at_ms=record.born_time_ms,
        born_host=host_text(record.born_host),
        size_bytes=record.size,
        body_bytes=len(record.body),
        tags=properties.get(TAGS),
        keys=tuple(properties.get(KEYS, "").split()),
        reconsume_times=record.reconsume_times,
    )


def copy_of(record: Record) -> m.MessageCopy:
    """Make a copy of a whole record, to be kept elsewhere."""
    kind = compression_of(record.sys_flag)
    body, problem = (record.body, None) if kind is None else decompressed(record.body, kind)
    return m.MessageCopy(
        row=row_of(record),
        properties=decode_properties(record.properties),
        flag=record.flag,
        sys_flag=record.sys_flag,
        body=body,
        compression=None if problem is None else kind,
        problem=problem,
    )


def _moved(cursor: Cursor, position: int, scanned: int, size: int, ended: bool) -> Cursor:
    """Return the cursor behind a page. At the end of the walk, all counts as seen, also messages deleted meanwhile."""
    seen = cursor.total if ended else min(cursor.total, cursor.seen + scanned)
    return cursor._replace(position=position, seen=seen, seen_bytes=cursor.seen_bytes + size)


def _entries_of(queue: ConsumeQueue, cursor: Cursor, chunk: int, reader: QueueReader) -> Iterator[Step]:
    """Yield the queue's entries of the snapshot from the cursor on, in its direction, without holes."""
    if cursor.newest_first:
        low = reader.first_behind(queue, cursor.low)
        end = reader.first_behind(queue, min(cursor.position, cursor.high))
        while low < end:
            begin = max(low, end - chunk)
            for offset, physical, size in reversed(reader.span(queue, begin, end)):
                if 0 < size < HOLE_SIZE:
                    yield -physical, physical, size, queue, offset
            end = begin
        return
    at, end = reader.first_behind(queue, max(cursor.position, cursor.low)), reader.first_behind(queue, cursor.high)
    while at < end:
        following = min(end, at + chunk)
        for offset, physical, size in reader.span(queue, at, following):
            if 0 < size < HOLE_SIZE:
                yield physical, physical, size, queue, offset
        at = following


def _edge(queue: ConsumeQueue, offsets: range, reader: QueueReader, otherwise: int) -> int:
    """Return the physical offset of the first of these messages that has one, since damage may have left holes at the
    edge; `otherwise` if none has."""
    for offset in offsets:
        for _, physical, size in reader.span(queue, offset, offset + 1):
            if 0 < size < HOLE_SIZE:
                return physical
    return otherwise
