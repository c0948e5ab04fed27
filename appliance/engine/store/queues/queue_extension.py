"""ConsumeQueueExt, which Apache writes with `enableConsumeQueueExt`: units that entries' tag codes point to. Read only.

    consumequeue_ext/<topic>/<queue id>/<20 digits>       2 size | 8 tag code | 8 store time | 2 bytes of bit map | map

A queue entry's tag code is then an address: the unit's position in the queue's extension stream plus the smallest i64.
Real tag codes are 32-bit hashes, so the two never collide. A size of -1 ends a file. RocketBox never writes such units:
its entries carry the tag code itself, which Apache reads too. Source: RocketMQ `ConsumeQueueExt`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable

from ...disk import Disk
from ...named_tuple import NamedTuple
from ..paths import StorePaths, segment_name, segment_offset

EXTENSION_DIRECTORY = "consumequeue_ext"
UNIT = struct.Struct(">hqqh")
_MIN_I64 = -(1 << 63)
#: The smallest tag code; lower values are addresses.
MIN_CODE = -(1 << 31)
_DESCRIPTORS = 64


class ExtensionUnit(NamedTuple):
    """One unit; `size` includes its bit map. store_time_ms: of the message."""

    size: int
    tag_code: int
    store_time_ms: int
    bit_map: bytes


def is_address(code: int) -> bool:
    """True if an entry's tag code is the address of an extension unit."""
    return code < MIN_CODE


def address_of(position: int) -> int:
    """Return the tag code that stands for the unit at `position` of the stream."""
    return position + _MIN_I64


def decode_unit(data: bytes) -> ExtensionUnit | None:
    """Return the unit at the beginning of `data`; None if there is none."""
    if len(data) < UNIT.size:
        return None
    size, code, time_ms, map_bytes = UNIT.unpack_from(data)
    if map_bytes < 0 or size != UNIT.size + map_bytes or len(data) < size:
        return None
    return ExtensionUnit(size, code, time_ms, data[UNIT.size : size])


class QueueExtension:
    """Open descriptors of extension files; the least recently used is closed. Belongs to one thread."""

    def __init__(self, paths: StorePaths, disk: Disk) -> None:
        self._directory = paths.root / EXTENSION_DIRECTORY
        self._disk = disk
        self._starts: dict[tuple[str, int], list[int]] = {}
        self._open: OrderedDict[tuple[str, int, int], int] = OrderedDict()

    def read(self, topic: str, queue_id: int, address: int) -> ExtensionUnit | None:
        """Return the unit that a tag code points to, or None; may wait for the disk."""
        return self._read(topic, queue_id, address, self._disk.pread)

    def read_nowait(self, topic: str, queue_id: int, address: int) -> ExtensionUnit | None:
        """Like `read`, but also None if that would have to wait for the disk (D2)."""

        def read(fd: int, size: int, position: int) -> bytes:
            buffer = bytearray(size)
            return bytes(buffer[: self._disk.read_nowait(fd, memoryview(buffer), position)])

        return self._read(topic, queue_id, address, read)

    def _read(
        self, topic: str, queue_id: int, address: int, read: Callable[[int, int, int], bytes]
    ) -> ExtensionUnit | None:
        position = address - _MIN_I64
        try:
            start = self._start(topic, queue_id, position)
            if start is None:
                return None
            fd = self._fd(topic, queue_id, start)
            head = read(fd, UNIT.size, position - start)
            if len(head) < UNIT.size:
                return None
            size = UNIT.unpack(head)[0]
            return decode_unit(head if size <= UNIT.size else read(fd, size, position - start))
        except OSError:
            return None

    def _start(self, topic: str, queue_id: int, position: int) -> int | None:
        """Return the start of the file that holds a position of the stream; None if there is none."""
        starts = self._starts.get((topic, queue_id))
        if starts is None:
            names = self._disk.names(self._directory / topic / str(queue_id))
            starts = sorted(start for name in names if (start := segment_offset(name)) is not None)
            self._starts[topic, queue_id] = starts
        index = bisect_right(starts, position) - 1
        return starts[index] if index >= 0 else None

    def _fd(self, topic: str, queue_id: int, start: int) -> int:
        key = (topic, queue_id, start)
        fd = self._open.get(key)
        if fd is None:
            while len(self._open) >= _DESCRIPTORS:
                self._disk.close(self._open.popitem(last=False)[1])
            path = self._directory / topic / str(queue_id) / segment_name(start)
            fd = self._open[key] = self._disk.open(path, read_only=True)
        self._open.move_to_end(key)
        return fd

    def close(self) -> None:
        for fd in self._open.values():
            self._disk.close(fd)
        self._open.clear()
