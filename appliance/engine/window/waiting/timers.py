"""Timed messages, which wait for a delivery time, shown beside those of delay levels as level 0.

Their schedule index has the time when each is due, and yields them in that order; the record has the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ...broker.timers.look import ScheduleLook
from ...broker.timers.records import cancel_key, read_properties, timed_of
from ...broker.timers.runs import TimerEntry, lane_of
from ...errors import CorruptFile
from ...protocol.record import Record
from ...store.message_store import MessageStore
from ..figures.measures import Budget
from .kinds import Kind, kind_of

#: Value of `level` for timed messages.
TIMED = 0
#: Errors of reading the index.
UNREADABLE = (OSError, CorruptFile)


class TimedPlace(NamedTuple):
    """The place where a list continues."""

    due_ms: int = 0
    queue_offset: int = 0


class WaitingTimers:
    """Any thread; reads in the caller's."""

    def __init__(
        self,
        store: MessageStore,
        look: Callable[[], ScheduleLook],
        pending: Callable[[], int],
        precision_ms: Callable[[], int],
        indexed: Callable[[], int],
    ) -> None:
        """indexed: returns the offset in the timer topic below which all messages are in the schedule index."""
        # Constant after construction.
        self._store = store
        self.look = look
        self.pending = pending
        self.indexed = indexed
        self._precision_ms = precision_ms

    def kind(self, entry: TimerEntry) -> Kind:
        """Return the kind of a message; ("", "") if its record is gone."""
        properties = read_properties(self._store.log, entry.physical_offset, entry.size)
        return Kind("", "") if properties is None else kind_of(properties)

    def due_ms(self, properties: str) -> int | None:
        """Return when a record of the timer topic is due; None for a recall mark, and for a record without a time."""
        timed = timed_of(properties, self._precision_ms())
        return None if timed is None or timed.cancels is not None else timed.due_ms

    def waits(self, look: ScheduleLook, record: Record, physical: int, size: int) -> int | None:
        """Return when a record of the timer topic is due; None if it does not wait (or no longer)."""
        timed = timed_of(record.properties, self._precision_ms())
        if timed is None or timed.cancels is not None:
            return None
        key = cancel_key(record.properties)
        if not look.has(TimerEntry(timed.due_ms, False, record.queue_offset, physical, size, lane_of(key))):
            return None
        return None if look.is_marked(timed, key, record.queue_offset) else timed.due_ms


class TimedWalk:
    """A walk over the timed messages that match a filter, in the order in which they are due, within a budget."""

    def __init__(
        self,
        timers: WaitingTimers,
        look: ScheduleLook,
        place: TimedPlace,
        low_ms: int,
        high_ms: int,
        takes: Callable[[Kind], bool] | None,
        budget: Budget,
    ) -> None:
        """takes: returns True if a message of this kind matches; None for all. low_ms, high_ms: due in this span."""
        self._timers = timers
        self._look = look
        self._place = place
        self._high_ms = high_ms
        self._takes = takes
        offset = place.queue_offset if place.due_ms >= low_ms else 0
        self._entries: Iterator[TimerEntry] = look.walk(max(place.due_ms, low_ms), lambda: budget.spent, offset)
        self.truncated = False
        self.ended = False

    @property
    def scanned(self) -> int:
        return self._look.scanned

    @property
    def standing(self) -> TimedPlace:
        """The place before which no matching message lies, except those that `next` returned."""
        return self._place

    def next(self) -> TimerEntry | None:
        """Return the next message; None at the end, or if the time is over."""
        try:
            for entry in self._entries:
                if entry.due_ms > self._high_ms:
                    break
                self._place = TimedPlace(entry.due_ms, entry.queue_offset + 1)
                if self._takes is None or self._takes(self._timers.kind(entry)):
                    return entry
        except TimeoutError:
            self._place = max(self._place, TimedPlace(*self._look.reached))
            self.truncated = True
            return None
        except UNREADABLE:
            self.truncated = True
            return None
        self.ended = True
        return None


def count_by_due(
    timers: WaitingTimers, edges: Sequence[int], takes: Callable[[Kind], bool] | None, budget: Budget
) -> tuple[list[int], int, bool]:
    """Return (numbers of messages due before the first edge, between each two, and behind the last; entries looked at;
    True if these were all)."""
    with timers.look() as look:
        if takes is None:
            counts, whole = look.count(edges, lambda: budget.spent)
            return counts, look.scanned, whole
        walk = TimedWalk(timers, look, TimedPlace(), 0, 1 << 62, takes, budget)
        counts = [0] * (len(edges) + 1)
        bucket = 0
        while (entry := walk.next()) is not None:
            while bucket < len(edges) and entry.due_ms >= edges[bucket]:
                bucket += 1
            counts[bucket] += 1
        return counts, look.scanned, walk.ended
