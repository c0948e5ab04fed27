"""The sampled counts of moves, in the form of request 315 and `consumeTps`."""

from __future__ import annotations

import time

from .day_moves import DayMoves, Moved
from .recent_moves import RecentMoves
from .sampler import Sampler
from .sending.send_back_counts import SendBackCounts


class SampledMovements:
    """Any thread. Sums are of whole seconds; the counts of hours and days begin with the start."""

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
