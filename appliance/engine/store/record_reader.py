"""The one way to a published record: by its physical offset, checked, for whoever may wait for the disk.

The bytes at any place are never taken for a record because they look like one: a record says itself where it lies, and
bodies may hold anything. Pulls do not come here: their offsets are from queue entries, and they send bytes unread.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable

from ..errors import CorruptFile
from ..named_tuple import NamedTuple
from ..protocol.record import (
    FIXED_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    SIZE_MAGIC,
    Record,
    body_length_at,
    decode_record,
    store_time_ms,
    topic_at,
)
from .log.commit_log import CommitLog
from .publication import Publication

logger = logging.getLogger(__name__)

#: What most records fit in.
_READ_BYTES = 4096
#: Up to the store time behind a 20-byte born host.
_HEAD_BYTES = 76
#: Up to the body, with two hosts of 20 bytes.
_FIXED_AND_HOSTS = 112
#: Reading, checking and copying more than this takes the I/O thread too long (D10).
LONGEST_READ_AT_ONCE = 256 * 1024


class StoredRecord(NamedTuple):
    """A record and its bytes as they lie in the log."""

    record: Record
    data: bytes


class Missing(enum.Enum):
    """Why there is no record."""

    EXPIRED = "its file has left the log"
    NOT_PUBLISHED = "the log does not reach there yet"
    NO_RECORD = "no record begins there"
    UNREADABLE = "the disk does not give it"


class RecordReader:
    """Any thread. Body CRCs are not looked at: what is damaged is shown as it is."""

    def __init__(self, log: CommitLog, publication: Publication) -> None:
        self._log = log
        self._publication = publication

    def find(
        self, physical: int, size: int | None = None, read: Callable[[int, int], bytes] | None = None
    ) -> StoredRecord | Missing:
        """The record that begins at a physical offset. size: what its queue entry says; another one is no record. read:
        gives bytes of the log as `CommitLog.read` does, for those who read several at once."""
        found = self._find(physical, size, read or self._log.read)
        assert found is not None, "a read that may wait brings something"
        return found

    def find_now(self, physical: int) -> StoredRecord | Missing | None:
        """As `find`, without waiting for the disk: None when the record is not in the page cache, or is so long that
        it is better read elsewhere. On remoting-io."""
        return self._find(physical, None, self._read_now)

    def _read_now(self, physical: int, size: int) -> bytes | None:
        segment = self._log.segment_at(physical)
        if segment is None:
            return b""
        if size > LONGEST_READ_AT_ONCE:
            return None
        data = bytearray(min(size, segment.end - physical))
        return bytes(data) if self._log.read_nowait(physical, memoryview(data)) else None

    def _find(
        self, physical: int, size: int | None, read: Callable[[int, int], bytes | None]
    ) -> StoredRecord | Missing | None:
        """read: bytes of the log; None says that nothing can be told now."""
        room = self._publication.published - physical
        if physical < self._log.min_offset:
            return Missing.EXPIRED
        if room <= 0 or (size is not None and size > room):
            return Missing.NOT_PUBLISHED
        try:
            data = read(physical, min(size or _READ_BYTES, room))
            if data is None:
                return None
            if len(data) < FIXED_BYTES:
                return Missing.EXPIRED if physical < self._log.min_offset else Missing.NO_RECORD
            length, magic = SIZE_MAGIC.unpack_from(data)
            if magic not in (MAGIC_V1, MAGIC_V2) or not FIXED_BYTES <= length <= room or size not in (None, length):
                return Missing.NO_RECORD
            if int.from_bytes(data[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big") != physical:
                return Missing.NO_RECORD
            if length > len(data):
                data = read(physical, length)
                if data is None:
                    return None
            record = decode_record(data, check_crc=False)
        except CorruptFile:
            return Missing.NO_RECORD
        except OSError as error:
            logger.warning("commit log: a record cannot be read at=%d: %s", physical, error)
            return Missing.UNREADABLE
        return StoredRecord(record, data[: record.size])

    def get(self, physical: int, size: int | None = None) -> StoredRecord | None:
        """As `find`, for those who do not ask why."""
        found = self.find(physical, size)
        return None if isinstance(found, Missing) else found

    def without_body(self, physical: int, size: int) -> Record | None:
        """As `get`, of a record whose size its queue entry says, for those who do not look at the body: that of a long
        one is empty, and is not read."""
        if size <= _READ_BYTES:
            whole = self.get(physical, size)
            return None if whole is None else whole.record

        def read(at: int, _: int) -> bytes:
            """A record of an empty body, as far as the two reads fit together."""
            head = self._log.read(at, _FIXED_AND_HOSTS)
            if len(head) < _FIXED_AND_HOSTS or SIZE_MAGIC.unpack_from(head)[0] != size:
                return b""
            begin, end = body_length_at(head) + 4, topic_at(head)
            if not begin <= end < size:
                return b""
            rest = self._log.read(at + end, size - end)
            return (begin + len(rest)).to_bytes(4, "big") + head[4 : begin - 4] + bytes(4) + rest

        found = self._find(physical, None, read)
        return found.record._replace(size=size) if isinstance(found, StoredRecord) else None

    def store_time(self, physical: int) -> int:
        """Store time in ms of the record at a queue entry's physical offset, -1 when there is none. Raises OSError: a
        guess would have a client skip messages."""
        head = self._log.read(physical, _HEAD_BYTES)
        if len(head) < _HEAD_BYTES or int.from_bytes(head[4:8], "big") not in (MAGIC_V1, MAGIC_V2):
            return -1
        return store_time_ms(head)
