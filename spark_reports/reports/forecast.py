"""Forecast of the disk's used bytes. PURE.

Used bytes have two parts. The log holds the messages that were stored within the retention, so it grows while it is
young and then stays level: it is the sum of the bytes of those days, known ones and expected ones. The rest of the disk
(queues, indexes, other programs) goes on as before.

Both are continued by Theil and Sen's line: the median of the slopes between all pairs of days, which one odd day does
not bend. The band is between the 10th and 90th percentile of the distances of the days from their line, and assumes
that every day to come is as odd in the same direction: rather too wide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

#: Days of the past that count; number of them that is needed for a forecast, and for growth of the daily amount.
PAST, LEAST, LEAST_FOR_GROWTH = 14, 3, 7
#: Days to come for which a forecast is made.
HORIZON = 90


@dataclass(frozen=True, slots=True)
class Line:
    """value = at + slope * day; low, high: distances from it; a tenth of the days lies below, and a tenth above."""

    at: Fraction
    slope: Fraction
    low: Fraction
    high: Fraction


def median(values: Sequence[Fraction]) -> Fraction:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def line_through(points: Mapping[int, int], least_for_slope: int = LEAST) -> Line:
    """Return the line through points: value by day, at least one. With fewer than least_for_slope it is level."""
    days = sorted(points)
    slopes = [Fraction(points[b] - points[a], b - a) for n, a in enumerate(days) for b in days[n + 1 :]]
    slope = median(slopes) if slopes and len(days) >= least_for_slope else Fraction(0)
    at = median([points[day] - slope * day for day in days])
    off = sorted(points[day] - at - slope * day for day in days)
    tenth = len(off) // 10
    return Line(at, slope, min(off[tenth], Fraction(0)), max(off[-1 - tenth], Fraction(0)))


@dataclass(frozen=True, slots=True)
class Past:
    """Day 0 is the report's, -1 the one before. stored: bytes stored in the log by day. others: bytes of the disk
    besides the log, by day, day 0 among them. log: its bytes now. file_bytes: of each of its files; 0 if unknown."""

    stored: Mapping[int, int]
    others: Mapping[int, int]
    log: int
    retention_days: Fraction
    file_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes of the log by the day on which they were stored. by_day: of the last PAST days. before: of each day before
    those, within the retention. slack: bytes older than the retention, since a file is deleted as a whole."""

    by_day: Mapping[int, Fraction]
    before: Fraction
    slack: Fraction


def content(past: Past) -> Content:
    """Return the log's bytes by day. Bytes that the facts do not cover are spread evenly over the days that they do not
    cover. If the log holds less than the facts say, the oldest bytes were deleted early."""
    left = Fraction(past.log)
    found: dict[int, Fraction] = {}
    unknown: list[int] = []
    days = _before(0, past.retention_days)
    for day in range(0, -PAST, -1):
        weight = _weight(day, 0, past.retention_days)
        if not weight:
            break
        if day in past.stored:
            found[day] = min(left / weight, Fraction(past.stored[day]))
            left -= found[day] * weight
        else:
            unknown.append(day)
            days += weight
    if not days:
        # A file is deleted as a whole, once a day. If more is older than that explains, the retention was shortened,
        # and the bytes beyond are deleted soon.
        most = past.file_bytes + max(found.values(), default=Fraction(0)) if past.file_bytes else left
        return Content(found, Fraction(0), min(left, most))
    return Content({**found, **dict.fromkeys(unknown, left / days)}, left / days, Fraction(0))


def _held(content: Content, end: int, retention: Fraction) -> Fraction:
    """Return how many of the log's bytes of now are still there at the end of day `end`."""
    of_days = (bytes_of * _weight(day, end, retention) for day, bytes_of in content.by_day.items())
    return sum(of_days, content.slack + content.before * _before(end, retention))


def _before(end: int, retention: Fraction) -> Fraction:
    """Return how many of the days before the last PAST are younger than the retention at the end of day `end`."""
    return max(Fraction(0), retention - PAST - end)


def _weight(day: int, end: int, retention: Fraction) -> Fraction:
    """Return the part of a day that is younger than the retention at the end of day `end`, 0 to 1."""
    return min(Fraction(1), max(Fraction(0), day - end + retention))


def expect(past: Past, days: int = HORIZON) -> list[tuple[int, int, int]]:
    """Return (low, middle, high) bytes used at the end of day 1, 2, ..."""
    stored = line_through(past.stored, LEAST_FOR_GROWTH)
    others = line_through(past.others)
    there = content(past)
    found = []
    for end in range(1, days + 1):
        held = _held(there, end, past.retention_days)
        sums = []
        for off, other in ((stored.low, others.low), (Fraction(0), Fraction(0)), (stored.high, others.high)):
            new = sum(
                max(Fraction(0), stored.at + stored.slope * day + off) * _weight(day, end, past.retention_days)
                for day in range(max(1, end - int(past.retention_days)), end + 1)
            )
            rest = past.others[0] + others.slope * end + other
            sums.append(max(0, round(held + new + max(Fraction(0), rest))))
        found.append((sums[0], sums[1], sums[2]))
    return found


def first_above(values: Sequence[int], limit: int) -> int | None:
    """Return the days from now, 1 or more, until a value reaches the limit; None if none does."""
    return next((n for n, value in enumerate(values, 1) if value >= limit), None)


def levels_off(past: Past) -> bool:
    """True if nothing grows once the log is as old as its retention."""
    return line_through(past.stored, LEAST_FOR_GROWTH).slope <= 0 and line_through(past.others).slope <= 0
