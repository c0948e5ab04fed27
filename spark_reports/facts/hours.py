"""Hours of the clock in a time zone, for many moments: the day is cut where the zone's offset from UTC changes.

    begin of the hour = ms - (ms + offset) mod 3,600,000

So a day has 23, 24 or 25 hours; when clocks go back it has the same hour of the clock twice, at two moments.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

HOUR_MS = 3_600_000
#: No zone changes twice within this time.
_PROBE_MS = 900_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Stretch(NamedTuple):
    """From `from_ms` to the next stretch the zone's clock shows UTC plus `offset_ms`."""

    from_ms: int
    offset_ms: int

    def hour(self, ms: int) -> int:
        return ms - (ms + self.offset_ms) % HOUR_MS


def day_bounds(day: str, zone: str) -> tuple[int, int]:
    """Return the begin of the day YYYY-MM-DD and of the next one, in ms: 23 or 25 hours apart if clocks are changed. If
    they go forward at midnight the day begins after that; if they show midnight twice, at the first one."""
    first, there = date.fromisoformat(day), ZoneInfo(zone)
    begin, end = (datetime.combine(first + timedelta(days=n), time(), there).timestamp() for n in (0, 1))
    return int(begin * 1000), int(end * 1000)


def day_of(at_ms: int, zone: ZoneInfo) -> str:
    """Return the day that a moment belongs to, as YYYY-MM-DD."""
    return datetime.fromtimestamp(at_ms / 1000, zone).date().isoformat()


def stretches(from_ms: int, to_ms: int, zone: str) -> tuple[Stretch, ...]:
    """Return the stretches of [from_ms, to_ms); the first begins at from_ms. Raises ZoneInfoNotFoundError, ValueError
    if there is no such zone."""
    there = ZoneInfo(zone)
    found = [Stretch(from_ms, _offset_ms(from_ms, there))]
    at = from_ms
    while at < to_ms:
        following = min(at + _PROBE_MS, to_ms)
        if _offset_ms(following, there) != found[-1].offset_ms:
            low, high = at, following  # the offset at `low` is the old one, at `high` the new one
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _offset_ms(middle, there) == found[-1].offset_ms else (low, middle)
            if high < to_ms:
                found.append(Stretch(high, _offset_ms(high, there)))
        at = following
    return tuple(found)


def end_of_day(day: str, zone: str) -> int:
    """Return the end of a day in ms; if clocks skip midnight, the moment when they do."""
    following = datetime.combine(date.fromisoformat(day) + timedelta(days=1), time(), ZoneInfo(zone))
    return round(following.timestamp() * 1000)


def _offset_ms(ms: int, zone: ZoneInfo) -> int:
    offset = (_EPOCH + timedelta(milliseconds=ms)).astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds() * 1000)
