"""Pulls the records of one range of one queue: in order, each once, whole.

Several pulls are under way, each for other messages: brokers return 32 at a time (8 from cold files), and with one pull
the line would be idle in between. An answer with fewer than requested is followed by a pull for the rest, so that no
message is requested twice, and pieces are returned in the order of their offsets.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from appliance.engine.protocol.codes import RequestCode, ResponseCode
from appliance.engine.protocol.record import FIXED_BYTES, QUEUE_OFFSET_AT

from .access import Access
from .brokers import Patience, connect, where_now
from .connection import Answer, Connection, number, refused
from .errors import Garbled, NetworkError, Refused, Unreachable
from .routes import Addresses, Queue

#: Every broker has this group from its start, and no consumer uses it: so reading makes no group.
GROUP = "TOOLS_CONSUMER"
#: System flag of a pull that commits nothing, does not wait, and contains its own subscription: to all messages.
_SUBSCRIPTION = 0x4
#: Pulls under way. At 32 messages of 1 KiB each that is half a MiB.
_WINDOW = 16
#: Messages requested at first; the answer shows how many the broker returns.
_MOST = 1024
#: Number of complete answers in a row after which more messages are requested.
_WHOLE_ANSWERS = 16
#: A record's size, and its queue offset.
_SIZE_OFFSET = struct.Struct(f">i{QUEUE_OFFSET_AT - 4}xq")


class Range(NamedTuple):
    """The messages [start, end) of a queue. servers: addresses at which its broker was found, the master first."""

    queue: Queue
    start: int
    end: int
    servers: Addresses

    def __str__(self) -> str:
        return f"{self.queue}, offsets {self.start} to {self.end - 1}"


class Piece(NamedTuple):
    """records: the stored records of [start, end), one after another. gaps: (start, end, why) of missing ones."""

    start: int
    end: int
    records: memoryview
    gaps: tuple[tuple[int, int, str], ...] = ()


class _Ended(Unreachable):
    """The queue ends before the messages to read."""


class _Chunk:
    """Messages from `at` to `end`, for one pull. at: offset up to which they have arrived. pieces: those that arrived.
    missing_to: offset up to which this chunk may report missing messages."""

    __slots__ = ("at", "end", "missing_to", "pieces")

    def __init__(self, start: int, end: int, missing_to: int) -> None:
        self.at = start
        self.end = end
        self.missing_to = missing_to
        self.pieces: list[Piece] = []


#: Called with missing messages [start, end), and why; raises if they must not be missing.
OnGap = Callable[[Queue, int, int, str], None]


class Pulls:
    """Reads one range, from any of the broker's servers that has it. For one thread, one use."""

    def __init__(self, wanted: Range, access: Access, on_gap: OnGap) -> None:
        self._wanted = wanted
        self._access = access
        self._on_gap = on_gap
        self._servers = wanted.servers
        self._at = wanted.start
        self._most = _MOST
        self._whole = 0
        self._pace = _Pace(access.bytes_per_s)
        self.pulls = 0

    def pieces(self) -> Iterator[Piece]:
        """Yield all of the range, in order. Raises NetworkError."""
        patience = Patience(self._access.patience_s)
        broker, end, last = self._wanted.queue.broker, self._wanted.end, ""
        while self._at < end:
            before = self._at
            try:
                with connect(broker, self._servers, self._access, last) as connection:
                    last = connection.address
                    yield from self._by(connection)
                    return
            except Garbled:
                raise
            except Unreachable as error:
                failed: NetworkError = error
            except Refused as error:
                if not error.later:
                    raise
                failed = error
            if self._at > before:
                patience.forget()
            try:
                patience.wait(failed)
            except _Ended as error:
                self._on_gap(self._wanted.queue, self._at, end, str(error))
                yield Piece(self._at, end, memoryview(b""))
                return
            self._servers = where_now(broker, self._servers, self._access)

    def _by(self, connection: Connection) -> Iterator[Piece]:
        """Yield pieces over one connection, from the place where the last one ended."""
        chunks: deque[_Chunk] = deque()
        under_way: dict[int, _Chunk] = {}
        planned = self._at
        # The first answer shows how many messages the broker returns at a time: only then several pulls are made.
        window = 1
        while self._at < self._wanted.end:
            while planned < self._wanted.end and len(chunks) < window:
                end = min(planned + self._most, self._wanted.end)
                chunk = _Chunk(planned, end, self._wanted.end if window == 1 else end)
                self._pull(connection, under_way, chunk)
                chunks.append(chunk)
                planned = chunk.end
            answer = connection.receive()
            chunk = under_way.pop(answer.opaque)
            self._take(connection.address, chunk, answer)
            if window == 1:
                # The rest of the first chunk is left to the next ones.
                planned = chunk.end = chunk.at
                window = _WINDOW
            if chunk.at < chunk.end:
                self._pull(connection, under_way, chunk)
            while chunks and (chunks[0].pieces or chunks[0].at >= chunks[0].end):
                first = chunks[0]
                pieces, first.pieces = first.pieces, []
                if first.at >= first.end:
                    chunks.popleft()
                for piece in pieces:
                    for gap in piece.gaps:
                        self._on_gap(self._wanted.queue, *gap)
                    self._at = piece.end
                    yield piece

    def _pull(self, connection: Connection, under_way: dict[int, _Chunk], chunk: _Chunk) -> None:
        fields = pull_of(self._wanted.queue, chunk.at, chunk.end - chunk.at)
        self.pulls += 1
        under_way[connection.send(RequestCode.PULL_MESSAGE, fields)] = chunk

    def _take(self, address: str, chunk: _Chunk, answer: Answer) -> None:
        """Take an answer for a chunk, and note how far the chunk is now."""
        code = answer.code
        if code == ResponseCode.SUCCESS:
            # The offset behind the last message that the broker read.
            after = number(address, answer, "nextBeginOffset")
            if not chunk.at < after or not answer.body:
                raise Garbled(f"{address} answered the pull at offset {chunk.at} of {self._wanted.queue} with none")
            self._pace.took(len(answer.body))
            piece = Piece(chunk.at, min(after, chunk.end), answer.body)
            gaps = tuple((*gap, f"{address} has none between their neighbours") for gap in gaps_in(address, piece))
            chunk.pieces.append(piece._replace(gaps=gaps))
            self._learn(chunk, after)
            chunk.at = after
        elif code in (ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_NOT_FOUND):
            self._take_nothing(address, chunk, answer)
        else:
            raise refused(address, f"messages of {self._wanted.queue}", answer)

    def _learn(self, chunk: _Chunk, after: int) -> None:
        """Learn how many messages the broker returns at a time, from an answer to a pull at chunk.at."""
        given, asked = after - chunk.at, chunk.end - chunk.at
        if given < asked:
            self._most = given
            self._whole = 0
        elif asked == self._most:
            self._whole += 1
            if self._whole >= _WHOLE_ANSWERS:
                self._most = min(self._most * 2, _MOST)
                self._whole = 0

    def _take_nothing(self, address: str, chunk: _Chunk, answer: Answer) -> None:
        """Take an answer without messages, although there were some when the range was planned."""
        first = number(address, answer, "minOffset")
        behind = number(address, answer, "maxOffset")
        after = number(address, answer, "nextBeginOffset")
        queue = self._wanted.queue
        if first > chunk.at:
            why = f"{address} has only offsets from {first} on: older messages were deleted meanwhile"
            self._miss(chunk, min(first, chunk.missing_to), why)
        elif behind <= chunk.at:
            # A slave that is behind its master, or a master that lost its newest messages in a crash.
            raise _Ended(f"{address} has no offset {chunk.at} of {queue}: it ends at {behind}")
        elif after > chunk.at:
            why = f"{address} went on at offset {after}: the messages before it were deleted meanwhile"
            self._miss(chunk, min(after, chunk.missing_to), why)
        else:
            raise Unreachable(
                f"{address} gives nothing at offset {chunk.at} of {queue}: {answer.remark or 'no reason'}"
            )

    def _miss(self, chunk: _Chunk, end: int, why: str) -> None:
        chunk.pieces.append(Piece(chunk.at, end, memoryview(b""), ((chunk.at, end, why),)))
        chunk.at = end


