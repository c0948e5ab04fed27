"""The stored message: one record of the commit log, which pulls also send.

    0 total size 4 | 4 magic 4 | 8 body crc 4 | 12 queue id 4 | 16 flag 4 | 20 queue offset 8 | 28 physical offset 8
    36 sys flag 4 | 40 born time 8 | 48 born host 8 or 20 | store time 8 | store host 8 or 20 | reconsume times 4
    prepared transaction offset 8 | body length 4, body | topic length 1 (V1) or 2 (V2), topic | properties length 2
    and text

All big-endian. A host takes 20 bytes if and only if its bit of the sys flag is set. A blank record (size, magic) fills
the end of a file.
Source: RocketMQ `MessageExtEncoder`, `MessageDecoder`; the same layout in 4.9 and 5.x.
"""

from __future__ import annotations

import struct

from ..errors import CorruptFile
from ..named_tuple import NamedTuple
from .message_id import decode_host

try:
    from zlib_ng.zlib_ng import crc32
except ImportError:  # in a client's wheel; the server requires it
    from zlib import crc32

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194

#: Size of a V1 record with IPv4 hosts, without body, topic and properties.
FIXED_BYTES = 91
#: Room needed for a blank record: `record + 8 > rest` rolls the file.
BLANK_BYTES = 8

SYS_COMPRESSED = 0x1
SYS_TRANSACTION_MASK = 0xC
SYS_PREPARED = 0x4
SYS_COMMIT = 0x8
SYS_ROLLBACK = 0xC
SYS_BORN_IPV6 = 0x10
SYS_STORE_IPV6 = 0x20
#: Set for hosts of 20 bytes: by the broker, whatever a client sent.
SYS_HOSTS_IPV6 = SYS_BORN_IPV6 | SYS_STORE_IPV6
SYS_INNER_BATCH = 0x80

QUEUE_OFFSET_AT = 20
PHYSICAL_OFFSET_AT = 28
STORE_TIME_AT = 56

#: Bytes that a disk writes whole or not at all.
SECTOR_BYTES = 512
#: This many zeros in a record's properties may be a sector that was never written: no Apache CRC covers it.
UNWRITTEN = bytes(SECTOR_BYTES)

SIZE_MAGIC = struct.Struct(">iI")
_U16 = struct.Struct(">H")

#: Size, magic, crc, queue id, flag, queue offset, physical offset: fields of each record, even within a batch.
_OWN = ">iIiiiqq"
_OWN_BYTES = struct.calcsize(_OWN)
_SYS_FLAG = struct.Struct(">i")


class RecordLayout(NamedTuple):
    """Packing of a record's fields before its body; it depends on the sizes of the two hosts.

    fixed: all of them: own fields, shared fields, body length. shared: fields common to all records of a batch: sys
    flag, born time, born host, store time, store host, reconsume times, prepared transaction offset. with_shared: all
    again, the shared ones as bytes. host_flags: bits of the sys flag for these hosts, which the packing code sets.
    """

    fixed: struct.Struct
    shared: struct.Struct
    with_shared: struct.Struct
    host_flags: int


def _layout(born_bytes: int, store_bytes: int) -> RecordLayout:
    shared = f"iq{born_bytes}sq{store_bytes}siq"
    host_flags = (SYS_BORN_IPV6 if born_bytes == 20 else 0) | (SYS_STORE_IPV6 if store_bytes == 20 else 0)
    together = struct.Struct(">" + shared)
    return RecordLayout(
        struct.Struct(f"{_OWN}{shared}i"), together, struct.Struct(f"{_OWN}{together.size}si"), host_flags
    )


#: (bytes of the born host, of the store host) -> layout.
LAYOUTS = {(born, store): _layout(born, store) for born in (8, 20) for store in (8, 20)}
_LAYOUT_OF_FLAGS = {layout.host_flags: layout for layout in LAYOUTS.values()}
#: Lengths of topic (V1) and properties.
LENGTHS_BYTES = 3
assert LAYOUTS[8, 8].fixed.size + LENGTHS_BYTES == FIXED_BYTES


class Record(NamedTuple):
    """One decoded record; `hosts` as (address, port), times in ms, `properties` as stored text."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_time_ms: int
    born_host: tuple[str, int]
    store_time_ms: int
    store_host: tuple[str, int]
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: str

    def was_born_with(self, other: Record) -> bool:
        """True if both may be copies of one message."""
        return (self.born_time_ms, self.born_host) == (other.born_time_ms, other.born_host)


def store_time_ms(head: bytes) -> int:
    """Return the store time of a record from its first 76 bytes, without decoding the rest."""
    at = 68 if int.from_bytes(head[36:40], "big") & SYS_BORN_IPV6 else STORE_TIME_AT
    return int.from_bytes(head[at : at + 8], "big")


def body_length_at(data: bytes, at: int = 0) -> int:
    """Return the position of the body's length, the last fixed field, in the record that begins at `data[at]`."""
    flags = data[at + 39]  # the sys flag's last byte
    return at + 84 + (12 if flags & SYS_BORN_IPV6 else 0) + (12 if flags & SYS_STORE_IPV6 else 0)


