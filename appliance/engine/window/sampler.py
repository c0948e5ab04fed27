"""What moved in each of the last 600 seconds: per broker, topic, and (topic, group).

Once a second the totals of everything are copied by a few C calls and compared with those of the second before; Python
steps are spent on what moved only. Numbers are kept only of what moved within the last ten minutes (track.py).
Measured at 2,000 topics of 8 queues and 500 groups: see tests/engine/window/test_sampler.py.
"""

from __future__ import annotations

import itertools
import logging
import operator
import threading
import time
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..service_thread import ServiceThread
from ..store.queues.consume_queue import ConsumeQueue
from .queue_index import QueueIndex
from .track import KEPT, Track

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..broker.offsets import QueueOffsets

logger = logging.getLogger(__name__)

PERIOD_S = 1.0
#: What "now" means in a rate.
RATE_SAMPLES = 10
#: Objects one C call looks at, so that it holds the interpreter for less than half a millisecond (D10).
SLICE = 8192

_max_offset = operator.attrgetter("max_offset")
_changes = operator.attrgetter("changes")


class Sampler(ServiceThread):
    """The thread `admin-sampler`. Owns: the rings. Woken by: its clock. Everyone may read them."""

    def __init__(self, broker: Broker, after_sample: Callable[[], None] = lambda: None) -> None:
        super().__init__("admin-sampler")
        # Constant after construction.
        self._broker = broker
        self._after_sample = after_sample
        self.index = QueueIndex(broker.store.queues)
        self.started_at = time.monotonic()
        self._sampling = threading.Lock()
        # Written by one sample at a time, read by anyone.
        self.count = 0  # samples taken; the last one is in slot (count - 1) % KEPT
        self.sampled_at_ms = 0
        self._times = array("d", bytes(8 * KEPT))  # monotonic
        self._walls = array("q", bytes(8 * KEPT))
        self.totals = {name: array("q", bytes(8 * KEPT)) for name in ("in", "out", "in_bytes", "out_bytes", "log")}
        self.topics: dict[str, Track] = {}
        self.pairs: dict[tuple[str, str], Track] = {}  # (topic, group)
        self._moving: dict[Track, None] = {}  # in the sample being taken
        self._ringed: dict[Track, None] = {}
        self._few: dict[Track, None] = {}  # by their last move, oldest first
        self._queues: list[ConsumeQueue] = []
        self._tracks: list[Track] = []
        self._ends: list[int] = []
        self._entries: list[QueueOffsets] = []
        self._entry_changes: list[int] = []
        self._committed: dict[QueueOffsets, dict[int, int]] = {}
        self.slowest_ms = 0.0

    def run(self) -> None:
        due = time.monotonic()
        while not self.stopped:
            try:
                begin = time.thread_time()
                self.sample()
                self._after_sample()
                self.slowest_ms = max(self.slowest_ms, (time.thread_time() - begin) * 1000)
            except Exception:
                logger.exception("admin: sampling failed")
            due = max(due + PERIOD_S, time.monotonic())
            while not self.stopped and (left := due - time.monotonic()) > 0:
                self.wait(left)

    def sample(self) -> None:
        """Take one sample. A test may do so besides the thread."""
        with self._sampling:
            self._sample(time.monotonic())

    def _sample(self, now: float) -> None:
        slot = self.count % KEPT
        self._sample_queues(now)
        self._sample_offsets(now)
        self._write_tracks(self.count)
        store, pull = self._broker.store, self._broker.pull.answers
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
        ends, tracks = self._ends, self._tracks
        for begin in range(0, len(queues), SLICE):
            part = list(map(_max_offset, queues[begin : begin + SLICE]))
            old = ends[begin : begin + SLICE]
            if part == old:
                continue
            for i in itertools.compress(itertools.count(), map(operator.ne, part, old)):
                self._moved(tracks[begin + i], part[i] - old[i], now)
            ends[begin : begin + SLICE] = part

    def _take_queues(self, queues: list[ConsumeQueue]) -> None:
        """The table of queues changed: known queues keep their last offset, what new ones hold has just come.

        At the first look all of them are new, and nothing has just come.
        """
        first = self.count == 0
        topics = self.topics
        before = len(self._queues)
        if queues[:before] == self._queues:  # nearly always: some more behind the known ones
            known: dict[ConsumeQueue, int] = {}
            tracks, ends, others = self._tracks, self._ends, queues[before:]
        else:
            known = dict(zip(self._queues, self._ends, strict=True))
            tracks, ends, others = [], [], queues
        for queue in others:
            track = topics.get(queue.topic)
            if track is None:
                track = topics[queue.topic] = Track()
            tracks.append(track)
            ends.append(known.get(queue, queue.max_offset if first else queue.min_offset))
        if others is queues:
            alive = {queue.topic for queue in queues}
            for topic in [topic for topic in topics if topic not in alive]:
                self._forget(topics.pop(topic))
        self._queues, self._tracks, self._ends = queues, tracks, ends

    def _sample_offsets(self, now: float) -> None:
        entries = self._broker.offsets.all()
        if entries != self._entries:
            known = dict(zip(self._entries, self._entry_changes, strict=True))
            alive = set(entries)
            for entry in [entry for entry in self._committed if entry not in alive]:
                del self._committed[entry]
                track = self.pairs.pop((entry.topic, entry.group), None)
                if track is not None:
                    self._forget(track)
            self._entry_changes = [known.get(entry, -1) for entry in entries]
            self._entries = entries
        changes = self._entry_changes
        for begin in range(0, len(entries), SLICE):
            part = list(map(_changes, entries[begin : begin + SLICE]))
            old = changes[begin : begin + SLICE]
            if part == old:
                continue
            for i in itertools.compress(itertools.count(), map(operator.ne, part, old)):
                self._committed_moved(entries[begin + i], now)
            changes[begin : begin + SLICE] = part

    def _committed_moved(self, entry: QueueOffsets, now: float) -> None:
        """Count how far its offsets went on; a first commit of a queue or a reset is no consumption."""
        queues = entry.queues.copy()
        before = self._committed.get(entry)
        self._committed[entry] = queues
        key = (entry.topic, entry.group)
        track = self.pairs.get(key)
        if track is None:
            track = self.pairs[key] = Track()
        if before is None:
            return
        moved = 0
        for queue_id, offset in queues.items():
            last = before.get(queue_id)
            if last is not None and offset > last:
                moved += offset - last
        self._moved(track, moved, now)

    def _moved(self, track: Track, by: int, now: float) -> None:
        if by > 0:
            track.pending += by
            track.moved_at = now
            self._moving[track] = None

    def _forget(self, track: Track) -> None:
        for tracks in (self._moving, self._ringed, self._few):
            tracks.pop(track, None)

    def _write_tracks(self, sample: int) -> None:
        slot = sample % KEPT
        ringed, few = self._ringed, self._few
        for track in list(ringed):
            track.ring[slot] = 0  # type: ignore[index]
            if track.last <= sample - KEPT and not track.pending:
                del ringed[track]
                track.rest()
        for track in self._moving:
            track.take(sample)
            few.pop(track, None)
            (ringed if track.few is None else few)[track] = None
        self._moving.clear()
        while few and (track := next(iter(few))).last <= sample - KEPT:
            del few[track]
            track.rest()

    # --- any thread

    def span(self, samples: int = RATE_SAMPLES) -> tuple[int, float]:
        """(steps, seconds) between the last sample and the one `samples` before it; (0, 0.0) before there are two."""
        count = self.count
        steps = min(samples, count - 1, KEPT - 1)
        if steps <= 0:
            return 0, 0.0
        return steps, self._times[(count - 1) % KEPT] - self._times[(count - 1 - steps) % KEPT]

    def rate(self, track: Track | None, span: tuple[int, float] | None = None) -> float | None:
        """A track's moves a second; None before there are two samples. span: of `span()`, when many are asked for."""
        steps, seconds = span or self.span()
        if not steps or seconds <= 0:
            return None
        return 0.0 if track is None else track.moved(self.count, steps) / seconds

    def total_rate(self, name: str, samples: int = RATE_SAMPLES) -> float | None:
        """The same of one of the broker's totals."""
        steps, seconds = self.span(samples)
        if not steps or seconds <= 0:
            return None
        totals, last = self.totals[name], self.count - 1
        return max(0, totals[last % KEPT] - totals[(last - steps) % KEPT]) / seconds

    def topic_out_rates(self) -> dict[str, float]:
        """topic -> offsets committed a second, by all its groups."""
        return self._sum_rates(0)

    def group_out_rates(self) -> dict[str, float]:
        """group -> offsets committed a second, of all its topics."""
        return self._sum_rates(1)

    def _sum_rates(self, which: int) -> dict[str, float]:
        span = self.span()
        found: dict[str, float] = {}
        if not span[0]:
            return found
        for key, track in list(self.pairs.items()):
            if not track.resting:
                found[key[which]] = found.get(key[which], 0.0) + (self.rate(track, span) or 0.0)
        return found

    def last_move(self, group: str) -> float | None:
        """Monotonic seconds when any offset of the group went on; the sampler's start when it has not since."""
        moves = [track.moved_at for (_, name), track in list(self.pairs.items()) if name == group]
        return max([*moves, self.started_at])

    def times(self, seconds: int) -> list[tuple[int, int, float]]:
        """(slot, wall ms, seconds since the sample before) of the last samples, oldest first."""
        count = self.count
        steps = min(seconds, count - 1, KEPT - 2)
        found = []
        for n in range(count - steps, count):
            slot, before = n % KEPT, (n - 1) % KEPT
            found.append((slot, self._walls[slot], self._times[slot] - self._times[before]))
        return found

    def history(self, name: str, seconds: int) -> list[tuple[int, float]]:
        """(wall ms, rate) of one of the broker's totals, a point a sample."""
        totals = self.totals[name]
        return [
            (wall, max(0, totals[slot] - totals[slot - 1 if slot else KEPT - 1]) / elapsed if elapsed > 0 else 0.0)
            for slot, wall, elapsed in self.times(seconds)
        ]

    def track_history(self, tracks: list[Track], seconds: int) -> list[tuple[int, float]]:
        """(wall ms, moves a second) of several tracks together."""
        sums = [0] * KEPT
        for track in tracks:
            track.add_to(sums, self.count)
        return [(wall, sums[slot] / elapsed if elapsed > 0 else 0.0) for slot, wall, elapsed in self.times(seconds)]