def pull_of(queue: Queue, offset: int, most: int) -> dict[str, object]:
    """Return the header of a pull of at most so many messages."""
    return {
        "consumerGroup": GROUP,
        "topic": queue.topic,
        "queueId": queue.queue_id,
        "queueOffset": offset,
        "maxMsgNums": most,
        "sysFlag": _SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }


def queue_offset_at(data: bytes, at: int) -> int:
    """Return the queue offset of the record that begins there."""
    offset: int = _SIZE_OFFSET.unpack_from(data, at)[1]
    return offset


def gaps_in(address: str, piece: Piece) -> Iterator[tuple[int, int]]:
    """Yield the piece's offsets that its records leave out, as [start, end). Raises Garbled if they are no records."""
    records, at, expected = piece.records, 0, piece.start
    try:
        while at < len(records):
            size, offset = _SIZE_OFFSET.unpack_from(records, at)
            if size < FIXED_BYTES or at + size > len(records) or not expected <= offset < piece.end:
                raise ValueError
            if offset > expected:
                yield expected, offset
            expected = offset + 1
            at += size
    except (struct.error, ValueError):
        raise Garbled(f"{address} sent records that are none, for offsets {piece.start} to {piece.end - 1}") from None
    if expected < piece.end:
        yield expected, piece.end


class _Pace:
    """Waits between answers, to keep within the allowed bytes per second."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def took(self, size: int) -> None:
        if self._bytes_per_s > 0:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + size / self._bytes_per_s
            if self._free_at > now:
                time.sleep(self._free_at - now)
