"""Finds messages by any of their names: place, offset id, unique id or key.

The index holds `topic#key`. A search looks the key up in all topics at once, over a snapshot of the log that new
messages do not change, and reads the records found from the newest down, a stretch of MOST_RECORDS at a time. The
records of a stretch are grouped into messages, which its pages show. A cursor holds the place in the log where the
stretch begins, and the message of the stretch behind which the next page begins.
"""

from __future__ import annotations

import re
import time
import zlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ...broker.topics import TopicConfigManager
from ...cursors import decode_cursor, encode_cursor
from ...errors import InvalidInput, NotFound
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ...protocol.record import Record
from ...store.index.index_query import ChainTooLong, IndexQuery
from ...store.message_store import MessageStore
from ..figures.measures import Pace
from ..refusals import require_span, require_within
from ..sentences import Sentence, say
from . import snapshots as m
from .copies import Copy, MessageCopies
from .found import WAITING_TOPICS, FoundMessage, messages_of
from .story import Transactions
from .views import MAX_LIMIT, MessageViews, row_of

#: Time after which a page ends early, and the part of it that may be spent waiting for the index.
PAGE_BUDGET_MS = 250.0
CATCH_UP_S = 0.15
#: Time limit for looking a key up in all topics and skipping newer entries of the index: a disk may be slow, and very
#: many messages may share a key.
STEP_OVER_S = 1.0
#: Records and bytes that a page reads at most, and topics that are searched at a time. A message and its copies are one
#: row if they lie in one stretch of MOST_RECORDS records; nearly every key has fewer.
MOST_RECORDS, MOST_BYTES, BLOCK = MAX_LIMIT, 64 << 20, 2000
#: Divisor of the number of topics searched at a time, after a search of that many topics took too long.
FEWER = 8
#: Messages of earlier stretches that a cursor remembers, because they were shown before their originals were reached.
MOST_SHOWN = 64
#: Records that are read between two rests; a rest is as long as the reading before it.
REST_AFTER = 32
#: Characters of a text at most; a longer one finds nothing.
MAX_TEXT = 1024
_MAX_I64 = (1 << 63) - 1
_OFFSET_ID = re.compile(r"(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})\Z", re.ASCII)
_UNIQUE_ID = re.compile(r"[0-9A-Fa-f]{32,64}\Z", re.ASCII)
_PLACE = re.compile(r".+/[0-9]{1,10}/[0-9]{1,19}\Z", re.ASCII | re.DOTALL)


class _Cursor(NamedTuple):
    """question: CRC of text, topic, span of times and `copies`. high: end of the snapshot in the log. topic: the first
    of a block of `most` topics. below: the stretch begins below this physical offset. behind: the next page begins with
    messages whose place is below this. shown: places further down of messages that have been shown."""

    question: int
    high: int
    topic: str
    most: int
    below: int
    behind: int
    shown: tuple[int, ...]


