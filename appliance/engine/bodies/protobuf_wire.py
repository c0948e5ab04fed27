"""Protobuf's binary encoding: fields, and the numbers and bytes in them. Source: protobuf.dev "Encoding"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from .protobuf_types import MOST_NUMBER
from .work import Unfit, Work

WIRE_VARINT, WIRE_FIXED64, WIRE_LENGTH, WIRE_GROUP, WIRE_GROUP_END, WIRE_FIXED32 = range(6)

Data: TypeAlias = bytes | memoryview


def fields_of(data: Data, work: Work | None = None) -> Iterator[tuple[int, int, int | Data]]:
    """Yield (number, wire type, value) of each field: an int, or a part of `data`, of a group that within. work: counts
    the fields of groups. Raises Unfit."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if not 1 <= number <= MOST_NUMBER:
            raise Unfit(f"there is no field {number}, at byte {at}")
        if wire == WIRE_VARINT:
            value, at = varint(data, at)
            yield number, wire, value
        elif wire == WIRE_GROUP:
            begin = at
            inner, at = _group(data, at, number, work)
            yield number, wire, data[begin:inner]
        else:
            begin, at = _bytes(data, at, wire, at - 1)
            yield number, wire, data[begin:at]


def _bytes(data: Data, at: int, wire: int, tag_at: int) -> tuple[int, int]:
    """Return (begin, end) of the bytes of a value that is no number and no group."""
    if wire == WIRE_LENGTH:
        size, at = varint(data, at)
    elif wire in (WIRE_FIXED64, WIRE_FIXED32):
        size = 8 if wire == WIRE_FIXED64 else 4
    else:
        raise Unfit(f"byte {tag_at} begins no field")
    if at + size > len(data):
        raise Unfit(f"it ends too early, at byte {len(data)}")
    return at, at + size


def _group(data: Data, at: int, number: int, work: Work | None) -> tuple[int, int]:
    """Return (end of the bytes within a group, position behind it). Groups in it are skipped."""
    opened = [number]
    while True:
        if work is not None:
            work.value()
        before = at
        tag, at = varint(data, at)
        found, wire = tag >> 3, tag & 7
        if wire == WIRE_VARINT:
            _, at = varint(data, at)
        elif wire == WIRE_GROUP:
            opened.append(found)
        elif wire == WIRE_GROUP_END:
            if opened.pop() != found:
                raise Unfit("a group in it has another end")
            if not opened:
                return before, at
        else:
            _, at = _bytes(data, at, wire, before)


def varint(data: Data, at: int) -> tuple[int, int]:
    found = shift = 0
    for place in range(at, min(at + 10, len(data))):
        byte = data[place]
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found & 0xFFFF_FFFF_FFFF_FFFF, place + 1
        shift += 7
    raise Unfit(f"it ends too early, at byte {at}" if at + 10 > len(data) else f"the number at byte {at} is too long")


def signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def zigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def int_of(value: int | Data) -> int:
    if not isinstance(value, int):
        raise Unfit("a number in it is of another type")
    return value


def bytes_of(value: int | Data) -> Data:
    if isinstance(value, int):
        raise Unfit("a text in it is of another type")
    return value


def name_of(value: int | Data) -> str:
    return str(bytes_of(value), "utf-8")
