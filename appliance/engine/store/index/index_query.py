"""Queries of the key index: the records of `topic#key`, each checked against its own properties.

Entries hold only hashes, so a chain also contains other keys' records; these are never returned. Reads wait for the
disk, in the caller's thread, but for `find_now`.
Source: RocketMQ `IndexService.queryOffset`, `DefaultMessageStore.queryMessage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge

from ...hotpath.pure_index import FIRST_ENTRY
from ...named_tuple import NamedTuple
from ...protocol.fields import I64_MAX
from ...protocol.properties import MAX_PROPERTIES_BYTES
from ...protocol.record import Record
from ..dispatch import keys_of
from ..record_reader import RecordReader, StoredRecord
from ..time_search import is_ahead, is_near
from .index_file import IndexFile, IndexHeader
from .index_keys import key_hash
from .index_service import IndexService

#: Longest wait for the index to catch up with what was published before the query.
CATCH_UP_S = 1.0
#: Longest time for finding records: other producers may have sent any number of keys with the same hash.
FIND_S = 2.0
#: Entries looked at before the lock is released.
STEPS = 64
#: Limits on what one query does on remoting-io, which sends wait for: files, entries and records looked at.
_FILES_AT_ONCE, _ENTRIES_AT_ONCE, _RECORDS_AT_ONCE = 8, 32, 4
#: Longest topic and key that are hashed there, in characters; a header has room for some 250,000, which take 25 ms.
_CHARACTERS_AT_ONCE = 512
#: In an Apache index times may go back. Limits on entries looked at behind one that is too old, or in a file that
#: begins too late; and on files looked at that begin too early.
_STEPS_BEHIND, _FILES_BEHIND = 1024, 2


class KeyRecords(NamedTuple):
    """records: oldest first. last_time_ms, last_offset: of the index's newest entry; 0 when nothing was found, as in
    Apache. complete: the whole published log was searched; False when the index is too far behind, or time or room ran
    out."""

    records: list[StoredRecord]
    last_time_ms: int
    last_offset: int
    complete: bool


class KeyBytes(NamedTuple):
    """As KeyRecords, when something was found; records: their bytes in the log."""

    records: list[bytes]
    last_time_ms: int
    last_offset: int


class IndexQuery:
    """Finds records by key. Any thread."""

    def __init__(self, index: IndexService, records: RecordReader) -> None:
        self._index = index
        self._records = records
        self._clock = index.clock

    def catch_up(self, seconds: float = CATCH_UP_S) -> bool:
        """Index everything published so far; False if that takes longer than `seconds`, or the index is off."""
        index, target = self._index, self._index.target
        deadline = self._clock.monotonic() + seconds
        while index.position < target or not index.ready:
            if not index.enabled or self._clock.monotonic() > deadline:
                return False
            try:
                if not index.work():
                    self._clock.sleep(0.002)
            except OSError:
                return False
        return True

    def find(
        self,
        topic: str,
        key: str,
        limit: int,
        begin_ms: int,
        end_ms: int,
        max_bytes: int = 1 << 62,
        below: int = 1 << 62,
        deadline: float | None = None,
    ) -> KeyRecords:
        """Return the newest records of `topic` with `key` as unique key or in KEYS, stored in [begin_ms, end_ms].

        At most `limit` records of at most `max_bytes` together (a first one may be larger), all below physical offset
        `below`. deadline: monotonic time, FIND_S from now at the latest; the search then returns what it has found. A
        range that reaches to now includes records stored while the clock was ahead.
        """
        if max(len(topic), len(key)) > MAX_PROPERTIES_BYTES:  # no record has it, and hashing it takes long
            return _answer({}, None, True)
        meant = self._meant((topic,), (key,), begin_ms, end_ms)
        latest = self._clock.monotonic() + FIND_S
        deadline = latest if deadline is None else min(deadline, latest)
        others: set[int] = set()  # physical offsets of records that did not match
        complete = True
        found: dict[int, StoredRecord] = {}
        room = max_bytes
        code = key_hash(topic, key)
        files = self._index.files
        last = files[-1].header if files else None
        older = 0
        for file in reversed(files):
            if limit <= 0:
                break
            for physical in self._candidates(file, code, meant, below):
                if physical is None:
                    if self._clock.monotonic() > deadline:
                        return _answer(found, last, False)
                    continue
                if physical in found or physical in others:
                    continue
                if len(others) % STEPS == STEPS - 1 and self._clock.monotonic() > deadline:
                    return _answer(found, last, False)
                others.add(physical)
                stored = self._records.get(physical)
                if stored is None or not meant.fits(stored.record):
                    continue
                room -= stored.record.size
                if found and room < 0:
                    return _answer(found, last, False)
                found[physical] = stored
                if len(found) >= limit:
                    return _answer(found, last, complete)
            older += file.begin_ms < begin_ms
            if older > _FILES_BEHIND:
                break
        return _answer(found, last, complete)

    def find_now(
        self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int, is_unique: bool
    ) -> KeyBytes | None:
        """Like `find`, without waiting for the disk or for the index's lock. On remoting-io.

        None if another thread has to search: nothing was found, not all of it is in the page cache, or it is too much
        for this thread. is_unique: the key is a message's unique key. Then what is found counts although the index is
        behind; a message that was sent again with that key shows once the index has its second copy, too.
        """
        index = self._index
        if limit <= 0 or not index.ready or (index.behind and not is_unique):
            return None
        if len(topic) + len(key) > _CHARACTERS_AT_ONCE:
            return None
        files = index.files
        if not 0 < len(files) <= _FILES_AT_ONCE or not index.lock.acquire(blocking=False):
            return None
        try:
            code, steps = key_hash(topic, key), _ENTRIES_AT_ONCE
            entries: list[tuple[int, int, int]] = []
            for file in reversed(files):
                chain = None if file.closed else file.chain_now(code, steps)
                if chain is None:
                    return None
                entries += [(physical, entry_ms, file.begin_ms) for physical, entry_ms in chain]
            last = files[-1].header
        finally:
            index.lock.release()
        meant = self._meant((topic,), (key,), begin_ms, end_ms)
        topic_bytes, key_bytes = topic.encode("utf-8", "surrogatepass"), key.encode("utf-8", "surrogatepass")
        found: dict[int, bytes] = {}
        looked: set[int] = set()
        for physical, entry_ms, file_begin_ms in entries:
            if meant.is_early(entry_ms) or meant.is_late(entry_ms, file_begin_ms) or physical in looked:
                continue
            looked.add(physical)
            if len(looked) > _RECORDS_AT_ONCE:
                return None
            data = self._records.of_key_now(physical, topic_bytes, key_bytes, begin_ms, end_ms)
            if data is None:
                stored = self._records.find_now(physical)
                if stored is None:
                    return None
                if not isinstance(stored, StoredRecord) or not meant.fits(stored.record):
                    continue
                data = stored.data
            found[physical] = data
            if len(found) >= limit:
                break
        if not found:
            return None
        return KeyBytes([found[physical] for physical in sorted(found)], last.end_ms, last.end_offset)

    def newest(
        self, topics: Sequence[str], keys: Sequence[str], begin_ms: int, end_ms: int, below: int, deadline: float
    ) -> Iterator[tuple[int, Record | None]]:
        """Yield (physical offset, record) of records below an offset in any of the topics with any of the keys, newest
        first over all of them. Each record is read when its turn comes.

        The record is None for an entry that has another key or lies outside [begin_ms, end_ms], and between two index
        files: nothing follows at that offset or above. Before a file's first record, the chains of all topics are
        looked up in it. Raises ChainTooLong when that, or stepping over entries, lasts past `deadline`, a monotonic
        time.
        """
        meant = self._meant(topics, keys, begin_ms, end_ms)
        codes = {key_hash(topic, key) for topic in topics for key in keys}
        looked: set[int] = set()
        older = 0
        begin_offset = below
        for file in reversed(self._index.files):
            if file.begin_offset >= below or file.count <= FIRST_ENTRY:
                continue
            if begin_offset < below:
                # The first record of the file behind this one may also have keys in this one.
                yield begin_offset + 1, None
            chains = [self._timely(self._candidates(file, code, meant, below), deadline, is_first=not at)
                      for at, code in enumerate(codes)]  # fmt: skip
            for physical in merge(*chains, reverse=True):
                if physical not in looked:
                    looked.add(physical)
                    stored = self._records.get(physical)
                    yield physical, None if stored is None or not meant.fits(stored.record) else stored.record
            begin_offset = file.begin_offset
            older += file.begin_ms < begin_ms
            if older > _FILES_BEHIND:
                break

    def _timely(self, candidates: Iterator[int | None], deadline: float, is_first: bool) -> Iterator[int]:
        """Yield a chain's offsets. Raises ChainTooLong after `deadline`. is_first: the chain is a file's first. Before
        all others the time is checked, since most chains are empty."""
        if not is_first and self._clock.monotonic() > deadline:
            raise ChainTooLong
        for physical in candidates:
            if physical is not None:
                yield physical
            elif self._clock.monotonic() > deadline:
                raise ChainTooLong

    def _meant(self, topics: Iterable[str], keys: Iterable[str], begin_ms: int, end_ms: int) -> _Meant:
        now_ms = self._clock.wall_ms()
        latest_ms = I64_MAX if is_near(end_ms, now_ms) else end_ms
        return _Meant(frozenset(topics), frozenset(keys), begin_ms, end_ms, latest_ms, now_ms)

    def _candidates(self, file: IndexFile, code: int, meant: _Meant, below: int) -> Iterator[int | None]:
        """Yield the physical offsets of a file's entries with this hash that may match, newest first. Yields None after
        each run of entries that was read under the lock, if more follow."""
        is_late = file.begin_ms > meant.latest_ms
        number: int | None = None
        behind = 0
        while number != 0 and behind <= _STEPS_BEHIND:
            with self._index.lock:
                if file.closed:
                    return
                entries, number = file.chain(code, number, STEPS)
            for physical, entry_ms in entries:
                behind += is_late
                if meant.is_early(entry_ms):
                    behind += 1
                elif physical < below and not meant.is_late(entry_ms, file.begin_ms):
                    yield physical
            if number != 0:
                yield None


class ChainTooLong(Exception):
    """Looking up the index's chains, or stepping over their entries, took longer than the deadline."""


