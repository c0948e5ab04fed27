"""The JSON of a header, read and written by Python's own parser. PURE.

For a client's wheel, which requires no package: `header_codecs` takes this module where msgspec is not installed. It
reads what msgspec reads there, into the same fields, and refuses what msgspec refuses; and, which msgspec does not, any
number outside 64 bits.
"""

from __future__ import annotations

import json
from typing import Any

from ..fastjson import PEER_DECODER, check_pairs
from ..named_tuple import NamedTuple


class JsonError(ValueError):
    """A text is no JSON, or not the JSON of a header."""


class PlainHeader(NamedTuple):
    """The fields of a header as they are written."""

    code: int
    opaque: int = 0
    flag: int = 0
    version: int = 0
    language: Any = None
    remark: str | None = None
    extFields: dict[str, str | int | float | bool | None] | None = None


_NUMBER, _TEXT = frozenset((int,)), frozenset((str, type(None)))
#: Field -> the types that its value may have. None among them stands for a field that is left out.
_KINDS = {
    **dict.fromkeys(("code", "opaque", "flag", "version"), _NUMBER),
    "remark": _TEXT,
    "extFields": frozenset((dict, type(None))),
}
_VALUES = frozenset((str, int, float, bool, type(None)))


def decode(data: memoryview | bytes) -> PlainHeader:
    """Return the fields. Raises JsonError, and UnicodeDecodeError for bytes that are not UTF-8."""
    text = bytes(data).decode()
    try:
        found = PEER_DECODER.decode(text)
        check_pairs(text)
    except ValueError as error:
        raise JsonError(str(error)) from None
    if type(found) is not dict or "code" not in found:
        raise JsonError("it is no object with a code")
    for name, kinds in _KINDS.items():
        if name in found and type(found[name]) not in kinds:
            raise JsonError(f"{name} is a {type(found[name]).__name__}")
    for name, value in (found.get("extFields") or {}).items():
        if type(value) not in _VALUES:
            raise JsonError(f"extFields.{name} is a {type(value).__name__}")
    return PlainHeader(**{name: found[name] for name in PlainHeader._fields if name in found})


def encode(value: Any) -> bytes:
    """Return a text, or texts by name, as JSON. Raises UnicodeEncodeError for half a surrogate pair."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
