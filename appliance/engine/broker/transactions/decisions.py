"""Ends transactions: stages the committed copy and the op message, and answers.

    commit      a copy goes to the real topic, and the op message says that the half is decided
    roll back   the op message alone
    discard     a copy goes to TRANS_CHECK_MAX_TIME_TOPIC; for halves that were not decided in time

A half that cannot stay where it lies is put back: a copy goes to the end of the half queue, and the op message says
that the old place is done with. A decision that names the old place still ends it.

Each decided half has an op message of its own, `12`: 4.9 writes this form, and both versions read it. 5.3.3 lists
several, `12,13,`, of which 4.9 understands none. The op message is staged behind the copy in the same tick. A crash may
keep the copy without the op message, which the start finds out (`rebuild.py`); it never keeps the op message without
the copy. The first decision wins, and a second one is refused.
Source: RocketMQ 5.3.3 `EndTransactionProcessor`, `TransactionalMessageServiceImpl.deletePrepareMessage`.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ...errors import RefusedRequest, StoreBroken
from ...few_lines import OncePerReason
from ...protocol.codes import ResponseCode
from ...protocol.names import HALF_TOPIC, OP_HALF_TOPIC, PERM_READ, PERM_WRITE
from ...protocol.properties import DELAY_TIME_LEVEL, PREPARED_QUEUE_OFFSET, decode_properties, encode_properties
from ...protocol.record import SYS_COMMIT, SYS_TRANSACTION_MASK, body_crc, hosts
from ...store.dispatch import properties_tag_code
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ENTRY
from ..delays.levels import Place, is_of_deleted, queue_for
from ..sending.admission import topic_field
from ..sending.outcome import PutOutcome, ReplyTo, store_unavailable
from ..sending.own_appends import OwnAppends, copy_of
from ..timers.waiting import WaitingPlaces
from .half import (
    DISCARDED_TOPIC,
    HALF_QUEUE,
    Half,
    earlier_offsets,
    offset_in,
    put_back_text,
    waited_ms,
    with_checks,
    with_mark,
)
from .op_runs import OpRuns
from .open_halves import OpenHalves
from .rebuild import Found, Moved
from .resolved import By, How, Resolved

if TYPE_CHECKING:
    from ..topics import TopicConfigManager

logger = logging.getLogger(__name__)

#: Most op messages in one tick; more come in the next ones.
OPS_AT_ONCE = 1000
_OP_FIELD = topic_field(OP_HALF_TOPIC)
#: Properties of op messages, as recorded.
_OP_TEXT = "WAIT\x01true\x02TAGS\x01d\x02"
_OP_PROPERTIES, _OP_CODE = _OP_TEXT.encode(), properties_tag_code(_OP_TEXT)
#: Gain that is needed to put a half back: op messages or halves that a start then does not read.
PUT_BACK_FOR = 10
#: Most halves that are put back at a time for that.
MOST_HELD_UP = 5000

ALREADY_DECIDED = "the transaction was decided before"


class Nobody:
    """A `ReplyTo` without a receiver."""

    def put_ended(self, outcome: PutOutcome) -> None: ...


NOBODY = Nobody()


class _Copy(msgspec.Struct, gc=False):
    """Receives the outcome of a copy and passes it on. refused: the outcome, if it was refused at once."""

    reply_to: ReplyTo
    staged: bool = False
    refused: PutOutcome | None = None

    def put_ended(self, outcome: PutOutcome) -> None:
        if not self.staged:
            self.refused = outcome
        self.reply_to.put_ended(outcome)


class Decisions:
    """Owned by remoting-io: every method runs there."""

    def __init__(
        self,
        store: MessageStore,
        appends: OwnAppends,
        halves: OpenHalves,
        topics: TopicConfigManager,
        places: WaitingPlaces,
        wall_ms: Callable[[], int],
    ) -> None:
        # Constant after construction.
        self._store = store
        self._appends = appends
        self.halves = halves
        self._topics = topics
        self._places = places
        self._wall_ms = wall_ms
        # Owned by remoting-io.
        self._decided: list[int] = []
        #: Behind the last copy in the log: once the log is durable to there, only open half messages are needed.
        self.staged_to = 0
        #: Receivers that wait for the op message of a half that was rolled back.
        self._rolled_back: list[tuple[ReplyTo, PutOutcome]] = []
        self._ops = OpRuns()
        #: About op messages, and about DISCARDED_TOPIC, which is made for each half anew until it is there.
        self._op_told, self._topic_told = OncePerReason(logger.error), OncePerReason(logger.error)
        #: Offset where a half lay that was put back -> (offset, physical offset) where it lies; the keys, in order.
        self._moved: Moved = {}
        self._moves: deque[int] = deque()
        #: First offsets of halves of which a copy made by Apache is decided.
        self._late: frozenset[int] = frozenset()
        #: Number of transactions that ended since the start.
        self.counts: Counter[How] = Counter()
        #: Called for each transaction that ends.
        self.on_ended: Callable[[Resolved], None] = lambda ended: None

    # --- the three ends

    def commit(self, half: Half, reply_to: ReplyTo, by: By = By.PRODUCER, host: bytes = b"") -> None:
        """Commit a half. Refuses with 1 one that was decided before; also one that is damaged, or whose topic is gone
        or was deleted since, and leaves it open. by, host: who decides, see `resolved.Resolved`."""
        self._refuse_decided(half)
        record = half.record
        if record.body and body_crc(record.body) != record.body_crc:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "the half message is damaged: its body's CRC is another")
        config = self._topics.get(half.target.topic)
        queue_id = None if config is None else queue_for(half.target, config)
        if queue_id is None:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"topic[{half.target.topic}] not exist")
        if self._is_of_deleted(half):
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR,
                f"topic[{half.target.topic}] was deleted after the half message was sent: it can be rolled back only",
            )
        place, text = self._waiting_place(record.properties, Place(half.target.topic, queue_id))
        if self._stage(half, place, text, record.sys_flag & ~SYS_TRANSACTION_MASK | SYS_COMMIT, reply_to):
            self._end(half, How.COMMITTED, by, host)

    def roll_back(self, half: Half, reply_to: ReplyTo, by: By = By.PRODUCER, host: bytes = b"") -> None:
        """Roll a half back. Refuses with 1 one that was decided before, with 14 if the log is broken."""
        self._refuse_decided(half)
        if self._store.log.broken is not None:
            raise RefusedRequest(ResponseCode.SERVICE_NOT_AVAILABLE, str(self._store.log.broken))
        self._end(half, How.ROLLED_BACK, by, host)
        outcome = PutOutcome(ResponseCode.SUCCESS, HALF_QUEUE, half.record.queue_offset, unique_key=half.unique_key)
        self._rolled_back.append((reply_to, outcome))

    def discard(self, half: Half, checks: int, reply_to: ReplyTo) -> bool:
        """Set aside a half that was not decided in time. False if that is not possible now."""
        self._refuse_decided(half)
        try:
            config = self._topics.create_retry_topic(DISCARDED_TOPIC, 1, PERM_READ | PERM_WRITE)
        except RefusedRequest as refusal:
            self._topic_told.failed(f"transactions: {DISCARDED_TOPIC} cannot be made: %s", refusal.remark)
            return False
        self._topic_told.went_well()
        if config is None:
            return False
        text = with_checks(half.record.properties, checks)
        if self._is_of_deleted(half):
            text = with_mark(text)
        with self._store.log.freeing():
            done = self._stage(half, Place(DISCARDED_TOPIC, 0), text, half.record.sys_flag, reply_to)
        if done:
            self._end(half, How.DISCARDED, By.BROKER, b"", checks)
        return done

    def forget(self, offset: int) -> None:
        """Drop a half message that can never be read again: nothing is left to decide."""
        checks = self.halves.checks(offset) or 0
        if self.halves.close(offset):
            self._decided.append(offset)
            self.counts[How.LOST] += 1
            self.on_ended(Resolved(offset, -1, self._wall_ms(), 0, How.LOST, By.BROKER, checks, b""))

    def put_back(self, half: Half, checks: int, waited: int) -> bool:
        """Store an open half again at the end of its queue; it is asked about when it would have been. waited: the ms
        for which it has been open, which count on. False if that is not possible now."""
        record, store = half.record, self._store
        queue = store.queues.get_or_create(HALF_TOPIC, HALF_QUEUE)
        offset = queue.next_offset
        text = put_back_text(half, checks, waited)
        if self._is_of_deleted(half):
            text = with_mark(text)
        with store.log.freeing():
            is_staged = self._stage(half, Place(HALF_TOPIC, HALF_QUEUE), text, record.sys_flag, NOBODY)
        if not is_staged:
            return False
        now = (offset, store.tick.last_offset)
        self.halves.move(record.queue_offset, offset, checks)
        self.staged_to = store.log.stage_base + store.log.staged
        self._decided.append(record.queue_offset)
        for old in {record.queue_offset, *earlier_offsets(half)}:
            self._note_move(old, now)
        for _ in range(2):  # the move of a half that was decided since is no longer needed
            old = self._moves.popleft()
            if self.halves.checks(self._moved[old][0]) is None:
                del self._moved[old]
            else:
                self._moves.append(old)
        return True

    def _note_move(self, old: int, now: tuple[int, int]) -> None:
        if old not in self._moved:
            self._moves.append(old)
        self._moved[old] = now

    def _is_of_deleted(self, half: Half) -> bool:
        return is_of_deleted(half.record, half.target.topic, self._store.files.deleted_topics)

    def place_of(self, half: Half) -> Half:
        """Return the half where it lies now: it may have been put back since its producer received its offset."""
        now = self._moved.get(half.record.queue_offset)
        if now is None or self.halves.checks(half.record.queue_offset) is not None:
            return half
        record = half.record._replace(queue_offset=now[0], physical_offset=now[1])
        if self._is_of_deleted(half):  # the new place does not show it
            record = record._replace(properties=with_mark(record.properties))
        return half._replace(record=record)

    def require_real(self, half: Half) -> None:
        """Refuse with 1 bytes within a body that look like an open half message, or like one that was put back: the
        queue has an entry for the real one. If only the disk could show it, they are believed: this is remoting-io."""
        record, store = half.record, self._store
        queue = store.find_queue(HALF_TOPIC, HALF_QUEUE)
        was_put_back = record.queue_offset in self._moved
        if queue is None or (self.halves.checks(record.queue_offset) is None and not was_put_back):
            return
        entry: bytes | None
        if record.queue_offset < queue.min_offset:
            entry = ENTRY.pack(-1, 0, 0)  # the real one has left the log
        elif record.queue_offset >= queue.tail_base:
            entry = queue.tail_entries(record.queue_offset, 1)
        else:
            entry = (
                None if queue.broken else store.queues.files.read_nowait(HALF_TOPIC, HALF_QUEUE, record.queue_offset, 1)
            )
        if entry and ENTRY.unpack(entry)[:2] != (record.physical_offset, record.size):
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed: no record begins there"
            )

    def moved_to(self, offset: int) -> int | None:
        """Return the physical offset of a half that lay at this offset of its queue and was put back, else None."""
        now = self._moved.get(offset)
        return None if now is None else now[1]

    def seen(self, half: Half) -> bool:
        """Note the earlier places of an open half that was read, so that they lead to it; False if it was decided at
        one of them."""
        record = half.record
        if offset_in(record.properties, PREPARED_QUEUE_OFFSET) in self._late:
            if self.halves.close(record.queue_offset):
                self._decided.append(record.queue_offset)
            return False
        for old in earlier_offsets(half):
            if self.halves.checks(old) is None:
                self._note_move(old, (record.queue_offset, record.physical_offset))
        return True

    def _refuse_decided(self, half: Half) -> None:
        if self.halves.checks(half.record.queue_offset) is None or not self.seen(half):
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, ALREADY_DECIDED)

    def _waiting_place(self, properties: str, target: Place) -> tuple[Place, str]:
        """Return where a committed message goes first, and its properties: one with a delay or a time waits."""
        if DELAY_TIME_LEVEL in properties or "TIMER_" in properties:
            found = decode_properties(properties)
            waits = self._places.place_of(found, target)
            if waits is not None:
                return waits.place, encode_properties(found)
        return target, properties

    def _stage(self, half: Half, place: Place, properties: str, sys_flag: int, reply_to: ReplyTo) -> bool:
        """Stage a copy; False if it was refused, and `reply_to` has that outcome by then."""
        record = half.record
        copy = _Copy(reply_to)
        self._store.next_store_ms(self._wall_ms())  # of the copy, and so the time at which its transaction ends
        message = copy_of(record, hosts(half.data)[0], place, properties, half.unique_key, record.reconsume_times)
        at = record.physical_offset
        self._appends.put(replace(message, sys_flag=sys_flag, prepared_transaction_offset=at), copy)
        copy.staged = True
        return copy.refused is None

    def _end(self, half: Half, how: How, by: By, host: bytes, checks: int | None = None) -> None:
        record = half.record
        offset, now_ms = record.queue_offset, self._store.next_store_ms()
        if checks is None:
            checks = self.halves.checks(offset) or 0
        self.halves.close(offset)
        self._decided.append(offset)
        self.staged_to = self._store.log.stage_base + self._store.log.staged
        self.counts[how] += 1
        age_ms = now_ms - record.store_time_ms + waited_ms(record.properties)
        self.on_ended(Resolved(offset, record.physical_offset, now_ms, age_ms, how, by, checks, host))

    # --- op messages

    def adopt(self, found: Found) -> None:
        """Take over what was found in the store at the start."""
        assert not self._moved, "the store is read before anything is decided or put back"
        self._decided += found.decided
        self._late = found.late
        self._moved = found.moved
        self._moves.extend(found.moved)
        self._ops.put_before(found.ops)

    def end_tick(self) -> None:
        """Stage the op messages of this tick, behind the copies. Called before the store ends the tick."""
        decided = self._decided
        if not decided:
            return
        if self._store.log.broken is not None:
            decided.clear()
            self._tell_rolled_back(store_unavailable(str(self._store.log.broken)))
            return
        done = 0
        for offset in decided[:OPS_AT_ONCE]:
            if not self._put_op(offset):
                break
            done += 1
        del decided[:done]
        if not decided:
            # A rollback is published with the tick that holds the op message.
            self._store.tick.acks += self._rolled_back
            self._rolled_back = []

    def _tell_rolled_back(self, outcome: PutOutcome) -> None:
        waiting, self._rolled_back = self._rolled_back, []
        for reply_to, _ in waiting:
            reply_to.put_ended(outcome)

    def _put_op(self, offset: int) -> bool:
        """Stage an op message. False if there is no room now: it comes in a later tick."""
        store = self._store
        queue = store.queues.get_or_create(OP_HALF_TOPIC, HALF_QUEUE)
        at, host = queue.next_offset, store.store_host
        try:
            store.put(queue, _OP_FIELD, b"%d" % offset, _OP_PROPERTIES, _OP_CODE, 0, 0, self._wall_ms(), host, 0)
        except StoreBroken as error:
            if store.log.broken is not None:
                store.fail_tick(str(error))
            self._op_told.failed("transactions: an op message is not taken: %s", error)
            return False
        self._ops.note(at, offset)
        self._op_told.went_well()
        return True

    def held_up_by(self, most_ops: int, most_halves: int) -> list[int]:
        """Return halves without which a start would have much less to read: few old ones before more op messages or
        halves than these. At most one half for each PUT_BACK_FOR that are gained."""
        lowest = self.halves.lowest
        if lowest is None:
            return []
        self._ops.pass_below(lowest)
        next_half = self._store.queues.get_or_create(HALF_TOPIC, HALF_QUEUE).next_offset
        limit, most = -1, 0
        if self._ops.count > most_ops:
            limit, most = self._ops.highest_of_older_half(), self._ops.count // 2 // PUT_BACK_FOR
        if next_half - lowest > most_halves:
            limit = max(limit, lowest + (next_half - lowest) // 2)
            most = max(most, (next_half - lowest) // 2 // PUT_BACK_FOR)
        if limit < 0:
            return []
        most = min(most, MOST_HELD_UP)
        found = self.halves.all(0, most + 1)
        held = [offset for offset in found if offset <= limit]
        return held if len(held) <= most else []

    def progress(self) -> tuple[int, int]:
        """Return (half, op): offsets from which Apache has to read both queues, with all that was staged by now."""
        store = self._store
        half = self.halves.lowest
        if half is None:
            half = store.queues.get_or_create(HALF_TOPIC, HALF_QUEUE).next_offset
        self._ops.pass_below(half)
        op = self._ops.first
        return half, store.queues.get_or_create(OP_HALF_TOPIC, HALF_QUEUE).next_offset if op is None else op
