"""CONSUMER_SEND_MSG_BACK (36): a consumer could not use a message; see `sending/send_back.py`.

A request as Java, Go and C++ write it is read in place; any other is decoded, and goes the same way from there.
The message is read on remoting-io when the page cache has it, which it mostly has: it was consumed a moment ago. Else
the pool `pull-cold` reads it. The answer goes out when the copy is durable.
"""

from __future__ import annotations

import struct

import msgspec

from ...clock import Clock
from ...errors import RefusedRequest
from ...protocol.codes import VERSION, RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.fields import optional_bool, optional_int, require_int, require_long, require_str
from ...remoting.connection import Connection
from ...remoting.dispatcher import OVERLOADED, Dispatcher
from ...shares import Rates, address_of
from ...store.record_reader import Missing, StoredRecord
from ..sending.outcome import PutOutcome
from ..sending.send_back import SendBackPath, SentBack
from ..topic_config import I32
from .cold_records import ColdRecords


class _Fields(msgspec.Struct, gc=False):
    """The fields that matter, as text: what numbers are is said in one place, `protocol.fields`."""

    offset: str
    group: str
    delayLevel: str
    maxReconsumeTimes: str = ""
    unitMode: str = "false"


class _Frame(msgspec.Struct, gc=False):
    """A whole JSON header."""

    extFields: _Fields
    opaque: I32
    flag: I32 = 0
    version: I32 = 0


_decode_frame = msgspec.json.Decoder(_Frame).decode
#: Copies that a connection may have made in one go, and then a second; those of one address four times as many.
COPIED_BURST_BYTES, COPIED_BYTES_A_S = 16 * 1024 * 1024, 8 * 1024 * 1024

_PREFIX = struct.Struct(">ii")
#: The header of the answer to what was stored, with a place for the opaque.
_STORED = (
    b'{"code":0,"extFields":{},"flag":1,"language":"JAVA","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
    % VERSION
)
#: Digits of a number that fits i32, of one that fits i64.
_INT_DIGITS, _LONG_DIGITS = 9, 18


def _stored_answer(opaque: int) -> bytes:
    header = _STORED % opaque
    size = len(header)
    return _PREFIX.pack(size + 4, size) + header


class SendBackReply(msgspec.Struct, gc=False):
    """A consumer that waits for the answer, or (one-way) does not.

    Apache answers 1 to all that was not stored, and a client then sends the message to the retry topic by itself.
    request: as it was decoded, None for one that was read in place.
    """

    conn: Connection
    opaque: int
    request: RemotingCommand | None = None

    def put_ended(self, outcome: PutOutcome) -> None:
        if outcome.code == ResponseCode.SUCCESS:
            self.accept()
        elif outcome.physical_offsets:
            self.refuse(ResponseCode.SYSTEM_ERROR, "stored, but not yet known to be durable")
        else:
            self.refuse(ResponseCode.SYSTEM_ERROR, outcome.reason)

    def accept(self) -> None:
        if self.request is not None:
            self.conn.respond(self.request, RemotingCommand.response(ResponseCode.SUCCESS))
            return
        self.conn.send(_stored_answer(self.opaque))

    def refuse(self, code: int, reason: str) -> None:
        if code == ResponseCode.SERVICE_NOT_AVAILABLE:  # as what the log itself refuses is answered
            code = ResponseCode.SYSTEM_ERROR
        response = RemotingCommand.response(code, reason)
        if self.request is not None:
            self.conn.respond(self.request, response)
        else:
            self.conn.answer(self.opaque, response)


