"""Times as callers may give them: milliseconds since 1970, or text as people type it (`typed_times`)."""

from __future__ import annotations

from typing import Annotated, Any

from django.utils import timezone
from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from ..console.models import now_ms
from ..typed_times import EXAMPLES, LONGEST, milliseconds_of

#: Largest time: SQLite and the wire have 63 bits, and the window adds one.
LAST_MS = (1 << 63) - 2

_MESSAGE = f"must be milliseconds since 1970, or a time like 2026-11-21T13:34:32Z, {', '.join(EXAMPLES[1:])}"


def _given(value: Any) -> Any:
    """Digits in an address are a number, as everywhere there. Without a zone it is read in the caller's."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("moment", _MESSAGE)
    if isinstance(value, int):
        return value
    try:
        return milliseconds_of(value, now_ms(), timezone.get_current_timezone())
    except ValueError:
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
                {
                    "type": "string",
                    "maxLength": LONGEST,
                    "description": "As people say it, in UTC for a token and in the user's zone for a session.",
                    "examples": list(EXAMPLES),
                },
            ]
        }
    ),
]
