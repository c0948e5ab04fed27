"""One connection without its socket: frames out of bytes, calls by their opaque, deadlines. PURE.

Deadlines are kept in a heap together with those of answered calls; it is made anew when it has more of these than of
others. So each costs little, and `next_deadline` may be too early, never too late.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from ..errors import BadAnswer
from ..wire import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    MAX_FRAME_BYTES,
    FrameError,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    decode_frame,
    encode_command,
)
from .quick import Flight, Flights, Stop

_LENGTH = struct.Struct(">i")

#: The waiter for an answer, any object: the connection only keeps and returns it.
Waiting = TypeVar("Waiting")

#: Length of a frame with an empty header: less is no frame.
_LEAST_BYTES = 4
#: Requests that store a message, another one if they are made twice.
_STORES = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
#: Deadlines of answered calls that are kept before the heap is looked at.
_STALE = 64


class Asked(NamedTuple, Generic[Waiting]):
    """A call that waits for its answer. is_repeated: True if another connection refused it with GO_AWAY."""

    deadline: float
    waiting: Waiting
    request: RemotingCommand
    is_repeated: bool


class Connection(Generic[Waiting]):
    """Guarded by the lock of its link in the shell."""

    def __init__(self, sign: Callable[[RemotingCommand], dict[str, str]] | None = None) -> None:
        """sign: returns the header fields of a request with its signature."""
        self._sign = sign
        self._received = bytearray()
        self._output: list[bytes] = []
        self._output_bytes = 0
        #: Frames of calls in the output, by opaque.
        self._unsent: dict[int, bytes] = {}
        #: By opaque.
        self._waiting: dict[int, Asked[Waiting]] = {}
        self._turned_away: list[Asked[Waiting]] = []
        self._flights = Flights()
        #: Returns the flights that have landed, each only once, with their answers.
        self.take_landed = self._flights.take_landed
        self._deadlines: list[tuple[float, int]] = []
        self._opaque = 0
        #: True once a whole frame has arrived.
        self.has_spoken = False
        #: True once an answer was another one than GO_AWAY.
        self._has_served = False
        #: True once the server, which is about to stop, wants to be left. One that has answered nothing else is not: on
        #: another connection it would say the same.
        self.goes_away = False
        #: Set when bytes arrived that are no frame; the connection has to be closed.
        self.broken: BadAnswer | None = None

    def call(self, request: RemotingCommand, deadline: float, waiting: Waiting, is_repeated: bool = False) -> int:
        """Put a request into the output; set and return its opaque. Raises FrameError for one that is too large."""
        self._opaque = opaque = (self._opaque + 1) & 0x7FFFFFFF
        request.opaque = opaque
        frame = self._unsent[opaque] = self._encode(request)
        self._output.append(frame)
        self._waiting[opaque] = Asked(deadline, waiting, request, is_repeated)
        heapq.heappush(self._deadlines, (deadline, opaque))
        if len(self._deadlines) > 2 * len(self._waiting) + _STALE:
            self._deadlines = [(asked.deadline, number) for number, asked in self._waiting.items()]
            heapq.heapify(self._deadlines)
        return opaque

    def launch(self, flight: Flight, stop: Stop, born_ms: int) -> int:
        """Put a message into the output, whose answer or error its flight gets; return how many bytes wait there."""
        self._opaque = opaque = (self._opaque + 1) & 0x7FFFFFFF
        head, body = self._flights.launch(flight, stop, born_ms, opaque), flight.body
        self._output += (head, body)
        self._output_bytes += len(body) + len(head)
        return self._output_bytes

    def tell(self, request: RemotingCommand) -> None:
        """Put a one-way request into the output, which gets no answer. Raises as `call`."""
        self._opaque = request.opaque = (self._opaque + 1) & 0x7FFFFFFF
        request.flag |= FLAG_ONEWAY
        self._output.append(self._encode(request))

    def _encode(self, request: RemotingCommand) -> bytes:
        if self._sign is None:
            return encode_command(request)
        unsigned = request.ext_fields
        request.ext_fields = self._sign(request)
        try:
            return encode_command(request)
        finally:
            request.ext_fields = unsigned  # tracebacks show requests

    def answer(self, question: RemotingCommand, answer: RemotingCommand) -> None:
        """Put the answer to a request of the server into the output, unless that is one-way."""
        if not question.is_oneway:
            answer.opaque = question.opaque
            answer.flag |= FLAG_RESPONSE
            self._output.append(encode_command(answer))

    def take_output(self) -> bytes:
        """Return the bytes to send, each only once."""
        output, self._output = b"".join(self._output), []
        self._output_bytes = 0
        self._unsent.clear()
        return output

    def feed(self, data: bytes, answers: list[tuple[Waiting, RemotingCommand]]) -> list[RemotingCommand]:
        """Take received bytes; return requests of the server. answers: gets the answers, each with its waiter, and has
        those so far if a signal's handler raises. Those of flights that have landed are for `take_landed`.

        Answers without a waiter, for instance after the deadline, are dropped. Bytes that are no frame set `broken`;
        the answers before them are given, since their waiters are no longer kept here.
        """
        received = self._received
        received += data
        requests = []
        at, end = 0, len(received)
        while end - at >= 4:
            if self._flights:
                behind = self._flights.walk(received, at)
                if behind > at:
                    self.has_spoken = self._has_served = True
                    at = behind
                    continue
            (length,) = _LENGTH.unpack_from(received, at)
            if not _LEAST_BYTES <= length <= MAX_FRAME_BYTES:
                self.broken = BadAnswer(self._no_frame(bytes(received[at : at + 24])))
                break
            if end - at < 4 + length:
                break
            try:
                command = decode_frame(received[at : at + 4 + length])
            except FrameError as error:
                self.broken = BadAnswer(f"sent a broken frame: {error}")
                break
            at += 4 + length
            self.has_spoken = True
            if not command.is_response:
                requests.append(command)
            elif (found := self._waiting.get(command.opaque)) is not None:
                is_turned_away = self._is_told_to_go(command) and not found.is_repeated
                del self._waiting[command.opaque]
                if is_turned_away:
                    self._turned_away.append(found)
                else:
                    answers.append((found.waiting, command))
            else:
                before = len(answers)
                # In one step: behind a call of `pop` a signal's handler may raise, and nobody would have the flight.
                flights = filter(None, map(self._flights.pop, (command.opaque,)))
                answers += zip(flights, (command,), strict=False)  # type: ignore[arg-type]
                if len(answers) > before:
                    self._is_told_to_go(command)
        del received[:at]
        return requests

    def _is_told_to_go(self, answer: RemotingCommand) -> bool:
        """Note what an answer says of the connection; True if it has to be left."""
        if answer.code != ResponseCode.GO_AWAY:
            self._has_served = True
        else:
            self.goes_away |= self._has_served
        return answer.code == ResponseCode.GO_AWAY and self.goes_away

    def take_turned_away(self) -> list[Asked[Waiting]]:
        """Return the calls that were refused with GO_AWAY, each only once: they are for another connection."""
        turned_away, self._turned_away = self._turned_away, []
        return turned_away

    def _no_frame(self, begin: bytes) -> str:
        if self.has_spoken:
            return f"sent a broken frame that begins with {begin!r}"
        return f"does not speak RocketMQ's protocol: its answer begins with {begin!r}"

    def next_deadline(self) -> float | None:
        """Return when `expire` has to be called at the latest; None while there are no waiters."""
        until = self._flights.next_deadline()
        if not self._deadlines:
            return until
        return self._deadlines[0][0] if until is None else min(until, self._deadlines[0][0])

    def expire(self, now: float) -> list[Waiting]:
        """Remove and return the waiters whose deadline has come; they get no answer. What of theirs is in the output
        still, as before there is a connection, is not sent any more."""
        expired: list[Waiting] = self._flights.expire(now)  # type: ignore[assignment]
        dropped = set()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, opaque = heapq.heappop(self._deadlines)
            found = self._waiting.get(opaque)
            if found is not None and found.deadline <= now:
                del self._waiting[opaque]
                expired.append(found.waiting)
                dropped.add(id(self._unsent.pop(opaque, None)))
        if dropped:
            self._output = [frame for frame in self._output if id(frame) not in dropped]
        return expired

    @property
    def is_idle(self) -> bool:
        """True if there are no waiters."""
        return not self._waiting and not self._flights

    def asked_again(self) -> list[Waiting]:
        """Remove and return the waiters for requests that can be made again elsewhere: those that store nothing."""
        found = {opaque: one.waiting for opaque, one in self._waiting.items() if one.request.code not in _STORES}
        for opaque in found:
            del self._waiting[opaque]
        return list(found.values())

    def lost(self) -> list[Waiting]:
        """Remove and return all waiters, since the connection is gone. Unsent bytes are dropped."""
        waiting = [one.waiting for one in self._waiting.values()]
        waiting += self._flights.lost()  # type: ignore[arg-type]
        self._waiting.clear()
        self._deadlines.clear()
        self._output.clear()
        self._output_bytes = 0
        self._unsent.clear()
        return waiting
