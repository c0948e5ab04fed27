"""Finds the part of the log that may hold messages of a time range. Plain Python: neither numpy nor pyspark.

    begin ...... | known from ......... low [ wanted ) high ......... known to | ...... end
    all is read    left out                            left out                  all is read

Where store times are known to ascend, two places bound the messages of a time range: they are searched first among the
begins of files, then by bisection among records that queue entries name. Elsewhere a clock may have been set back: any
message may lie anywhere, and everything is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

#: A bisection ends when the two places are at most this far apart: reading that costs at most as much as the next step.
NEAR_BYTES = 64 << 10

#: Physical offsets, the second not included.
Range = tuple[int, int]
#: Returns the store time in ms of the record at a physical offset, None if there is none.
TimeAt = Callable[[int], int | None]
#: (from, to) -> physical offset of the first record that is known to begin in that range, None without one.
NextStart = Callable[[int, int], int | None]


def within(
    known: Range,
    places: Iterable[int],
    from_ms: int | None,
    to_ms: int | None,
    time_at: TimeAt,
    next_start: NextStart | None = None,
) -> Range:
    """Return the part of `known`, in which store times ascend, that holds all its messages of [from_ms, to_ms).

    places: begins of records, ascending; those outside of `known` are ignored. Without next_start only they bound the
    part."""
    low, high = known
    marks = [(at, ms) for at in places if known[0] <= at < known[1] and (ms := time_at(at)) is not None]
    if from_ms is not None:
        low = _around(known, marks, from_ms, time_at, next_start)[0]
    if to_ms is not None:
        high = _around(known, marks, to_ms, time_at, next_start)[1]
    return low, max(low, high)


def _around(
    known: Range, marks: list[tuple[int, int]], at_ms: int, time_at: TimeAt, next_start: NextStart | None
) -> Range:
    """Return two places at which records begin, or ends of `known`: all records before the first are older than at_ms,
    and none from the second on is."""
    low = max((at for at, ms in marks if ms < at_ms), default=known[0])
    high = min((at for at, ms in marks if ms >= at_ms), default=known[1])
    if low > high:  # they do not ascend
        return known
    top = high
    while next_start is not None and top - low > NEAR_BYTES:
        middle = (low + top) // 2
        place = next_start(middle, top)
        found = None if place is None else time_at(place)
        if place is not None and found is not None and found < at_ms:
            low = place
            continue
        if place is not None and found is not None:
            high = place
        top = middle
    return low, high


def ranges(begin: int, end: int, known: Range, wanted: Range) -> list[Range]:
    """Return the ranges of [begin, end) to read: all of it, except the part of `known` that is not `wanted`."""
    found: list[Range] = []
    for low, high in ((begin, known[0]), wanted, (known[1], end)):
        low, high = max(low, begin), min(high, end)
        if low >= high:
            continue
        if found and found[-1][1] == low:
            found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return found