def topic_at(head: bytes) -> int:
    """Return the position of the topic's length, behind the body, in a record; from its first 112 bytes."""
    fixed = _LAYOUT_OF_FLAGS[int.from_bytes(head[36:40], "big") & SYS_HOSTS_IPV6].fixed.size
    return fixed + int.from_bytes(head[fixed - 4 : fixed], "big")


def hosts(data: bytes) -> tuple[bytes, bytes]:
    """Return (born host, store host) of a whole record, 8 or 20 bytes each, as stored."""
    flags = data[39]  # the sys flag's last byte
    born_end = 68 if flags & SYS_BORN_IPV6 else STORE_TIME_AT
    return data[48:born_end], data[born_end + 8 : born_end + (28 if flags & SYS_STORE_IPV6 else 16)]


def body_crc(body: bytes | memoryview) -> int:
    """Return the CRC-32 with bit 31 cleared, as Apache stores it; 0 for an empty body."""
    return crc32(body) & 0x7FFFFFFF


def encode_record(record: Record, born_host: bytes, store_host: bytes) -> bytes:
    """Return a record's bytes, V1 or V2 by its magic; sizes, the CRC and the hosts' flags are computed here."""
    topic = record.topic.encode()
    text = record.properties.encode()
    topic_length = bytes((len(topic),)) if record.magic == MAGIC_V1 else _U16.pack(len(topic))
    rest = b"".join((record.body, topic_length, topic, _U16.pack(len(text)), text))
    layout = LAYOUTS[len(born_host), len(store_host)]
    return (
        layout.fixed.pack(
            layout.fixed.size + len(rest),
            record.magic,
            body_crc(record.body),
            record.queue_id,
            record.flag,
            record.queue_offset,
            record.physical_offset,
            record.sys_flag & ~SYS_HOSTS_IPV6 | layout.host_flags,
            record.born_time_ms,
            born_host,
            record.store_time_ms,
            store_host,
            record.reconsume_times,
            record.prepared_transaction_offset,
            len(record.body),
        )
        + rest
    )


def decode_record(data: bytes | bytearray | memoryview, at: int = 0, check_crc: bool = True) -> Record:
    """Return the record that begins at `data[at]`; bytes behind it are ignored.

    Raises CorruptFile when the bytes are no record: bad magic, lengths that contradict its size, a wrong body CRC, text
    that is not UTF-8, or too few bytes.
    """
    try:
        size, magic = SIZE_MAGIC.unpack_from(data, at)
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            raise CorruptFile(f"no record: magic {magic:#010x}")
        if size < FIXED_BYTES or at + size > len(data):
            raise CorruptFile(f"record of {size} bytes, {len(data) - at} at hand")
        end = at + size
        (sys_flag,) = _SYS_FLAG.unpack_from(data, at + _OWN_BYTES)
        fixed = _LAYOUT_OF_FLAGS[sys_flag & SYS_HOSTS_IPV6].fixed
        (
            _, _, crc, queue_id, flag, queue_offset, physical, _, born, born_host, store_time, store_host, reconsume,
            prepared, length,
        ) = fixed.unpack_from(data, at)  # fmt: skip
        p = at + fixed.size
        if length < 0 or p + length >= end:
            raise CorruptFile("record: body longer than the record")
        body = bytes(data[p : p + length])
        p += length
        if magic == MAGIC_V1:
            length = data[p]
            p += 1
        else:
            (length,) = _U16.unpack_from(data, p)
            p += 2
        if p + length + 2 > end:
            raise CorruptFile("record: topic longer than the record")
        topic = bytes(data[p : p + length]).decode()
        p += length
        (length,) = _U16.unpack_from(data, p)
        p += 2
        if p + length != end:
            raise CorruptFile(f"record: says {size} bytes, its parts take {p + length - at}")
        properties = bytes(data[p:end]).decode()
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise CorruptFile(f"record: {error}") from None
    if check_crc and body and body_crc(body) != crc:
        raise CorruptFile("record: body does not match its CRC")
    return Record(
        size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical,
        sys_flag,
        born,
        decode_host(born_host),
        store_time,
        decode_host(store_host),
        reconsume,
        prepared,
        body,
        topic,
        properties,
    )
