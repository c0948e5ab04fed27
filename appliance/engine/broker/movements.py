"""What was counted, as request 315 and `consumeTps` ask for it."""

from __future__ import annotations

from .recent_moves import RecentMoves
from .sampler import Sampler
from .sending.send_back_counts import SendBackCounts


class SampledMovements:
    """Any thread. Sums are of whole seconds, and of at most the ten minutes that are kept."""

    def __init__(self, sampler: Sampler, send_backs: SendBackCounts) -> None:
        self._sampler = sampler
        self._send_backs = send_backs

    def put_into(self, topic: str, seconds: int) -> int | None:
        """Messages stored in a topic; None when it has no queue yet."""
        return self._sum(self._sampler.topics.get(topic), seconds)

    def consumed_from(self, topic: str, group: str, seconds: int) -> int | None:
        """Offsets a group went on by in a topic; None when it never committed one."""
        return self._sum(self._sampler.pairs.get((topic, group)), seconds)

    def sent_back(self, topic: str, group: str) -> int | None:
        """Messages of a topic that a group sent back in the last minute; None when none is known of."""
        return self._send_backs.of_last_minute(topic, group)

    def _sum(self, moves: RecentMoves | None, seconds: int) -> int | None:
        if moves is None:
            return None
        span = self._sampler.span(seconds)
        return round((self._sampler.rate(moves, span) or 0.0) * span[1])
