"""Two small files that recovery starts from: Apache's `checkpoint`, and RocketBox's own recovery position (D3).

checkpoint, 4096 bytes: store time in ms of the last log flush @0, of the last queue flush @8, of the last index flush
@16. recovery-position, two slots at 0 and 4096, written in turn: sequence 8; physical offset 8; of the record that ends
there: offset 8, size 4, body crc 4, store time 8; sum of all queues' maximum offsets 8, which reveals a lost queue
file; of the queue ledger: generation 8, length 8, CRC 4; last a CRC-32 4 of everything before.
"""

from __future__ import annotations

import struct
from pathlib import Path

from zlib_ng.zlib_ng import crc32

from ..disk import Disk
from ..named_tuple import NamedTuple
from ..protocol.record import Record

_TIMES = struct.Struct(">qqq")
CHECKPOINT_BYTES = 4096

_SLOT = struct.Struct(">qqqiiqqqqI")
_SLOT_DISTANCE = 4096
#: Size of a slot with its CRC.
SLOT_BYTES = _SLOT.size + 4


class RecoveryPosition(NamedTuple):
    """Below `offset` the log is durable and every queue entry is on disk. record_*: the record that ends there.

    entries: sum of all queues' maximum offsets, counting records below `offset`. ledger_*: generation, length and CRC
    of the queue ledger that holds the same for each queue; generation 0: none.
    """

    offset: int
    record_offset: int
    record_size: int
    record_crc: int
    record_time_ms: int
    entries: int
    ledger_generation: int = 0
    ledger_length: int = 0
    ledger_crc: int = 0

    def is_true(self, record: Record | None) -> bool:
        """True if `record`, found at record_offset, is the one that the position was saved with."""
        return record is not None and (record.body_crc, record.store_time_ms) == (self.record_crc, self.record_time_ms)

    @property
    def ledger(self) -> tuple[int, int, int]:
        return self.ledger_generation, self.ledger_length, self.ledger_crc


class Checkpoint:
    """Apache's checkpoint file. Its times are never later than what the files hold (D5)."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._disk = disk
        self._fd = disk.open(path, create=True)
        if disk.size(self._fd) != CHECKPOINT_BYTES:
            disk.truncate(self._fd, CHECKPOINT_BYTES)
        self.log_time_ms, self.queue_time_ms, self.index_time_ms = _TIMES.unpack(disk.pread(self._fd, _TIMES.size, 0))

    def save(self, log_time_ms: int, queue_time_ms: int) -> None:
        self.log_time_ms = max(self.log_time_ms, log_time_ms)
        self.queue_time_ms = max(self.queue_time_ms, queue_time_ms)
        times = _TIMES.pack(self.log_time_ms, self.queue_time_ms, self.index_time_ms)
        self._disk.write_all(self._fd, times, 0)
        self._disk.fdatasync(self._fd)

    def save_index(self, time_ms: int) -> None:
        """Save the store time up to which index files are on disk. On the index's thread."""
        self.index_time_ms = time_ms
        self._disk.write_all(self._fd, struct.pack(">q", time_ms), 16)
        self._disk.fdatasync(self._fd)

    def limit(self, time_ms: int) -> None:
        """Lower times that are later than the last record's, from a damaged file or a log that was cut. The file is
        corrected by the next save."""
        self.log_time_ms = min(self.log_time_ms, time_ms)
        self.queue_time_ms = min(self.queue_time_ms, time_ms)

    def close(self) -> None:
        self._disk.close(self._fd)


class RecoveryPositionFile:
    """Loads and saves the recovery position; after a torn save the other slot counts."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._disk = disk
        self._fd = disk.open(path, create=True)
        self._sequence = 0
        #: None if there is none that can be trusted.
        self.position: RecoveryPosition | None = None
        #: The log was durable below it, whatever the state of the queues; -1 if RocketBox never ran this store.
        self.durable = -1
        for slot in (0, 1):
            raw = disk.pread(self._fd, _SLOT.size + 4, slot * _SLOT_DISTANCE)
            if len(raw) == _SLOT.size + 4 and crc32(raw[:-4]) == int.from_bytes(raw[-4:], "big"):
                sequence, *fields = _SLOT.unpack(raw[:-4])
                if sequence > self._sequence:
                    self._sequence = sequence
                    position = RecoveryPosition(*fields)
                    self.durable = position.offset
                    self.position = position if position.record_offset >= 0 else None

    def save(self, position: RecoveryPosition) -> None:
        self._save(position)
        self.position = position

    def withdraw(self, durable: int) -> None:
        """Declare the queues untrusted from now on; the log below `durable` still is trusted."""
        self._save(RecoveryPosition(durable, -1, 0, 0, 0, 0))
        self.position = None

    def _save(self, position: RecoveryPosition) -> None:
        raw = _SLOT.pack(self._sequence + 1, *position)
        raw += crc32(raw).to_bytes(4, "big")
        self._disk.write_all(self._fd, raw, ((self._sequence + 1) & 1) * _SLOT_DISTANCE)
        self._disk.fdatasync(self._fd)
        self._sequence += 1
        self.durable = position.offset

    def close(self) -> None:
        self._disk.close(self._fd)
