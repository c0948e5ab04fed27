"""Batches: several messages of one topic in one request, for one queue. PURE.

    0 size 4 | 4 magic 4 | 8 body crc 4 | 12 flag 4 | 16 body length 4, body | properties length 2, properties

for each message, big-endian; brokers ignore magic and CRC. Source: RocketMQ 5.3.3 `MessageDecoder.encodeMessage`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from ..message import SendResult

_HEAD = struct.Struct(">iiiii")
_PROPERTIES = struct.Struct(">h")


def encode_member(body: bytes, properties: str) -> bytes:
    """Return one message of a batch. properties: their text, at most 32,767 bytes."""
    text = properties.encode()
    size = _HEAD.size + len(body) + _PROPERTIES.size + len(text)
    return b"".join((_HEAD.pack(size, 0, 0, 0, len(body)), body, _PROPERTIES.pack(len(text)), text))


def by_size(members: Iterable[bytes], most: int) -> Iterator[list[bytes]]:
    """Yield the members in their order, as lists of at most `most` bytes together; a larger one is alone."""
    together: list[bytes] = []
    size = 0
    for member in members:
        if together and size + len(member) > most:
            yield together
            together, size = [], 0
        together.append(member)
        size += len(member)
    if together:
        yield together


def places(batch: SendResult, message_ids: list[str]) -> list[SendResult]:
    """Return the place of each message of a batch, whose queue offsets follow one another."""
    offset_ids = batch.offset_id.split(",")
    offset_ids += [""] * (len(message_ids) - len(offset_ids))
    queue, first, region = batch.queue, batch.queue_offset, batch.region
    return [
        SendResult(
            message_id,
            offset_ids[number],
            queue,
            first + number,
            None,
            None,
            region,
            batch.is_traced,
            batch.unconfirmed,
        )
        for number, message_id in enumerate(message_ids)
    ]
