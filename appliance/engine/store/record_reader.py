"""Checked reads of published records by physical offset, for callers that may wait for the disk.

Bytes that look like a record do not count as one unless they contain their own offset, since bodies may hold any bytes.
Pulls do not use this: their offsets are from queue entries, and they send bytes unread.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable

from ..errors import CorruptFile
from ..few_lines import FewLines
from ..hotpath import keyed_record
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

#: A size that most records fit in.
_READ_BYTES = 4096
#: Bytes up to and including the store time behind a 20-byte born host.
_HEAD_BYTES = 76
#: Bytes up to the body, with two hosts of 20 bytes.
_FIXED_AND_HOSTS = 112
#: Reading, checking and copying more bytes than this takes the I/O thread too long (D10).
LONGEST_READ_AT_ONCE = 256 * 1024
#: Lines about records that cannot be read, in these seconds.
_TOLD, _TELL_S = 10, 10.0


class StoredRecord(NamedTuple):
    """A record and its bytes as they lie in the log."""

    record: Record
    data: bytes


class Missing(enum.Enum):
    """Reasons that there is no record."""

    EXPIRED = "its file has left the log"
    NOT_PUBLISHED = "the log does not reach there yet"
    NO_RECORD = "no record begins there"
    UNREADABLE = "the disk does not give it"


class RecordReader:
    """Reads records on any thread. Body CRCs are not checked: damaged records are shown as they are."""

    def __init__(self, log: CommitLog, publication: Publication, monotonic: Callable[[], float]) -> None:
        self._log = log
        self._publication = publication
        self._telling = threading.Lock()
        #: Any peer can ask for what a bad disk does not give, as often as it likes. Guarded by _telling.
        self._unreadable = FewLines(logger.warning, _TOLD, _TELL_S, monotonic)

    def find(
        self, physical: int, size: int | None = None, read: Callable[[int, int], bytes] | None = None
    ) -> StoredRecord | Missing:
        """Return the record at a physical offset. size: from its queue entry; a record of another size does not count.
        read: returns bytes of the log like `CommitLog.read`, for callers that read several records at once."""
        found = self._find(physical, size, read or self._log.read)
        assert found is not None, "a read that may wait brings something"
        return found

    def find_now(self, physical: int) -> StoredRecord | Missing | None:
        """Like `find`, without waiting for the disk. None if the record is not in the page cache, or is too long for
        this thread. On remoting-io."""
        return self._find(physical, None, self._read_now)

    def of_key_now(self, physical: int, topic: bytes, key: bytes, begin_ms: int, end_ms: int) -> bytes | None:
        """Return the bytes of the record at a physical offset if it can be seen at once that it has this topic and key,
        and was stored in [begin_ms, end_ms]. None: `find_now` has to look. On remoting-io."""
        log = self._log
        room, segment = self._publication.published - physical, log.segment_at(physical)
        if keyed_record is None or segment is None or room <= 0 or not log.on_real_disk:
            return None
        found: bytes | None = keyed_record(
            segment.fd,
            physical - segment.start,
            min(room, segment.end - physical),
            physical,
            topic,
            key,
            begin_ms,
            end_ms,
        )
        return found

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
        """read: returns bytes of the log, or None if it would have to wait; the result is None then."""
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
            with self._telling:
                self._unreadable.log("commit log: a record cannot be read at=%d: %s", physical, error)
            return Missing.UNREADABLE
        return StoredRecord(record, data[: record.size])

    def get(self, physical: int, size: int | None = None) -> StoredRecord | None:
        """Like `find`, with None for any reason."""
        found = self.find(physical, size)
        return None if isinstance(found, Missing) else found

    def without_body(self, physical: int, size: int) -> Record | None:
        """Return the record of `size` bytes, known from its queue entry, for callers that do not need the body: that of
        a long record is empty, and is not read."""
        if size <= _READ_BYTES:
            whole = self.get(physical, size)
            return None if whole is None else whole.record

        def read(at: int, _: int) -> bytes:
            """Return the record with an empty body; the check in `_find` fails if the two reads do not fit together."""
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
        """Return the store time in ms of the record at a queue entry's physical offset, -1 if there is none. Raises
        OSError, since a guess would make a client skip messages."""
        head = self._log.read(physical, _HEAD_BYTES)
        if len(head) < _HEAD_BYTES or int.from_bytes(head[4:8], "big") not in (MAGIC_V1, MAGIC_V2):
            return -1
        return store_time_ms(head)
