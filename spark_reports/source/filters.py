"""Filters that Spark pushes down: uses those that limit where messages are.

They only narrow what is read. Spark still applies every one of them, so they cannot change the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from .wanted import Wanted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def narrowed(wanted: Wanted, filters: Iterable[Filter]) -> Wanted:
    """Return `wanted` limited to rows that may pass all filters."""
    for one in filters:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        narrow = _BY_COLUMN.get(path[0]) if len(path) == 1 else None
        if narrow is not None:
            wanted = narrow(wanted, one)
    return wanted


def _values(one: Filter, kind: type) -> list[Any] | None:
    """Return the values that a filter allows for a column, None if it is no such filter."""
    values = None
    if isinstance(one, EqualTo | EqualNullSafe):
        values = [one.value]
    elif isinstance(one, In):
        values = list(one.value)
    if values is None or any(value is not None and type(value) is not kind for value in values):
        return None
    return [value for value in values if value is not None]


def _topics(wanted: Wanted, one: Filter) -> Wanted:
    values = _values(one, str)
    if values is None:
        return wanted
    # A filter is not an option: it does not include system topics.
    return replace(wanted, topics=frozenset(value for value in values if wanted.has_topic(value)))


def _queue_ids(wanted: Wanted, one: Filter) -> Wanted:
    values = _values(one, int)
    if values is None:
        return wanted
    known = wanted.queue_ids
    return replace(wanted, queue_ids=frozenset(values) if known is None else known & frozenset(values))


def _offsets(wanted: Wanted, one: Filter) -> Wanted:
    low, high = _bounds(one, int)
    return replace(wanted, from_offset=_later(wanted.from_offset, low), to_offset=_earlier(wanted.to_offset, high))


def _times(wanted: Wanted, one: Filter) -> Wanted:
    """Limit store times, which are whole ms; those of a filter may be finer."""
    low, high = _bounds(one, datetime)
    if high is not None and high[1]:
        high = (high[0] + 1, False)
    return replace(wanted, from_ms=_later(wanted.from_ms, low), to_ms=_earlier(wanted.to_ms, high))


#: A whole number; True if the exact value is a bit more.
_Bound = tuple[int, bool] | None


def _bounds(one: Filter, kind: type) -> tuple[_Bound, _Bound]:
    """Return (first, one behind the last) value that may pass."""
    values = _values(one, kind)
    if values is not None:
        numbers = [number for value in values if (number := _number(value)) is not None]
        if len(numbers) != len(values) or not values:
            return None, None
        return min(numbers), (max(numbers)[0] + 1, False)
    number = _number(getattr(one, "value", None)) if type(getattr(one, "value", None)) is kind else None
    if number is None:
        return None, None
    whole, more = number
    if isinstance(one, GreaterThan):
        return (whole + 1, False), None
    if isinstance(one, GreaterThanOrEqual):
        return (whole, more), None
    if isinstance(one, LessThan):
        return None, (whole, more)
    if isinstance(one, LessThanOrEqual):
        return None, (whole + 1, False)
    return None, None


def _number(value: Any) -> _Bound:
    if type(value) is int:
        return value, False
    if isinstance(value, datetime) and value.tzinfo is not None:
        whole, rest = divmod(value - _EPOCH, _MS)
        return whole, bool(rest)
    return None


def _later(known: int | None, bound: _Bound) -> int | None:
    if bound is None:
        return known
    first = bound[0] + bound[1]
    return first if known is None else max(known, first)


def _earlier(known: int | None, bound: _Bound) -> int | None:
    if bound is None:
        return known
    return bound[0] if known is None else min(known, bound[0])


_BY_COLUMN = {"topic": _topics, "queue_id": _queue_ids, "queue_offset": _offsets, "store_ts": _times}
