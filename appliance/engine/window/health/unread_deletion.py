"""Forecast of when messages that a group has not consumed will be deleted, at the present rates; and what was deleted.

A log file goes when it is old enough, or before that when the disk is too full: then the oldest one goes for each
file's worth of bytes that comes. A group that consumes is behind by an offset that moves: if it commits the share c of
what comes, the deletion gains on it at 1 - c of its speed, so the time left is that of a group that stands, over 1 - c.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ...broker.deleted_unread import ALL, DeletedUnread
from ...broker.topic_config import reserve_hours_of
from ...store.queues.consume_queue import ConsumeQueue
from ..dead_letters.expiry import Expiry
from ..figures.lag import Backlog, LagSnapshot
from ..figures.lag_times import KEPT_S, MOST_KEPT
from ..figures.measures import Budget, Measures
from ..messages.queue_reader import QueueReader
from ..options import Options
from ..sources import Sources
from . import limits
from .disk_room import DiskRoom
from .lateness import Lateness, StandingQueue


def messages_and_age(rows: Sequence[DeletedUnread], now_ms: int) -> tuple[int, int]:
    """Return how many messages were deleted unread, and how many ms ago the last of them. rows: at least one."""
    return sum(one.messages for one in rows), max(0, now_ms - max(one.at_ms for one in rows))


class Ahead(NamedTuple):
    """Messages of a topic that will be deleted before the group consumes them. left_ms: until the first is deleted.
    age_ms: how long it has been stored."""

    topic: str
    left_ms: int
    age_ms: int

    @property
    def is_soon(self) -> bool:
        """True if an operator has to know. With a short retention every message has little time left, so most of it
        must have passed, too."""
        return self.left_ms <= min(limits.UNREAD_MS, self.age_ms)

    @property
    def level(self) -> str:
        """Level of its need and of its finding."""
        return "act" if self.left_ms <= limits.UNREAD_URGENT_MS else "watch"

    @property
    def passed(self) -> float:
        """Percentage of the message's time until its deletion that has passed."""
        return 100.0 * self.age_ms / max(1, self.age_ms + self.left_ms)


class UnreadDeletion:
    """Any thread; reads places and store times in the caller's."""

    def __init__(
        self,
        sources: Sources,
        lateness: Lateness,
        disk: DiskRoom,
        options: Options,
        deleted: Callable[[], tuple[DeletedUnread, ...]],
    ) -> None:
        """deleted: returns what retention deleted unread, the oldest first."""
        # Constant after construction.
        self._deleted = deleted
        self.sampler, self.store, self.topics = sources.sampler, sources.store, sources.topics
        self.lateness = lateness
        self.disk = disk
        self.options = options
        #: group -> (monotonic time of the last judgement, its result). Each step on it is one C call.
        self.known: dict[str, tuple[float, Ahead | None]] = {}

    def lost(self) -> dict[str, dict[str, list[DeletedUnread]]]:
        """Return by group and topic what retention deleted before the group had consumed it, of the last
        UNREAD_LOST_MS. Topics that were deleted since are left out."""
        since = int(time.time() * 1000) - limits.UNREAD_LOST_MS
        found: dict[str, dict[str, list[DeletedUnread]]] = {}
        for one in self._deleted():
            if one.at_ms >= since and (one.topic == ALL or self.topics.get(one.topic) is not None):
                found.setdefault(one.group, {}).setdefault(one.topic, []).append(one)
        return found

    def look(self, progress: LagSnapshot, reader: QueueReader, measures: Measures) -> UnreadLook:
        return UnreadLook(self, progress, reader, measures)


