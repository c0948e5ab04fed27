"""Resumes discarded half messages: their producers are asked again from the beginning.

The copy in TRANS_CHECK_MAX_TIME_TOPIC stays, and a half message like it, with no checks done, is stored in the half
queue. It is not the half that was discarded: a producer's late decision about that one stays refused. Each discarded
one is resumed once, so that no transaction is committed twice: an earlier resumption is found by the key index, or
remembered. While neither can exclude one, because the index is off or behind or too many messages have the key, nothing
is resumed.
Source: RocketMQ 5.3.3 `AdminBrokerProcessor.resumeCheckHalfMessage`, which resumes any message as often as it is asked.
"""

from __future__ import annotations

import logging
import threading

from msgspec.structs import replace

from ...errors import Conflict, InvalidInput, NotFound, Unavailable
from ...named_tuple import NamedTuple
from ...protocol.fields import I64_MAX
from ...protocol.names import HALF_TOPIC
from ...protocol.properties import REAL_TOPIC, TRANSACTION_CHECK_TIMES, UNIQUE_KEY, find_property
from ...protocol.record import SYS_TRANSACTION_MASK, Record, hosts
from ...store.index.index_query import FIND_S, ChainTooLong, IndexQuery
from ...store.message_store import MessageStore
from ...store.record_reader import Missing, StoredRecord
from ..delays.levels import Place, is_of_deleted
from ..sending.outcome import PutOutcome
from ..sending.own_appends import copy_of
from .half import DISCARDED_TOPIC, HALF_QUEUE, RESUMED_OF, half_like, has_room, offset_in, resumed_text, with_mark
from .half_appends import HalfAppends

logger = logging.getLogger(__name__)

#: Longest wait until the half message is stored.
STORED_S = 10.0
#: Longest wait for the key index.
CATCH_UP_S = 0.25
#: Most discarded ones remembered that were resumed since the start.
_REMEMBERED = 10_000
#: Longest search for a row that is shown.
_SHOWN_S = 0.25

NOT_DISCARDED = "the message is no discarded half message"
RESUMED_BEFORE = "the discarded transaction was resumed before"
INDEX_BEHIND = "the key index, which has earlier resumptions, is not complete yet: try again later"
INDEX_OFF = "messageIndexEnable is off, and the key index has what was resumed before this start"
TOO_MANY = "too many messages have its unique key to find out whether it was resumed before"


class Resumed(NamedTuple):
    """The new half message. half_offset: in the half queue."""

    half_offset: int
    physical_offset: int
    unique_key: str


class ResumeDiscarded:
    """Resumes discarded half messages. Any thread but remoting-io; waits in the caller's."""

    def __init__(self, store: MessageStore, halves: HalfAppends, began_at: int) -> None:
        """began_at: end of the log at the start of the broker: what was discarded behind it was not resumed before."""
        # Constant after construction.
        self._store = store
        self._halves = halves
        self._index = IndexQuery(store.index, store.records)
        # Held while one is resumed.
        self._lock = threading.Lock()
        #: Physical offset of a discarded one -> that of the half message that it became.
        self._resumed: dict[int, int] = {}
        #: Resumptions below this physical offset are not remembered.
        self._remembered_from = began_at

    def resume(self, physical: int) -> Resumed:
        """Resume the discarded one at this physical offset; published when it returns.

        Raises NotFound (the message is gone), InvalidInput (it is no discarded half message), Conflict (it was resumed
        before), Unavailable (the log takes nothing now, or it cannot be found out whether it was resumed before).
        """
        found = self.find(physical)
        self.catch_up(CATCH_UP_S)
        with self._lock:
            if self._was_resumed(found):
                raise Conflict(RESUMED_BEFORE)
            outcome = self._store_again(found)
            [half] = outcome.physical_offsets
            self._resumed[physical] = half
            while len(self._resumed) > _REMEMBERED:
                del self._resumed[next(iter(self._resumed))]
        logger.info("transactions: resumed at=%d half=%d key=%s", physical, outcome.queue_offset, outcome.unique_key)
        return Resumed(outcome.queue_offset, half, outcome.unique_key)

    def find(self, physical: int) -> StoredRecord:
        """Return the discarded half message at a physical offset. Errors as in `resume`."""
        found = self._store.records.find(physical)
        if isinstance(found, Missing):
            raise NotFound("message", str(physical))
        if found.record.topic != DISCARDED_TOPIC or half_like(found) is None:
            raise InvalidInput("message", NOT_DISCARDED)
        return found

    def catch_up(self, seconds: float) -> None:
        """Wait up to `seconds` until the key index has what was resumed lately."""
        if self._store.index.enabled:
            self._index.catch_up(seconds)

    def resumed_as(self, discarded: StoredRecord) -> int | None:
        """Return the physical offset of the half message that it became; None if it was not resumed, as far as the key
        index shows in a short time."""
        try:
            return self._search(discarded, _SHOWN_S)
        except ChainTooLong:
            return None

    def _was_resumed(self, discarded: StoredRecord) -> bool:
        index = self._store.index
        is_of_before = discarded.record.physical_offset < self._remembered_from
        is_behind = not index.ready or index.position < self._remembered_from
        try:
            if self._search(discarded, FIND_S) is not None:
                return True
        except ChainTooLong:
            raise Unavailable(TOO_MANY) from None
        if is_of_before and not index.enabled:
            raise Unavailable(INDEX_OFF)
        if is_of_before and is_behind:
            raise Unavailable(INDEX_BEHIND)
        return False

    def _search(self, discarded: StoredRecord, seconds: float) -> int | None:
        """Return the same. Raises ChainTooLong when this takes longer than so many seconds."""
        record = discarded.record
        half = self._resumed.get(record.physical_offset)
        if half is not None:
            return half
        key = find_property(record.properties, UNIQUE_KEY)
        if not key or not self._store.index.enabled:
            return None
        deadline = self._store.index.clock.monotonic() + seconds
        for physical, one in self._index.newest((HALF_TOPIC,), (key,), 0, I64_MAX, 1 << 62, deadline):
            if physical <= record.physical_offset:
                break
            if one is not None and find_property(one.properties, UNIQUE_KEY) == key and _is_made_of(one, record):
                half = physical  # it may have been put back since: the first one is the resumption
        return half

    def _store_again(self, found: StoredRecord) -> PutOutcome:
        record = found.record
        text = resumed_text(record)
        topic = find_property(record.properties, REAL_TOPIC) or ""
        of_deleted = is_of_deleted(record, topic, self._store.files.deleted_topics)
        if of_deleted:
            text = with_mark(text)  # it can be rolled back only, as before
        message = copy_of(
            record,
            hosts(found.data)[0],
            Place(HALF_TOPIC, HALF_QUEUE),
            text,
            find_property(record.properties, UNIQUE_KEY) or "",
            record.reconsume_times,
            "" if of_deleted else topic,
        )
        message = replace(message, sys_flag=record.sys_flag & ~SYS_TRANSACTION_MASK)
        outcome = self._halves.append(message, STORED_S)
        if not outcome.is_stored:
            raise Unavailable(outcome.reason)
        return outcome


def _is_made_of(half: Record, discarded: Record) -> bool:
    """True if a half is what the discarded one was resumed as. Halves of older versions, and those without room, do not
    name it; a client's half has room, and no number of checks."""
    named = offset_in(half.properties, RESUMED_OF)
    if named is not None:
        return named == discarded.physical_offset
    later = half.physical_offset > discarded.physical_offset and half.was_born_with(discarded)
    return later and (find_property(half.properties, TRANSACTION_CHECK_TIMES) is not None or not has_room(half))
