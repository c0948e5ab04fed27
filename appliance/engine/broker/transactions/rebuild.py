"""Finds the open half messages of the store at the start, as Apache would find them.

These are the half messages from the offset that CID_RMQ_SYS_TRANS has reached, but for those that op messages list. A
copy that a crash kept without its op message is looked for in the log behind the oldest open half, in records that name
the physical offset of a half: its committed copy, one that was set aside, or the half itself, which RocketBox put back
at the end of its queue.

Apache puts a half back with each question about it. The copy says how often Apache asked (TRANSACTION_CHECK_TIMES), or
where the half lay first (TRAN_PREPARED_QUEUE_OFFSET), and the old place is no longer looked at once the offset is
saved. An Apache broker that was killed may leave both open, or a copy of a half that was committed meanwhile: they have
one unique key, and the oldest one stays. Half messages that come while this runs are added where they are stored.
Source: RocketMQ `TransactionalMessageServiceImpl.check`, `fillOpRemoveMap`.
"""

from __future__ import annotations

import logging
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator

from ...errors import QueueBroken
from ...named_tuple import NamedTuple
from ...protocol.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from ...protocol.properties import (
    DELAY_TIME_LEVEL,
    ORIGIN_MESSAGE_ID,
    PREPARED_QUEUE_OFFSET,
    RETRY_TOPIC,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    TIMER_WAS_OUT_MS,
    TRANSACTION_CHECK_TIMES,
    UNIQUE_KEY,
    find_property,
)
from ...protocol.record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SIZE_MAGIC,
    SYS_BORN_IPV6,
    SYS_COMMIT,
    SYS_STORE_IPV6,
    SYS_TRANSACTION_MASK,
)
from ...store.message_store import MessageStore
from ...store.queues.consume_queue import ENTRY_BYTES, ConsumeQueue, unpack_entries
from ...store.queues.queue_files import QueueFiles
from ...store.record_reader import Missing, StoredRecord
from .half import DISCARDED_TOPIC, FIRST_HALF, HALF_QUEUE, offset_in
from .op_runs import OpRuns

logger = logging.getLogger(__name__)

_ENTRIES = 1000
_WINDOW = 1024 * 1024
#: Bytes at the log's end in which copies without an op message are looked for. A tick of RocketBox holds both; Apache's
#: op message comes up to 3 s later.
LOOK_BACK_BYTES = 256 * 1024 * 1024
#: Most halves put back by Apache that are matched by their unique keys, and most op messages for halves that Apache had
#: passed; in a store with more, the rest is treated as Apache would.
MOST_COPIES = 50_000
#: Most op messages that Apache had passed and that are read again for its copies.
MOST_OLD_OPS = 20_000
_NUMBER = re.compile(rb"[0-9]{1,18}\Z")
_HALF, _DISCARDED = HALF_TOPIC.encode(), DISCARDED_TOPIC.encode()
#: Topics in which a committed message waits.
_WAITING = (SCHEDULE_TOPIC.encode(), TIMER_TOPIC.encode())
#: Properties of a message that has been consumed, or delivered late, or has waited for long.
_OF_LATER_COPIES = (
    RETRY_TOPIC,
    ORIGIN_MESSAGE_ID,
    TIMER_ROLL_TIMES,
    TIMER_ENQUEUE_MS,
    TIMER_DEQUEUE_MS,
    TIMER_WAS_OUT_MS,
)

#: Offset where a half lay -> (offset, physical offset) where it lies now.
Moved = dict[int, tuple[int, int]]


class Found(NamedTuple):
    """open: offsets in the half queue, the oldest first. decided: halves that have no op message and need one. ops: the
    op messages that count. late: halves that these list although Apache had passed them: their copies are decided,
    too."""

    open: array[int]
    decided: list[int]
    ops: OpRuns
    moved: Moved
    late: frozenset[int]


