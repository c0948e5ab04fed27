"""For whom the messages of a delay level wait: two bytes for each that somebody looked at, given back when it leaves.

An entry of the schedule topic says when a message is due, and only its record for whom it is. To count a million of
them for a group every few seconds, each record is read once: its topic and where it was first consumed become a number,
and the numbers of a level lie in one array from the first message that waits. Nobody looks: nothing is kept.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from ..broker.delays.settled import SettledDelays
from ..errors import CorruptFile
from ..protocol.names import RETRY_PREFIX
from ..protocol.properties import REAL_TOPIC, RETRY_TOPIC, find_property
from ..protocol.record import decode_record
from ..store.dispatch import SCHEDULE_TOPIC
from ..store.message_store import MessageStore
from ..store.queues.consume_queue import HOLE_SIZE, ConsumeQueue
from .measures import Budget
from .queue_reader import Entry, QueueReader

#: Entries whose records are read in one go, and bytes of the log at once.
SLICE = 256
_READ_BYTES = 256 * 1024
#: So many bytes between two records are read along.
_GAP_BYTES = 8 * 1024
#: Numbers kept of all levels together (2 bytes each); what lies behind is read again each time.
MOST_KEPT = 4_000_000
#: Different kinds; all others are OTHER.
MOST_KINDS = 20_000
TEXT_LIMIT = 255
#: A message that was handled early; one without a record; one of too many kinds.
SETTLED, GONE, OTHER = 65_535, 65_534, 65_533
#: Counted in one call of C, which holds the GIL (D10).
_COUNTED = 16_384


class Kind(NamedTuple):
    """topic: where the message goes; origin: the topic that it was first consumed from, "" without one."""

    topic: str
    origin: str


class LevelKinds:
    """One level's numbers, from `base` on."""

    __slots__ = ("base", "counts", "ids")

    def __init__(self, base: int) -> None:
        self.base = base
        self.ids = array("H")
        self.counts: Counter[int] = Counter()

    @property
    def end(self) -> int:
        return self.base + len(self.ids)

    def trim(self, below: int) -> None:
        count = max(0, min(below - self.base, len(self.ids)))
        for begin in range(0, count, _COUNTED):
            self.counts.subtract(Counter(self.ids[begin : min(count, begin + _COUNTED)]))
        self.counts += Counter()  # what counts nothing goes
        del self.ids[:count]
        self.base += count
        if not self.ids:
            self.base = max(self.base, below)

    def first_of(self, numbers: Collection[int], offset: int) -> int:
        """The first offset from `offset` on with one of them, `end` without one; looked for in pieces (D10)."""
        wanted = frozenset(numbers)
        for begin in range(max(0, offset - self.base), len(self.ids), _COUNTED):
            part = self.ids[begin : begin + _COUNTED]
            if not wanted.isdisjoint(part):
                return self.base + begin + next(at for at, number in enumerate(part) if number in wanted)
        return max(offset, self.end)

    def add(self, ids: array[int]) -> None:
        self.ids += ids
        self.counts.update(ids)


