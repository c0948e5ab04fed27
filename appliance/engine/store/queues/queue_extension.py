"""ConsumeQueueExt, which Apache writes with `enableConsumeQueueExt`: what an entry's tag code leads to then. Read only.

    consumequeue_ext/<topic>/<queue id>/<20 digits>       2 size | 8 tag code | 8 store time | 2 bytes of bit map | map

A queue entry's tag code is then an address: the unit's place in the queue's extension stream plus the smallest i64.
Real tag codes are hashes of 32 bits, so the two never meet. A size of -1 ends a file. We never write such units:
entries that we make carry the code itself, which Apache reads as well. Source: RocketMQ `ConsumeQueueExt`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable

from ...named_tuple import NamedTuple
from ..disk import Disk
from ..paths import StorePaths, segment_name, segment_offset

EXTENSION_DIRECTORY = "consumequeue_ext"
UNIT = struct.Struct(">hqqh")
_MIN_I64 = -(1 << 63)
#: The smallest tag code there is; below it lie addresses.
MIN_CODE = -(1 << 31)
_DESCRIPTORS = 64


class ExtensionUnit(NamedTuple):
    """One unit; `size` with its bit map. store_time_ms: of the message."""

    size: int
    tag_code: int
    store_time_ms: int
    bit_map: bytes


def is_address(code: int) -> bool:
    """Whether an entry's tag code is the address of an extension unit."""
    return code < MIN_CODE


def address_of(position: int) -> int:
    """What an entry says of the unit at `position` of the stream."""
    return position + _MIN_I64


def decode_unit(data: bytes) -> ExtensionUnit | None:
    """The unit at the beginning of `data`; None when there is none."""
    if len(data) < UNIT.size:
        return None
    size, code, time_ms, map_bytes = UNIT.unpack_from(data)
    if map_bytes < 0 or size != UNIT.size + map_bytes or len(data) < size:
        return None
    return ExtensionUnit(size, code, time_ms, data[UNIT.size : size])


class QueueExtension:
    """Descriptors of extension files, the least recently used closed. Belongs to one thread."""

    def __init__(self, paths: StorePaths, disk: Disk) -> None:
        self._directory = paths.root / EXTENSION_DIRECTORY
        self._disk = disk
        self._starts: dict[tuple[str, int], list[int]] = {}
        self._open: OrderedDict[tuple[str, int, int], int] = OrderedDict()

    def read(self, topic: str, queue_id: int, address: int) -> ExtensionUnit | None:
        """The unit an entry's tag code leads to, waiting for the disk if need be; None when there is none."""
        return self._read(topic, queue_id, address, self._disk.pread)

    def read_nowait(self, topic: str, queue_id: int, address: int) -> ExtensionUnit | None:
        """As `read`; None also when the disk would have to be asked (D2)."""

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
        """Where the file begins that holds a place of the stream."""
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
