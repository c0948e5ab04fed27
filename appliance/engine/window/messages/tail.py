"""Shows a topic's messages as they are published, by looking at the ends of its queues now and then.

Sending does not notify a tail, so watching a topic costs its senders nothing, and an unwatched topic costs nothing at
all. A tail commits no offset and uses no group. It shows some of the messages and counts why others are not shown:

    passed = shown + filtered + left_out + unread
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...broker.queue_index import QueueIndex
from ...broker.topics import TopicConfigManager
from ...errors import InvalidInput, NotFound, RefusedRequest
from ...filter.expressions import SQL92, make_filter
from ...filter.message_filter import EVERYTHING, MessageFilter
from ...filter.tags import parse_tags, tag_filter
from ...protocol.message_id import encode_host, encode_offset_id
from ...protocol.names import SCHEDULE_TOPIC
from ...protocol.properties import KEYS, TAGS, UNIQUE_KEY, decode_properties
from ...protocol.record import Record
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import HOLE_SIZE, ConsumeQueue
from ...store.queues.queue_extension import is_address
from ..figures.measures import Budget
from ..refusals import require_within
from ..sentences import say
from .bodies import glance_at
from .draft import topic_of
from .queue_reader import QueueReader
from .snapshots import TailRow

if TYPE_CHECKING:
    from ...bodies.schemas import BodyReader

    SchemaOf = Callable[[str], BodyReader | None]

#: Entries that are read at a time.
CHUNK = 256
#: Time limit of a look, after which other threads get the GIL.
LOOK_MS = 2.0
#: Messages that wait to be looked at; if there are more, the oldest are skipped.
BACKLOG = 4000
MOST_PER_SECOND = 200
MOST_ONE_IN = 1_000_000
LONGEST_EXPRESSION = 1000
LONGEST_KEY = 1000
#: Characters of a tag, or of all keys, that a row holds.
MOST_TEXT = 400
#: Time limit of one look of a caller that comes again with a position (`Tails.since`), and most messages it is shown.
SINCE_MS = 100.0
MOST_SINCE = 200
#: Unused allowance that is kept for later looks, in seconds of `per_second`.
BURST_S = 0.5


@dataclass(frozen=True, slots=True)
class Wanted:
    """The messages of a topic to show, and how many. tags: a consumer's tag expression ("A || B"). key: one of the
    message's keys, exactly. expression: SQL92 over its properties. one_in: show one of this many matching messages (up
    to 1,000,000). per_second: show at most this many a second (up to 200). body_chars: number of characters of the body
    to show; needs the grant to read bodies, which the caller checks."""

    topic: str
    tags: str = ""
    key: str = ""
    expression: str = ""
    one_in: int = 1
    per_second: int = 50
    body_chars: int = 0


@dataclass(frozen=True, slots=True)
class TailLook:
    """The messages published since the last look: some as `rows`, and the numbers of the others.

    passed: all of them. filtered: they do not match. left_out: they match, but exceed what sampling lets through.
    unread: not looked at, because they came too fast, or not readable.
    """

    rows: tuple[TailRow, ...]
    passed: int
    filtered: int
    left_out: int
    unread: int


class Since(NamedTuple):
    """The messages published since a place of the log. place, matched: of the next call; matched is for `one_in`."""

    look: TailLook
    place: int
    matched: int


@dataclass(slots=True)
class _Counts:
    passed: int = 0
    filtered: int = 0
    left_out: int = 0
    unread: int = 0


class Tail:
    """One watched topic with one filter. Belongs to one thread, which calls `close` at the end."""

    def __init__(
        self,
        wanted: Wanted,
        store: MessageStore,
        width: Callable[[], int | None],
        queues: Sequence[ConsumeQueue],
        schema_of: SchemaOf,
    ) -> None:
        """width: returns the topic's present number of queues, None if it is gone. queues: those it has so far.
        schema_of: returns what decodes the bodies of a topic."""
        # Constant after construction.
        self._schema_of = schema_of
        self.wanted = wanted
        self._store = store
        self._width = width
        self._codes, self._filter = _filters(wanted)
        self._tags = frozenset(parse_tags(wanted.tags))
        self._reads_records = bool(wanted.key) or self._filter is not EVERYTHING
        # Offset up to which each queue was looked at; a queue that is made later is looked at from its beginning.
        self._at = {queue.queue_id: queue.max_offset for queue in queues}
        self._known = {queue.queue_id: queue for queue in queues}
        self._reader = QueueReader(store, 8)
        # Number of messages that matched, for `one_in`; and how many may still be shown, by `per_second`.
        self._matched = 0
        self._allowed = float(wanted.per_second) * BURST_S
        self._allowed_at = time.monotonic()

    def close(self) -> None:
        self._reader.__exit__(None, None, None)

    def look(self) -> TailLook | None:
        """Return the messages since the last look; None if there are none. NotFound if the topic is gone."""
        width = self._width()
        if width is None:
            raise NotFound("topic", self.wanted.topic)
        fresh = list(self._fresh(width))
        if not fresh:
            return None
        self._allow()
        counts = _Counts()
        return self._shown(self._take_from(fresh, counts), counts)

    def look_since(self, fresh: list[tuple[ConsumeQueue, int, int]], most: int, matched: int) -> tuple[TailLook, int]:
        """Return (the messages in these (queue, from, to), at most so many of them; matched messages for the next
        call). What there is no time for is unread."""
        self._allowed, self._matched = most, matched
        counts = _Counts()
        budget = Budget(SINCE_MS)
        found: list[Record] = []
        while fresh:
            found += self._take_from(fresh, counts)
            fresh = [(queue, self._at[queue.queue_id], high) for queue, _, high in fresh]
            fresh = [one for one in fresh if one[1] < one[2]]
            if budget.spent:
                break
        late = sum(high - low for _, low, high in fresh)
        counts.passed += late
        counts.unread += late
        return self._shown(found, counts), self._matched

    def _take_from(self, fresh: list[tuple[ConsumeQueue, int, int]], counts: _Counts) -> list[Record]:
        reads = self._reads_records or self._tags
        return self._filtered(fresh, counts) if reads else self._sampled(fresh, counts)

    def _shown(self, found: list[Record], counts: _Counts) -> TailLook:
        found.sort(key=lambda record: record.physical_offset)
        chars = self.wanted.body_chars
        rows = tuple(_row(record, chars, self._schema_of(topic_of(record)) if chars else None) for record in found)
        return TailLook(rows, counts.passed, counts.filtered, counts.left_out, counts.unread)

    # --- what is new

    def _fresh(self, width: int) -> Iterator[tuple[ConsumeQueue, int, int]]:
        """Yield (queue, from, to) of each queue with messages that were not looked at."""
        for queue_id in range(width):
            queue = self._store.find_queue(self.wanted.topic, queue_id)
            if queue is None:
                continue
            if self._known.get(queue_id) is not queue:  # new, or of a topic that was deleted and made again
                self._known[queue_id] = queue
                self._at[queue_id] = queue.min_offset
            low, high = max(self._at[queue_id], queue.min_offset), queue.max_offset
            if low < high:
                yield queue, low, high

    def _allow(self) -> None:
        now = time.monotonic()
        rate = self.wanted.per_second
        self._allowed = min(self._allowed + (now - self._allowed_at) * rate, max(1.0, rate * BURST_S))
        self._allowed_at = now

    # --- without a filter: what is shown is chosen before anything is read

    def _sampled(self, fresh: list[tuple[ConsumeQueue, int, int]], counts: _Counts) -> list[Record]:
        total = sum(high - low for _, low, high in fresh)
        every = self.wanted.one_in
        chosen: Sequence[int] = range(-self._matched % every, total, every)
        self._matched += total
        most = int(self._allowed)
        if len(chosen) > most:  # evenly over all that came
            chosen = [chosen[number * len(chosen) // most] for number in range(most)] if most else ()
        self._allowed -= len(chosen)
        counts.passed += total
        counts.left_out += total - len(chosen)
        found = []
        wanted = iter(chosen)
        number, base = next(wanted, None), 0
        for queue, low, high in fresh:
            while number is not None and number < base + high - low:
                record = self._reader.record(queue, low + number - base)
                if record is None:
                    counts.unread += 1
                else:
                    found.append(record[0])
                number = next(wanted, None)
            base += high - low
            self._at[queue.queue_id] = high
        return found

    # --- with one: what was not looked at waits, as long as it is not too much

    def _filtered(self, fresh: list[tuple[ConsumeQueue, int, int]], counts: _Counts) -> list[Record]:
        budget = Budget(LOOK_MS)
        share = max(BACKLOG // len(fresh), 1)
        found: list[Record] = []
        for queue, low, high in fresh:
            if high - low > share:
                counts.passed += high - share - low
                counts.unread += high - share - low
                low = high - share
            while low < high and not budget.spent:
                low += self._look_at(queue, low, min(high - low, CHUNK), budget, counts, found)
            self._at[queue.queue_id] = low
        return found

    def _look_at(
        self, queue: ConsumeQueue, low: int, count: int, budget: Budget, counts: _Counts, found: list[Record]
    ) -> int:
        """Look at entries from `low` on. Return how many were dealt with, at least one."""
        entries = self._reader.entries(queue, low, count)
        if not entries:
            counts.passed += 1
            counts.unread += 1
            return 1
        done = 0
        for physical, size, code in entries:
            self._judge(queue, low + done, physical, size, code, counts, found)
            done += 1
            if done % 16 == 0 and budget.spent:
                break
        return done

    def _judge(
        self,
        queue: ConsumeQueue,
        offset: int,
        physical: int,
        size: int,
        code: int,
        counts: _Counts,
        found: list[Record],
    ) -> None:
        counts.passed += 1
        if not 0 < size < HOLE_SIZE:
            counts.unread += 1
            return
        if self._codes is not None and code not in self._codes and not is_address(code):
            counts.filtered += 1
            return
        # The tag's hash is in the entry: messages that sampling leaves out need not be read.
        if not self._reads_records and not self._take(counts):
            return
        stored = self._reader.record_at(physical, size)
        if stored is None or not self._reader.belongs(stored[0], queue, offset):
            counts.unread += 1
        elif not self._wants(stored[0]):
            counts.filtered += 1
        elif not self._reads_records or self._take(counts):
            found.append(stored[0])

    def _wants(self, record: Record) -> bool:
        properties = decode_properties(record.properties)
        if self._tags and properties.get(TAGS) not in self._tags:
            return False
        if self.wanted.key and self.wanted.key not in properties.get(KEYS, "").split():
            return False
        return self._filter is EVERYTHING or self._filter.matches(properties)

    def _take(self, counts: _Counts) -> bool:
        """True if sampling lets a matching message through; else count it as left out."""
        number = self._matched
        self._matched += 1
        if number % self.wanted.one_in or self._allowed < 1:
            counts.left_out += 1
            return False
        self._allowed -= 1
        return True


def no_schema(topic: str) -> None:
    """Return None: no topic has a schema."""


class Tails:
    """Any thread."""

    #: What `begin` takes, for callers that see the window only.
    wanted = Wanted

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        index: QueueIndex,
        schema_of: SchemaOf = no_schema,
    ) -> None:
        """schema_of: returns what decodes the bodies of a topic."""
        # Constant after construction.
        self._schema_of = schema_of
        self._store = store
        self._topics = topics
        self._index = index

    def begin(self, wanted: Wanted, *, dry_run: bool = False) -> Tail | None:
        """Watch the messages that are published in a topic from now on: call `look` from one thread, some times a
        second.

        No offset is committed. dry_run: only the checks. NotFound (topic), InvalidInput (tags, key, expression, one_in,
        per_second).
        """
        check_wanted(wanted)
        width = partial(self._width, wanted.topic)
        if width() is None:
            raise NotFound("topic", wanted.topic)
        if dry_run:
            return None
        return Tail(wanted, self._store, width, self._index.of(wanted.topic), self._schema_of)

    def since(self, wanted: Wanted, place: int | None, matched: int = 0, most: int = 100) -> Since:
        """Return what was published in a topic since a place of the log, at most `most` (1 to 200) messages; only the
        present place if it is None. Nothing is kept here between two looks.

        Raises as `begin` does; `per_second` counts for nothing.
        """
        require_within("limit", most, 1, MOST_SINCE)
        end = self._store.published
        tail = self.begin(wanted)
        assert tail is not None, "it was no dry run"
        nothing = TailLook((), 0, 0, 0, 0)
        with closing(tail), QueueReader(self._store, 8) as reader:
            if place is None or place >= end:
                return Since(nothing, end, matched)
            fresh = []
            for queue in self._index.of(wanted.topic):
                low, high = _first_from(reader, queue, place), _first_from(reader, queue, end)
                if low < high:
                    fresh.append((queue, low, high))
            look, matched = tail.look_since(fresh, most, matched)
            return Since(look, end, matched)

    def _width(self, topic: str) -> int | None:
        config = self._topics.get(topic)
        return None if config is None else max(config.read_queue_nums, config.write_queue_nums)


def _first_from(reader: QueueReader, queue: ConsumeQueue, place: int) -> int:
    """Return the first offset whose record lies at this place of the log or behind it. It is near the queue's end."""
    low, high = queue.min_offset, queue.max_offset
    step = 1
    while high - step >= low:
        entries = reader.entries(queue, high - step, 1)
        if entries and entries[0][0] < place:
            low = high - step + 1
            break
        step *= 2
    while low < high:
        middle = (low + high) // 2
        entries = reader.entries(queue, middle, 1)
        if entries and entries[0][0] >= place:
            high = middle
        else:
            low = middle + 1
    return low


