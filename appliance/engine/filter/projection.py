"""The part of a record that an expression sees: values of the properties that it names, straight from the record's
bytes.

Two messages with the same values get the same verdict, so the values are a key under which it can be remembered. Most
messages of a topic differ only in what no expression names. `property_values` is the reference of the compiled one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol.properties import decode_properties
from ..protocol.record import FIXED_BYTES, MAGIC_V1, MAGIC_V2, body_length_at

#: Between the values of a key: no value holds it.
SEPARATOR = b"\x02"
_MAGICS = frozenset((MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big")))


def needles(names: Sequence[str]) -> tuple[bytes, ...]:
    """Return the bytes that a pair of each name begins with, behind the end of another pair."""
    return tuple(b"\x02" + name.encode() + b"\x01" for name in names)


def property_values(data: bytes, places: Sequence[tuple[int, int]], wanted: tuple[bytes, ...]) -> list[bytes | None]:
    """Return for each record of `data`, as (place, size), the values of the properties that `needles` made `wanted` of:
    joined by SEPARATOR, empty where there is none. None where there is no record."""
    return [_values(data, at, at + size, wanted) for at, size in places]


def _values(data: bytes, at: int, end: int, wanted: tuple[bytes, ...]) -> bytes | None:
    begin = properties_at(data, at, end)
    if begin is None:
        return None
    found = []
    for needle in wanted:
        place = data.rfind(needle, begin, end)
        if place >= 0:
            value_at = place + len(needle)
        elif data.startswith(needle[1:], begin, end):
            value_at = begin + len(needle) - 1
        else:
            found.append(b"")
            continue
        value_end = data.find(SEPARATOR, value_at, end)
        value = data[value_at : end if value_end < 0 else value_end]
        if not value:  # a pair without a value does not count, one before it may
            return _values_decoded(data[begin:end], wanted)
        found.append(value)
    return SEPARATOR.join(found)


def _values_decoded(text: bytes, wanted: tuple[bytes, ...]) -> bytes:
    """Return the same for properties of which one has no value, by decoding all of them."""
    properties = decode_properties(text.decode(errors="surrogateescape"))
    values = [properties.get(needle[1:-1].decode(), "") for needle in wanted]
    return SEPARATOR.join([value.encode(errors="surrogateescape") for value in values])


def properties_at(data: bytes, at: int, end: int) -> int | None:
    """Return where the properties of the record at `data[at:end]` begin; they end with it. None without a record."""
    if end > len(data) or end - at < FIXED_BYTES or data[at + 4 : at + 8] not in _MAGICS:
        return None
    place = body_length_at(data, at)
    place += 4 + int.from_bytes(data[place : place + 4], "big")
    if place + 4 > end:
        return None
    if data[at + 7] == MAGIC_V1 & 0xFF:
        place += 1 + data[place]
    else:
        place += 2 + int.from_bytes(data[place : place + 2], "big")
    if place + 2 > end or place + 2 + int.from_bytes(data[place : place + 2], "big") != end:
        return None
    return place + 2