class _Meant(NamedTuple):
    """Conditions of a query. latest_ms: end_ms, or the largest time if end_ms is near `now_ms`."""

    topics: frozenset[str]
    keys: frozenset[str]
    begin_ms: int
    end_ms: int
    latest_ms: int
    now_ms: int

    def is_early(self, entry_ms: int) -> bool:
        """True if an entry's record is too old. Seconds of entries were cut off."""
        return entry_ms + 1000 <= self.begin_ms

    def is_late(self, entry_ms: int, file_begin_ms: int) -> bool:
        """True if an entry's record is too new. Times before the file's first are stored as that one."""
        return entry_ms > self.latest_ms and entry_ms > file_begin_ms

    def fits(self, record: Record) -> bool:
        """True if a record is of these topics, keys and times."""
        if record.topic not in self.topics or self.keys.isdisjoint(keys_of(record.properties)):
            return False
        if not self.begin_ms <= record.store_time_ms <= self.latest_ms:
            return False
        return record.store_time_ms <= self.end_ms or is_ahead(record.store_time_ms, self.now_ms)


def _answer(found: dict[int, StoredRecord], last: IndexHeader | None, complete: bool) -> KeyRecords:
    records = [found[physical] for physical in sorted(found)]
    if not records or last is None:
        return KeyRecords([], 0, 0, complete)
    return KeyRecords(records, last.end_ms, last.end_offset, complete)