class SearchViews:
    """Any thread; reads in the caller's."""

    def __init__(
        self,
        topics: TopicConfigManager,
        store: MessageStore,
        messages: MessageViews,
        copies: MessageCopies,
        still_wait: Callable[[list[Record]], set[int]],
        transactions: Transactions,
    ) -> None:
        """still_wait: returns the physical offsets of those delayed or timed records that were not delivered, dropped
        or recalled yet."""
        # Constant after construction.
        self.still_wait = still_wait
        self.transactions = transactions
        self._configs = topics
        self._store = store
        self.messages = messages
        self.copies = copies
        self.query = IndexQuery(store.index, store.records)

    @property
    def levels(self) -> Sequence[int]:
        """The delay levels, in ms."""
        return self._store.settings.delay_levels_ms

    def page(
        self,
        text: str,
        *,
        topic: str | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        cursor: str | None = None,
        limit: int = 50,
        may_see: Callable[[str], bool] = lambda topic: True,
        copies: bool = False,
        body_chars: int = 0,
    ) -> m.SearchPage:
        """Find messages by place (`topic/queue/offset`), offset id, unique id or key, all in one text.

        A text may be several of these at once; all are tried, keys over all topics or in `topic`. A message is one hit
        with the facts of its copies in retry topics, dead letters and system topics; copies: each record is a hit, also
        in system topics. The newest come first. from_ms and to_ms limit the store time, except for a message named by
        its place. A snapshot: `next_cursor` continues with the same text, topic, times and copies. A page ends after
        250 ms or 500 records (truncated), so an empty page may have a next one. body_chars: characters of each body, in
        rows that are `MessageLine` then; needs the grant to read bodies, which the caller checks. may_see(topic): True
        if the caller may see a topic's messages. limit: 1 to 500. A blank text finds nothing. InvalidInput (limit,
        times, cursor), NotFound (topic). `hit.message.offset_id` is a ref for `messages.detail`.
        """
        begin = time.monotonic()
        pace = Pace(PAGE_BUDGET_MS, 1.0)
        require_within("limit", limit, 1, MAX_LIMIT)
        require_span(from_ms, to_ms)
        if topic is not None and self._configs.get(topic) is None:
            raise NotFound("topic", topic)
        text = text.strip()
        if len(text) > MAX_TEXT:
            text = ""
        span = (from_ms or 0, _MAX_I64 if to_ms is None else to_ms)
        question = zlib.crc32(repr((text, topic, span, copies)).encode("utf-8", "replace"))
        begins = _Cursor(question, self._store.published, "", BLOCK, self._store.published, _MAX_I64, ())
        at = begins if cursor is None else _cursor_of(cursor, question)
        make_row = partial(self.messages.line_of, body_chars=body_chars) if body_chars else row_of
        walk = _Walk(self, text, span, limit, pace, may_see, copies, make_row)
        if text and cursor is None:
            walk.add_named(topic)
        following: _Cursor | None = None
        if text:
            # Copies in other topics show the state of a topic's messages.
            is_own = topic is not None and not (copies or self._is_internal(topic))
            topics = self._topics(topic, may_see, is_own, copies)
            following = walk.add_keyed(at, topics, topic if is_own else None)
        ended = following is None
        return m.SearchPage(
            text=text,
            kinds=kinds_of(text),
            hits=tuple(walk.hits),
            next_cursor=None if following is None else encode_cursor(following),
            searched_topics=walk.searched,
            topics=walk.topics,
            truncated=walk.gave_up or (not ended and len(walk.hits) < limit),
            index_enabled=self._store.index.enabled,
            # Messages that came during the search are none of it.
            index_behind_bytes=self._not_indexed(at.high) if text else 0,
            place_note=walk.place_note,
            took_ms=(time.monotonic() - begin) * 1000,
        )

    def _not_indexed(self, end: int) -> int:
        """Return how many bytes of the log before `end` have no keys in the index yet."""
        index = self._store.index
        return max(0, end - index.position) if index.enabled else 0

    def is_deleted(self, record: Record) -> bool:
        """True if it was deleted with its topic, which was made again since."""
        return record.physical_offset < self._store.files.deleted_topics.below(record.topic)

    def place_note(self, place: str) -> Sentence | None:
        """Return why there is no message at `topic/queue/offset`; None if one may be there."""
        topic, queue_text, offset_text = place.rsplit("/", 2)
        queue_id, offset = int(queue_text), int(offset_text)
        config = self._configs.get(topic)
        if config is None:
            return say("place_no_topic", topic=topic)
        queue = self._store.find_queue(topic, queue_id)
        if queue is None or queue.max_offset == queue.min_offset == 0:
            count = max(config.read_queue_nums, config.write_queue_nums)
            if queue_id >= count:
                return say("place_no_queue", topic=topic, queue=queue_id, count=count)
            return say("place_queue_empty", topic=topic, queue=queue_id)
        if offset >= queue.max_offset:
            return say("place_behind_end", topic=topic, queue=queue_id, end=queue.max_offset)
        if offset < queue.min_offset:
            return say("place_expired", topic=topic, queue=queue_id, begin=queue.min_offset)
        return None

    def _is_internal(self, topic: str) -> bool:
        return topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or self._configs.is_system_topic(topic)

    def _topics(self, topic: str | None, may_see: Callable[[str], bool], with_copies: bool, copies: bool) -> list[str]:
        """Return the topics to search: the given one, with_copies also the internal ones, or all; without topics that
        only the broker uses, unless every record is to be a hit."""
        names = [config.topic_name for config in self._configs.all()]
        if topic is not None:
            names = [name for name in names if name == topic or (with_copies and self._is_internal(name))]
        if not copies:
            ours = self._configs.is_system_topic
            names = [name for name in names if name == topic or not ours(name) or name in WAITING_TOPICS]
        return sorted(name for name in names if may_see(name))


