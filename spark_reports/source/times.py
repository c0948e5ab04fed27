"""Which part of the log may hold messages of some times. Plain Python: neither numpy nor pyspark.

    begin ...... | known from ......... low [ wanted ) high ......... known to | ...... end
    all is read    left out                            left out                  all is read

Where store times are known to ascend, two places bound the messages of a time range: they are looked for among the
begins of files first, and then by bisection among records that queue entries name. Elsewhere a clock may have been set
back: any message may lie anywhere, and nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

#: A bisection ends where the two places are no further apart: reading that is no more work than the next look.
NEAR_BYTES = 64 << 10

#: Physical offsets, the second not included.
Range = tuple[int, int]
#: Store time in ms of the record at a physical offset; None when there is none.
TimeAt = Callable[[int], int | None]
#: (from, to): where the first record that is known to begin in that range does; None without one.
NextStart = Callable[[int, int], int | None]


def within(
    known: Range,
    places: Iterable[int],
    from_ms: int | None,
    to_ms: int | None,
    time_at: TimeAt,
    next_start: NextStart | None = None,
) -> Range:
    """The part of `known`, in which store times ascend, that holds all of its messages stored in [from_ms, to_ms).

    places: where records begin, ascending; those outside of `known` are passed over. Without next_start it is bounded
    by them alone."""
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
    """Two places at which records begin, or an end of `known`: all before the first is older, and nothing at the second
    or behind it is."""
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
    """What is read of [begin, end): all of it but what of `known` is not `wanted`."""
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
