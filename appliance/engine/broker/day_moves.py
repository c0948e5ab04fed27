"""Counts of moves of one thing in the last hour and in the last day, as request 315 asks for them.

There is a count for each ten minutes and for each hour in which something moved: half a kilobyte at most. Times are
whole seconds of a steady clock.
"""

from __future__ import annotations

from array import array

from ..named_tuple import NamedTuple

HOUR_S, DAY_S = 3600, 86_400
_TEN_S = 600


class Moved(NamedTuple):
    """Moves in a span, and its length in seconds. The span contains the whole of its first piece, so it is up to one
    piece longer than its name says."""

    moved: int
    seconds: int


class DayMoves:
    """Written by one thread, read by any."""

    __slots__ = ("_hours", "_tens")

    def __init__(self) -> None:
        # (number of the piece, count) one after the other, oldest first.
        self._tens = array("Q")
        self._hours = array("Q")

    def add(self, now_s: int, count: int) -> None:
        _add(self._tens, now_s // _TEN_S, count, HOUR_S // _TEN_S)
        _add(self._hours, now_s // HOUR_S, count, DAY_S // HOUR_S)

    def last_hour(self, now_s: int) -> Moved:
        return _sum(self._tens, now_s, _TEN_S, HOUR_S // _TEN_S)

    def last_day(self, now_s: int) -> Moved:
        return _sum(self._hours, now_s, HOUR_S, DAY_S // HOUR_S)


def _add(pairs: array[int], piece: int, count: int, pieces: int) -> None:
    if pairs and pairs[-2] == piece:
        pairs[-1] += count
        return
    while pairs and pairs[0] + pieces < piece:
        del pairs[:2]
    pairs.extend((piece, count))


def _sum(pairs: array[int], now_s: int, piece_s: int, pieces: int) -> Moved:
    now = now_s // piece_s
    seen = pairs[:]
    count = sum(count for piece, count in zip(seen[0::2], seen[1::2], strict=True) if piece + pieces >= now)
    return Moved(count, pieces * piece_s + now_s % piece_s)
