"""CONSUMER_SEND_MSG_BACK (36): a consumer returns a message that it could not process; see `sending/send_back.py`.

A request as Java, Go and C++ write it is read in place; any other is decoded, and takes the same path from there. The
message is read on remoting-io if the page cache has it. That is the usual case, since it was consumed a moment ago.
Otherwise the pool `pull-cold` reads it. The answer goes out when the copy is durable.
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
    """The fields that matter, as text: only `protocol.fields` decides which texts are numbers."""

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
#: Bytes of copies that one connection may cause in a burst, and then each second; all connections of an address
#: together four times as many.
COPIED_BURST_BYTES, COPIED_BYTES_A_S = 16 * 1024 * 1024, 8 * 1024 * 1024

_PREFIX = struct.Struct(">ii")
#: The header of an answer of success, with a place for the opaque.
_STORED = (
    b'{"code":0,"extFields":{},"flag":1,"language":"JAVA","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
    % VERSION
)
#: Numbers of at most this many digits fit i32, and i64.
_INT_DIGITS, _LONG_DIGITS = 9, 18


def _stored_answer(opaque: int) -> bytes:
    header = _STORED % opaque
    size = len(header)
    return _PREFIX.pack(size + 4, size) + header


class SendBackReply(msgspec.Struct, gc=False):
    """A consumer that waits for the answer, or (one-way) does not.

    Apache answers 1 whenever the copy was not stored, and the client then sends the message to the retry topic itself.
    request: the decoded request; None for one that was read in place.
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
        if code == ResponseCode.SERVICE_NOT_AVAILABLE:  # as a refusal by the log is answered (`put_ended`)
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
        # Limits of the bytes that are copied for a connection, and for an address.
        self._rates = Rates(clock, COPIED_BURST_BYTES, COPIED_BYTES_A_S)
        self._of_addresses = Rates(clock, 4 * COPIED_BURST_BYTES, 4 * COPIED_BYTES_A_S)

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.CONSUMER_SEND_MSG_BACK, self.handle_send_back)
        dispatcher.add_hot(RequestCode.CONSUMER_SEND_MSG_BACK, self.hot_send_back)

    def hot_send_back(self, conn: Connection, view: memoryview, header: int, body: int, end: int) -> bool:
        """Serve a request as clients write it, in place; False for any other."""
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
        """36: answer at once if it is refused or the group does not retry, else when the copy's tick is published."""
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
            waits = conn.wait()  # one read at a time for each connection: the message may be long

    def _slow_down(self, conn: Connection, size: int) -> None:
        """Pause reading from a connection that causes many copies: a request of 250 bytes may copy 4 MiB. When the
        connections of an address exceed their common limit, only those with a large part in it are paused."""
        waits = self._rates.wait_s(conn.born_host, size)
        waits_for_others = self._of_addresses.wait_s(address_of(conn.born_host), size)
        if not waits and waits_for_others and self._rates.used(conn.born_host) > COPIED_BURST_BYTES // 4:
            waits = waits_for_others
        if waits:
            conn.rest(waits)

    def _go_on(self, asked: SentBack, found: StoredRecord | Missing, reply: SendBackReply) -> None:
        """Store the copy. A message that the group cannot send back is refused before group and topic are made."""
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
    """Return the request in a frame whose numbers are plain digits; None for any other frame, which `_asked` reads."""
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
    """Return the fields of a decoded request. Refuses a bad one with 1 and the field's name."""
    limit = request.ext_fields.get("maxReconsumeTimes")
    return SentBack(
        require_long(request, "offset"),
        require_str(request, "group"),
        require_int(request, "delayLevel"),
        optional_int(request, "maxReconsumeTimes", 0) if limit else None,
        optional_bool(request, "unitMode", False),
        request.version,
    )
