"""Moments as callers may give them: milliseconds since 1970, or RFC 3339 text with its zone."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

#: As SQLite and the wire hold them: in 63 bits, and the window counts one further.
LAST_MS = (1 << 63) - 2

# fromisoformat takes more: dates alone, weeks, times without a zone.
_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)\Z", re.ASCII
)  # fmt: skip
_MESSAGE = "must be milliseconds since 1970, or a time with its zone like 2026-11-21T13:34:32Z"


def milliseconds_of(text: str) -> int:
    """The moment that RFC 3339 text names. ValueError for any other text, and before 1970."""
    if not _RFC_3339.match(text):
        raise ValueError(text)
    found = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text.upper().replace(" ", "T"))).timestamp() * 1000
    if found < 0:
        raise ValueError(text)
    return int(found)


def _given(value: Any) -> Any:
    """Digits in an address are a number, as everywhere there."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("moment", _MESSAGE)
    if isinstance(value, int):
        return value
    if value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    try:
        return milliseconds_of(value)
    except (ValueError, OverflowError):
        raise PydanticCustomError("moment", _MESSAGE) from None


Moment = Annotated[
    int,
    BeforeValidator(_given),
    Field(ge=0, le=LAST_MS),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": LAST_MS, "description": "Milliseconds since 1970."},
                {"type": "string", "format": "date-time", "description": "RFC 3339, with a zone."},
            ]
        }
    ),
]