class _Speaks(NamedTuple):
    """A record of the log that is a half, or refers to one. is_aside: it was set aside. prepared: the physical offset
    of the half that it refers to; 0 also in records that refer to none. birth: born time and host, as stored."""

    topic: bytes
    prepared: int
    physical: int
    queue_offset: int
    birth: bytes
    properties: bytes

    @property
    def is_half(self) -> bool:
        return self.topic == _HALF

    @property
    def is_aside(self) -> bool:
        return self.topic == _DISCARDED

    def has(self, name: str) -> bool:
        return self.value(name) is not None

    def value(self, name: str) -> str | None:
        """Return the value of a property; few records have its name in their text at all."""
        text = self.properties
        return find_property(text.decode("utf-8", "replace"), name) if name.encode() in text else None

    @property
    def key(self) -> str:
        return find_property(self.properties.decode("utf-8", "replace"), UNIQUE_KEY) or ""

    @property
    def identity(self) -> tuple[str, bytes]:
        """The key and birth that copies have in common. The key alone is the same in all sends of one message
        object."""
        return self.key, self.birth


class _Open:
    """The halves that no op message lists, and where they lie; both ascend."""

    def __init__(self) -> None:
        self.offsets: array[int] = array("q")
        self.places: array[int] = array("q")
        self.decided: set[int] = set()

    def at(self, physical: int) -> int | None:
        """Return the offset of the open half at a physical offset; None without one."""
        index = bisect_left(self.places, physical)
        if index == len(self.places) or self.places[index] != physical:
            return None
        offset = self.offsets[index]
        return None if offset in self.decided else offset

    def left(self) -> array[int]:
        return array("q", (offset for offset in self.offsets if offset not in self.decided))


