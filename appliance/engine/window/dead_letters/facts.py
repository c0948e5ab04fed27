"""Facts about dead letters, kept so that they are read only once: topic, retries, hour, and id of the origin.

An entry of a dead letter queue holds only the place of its record. To group a hundred thousand of them on each look,
each record is read once and becomes 16 bytes: a code for (kind, hour), and a digest of the id of the message it once
was. Only queues that a page has asked for are kept.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from ...broker.replay.letter_filter import LetterFilter
from ...broker.replay.provenance import REPLAY_JOB, provenance_of
from ...errors import CorruptFile
from ...protocol.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC, decode_properties, find_property
from ...protocol.record import Record, decode_record
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import HOLE_SIZE, ConsumeQueue
from ..figures.measures import Budget
from ..messages.queue_reader import Entry, QueueReader, read_run

#: Entries that are read in one step.
SLICE = 128
#: Dead letters of all groups together whose facts are kept.
MOST_KEPT = 1_000_000
#: Different kinds that are kept; all further ones become OTHER.
MOST_KINDS = 20_000
TEXT_LIMIT = 255
#: Codes of a dead letter whose record is gone, and of one beyond MOST_KINDS.
GONE, OTHER = 65_535, 65_534
#: Values that one C call works on, because it holds the GIL (D10).
_COUNTED = 16_384
_NEAR = 64
HOUR_MS = 3_600_000
#: Dead letters up to which different messages are counted: the count builds a set of them.
MOST_DISTINCT = 200_000
#: Replay jobs of one queue for which the messages that became dead letters again are kept.
MOST_JOBS = 1000


class LetterKind(NamedTuple):
    """topic: the topic that it was first sent to, "" if its properties lack that. again: True for the copy of a replay
    that became a dead letter again."""

    topic: str
    retries: int
    again: bool


class QueueFacts:
    """Facts of one queue's dead letters from offset `base` on. codes: hour << 16 | number of the kind. again: replay
    job -> the numbers of its messages that became dead letters again, kept after those dead letters have expired."""

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
            self.counts += Counter()  # removes counts of zero
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
        """Return 1 + the last known offset in [low, end) that has one of these codes; `low` if none has."""
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
    """The facts of all queues. Used under the lock of `DeadLetterViews`."""

    def __init__(self, store: MessageStore) -> None:
        # Constant after construction.
        self._store = store
        # Least recently used first.
        self._queues: dict[ConsumeQueue, QueueFacts] = {}
        self._kinds: list[LetterKind] = []
        self._numbers: dict[LetterKind, int] = {}
        # The last result of `distinct`: (identity, base and end of each queue; number of messages).
        self._distinct: tuple[tuple[tuple[int, int, int], ...], int | None] = ((), 0)

    def distinct(self, known: Collection[QueueFacts]) -> int | None:
        """As the function `distinct`; counted again only if the queues have changed since the last call."""
        key = tuple((id(one), one.base, one.end) for one in known)
        if self._distinct[0] != key:
            self._distinct = (key, distinct(known))
        return self._distinct[1]

    def of(self, queue: ConsumeQueue) -> QueueFacts:
        """Return the facts of a queue, without those of entries that it has lost."""
        low = queue.min_offset
        found = self._queues.pop(queue, None)
        if found is None or found.base > low or found.end > queue.max_offset:
            found = QueueFacts(low)
        self._queues[queue] = found
        found.trim(low)
        return found

    def kind(self, code: int) -> LetterKind | None:
        """Return the kind of a code; None for GONE and OTHER."""
        number = code & 0xFFFF
        return self._kinds[number] if number < len(self._kinds) else None

    def codes(self, known: QueueFacts, wanted: LetterFilter) -> list[int]:
        """Return the codes of dead letters that the filter may match."""
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
        """Read the rest of a queue. Return False if time or room ends before that."""
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
                    start, data = physical, read_run(self._store, entries, number)
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
    """Return the kind by which a dead letter is grouped."""
    topic = find_property(record.properties, RETRY_TOPIC) or ""
    again = find_property(record.properties, REPLAY_JOB) is not None
    return LetterKind(topic[:TEXT_LIMIT], record.reconsume_times, again)


def digest_of(origin_id: str | None) -> int:
    """Return a digest of the id of the message that a dead letter once was; 0 if the id is missing."""
    return 0 if not origin_id else (hash(origin_id) & 0xFFFF_FFFF_FFFF_FFFF) or 1


def copies_of(known: Collection[QueueFacts], digests: Collection[int]) -> Counter[int]:
    """Count the dead letters that have each of these digests."""
    wanted = frozenset(digests) - {0}
    found: Counter[int] = Counter()
    for one in known:
        for begin in range(0, len(one.origins), _COUNTED):
            part = one.origins[begin : begin + _COUNTED]
            if not wanted.isdisjoint(part):
                found.update(digest for digest in part if digest in wanted)
    return found


def distinct(known: Collection[QueueFacts]) -> int | None:
    """Return how many different messages the dead letters once were; None for more than MOST_DISTINCT dead letters. A
    dead letter without an id counts as one message."""
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
