"""Answers to pulls in the remoting protocol: a JSON header, and records as they lie in the log.

Adjacent records leave in one piece: from the page cache by sendfile, or with others from a shared buffer in one
sendmsg. Records that are not cached are read by the pool first. No answer is built while its peer takes nothing.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ...errors import RefusedRequest
from ...hotpath import AnswersState
from ...protocol.codes import VERSION
from ...protocol.command import RemotingCommand
from ...remoting.connection import Connection
from ...store.log.commit_log import CommitLog
from ...store.results import GetResult, GetStatus
from ..groups import is_system_group
from ..pulling.admission import Forbidden
from ..pulling.cold_pulls import ColdPulls
from ..pulling.request import PullRequest

if TYPE_CHECKING:
    from ..deliveries.recorder import DeliveryRecorder

#: Room for nearly every answer: 256 KiB of records, and the last message, which may exceed that limit.
_READ_BUFFER_BYTES = 1024 * 1024
#: Scattered records are read in one piece if that copies at most this many bytes for each read that it saves: a read
#: call costs as much as copying some 12 KB.
_BYTES_FOR_A_CALL = 12_000
#: Adjacent records of this size and more go from the page cache to the socket without a copy.
_SENDFILE_FROM_BYTES = 8 * 1024

#: The broker to pull from next. By Apache's rule that is the master, unless the messages that the consumer reads have
#: left the memory there. Source: RocketMQ `PullMessageProcessor`.
MASTER_ID = 0

_PREFIX = struct.Struct(">ii")
_HEADER = (
    b'{"code":%%d,"extFields":{"suggestWhichBrokerId":"%%d","groupSysFlag":"%%d","nextBeginOffset":"%%d",'
    b'"maxOffset":"%%d","minOffset":"%%d","topicSysFlag":"%%d"},"flag":1,"language":"JAVA","opaque":%%d,'
    b'"remark":"%%b","serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION
)

#: The header of an answer with messages (code and broker id are 0), cut at the places of its other six numbers.
FOUND_HEADER = tuple(_HEADER.replace(b"%d", b"0", 2).replace(b"%b", GetStatus.FOUND.encode()).split(b"%d"))


class PullAnswers(AnswersState):
    """The `reply_to` of pulls that came as frames. Owned by remoting-io; the figures may be read by any thread."""

    def __init__(self, log: CommitLog, cold: ColdPulls, deliveries: DeliveryRecorder) -> None:
        # Constant after construction.
        self._log = log
        self._cold = cold
        self._deliveries = deliveries
        # Owned by remoting-io.
        self.buffer = memoryview(bytearray(_READ_BUFFER_BYTES))
        self.found_count = 0
        self.miss_count = 0
        self.message_count = 0
        self.message_bytes = 0

    def refused(self, request: PullRequest, refusal: RefusedRequest) -> None:
        self.refuse(request.conn, request.opaque, refusal)

    @staticmethod
    def refuse(conn: Connection, opaque: int, refusal: RefusedRequest) -> None:
        """Answer a pull that was not admitted."""
        ext = {"forbiddenType": refusal.kind} if isinstance(refusal, Forbidden) else {}
        conn.answer(opaque, RemotingCommand.response(refusal.code, refusal.remark, ext))

    def found(self, request: PullRequest, code: int, result: GetResult) -> None:
        conn = request.conn
        if conn.full:  # build no answer that the peer does not take yet; pulls read from the disk get here so
            conn.when_room(lambda: None if conn.closed else self.found(request, code, result))
            return
        header = _HEADER % (
            code,
            request.group.which_broker_when_consume_slowly if result.read_elsewhere else MASTER_ID,
            request.group.group_sys_flag,
            result.next_offset,
            result.max_offset,
            result.min_offset,
            request.topic.topic_sys_flag,
            request.opaque,
            result.status.encode(),
        )
        length = len(header)
        runs = result.runs
        if not runs:
            self.miss_count += 1
            conn.send(_PREFIX.pack(length + 4, length) + header)
            return
        size = result.size
        head = _PREFIX.pack(length + 4 + size, length) + header
        if len(runs) == 1 and size >= _SENDFILE_FROM_BYTES:
            place = self._log.resident(*runs[0])
            if place is not None and conn.send_file(head, *place, size):
                self._count(request, result)
                return
        parts = self._read(result)
        if parts is None:
            self._cold.read_records(request, result, lambda body: self._send_read(request, head, result, body))
            return
        self._count(request, result)
        parts.insert(0, head)
        conn.send_now(parts, len(head) + size)

    def _send_read(self, request: PullRequest, head: bytes, result: GetResult, body: bytes) -> None:
        """Send the records that the pool read, with a new length: some may have expired since the head was built."""
        self._count(request, result)
        prefix = _PREFIX.pack(len(head) - 4 + len(body), len(head) - 8)
        request.conn.send_parts([prefix, head[8:], body], len(head) + len(body))

    def _count(self, request: PullRequest, result: GetResult) -> None:
        """Count an answer that is certain to leave now. Messages that tools read do not count as consumed."""
        self.found_count += 1
        if is_system_group(request.group.group_name):
            return
        self.message_count += result.message_count
        self.message_bytes += result.size
        self._deliveries.record(request, result.next_offset)

    def _read(self, result: GetResult) -> list[bytes | memoryview] | None:
        """Return the records from the page cache, in the shared buffer; None if some are not cached."""
        log = self._log
        runs = result.runs
        buffer = self.buffer
        first, last = runs[0], runs[-1]
        if len(runs) == 1:
            size = first[1]
            if size > len(buffer):
                buffer = memoryview(bytearray(size))
            return [buffer[:size]] if log.read_nowait(first[0], buffer[:size]) else None
        span = last[0] + last[1] - first[0]
        segment = log.segment_at(first[0])
        worth = min(len(buffer), result.size + len(runs) * _BYTES_FOR_A_CALL)
        if span <= worth and segment and first[0] + span <= segment.end:
            if not log.read_nowait(first[0], buffer[:span]):
                return None
            base = first[0]
            return [buffer[offset - base : offset - base + size] for offset, size in runs]
        if result.size > len(buffer):
            buffer = memoryview(bytearray(result.size))
        parts: list[bytes | memoryview] = []
        at = 0
        for offset, size in runs:
            part = buffer[at : at + size]
            if not log.read_nowait(offset, part):
                return None
            parts.append(part)
            at += size
        return parts
