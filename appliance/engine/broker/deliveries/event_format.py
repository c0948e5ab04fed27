"""Files of delivery events: their bytes. The page of the format is docs/formats/deliveries.md.

    file      header 32, then batches
    header    "RBDELIV1" | published 8 | wall ms 8 | zero 4 | crc 4 of what is before
    batch     "BTCH" | bytes behind the header 4 | bytes of definitions 4 | lost 4 | published 8 | wall ms 8 | zero 4
              | crc 4 of the header so far and of all behind it, then definitions and events
    event     number 4 | time 4 | place 8            time: wall ms modulo 2^32; place: first offset << 16 | count

All big endian. `published` is the published end of the log when the batch was taken from memory, so all events before
it are of messages that lie below. Definitions are a JSON array of [number, group, topic, queue, client, codes].
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice

from ...named_tuple import NamedTuple

_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().raw_decode

EVENT = struct.Struct(">IIQ")
EVENT_BYTES = EVENT.size
_HEADER = struct.Struct(">8sQQII")
_BATCH = struct.Struct(">4sIIIQQII")
_MAGIC = b"RBDELIV1"
_BATCH_MAGIC = b"BTCH"
HEADER_BYTES = _HEADER.size
BATCH_HEADER_BYTES = _BATCH.size
#: Largest count and largest offset that an event has room for.
MOST_COUNT = 0xFFFF
MOST_OFFSET = (1 << 47) - 1
#: Largest number of lost events. Also stands for an unknown number: deliveries were not recorded for a while.
MOST_LOST = 0xFFFF_FFFF
#: Definitions that one call encodes.
_AT_A_TIME = 32
#: In place of tag codes: a filter that is not recorded here may have kept messages out of the answer.
SOME = "some"


class Definition(NamedTuple):
    """The consumer that a number stands for. client: its id, or its address when it had sent no heartbeat. codes: the
    tag codes that the pull let through, None for all, SOME if that does not follow from a code."""

    group: str
    topic: str
    queue_id: int
    client: str
    codes: tuple[int, ...] | str | None


class FileHeader(NamedTuple):
    """published: end of the published log at the last batch before the file, or at the start. wall_ms: the file's
    begin."""

    published: int
    wall_ms: int


class Batch(NamedTuple):
    """The content of one write. lost: events before it that were not kept."""

    published: int
    wall_ms: int
    lost: int
    definitions: dict[int, Definition]
    events: bytes


def encode_header(header: FileHeader) -> bytes:
    head = _HEADER.pack(_MAGIC, header.published, header.wall_ms, 0, 0)[:-4]
    return head + zlib.crc32(head).to_bytes(4, "big")


def decode_header(data: bytes) -> FileHeader | None:
    """Return the header that a file begins with; None if there is none, or it is torn."""
    if len(data) < HEADER_BYTES:
        return None
    magic, published, wall_ms, _, crc = _HEADER.unpack_from(data)
    if magic != _MAGIC or crc != zlib.crc32(data[: HEADER_BYTES - 4]):
        return None
    return FileHeader(published, wall_ms)


def encode_definitions(definitions: Iterable[tuple[int, Definition]]) -> bytes:
    """Return the definitions' bytes. Half a surrogate pair in a name is written as JSON writes it. They are encoded a
    few at a time: one call for thousands of them would keep all other threads waiting."""
    left = iter(definitions)
    parts: list[str] = []
    while some := [[number, *one] for number, one in islice(left, _AT_A_TIME)]:
        parts.append(_encode(some)[1:-1])
    return f"[{','.join(parts)}]".encode() if parts else b""


def encode_batch(published: int, wall_ms: int, lost: int, definitions: bytes, events: bytes | memoryview) -> bytes:
    """Return the bytes of a batch. definitions: as encode_definitions makes them."""
    body = definitions + bytes(events)
    lost = min(lost, MOST_LOST)
    head = _BATCH.pack(_BATCH_MAGIC, len(body), len(definitions), lost, published, wall_ms, 0, 0)[:-4]
    return head + zlib.crc32(body, zlib.crc32(head)).to_bytes(4, "big") + body


def batches_of(data: bytes) -> Iterator[Batch]:
    """Yield the batches behind a file's header, up to the first one that is not whole."""
    for at, size, header in _whole(data):
        _, _, defined, lost, published, wall_ms, _, _ = header
        body = at + BATCH_HEADER_BYTES
        definitions = _decode_definitions(data[body : body + defined])
        yield Batch(published, wall_ms, lost, definitions, data[body + defined : at + size])


def whole_bytes(data: bytes) -> tuple[int, int]:
    """Return (end of the last whole batch, the lost events that it notes); (HEADER_BYTES, 0) if there is none."""
    end, lost = HEADER_BYTES, 0
    for at, size, header in _whole(data):
        end, lost = at + size, header[3]
    return end, lost


def _whole(data: bytes) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield (position, bytes, header) of each batch, up to the first one that is not whole."""
    at = HEADER_BYTES
    view = memoryview(data)
    while at + BATCH_HEADER_BYTES <= len(data):
        header = _BATCH.unpack_from(data, at)
        magic, length, defined, _, _, _, _, crc = header
        size = BATCH_HEADER_BYTES + length
        if magic != _BATCH_MAGIC or at + size > len(data) or defined > length or (length - defined) % EVENT_BYTES:
            return
        body = view[at + BATCH_HEADER_BYTES : at + size]
        if zlib.crc32(body, zlib.crc32(view[at : at + BATCH_HEADER_BYTES - 4])) != crc:
            return
        yield at, size, header
        at += size


def _decode_definitions(data: bytes) -> dict[int, Definition]:
    """Decode definitions one by one, as they were encoded."""
    found: dict[int, Definition] = {}
    text, at = data.decode(), 1
    while at < len(text):
        (number, group, topic, queue_id, client, codes), at = _decode(text, at)
        found[number] = Definition(group, topic, queue_id, client, tuple(codes) if isinstance(codes, list) else codes)
        at += 1  # a comma, or the bracket at the end
    return found


def time_of(event_time: int, wall_ms: int) -> int:
    """Return the wall ms that an event's time stands for: of those that fit, the nearest to its batch's."""
    ahead = (event_time - wall_ms) & 0xFFFF_FFFF
    return wall_ms + (ahead if ahead < 1 << 31 else ahead - (1 << 32))
