"""Questions to the key index: the records of `topic#key`, each checked against its own properties.

Entries hold hashes only, so others' records turn up in a chain; they never show. Reads wait for the disk, in the thread
of whoever asks.
Source: RocketMQ `IndexService.queryOffset`, `DefaultMessageStore.queryMessage`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from ...errors import CorruptFile
from ...protocol.record import FIXED_BYTES, MAGIC_V1, MAGIC_V2, SIZE_MAGIC, Record, decode_record
from .index_file import IndexHeader
from .index_keys import key_hash, keys_of

if TYPE_CHECKING:
    from ..message_store import MessageStore

#: What a query waits for the index to catch up with what was published before it.
CATCH_UP_S = 1.0
#: Entries looked at before the lock is let go.
STEPS = 64
#: What most records fit in.
_READ_BYTES = 4096


class KeyRecords(NamedTuple):
    """records: (record, its bytes), oldest first. last_time_ms, last_offset: of the newest entry of the index; 0 when
    nothing was found, as Apache says. complete: all of the log's published part was looked at; False when the index is
    too far behind, or time or room ran out."""

    records: list[tuple[Record, bytes]]
    last_time_ms: int
    last_offset: int
    complete: bool


class IndexQuery:
    """Any thread."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._index = store.index

    def catch_up(self, seconds: float = CATCH_UP_S) -> bool:
        """Have what is published now indexed; False when that takes longer, or the index is off."""
        index, target = self._index, self._store.published
        deadline = time.monotonic() + seconds
        while index.position < target or not index.ready:
            if not index.enabled or time.monotonic() > deadline:
                return False
            try:
                if not index.work():
                    time.sleep(0.002)
            except OSError:
                return False
        return True

    def find(
        self,
        topic: str,
        key: str,
        limit: int,
        begin_ms: int,
        end_ms: int,
        max_bytes: int = 1 << 62,
        below: int = 1 << 62,
        deadline: float | None = None,
    ) -> KeyRecords:
        """The newest records of `topic` whose unique key or one of whose keys is `key`, stored in [begin_ms, end_ms].

        At most `limit` of them and `max_bytes` together, one of any size aside; only those that lie below a physical
        offset. deadline: of the monotonic clock.
        """
        complete = True
        found: dict[int, tuple[Record, bytes]] = {}
        room = max_bytes
        code = key_hash(topic, key)
        files = self._index.files
        last = files[-1].header if files else None
        for file in reversed(files):
            if file.begin_ms > end_ms or limit <= 0:
                continue
            number: int | None = None
            while number != 0:
                with self._index.lock:
                    if file.closed:
                        break
                    candidates, number = file.chain(code, number, STEPS)
                for physical, entry_ms in candidates:
                    if entry_ms + 1000 <= begin_ms:  # seconds were cut off; older ones follow
                        number = 0
                        break
                    if physical in found or physical >= below or entry_ms > end_ms:
                        continue
                    record = self.record_at(physical)
                    if record is None or record[0].topic != topic or key not in keys_of(record[0].properties):
                        continue
                    if not begin_ms <= record[0].store_time_ms <= end_ms:
                        continue
                    room -= record[0].size
                    if found and room < 0:
                        return _answer(found, last, False)
                    found[physical] = record
                    if len(found) >= limit:
                        return _answer(found, last, complete)
                if deadline is not None and time.monotonic() > deadline:
                    return _answer(found, last, False)
            if file.begin_ms < begin_ms:
                break
        return _answer(found, last, complete)

    def record_at(self, physical: int) -> tuple[Record, bytes] | None:
        """(record, its bytes) that begins at a published physical offset; None when none does or it has expired.

        The bytes at any place are never taken for a record because they look like one: it must be at its own place.
        """
        published = self._store.published
        if not self._store.log.min_offset <= physical < published:
            return None
        try:
            data = self._store.log.read(physical, min(_READ_BYTES, published - physical))
            if len(data) < FIXED_BYTES:
                return None
            size, magic = SIZE_MAGIC.unpack_from(data)
            if magic not in (MAGIC_V1, MAGIC_V2) or not FIXED_BYTES <= size <= published - physical:
                return None
            if int.from_bytes(data[28:36], "big") != physical:
                return None
            if size > len(data):
                data = self._store.log.read(physical, size)
            record = decode_record(data, check_crc=False)
        except (CorruptFile, OSError):
            return None
        return record, data[: record.size]


def _answer(found: dict[int, tuple[Record, bytes]], last: IndexHeader | None, complete: bool) -> KeyRecords:
    records = [found[physical] for physical in sorted(found)]
    if not records or last is None:
        return KeyRecords([], 0, 0, complete)
    return KeyRecords(records, last.end_ms, last.end_offset, complete)