def check_wanted(wanted: Wanted) -> None:
    """Raise InvalidInput unless the filter and limits are valid."""
    for name, value, most in (
        ("one_in", wanted.one_in, MOST_ONE_IN),
        ("per_second", wanted.per_second, MOST_PER_SECOND),
    ):
        require_within(name, value, 1, most)
    for name, text, most in (
        ("key", wanted.key, LONGEST_KEY),
        ("tags", wanted.tags, LONGEST_EXPRESSION),
        ("expression", wanted.expression, LONGEST_EXPRESSION),
    ):
        if len(text) > most:
            raise InvalidInput(name, say("filter_too_long", limit=most))
    _filters(wanted)


def _filters(wanted: Wanted) -> tuple[frozenset[int] | None, MessageFilter]:
    """Return (tag codes that may match, None for all; the filter of the properties)."""
    # Entries of the schedule topic have a time in place of the tag code.
    codes = None if wanted.topic == SCHEDULE_TOPIC else tag_filter(wanted.tags).codes
    if not wanted.expression:
        return codes, EVERYTHING
    try:
        return codes, make_filter(SQL92, wanted.expression)
    except RefusedRequest as refusal:
        raise InvalidInput("expression", say("expression_wrong", reason=str(refusal))) from None


def _row(record: Record, body_chars: int, schema: BodyReader | None) -> TailRow:
    properties = decode_properties(record.properties)
    glance: str | None = None
    binary = cut = False
    if body_chars:
        glance, binary, cut = glance_at(record.body, record.sys_flag, body_chars, schema)
    return TailRow(
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        offset_id=encode_offset_id(encode_host(*record.store_host), record.physical_offset),
        unique_id=properties.get(UNIQUE_KEY),
        stored_at_ms=record.store_time_ms,
        body_bytes=len(record.body),
        tags=properties[TAGS][:MOST_TEXT] if TAGS in properties else None,
        keys=tuple(properties.get(KEYS, "")[:MOST_TEXT].split()),
        reconsume_times=record.reconsume_times,
        glance=glance,
        binary=binary,
        cut=cut,
    )