class _Walk:
    """The search for one page."""

    def __init__(
        self,
        views: SearchViews,
        text: str,
        span: tuple[int, int],
        limit: int,
        pace: Pace,
        may_see: Callable[[str], bool],
        copies: bool,
        make_row: Callable[[Record], m.MessageRow],
    ) -> None:
        self._views = views
        self._text = text
        self._span = span
        self._limit = limit
        self._pace = pace
        self._may_see = may_see
        self._copies = copies
        self._make_row = make_row
        self.hits: list[m.SearchHit] = []
        self._named: set[int] = set()
        self.searched = 0
        self.topics = 0
        #: True if skipping newer entries took too long: the search ends here, though there may be more messages.
        self.gave_up = False
        self.place_note: Sentence | None = None
        # Clients print ids in capitals, and users may type small letters.
        self._keys = [text]
        if _UNIQUE_ID.match(text) and text != text.upper():
            self._keys.append(text.upper())

    def add_named(self, topic: str | None) -> None:
        """Add the message whose place or offset id the text is, regardless of the span of times."""
        if _PLACE.match(self._text) and self._may_see(self._text.rsplit("/", 2)[0]):
            self.place_note = self._views.place_note(self._text)
        for kind, fits in (("place", _PLACE), ("offset_id", _OFFSET_ID)):
            if fits.match(self._text):
                try:
                    record, _ = self._views.messages.record(self._text, by_unique_id=False)
                except (NotFound, InvalidInput):
                    continue
                place = record.physical_offset
                if topic in (None, record.topic) and self._may_see(record.topic) and place not in self._named:
                    self._named.add(place)
                    [hit] = self._hits(messages_of([record], self._views.levels, _none))
                    self.hits.append(replace(hit, matched=kind))

    def add_keyed(self, cursor: _Cursor, topics: list[str], only: str | None) -> _Cursor | None:
        """Add messages with this key from the cursor on. only: a topic that they must be of. Return the cursor of the
        next page, None at the end."""
        self.topics = len(topics)
        self._views.query.catch_up(CATCH_UP_S)
        first = begin = bisect_left(topics, cursor.topic)
        while True:
            block = topics[begin : begin + cursor.most]
            self.searched = begin
            if not block:
                return None
            if self._pace.spent and begin > first:
                return cursor._replace(topic=block[0])
            records, reached = self._read(block, cursor.below)
            if self.gave_up and len(block) > 1 and (cursor.below, cursor.behind) == (cursor.high, _MAX_I64):
                self.gave_up = False
                return cursor._replace(topic=block[0], most=max(1, len(block) // FEWER))
            found = [one for one in self._messages(records) if only in (None, one.topic, one.shown.record.topic)]
            left = [one for one in found if one.place < cursor.behind and one.place not in cursor.shown]
            room = self._limit - len(self.hits)
            self.hits += self._hits(left[:room])
            if len(left) > room:
                return cursor._replace(topic=block[0], behind=left[room - 1].place if room else cursor.behind)
            if reached is not None:
                shown = sorted(place for place in {*cursor.shown, *(one.place for one in found)} if place < reached)
                shown = shown[-MOST_SHOWN:]
                return cursor._replace(topic=block[0], below=reached, behind=_MAX_I64, shown=tuple(shown))
            begin += len(block)
            cursor = cursor._replace(topic="", below=cursor.high, behind=_MAX_I64, shown=())
            if self.gave_up:
                return None

    def _read(self, topics: list[str], below: int) -> tuple[list[Record], int | None]:
        """Return (the newest records below an offset, the offset below which to continue or None at the end)."""
        records: list[Record] = []
        # If each record is a hit, the other records of its message are not needed.
        most = min(self._limit, MOST_RECORDS) if self._copies else MOST_RECORDS
        size = 0
        deadline = time.monotonic() + STEP_OVER_S
        reached = below
        try:
            for count, (physical, record) in enumerate(
                self._views.query.newest(topics, self._keys, *self._span, below, deadline), 1
            ):
                reached = min(reached, physical)
                if record is not None:
                    size += record.size
                    if record.physical_offset not in self._named and not self._views.is_deleted(record):
                        records.append(record)
                if len(records) >= most or size > MOST_BYTES or self._pace.spent:
                    return records, reached
                if not count % REST_AFTER:
                    self._pace.rest()
        except ChainTooLong:
            self.gave_up = reached == below
            return records, None if self.gave_up else reached
        return records, None

    def _messages(self, records: list[Record]) -> list[FoundMessage]:
        levels = self._views.levels
        if self._copies:
            newest = sorted(records, key=lambda record: record.physical_offset, reverse=True)
            return [one for record in newest for one in messages_of([record], levels, _none)]
        return messages_of(records, levels, self._origin)

    def _hits(self, found: list[FoundMessage]) -> list[m.SearchHit]:
        """Make the hits of messages. Records of other times or pages may be missing here, so the broker's present state
        shows if a message still waits."""
        delayed = [one.shown.record for one in found if one.awaits == "delayed"]
        still = self._views.still_wait(delayed) if delayed else set()
        return [one.hit(self._keys, self._is_over(one, still), self._make_row) for one in found]

    def _is_over(self, one: FoundMessage, still: set[int]) -> bool:
        if one.awaits != "half":
            return one.awaits == "delayed" and one.shown.physical not in still
        end = self._views.transactions.end_of(one.shown.record.queue_offset, one.shown.physical)
        return end is not None and end.how == "committed"

    def _origin(self, copy: Copy) -> Copy | None:
        found = self._views.copies.origin(copy)
        return found if found is not None and self._may_see(found.record.topic) else None


def _none(copy: Copy) -> None:
    return None


def kinds_of(text: str) -> tuple[str, ...]:
    """Return what a text may be, of "place", "unique_id", "offset_id" and "key", most specific first."""
    if not text:
        return ()
    found = []
    if _PLACE.match(text):
        found.append("place")
    if _OFFSET_ID.match(text):
        found += ["unique_id", "offset_id"]
    return (*found, "key")


def _cursor_of(text: str, question: int) -> _Cursor:
    try:
        cursor = decode_cursor(text, _Cursor)
    except ValueError:
        raise InvalidInput("cursor", say("bad_cursor")) from None
    if min(cursor.high, cursor.most - 1, cursor.below, cursor.behind, *cursor.shown) < 0 or cursor.question != question:
        raise InvalidInput("cursor", say("bad_cursor"))
    return cursor
