"""Offsets by time: a search in a queue's entries, with store times read from the log.

RocketBox's store times never go back along the log, hence not along a queue either; Apache's do when its clock was set
back. So a search looks at several places of a queue at a time, closer where times go back, and takes the outermost that
fits: the first message not older, or the last one not newer, whatever lies between. It may miss only messages that a
wrong clock stamped between two looks.

An entry without a message (a hole left by damage, or an unreadable record) has the time of the next message behind it:
it shows neither that messages before it are old, nor that messages behind it are young.

While the clock is ahead, messages get times in the future; after it is corrected, so do all that follow, until the
clock gets there. Their true store times are unknown, but lie before now (`as_of`). After a clock was set back, right
times look the same. Hence a time far ahead of the present is taken as it is; otherwise all messages stored since would
be skipped.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from ..clock import SYSTEM
from .queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE, ConsumeQueue
from .queues.consume_queue_table import ConsumeQueueTable
from .record_reader import RecordReader

#: A client that wants messages up to now reads its own clock, a moment before this broker reads its own.
NEAR_MS = 60_000
#: A clock may be ahead by this much without being wrong.
_AHEAD_MS = 1000
#: Entries read at once behind one without a message.
_MORE_ENTRIES = 1000
#: Places looked at before a search continues between two of them.
_PARTS = 16
#: Limit on looks where times go back; behind that, places count as not looked at.
_MOST_LOOKS = 2000


def is_near(asked_ms: int, now_ms: int) -> bool:
    """True if the time asked for means now, or lies in the future."""
    return asked_ms > now_ms - NEAR_MS


def as_of(stored_ms: int, asked_ms: int, now_ms: int) -> int:
    """Return a store time as a search uses it: in a search for now, times in the future count as just before it, so
    behind all past ones."""
    if is_ahead(stored_ms, now_ms) and abs(asked_ms - now_ms) < NEAR_MS:
        return asked_ms - 1
    return stored_ms


def is_ahead(stored_ms: int, now_ms: int) -> bool:
    """True if a store time lies in the future."""
    return stored_ms > now_ms + _AHEAD_MS


class Boundary(enum.Enum):
    """LOWER: the first message not older than the time. UPPER: the last message not newer."""

    LOWER = "LOWER"
    UPPER = "UPPER"


#: Offset -> (offset of the message that counts there, its time); None if no message follows.
Look = Callable[[int], tuple[int, int] | None]


class _Search:
    """Search for one time. looks: the number left for places where times go back."""

    def __init__(self, look: Look, asked_ms: int) -> None:
        self._look = look
        self._asked_ms = asked_ms
        self._looks = _MOST_LOOKS

    def first(self, low: int, high: int, last: tuple[int, int] | None = None) -> int:
        """Return the first place in [low, high) that is not older, or high. last: the one before, with its time."""
        while low < high:
            for place in _places(low, high):
                if place < low:
                    continue
                found = self._look(place)
                if found is None or found[1] >= self._asked_ms:
                    high = place
                    break
                if last is not None and found[1] < last[1] and self._may_look(last[0], place):
                    inner = self.first(last[0] + 1, place, last)
                    if inner < place:
                        return inner
                low, last = found[0] + 1, found
        return low

    def behind_last(self, low: int, high: int, following: tuple[int, int] | None = None) -> int:
        """Return the place behind the last older one in [low, high), or low. following: the next, with its time."""
        while low < high:
            for place in reversed(_places(low, high)):
                found = self._look(place)
                if found is not None and found[1] < self._asked_ms:
                    low = found[0] + 1
                    break
                if found is not None:
                    if following is not None and found[1] > following[1] and self._may_look(found[0], following[0]):
                        inner = self.behind_last(found[0] + 1, following[0], following)
                        if inner > found[0] + 1:
                            return inner
                    following = found
                high = place
        return low

    def _may_look(self, one: int, other: int) -> bool:
        self._looks -= _PARTS
        return self._looks > 0 and other - one > 1


def first_not_before(low: int, high: int, look: Look, asked_ms: int) -> int:
    """Return the first offset in [low, high) whose time is not before `asked_ms`; high if there is none."""
    return _Search(look, asked_ms).first(low, high)


def behind_last_before(low: int, high: int, look: Look, asked_ms: int) -> int:
    """Return the offset behind the last one in [low, high) whose time is before `asked_ms`; low if there is none."""
    return _Search(look, asked_ms).behind_last(low, high)


def seen_as_of(look: Look, asked_ms: int, now_ms: int) -> Look:
    """Return `look` with times as `as_of` gives them."""

    def seen(offset: int) -> tuple[int, int] | None:
        found = look(offset)
        return None if found is None else (found[0], as_of(found[1], asked_ms, now_ms))

    return seen


def first_as_of(low: int, high: int, look: Look, asked_ms: int, now_ms: int) -> int:
    """Like `first_not_before`, with times as `as_of` gives them. Messages stored before those from the future may be
    newer than `asked_ms`, and a search by `as_of` times alone would step over them. So a search by the stored times
    comes first, and the other one begins at its result."""
    place = first_not_before(low, high, look, asked_ms)
    return first_not_before(place, high, seen_as_of(look, asked_ms, now_ms), asked_ms)


def _places(low: int, high: int) -> list[int]:
    return sorted({low + (high - low) * part // _PARTS for part in range(_PARTS)})


class TimeSearch:
    """Belongs to one thread, which may wait for the disk. Raises QueueBroken where entries are missing in a queue's
    files: a guess would make a client skip messages or get them again."""

    def __init__(
        self,
        queues: ConsumeQueueTable,
        records: RecordReader,
        wall_ms: Callable[[], int] = SYSTEM.wall_ms,
        ahead_ms: Callable[[int], int] = lambda physical: 0,
    ) -> None:
        """ahead_ms: returns what to add to store times at a physical offset to convert them to the present clock
        (`ClockSteps`); by default they count as they are, as users see them."""
        self._queues = queues
        self._wall_ms = wall_ms
        self._ahead_ms = ahead_ms
        self._records = records
        self._files = queues.new_files(64)

    def entries(self, queue: ConsumeQueue, offset: int, count: int) -> bytes:
        """Return published entries from `offset` on; fewer than `count` where a file or the queue ends."""
        return self._queues.read_entries(queue, offset, count, self._files)

    def time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store time in ms of a queue's message, -1 if its entry or record is gone."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return -1
        entry = self.entries(queue, offset, 1)
        if len(entry) < ENTRY_BYTES:
            return -1
        physical, size, _ = ENTRY.unpack(entry)
        return self._time_at(physical, size)

    def _time_at(self, physical: int, size: int) -> int:
        """Return the store time of an entry's record, -1 if there is none."""
        stored = self._records.store_time(physical) if 0 < size < HOLE_SIZE else -1
        return stored if stored < 0 else max(0, stored + self._ahead_ms(physical))

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """Return the store time of the queue's first message; -1 if it has none."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return -1
        found = self._first_message(queue, queue.min_offset, queue.max_offset)
        return -1 if found is None else found[1]

    def _first_message(self, queue: ConsumeQueue, offset: int, end: int) -> tuple[int, int] | None:
        """Return (offset, store time) of the first message in [offset, end); None if there is none."""
        count = 1
        while offset < end:
            entries = self.entries(queue, offset, min(count, end - offset))
            entries = entries[: len(entries) - len(entries) % ENTRY_BYTES]
            for physical, size, _ in ENTRY.iter_unpack(entries):
                stored = self._time_at(physical, size)
                if stored >= 0:
                    return offset, stored
                offset += 1
            if not entries:
                if offset >= queue.min_offset:  # the queue was deleted
                    return None
                offset = queue.min_offset
            count = _MORE_ENTRIES
        return None

    def offset_at(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary) -> int:
        """Return the offset for a time, within [min, max]; 0 for an unknown queue.

        LOWER: max if all messages are older. UPPER: the last offset then, and the first if all are newer.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        low, high = queue.min_offset, queue.max_offset
        now_ms = self._wall_ms()

        def look(offset: int) -> tuple[int, int] | None:
            return self._first_message(queue, offset, high)

        if boundary is Boundary.LOWER:
            return first_as_of(low, high, look, time_ms, now_ms)
        seen = seen_as_of(look, time_ms, now_ms)
        return max(low, min(behind_last_before(low, high, seen, time_ms + 1), high) - 1)

    def close(self) -> None:
        self._files.close()
