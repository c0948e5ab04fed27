"""Two small files recovery starts from: Apache's `checkpoint`, and the recovery position that is ours (D3).

checkpoint, 4096 bytes: store time in ms of the last log flush @0, of the last queue flush @8, of the last index
flush @16. recovery-position, two slots at 0 and 4096, written in turn: sequence 8, physical offset 8, then of the
record just before that offset: its offset 8, size 4, body crc 4, store time 8; last a CRC-32 4 of what stands before.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from .disk import Disk

_TIMES = struct.Struct(">qqq")
CHECKPOINT_BYTES = 4096

_SLOT = struct.Struct(">qqqiiq")
_SLOT_DISTANCE = 4096


class RecoveryPosition(NamedTuple):
    """Below `offset` every queue entry is on disk. record_*: the record that ends there, -1/0 for an empty log."""

    offset: int
    record_offset: int
    record_size: int
    record_crc: int
    record_time_ms: int


class Checkpoint:
    """Apache's checkpoint file. Times never pass what the files hold (D5)."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._disk = disk
        self._fd = disk.open(path, create=True)
        if disk.size(self._fd) != CHECKPOINT_BYTES:
            disk.truncate(self._fd, CHECKPOINT_BYTES)
        self.log_time_ms, self.queue_time_ms, self.index_time_ms = _TIMES.unpack(disk.pread(self._fd, _TIMES.size, 0))

    def save(self, log_time_ms: int, queue_time_ms: int) -> None:
        self.log_time_ms = max(self.log_time_ms, log_time_ms)
        self.queue_time_ms = max(self.queue_time_ms, queue_time_ms)
        self._disk.pwrite(self._fd, _TIMES.pack(self.log_time_ms, self.queue_time_ms, self.index_time_ms), 0)
        self._disk.fdatasync(self._fd)

    def close(self) -> None:
        self._disk.close(self._fd)


class RecoveryPositionFile:
    """Loads and saves the recovery position; a torn save leaves the other slot."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._disk = disk
        self._fd = disk.open(path, create=True)
        self._sequence = 0
        self.position: RecoveryPosition | None = None
        for slot in (0, 1):
            raw = disk.pread(self._fd, _SLOT.size + 4, slot * _SLOT_DISTANCE)
            if len(raw) == _SLOT.size + 4 and crc32(raw[:-4]) == int.from_bytes(raw[-4:], "big"):
                sequence, *fields = _SLOT.unpack(raw[:-4])
                if sequence > self._sequence:
                    self._sequence = sequence
                    self.position = RecoveryPosition(*fields)

    def save(self, position: RecoveryPosition) -> None:
        self._sequence += 1
        raw = _SLOT.pack(self._sequence, *position)
        raw += crc32(raw).to_bytes(4, "big")
        self._disk.pwrite(self._fd, raw, (self._sequence & 1) * _SLOT_DISTANCE)
        self._disk.fdatasync(self._fd)
        self.position = position

    def close(self) -> None:
        self._disk.close(self._fd)