class SendBackProcessor:
    """Owned by remoting-io: the handler runs there."""

    def __init__(self, path: SendBackPath, records: ColdRecords, clock: Clock) -> None:
        # Constant after construction.
        self._path = path
        self._records = records
        # Bytes of copies that connections, and addresses, may have made.
        self._rates = Rates(clock, COPIED_BURST_BYTES, COPIED_BYTES_A_S)
        self._of_addresses = Rates(clock, 4 * COPIED_BURST_BYTES, 4 * COPIED_BYTES_A_S)

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.CONSUMER_SEND_MSG_BACK, self.handle_send_back)
        dispatcher.add_hot(RequestCode.CONSUMER_SEND_MSG_BACK, self.hot_send_back)

    def hot_send_back(self, conn: Connection, view: memoryview, header: int, body: int, end: int) -> bool:
        """One as clients write it, in place; False for another."""
        try:
            frame = _decode_frame(view[header:body])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        asked = _usual(frame)
        if asked is None:
            return False
        reply = SendBackReply(conn, frame.opaque)
        try:
            self._take(asked, reply)
        except RefusedRequest as refusal:
            reply.refuse(refusal.code, refusal.remark)
        return True

    def handle_send_back(self, request: RemotingCommand, conn: Connection) -> None:
        """At once what is refused and what a group does not retry; all else when the copy's tick is published."""
        self._take(_asked(request), SendBackReply(conn, request.opaque, request))

    def _take(self, asked: SentBack, reply: SendBackReply) -> None:
        if not self._path.retries(asked):
            reply.accept()
            return
        conn = reply.conn
        is_done = waits = False

        def go_on(found: StoredRecord | Missing) -> None:
            nonlocal is_done
            is_done = True
            if waits:
                conn.let_go()
            self._go_on(asked, found, reply)

        if not self._records.find(asked.physical_offset, conn, go_on):
            reply.refuse(ResponseCode.SYSTEM_BUSY, OVERLOADED)
        elif not is_done:
            waits = conn.wait()  # one that has to be read at a time: it may be long

    def _slow_down(self, conn: Connection, size: int) -> None:
        """A request of 250 bytes may have 4 MiB copied. Who has much copied is not read from for a while; among those
        of one address, only who has."""
        waits = self._rates.wait_s(conn.born_host, size)
        waits_for_others = self._of_addresses.wait_s(address_of(conn.born_host), size)
        if not waits and waits_for_others and self._rates.used(conn.born_host) > COPIED_BURST_BYTES // 4:
            waits = waits_for_others
        if waits:
            conn.rest(waits)

    def _go_on(self, asked: SentBack, found: StoredRecord | Missing, reply: SendBackReply) -> None:
        """What is no message for the group makes neither the group nor its topic."""
        try:
            message = self._path.fit(asked, found)
            if reply.request is not None and reply.request.caller is not None:
                reply.request.caller.check_topic(message.record.topic, "Sub")
            target = self._path.target(asked, reply.conn.born_host)
            if target is None:
                reply.accept()
            else:
                self._path.put(asked, message, target, reply)
                self._slow_down(reply.conn, message.record.size)
        except RefusedRequest as refusal:
            reply.refuse(refusal.code, refusal.remark)


def _usual(frame: _Frame) -> SentBack | None:
    """What a frame asks whose numbers are plain digits; None for any other, which `_asked` looks at."""
    fields = frame.extFields
    offset, level, limit, unit = fields.offset, fields.delayLevel, fields.maxReconsumeTimes, fields.unitMode
    if frame.flag or not fields.group or not _is_plain(offset, _LONG_DIGITS) or not _is_plain(level, _INT_DIGITS):
        return None
    if limit and not _is_plain(limit, _INT_DIGITS):
        return None
    if unit != "false" and unit != "true":
        return None
    return SentBack(int(offset), fields.group, int(level), int(limit) if limit else None, unit == "true", frame.version)


def _is_plain(text: str, most: int) -> bool:
    return text.isdigit() and text.isascii() and len(text) <= most


def _asked(request: RemotingCommand) -> SentBack:
    """Refuses with 1 and the field's name."""
    limit = request.ext_fields.get("maxReconsumeTimes")
    return SentBack(
        require_long(request, "offset"),
        require_str(request, "group"),
        require_int(request, "delayLevel"),
        optional_int(request, "maxReconsumeTimes", 0) if limit else None,
        optional_bool(request, "unitMode", False),
        request.version,
    )
