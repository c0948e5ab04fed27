"""Counts of messages that moved in each of the last 600 seconds: per broker, topic, and (topic, group).

Once a second all totals are copied by a few C calls and compared with those of the second before; Python steps are
spent only on those that changed. Numbers are kept only of things that moved in the last ten minutes (recent_moves.py).
Measured at 2,000 topics of 8 queues and 500 groups: see tests/engine/broker/test_sampler.py.
"""

from __future__ import annotations

import itertools
import logging
import operator
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from ..service_thread import ServiceThread
from ..store.message_store import MessageStore
from ..store.queues.consume_queue import ConsumeQueue
from .day_moves import DayMoves, Moved
from .offsets import ConsumerOffsetManager, QueueOffsets
from .queue_index import QueueIndex
from .recent_moves import SLOTS, RecentMoves
from .sending.send_back_counts import SendBackCounts

logger = logging.getLogger(__name__)

PERIOD_S = 1.0
#: Samples over which a present rate is taken.
RATE_SAMPLES = 10
T = TypeVar("T")

#: Objects that one C call looks at, so that it holds the interpreter for less than half a millisecond (D10).
SLICE = 8192

_max_offset = operator.attrgetter("max_offset")
_changes = operator.attrgetter("changes")


def _moved_since(items: Sequence[T], figure: Callable[[T], int], known: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (place, known figure, present one) of each item that moved. `known` is updated slice by slice."""
    for begin in range(0, len(items), SLICE):
        part = list(map(figure, items[begin : begin + SLICE]))
        old = known[begin : begin + SLICE]
        if part == old:
            continue
        for i in itertools.compress(itertools.count(), map(operator.ne, part, old)):
            yield begin + i, old[i], part[i]
        known[begin : begin + SLICE] = part


class Deliveries(Protocol):
    """Counts of the messages that pulls have carried since the start."""

    @property
    def message_count(self) -> int: ...

    @property
    def message_bytes(self) -> int: ...


class Sampler(ServiceThread):
    """The thread `admin-sampler`. Owns: the rings, which any thread may read. Woken by: its clock."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsetManager, deliveries: Deliveries) -> None:
        super().__init__("admin-sampler")
        # Constant after construction.
        self._store = store
        self._offsets = offsets
        self._deliveries = deliveries
        self.index = QueueIndex(store.queues)
        #: Called on the thread after each sample.
        self.after_sample: list[Callable[[], None]] = []
        self.started_at = time.monotonic()
        self._sampling = threading.Lock()
        # Written by one sample at a time, read by anyone.
        self.count = 0  # samples taken; the last one is in slot (count - 1) % SLOTS
        self.sampled_at_ms = 0
        self._times = array("d", bytes(8 * SLOTS))  # monotonic
        self._walls = array("q", bytes(8 * SLOTS))
        self.totals = {name: array("q", bytes(8 * SLOTS)) for name in ("in", "out", "in_bytes", "out_bytes", "log")}
        self.topics: dict[str, RecentMoves] = {}
        self.pairs: dict[tuple[str, str], RecentMoves] = {}  # (topic, group)
        self._moving: dict[RecentMoves, None] = {}  # in the sample being taken
        self._ringed: dict[RecentMoves, None] = {}
        self._few: dict[RecentMoves, None] = {}  # by their last move, oldest first
        self._queues: list[ConsumeQueue] = []
        self._topic_moves: list[RecentMoves] = []
        self._ends: list[int] = []
        self._entries: list[QueueOffsets] = []
        self._entry_changes: list[int] = []
        self._committed: dict[QueueOffsets, dict[int, int]] = {}
        self._queue_moved_at: dict[QueueOffsets, dict[int, float]] = {}
        # When a queue's first offset was seen, or one that went back or was moved by hand: it stands from then on.
        self._queue_begun_at: dict[QueueOffsets, dict[int, float]] = {}
        # (topic, group) -> queue id -> (offset, since when an earlier process saw it there); until the first sample.
        self._earlier: dict[tuple[str, str], dict[int, tuple[int, float]]] = {}
        self.slowest_ms = 0.0

    def run(self) -> None:
        due = time.monotonic()
        while not self.stopped:
            try:
                begin = time.thread_time()
                self.sample()
                for listener in self.after_sample:
                    listener()
                self.slowest_ms = max(self.slowest_ms, (time.thread_time() - begin) * 1000)
            except Exception:
                logger.exception("admin: sampling failed")
            due = max(due + PERIOD_S, time.monotonic())
            while not self.stopped and (left := due - time.monotonic()) > 0:
                self.wait(left)

    def sample(self) -> None:
        """Take one sample. A test may call it beside the thread."""
        with self._sampling:
            self._sample(time.monotonic())

    def _sample(self, now: float) -> None:
        slot = self.count % SLOTS
        self._sample_queues(now)
        self._sample_offsets(now)
        self._write_moves(self.count, int(now))
        store, pull = self._store, self._deliveries
        figures = {
            "in": store.put_count,
            "out": pull.message_count,
            "in_bytes": store.put_bytes,
            "out_bytes": pull.message_bytes,
            "log": store.published,
        }
        for name, value in figures.items():
            self.totals[name][slot] = value
        self._times[slot] = now
        self.sampled_at_ms = self._walls[slot] = int(time.time() * 1000)
        self.count += 1

    def _sample_queues(self, now: float) -> None:
        queues, _ = self.index.look()
        if queues is not self._queues:
            self._take_queues(queues)
        all_moves = self._topic_moves
        for place, before, end in _moved_since(queues, _max_offset, self._ends):
            self._moved(all_moves[place], end - before, now)

    def _take_queues(self, queues: list[ConsumeQueue]) -> None:
        """Take over a changed table of queues. Known queues keep their last offset; the messages of new ones have just
        come.

        At the first look all queues are new, and no message counts as just come.
        """
        first = self.count == 0
        topics = self.topics
        before = len(self._queues)
        if queues[:before] == self._queues:  # nearly always: some more behind the known ones
            known: dict[ConsumeQueue, int] = {}
            all_moves, ends, others = self._topic_moves, self._ends, queues[before:]
        else:
            known = dict(zip(self._queues, self._ends, strict=True))
            all_moves, ends, others = [], [], queues
        for queue in others:
            moves = topics.get(queue.topic)
            if moves is None:
                moves = topics[queue.topic] = RecentMoves()
            all_moves.append(moves)
            ends.append(known.get(queue, queue.max_offset if first else queue.min_offset))
        if others is queues:
            alive = {queue.topic for queue in queues}
            for topic in [topic for topic in topics if topic not in alive]:
                self._forget(topics.pop(topic))
        self._queues, self._topic_moves, self._ends = queues, all_moves, ends

    def _sample_offsets(self, now: float) -> None:
        entries = self._offsets.all()
        if entries != self._entries:
            known = dict(zip(self._entries, self._entry_changes, strict=True))
            alive = set(entries)
            for entry in [entry for entry in self._committed if entry not in alive]:
                del self._committed[entry]
                self._queue_moved_at.pop(entry, None)
                self._queue_begun_at.pop(entry, None)
                moves = self.pairs.pop((entry.topic, entry.group), None)
                if moves is not None:
                    self._forget(moves)
            self._entry_changes = [known.get(entry, -1) for entry in entries]
            self._entries = entries
        places = _moved_since(entries, _changes, self._entry_changes)
        found = [(entries[place], entries[place].queues.copy()) for place, _, _ in places]
        by_hand: dict[QueueOffsets, set[int]] = {}
        moved = self._offsets.moved_by_hand
        while moved:
            entry, queue_ids = moved.popleft()
            by_hand.setdefault(entry, set()).update(queue_ids)
        for entry, queues in found:
            self._committed_moved(entry, queues, by_hand.get(entry, set()), now)
        self._earlier.clear()

    def _committed_moved(self, entry: QueueOffsets, queues: dict[int, int], by_hand: set[int], now: float) -> None:
        """Count by how much an entry's offsets advanced; a first commit of a queue or a reset is no consumption.

        by_hand: queues whose offsets an administrator moved.
        """
        before = self._committed.get(entry)
        self._committed[entry] = queues
        key = (entry.topic, entry.group)
        moves = self.pairs.get(key)
        if moves is None:
            moves = self.pairs[key] = RecentMoves()
        if before is None:
            if self.count:
                self._queue_begun_at[entry] = dict.fromkeys(queues, now)
            elif known := self._earlier.pop(key, None):
                self._queue_moved_at[entry] = {
                    queue_id: since for queue_id, (offset, since) in known.items() if queues.get(queue_id) == offset
                }
            return
        moved = 0
        moved_at: dict[int, float] = {}
        for queue_id, offset in queues.items():
            last = before.get(queue_id)
            if last is not None and offset > last and queue_id not in by_hand:
                moved += offset - last
                moved_at[queue_id] = now
            elif offset != last:
                self._queue_begun_at.setdefault(entry, {})[queue_id] = now
        if moved_at:
            self._queue_moved_at.setdefault(entry, {}).update(moved_at)
        self._moved(moves, moved, now)

    def _moved(self, moves: RecentMoves, by: int, now: float) -> None:
        if by > 0:
            moves.pending += by
            moves.moved_at = now
            self._moving[moves] = None

    def _forget(self, moves: RecentMoves) -> None:
        for all_moves in (self._moving, self._ringed, self._few):
            all_moves.pop(moves, None)

    def _write_moves(self, sample: int, now_s: int) -> None:
        slot = sample % SLOTS
        ringed, few = self._ringed, self._few
        for moves in list(ringed):
            moves.ring[slot] = 0  # type: ignore[index]
            if moves.last <= sample - SLOTS and not moves.pending:
                del ringed[moves]
                moves.rest()
        for moves in self._moving:
            moves.take(sample, now_s)
            few.pop(moves, None)
            (ringed if moves.few is None else few)[moves] = None
        self._moving.clear()
        while few and (moves := next(iter(few))).last <= sample - SLOTS:
            del few[moves]
            moves.rest()

    # --- any thread

    def take_earlier(self, group: str, topic: str, queue_id: int, offset: int, since: float) -> None:
        """Note that an earlier process saw this offset since then (monotonic). It counts if the offset is still the
        same. Before the start."""
        self._earlier.setdefault((topic, group), {})[queue_id] = offset, since

    def queue_moved_at(self, entry: QueueOffsets, queue_id: int) -> float | None:
        """Return when a committed offset last advanced, in monotonic seconds, maybe before the start; None if that was
        not seen."""
        return self._queue_moved_at.get(entry, {}).get(queue_id)

    def queue_since(self, entry: QueueOffsets, queue_id: int) -> float:
        """Return since when a committed offset is unchanged: it advanced, was set for the first time, went back, or was
        moved by hand. The sampler's start if that is not known."""
        moved_at = self.queue_moved_at(entry, queue_id)
        begun = self._queue_begun_at.get(entry, {}).get(queue_id)
        if begun is None:
            return self.started_at if moved_at is None else moved_at
        return begun if moved_at is None else max(begun, moved_at)

    def standing_at(self, entry: QueueOffsets, queue_id: int) -> int | None:
        """Return the offset that `queue_since` is about, which may have advanced within this second."""
        return self._committed.get(entry, {}).get(queue_id)

    def span(self, samples: int = RATE_SAMPLES) -> tuple[int, float]:
        """Return (steps, seconds) from the sample `samples` before the last one to that; (0, 0.0) before there are
        two."""
        count = self.count
        steps = min(samples, count - 1, SLOTS - 1)
        if steps <= 0:
            return 0, 0.0
        return steps, self._times[(count - 1) % SLOTS] - self._times[(count - 1 - steps) % SLOTS]

    def span_within(self, samples: int, within_s: float) -> tuple[int, float]:
        """Return the same of at most so many samples, from the first one that is not older than `within_s` seconds."""
        steps, _ = self.span(samples)
        if not steps:
            return 0, 0.0
        last, begin = self._times[(self.count - 1) % SLOTS], time.monotonic() - within_s
        while steps and self._times[(self.count - 1 - steps) % SLOTS] < begin:
            steps -= 1
        return (steps, last - self._times[(self.count - 1 - steps) % SLOTS]) if steps else (0, 0.0)

    def rate(self, moves: RecentMoves | None, span: tuple[int, float] | None = None) -> float | None:
        """Return the moves a second; None before there are two samples. span: of `span()`, for many calls in a row."""
        steps, seconds = span or self.span()
        if not steps or seconds <= 0:
            return None
        return 0.0 if moves is None else moves.moved(self.count, steps) / seconds

    def rates(self, group: str, topics: Iterable[str], span: tuple[int, float]) -> tuple[float, float]:
        """Return (messages that came to the topics, messages that the group committed) a second; 0 before there are two
        samples."""
        came = went = 0.0
        for topic in topics:
            came += self.rate(self.topics.get(topic), span) or 0.0
            went += self.rate(self.pairs.get((topic, group)), span) or 0.0
        return came, went

    def total_rate(self, name: str, samples: int = RATE_SAMPLES) -> float | None:
        """Return the same for one of the broker's totals."""
        steps, seconds = self.span(samples)
        if not steps or seconds <= 0:
            return None
        totals, last = self.totals[name], self.count - 1
        return max(0, totals[last % SLOTS] - totals[(last - steps) % SLOTS]) / seconds

    def topic_out_rates(self) -> dict[str, float]:
        """Return topic -> offsets committed a second, by all its groups."""
        return self._sum_rates(0)

    def group_out_rates(self) -> dict[str, float]:
        """Return group -> offsets committed a second, in all its topics."""
        return self._sum_rates(1)

    def _sum_rates(self, which: int) -> dict[str, float]:
        span = self.span()
        found: dict[str, float] = {}
        if not span[0]:
            return found
        for key, moves in list(self.pairs.items()):
            if not moves.resting:
                found[key[which]] = found.get(key[which], 0.0) + (self.rate(moves, span) or 0.0)
        return found

    def times(self, seconds: int) -> list[tuple[int, int, float]]:
        """Return (slot, wall ms, seconds since the sample before) of the last samples, oldest first."""
        count = self.count
        steps = min(seconds, count - 1, SLOTS - 2)
        found = []
        for n in range(count - steps, count):
            slot, before = n % SLOTS, (n - 1) % SLOTS
            found.append((slot, self._walls[slot], self._times[slot] - self._times[before]))
        return found

    def history(self, name: str, seconds: int) -> list[tuple[int, float]]:
        """Return (wall ms, rate) of one of the broker's totals, one point for each sample."""
        totals = self.totals[name]
        return [
            (
                wall,
                max(0, totals[slot] - totals[slot - 1 if slot else SLOTS - 1]) / elapsed if elapsed > 0 else 0.0,
            )
            for slot, wall, elapsed in self.times(seconds)
        ]

    def moves_history(self, all_moves: list[RecentMoves], seconds: int) -> list[tuple[int, float]]:
        """Return (wall ms, moves a second) of several things together."""
        sums = [0] * SLOTS
        for moves in all_moves:
            moves.add_to(sums, self.count)
        return [(wall, sums[slot] / elapsed if elapsed > 0 else 0.0) for slot, wall, elapsed in self.times(seconds)]


class SampledMovements:
    """The sampled counts, in the form of request 315 and `consumeTps`. Any thread. Sums are of whole seconds; the
    counts of hours and days begin with the start."""

    def __init__(self, sampler: Sampler, send_backs: SendBackCounts) -> None:
        self._sampler = sampler
        self._send_backs = send_backs

    def put_into(self, topic: str, seconds: int) -> int | None:
        """Return the number of messages stored in a topic; None if it has no queue yet."""
        return self._sum(self._sampler.topics.get(topic), seconds)

    def consumed_from(self, topic: str, group: str, seconds: int) -> int | None:
        """Return by how many offsets a group advanced in a topic; None if it never committed one."""
        return self._sum(self._sampler.pairs.get((topic, group)), seconds)

    def sent_back(self, topic: str, group: str) -> int | None:
        """Return the number of messages of a topic that a group sent back in the last minute; None if none is known."""
        return self._send_backs.of_last_minute(topic, group)

    def longer(self, topic: str, group: str = "", sent_back: bool = False) -> tuple[Moved, Moved]:
        """Return the same for the last hour and the last day: put into a topic or, with a group, consumed or sent
        back."""
        sampler, key = self._sampler, (topic, group)
        day: DayMoves | None
        if sent_back:
            day, now_s = self._send_backs.day_of(topic, group)
        else:
            moves = sampler.pairs.get(key) if group else sampler.topics.get(topic)
            day, now_s = None if moves is None else moves.day, int(time.monotonic())
        day = day or DayMoves()
        up_s = max(1, int(time.monotonic() - sampler.started_at))
        hour, whole = day.last_hour(now_s), day.last_day(now_s)
        return hour._replace(seconds=min(hour.seconds, up_s)), whole._replace(seconds=min(whole.seconds, up_s))

    def _sum(self, moves: RecentMoves | None, seconds: int) -> int | None:
        if moves is None:
            return None
        span = self._sampler.span(seconds)
        return round((self._sampler.rate(moves, span) or 0.0) * span[1])
