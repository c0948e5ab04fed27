"""The file with the check counts of open half messages: Apache counts in the message, RocketBox in memory.

`DATA/rocketbox/transactions/checks` is rewritten every few seconds while producers are asked, and at the stop; never
synced. Without it, or if its newest half message is not in the half queue, questions are counted from the beginning.
Format page: docs/formats/transactions.md.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

from ...disk import Disk
from ...named_tuple import NamedTuple
from .open_halves import PAGE

logger = logging.getLogger(__name__)

MAGIC = b"RBCHECK1"
_HEAD = struct.Struct(">8sqqI")
_CRC = struct.Struct(">I")
_NUMBER = struct.Struct(">q")
_PAGE_BYTES = _NUMBER.size + PAGE
#: Most pages that are kept, those of the oldest half messages: 4 million.
MOST_PAGES = 1024
_MOST_BYTES = 16 << 20


class CheckCounts(NamedTuple):
    """last_offset, last_physical: the newest half message, by which the queue is recognised; -1 without one. pages:
    (number, a byte for each half: 0 if it is not open, else one more than its checks)."""

    last_offset: int
    last_physical: int
    pages: list[tuple[int, bytes]]


def encode(counts: CheckCounts) -> bytes:
    """Return the file's bytes. Pages without any question are left out."""
    pack = zlib.compressobj(1)
    count, packed = 0, []
    for number, states in counts.pages:
        if count < MOST_PAGES and max(states) > 1:
            assert _NUMBER.size + len(states) == _PAGE_BYTES, "a page has a state for each of its halves"
            packed.append(pack.compress(_NUMBER.pack(number) + states))
            count += 1
    packed.append(pack.flush())
    body = _HEAD.pack(MAGIC, counts.last_offset, counts.last_physical, count) + b"".join(packed)
    return body + _CRC.pack(crc32(body))


def decode(data: bytes) -> CheckCounts | None:
    """Return the counts; None if the bytes are damaged, or no such file."""
    if len(data) < _HEAD.size + _CRC.size or _CRC.unpack(data[-_CRC.size :])[0] != crc32(data[: -_CRC.size]):
        return None
    magic, last_offset, last_physical, count = _HEAD.unpack_from(data)
    if magic != MAGIC or count > MOST_PAGES:
        return None
    try:
        raw = zlib.decompressobj().decompress(data[_HEAD.size : -_CRC.size], count * _PAGE_BYTES + 1)
    except zlib.error:
        return None
    if len(raw) != count * _PAGE_BYTES:
        return None
    pages = [
        (_NUMBER.unpack_from(raw, at)[0], raw[at + _NUMBER.size : at + _PAGE_BYTES])
        for at in range(0, len(raw), _PAGE_BYTES)
    ]
    return CheckCounts(last_offset, last_physical, pages)


class CheckCountsFile:
    """The file. One thread at a time."""

    def __init__(self, path: Path, disk: Disk) -> None:
        # Constant after construction.
        self._path = path
        self._disk = disk
        # Owned by who writes.
        self._written: int | None = None

    def load(self) -> CheckCounts | None:
        """Read the file, at the start; None without one, or if it is damaged. Raises OSError."""
        if not self._disk.exists(self._path):
            return None
        found = decode(self._disk.read(self._path, _MOST_BYTES))
        if found is None:
            logger.warning("transactions: counts of questions are damaged, and begin anew path=%s", self._path)
        return found

    def save(self, last_offset: int, last_physical: int, pages: Iterable[tuple[int, bytes]]) -> None:
        """Write the file if its content has changed since the last time. Raises OSError."""
        data = encode(CheckCounts(last_offset, last_physical, list(pages)))
        mark = crc32(data)
        if mark == self._written:
            return
        self._disk.make_directory(self._path.parent)
        self._disk.replace(self._path, data, durable=False)
        self._written = mark
