"""Finds the queues of a group that stand still, and judges if those that move catch up. The overview's needs and a
group's diagnosis share this judgement, so that they never contradict each other.

A queue stands still if its offset has not moved for `limits.STUCK_S` while a message waited and a member was connected:
a message that came a second ago is not late, however long the group had nothing to do. The time is added up over
connections and restarts. A group is late if its next message has waited for `limits.LATE_S`.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from ...broker.attendance import Attendance
from ...broker.sampler import Sampler
from ...store.queues.consume_queue import ConsumeQueue
from ..figures.lag import Backlog, LagSnapshot
from ..figures.lag_times import LagTimes
from ..figures.measures import Budget, Measures
from ..messages.queue_reader import QueueReader
from . import limits


class StandingQueue(NamedTuple):
    """offset: of the message that holds the queue up. waiting: number of messages that wait in it. stands_ms: for how
    long the offset has not moved while the message waited."""

    queue: ConsumeQueue
    offset: int
    waiting: int
    stands_ms: int


class Late(NamedTuple):
    """Lag of a group's queues that move. lag: number of their waiting messages. late_ms: age of the oldest one.
    came, went: messages stored and consumed a second. eta_ms: time left until the group has caught up; None for never
    or not soon."""

    lag: int
    late_ms: int
    came: float
    went: float
    eta_ms: int | None


class Lateness:
    """Any thread; reads store times in the caller's."""

    def __init__(self, sampler: Sampler, attendance: Attendance, measures: Measures, lag_times: LagTimes) -> None:
        # Constant after construction.
        self._sampler = sampler
        self._attendance = attendance
        self._measures = measures
        self._lag_times = lag_times

    def standing(self, group: str, progress: LagSnapshot, backlog: Backlog, reader: QueueReader) -> list[StandingQueue]:
        """Return the queues of a group with members that stand still."""
        found = []
        now, now_ms = time.monotonic(), int(time.time() * 1000)
        entries = progress.entries.get(group, {})
        for queue, offset in backlog.lagging:
            entry = entries.get(queue.topic)
            if entry is None:
                continue
            since = self._sampler.queue_since(entry, queue.queue_id)
            if now - since < limits.STUCK_S or self._attendance.attended_s(group, since) < limits.STUCK_S:
                continue  # before the log is read
            stored = self._measures.stored_at_ms(reader, queue, offset)
            if stored is None:
                continue
            since = max(since, now - (now_ms - stored) / 1000)
            if self._attendance.attended_s(group, since) >= limits.STUCK_S:
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

    def late(
        self,
        group: str,
        backlog: Backlog,
        standing: list[StandingQueue],
        reader: QueueReader,
        budget: Budget | None = None,
    ) -> Late | None:
        """Return how late the queues that move are; None if they are not late, or it is not known yet."""
        span = self._sampler.span(limits.LATE_SAMPLES)
        still = {one.queue for one in standing}
        moving = [(queue, offset) for queue, offset in backlog.lagging if queue not in still]
        if not moving or span[1] < limits.RATE_KNOWN_S:
            return None
        late_ms, _ = self._lag_times.of(group, backlog._replace(lagging=moving), reader, budget)
        if late_ms is None or late_ms < limits.LATE_S * 1000:
            return None
        topics = {queue.topic for queue, _ in moving}
        came, went = self._sampler.rates(group, topics, span)
        lag = sum(queue.max_offset - offset for queue, offset in moving)
        soon = went > came and lag / (went - came) < late_ms / 1000 * limits.CATCHES_UP
        return Late(lag, late_ms, came, went, round(lag / (went - came)) * 1000 if soon else None)
