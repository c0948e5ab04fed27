"""Counts messages that were sent back lately, by topic and group, and those that became dead letters (315, /metrics).

Apache's name is SNDBCK_PUT_NUMS, its key `topic@group`; the topic is the one that the message was first sent to.
"""

from __future__ import annotations

from ...clock import Clock
from ..day_moves import DayMoves

#: Most pairs of topic and group that are counted; the pair that was not added to for longest makes room.
MOST_PAIRS = 10_000
#: A count's window, and the pieces it is kept in.
_WINDOW_S = 60
_PIECE_S = 10
_PIECES = _WINDOW_S // _PIECE_S


class _Recent:
    """Counts of the last minute, in pieces of 10 s, and of the last day."""

    __slots__ = ("_counts", "_newest", "day")

    def __init__(self, piece: int) -> None:
        self._counts = [0] * _PIECES
        self._newest = piece
        self.day = DayMoves()

    def add(self, piece: int) -> None:
        if piece > self._newest:
            self._counts = self.at(piece)
            self._newest = piece
        self._counts[-1] += 1
        self.day.add(piece * _PIECE_S, 1)

    def at(self, piece: int) -> list[int]:
        """Return the counts of the pieces up to `piece`, the newest last."""
        gone = min(max(0, piece - self._newest), _PIECES)
        return self._counts[gone:] + [0] * gone


class SendBackCounts:
    """`add` belongs to remoting-io, any thread may read. sent_back and dead_letters, a part of it, count from the
    start."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Owned by remoting-io; (topic, group), the one that was added to last comes last.
        self._recent: dict[tuple[str, str], _Recent] = {}
        self.sent_back = 0
        self.dead_letters = 0

    def add(self, topic: str, group: str, is_dead: bool) -> None:
        """Count a message of a topic that a group sent back, and that was stored."""
        piece = self._piece()
        key = (topic, group)
        recent = self._recent.pop(key, None)
        if recent is None:
            recent = _Recent(piece)
            if len(self._recent) >= MOST_PAIRS:
                del self._recent[next(iter(self._recent))]
        recent.add(piece)
        self._recent[key] = recent
        self.sent_back += 1
        self.dead_letters += is_dead

    def of_last_minute(self, topic: str, group: str) -> int | None:
        """Return how many messages of a topic a group sent back in the last 50 to 60 s; None for an unknown pair."""
        recent = self._recent.get((topic, group))
        return None if recent is None else sum(recent.at(self._piece()))

    def day_of(self, topic: str, group: str) -> tuple[DayMoves | None, int]:
        """Return (messages sent back in the last day, None for an unknown pair; the second now)."""
        recent = self._recent.get((topic, group))
        return None if recent is None else recent.day, int(self._clock.monotonic())

    def _piece(self) -> int:
        return int(self._clock.monotonic()) // _PIECE_S
