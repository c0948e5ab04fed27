"""The body of a batch: small messages back to back. PURE.

Each: total size 4, magic 4 (0), crc 4 (0), flag 4, body length 4, body, properties length 2, properties.
Source: RocketMQ `MessageDecoder.encodeMessages`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ...errors import RefusedRequest
from ...protocol.codes import ResponseCode
from ...protocol.properties import encode_properties

_HEAD = struct.Struct(">iiiii")


def _refused(why: str) -> RefusedRequest:
    return RefusedRequest(ResponseCode.MESSAGE_ILLEGAL, f"the batch is illegal: {why}")


def split_batch(body: memoryview) -> Iterator[tuple[int, memoryview, bytes]]:
    """(flag, body, properties in UTF-8) of each message; refuses with 13 when the lengths contradict each other."""
    at, size = 0, len(body)
    while at < size:
        if size - at < _HEAD.size + 2:
            raise _refused(f"{size - at} bytes are left over")
        total, _, _, flag, length = _HEAD.unpack_from(body, at)
        begin = at + _HEAD.size
        end = begin + length
        if length < 0 or end + 2 > size:
            raise _refused("a body is longer than the batch")
        properties_end = end + 2 + (body[end] << 8 | body[end + 1])
        if properties_end > size or properties_end - at != total:
            raise _refused("a message's size is not that of its parts")
        properties = bytes(body[end + 2 : properties_end])
        if not properties.isascii():
            try:
                properties.decode()
            except UnicodeDecodeError:
                raise _refused("properties are not UTF-8") from None
        yield flag, body[begin:end], properties
        at = properties_end


class MemberProperties:
    """What a batch's own properties add to each member's.

    A name the member has itself is not given twice: Java's readers would take the batch's value, so that all members of
    a 5.x batch would share its UNIQ_KEY. Members mostly have the same names, hence few different additions.
    """

    def __init__(self, common: dict[str, str]) -> None:
        self._marks = [(f"\x02{name}\x01".encode(), 1 << i) for i, name in enumerate(common)]
        self._pairs = [(1 << i, encode_properties({name: common[name]})) for i, name in enumerate(common)]
        self._additions: dict[int, bytes] = {}

    def join(self, properties: bytes) -> bytes:
        """A member's properties as stored."""
        marked = b"\x02" + properties
        has = 0
        for mark, bit in self._marks:
            if mark in marked:
                has |= bit
        added = self._additions.get(has)
        if added is None:
            added = "".join([pair for bit, pair in self._pairs if not has & bit]).encode()
            self._additions[has] = added
        return properties + added if marked[-1] == 2 else properties + b"\x02" + added
