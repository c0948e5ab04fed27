"""Which queues of a group stand still, and whether those that move catch up: judged once, for the overview's needs and
for a group's diagnosis, so that one never says what the other denies.

A queue stands still when its offset has not gone on although a message waited for it, and a member was there, for so
long: what came a second ago is not late, however long the group had nothing to do. For how long is told from when it
really began, over connections and restarts. A group is late when its next message is.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from ..broker.attendance import Attendance
from ..broker.sampler import Sampler
from ..store.queues.consume_queue import ConsumeQueue
from .lag import Backlog, LagSnapshot
from .lag_times import LagTimes
from .measures import Budget, Measures
from .queue_reader import QueueReader

#: An offset that stays for so long while a message waits behind it, and a member is there, stands still: clients commit
#: every 5 s and share queues out every 20 s, and a listener may well take a minute. Whoever asks why after that long is
#: to be told, and what a diagnosis knows the overview need not keep to itself for longer.
STUCK_S = 120.0
#: A group's next message has waited for so long.
LATE_S = 300.0
#: Rates are of so many samples, since commits come every 5 s; known after so many seconds.
RATE_SAMPLES = 300
RATE_KNOWN_S = 10.0
#: Who catches up within so many times what it is late is left to it.
_CATCHES_UP = 3


class StandingQueue(NamedTuple):
    """offset: of the message that holds it up. waiting: messages that wait in it. stands_ms: since when the offset has
    been there and the message waited for it."""

    queue: ConsumeQueue
    offset: int
    waiting: int
    stands_ms: int


class Late(NamedTuple):
    """Of queues that move. came, went: messages a second. eta_ms: when it will have caught up; None for never, or not
    soon."""

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
        """Of a group with members."""
        found = []
        now, now_ms = time.monotonic(), int(time.time() * 1000)
        entries = progress.entries.get(group, {})
        for queue, offset in backlog.lagging:
            entry = entries.get(queue.topic)
            if entry is None:
                continue
            since = self._sampler.queue_since(entry, queue.queue_id)
            if now - since < STUCK_S or self._attendance.attended_s(group, since) < STUCK_S:
                continue  # before the log is read
            stored = self._measures.stored_at_ms(reader, queue, offset)
            if stored is None:
                continue
            since = max(since, now - (now_ms - stored) / 1000)
            if self._attendance.attended_s(group, since) >= STUCK_S:
                found.append(StandingQueue(queue, offset, queue.max_offset - offset, int(1000 * (now - since))))
        return found

    def waited_s(self, group: str, queue: ConsumeQueue, offset: int, reader: QueueReader) -> float:
        """For how long a member was there that could have taken the message; 0 when it is gone."""
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
        """Of the queues that move; None when they are not late, or it is not known yet."""
        span = self._sampler.span(RATE_SAMPLES)
        still = {one.queue for one in standing}
        moving = [(queue, offset) for queue, offset in backlog.lagging if queue not in still]
        if not moving or span[1] < RATE_KNOWN_S:
            return None
        late_ms, _ = self._lag_times.of(group, backlog._replace(lagging=moving), reader, budget)
        if late_ms is None or late_ms < LATE_S * 1000:
            return None
        topics = {queue.topic for queue, _ in moving}
        sampler = self._sampler
        came = sum(sampler.rate(sampler.topics.get(topic), span) or 0.0 for topic in topics)
        went = sum(sampler.rate(sampler.pairs.get((topic, group)), span) or 0.0 for topic in topics)
        lag = sum(queue.max_offset - offset for queue, offset in moving)
        soon = went > came and lag / (went - came) < late_ms / 1000 * _CATCHES_UP
        return Late(lag, late_ms, came, went, round(lag / (went - came)) * 1000 if soon else None)
