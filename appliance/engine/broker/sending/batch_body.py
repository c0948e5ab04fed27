"""The body of a batch, small messages back to back, and the records it becomes. PURE.

Each message: total size 4, magic 4 (0), crc 4 (0), flag 4, body length 4, body, properties length 2, properties.
Source: RocketMQ `MessageDecoder.encodeMessages`.
"""

from __future__ import annotations

import struct

from zlib_ng.zlib_ng import crc32

from ...errors import MessageTooLarge, RefusedRequest
from ...named_tuple import NamedTuple
from ...protocol.codes import ResponseCode
from ...protocol.properties import (
    DELAY_TIME_LEVEL,
    INNER_NUM,
    MAX_PROPERTIES_BYTES,
    TIMER_NAMES,
    TRANSACTION_PREPARED,
    decode_properties,
    encode_properties,
)
from ...protocol.record import LAYOUTS, MAGIC_V1, SECTOR_BYTES, SYS_HOSTS_IPV6, UNWRITTEN
from ...store.dispatch import properties_tag_code
from ...store.queues.consume_queue import ENTRY

_HEAD = struct.Struct(">iiiii")
_TOTAL = struct.Struct(">i")
_UNIQUE_KEY = b"UNIQ_KEY\x01"

#: Most shapes of properties that are remembered, and most members of each.
_SHAPES_KEPT, _MEMBERS_KEPT = 256, 1024
#: Most members of one batch. Apache's own example of splitting sends up to 13,275 at once; with usual properties 16,000
#: fill the 4 MiB of records that its broker stores of one batch. All of them are packed in one go, which takes 40 to 90
#: ms in Python.
MOST_MEMBERS = 16_384
_LEAST_MEMBER_BYTES = 22
#: Longer properties are not remembered: clients could fill gigabytes with them.
_LONGEST_SHAPE = 256


class Member(NamedTuple):
    """Bytes that the batch's own properties add to a member's, and the tag code of both together."""

    added: bytes
    tag_code: int


class MemberProperties:
    """Adds a batch's own properties to those of each member.

    A name that the member has itself is not added: Java's readers would take the batch's value, so that all members of
    a 5.x batch would share its UNIQ_KEY. Members mostly have the same names, hence few different additions.
    """

    def __init__(self, common: dict[str, str]) -> None:
        self._marks = [(f"\x02{name}\x01".encode(), 1 << i) for i, name in enumerate(common)]
        self._pairs = [(1 << i, encode_properties({name: common[name]})) for i, name in enumerate(common)]
        self._additions: dict[int, bytes] = {}

    def addition(self, properties: bytes) -> bytes:
        """Return the bytes that come behind a member's properties."""
        marked = b"\x02" + properties
        has = 0
        for mark, bit in self._marks:
            if mark in marked:
                has |= bit
        added = self._additions.get(has)
        if added is None:
            added = "".join([pair for bit, pair in self._pairs if not has & bit]).encode()
            self._additions[has] = added
        return added if marked[-1] == 2 else b"\x02" + added