class UnreadLook:
    """One look at many groups, which reads the disk and each log file's times once."""

    def __init__(self, of: UnreadDeletion, progress: LagSnapshot, reader: QueueReader, measures: Measures) -> None:
        self._of = of
        self._progress = progress
        self._reader = reader
        self._measures = measures
        self._expiry = Expiry(of.store, of.options)
        self._span = of.sampler.span(limits.LATE_SAMPLES)
        self._now_ms = int(time.time() * 1000)
        self._forced: tuple[float, float] | None = None
        self._asked_disk = False

    def of(self, group: str, backlog: Backlog, budget: Budget | None = None) -> Ahead | None:
        """Return what the group loses first; None if it loses nothing at the present rates, or it is not known yet.

        budget: once it is spent, the result of the last minute is returned, so that needs of many groups do not come
        and go.
        """
        known = self._of.known
        if budget is not None and budget.spent:
            at, found = known.get(group, (0.0, None))
            return found if time.monotonic() - at <= KEPT_S else None
        found = self._judge(group, backlog)
        if len(known) >= MOST_KEPT:
            known.clear()
        known[group] = time.monotonic(), found
        return found

    def _judge(self, group: str, backlog: Backlog) -> Ahead | None:
        if self._span[1] < limits.RATE_KNOWN_S:
            return None
        standing = self._of.lateness.standing(group, self._progress, backlog, self._reader)
        first: tuple[float, ConsumeQueue, int] | None = None
        for place, falls, queue, offset in self._lowest(group, backlog, standing):
            left = self._left_ms(place, queue, offset)
            if left is not None and (first is None or left / falls < first[0]):
                first = left / falls, queue, offset
        if first is None:
            return None
        stored = self._measures.stored_at_ms(self._reader, first[1], first[2])
        return None if stored is None else Ahead(first[1].topic, int(first[0]), max(0, self._now_ms - stored))

    def _lowest(
        self, group: str, backlog: Backlog, standing: list[StandingQueue]
    ) -> Iterable[tuple[int, float, ConsumeQueue, int]]:
        """Return (physical offset, share by which it falls behind, queue, offset) of the next message that lies lowest,
        so that it goes first, for each topic of its queues that stand and of those that move."""
        found: dict[tuple[str, bool], tuple[int, float, ConsumeQueue, int]] = {}
        moving: dict[str, float] = {}
        still = {one.queue for one in standing}
        for queue, offset in backlog.lagging:
            topic, stands = queue.topic, queue in still
            if topic not in moving:
                moving[topic] = self._falls_behind(group, topic, standing)
            falls = 1.0 if stands else moving[topic]
            place = None if falls <= 0 else self._measures.place(self._reader, queue, offset)
            if place is not None and ((topic, stands) not in found or place < found[topic, stands][0]):
                found[topic, stands] = place, falls, queue, offset
        return found.values()

    def _falls_behind(self, group: str, topic: str, standing: list[StandingQueue]) -> float:
        """Return the share of what comes to the queues that move that the group does not commit: 1 if it commits
        nothing, 0 or less if it catches up."""
        rates = self._of.lateness.rates(group, (topic,), standing, self._reader, limits.LATE_SAMPLES)
        came, went = rates or (0.0, 0.0)
        return 1 - went / came if came else 0.0 if went else 1.0

    def _left_ms(self, place: int, queue: ConsumeQueue, offset: int) -> float | None:
        """Return the time until a message is deleted if the group commits nothing more; None if that is not known.
        place: its physical offset."""
        config = self._of.topics.get(queue.topic)
        hours = None if config is None else reserve_hours_of(config)
        stored = None if hours is None else self._measures.stored_at_ms(self._reader, queue, offset)
        at_ms = self._expiry.of(place, stored or 0, None if stored is None else hours)
        ways = [self._forced_ms(place)] if at_ms is None else [at_ms - self._now_ms, self._forced_ms(place)]
        return min((max(0.0, one) for one in ways if one is not None), default=None)

    def _forced_ms(self, place: int) -> float | None:
        """Return the time until the file of a place is deleted since the disk is too full; None for never."""
        if not self._asked_disk:
            self._asked_disk = True
            self._forced = self._of.disk.until_forced()
        if self._forced is None:
            return None
        room, rate = self._forced
        log = self._of.store.log
        bytes_left = room + place - place % log.segment_bytes - log.min_offset
        return 0.0 if bytes_left <= 0 else bytes_left / rate * 1000 if rate > 0 else None
