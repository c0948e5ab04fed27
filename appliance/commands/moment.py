"""Parses a time of a command line, in this machine's zone."""

from __future__ import annotations

import time

from ..engine.errors import StartError
from ..typed_times import EXAMPLES, milliseconds_of


def moment(option: str, text: str) -> int:
    """Return milliseconds since 1970. Raises StartError, which names the option."""
    try:
        return milliseconds_of(text, time.time_ns() // 1_000_000, None)
    except ValueError:
        *most, last = (f'"{one}"' if " " in one else one for one in EXAMPLES)
        raise StartError(f"{option} needs a time like {', '.join(most)} or {last}, not {text!r}.") from None
