"""Java's way to read a text and to compare: the rules by which RocketMQ's filter reads properties.

Texts are properties and string literals; the functions raise ValueError where Java throws NumberFormatException.
Source: Java 17, `Integer.parseInt`, `Long.parseLong`, `Double.valueOf`, `Boolean.valueOf`, `Double.compareTo`.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple

INTEGER = "integer"
LONG = "long"
DOUBLE = "double"

MAX_INTEGER = 2**31 - 1
MAX_LONG = 2**63 - 1
MIN_DOUBLE = 5e-324
MAX_DOUBLE = 1.7976931348623157e308


class Number(NamedTuple):
    """A number with its Java type, which decides how a property beside it is read."""

    type: str
    value: int | float


# `Double.valueOf` cuts off what `String.trim` does, takes Java's suffixes, and only these digits.
_BLANKS = "".join(map(chr, range(0x21)))
_DECIMAL = re.compile(r"[+-]?+(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+[fFdD]?+\Z")
_HEX = re.compile(r"([+-]?+0[xX](?:[0-9a-fA-F]++\.?+[0-9a-fA-F]*+|\.[0-9a-fA-F]++)[pP][+-]?+[0-9]++)[fFdD]?+\Z")
_NAMED = {
    **dict.fromkeys(("NaN", "+NaN", "-NaN"), math.nan),
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "-Infinity": -math.inf,
}

#: A text longer than this is read once and remembered: an expression may need the same one thousands of times.
_SHORT = 40


def integer(text: str) -> int:
    """`Integer.valueOf`: 32 bits, a sign or none, no blanks. Digits may be of any script within U+FFFF."""
    if len(text) < 10 and text.isascii() and text.isdecimal():
        return int(text)
    value = _whole(text)
    if not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
        raise ValueError("not an Integer")
    return value


def long(text: str) -> int:
    """`Long.valueOf`: 64 bits, else as `integer`."""
    if len(text) < 19 and text.isascii() and text.isdecimal():
        return int(text)
    value = _whole(text)
    if not -MAX_LONG - 1 <= value <= MAX_LONG:
        raise ValueError("not a Long")
    return value


def double(text: str) -> float:
    """`Double.valueOf`: also ` 5.0 `, `5.`, `.5f`, `1e400` (infinite), `0x1.8p3`, `NaN`, `-Infinity`."""
    if len(text) < _SHORT:
        # With these characters only, Python and Java make the same numbers.
        return _double(text) if text.strip("0123456789.+-eE") else float(text)
    found = _long_double(text)
    if found is None:
        raise ValueError("not a Double")
    return found


def boolean(text: str) -> bool:
    """`Boolean.valueOf`: "true" in any case, all else is false."""
    return len(text) == 4 and text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """`Double.compareTo`: below, at or above 0. NaN equals itself and is above all; -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        if left:
            return 0
        return int(math.copysign(1, left) - math.copysign(1, right))
    return (left != left) - (right != right)


def units(text: str) -> str:
    """Return the text with one character for each UTF-16 unit, as Java searches it."""
    return text if text.isascii() else _units(text)


@lru_cache(maxsize=16)
def _units(text: str) -> str:
    raw = text.encode("utf-16-be", "surrogatepass")
    return "".join([chr(raw[i] << 8 | raw[i + 1]) for i in range(0, len(raw), 2)])


def joined(text: str) -> str:
    """Return the text with surrogates that make a pair joined to the one character they are in Java."""
    if text.isascii():
        return text
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def _whole(text: str) -> int:
    if len(text) < _SHORT:
        return _read_whole(text)
    found = _long_whole(text)
    if found is None:
        raise ValueError("not a number")
    return found


def _read_whole(text: str) -> int:
    negative = text[:1] == "-"
    digits = text[1:] if negative or text[:1] == "+" else text
    # Python's digits are Java's, but Java looks at UTF-16 units and takes none beyond U+FFFF.
    if not digits.isdecimal() or max(digits) > "\uffff":
        raise ValueError("not a number")
    if len(digits) > 19:
        # int() refuses thousands of digits and takes long over hundreds; Java takes leading zeros, of any script.
        digits = digits.lstrip("0") if digits.isascii() else digits.lstrip(_zeros_of(digits))
        if len(digits) > 19:
            raise ValueError("more than 64 bits")
        digits = digits or "0"
    return -int(digits) if negative else int(digits)


def _zeros_of(digits: str) -> str:
    return "".join([digit for digit in set(digits) if not int(digit)])


def _double(text: str) -> float:
    text = text.strip(_BLANKS)
    if _DECIMAL.match(text):
        return float(text.rstrip("fFdD"))
    if text in _NAMED:
        return _NAMED[text]
    found = _HEX.match(text)
    if found is None:
        raise ValueError("not a number")
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return -math.inf if text[0] == "-" else math.inf


@lru_cache(maxsize=16)
def _long_whole(text: str) -> int | None:
    try:
        return _read_whole(text)
    except ValueError:
        return None


@lru_cache(maxsize=16)
def _long_double(text: str) -> float | None:
    try:
        return _double(text)
    except ValueError:
        return None
