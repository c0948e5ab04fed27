"""The bounds of one decoding, and what both formats share."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

#: Bounds of a schema: bytes as uploaded, types and fields, and nesting.
SCHEMA_BYTES, SCHEMA_PARTS, SCHEMA_DEPTH = 256 << 10, 20_000, 64
#: Bounds of a type's full name, which has the package before it: characters, and parts between dots. A type is looked
#: for by its name behind each part of the scope.
NAME_CHARS, NAME_PARTS = 1000, 2 * SCHEMA_DEPTH
#: Bounds of one body on a page: values (each takes some 3 µs), nesting, and characters of the JSON with its indents.
MOST_VALUES, MOST_DEPTH, MOST_CHARS = 50_000, 64, 2 << 20


class BadSchema(Exception):
    """A schema that cannot be used. str(): the reason, part of a sentence."""


class Unfit(Exception):
    """A body that does not fit its schema, or is too large to decode. str(): the reason, part of a sentence."""


class Undecided(Unfit):
    """A body that may fit: it is too large to be decoded here, or its schema is not known yet."""


class Work:
    """Counts what one decoding does. values, chars: how many more there may be."""

    __slots__ = ("chars", "depth", "values")

    def __init__(self, values: int = MOST_VALUES, chars: int = MOST_CHARS) -> None:
        self.values = values
        self.chars = chars
        self.depth = 0

    def value(self, chars: int = 0) -> None:
        """Count a value whose name or text has so many characters. Raises Unfit beyond the bounds."""
        self.values -= 1
        self.chars -= chars + 2 * self.depth + 8
        if self.values < 0:
            raise Undecided("it has too many values to be shown")
        if self.chars < 0:
            raise Undecided("it is too long to be shown")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise Unfit(f"it is nested more than {MOST_DEPTH} levels deep")


def bytes_text(data: bytes | memoryview, work: Work) -> str:
    """Return bytes as base64."""
    work.value(len(data) * 4 // 3)
    return base64.b64encode(data).decode()


def text_of(data: bytes | memoryview, work: Work) -> str:
    """Raises Unfit unless the bytes are UTF-8."""
    work.value(len(data))
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise Unfit("a text in it is not UTF-8") from None


def float_of(number: float, single: bool = False) -> Any:
    """Return a float for JSON, which has no NaN and no infinity; of 32 bits with the fewest digits that mean it."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if single:
        for digits in (6, 7, 8):
            short = float(f"{number:.{digits}g}")
            try:
                if struct.pack("<f", short) == struct.pack("<f", number):
                    return short
            except OverflowError:
                continue
    return number