class Rebuild:
    """One pass, on a thread of its own; `stopped` ends it."""

    def __init__(self, store: MessageStore, files: QueueFiles, stopped: Callable[[], bool]) -> None:
        self._store = store
        self._files = files
        self._stopped = stopped

    def find(self, half_begin: int, half_end: int, op_begin: int, op_end: int) -> Found | None:
        """Find the open halves; None if it was stopped. Raises QueueBroken while a queue is being repaired."""
        halves = self._store.find_queue(HALF_TOPIC, HALF_QUEUE)
        runs = OpRuns()
        if halves is None:
            return Found(array("q"), [], runs, {}, frozenset())
        begin = max(half_begin, halves.min_offset)
        end = max(begin, half_end)
        marks, late = bytearray(end - begin), set[int]()
        for at, listed in self._op_messages(op_begin, op_end):
            if max(listed) >= begin:
                runs.note(at, max(listed))
            for offset in listed:
                if begin <= offset < end:
                    marks[offset - begin] = 1
                elif offset < begin and len(late) < MOST_COPIES:
                    late.add(offset)
        found = _Open()
        first = marks.find(0)
        # Read after the op messages: if one has left the log, so have the halves that it lists. The queues may not
        # show yet what has left.
        log_begin = self._store.log.min_offset
        if first >= 0:
            for offset, physical, _ in self._entries(halves, begin + first, end):
                if not marks[offset - begin] and physical >= log_begin:
                    found.offsets.append(offset)
                    found.places.append(physical)
        moved: Moved = {}
        if found.offsets and not self._stopped():
            copies = self._decided_in_log(found, moved)
            self._decided_before(
                copies, found, lambda offset: offset in late or _is_marked(marks, offset - begin), op_begin
            )
            if copies and not self._stopped():
                self._told_by_key({half.identity: half for half in reversed(copies)}, found, moved)
        if self._stopped():
            return None
        return Found(found.left(), sorted(found.decided), runs, moved, frozenset(late))

    def _op_messages(self, begin: int, end: int) -> Iterator[tuple[int, list[int]]]:
        """Yield (offset, the halves that it lists) of the op messages that can be read."""
        queue = self._store.find_queue(OP_HALF_TOPIC, HALF_QUEUE)
        if queue is None:
            return
        for at, physical, size in self._entries(queue, max(begin, queue.min_offset), end):
            found = self._store.records.find(physical, size)
            if found is Missing.EXPIRED:
                continue
            if not isinstance(found, StoredRecord):
                logger.error("transactions: op message %d cannot be read: %s", at, found.value)
                continue
            listed = [int(word) for word in found.record.body.split(b",") if _NUMBER.match(word)]
            if listed:
                yield at, listed

    def _entries(self, queue: ConsumeQueue, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield (offset, physical offset, size) of the entries of a queue."""
        while begin < end and not self._stopped():
            data = self._store.queues.read_entries(queue, begin, min(end - begin, _ENTRIES), self._files)
            count = len(data) // ENTRY_BYTES
            if not count:
                if begin >= queue.min_offset:
                    raise QueueBroken(f"entry {begin} of {queue.topic}-{queue.queue_id} cannot be read")
                begin = queue.min_offset  # they have just expired
                continue
            for index, (physical, size, _) in enumerate(unpack_entries(data[: count * ENTRY_BYTES])):
                yield begin + index, physical, size
            begin += count

    # --- what the log says of halves that no op message lists

    def _decided_in_log(self, found: _Open, moved: Moved) -> list[_Speaks]:
        """Take out halves that a record shows as decided, or as lying elsewhere now; return the open ones that Apache
        put back, in their order. moved: receives the earlier places of those that RocketBox put back."""
        copies: list[_Speaks] = []
        for record in self._speaking(found.places[0]):
            if not record.is_half or record.has(FIRST_HALF):
                offset = found.at(record.prepared)
                if offset is not None and self._is_of(record):
                    found.decided.add(offset)
            if record.is_half and record.has(FIRST_HALF) and len(moved) < MOST_COPIES:
                offset = found.at(record.physical)
                if offset is not None:
                    for old in self._earlier_places(record):
                        moved[old] = offset, record.physical
            # A resumed half has "0".
            was_put_back = record.is_half and (
                record.value(TRANSACTION_CHECK_TIMES) not in (None, "0") or record.has(PREPARED_QUEUE_OFFSET)
            )
            if was_put_back and record.has(FIRST_HALF) and (record.prepared > 0 or self._is_of(record)):
                continue  # by RocketBox: an op message, or the place it names, settles its old place
            if was_put_back and len(copies) < MOST_COPIES and found.at(record.physical) is not None:
                copies.append(record)
        return [record for record in copies if record.queue_offset not in found.decided]

    def _earlier_places(self, record: _Speaks) -> set[int]:
        """Return where a half that RocketBox put back lay first, and where before this place."""
        first = offset_in(record.properties.decode("utf-8", "replace"), FIRST_HALF)
        before = self._store.records.find(record.prepared)
        found = {
            first,
            before.record.queue_offset if isinstance(before, StoredRecord) and self._is_of(record) else None,
        }
        return {offset for offset in found if offset is not None and offset < record.queue_offset}

    def _is_of(self, record: _Speaks) -> bool:
        """True if the record at the place it names is its half: other programs' records may name anything."""
        half = self._store.records.find(record.prepared)
        if not isinstance(half, StoredRecord) or half.record.topic != HALF_TOPIC:
            return False
        if (find_property(half.record.properties, UNIQUE_KEY) or "") != record.key:
            return False
        return record.prepared > 0 or _is_made_of(record, half)

    def _decided_before(
        self, copies: list[_Speaks], found: _Open, is_listed: Callable[[int], bool], op_begin: int
    ) -> None:
        """Take out copies whose first place is listed in an op message, maybe in one that Apache has passed."""
        unknown: dict[int, list[int]] = {}
        for record in copies:
            first = offset_in(record.properties.decode("utf-8", "replace"), PREPARED_QUEUE_OFFSET)
            if first is not None and is_listed(first):
                found.decided.add(record.queue_offset)
            elif first is not None:
                unknown.setdefault(first, []).append(record.queue_offset)
        if unknown:
            for _, listed in self._op_messages(op_begin - MOST_OLD_OPS, op_begin):
                for first in unknown.keys() & listed:
                    found.decided.update(unknown[first])

    def _told_by_key(self, copies: dict[tuple[str, bytes], _Speaks], found: _Open, moved: Moved) -> None:
        """Take out all but the oldest of the halves with one key and birth; that, too, if a message with both was
        committed. copies: the oldest copy of each."""
        ended: set[tuple[str, bytes]] = set()
        oldest: dict[tuple[str, bytes], tuple[int, int]] = {}
        for record in self._speaking(0):  # it may have been put back since it was committed
            key = record.identity
            if not key[0] or key not in copies:
                continue
            if not record.is_half:
                # A half that was set aside may have been resumed since.
                if not record.is_aside or record.physical > copies[key].physical:
                    ended.add(key)
                    found.decided.add(copies[key].queue_offset)
                    if key in oldest:
                        found.decided.add(oldest[key][0])
                continue
            offset = found.at(record.physical)
            if offset is None:
                continue
            stays = oldest.setdefault(key, (offset, record.physical))
            if key in ended:
                found.decided.add(offset)
            elif stays[0] != offset:
                found.decided.add(offset)
                moved[offset] = stays

    def _speaking(self, begin: int) -> Iterator[_Speaks]:
        """Yield halves, committed copies and halves that were set aside, from a physical offset on."""
        log, end = self._store.log, self._store.published
        begin = max(begin, log.min_offset)
        if begin < end - LOOK_BACK_BYTES:
            # There may be no beginning of a record there: go from the start of a file.
            segment = log.segment_at(end - LOOK_BACK_BYTES)
            begin = begin if segment is None else max(begin, segment.start)
        offset, base, data = begin, begin, b""
        while offset < end and not self._stopped():
            segment = log.segment_at(offset)
            if segment is None:
                return
            at = offset - base
            if len(data) - at < 8:
                base, data, at = offset, log.read(offset, min(_WINDOW, end - offset, segment.end - offset)), 0
                if len(data) < 8:
                    offset = segment.end
                    base, data = offset, b""
                    continue
            size, magic = SIZE_MAGIC.unpack_from(data, at)
            if magic not in (MAGIC_V1, MAGIC_V2) or size <= 0:
                if magic != MAGIC_BLANK:
                    logger.warning("transactions: the log at %d is damaged, the rest of its file is not read", offset)
                offset = segment.end
                base, data = offset, b""
                continue
            if len(data) - at < size:
                if at == 0:
                    data = log.read(offset, size)
                    if len(data) < size:
                        return
                else:
                    base, data = offset, b""
                    continue
            record = _speaks(data, at, size, offset, 1 if magic == MAGIC_V1 else 2)
            if record is not None:
                yield record
            offset += size


def _is_marked(marks: bytearray, index: int) -> bool:
    return 0 <= index < len(marks) and marks[index] == 1


def _birth_end(sys_flag: int) -> int:
    return 68 if sys_flag & SYS_BORN_IPV6 else 56


def _is_made_of(record: _Speaks, half: StoredRecord) -> bool:
    """True if a record that names offset 0 is the first copy of the half there: it has the same birth, is where such a
    copy goes first, and has no properties of later copies. Later copies name 0, too, whatever half they come from, and
    so does what Apache sets aside. In doubt the answer is False: the half stays open."""
    if record.birth != half.data[40 : _birth_end(half.record.sys_flag)]:
        return False
    text = half.record.properties
    if record.is_half:
        return record.value(FIRST_HALF) == (find_property(text, FIRST_HALF) or str(half.record.queue_offset))
    arrived = not record.is_aside and record.topic not in _WAITING
    later = (*_OF_LATER_COPIES, DELAY_TIME_LEVEL, TIMER_OUT_MS) if arrived else _OF_LATER_COPIES
    if any(record.value(name) != find_property(text, name) for name in later):
        return False
    return not arrived or not _has_level(find_property(text, DELAY_TIME_LEVEL))


def _has_level(text: str | None) -> bool:
    return text is not None and not text.startswith("-") and bool(text.strip("+0"))


def _speaks(data: bytes, at: int, size: int, physical: int, topic_length_bytes: int) -> _Speaks | None:
    flags = int.from_bytes(data[at + 36 : at + 40], "big")
    prepared = at + 76 + (12 if flags & SYS_BORN_IPV6 else 0) + (12 if flags & SYS_STORE_IPV6 else 0)
    body = int.from_bytes(data[prepared + 8 : prepared + 12], "big")
    topic = prepared + 12 + body + topic_length_bytes
    if topic > at + size:
        return None  # no whole record
    properties = topic + int.from_bytes(data[topic - topic_length_bytes : topic], "big")
    name = data[topic:properties]
    if name != _HALF and flags & SYS_TRANSACTION_MASK != SYS_COMMIT and name != _DISCARDED:
        return None
    return _Speaks(
        name,
        int.from_bytes(data[prepared : prepared + 8], "big"),
        physical,
        int.from_bytes(data[at + 20 : at + 28], "big"),
        data[at + 40 : at + _birth_end(flags)],
        data[properties + 2 : at + size],
    )
