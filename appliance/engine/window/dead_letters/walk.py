"""A page of the dead letters that a filter matches, newest first: skips by the known facts, reads the rest."""

from __future__ import annotations

import heapq
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from ...broker.replay.letter_filter import AGAIN, LetterFilter
from ...cursors import decode_cursor, encode_cursor
from ...errors import InvalidInput
from ...protocol.record import Record
from ...store.queues.consume_queue import HOLE_SIZE, ConsumeQueue
from ..figures.measures import Budget
from ..messages.queue_reader import QueueReader
from ..refusals import require_span, require_within
from ..sentences import say
from .facts import LetterFacts, QueueFacts

MAX_LIMIT = 500
BUDGET_MS = 250.0
#: Part of that time for reading facts about dead letters.
FILL_MS = 120.0
#: Records that are read and judged together.
BATCH = 64
#: Queues of a dead letter topic that are looked at; there is only 1 unless an administrator made more.
MOST_QUEUES = 64
_MAX_I64 = (1 << 63) - 1


class _Cursor(NamedTuple):
    """ends: for each queue the offset down to which the walk has come; begins: where it will end. crc: of the topic and
    the filter."""

    crc: int
    begins: tuple[tuple[int, int], ...]
    ends: tuple[tuple[int, int], ...]
    total: int
    snapshot_at_ms: int


class Walked(NamedTuple):
    rows: list[Record]
    next_cursor: str | None
    total: int
    seen: int
    skipped: int
    truncated: bool
    snapshot_at_ms: int


#: (order, physical offset, size, queue, queue offset)
_Step = tuple[int, int, int, ConsumeQueue, int]


class LetterWalk:
    """The walk of one page. facts: reserved for this walk by the caller."""

    def __init__(
        self,
        topic: str,
        queues: list[ConsumeQueue],
        wanted: LetterFilter,
        reader: QueueReader,
        facts: LetterFacts,
        times: Callable[[list[Record]], list[int]],
    ) -> None:
        """times: returns for each record how often it was replayed from its place."""
        self._queues = {queue.queue_id: queue for queue in queues[:MOST_QUEUES]}
        self._wanted = wanted
        self._reader = reader
        self._facts = facts
        self._times = times
        self._crc = zlib.crc32(f"{topic}\0{wanted!r}".encode(errors="surrogatepass"))

    def begin(self, from_ms: int | None, to_ms: int | None) -> _Cursor:
        """Return the cursor of the first page. Raises InvalidInput."""
        require_span(from_ms, to_ms)
        begins, ends = [], []
        for queue_id, queue in self._queues.items():
            low = queue.min_offset if from_ms is None else self._reader.offset_at(queue, from_ms)
            end = queue.max_offset if to_ms is None else self._reader.end_at(queue, to_ms)
            if low < end:
                begins.append((queue_id, low))
                ends.append((queue_id, end))
        total = sum(end - low for (_, low), (_, end) in zip(begins, ends, strict=True))
        return _Cursor(self._crc, tuple(begins), tuple(ends), total, int(time.time() * 1000))

    def cursor_of(self, text: str) -> _Cursor:
        """Decode a cursor; InvalidInput unless it belongs to this topic and filter."""
        try:
            cursor = decode_cursor(text, _Cursor)
        except ValueError:
            raise InvalidInput("cursor", say("bad_cursor")) from None
        if cursor.crc != self._crc:
            raise InvalidInput("cursor", say("foreign_cursor"))
        pairs = list(zip(cursor.begins, cursor.ends, strict=False))
        fits = len(cursor.begins) == len(cursor.ends) <= MOST_QUEUES and cursor.total >= 0
        if not fits or any(b[0] != e[0] or not 0 <= b[1] <= e[1] < _MAX_I64 for b, e in pairs):
            raise InvalidInput("cursor", say("bad_cursor"))
        return cursor

    def page(self, cursor: _Cursor, limit: int, budget_ms: float = BUDGET_MS) -> Walked:
        require_within("limit", limit, 1, MAX_LIMIT)
        budget = Budget(budget_ms)
        begins, ends = dict(cursor.begins), dict(cursor.ends)
        steps = heapq.merge(*self._walks(begins, ends, Budget(min(FILL_MS, budget_ms / 2))))
        rows: list[Record] = []
        skipped, ended = 0, False
        over = False
        while len(rows) < limit and not over:
            batch = list(islice(steps, BATCH))
            if not batch:
                ended = True
                break
            records: list[Record | None] = []
            for _, physical, size, queue, offset in batch:
                records.append(self._record(physical, size, queue, offset))
                over = budget.spent
                if over:
                    break
            for (_, _, _, queue, offset), record, fits in zip(batch, records, self._judge(records), strict=False):
                if len(rows) >= limit:
                    break
                ends[queue.queue_id] = offset
                skipped += record is None
                if fits and record is not None:
                    rows.append(record)
            else:
                ended = len(batch) < BATCH and len(records) == len(batch)
                if ended:
                    break
        if ended:
            ends = begins
        left = sum(max(0, ends[queue_id] - low) for queue_id, low in begins.items())
        following = None if not left else encode_cursor(cursor._replace(ends=tuple(ends.items())))
        return Walked(
            rows,
            following,
            cursor.total,
            max(0, cursor.total - left),
            skipped,
            len(rows) < limit and following is not None,
            cursor.snapshot_at_ms,
        )

    def _record(self, physical: int, size: int, queue: ConsumeQueue, offset: int) -> Record | None:
        found = self._reader.record_at(physical, size)
        if found is not None and not self._reader.belongs(found[0], queue, offset):
            found = self._reader.record(queue, offset)
        return None if found is None else found[0]

    def _judge(self, records: list[Record | None]) -> list[bool]:
        wanted = self._wanted
        fits = [record is not None and wanted.fits(record) for record in records]
        if wanted.replayed in (None, AGAIN):
            return fits
        meant = [record for record, fit in zip(records, fits, strict=True) if fit and record is not None]
        times = iter(self._times(meant))
        return [fit and wanted.fits_replays(next(times)) for fit in fits]

    def _walks(self, begins: dict[int, int], ends: dict[int, int], fill: Budget) -> list[Iterator[_Step]]:
        wanted, found = self._wanted, []
        knows = wanted.topic is not None or wanted.retries is not None or wanted.replayed == AGAIN
        for queue_id, end in ends.items():
            queue = self._queues.get(queue_id)
            if queue is None:
                continue
            known = None
            if knows:
                self._facts.fill(queue, self._reader, fill)
                known = self._facts.of(queue)
            found.append(self._walk(queue, begins[queue_id], min(end, queue.max_offset), known))
        return found

    def _walk(self, queue: ConsumeQueue, low: int, end: int, known: QueueFacts | None) -> Iterator[_Step]:
        codes = [] if known is None else self._facts.codes(known, self._wanted)
        while True:
            low = max(low, queue.min_offset)
            if known is not None and known.base < end <= known.end:
                end = known.behind_last_of(codes, low, end)
            if low >= end:
                return
            begin = max(low, end - BATCH)
            if known is not None and begin < known.end < end:
                begin = known.end
            wanted = None
            if known is not None and known.base <= begin and end <= known.end:
                part = known.codes[begin - known.base : end - known.base]
                meant = frozenset(codes)
                wanted = {begin + at for at, code in enumerate(part) if code in meant}
            for offset, physical, size in reversed(self._reader.span(queue, begin, end)):
                if 0 < size < HOLE_SIZE and (wanted is None or offset in wanted):
                    yield -physical, physical, size, queue, offset
            end = begin
