"""A group's present state, for its page: its rates, and its queues a page at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from ...broker.clients import ConsumerGroupInfo
from ...broker.deliveries.last_pulls import LastPull
from ...broker.pulling.request import PullRequest
from ...broker.queue_locks import MessageQueue, RebalanceLockManager
from ...broker.sampler import SLOTS
from ...errors import NotFound
from ...protocol.names import RETRY_PREFIX
from ...store.queues.consume_queue import ConsumeQueue
from .. import snapshots as s
from ..figures.lag import BROADCASTING, Backlog, LagSnapshot, lag_of, never_committed, next_of
from ..figures.measures import Budget
from ..health import limits
from ..health.lateness import Lateness
from ..messages.queue_reader import QueueReader
from ..sentences import Sentence, say
from ..sources import Sources
from ..tables import SORT_BUDGET_MS, page_of, sorted_by

#: Points of the line that shows a group's lag of the last ten minutes.
POINTS = 60


class GroupNow:
    """Any thread; reads store times of the queues it shows in the caller's."""

    def __init__(
        self,
        sources: Sources,
        locks: RebalanceLockManager,
        broker_name: str,
        held_at: Callable[[ConsumeQueue], Iterable[PullRequest]],
        last_pull: Callable[[str, str, int], LastPull | None],
        lateness: Lateness,
    ) -> None:
        """held_at: returns the pulls that wait at a queue. last_pull: returns the LastPull of a (group, topic, queue
        id), None without one."""
        # Constant after construction.
        self._store, self._lag, self._sampler = sources.store, sources.lag, sources.sampler
        self._groups, self._lateness = sources.groups, lateness
        self._measures, self._pulled = sources.measures, sources.pulled
        self._locks = locks
        self._broker_name = broker_name
        self._held_at = held_at
        self._last_pull = last_pull

    def _known(self, name: str) -> LagSnapshot:
        progress = self._lag.snapshot()
        if not progress.has(name):
            raise NotFound("group", name)
        return progress

    # --- how fast

    def pace(self, name: str) -> s.GroupPace:
        """Return a group's rates, when it will have caught up, and its lag over the last ten minutes. NotFound."""
        progress = self._known(name)
        backlog = progress.backlog(name)
        topics = progress.topics_of(name)
        times, lags = self._history(name, topics, backlog.lag)
        sampler = self._sampler
        span = sampler.span(limits.RATE_SAMPLES)
        comes = goes = None
        if span[1] >= limits.RATE_KNOWN_S:
            comes, goes = sampler.rates(name, topics, span)
        trend, moving, eta_ms, why, standing = self._trend(name, progress, backlog)
        return s.GroupPace(comes, goes, trend, eta_ms, why, times, lags, standing, moving)

    def _trend(
        self, name: str, progress: LagSnapshot, backlog: Backlog
    ) -> tuple[s.Trend, s.Trend | None, int | None, Sentence | None, int]:
        """Return (trend, that of the queues that move, time left, reason if unknown, queues that stand still)."""
        if backlog.lag is None:
            return "unknown", None, None, backlog.why, 0
        if not backlog.lag:
            return "caught_up", None, None, None, 0
        config = self._groups.get(name)
        if name not in progress.online or (config is not None and not config.consume_enable):
            return "never", "never", None, None, 0
        with QueueReader(self._store) as reader:
            standing = self._lateness.standing(name, progress, backlog, reader)
            course = self._lateness.course(name, backlog, standing, reader)
        count = len(standing)
        if course is None:
            found: s.Trend = "stands" if standing else "unknown"
            return found, "unknown", None, say("not_measured_yet"), count
        if not standing:
            return course.trend, course.trend, course.eta_ms, None, 0
        return "stands", course.trend if course.lag else None, course.eta_ms, None, count

    def _history(
        self, name: str, topics: list[str], lag: int | None
    ) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
        """Return (times, lags) of the last ten minutes, computed backwards from the present lag: messages that came
        since are subtracted, committed ones added."""
        if lag is None:
            return (), ()
        sampler = self._sampler
        seconds = SLOTS - 2
        came = [moves for topic in topics if (moves := sampler.topics.get(topic)) is not None]
        went = [moves for topic in topics if (moves := sampler.pairs.get((topic, name))) is not None]
        spans = [elapsed for _, _, elapsed in sampler.times(seconds)]
        in_points, out_points = sampler.moves_history(came, seconds), sampler.moves_history(went, seconds)
        found: list[tuple[int, float | None]] = []
        value = float(lag)
        # A sample may have been taken between the calls: use the shortest list, counted from its end.
        count = min(len(spans), len(in_points), len(out_points))
        step = max(1, count // POINTS)
        for back in range(1, count + 1):
            at_ms, comes = in_points[-back]
            if (back - 1) % step == 0:
                found.append((at_ms, max(0.0, round(value))))
            value += (out_points[-back][1] - comes) * spans[-back]
        found.reverse()
        return tuple(at_ms for at_ms, _ in found), tuple(one for _, one in found)

    # --- its queues

    def queues(
        self, name: str, topic: str | None = None, q: str = "", sort: str = "-lag", page: int = 1, page_size: int = 50
    ) -> s.Page:
        """Return a page of QueueNow: the queues of every topic that the group subscribes to or has offsets of, and of
        its retry topic. NotFound.

        topic: only the queues of this topic. q: part of the topic's name. sort: queue, lag, lag_time, committed, end,
        idle; "-" before it for the largest first.
        """
        progress = self._known(name)
        info = progress.online.get(name)
        needle = q.strip().lower()
        rows: list[tuple[ConsumeQueue, int | None]] = []
        for one in [*progress.topics_of(name), RETRY_PREFIX + name]:
            if (topic is not None and one != topic) or needle not in one.lower():
                continue
            offsets = progress.committed(name, one)
            for queue in sorted(progress.readable(one), key=lambda queue: queue.queue_id):
                rows.append((queue, offsets.get(queue.queue_id)))
        now_ms = int(time.time() * 1000)
        with QueueReader(self._store) as reader:
            budget = Budget(SORT_BUDGET_MS)

            def age(row: tuple[ConsumeQueue, int | None]) -> int | None:
                lag = lag_of(*row)
                if not lag:
                    return lag
                if budget.spent:
                    return None
                stored = self._measures.stored_at_ms(reader, row[0], next_of(*row))
                return None if stored is None else max(0, now_ms - stored)

            ordered = sorted_by(
                rows,
                sort,
                {
                    "lag": lambda row: lag_of(*row),
                    "lag_time": age,
                    "queue": lambda row: (row[0].topic, row[0].queue_id),
                    "committed": lambda row: row[1],
                    "end": lambda row: row[0].max_offset,
                    "idle": lambda row: self._idle_ms(progress, name, row[0]),
                },
            )
            row = lambda one: self._row(name, progress, info, one[0], one[1], reader, now_ms)  # noqa: E731
            return page_of(ordered, page, page_size, row)

    def _idle_ms(self, progress: LagSnapshot, name: str, queue: ConsumeQueue) -> int | None:
        """Return for how long the offset has not moved; None if it was never seen to move."""
        entry = progress.entries.get(name, {}).get(queue.topic)
        if entry is None:
            return None
        moved_at = self._sampler.queue_moved_at(entry, queue.queue_id)
        if moved_at is None:
            return None
        return int(1000 * max(0.0, time.monotonic() - moved_at))

    def _row(
        self,
        name: str,
        progress: LagSnapshot,
        info: ConsumerGroupInfo | None,
        queue: ConsumeQueue,
        committed: int | None,
        reader: QueueReader,
        now_ms: int,
    ) -> s.QueueNow:
        lag, lag_ms = lag_of(queue, committed), None
        why: Sentence | None = None
        why_ms: Sentence | None = None
        if info is not None and info.message_model == BROADCASTING:
            lag, why, why_ms = None, say("broadcast_keeps_offsets"), say("broadcast_keeps_offsets")
        elif lag is None:
            why = why_ms = never_committed(queue.queue_id, bool(progress.committed(name, queue.topic)))
        elif not lag:
            lag_ms = 0
        else:
            stored = self._measures.stored_at_ms(reader, queue, next_of(queue, committed))
            lag_ms = None if stored is None else max(0, now_ms - stored)
            why_ms = say("message_gone") if stored is None else None
        waiting = next((held.conn for held in self._held_at(queue) if held.group.group_name == name), None)
        last = self._last_pull(name, queue.topic, queue.queue_id)
        pulled = self._pulled.get(name, queue)
        behind = max(queue.min_offset, committed or 0)
        return s.QueueNow(
            topic=queue.topic,
            queue_id=queue.queue_id,
            committed=committed,
            min_offset=queue.min_offset,
            max_offset=queue.max_offset,
            lag=lag,
            lag_why=why,
            lag_ms=lag_ms,
            lag_ms_why=why_ms,
            held_by=self._locks.owner(name, MessageQueue(queue.topic, self._broker_name, queue.queue_id)),
            pulled_by=(waiting.client_id or waiting.remote_host) if waiting else last.client if last else None,
            pulled_at_ms=None if last is None else last.at_ms,
            waits=waiting is not None,
            in_flight=None if committed is None or pulled < 0 else max(0, min(pulled, queue.max_offset) - behind),
            idle_ms=self._idle_ms(progress, name, queue),
            next_offset=next_of(queue, committed) if lag else None,
        )
