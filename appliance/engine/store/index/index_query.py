"""Questions to the key index: the records of `topic#key`, each checked against its own properties.

Entries hold hashes only, so others' records turn up in a chain; they never show. Reads wait for the disk, in the thread
of whoever asks.
Source: RocketMQ `IndexService.queryOffset`, `DefaultMessageStore.queryMessage`.
"""

from __future__ import annotations

from ...named_tuple import NamedTuple
from ...protocol.fields import I64_MAX
from ..dispatch import keys_of
from ..record_reader import RecordReader, StoredRecord
from ..time_search import is_ahead, is_near
from .index_file import IndexHeader
from .index_keys import key_hash
from .index_service import IndexService

#: What a query waits for the index to catch up with what was published before it.
CATCH_UP_S = 1.0
#: What looking for them takes at most: entries with the same hash are as many as strangers like.
FIND_S = 2.0
#: Entries looked at before the lock is let go.
STEPS = 64
#: In an index of Apache's times may go back: so many entries are looked at behind one that is too old, or in a file
#: that begins too late, and so many files that begin too early.
_STEPS_BEHIND, _FILES_BEHIND = 1024, 2


class KeyRecords(NamedTuple):
    """records: oldest first. last_time_ms, last_offset: of the newest entry of the index; 0 when
    nothing was found, as Apache says. complete: all of the log's published part was looked at; False when the index is
    too far behind, or time or room ran out."""

    records: list[StoredRecord]
    last_time_ms: int
    last_offset: int
    complete: bool


class IndexQuery:
    """Any thread."""

    def __init__(self, index: IndexService, records: RecordReader) -> None:
        self._index = index
        self._records = records
        self._clock = index.clock

    def catch_up(self, seconds: float = CATCH_UP_S) -> bool:
        """Have what is published now indexed; False when that takes longer, or the index is off."""
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
        """The newest records of `topic` whose unique key or one of whose keys is `key`, stored in [begin_ms, end_ms].

        At most `limit` of them and `max_bytes` together, one of any size aside; only those that lie below a physical
        offset. deadline: of the monotonic clock, in FIND_S at the latest; what was found by then is the answer.
        A range that reaches to now has what was stored while the clock was ahead, too.
        """
        now_ms = self._clock.wall_ms()
        latest_ms = I64_MAX if is_near(end_ms, now_ms) else end_ms
        latest = self._clock.monotonic() + FIND_S
        deadline = latest if deadline is None else min(deadline, latest)
        others: set[int] = set()  # looked at, and not meant
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
            is_late = file.begin_ms > latest_ms
            number: int | None = None
            behind = 0
            while number != 0 and behind <= _STEPS_BEHIND:
                with self._index.lock:
                    if file.closed:
                        break
                    candidates, number = file.chain(code, number, STEPS)
                for physical, entry_ms in candidates:
                    behind += is_late
                    # Seconds were cut off. Times before the file's first are written as that one.
                    if entry_ms + 1000 <= begin_ms:
                        behind += 1
                        continue
                    if physical in found or physical in others or physical >= below:
                        continue
                    if entry_ms > latest_ms and entry_ms > file.begin_ms:
                        continue
                    if len(others) % STEPS == STEPS - 1 and self._clock.monotonic() > deadline:
                        return _answer(found, last, False)
                    others.add(physical)
                    stored = self._records.get(physical)
                    if stored is None:
                        continue
                    record = stored.record
                    if record.topic != topic or key not in keys_of(record.properties):
                        continue
                    if not begin_ms <= record.store_time_ms <= latest_ms:
                        continue
                    if record.store_time_ms > end_ms and not is_ahead(record.store_time_ms, now_ms):
                        continue
                    room -= record.size
                    if found and room < 0:
                        return _answer(found, last, False)
                    found[physical] = stored
                    if len(found) >= limit:
                        return _answer(found, last, complete)
                if self._clock.monotonic() > deadline:
                    return _answer(found, last, False)
            older += file.begin_ms < begin_ms
            if older > _FILES_BEHIND:
                break
        return _answer(found, last, complete)


def _answer(found: dict[int, StoredRecord], last: IndexHeader | None, complete: bool) -> KeyRecords:
    records = [found[physical] for physical in sorted(found)]
    if not records or last is None:
        return KeyRecords([], 0, 0, complete)
    return KeyRecords(records, last.end_ms, last.end_offset, complete)
