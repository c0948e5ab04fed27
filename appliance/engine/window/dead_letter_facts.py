"""What is known of dead letters without reading them again: where each comes from, its retries, its hour, its origin.

An entry of a dead letter queue says only where its record lies. To group a hundred thousand of them on each look, each
record is read once and becomes 16 bytes: a code for (kind, hour), and a digest of the id of the message it once was.
Nobody looks: nothing is kept.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from ..broker.replay.letter_filter import LetterFilter
from ..broker.replay.provenance import REPLAY_JOB, provenance_of
from ..errors import CorruptFile
from ..protocol.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC, decode_properties, find_property
from ..protocol.record import Record, decode_record
from ..store.message_store import MessageStore
from ..store.queues.consume_queue import HOLE_SIZE, ConsumeQueue
from .measures import Budget
from .queue_reader import Entry, QueueReader

#: Entries whose records are read in one go, and bytes of the log at once.
SLICE = 128
_READ_BYTES = 256 * 1024
#: So many bytes between two records are read along.
_GAP_BYTES = 8 * 1024
#: Dead letters of all groups together that something is kept of.
MOST_KEPT = 1_000_000
#: Different (topic, retries); all others are OTHER.
MOST_KINDS = 20_000
TEXT_LIMIT = 255
#: One without a record; one of too many kinds.
GONE, OTHER = 65_535, 65_534
#: Worked off in one call of C, which holds the GIL (D10).
_COUNTED = 16_384
_NEAR = 64
HOUR_MS = 3_600_000
#: Different messages are counted among so many dead letters at most: it takes a set of them for a moment.
MOST_DISTINCT = 200_000
#: Jobs of one queue whose messages that died again are kept.
MOST_JOBS = 1000


class LetterKind(NamedTuple):
    """topic: it was first sent to, "" when it does not say. again: the copy of a replay, dead once more."""

    topic: str
    retries: int
    again: bool


class QueueFacts:
    """Of one queue, from `base` on. code: hour << 16 | number of its kind. again: replay job -> the numbers of those of
    its messages that died once more; they stay when the dead letter has expired."""

    __slots__ = ("again", "base", "codes", "counts", "origins")

    def __init__(self, base: int) -> None:
        self.base = base
        self.codes = array("Q")
        self.origins = array("Q")
        self.counts: Counter[int] = Counter()
        self.again: dict[str, array[int]] = {}

    @property
    def end(self) -> int:
        return self.base + len(self.codes)

    def trim(self, below: int) -> None:
        count = max(0, min(below - self.base, len(self.codes)))
        for begin in range(0, count, _COUNTED):
            self.counts.subtract(Counter(self.codes[begin : min(count, begin + _COUNTED)]))
        if count:
            self.counts += Counter()  # what counts nothing goes
            del self.codes[:count]
            del self.origins[:count]
        self.base += count
        if not self.codes:
            self.base = max(self.base, below)

    def add(self, codes: array[int], origins: array[int]) -> None:
        self.codes += codes
        self.origins += origins
        self.counts.update(codes)

    def behind_last_of(self, codes: Collection[int], low: int, end: int) -> int:
        """One more than the last offset in [low, end) with one of these codes; `low` without one. Known ones only."""
        wanted = frozenset(codes)
        top = end - self.base
        floor = max(0, low - self.base)
        step = _NEAR
        while top > floor:
            begin = max(floor, top - step)
            step = min(_COUNTED, 4 * step)  # the next one mostly lies close by
            part = self.codes[begin:top]
            if not wanted.isdisjoint(part):
                return self.base + begin + 1 + max(at for at, code in enumerate(part) if code in wanted)
            top = begin
        return low


class LetterFacts:
    """Belongs to whoever holds the lock of `DeadLetterViews`."""

    def __init__(self, store: MessageStore) -> None:
        # Constant after construction.
        self._store = store
        # The one asked for last is the last.
        self._queues: dict[ConsumeQueue, QueueFacts] = {}
        self._kinds: list[LetterKind] = []
        self._numbers: dict[LetterKind, int] = {}
        # Of the queues that were counted last: what they were, and how many messages.
        self._distinct: tuple[tuple[tuple[int, int, int], ...], int | None] = ((), 0)

    def distinct(self, known: Collection[QueueFacts]) -> int | None:
        """How many messages they once were; None for too many. Counted once for what has not changed since."""
        key = tuple((id(one), one.base, one.end) for one in known)
        if self._distinct[0] != key:
            self._distinct = (key, distinct(known))
        return self._distinct[1]

    def of(self, queue: ConsumeQueue) -> QueueFacts:
        """What is known of a queue, without what it has lost."""
        low = queue.min_offset
        found = self._queues.pop(queue, None)
        if found is None or found.base > low or found.end > queue.max_offset:
            found = QueueFacts(low)
        self._queues[queue] = found
        found.trim(low)
        return found

    def kind(self, code: int) -> LetterKind | None:
        """None for what has no record, and beyond the kinds that are kept."""
        number = code & 0xFFFF
        return self._kinds[number] if number < len(self._kinds) else None

    def codes(self, known: QueueFacts, wanted: LetterFilter) -> list[int]:
        """The codes that a dead letter may have that the filter means."""
        return [code for code in list(known.counts) if self._may_be(code, wanted)]

    def _may_be(self, code: int, wanted: LetterFilter) -> bool:
        kind = self.kind(code)
        if kind is None:
            return code & 0xFFFF == OTHER
        return (
            (wanted.topic is None or kind.topic == wanted.topic[:TEXT_LIMIT])
            and (wanted.retries is None or kind.retries == wanted.retries)
            and (wanted.replayed != "again" or kind.again)
        )

    def fill(self, queue: ConsumeQueue, reader: QueueReader, budget: Budget) -> bool:
        """Get to know the rest of a queue; False when time or room ends before."""
        known = self.of(queue)
        while known.end < queue.max_offset:
            if budget.spent or not self._has_room(queue):
                return False
            entries = reader.entries(queue, known.end, SLICE)
            if not entries:
                return False
            known.add(*self._read(queue, known, entries))
        return True

    def _has_room(self, queue: ConsumeQueue) -> bool:
        while sum(len(one.codes) for one in self._queues.values()) + SLICE > MOST_KEPT:
            oldest = next(iter(self._queues))
            if oldest is queue:
                return False
            del self._queues[oldest]
        return True

    def _read(self, queue: ConsumeQueue, known: QueueFacts, entries: list[Entry]) -> tuple[array[int], array[int]]:
        begin = known.end
        codes, origins = array("Q"), array("Q")
        start, data = 0, b""
        for number, (physical, size, _) in enumerate(entries):
            record = None
            if 0 < size < HOLE_SIZE:
                if not start <= physical or physical + size > start + len(data):
                    start, data = physical, self._log(entries, number)
                record = _record(data, physical - start, queue, begin + number)
            if record is None:
                codes.append(GONE)
                origins.append(0)
                continue
            kind = kind_of(record)
            if kind.again:
                _keep_again(known, record)
            codes.append(record.store_time_ms // HOUR_MS << 16 | self._number_of(kind))
            origins.append(digest_of(find_property(record.properties, ORIGIN_MESSAGE_ID)))
        return codes, origins

    def _log(self, entries: list[Entry], first: int) -> bytes:
        """The log from an entry's record on, with those behind it that lie close by."""
        start, size, _ = entries[first]
        end = start + size
        for physical, size, _ in entries[first + 1 :]:
            if not 0 < size < HOLE_SIZE or not end <= physical <= end + _GAP_BYTES:
                break
            if physical + size - start > _READ_BYTES:
                break
            end = physical + size
        try:
            return self._store.log.read(start, end - start) if end <= self._store.published else b""
        except OSError:
            return b""

    def _number_of(self, kind: LetterKind) -> int:
        number = self._numbers.get(kind)
        if number is None:
            if len(self._kinds) >= MOST_KINDS:
                return OTHER
            number = self._numbers[kind] = len(self._kinds)
            self._kinds.append(kind)
        return number