class Shapes:
    """Remembers the `Member` of each shape of properties, over batches.

    A Member does not depend on the value of the message's UNIQ_KEY, which is all that differs between most members;
    nor, for members that have one, on the value of the batch's own. So both values are left out of the keys here.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, dict[bytes, Member]] = {}

    def of(self, common: bytes) -> dict[bytes, Member]:
        """Return the members known for a batch's own properties. A member's key is its properties behind the value of
        its UNIQ_KEY, which they begin with."""
        head, found, rest = common.partition(_UNIQUE_KEY)
        if not found or (head and head[-1] != 2):
            return {}  # UNIQ_KEY is only the end of another name, whose value counts
        key = head + rest[rest.find(b"\x02") :]
        known = self._known.get(key)
        if len(key) > _LONGEST_SHAPE:
            return {}
        if known is None or len(known) >= _MEMBERS_KEPT:
            if len(self._known) >= _SHAPES_KEPT:
                self._known.clear()
            known = self._known[key] = {}
        return known


class MemberLook:
    """Looks at the properties of a batch's members. common: the batch's own."""

    def __init__(self, common: bytes) -> None:
        self._common = common
        self._properties: MemberProperties | None = None

    def look_at(self, own: bytes) -> Member:
        """Return the Member of a message's own properties. Refuses a message that a batch may not hold."""
        try:
            text = own.decode()
        except UnicodeDecodeError:
            raise _refused("properties are not UTF-8") from None
        if "DELAY" in text or "TIMER_" in text or "TRAN_MSG" in text or "INNER_NUM" in text:
            names = decode_properties(text)
            if TRANSACTION_PREPARED in names or any(name in names for name in (DELAY_TIME_LEVEL, *TIMER_NAMES)):
                raise RefusedRequest(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot hold delayed or half messages")
            if INNER_NUM in names:
                raise _refused("a message is a batch of its own")
        if "\0" in text and UNWRITTEN in own:
            raise _refused(f"properties hold {len(UNWRITTEN)} zeros in a row")
        if self._properties is None:
            self._properties = MemberProperties(decode_properties(self._common.decode()))
        added = self._properties.addition(own)
        return Member(added, properties_tag_code(text + added.decode()))


class BatchRecords:
    """A batch on its way into the log. common: the batch's own properties, which each member gets behind its own."""

    def __init__(
        self,
        body: memoryview,
        topic_field: bytes,
        queue_id: int,
        common: bytes,
        shapes: Shapes,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int,
    ) -> None:
        self._raw = bytes(body)
        self._topic_field = topic_field
        self._queue_id = queue_id
        self._look_at = MemberLook(common).look_at
        self._known = shapes.of(common)
        self._layout = layout = LAYOUTS[len(born_host), len(store_host)]
        self._before_time = (sys_flag & ~SYS_HOSTS_IPV6 | layout.host_flags, born_ms, born_host)
        self._after_time = (store_host, reconsume_times, 0)

    def pack(self, offset: int, physical: int, store_ms: int) -> tuple[bytes, bytes, list[int]]:
        """Return (records, queue entries, physical offsets), from queue offset `offset` and physical offset `physical`
        on.

        Refuses with 13 a body that is no batch, or holds messages that a batch may not hold. Raises MessageTooLarge,
        struct.error.
        """
        raw, known, queue_id, topic_field = self._raw, self._known, self._queue_id, self._topic_field
        size = len(raw)
        self._count(raw, size)
        same: dict[bytes, Member] = {}  # members without a key of their own, which get the batch's
        layout = self._layout
        shared = layout.shared.pack(*self._before_time, store_ms, *self._after_time)
        pack_head = layout.with_shared.pack
        overhead = layout.with_shared.size + len(topic_field) + 2
        split_head, pack_entry = _HEAD.unpack_from, ENTRY.pack
        middles: dict[int, bytes] = {}
        parts: list[bytes] = []
        entries = bytearray()
        found = []
        at = 0
        while at < size:
            if size - at < 22:
                raise _refused(f"{size - at} bytes are left over")
            total, _, _, flag, length = split_head(raw, at)
            end = at + 20 + length
            if length < 0 or end + 2 > size:
                raise _refused("a body is longer than the batch")
            following = at + total
            if following > size or total - length - 22 != (raw[end] << 8 | raw[end + 1]):
                raise _refused("a message's size is not that of its parts")
            body = raw[at + 20 : end]
            own = raw[end + 2 : following]
            at = following
            member = shape = None
            if own[:9] == _UNIQUE_KEY and own.isascii():
                cut = own.find(b"\x02", 9)
                if 0 < cut < SECTOR_BYTES:  # too short for zeros that matter
                    shape = own[cut:]
                    member = known.get(shape)
            if member is None and shape is None:
                member = same.get(own)
            if member is None:
                member = self._look_at(own)
                if shape is None:
                    if len(own) <= _LONGEST_SHAPE and len(same) < _MEMBERS_KEPT:
                        same[own] = member
                elif len(shape) <= _LONGEST_SHAPE:
                    known[shape] = member
            added, code = member
            text_size = len(own) + len(added)
            middle = middles.get(text_size)
            if middle is None:
                if text_size > MAX_PROPERTIES_BYTES:
                    raise MessageTooLarge(f"{text_size} bytes of properties")
                middle = middles[text_size] = topic_field + text_size.to_bytes(2, "big")
            record = overhead + length + text_size
            parts += (
                pack_head(record, MAGIC_V1, crc32(body) & 0x7FFFFFFF, queue_id, flag, offset, physical, shared, length),
                body,
                middle,
                own,
                added,
            )
            entries += pack_entry(physical, record, code)
            found.append(physical)
            offset += 1
            physical += record
        return b"".join(parts), bytes(entries), found

    @staticmethod
    def _count(raw: bytes, size: int) -> None:
        """Refuse a batch of more than MOST_MEMBERS messages, before any of them is looked at."""
        if size <= MOST_MEMBERS * _LEAST_MEMBER_BYTES:
            return
        at = count = 0
        total_at = _TOTAL.unpack_from
        while size - at >= _LEAST_MEMBER_BYTES:
            count += 1
            if count > MOST_MEMBERS:
                raise _refused(f"it has more than {MOST_MEMBERS} messages")
            (total,) = total_at(raw, at)
            if total < _LEAST_MEMBER_BYTES:
                return  # no batch; `pack` refuses it
            at += total


def _refused(why: str) -> RefusedRequest:
    return RefusedRequest(ResponseCode.MESSAGE_ILLEGAL, f"the batch is illegal: {why}")
