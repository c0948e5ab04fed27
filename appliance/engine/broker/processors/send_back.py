"""CONSUMER_SEND_MSG_BACK (36): a consumer returns a message that it could not process; see `sending/send_back.py`.

The message is read on remoting-io if the page cache has it. That is the usual case, since it was consumed a moment ago.
Otherwise the pool `pull-cold` reads it. The answer goes out when the copy is durable.
"""

from __future__ import annotations

import msgspec

from ...clock import Clock
from ...errors import RefusedRequest
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.fields import optional_bool, optional_int, require_int, require_long, require_str
from ...remoting.connection import Connection
from ...remoting.dispatcher import OVERLOADED, Dispatcher
from ...shares import Rates, address_of
from ...store.record_reader import Missing, StoredRecord
from ..sending.outcome import PutOutcome
from ..sending.send_back import SendBackPath, SentBack
from .cold_records import ColdRecords

#: Bytes of copies that one connection may cause in a burst, and then each second; all connections of an address
#: together four times as many.
COPIED_BURST_BYTES, COPIED_BYTES_A_S = 16 * 1024 * 1024, 8 * 1024 * 1024


class SendBackReply(msgspec.Struct, gc=False):
    """A consumer that waits for the answer, or (one-way) does not.

    Apache answers 1 whenever the copy was not stored, and the client then sends the message to the retry topic itself.
    """

    conn: Connection
    request: RemotingCommand

    def put_ended(self, outcome: PutOutcome) -> None:
        if outcome.code == ResponseCode.SUCCESS:
            self.accept()
        elif outcome.physical_offsets:
            self.refuse(ResponseCode.SYSTEM_ERROR, "stored, but not yet known to be durable")
        else:
            self.refuse(ResponseCode.SYSTEM_ERROR, outcome.reason)

    def accept(self) -> None:
        self.conn.respond(self.request, RemotingCommand.response(ResponseCode.SUCCESS))

    def refuse(self, code: int, reason: str) -> None:
        if code == ResponseCode.SERVICE_NOT_AVAILABLE:  # as a refusal by the log is answered (`put_ended`)
            code = ResponseCode.SYSTEM_ERROR
        self.conn.respond(self.request, RemotingCommand.response(code, reason))


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

    def handle_send_back(self, request: RemotingCommand, conn: Connection) -> None:
        """36: answer at once if it is refused or the group does not retry, else when the copy's tick is published."""
        self._take(_asked(request), SendBackReply(conn, request))

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
            if reply.request.caller is not None:
                reply.request.caller.check_topic(message.record.topic, "Sub")
            target = self._path.target(asked, reply.conn.born_host)
            if target is None:
                reply.accept()
            else:
                self._path.put(asked, message, target, reply)
                self._slow_down(reply.conn, message.record.size)
        except RefusedRequest as refusal:
            reply.refuse(refusal.code, refusal.remark)


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
