"""The replication stream of Apache's brokers: one TCP connection from a slave to its master, without a handshake.

    slave -> master    8 bytes: how far the slave's log goes, its request and its acknowledgement
    master -> slave    12 bytes: physical offset 8, size 4; then so many bytes of the log as they are, of one file

Size 0 is the master's heartbeat; its offset is that of the next frame. All big-endian. A frame begins and ends anywhere
in a record. Source: RocketMQ `DefaultHAConnection`, `DefaultHAClient`.

Between members of a set, after the preambles of `ha_preamble`: size -1 says how far the leader's log is confirmed, in
the offset's place; no bytes follow. Size -2 says there how many changes of topics by administrators the leader has
seen: a member asks for topics then. It reports in the same stream that it has those of N changes, by N - 2^62; who
never did is not told.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ..errors import FrameError

_REPORT = struct.Struct(">q")
_HEADER = struct.Struct(">qi")

#: pack(offset) -> a slave's report.
pack_report = _REPORT.pack
#: pack(offset, size) -> what comes before a frame's bytes.
pack_header = _HEADER.pack
HEADER_BYTES = _HEADER.size
#: In the size's place: the offset is the confirm offset.
CONFIRM = -1
#: The same: it is the number of a change of topics.
CHANGES = -2
_TAKEN = 1 << 62


def pack_taken(changes: int) -> bytes:
    """A member's report that its topics are as they were after so many changes."""
    return pack_report(changes - _TAKEN)


def taken_of(report: int) -> int:
    """How many changes a report says; -1: it says none, but where the log ends."""
    return report + _TAKEN if -_TAKEN <= report < -(_TAKEN >> 1) else -1


class Reports:
    """A slave's reports, in whatever pieces they come."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """The offsets that are whole now, in their order."""
        data = self._rest + data
        whole = len(data) - len(data) % _REPORT.size
        self._rest = data[whole:]
        return [offset for (offset,) in _REPORT.iter_unpack(data[:whole])]


class Frames:
    """A master's frames, in whatever pieces they come: nothing waits here until a frame is whole."""

    def __init__(self, file_bytes: int, bound: bool = False) -> None:
        """file_bytes: the size of the log's files, which no frame leaves. bound: from a set's leader."""
        self._file_bytes = file_bytes
        self._bound = bound
        #: The confirm offset, as last heard; -1 before.
        self.confirm = -1
        #: How many changes of topics the leader has seen, as last heard; -1 before.
        self.changes = -1
        self._head = b""
        self._offset = 0
        self._left = 0

    def feed(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """(physical offset, bytes of the log from there) for each piece; no bytes for a heartbeat.

        Raises FrameError at a header that no master sends.
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
