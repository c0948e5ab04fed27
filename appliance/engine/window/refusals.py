"""Refuses arguments of the window's methods that are out of their bounds, in the same sentences everywhere."""

from __future__ import annotations

from collections.abc import Collection

from ..errors import InvalidInput
from .sentences import say

#: End of the times in ms that are taken: a signed integer of 64 bits holds them.
END_MS = (1 << 63) - 1


def require_within(field: str, value: float, low: int, high: float) -> None:
    """Raise InvalidInput unless low <= value <= high."""
    if not low <= value <= high:
        raise InvalidInput(field, say("out_of_range", field=field, low=low, high=int(high)))


def require_one_of(field: str, value: str, choices: Collection[str]) -> None:
    """Raise InvalidInput unless the value is one of the choices."""
    if value not in choices:
        raise InvalidInput(field, say("one_of", field=field, choices=", ".join(choices)))


def require_span(from_ms: int | None, to_ms: int | None) -> None:
    """Raise InvalidInput unless both are times in ms, or None, and in order."""
    for name, value in (("from_ms", from_ms), ("to_ms", to_ms)):
        if value is not None and not 0 <= value < END_MS:
            raise InvalidInput(name, say("not_a_time", field=name))
    if from_ms is not None and to_ms is not None and from_ms > to_ms:
        raise InvalidInput("to_ms", say("times_reversed"))
