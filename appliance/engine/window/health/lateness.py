"""Finds the queues of a group that stand still, and judges if those that move catch up. The overview's needs, a
group's diagnosis and the figures of its page share this judgement, so that they never contradict each other.

A queue stands still if its offset has not moved for `limits.STUCK_S` while a message waited and a member was connected:
a message that came a second ago is not late, however long the group had nothing to do. The time is added up over
connections and restarts. A group is late if its next message has waited for `limits.LATE_S`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...broker.attendance import Attendance
from ...broker.sampler import Sampler
from ...store.queues.consume_queue import ConsumeQueue
from ..figures.lag import Backlog, LagSnapshot
from ..figures.lag_times import LagTimes
from ..figures.measures import Budget, Measures
from ..messages.queue_reader import QueueReader
from ..snapshots import Trend
from . import limits

#: Queues that stand still whose incoming messages are counted for one group; of further ones the mean is taken.
MOST_COUNTED = 16
#: Age up to which such a count is used again: it takes some 20 reads of the log. And how many are remembered.
COUNT_KEPT_S = 10.0
_MOST_KEPT = 10_000


class StandingQueue(NamedTuple):
    """offset: of the message that holds the queue up. waiting: number of messages that wait in it. stands_ms: for how
    long the offset has not moved while the message waited."""

    queue: ConsumeQueue
    offset: int
    waiting: int
    stands_ms: int


class Course(NamedTuple):
    """The pace of those queues of a group that move. lag: number of their waiting messages. late_ms: age of the oldest
    one; None if not known. came, went: messages stored and consumed a second. eta_ms: time left until they have caught
    up, if the trend is catches_up."""

    trend: Trend
    lag: int
    late_ms: int | None
    came: float
    went: float
    eta_ms: int | None


class Late(NamedTuple):
    """The same of a group that is late. soon: True if it catches up in a time that nobody needs to act on."""

    lag: int
    late_ms: int
    came: float
    went: float
    eta_ms: int | None
    soon: bool


class Lateness:
    """Any thread; reads store times in the caller's."""

    def __init__(self, sampler: Sampler, attendance: Attendance, measures: Measures, lag_times: LagTimes) -> None:
        # Constant after construction.
        self._sampler = sampler
        self._attendance = attendance
        self._measures = measures
        self._lag_times = lag_times
        # Queue -> (monotonic time of the count, messages that came a second). Each step on it is one C call.
        self._came: dict[ConsumeQueue, tuple[float, float]] = {}

    def standing(
        self,
        group: str,
        progress: LagSnapshot,
        backlog: Backlog,
        reader: QueueReader,
        for_s: float | None = None,
    ) -> list[StandingQueue]:
        """Return the queues of a group with members that stand still. for_s: the time that counts instead of
        `limits.STUCK_S`."""
        found = []
        for_s = limits.STUCK_S if for_s is None else for_s
        now, now_ms = time.monotonic(), int(time.time() * 1000)
        entries = progress.entries.get(group, {})
        for queue, offset in backlog.lagging:
            entry = entries.get(queue.topic)
            if entry is None:
                continue
            since = self._sampler.queue_since(entry, queue.queue_id)
            if now - since < for_s or self._attendance.attended_s(group, since) < for_s:
                continue  # before the log is read
            stored = self._measures.stored_at_ms(reader, queue, offset)
            if stored is None:
                continue
            since = max(since, now - (now_ms - stored) / 1000)
            if self._attendance.attended_s(group, since) >= for_s:
                found.append(StandingQueue(queue, offset, queue.max_offset - offset, int(1000 * (now - since))))
        return found

    def has_moved(self, group: str, progress: LagSnapshot, span_ms: float) -> bool:
        """True if an offset of the group was committed anew within this span, as far as offsets are sampled."""
        since = time.monotonic() - span_ms / 1000
        return any(
            self._sampler.queue_since(entry, queue_id) > since
            for entry in progress.entries.get(group, {}).values()
            for queue_id in tuple(entry.queues)
        )

    def waited_s(self, group: str, queue: ConsumeQueue, offset: int, reader: QueueReader) -> float:
        """Return for how many seconds a message has waited while a member was connected; 0 if it is gone."""
        stored = self._measures.stored_at_ms(reader, queue, offset)
        if stored is None:
            return 0.0
        return self._attendance.attended_s(group, time.monotonic() - (time.time() * 1000 - stored) / 1000)

    def rates(
        self,
        group: str,
        topics: Iterable[str],
        standing: Sequence[StandingQueue],
        reader: QueueReader,
        samples: int,
    ) -> tuple[float, float] | None:
        """Return (messages that came to the queues of these topics that move, messages that the group committed there)
        a second; None if that is not known yet.

        Over so many samples, or fewer: only since the last of `standing` stands, so that none of its commits counts.
        """
        names = set(topics)
        still = [one for one in standing if one.queue.topic in names]
        within_s = min((one.stands_ms / 1000 for one in still), default=None)
        span = self._sampler.span(samples) if within_s is None else self._sampler.span_within(samples, within_s)
        if span[1] < limits.RATE_KNOWN_S or not span[0]:
            return None
        came, went = self._sampler.rates(group, names, span)
        counted = still[:MOST_COUNTED]
        apart = sum(self._came_rate(one.queue, span[1], reader) for one in counted)
        return max(0.0, came - apart * len(still) / max(1, len(counted))), went

    def _came_rate(self, queue: ConsumeQueue, span_s: float, reader: QueueReader) -> float:
        """Return how many messages a second came to one queue, by their store times."""
        known, now = self._came.get(queue), time.monotonic()
        if known is not None and now - known[0] < COUNT_KEPT_S:
            return known[1]
        begin_ms = int(time.time() * 1000 - span_s * 1000)
        rate = (queue.max_offset - reader.offset_at(queue, begin_ms)) / span_s
        if len(self._came) >= _MOST_KEPT:
            self._came.clear()
        self._came[queue] = now, rate
        return rate

    def course(
        self,
        group: str,
        backlog: Backlog,
        standing: Sequence[StandingQueue],
        reader: QueueReader,
        budget: Budget | None = None,
    ) -> Course | None:
        """Return how the queues that move go on; None if that is not known yet.

        At the rates of the last minute, or, if they are late, of the last five, so that a need does not come and go.
        """
        still = {one.queue for one in standing}
        moving = [(queue, offset) for queue, offset in backlog.lagging if queue not in still]
        topics = {queue.topic for queue, _ in moving}
        if not moving:
            return Course("caught_up", 0, 0, 0.0, 0.0, None)
        rates = self.rates(group, topics, standing, reader, limits.RATE_SAMPLES)
        if rates is None:
            return None
        lag = sum(queue.max_offset - offset for queue, offset in moving)
        # The table remembers one result a name: that of all queues is another one.
        whose = f"{group}\0moving" if still else group
        late_ms, _ = self._lag_times.of(whose, backlog._replace(lagging=moving), reader, budget)
        came, went = rates
        if late_ms is not None and late_ms >= limits.LATE_S * 1000:
            came, went = self.rates(group, topics, standing, reader, limits.LATE_SAMPLES) or rates
        elif went > came * (1 - limits.GROWTH_SHARE) and lag <= went * limits.KEEPS_UP_S:
            return Course("keeps_up", lag, late_ms, came, went, None)
        left_s = lag / (went - came) if went > came else None
        if left_s is None or left_s > limits.CATCHES_UP_WITHIN_S:
            return Course("never", lag, late_ms, came, went, None)
        return Course("catches_up", lag, late_ms, came, went, round(1000 * left_s))

    def late(
        self,
        group: str,
        backlog: Backlog,
        standing: Sequence[StandingQueue],
        reader: QueueReader,
        budget: Budget | None = None,
    ) -> Late | None:
        """Return how late the queues that move are; None if they are not late, or it is not known yet."""
        found = self.course(group, backlog, standing, reader, budget)
        if found is None or found.late_ms is None or found.late_ms < limits.LATE_S * 1000:
            return None
        soon = found.eta_ms is not None and found.eta_ms < found.late_ms * limits.CATCHES_UP
        return Late(found.lag, found.late_ms, found.came, found.went, found.eta_ms, soon)
