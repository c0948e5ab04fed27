"""One box for everything a message is called by: its place, its offset id, its unique id, a key of it.

The index holds `topic#key`, so a key is looked up topic by topic, in the order of their names, over a snapshot of the
log that new messages do not change. A page ends when it is full or its time is over; its cursor says in which topic,
and before which message of it, the next one begins.
"""

from __future__ import annotations

import re
import time
import zlib
from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

from ..broker.topics import TopicConfigManager
from ..cursors import decode_cursor, encode_cursor
from ..errors import InvalidInput, NotFound
from ..protocol.properties import UNIQUE_KEY, find_property
from ..protocol.record import Record
from ..store.index.index_query import IndexQuery
from ..store.message_store import MessageStore
from . import message_snapshots as m
from .measures import Budget
from .messages import MAX_LIMIT, MessageViews, row_of
from .sentences import Sentence, say

#: A page ends early after so long; of that, this much may go to waiting for the index.
PAGE_BUDGET_MS = 250.0
CATCH_UP_S = 0.15
#: One topic may take this long, when very many messages share a key.
TOPIC_S = 1.0
#: Longer texts are nobody's key: nothing is found.
MAX_TEXT = 1024
_MAX_I64 = (1 << 63) - 1
_OFFSET_ID = re.compile(r"(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})\Z", re.ASCII)
_UNIQUE_ID = re.compile(r"[0-9A-Fa-f]{32,64}\Z", re.ASCII)
_PLACE = re.compile(r".+/[0-9]{1,10}/[0-9]{1,19}\Z", re.ASCII | re.DOTALL)


class _Cursor(NamedTuple):
    """question: CRC of text and span. high: end of the snapshot in the log. topic, below: go on in this topic with
    messages before that physical offset; then with the topics behind it."""

    question: int
    high: int
    topic: str
    below: int


class SearchViews:
    """Any thread; reads in the caller's."""

    def __init__(self, topics: TopicConfigManager, store: MessageStore, messages: MessageViews) -> None:
        # Constant after construction.
        self._configs = topics
        self._store = store
        self._messages = messages
        self._query = IndexQuery(store.index, store.records)

    def page(
        self,
        text: str,
        topic: str | None,
        from_ms: int | None,
        to_ms: int | None,
        cursor_text: str | None,
        limit: int,
        may_see: Callable[[str], bool],
    ) -> m.SearchPage:
        begin = time.monotonic()
        budget = Budget(PAGE_BUDGET_MS)
        if not 1 <= limit <= MAX_LIMIT:
            raise InvalidInput("limit", say("out_of_range", field="limit", low=1, high=MAX_LIMIT))
        for name, value in (("from_ms", from_ms), ("to_ms", to_ms)):
            if value is not None and not 0 <= value <= _MAX_I64:
                raise InvalidInput(name, say("not_a_time", field=name))
        if from_ms is not None and to_ms is not None and from_ms > to_ms:
            raise InvalidInput("to_ms", say("times_reversed"))
        if topic is not None and self._configs.get(topic) is None:
            raise NotFound("topic", topic)
        text = text.strip()
        if len(text) > MAX_TEXT:
            text = ""
        span = (from_ms or 0, _MAX_I64 if to_ms is None else to_ms)
        question = zlib.crc32(repr((text, topic, span)).encode("utf-8", "replace"))
        cursor = _Cursor(question, self._store.published, "", 0)
        if cursor_text is not None:
            cursor = _cursor_of(cursor_text, question)
        walk = _Walk(self, text, span, limit, budget, may_see)
        if text and cursor_text is None:
            walk.add_named(topic)
        following = cursor if not text else walk.add_keyed(cursor, self._topics(topic, may_see))
        ended = following is None or not text
        return m.SearchPage(
            text=text,
            kinds=kinds_of(text),
            hits=tuple(walk.hits),
            next_cursor=None if ended or following is None else encode_cursor(following),
            searched_topics=walk.searched,
            topics=walk.topics,
            truncated=walk.cut_short or (not ended and len(walk.hits) < limit),
            index_enabled=self._store.index.enabled,
            index_behind_bytes=self._store.index.behind,
            place_note=walk.place_note,
            took_ms=(time.monotonic() - begin) * 1000,
        )

    def place_note(self, place: str) -> Sentence | None:
        """Why there is no message at `topic/queue/offset`; None when one may be there."""
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

    def _topics(self, topic: str | None, may_see: Callable[[str], bool]) -> list[str]:
        if topic is not None:
            return [topic] if may_see(topic) else []
        return sorted(config.topic_name for config in self._configs.all() if may_see(config.topic_name))


