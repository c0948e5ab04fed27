"""Checks queue entries against records, both ways, in the order of the log.

Each record determines its entry, which is looked up at its place. Afterwards each queue must hold as many entries as
were found this way: then every entry has its record, too. Only where the numbers differ are the queue's entries checked
one by one. Memory: a few numbers for each queue, and a window of entries of the queues that were used last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from ..protocol.properties import TAGS, find_property
from ..protocol.record import Record
from ..store.dispatch import SCHEDULE_TOPIC, Dispatch, tag_code
from ..store.paths import segment_name
from ..store.queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE
from ..store.queues.queue_extension import QueueExtension, is_address
from ..store.retention.deleted_topics import Ends
from .offline_store import OfflineStore
from .problems import Problems

#: Entries of one queue that are read at a time, and most queues of which they are kept: 20 MB.
WINDOW = 512
_WINDOWS = 2000
_WALK = 20_000


class _Seen:
    """Results of one queue, from the records of the log."""

    __slots__ = ("count", "end", "first_missing", "missing", "told")

    def __init__(self) -> None:
        self.count = 0  # records whose entry is right
        self.end = -1  # queue offset behind the last such entry
        self.missing = 0
        self.told: set[int] = set()  # wrong entries that are reported already
        self.first_missing: tuple[int, int] | None = None  # queue offset, physical offset


class QueueCheck:
    """Call `record()` for each record of the log, then `finish()`."""

    def __init__(
        self,
        store: OfflineStore,
        problems: Problems,
        deleted: dict[str, int],
        ends: Ends,
        is_damaged: Callable[[int], bool],
        unfinished: bool,
    ) -> None:
        """deleted, ends: the records that have no entries, as in `deleted_topics.py`. is_damaged: True if the log is
        damaged at a physical offset, which is reported already. unfinished: the broker was killed or is running, so the
        entries of the last records may be missing."""
        self._store = store
        self._problems = problems
        self._dispatch = Dispatch([], deleted, ends)
        self._is_damaged = is_damaged
        self._unfinished = unfinished
        self._extension = QueueExtension(store.paths, store.disk)
        self._on_disk = set(store.queues())
        self._begin: dict[tuple[str, int], int] = {}
        self._seen: dict[tuple[str, int], _Seen] = {}
        self._windows: OrderedDict[tuple[str, int], tuple[int, bytes]] = OrderedDict()
        #: topic -> number of records without any queue, and of records of an earlier topic of the same name.
        self.without_queue: dict[str, int] = {}
        self.replaced: dict[str, int] = {}

    def place(self, topic: str, queue_id: int, offset: int) -> tuple[str, int]:
        """Return (file, position in it) of an entry."""
        number, index = divmod(offset, self._store.files.entries_per_file)
        name = segment_name(number * self._store.queue_file_bytes)
        return f"consumequeue/{topic}/{queue_id}/{name}", index * ENTRY_BYTES

    def _entry(self, key: tuple[str, int], offset: int) -> bytes:
        """Return one entry; empty behind the end of the files."""
        window = self._windows.get(key)
        if window is None or not 0 <= offset - window[0] < len(window[1]) // ENTRY_BYTES:
            window = offset, self._store.files.read(*key, offset, WINDOW)
            if not window[1]:
                return b""
            self._windows[key] = window
            if len(self._windows) > _WINDOWS:
                self._windows.popitem(last=False)
        at = (offset - window[0]) * ENTRY_BYTES
        return window[1][at : at + ENTRY_BYTES]

    # --- from records to entries

    def record(self, record: Record) -> None:
        if not self._dispatch.has_entry(record):
            return
        key = (record.topic, record.queue_id)
        if key not in self._on_disk:
            self.without_queue[record.topic] = self.without_queue.get(record.topic, 0) + 1
            return
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = _Seen()
        offset = record.queue_offset
        entry = self._entry(key, offset) if offset >= 0 else b""
        physical, size, code = ENTRY.unpack(entry) if len(entry) == ENTRY_BYTES else (0, 0, 0)
        if physical == record.physical_offset and size == record.size:
            self._check_code(record, code)
            seen.count += 1
            seen.end = offset + 1
            return
        if not size and not physical:
            seen.missing += 1
            if seen.first_missing is None:
                seen.first_missing = offset, record.physical_offset
            return
        if physical > record.physical_offset and self._is_true(key, offset, physical, size):
            self.replaced[record.topic] = self.replaced.get(record.topic, 0) + 1
            return
        self._problems.damage(
            "queue-entry",
            *self.place(*key, offset),
            f"entry {offset} is of {size} bytes at {physical}, but its record has {record.size} bytes at "
            f"{record.physical_offset}",
        )
        seen.told.add(offset)
        seen.end = max(seen.end, offset + 1)

    def _check_code(self, record: Record, code: int) -> None:
        tags = find_property(record.properties, TAGS)
        place = self.place(record.topic, record.queue_id, record.queue_offset)
        if is_address(code):
            unit = self._extension.read(record.topic, record.queue_id, code)
            if unit is None:
                text = f"entry {record.queue_offset} points to an extension unit that is not there"
                self._problems.damage("extension", *place, text)
            elif (unit.tag_code, unit.store_time_ms) != (tag_code(tags), record.store_time_ms):
                text = f"the extension unit of entry {record.queue_offset} belongs to another message"
                self._problems.damage("extension", *place, text)
        elif record.topic == SCHEDULE_TOPIC:
            if code < record.store_time_ms and code != tag_code(tags):
                self._problems.damage("tag-code", *place, f"entry {record.queue_offset} is due before it was stored")
        elif code != tag_code(tags):
            self._problems.damage("tag-code", *place, f"entry {record.queue_offset} has another code than its tag")

    def _is_true(self, key: tuple[str, int], offset: int, physical: int, size: int) -> bool:
        """True if an entry points to a record with this queue offset."""
        if not 0 < size < HOLE_SIZE:
            return False
        record = self._store.raw.record_at(physical, size)
        return record is not None and (record.topic, record.queue_id, record.queue_offset) == (*key, offset)

    # --- from entries to records

    def finish(self, end: int) -> None:
        """Check the entries of each queue when the log has ended, at physical offset `end`."""
        for topic, queue_id in sorted(self._on_disk):
            self._finish_queue(topic, queue_id, end)
        for topic, count in sorted(self.without_queue.items()):
            text = f"{count} records of topic {topic} have no queue: the topic or its queue files were deleted"
            self._problems.note("no-queue", f"consumequeue/{topic}", -1, text)
        for topic, count in sorted(self.replaced.items()):
            text = f"{count} records belong to an earlier topic {topic}, whose queue offsets were used again"
            self._problems.note("earlier-topic", f"consumequeue/{topic}", -1, text)
        self._extension.close()

    def _finish_queue(self, topic: str, queue_id: int, end: int) -> None:
        seen = self._seen.get((topic, queue_id)) or _Seen()
        if seen.first_missing is not None:
            offset, physical = seen.first_missing
            text = f"{seen.missing} records from physical offset {physical} on have no entry, the first is {offset}"
            add = self._problems.note if self._unfinished and offset >= seen.end else self._problems.damage
            add("missing-entry", *self.place(topic, queue_id, offset), text)
        told = False
        count = 0
        last = -1
        begin = self._store.log.min_offset
        for offset, physical, size, code in self._entries(topic, queue_id):
            if size == HOLE_SIZE or (physical < begin and size > 0):
                continue  # no record, or one that has expired
            if offset >= seen.end:
                # Recovery removes these: no record in the log belongs to them.
                if (physical or size or code) and not told:
                    told = True
                    lost = physical < end and not self._unfinished
                    level = self._problems.damage if lost else self._problems.note
                    text = f"entries from {offset} on are behind the queue's end and have no record"
                    level("behind-the-queue", *self.place(topic, queue_id, offset), text)
                continue
            if size <= 0 or physical <= last:
                continue
            last = physical
            count += 1
        if count != seen.count:
            self._look_at_each(topic, queue_id, seen)

    def _look_at_each(self, topic: str, queue_id: int, seen: _Seen) -> None:
        """Report each entry that has no record."""
        last = -1
        begin = self._store.log.min_offset
        for offset, physical, size, _ in self._entries(topic, queue_id):
            if offset >= seen.end:
                return
            if offset in seen.told or size == HOLE_SIZE or (physical < begin and size > 0):
                continue
            place = self.place(topic, queue_id, offset)
            if size <= 0:
                continue  # reported as missing, if there is a record for it
            if physical <= last:
                text = f"entry {offset} points to {physical}, an entry before it to {last}"
                self._problems.damage("queue-order", *place, text)
            elif not self._is_damaged(physical) and not self._is_true((topic, queue_id), offset, physical, size):
                text = f"entry {offset} points to {physical}, where its record is not"
                self._problems.damage("queue-entry", *place, text)
            last = max(last, physical)

    def _entries(self, topic: str, queue_id: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (queue offset, physical offset, size, tag code) of all entries in the files."""
        per_file = self._store.files.entries_per_file
        for number in self._store.queue_numbers(topic, queue_id):
            offset = number * per_file
            while offset < (number + 1) * per_file:
                data = self._store.files.read(topic, queue_id, offset, _WALK)
                whole = len(data) - len(data) % ENTRY_BYTES
                if not whole:
                    break
                if data.strip(b"\0"):
                    for index, entry in enumerate(ENTRY.iter_unpack(data[:whole])):
                        yield offset + index, *entry
                offset += whole // ENTRY_BYTES
