"""Reads the fields of a request's header: text in, checked values out. PURE.

Every field is transmitted as text, and is absent, empty or present; the binary encoding cannot tell the first two
apart, so they count the same here. Apache's decoder leaves a missing or malformed field null, and its handlers then
fail with a NullPointerException. RocketBox refuses the request with the code that those failures end in, SYSTEM_ERROR,
and a remark that names the field.
"""

from __future__ import annotations

import re

from ..errors import RefusedRequest
from .codes import ResponseCode
from .command import RemotingCommand

I32_MIN, I32_MAX = -(1 << 31), (1 << 31) - 1
I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}\Z", re.ASCII)


def require_str(request: RemotingCommand, name: str) -> str:
    """Return the field's text. Raises RefusedRequest if it is absent or empty."""
    value = request.ext_fields.get(name)
    if not value:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the header field {name} is missing")
    return value


def _number(name: str, text: str, low: int, high: int) -> int:
    """Parse like `Integer.parseInt` and `Long.parseLong`: decimal digits with an optional sign and nothing else."""
    if not _NUMBER.match(text) or not low <= (value := int(text)) <= high:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f'the header field {name} is not a number: "{text[:64]}"')
    return value


def require_int(request: RemotingCommand, name: str) -> int:
    """Return a required i32. Raises RefusedRequest if it is absent or no number of 32 bits."""
    return _number(name, require_str(request, name), I32_MIN, I32_MAX)


def require_long(request: RemotingCommand, name: str) -> int:
    """Return a required i64. Raises RefusedRequest if it is absent or no number of 64 bits."""
    return _number(name, require_str(request, name), I64_MIN, I64_MAX)


def optional_int(request: RemotingCommand, name: str, default: int) -> int:
    """Return an i32, or `default` if it is absent or empty."""
    text = request.ext_fields.get(name)
    return _number(name, text, I32_MIN, I32_MAX) if text else default


def optional_long(request: RemotingCommand, name: str, default: int) -> int:
    """Return an i64, or `default` if it is absent or empty."""
    text = request.ext_fields.get(name)
    return _number(name, text, I64_MIN, I64_MAX) if text else default


def optional_bool(request: RemotingCommand, name: str, default: bool) -> bool:
    """Parse like `Boolean.parseBoolean`: true for "true" in any case, else false; `default` if absent or empty."""
    text = request.ext_fields.get(name)
    return text.lower() == "true" if text else default
