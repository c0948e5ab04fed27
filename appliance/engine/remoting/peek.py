"""Code, opaque and flag of a header, without decoding the rest: for frames that are refused or have to wait.

Takes the I/O thread at most 2 ms, whatever the header's length.
"""

from __future__ import annotations

import re
import struct

import msgspec

from ..named_tuple import NamedTuple

_I32_MIN, _I32_MAX = -(1 << 31), (1 << 31) - 1
#: A header up to this size is read as JSON, in at most 1.2 ms on a slow machine; four times the longest accepted one.
_READ_BYTES = 1024 * 1024
#: Bytes searched at each end of a longer one: clients write the three before `extFields` (Go) or behind.
_END_BYTES = 1024

_FIXED = struct.Struct(">hbhii")  # ROCKETMQ: code, language, version, opaque, flag
#: Inside a JSON string each quote has a backslash before it, so this never matches a part of one.
_MEMBER = re.compile(rb'[{,]\s*"(code|opaque|flag)"\s*:\s*(-?[0-9]{1,10})\s*(?=[,}])')


class Peeked(NamedTuple):
    """Three numbers of a header, each of 32 bits."""

    code: int
    opaque: int
    flag: int


class _Members(msgspec.Struct, gc=False):
    code: int
    opaque: int = 0
    flag: int = 0


_decode = msgspec.json.Decoder(_Members).decode


def peek(codec: int, header: memoryview) -> Peeked | None:
    """Return the three numbers of a header; None if they cannot be found, which makes the frame a bad one."""
    if codec == 1:
        if len(header) < _FIXED.size:
            return None
        code, _, _, opaque, flag = _FIXED.unpack_from(header)
        return Peeked(code & 0xFFFF, opaque, flag)
    if codec != 0:
        return None
    if len(header) > _READ_BYTES:
        return _peek_ends(header)
    try:
        found = _decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return _checked(found.code, found.opaque, found.flag)


def _peek_ends(header: memoryview) -> Peeked | None:
    """Search a header that is too long to read at its start, up to `extFields`, and at its end."""
    begin, _, _ = bytes(header[:_END_BYTES]).partition(b'"extFields"')
    found = {}
    # The last match in the end counts, since earlier ones may be fields.
    for part in (bytes(header[-_END_BYTES:]), begin):
        for name, number in _MEMBER.findall(part):
            found[name] = int(number)
    if b"code" not in found or b"opaque" not in found:
        return None
    return _checked(found[b"code"], found[b"opaque"], found.get(b"flag", 0))


def _checked(code: int, opaque: int, flag: int) -> Peeked | None:
    if all(_I32_MIN <= number <= _I32_MAX for number in (code, opaque, flag)):
        return Peeked(code, opaque, flag)
    return None
