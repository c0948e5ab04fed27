"""Code, opaque and flag of a header, without decoding the rest of it: for frames that are refused or put off.

No more than 2 ms on the I/O thread, however long the header is.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

import msgspec

_I32_MIN, _I32_MAX = -(1 << 31), (1 << 31) - 1
#: Read as JSON up to here, 1.2 ms at most on a slow machine; four times what is taken at all.
_READ_BYTES = 1024 * 1024
#: Of a longer one: where clients put these three, before `extFields` (Go) or behind them (Java, C++).
_END_BYTES = 1024

_FIXED = struct.Struct(">hbhii")  # ROCKETMQ: code, language, version, opaque, flag
#: Inside a text each quote has a backslash before it, so this is never a part of one.
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
    """What a whole header says; None when that cannot be known (then the frame is a bad one)."""
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
    """Of a header too long to read: its beginning up to `extFields`, then its end."""
    begin, _, _ = bytes(header[:_END_BYTES]).partition(b'"extFields"')
    found = {}
    # A member counts where it stands last in the end: what is before it may belong to the fields.
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
