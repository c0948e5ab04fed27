"""One record by its place in the log, checked; for questions of people, so it may wait for the disk."""

from __future__ import annotations

from ..errors import CorruptFile
from ..protocol.record import FIXED_BYTES, decode_record
from ..store.message_store import MessageStore


def record_bytes(store: MessageStore, physical: int) -> bytes | None:
    """The bytes of the published record that begins at `physical`; None when none begins there (any more)."""
    if not store.log.min_offset <= physical < store.published:
        return None
    size = int.from_bytes(store.log.read(physical, 4), "big")
    if size < FIXED_BYTES or physical + size > store.published:
        return None
    data = store.log.read(physical, size)
    try:
        record = decode_record(data, check_crc=False)
    except CorruptFile:
        return None
    return data if record.physical_offset == physical and record.size == size else None