class _Walk:
    """One page in the making."""

    def __init__(
        self,
        views: SearchViews,
        text: str,
        span: tuple[int, int],
        limit: int,
        budget: Budget,
        may_see: Callable[[str], bool],
    ) -> None:
        self._views = views
        self._text = text
        self._span = span
        self._limit = limit
        self._budget = budget
        self._may_see = may_see
        self.hits: list[m.SearchHit] = []
        self._places: set[int] = set()
        self.searched = 0
        self.topics = 0
        self.cut_short = False
        self.place_note: Sentence | None = None
        # Clients print ids in capitals, and people type them as they like.
        self._keys = [text]
        if _UNIQUE_ID.match(text) and text != text.upper():
            self._keys.append(text.upper())

    def _add(self, record: Record, matched: str) -> None:
        if record.physical_offset not in self._places:
            self._places.add(record.physical_offset)
            self.hits.append(m.SearchHit(matched, row_of(record)))

    def add_named(self, topic: str | None) -> None:
        """The message whose place or offset id the text is. It was asked for by name: the span does not matter."""
        if _PLACE.match(self._text) and self._may_see(self._text.rsplit("/", 2)[0]):
            self.place_note = self._views.place_note(self._text)
        for kind, fits in (("place", _PLACE), ("offset_id", _OFFSET_ID)):
            if fits.match(self._text):
                try:
                    record, _ = self._views._messages.record(self._text, by_unique_id=False)
                except (NotFound, InvalidInput):
                    continue
                if topic in (None, record.topic) and self._may_see(record.topic):
                    self._add(record, kind)

    def add_keyed(self, cursor: _Cursor, topics: list[str]) -> _Cursor | None:
        """Messages with this key, topic by topic from the cursor on; where to go on, or None at the end."""
        self.topics = len(topics)
        query = self._views._query
        query.catch_up(CATCH_UP_S)
        at = bisect_left(topics, cursor.topic)
        self.searched = at
        for topic in topics[at:]:
            below = min(cursor.high, cursor.below) if topic == cursor.topic else cursor.high
            while True:
                room = self._limit - len(self.hits)
                if room <= 0 or self._budget.spent:
                    return cursor._replace(topic=topic, below=below)
                deadline = time.monotonic() + TOPIC_S
                records: dict[int, Record] = {}
                for key in self._keys:
                    found = query.find(topic, key, room, *self._span, below=below, deadline=deadline)
                    self.cut_short = self.cut_short or not found.complete
                    records |= {record.physical_offset: record for record, _ in found.records}
                for physical in sorted(records, reverse=True)[:room]:
                    is_unique = find_property(records[physical].properties, UNIQUE_KEY) in self._keys
                    self._add(records[physical], "unique_id" if is_unique else "key")
                    below = physical
                if len(records) < room:
                    break
            self.searched += 1
        return None


def kinds_of(text: str) -> tuple[str, ...]:
    """What a text may be: "place", "offset_id", "unique_id", "key", the most telling first."""
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
    if min(cursor.high, cursor.below) < 0 or cursor.question != question:
        raise InvalidInput("cursor", say("bad_cursor"))
    return cursor
