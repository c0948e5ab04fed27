"""END_TRANSACTION (37): a producer says how a transaction ends; see `transactions/decisions.py`.

Clients send it one-way. The half message is read on remoting-io if the page cache has it, otherwise by the pool
`pull-cold`. A request that is not one-way is answered when its decision is durable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from ...errors import RefusedRequest
from ...few_lines import FewLines
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.fields import require_int, require_long, require_str
from ...remoting.connection import Connection
from ...remoting.dispatcher import OVERLOADED, Dispatcher
from ...store.record_reader import Missing, StoredRecord
from ..sending.outcome import PutOutcome
from ..transactions.check import CheckTransactions
from ..transactions.decisions import Decisions
from ..transactions.half import Half, half_of
from ..transactions.resolved import By
from .cold_records import ColdRecords

logger = logging.getLogger(__name__)

#: At most this many log lines about transactions that were not ended, in this many seconds.
_TOLD, _TELL_S = 10, 10.0
#: Values of `commitOrRollback`. The third one is 0: not known yet.
COMMIT, ROLL_BACK = 8, 12


class _Asked(msgspec.Struct, gc=False):
    """A producer's decision. half_offset: the offset of the half message in the half queue."""

    group: str
    half_offset: int
    physical_offset: int
    decision: int
    by: By


class _Reply(msgspec.Struct, gc=False):
    """A producer that waits for the answer, or (one-way, as clients send it) does not."""

    conn: Connection
    request: RemotingCommand
    lines: FewLines

    def put_ended(self, outcome: PutOutcome) -> None:
        if outcome.is_stored:
            self.conn.respond(self.request, RemotingCommand.response(ResponseCode.SUCCESS))
        else:
            self.refuse(outcome.code, outcome.reason)

    def refuse(self, code: int, reason: str) -> None:
        self.lines.log(
            "transactions: not ended from=%s half=%s at=%s: %s",
            self.conn.remote_host,
            self.request.ext_fields.get("tranStateTableOffset"),
            self.request.ext_fields.get("commitLogOffset"),
            reason,
        )
        self.conn.respond(self.request, RemotingCommand.response(code, reason))


class TransactionProcessor:
    """Owned by remoting-io: the handler runs there."""

    def __init__(
        self, decisions: Decisions, checks: CheckTransactions, records: ColdRecords, monotonic: Callable[[], float]
    ) -> None:
        # Constant after construction.
        self._lines = FewLines(logger.warning, _TOLD, _TELL_S, monotonic)
        self._decisions = decisions
        self._checks = checks
        self._records = records

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.END_TRANSACTION, self.handle_end)

    def handle_end(self, request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
        """37: end the transaction. 0 (not known yet) and unknown values get no answer, as with Apache."""
        asked = _Asked(
            require_str(request, "producerGroup"),
            require_long(request, "tranStateTableOffset"),
            require_long(request, "commitLogOffset"),
            require_int(request, "commitOrRollback"),
            By.CHECK if request.ext_fields.get("fromTransactionCheck") == "true" else By.PRODUCER,
        )
        if asked.decision not in (COMMIT, ROLL_BACK):
            return None
        reply = _Reply(conn, request, self._lines)
        if not self._checks.when_ready(lambda: self._find(asked, reply)):
            reply.refuse(ResponseCode.SYSTEM_BUSY, OVERLOADED)
        return None

    def _find(self, asked: _Asked, reply: _Reply) -> None:
        if not self._records.find(asked.physical_offset, reply.conn, lambda found: self._found(asked, found, reply)):
            reply.refuse(ResponseCode.SYSTEM_BUSY, OVERLOADED)

    def _found(self, asked: _Asked, found: StoredRecord | Missing, reply: _Reply) -> None:
        """Go on with the record that was found. One that is not published yet is waited for; one whose file has left
        the log may have been put back before, and its copy is taken."""
        if found is Missing.NOT_PUBLISHED and self._checks.when_published(
            asked.physical_offset, lambda: self._find(asked, reply)
        ):
            return
        now = self._decisions.moved_to(asked.half_offset) if found is Missing.EXPIRED else None
        if now is None:
            self._end(asked, found, reply)
        elif not self._records.find(now, reply.conn, lambda copy: self._end(asked, copy, reply, moved=True)):
            reply.refuse(ResponseCode.SYSTEM_BUSY, OVERLOADED)

    def _end(self, asked: _Asked, found: StoredRecord | Missing, reply: _Reply, moved: bool = False) -> None:
        """Commit or roll back. moved: `found` is the copy of the named half message that was put back."""
        try:
            half = _half_asked_for(asked, found, moved)
            if reply.request.caller is not None:
                reply.request.caller.check_topic(half.target.topic, "Pub")
            self._decisions.require_real(half)
            half = self._decisions.place_of(half)
            if asked.decision == COMMIT:
                self._decisions.commit(half, reply, asked.by, reply.conn.born_host)
            else:
                self._decisions.roll_back(half, reply, asked.by, reply.conn.born_host)
        except RefusedRequest as refusal:
            reply.refuse(refusal.code, refusal.remark)


def _half_asked_for(asked: _Asked, found: StoredRecord | Missing, moved: bool) -> Half:
    """Return the half message. Refuses with 1, in upstream's words, a record that is not the one the producer names."""
    if isinstance(found, Missing):
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"Find prepared transaction message failed: {found.value}")
    half = half_of(found)
    if half is None:
        raise RefusedRequest(
            ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed: it is no half message"
        )
    if half.group != asked.group:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
    if half.record.queue_offset != asked.half_offset and not moved:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    return half