class WaitingKinds:
    """Belongs to whoever holds the lock of `WaitingViews`."""

    def __init__(self, store: MessageStore, settled: SettledDelays) -> None:
        # Constant after construction.
        self._store = store
        self._settled = settled
        self._levels: dict[int, LevelKinds] = {}
        self._kinds: list[Kind] = []
        self._numbers: dict[Kind, int] = {}
        self._of_topic: dict[str, list[int]] = {}
        # Whether they are retries -> numbers.
        self._of_retries: dict[bool, list[int]] = {False: [], True: []}

    def kind(self, number: int) -> Kind | None:
        """None for the three special numbers."""
        return self._kinds[number] if number < len(self._kinds) else None

    def of(self, level: int, begin: int) -> LevelKinds:
        """What is known of a level whose first waiting message is at `begin`."""
        found = self._levels.get(level)
        if found is None or found.base > begin:
            found = self._levels[level] = LevelKinds(begin)
        found.trim(begin)
        return found

    def make_room(self) -> None:
        """Before a question: names of messages that left are not needed any more."""
        if len(self._kinds) < MOST_KINDS:
            return
        used = {number for one in self._levels.values() for number, count in one.counts.items() if count > 0}
        if len(used) < MOST_KINDS // 2:
            self._levels.clear()
            self._kinds.clear()
            self._numbers.clear()
            self._of_topic.clear()
            self._of_retries = {False: [], True: []}

    def settled(self, level: int, offset: int) -> None:
        """A message was handled early."""
        found = self._levels.get(level)
        if found is not None and found.base <= offset < found.end:
            at = offset - found.base
            found.counts[found.ids[at]] -= 1
            found.ids[at] = SETTLED
            found.counts[SETTLED] += 1

    def fill(self, known: LevelKinds, queue: ConsumeQueue, reader: QueueReader, budget: Budget) -> bool:
        """Get to know the rest of a level; False when time or room ends before."""
        while known.end < queue.max_offset:
            if budget.spent or sum(len(one.ids) for one in self._levels.values()) + SLICE > MOST_KEPT:
                return False
            entries = reader.entries(queue, known.end, SLICE)
            if not entries:
                return False
            known.add(self.read(queue, known.end, entries))
        return True

    def ids(self, known: LevelKinds, queue: ConsumeQueue, begin: int, entries: list[Entry]) -> array[int]:
        """The numbers of these entries, from memory where they are known."""
        end = begin + len(entries)
        if known.base <= begin and end <= known.end:
            return known.ids[begin - known.base : end - known.base]
        found = self.read(queue, begin, entries)
        if begin == known.end and sum(len(one.ids) for one in self._levels.values()) + len(found) <= MOST_KEPT:
            known.add(found)
        return found

    def read(self, queue: ConsumeQueue, begin: int, entries: list[Entry]) -> array[int]:
        """The numbers of entries by their records."""
        found = array("H")
        start, data = 0, b""
        level = queue.queue_id + 1
        settled = self._settled.between(level, begin, begin + len(entries)) > 0
        for number, (physical, size, _) in enumerate(entries):
            if settled and self._settled.holds(level, begin + number):
                found.append(SETTLED)
                continue
            if not 0 < size < HOLE_SIZE:
                found.append(GONE)
                continue
            if not start <= physical or physical + size > start + len(data):
                start, data = physical, self._read(entries, number)
            found.append(self._number(queue, begin + number, data, physical - start))
        return found

    def _read(self, entries: list[Entry], first: int) -> bytes:
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

    def _number(self, queue: ConsumeQueue, offset: int, data: bytes, at: int) -> int:
        try:
            record = decode_record(data, at, check_crc=False)
        except CorruptFile:
            return GONE
        if (record.topic, record.queue_id, record.queue_offset) != (SCHEDULE_TOPIC, queue.queue_id, offset):
            return GONE
        return self.number_of(kind_of(record.properties))

    def number_of(self, kind: Kind) -> int:
        number = self._numbers.get(kind)
        if number is None:
            if len(self._kinds) >= MOST_KINDS:
                return OTHER
            number = self._numbers[kind] = len(self._kinds)
            self._kinds.append(kind)
            self._of_topic.setdefault(kind.topic, []).append(number)
            self._of_retries[kind.topic.startswith(RETRY_PREFIX)].append(number)
        return number

    def of_topic(self, topic: str) -> list[int]:
        """The numbers that a message for a topic may have."""
        return [*self._of_topic.get(topic, ()), OTHER]

    def of_retries(self, retries: bool) -> list[int]:
        """The numbers that a retry may have, or a message that is none."""
        return [*self._of_retries[retries], OTHER]


def kind_of(properties: str) -> Kind:
    """From a record's properties."""
    topic = find_property(properties, REAL_TOPIC) or ""
    return Kind(topic[:TEXT_LIMIT], (find_property(properties, RETRY_TOPIC) or "")[:TEXT_LIMIT])