def _record(data: bytes, at: int, queue: ConsumeQueue, offset: int) -> Record | None:
    try:
        record = decode_record(data, at, check_crc=False)
    except CorruptFile:
        return None
    return record if QueueReader.belongs(record, queue, offset) else None


def _keep_again(known: QueueFacts, record: Record) -> None:
    job, sequence, _ = provenance_of(decode_properties(record.properties))
    if job is not None and sequence is not None and sequence < 1 << 32 and len(job) <= 64:
        found = known.again.get(job)
        if found is None:
            if len(known.again) >= MOST_JOBS:
                del known.again[next(iter(known.again))]
            found = known.again[job] = array("I")
        found.append(sequence)


def kind_of(record: Record) -> LetterKind:
    """What its grouping goes by."""
    topic = find_property(record.properties, RETRY_TOPIC) or ""
    again = find_property(record.properties, REPLAY_JOB) is not None
    return LetterKind(topic[:TEXT_LIMIT], record.reconsume_times, again)


def digest_of(origin_id: str | None) -> int:
    """What stands for the id of the message that a dead letter once was; 0 when it does not say."""
    return 0 if not origin_id else (hash(origin_id) & 0xFFFF_FFFF_FFFF_FFFF) or 1


def copies_of(known: Collection[QueueFacts], digests: Collection[int]) -> Counter[int]:
    """How many dead letters have each of these digests."""
    wanted = frozenset(digests) - {0}
    found: Counter[int] = Counter()
    for one in known:
        for begin in range(0, len(one.origins), _COUNTED):
            part = one.origins[begin : begin + _COUNTED]
            if not wanted.isdisjoint(part):
                found.update(digest for digest in part if digest in wanted)
    return found


def distinct(known: Collection[QueueFacts]) -> int | None:
    """How many messages they once were; None for too many. One without an id counts for itself."""
    if sum(len(one.origins) for one in known) > MOST_DISTINCT:
        return None
    seen: set[int] = set()
    nameless = 0
    for one in known:
        for begin in range(0, len(one.origins), _COUNTED):
            part = one.origins[begin : begin + _COUNTED]
            seen.update(part)
            nameless += part.count(0)
    return len(seen - {0}) + nameless
