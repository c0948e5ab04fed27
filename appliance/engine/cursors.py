"""Cursors: the place where the next page begins, as text for a URL. A cursor is no secret and gives no access; it is
checked for damage."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

#: Grows with each change of the cursors' content: older cursors are refused then.
_VERSION = 1
_CRC_BYTES = 4
#: Size of the page of a table that becomes a file, and of one that has all rows.
PART_SIZE, WHOLE = 10_000, sys.maxsize

T = TypeVar("T")


def encode_cursor(fields: tuple[object, ...]) -> str:
    raw = msgspec.msgpack.encode((_VERSION, fields))
    return (raw + zlib.crc32(raw).to_bytes(_CRC_BYTES, "big")).hex()


def decode_cursor(text: str, fields: type[T]) -> T:
    """Return a cursor's content. fields: its type, a tuple or NamedTuple. Raises ValueError for any other text."""
    raw = bytes.fromhex(text)
    body, crc = raw[:-_CRC_BYTES], int.from_bytes(raw[-_CRC_BYTES:], "big")
    if zlib.crc32(body) != crc:
        raise ValueError("the cursor is damaged")
    version, found = msgspec.msgpack.decode(body, type=tuple[int, fields])  # type: ignore[valid-type]
    if version != _VERSION:
        raise ValueError(f"a cursor of version {version}")
    return found


def whole(fetch: Callable[[int, int], Any]) -> Any:
    """Return a table as one page with all rows. fetch: (page, page size) -> a `snapshots.Page`."""
    # In one call: of several pages, changes in between would leave out rows, or repeat some.
    return fetch(1, WHOLE)
