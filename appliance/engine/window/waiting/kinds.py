"""Targets of the messages that wait at a delay level: two bytes for each message looked at, freed when it leaves.

An entry of the schedule topic has the time when a message is due, and only its record has the target. To count a
million of them for a group every few seconds, each record is read once: its topic and its origin topic become a number,
and the numbers of a level lie in one array from the first waiting message on. Only levels that are looked at are kept.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from ...broker.delays.settled import SettledDelays
from ...errors import CorruptFile
from ...protocol.names import RETRY_PREFIX
from ...protocol.properties import REAL_TOPIC, RETRY_TOPIC, find_property
from ...protocol.record import decode_record
from ...store.dispatch import SCHEDULE_TOPIC
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import HOLE_SIZE, ConsumeQueue
from ..figures.measures import Budget
from ..messages.queue_reader import Entry, QueueReader, read_run

#: Entries that are read in one step.
SLICE = 256
#: Numbers kept for all levels together (2 bytes each); records behind these are read again each time.
MOST_KEPT = 4_000_000
#: Different kinds that are kept; all further ones become OTHER.
MOST_KINDS = 20_000
TEXT_LIMIT = 255
#: Numbers of a message that was handled early, of one whose record is gone, and of one beyond MOST_KINDS.
SETTLED, GONE, OTHER = 65_535, 65_534, 65_533
#: Values that one C call works on, because it holds the GIL (D10).
_COUNTED = 16_384


class Kind(NamedTuple):
    """topic: that the message waits for; origin: the topic that it was first consumed from, "" without one."""

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
        self.counts += Counter()  # removes counts of zero
        del self.ids[:count]
        self.base += count
        if not self.ids:
            self.base = max(self.base, below)

    def first_of(self, numbers: Collection[int], offset: int) -> int:
        """Return the first offset from `offset` on that has one of the numbers, `end` if none has. Searches in pieces
        (D10)."""
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
    """The kinds of all levels. Used under the lock of `WaitingViews`."""

    def __init__(self, store: MessageStore, settled: SettledDelays) -> None:
        # Constant after construction.
        self._store = store
        self._settled = settled
        self._levels: dict[int, LevelKinds] = {}
        self._kinds: list[Kind] = []
        self._numbers: dict[Kind, int] = {}
        self._of_topic: dict[str, list[int]] = {}
        # True for retries, False for others -> numbers.
        self._of_retries: dict[bool, list[int]] = {False: [], True: []}

    def kind(self, number: int) -> Kind | None:
        """Return the kind of a number; None for SETTLED, GONE and OTHER."""
        return self._kinds[number] if number < len(self._kinds) else None

    def of(self, level: int, begin: int) -> LevelKinds:
        """Return the numbers of a level whose first waiting message is at `begin`."""
        found = self._levels.get(level)
        if found is None or found.base > begin:
            found = self._levels[level] = LevelKinds(begin)
        found.trim(begin)
        return found

    def make_room(self) -> None:
        """Drop all kinds if most of MOST_KINDS are no longer used. Called before each request."""
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
        """Note that a message was handled early."""
        found = self._levels.get(level)
        if found is not None and found.base <= offset < found.end:
            at = offset - found.base
            found.counts[found.ids[at]] -= 1
            found.ids[at] = SETTLED
            found.counts[SETTLED] += 1

    def fill(self, known: LevelKinds, queue: ConsumeQueue, reader: QueueReader, budget: Budget) -> bool:
        """Read the rest of a level. Return False if time or room ends before that."""
        while known.end < queue.max_offset:
            if budget.spent or sum(len(one.ids) for one in self._levels.values()) + SLICE > MOST_KEPT:
                return False
            entries = reader.entries(queue, known.end, SLICE)
            if not entries:
                return False
            known.add(self.read(queue, known.end, entries))
        return True

    def ids(self, known: LevelKinds, queue: ConsumeQueue, begin: int, entries: list[Entry]) -> array[int]:
        """Return the numbers of these entries, from memory if they are known."""
        end = begin + len(entries)
        if known.base <= begin and end <= known.end:
            return known.ids[begin - known.base : end - known.base]
        found = self.read(queue, begin, entries)
        if begin == known.end and sum(len(one.ids) for one in self._levels.values()) + len(found) <= MOST_KEPT:
            known.add(found)
        return found

    def read(self, queue: ConsumeQueue, begin: int, entries: list[Entry]) -> array[int]:
        """Read the records of entries and return their numbers."""
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
                start, data = physical, read_run(self._store, entries, number)
            found.append(self._number(queue, begin + number, data, physical - start))
        return found

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
        """Return the numbers that a message for a topic may have."""
        return [*self._of_topic.get(topic, ()), OTHER]

    def of_retries(self, retries: bool) -> list[int]:
        """Return the numbers that a retry may have, or with False a message that is not one."""
        return [*self._of_retries[retries], OTHER]


def kind_of(properties: str) -> Kind:
    """Return the kind by a record's properties."""
    topic = find_property(properties, REAL_TOPIC) or ""
    return Kind(topic[:TEXT_LIMIT], (find_property(properties, RETRY_TOPIC) or "")[:TEXT_LIMIT])
