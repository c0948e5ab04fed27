"""The replication stream of Apache's brokers: one TCP connection from a slave to its master, without a handshake.

    slave -> master    8 bytes: end of the slave's log, its request and its acknowledgement
    master -> slave    12 bytes: physical offset 8, size 4; then that many bytes of the log, unchanged, of one file

Size 0 is the master's heartbeat; its offset is that of the next frame. All big-endian. A frame may begin and end
anywhere in a record. Source: RocketMQ `DefaultHAConnection`, `DefaultHAClient`.

Between members of a set, after the preambles of `ha_preamble`: for size -1, the offset field holds the confirm offset
of the leader's log; no bytes follow. For size -2, it holds the number of topic changes by administrators that the
leader has seen, and a member then requests the topics. The member reports in the same stream that it has those of N
changes, as N - 2^62. A member that never did so does not get size -2.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ..errors import FrameError

_REPORT = struct.Struct(">q")
_HEADER = struct.Struct(">qi")

#: pack(offset) -> a slave's report.
pack_report = _REPORT.pack
#: pack(offset, size) -> the header before a frame's bytes.
pack_header = _HEADER.pack
HEADER_BYTES = _HEADER.size
#: In place of the size: the offset field is the confirm offset.
CONFIRM = -1
#: Likewise: the offset field is the number of topic changes.
CHANGES = -2
_TAKEN = 1 << 62


def pack_taken(changes: int) -> bytes:
    """Return a member's report that its topics are as they were after `changes` changes."""
    return pack_report(changes - _TAKEN)


def taken_of(report: int) -> int:
    """Return the number of changes in a report; -1 if it holds a log end instead."""
    return report + _TAKEN if -_TAKEN <= report < -(_TAKEN >> 1) else -1


class Reports:
    """Decodes a slave's reports from any pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Return the offsets that are complete now, in order."""
        data = self._rest + data
        whole = len(data) - len(data) % _REPORT.size
        self._rest = data[whole:]
        return [offset for (offset,) in _REPORT.iter_unpack(data[:whole])]


class Frames:
    """Decodes a master's frames from any pieces, without waiting for a whole frame."""

    def __init__(self, file_bytes: int, bound: bool = False) -> None:
        """file_bytes: the size of the log's files; no frame crosses them. bound: received from a set's leader."""
        self._file_bytes = file_bytes
        self._bound = bound
        #: The last confirm offset received; -1 before the first.
        self.confirm = -1
        #: The last number of topic changes received from the leader; -1 before the first.
        self.changes = -1
        self._head = b""
        self._offset = 0
        self._left = 0

    def feed(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yield (physical offset, bytes of the log from there) for each piece; no bytes for a heartbeat.

        Raises FrameError for a header that no master sends.
        """
        while data:
            if self._left:
                piece = data[: self._left]
                data = data[len(piece) :]
                offset = self._offset
                self._offset += len(piece)
                self._left -= len(piece)
                yield offset, piece
                continue
            missing = HEADER_BYTES - len(self._head)
            self._head += bytes(data[:missing])
            data = data[missing:]
            if len(self._head) < HEADER_BYTES:
                return
            offset, size = _HEADER.unpack(self._head)
            if size == CONFIRM and self._bound and offset >= self.confirm:
                self._head, self.confirm = b"", offset
                continue
            if size == CHANGES and self._bound and offset >= 0:
                self._head, self.changes = b"", offset
                continue
            if offset < 0 or size < 0 or offset % self._file_bytes + size > self._file_bytes:
                raise FrameError(f"a frame of {size} bytes at {offset}: the log's files have {self._file_bytes}")
            self._head, self._offset, self._left = b"", offset, size
            if not size:
                yield offset, data[:0]
