"""One connection without its socket: frames out of bytes, calls by their opaque, deadlines. PURE.

Deadlines are kept in a heap together with those of answered calls; it is made anew when it has more of these than of
others. So each costs little, and `next_deadline` may be too early, never too late.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable
from typing import Generic, TypeVar

from ..errors import BadAnswer
from ..wire import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    MAX_FRAME_BYTES,
    FrameError,
    RemotingCommand,
    decode_frame,
    encode_command,
)
from .quick import Answered, Flight, Form, Stop, form_of, header

_LENGTH = struct.Struct(">i")
#: Length of the rest, and with the encoding JSON, which is 0, the header's.
_PREFIX = struct.Struct(">iI")

_GROUPS = ("queueId", "queueOffset", "msgId", "transactionId", "opaque")
#: Own limit of forms that are made for a connection: a broker's settings may change, and its answers with them.
_MOST_FORMS = 20

#: The waiter for an answer, any object: the connection only keeps and returns it.
Waiting = TypeVar("Waiting")

#: Length of a frame with an empty header: less is no frame.
_LEAST_BYTES = 4
#: Deadlines of answered calls that are kept before the heap is looked at.
_STALE = 64


class Connection(Generic[Waiting]):
    """Guarded by the lock of its link in the shell."""

    def __init__(self, sign: Callable[[RemotingCommand], dict[str, str]] | None = None) -> None:
        """sign: returns the header fields of a request with its signature."""
        self._sign = sign
        self._received = bytearray()
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._waiting: dict[int, tuple[float, Waiting]] = {}
        #: Number of flights among the waiters, and the form of their answers.
        self._flying = 0
        self._landed: list[tuple[Flight, Answered]] = []
        self._form: Form | None = None
        self._forms_left = _MOST_FORMS
        self._deadlines: list[tuple[float, int]] = []
        self._opaque = 0
        #: True once a whole frame has arrived.
        self.has_spoken = False
        #: Set when bytes arrived that are no frame; the connection has to be closed.
        self.broken: BadAnswer | None = None

    def call(self, request: RemotingCommand, deadline: float, waiting: Waiting) -> int:
        """Put a request into the output; set and return its opaque. Raises FrameError for one that is too large."""
        self._opaque = opaque = (self._opaque + 1) & 0x7FFFFFFF
        request.opaque = opaque
        self._output.append(self._encode(request))
        self._await(opaque, deadline, waiting)
        return opaque

    def _await(self, opaque: int, deadline: float, waiting: Waiting) -> None:
        self._waiting[opaque] = (deadline, waiting)
        heapq.heappush(self._deadlines, (deadline, opaque))
        if len(self._deadlines) > 2 * len(self._waiting) + _STALE:
            self._deadlines = [(until, number) for number, (until, _) in self._waiting.items()]
            heapq.heapify(self._deadlines)

    def launch(self, flight: Flight, stop: Stop, born_ms: int) -> int:
        """Put a message into the output, whose answer or error its flight gets; return how many bytes wait there."""
        self._opaque = opaque = (self._opaque + 1) & 0x7FFFFFFF
        head, body = header(stop, born_ms, flight.text, opaque), flight.body
        self._output += (_PREFIX.pack(4 + len(head) + len(body), len(head)), head, body)
        self._output_bytes += len(body) + len(head)
        self._flying += 1
        self._await(opaque, flight.deadline, flight)  # type: ignore[arg-type]
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
        return output

    def feed(self, data: bytes) -> tuple[list[tuple[Waiting, RemotingCommand]], list[RemotingCommand]]:
        """Take received bytes; return (answers with their waiters, requests of the server). Those of flights that have
        landed are for `take_landed`.

        Answers without a waiter, for instance after the deadline, are dropped. Bytes that are no frame set `broken`;
        the frames before them are still returned, since their waiters are no longer kept here.
        """
        received = self._received
        received += data
        answers, requests = [], []
        at, end = 0, len(received)
        while end - at >= 4:
            (length,) = _LENGTH.unpack_from(received, at)
            if not _LEAST_BYTES <= length <= MAX_FRAME_BYTES:
                self.broken = BadAnswer(self._no_frame(bytes(received[at : at + 24])))
                break
            if end - at < 4 + length:
                break
            if self._flying and self._lands(received, at, at + 4 + length):
                self.has_spoken = True
                at += 4 + length
                continue
            try:
                command = decode_frame(received[at : at + 4 + length])
            except FrameError as error:
                self.broken = BadAnswer(f"sent a broken frame: {error}")
                break
            at += 4 + length
            self.has_spoken = True
            if not command.is_response:
                requests.append(command)
            elif (found := self._waiting.pop(command.opaque, None)) is not None:
                self._flying -= isinstance(found[1], Flight)
                answers.append((found[1], command))
        del received[:at]
        return answers, requests

    def take_landed(self) -> list[tuple[Flight, Answered]]:
        """Return the flights that have landed, each only once, with their answers."""
        landed, self._landed = self._landed, []
        return landed

    def _lands(self, received: bytearray, begin: int, end: int) -> bool:
        """True if a frame is the usual answer to a flight; that is no longer a waiter then."""
        if end - begin < 8 or _LENGTH.unpack_from(received, begin + 4)[0] != end - begin - 8:
            return False  # it has a body, or a header that is no JSON
        form, begin = self._form, begin + 8
        match = None if form is None else form.match(received, begin, end)
        if match is None:
            if self._forms_left:
                form = form_of(bytes(received[begin:end]))
                if form is not None:
                    self._form = form
                    self._forms_left -= 1
                    match = form.match(received, begin, end)
            if match is None:
                return False
        assert form is not None, "it has matched"
        number, offset, offset_id, transaction_id, opaque = match.group(*_GROUPS)
        waiter = self._waiting.get(int(opaque))
        if waiter is None or not isinstance(waiter[1], Flight):
            return False
        del self._waiting[int(opaque)]
        self._flying -= 1
        self._landed.append((waiter[1], (form, number, offset, offset_id, transaction_id)))
        return True

    def _no_frame(self, begin: bytes) -> str:
        if self.has_spoken:
            return f"sent a broken frame that begins with {begin!r}"
        return f"does not speak RocketMQ's protocol: its answer begins with {begin!r}"

    def next_deadline(self) -> float | None:
        """Return when `expire` has to be called at the latest; None while there are no waiters."""
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now: float) -> list[Waiting]:
        """Remove and return the waiters whose deadline has come; they get no answer."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, opaque = heapq.heappop(self._deadlines)
            found = self._waiting.get(opaque)
            if found is not None and found[0] <= now:
                del self._waiting[opaque]
                self._flying -= isinstance(found[1], Flight)
                expired.append(found[1])
        return expired

    def lost(self) -> list[Waiting]:
        """Remove and return all waiters, since the connection is gone. Unsent bytes are dropped."""
        waiting = [one for _, one in self._waiting.values()]
        self._waiting.clear()
        self._flying = 0
        self._deadlines.clear()
        self._output.clear()
        self._output_bytes = 0
        return waiting
