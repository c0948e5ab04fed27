"""Counts the facts of a day by plain Python: for machines without Java, and as the oracle for Spark's numbers.

One pass over the log; then the delivery times, queue by queue. Memory: 28 bytes for each message of a queue whose
deliveries were recorded, and 16 more while that queue is joined.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path

from appliance.engine.broker.replay.provenance import REPLAYED, provenance_of
from appliance.engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from appliance.engine.protocol.properties import RETRY_TOPIC, TAGS, decode_properties
from appliance.engine.protocol.record import Record
from appliance.engine.store.dispatch import tag_code

from ..snapshot import Snapshot
from .buckets import bucket_of
from .contents import Contents
from .day_files import DayFiles, day_files
from .delivered import Answers, Delivered, Wait, read_delivered, waits_of
from .findings import finding_rows
from .from_snapshot import rows_from_snapshot
from .hours import HOUR_MS, Stretch, stretches
from .one_file import OneFile, Part, Range
from .tables import DEAD_LETTERS, FINDINGS, LATENCY, RETRIES, TABLES, TRAFFIC, DayFacts, Row

#: Called with the bytes read so far, and the number of all.
Step = Callable[[int, int], None]
#: Records between two calls of it.
_STEP_RECORDS = 5_000
_NEVER = 1 << 62

Counts = dict[tuple[str | int, ...], list[int]]


def count(snapshot: Snapshot, run_dir: Path, step: Step = lambda done, total: None) -> DayFacts:
    """Count all tables. Raises OSError when the log or the deliveries cannot be read."""
    files = day_files(snapshot)
    delivered = read_delivered(snapshot, files.begin)
    day = _Day(snapshot, delivered)
    unread = list(files.gaps)
    for record in _records(files, unread, step):
        if snapshot.from_ms <= record.store_time_ms < snapshot.to_ms:
            day.take(record)
    facts = rows_from_snapshot(snapshot, run_dir)
    facts[TRAFFIC.name] = _rows(day.traffic)
    facts[RETRIES.name] = _rows(day.retries)
    facts[DEAD_LETTERS.name] = _rows(day.dead_letters)
    facts[LATENCY.name] = _rows(day.latency())
    facts |= day.contents.rows()
    facts[FINDINGS.name] = finding_rows(files, unread, delivered, day.lowest)
    return {table.name: facts[table.name] for table in TABLES}


def _records(files: DayFiles, unread: list[Range], step: Step) -> Iterator[Record]:
    done, count = 0, 0
    for part in files.parts:
        for record in _records_of(part, unread):
            count += 1
            if count % _STEP_RECORDS == 0:
                step(done + record.physical_offset - part.start, files.size)
            yield record
        done += part.end - part.start
        step(done, files.size)


def _records_of(part: Part, unread: list[Range]) -> Iterator[Record]:
    try:
        file = OneFile(part)
    except FileNotFoundError:
        unread.append(Range("gap", part.start, part.end))
        return
    try:
        yield from file.records(unread)
    finally:
        file.close()


class _Day:
    """Counts of the pass over the log. lowest: physical offset of the day's first message; None without one."""

    def __init__(self, snapshot: Snapshot, delivered: Delivered) -> None:
        self.traffic: Counts = {}
        self.retries: Counts = {}
        self.dead_letters: Counts = {}
        self.contents = Contents()
        self.lowest: int | None = None
        self._hours = _Hours(stretches(snapshot.from_ms, snapshot.to_ms, snapshot.zone))
        self._from_ms = snapshot.from_ms
        self._to_ms = snapshot.to_ms
        self._answers = delivered.queues
        self._waits = waits_of(snapshot, delivered)
        self._queues = {
            key: _Messages(self._answers.get(key, Answers()), self._waits.get(key, {}))
            for key in self._answers.keys() | self._waits.keys()
        }

    def take(self, record: Record) -> None:
        """Count one record of the day."""
        topic, queue_id = record.topic, record.queue_id
        hour_ms = self._hours.of(record.store_time_ms)
        _add(self.traffic, (topic, queue_id, hour_ms), record.size, len(record.body))
        self.contents.take_record(record)
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            self._take_failure(record, hour_ms)
        if self.lowest is None or record.physical_offset < self.lowest:
            self.lowest = record.physical_offset
        messages = self._queues.get((topic, queue_id))
        if messages is not None:
            messages.take(record, self._from_ms)

    def _take_failure(self, record: Record, hour_ms: int) -> None:
        properties = decode_properties(record.properties)
        origin = properties.get(RETRY_TOPIC, "")
        if record.topic.startswith(DLQ_PREFIX):
            _add(self.dead_letters, (record.topic.removeprefix(DLQ_PREFIX), origin, hour_ms), record.size)
            return
        is_copy = REPLAYED in properties and provenance_of(properties).times > 0 and record.reconsume_times == 0
        group = record.topic.removeprefix(RETRY_PREFIX)
        _add(self.retries, (group, origin, record.reconsume_times, hour_ms), int(is_copy))

    def latency(self) -> Counts:
        found: Counts = {}
        for (topic, queue_id), messages in sorted(self._queues.items()):
            for group, which, bucket, number in messages.latency(self._from_ms, self._to_ms):
                known = found.setdefault((group, topic, which, bucket), [0])
                known[0] += number
            self._queues[topic, queue_id] = _Messages(Answers(), {})  # frees its memory
        return found


class _Hours:
    """Finds the begin of a moment's hour; fast for moments of the same hour."""

    def __init__(self, found: tuple[Stretch, ...]) -> None:
        self._stretches = found
        self._from_ms = self._to_ms = self._hour_ms = 0

    def of(self, ms: int) -> int:
        if not self._from_ms <= ms < self._to_ms:
            at = bisect_left(self._stretches, (ms + 1,)) - 1
            stretch = self._stretches[at]
            self._hour_ms = stretch.hour(ms)
            self._from_ms = max(self._hour_ms, stretch.from_ms)
            ends = [one.from_ms for one in self._stretches[at + 1 : at + 2]]
            self._to_ms = min([self._hour_ms + HOUR_MS, *ends])
        return self._hour_ms


class _Messages:
    """The messages of one queue, in the log's order."""

    def __init__(self, answers: Answers, waits: dict[str, Wait]) -> None:
        self._answers = answers
        self._waits = waits
        codes = [*(who.codes for who in answers.whos), *(wait.codes for wait in waits.values())]
        self._with_codes = any(one is not None for one in codes)
        self._offset = array("q")
        self._physical = array("q")
        self._after_ms = array("I")
        self._code = array("q")

    def take(self, record: Record, from_ms: int) -> None:
        self._offset.append(record.queue_offset)
        self._physical.append(record.physical_offset)
        self._after_ms.append(record.store_time_ms - from_ms)
        if self._with_codes:
            self._code.append(tag_code(decode_properties(record.properties).get(TAGS)))

    def latency(self, from_ms: int, to_ms: int) -> Iterator[tuple[str, str, int, int]]:
        """Yield (group, which, bucket, messages); the same key may come several times."""
        if not self._offset:
            return
        self._sort()
        answers = self._answers
        whos = answers.whos
        by_group: dict[str, list[int]] = {group: [] for group in self._waits}
        for i in range(len(answers)):
            by_group.setdefault(whos[answers.who[i]].group, []).append(i)
        for group, chosen in by_group.items():
            first, last = self._of_group(chosen, from_ms)
            for which, times in (("first", first), ("last", last)):
                for bucket, number in self._buckets(times).items():
                    yield group, which, bucket, number
            if group in self._waits:
                yield from self._undelivered(group, first, to_ms - from_ms)

    def _buckets(self, times: array[int]) -> dict[int, int]:
        counts: dict[int, int] = {}
        for k, at_ms in enumerate(times):
            if -_NEVER < at_ms < _NEVER:
                bucket = bucket_of(at_ms - self._after_ms[k])
                counts[bucket] = counts.get(bucket, 0) + 1
        return counts

    def _undelivered(self, group: str, first: array[int], end: int) -> Iterator[tuple[str, str, int, int]]:
        """Yield the numbers of messages that were not delivered by `end`, counted from the day's begin, and by T0."""
        wait = self._waits[group]
        after = waiting = 0
        for k, at_ms in enumerate(first):
            if at_ms < _NEVER:
                after += at_ms >= end
            elif self._offset[k] >= wait.next_offset and (wait.codes is None or self._code[k] in wait.codes):
                waiting += 1
        for which, number in (("late", after + waiting), ("waiting", waiting)):
            if number:
                yield group, which, 0, number

    def _sort(self) -> None:
        """Sort by offset: the offsets of a topic that was deleted and made again begin anew."""
        offsets = self._offset
        if all(offsets[i] <= offsets[i + 1] for i in range(len(offsets) - 1)):
            return
        order = sorted(range(len(offsets)), key=offsets.__getitem__)
        for column in (self._offset, self._physical, self._after_ms, self._code):
            if column:
                column[:] = array(column.typecode, [column[i] for i in order])

    def _of_group(self, chosen: list[int], from_ms: int) -> tuple[array[int], array[int]]:
        """Return when each message was delivered for the first and for the last time, from the day's begin on; _NEVER
        and -_NEVER if it was not."""
        answers = self._answers
        first, last = array("q", [_NEVER]) * len(self._offset), array("q", [-_NEVER]) * len(self._offset)
        offsets, physical, after_ms, codes, whos = (
            self._offset,
            self._physical,
            self._after_ms,
            self._code,
            answers.whos,
        )
        for i in chosen:
            begin = bisect_left(offsets, answers.first[i])
            end = bisect_left(offsets, answers.behind[i], begin)
            at_ms, below, doubtful = answers.at_ms[i] - from_ms, answers.below[i], answers.doubtful[i]
            wanted = whos[answers.who[i]].codes
            for k in range(begin, end):
                if physical[k] >= below or (physical[k] >= doubtful and at_ms < after_ms[k]):
                    continue
                if wanted is not None and codes[k] not in wanted:
                    continue
                if at_ms < first[k]:
                    first[k] = at_ms
                if at_ms > last[k]:
                    last[k] = at_ms
        return first, last


def _add(counts: Counts, key: tuple[str | int, ...], *values: int) -> None:
    """Count one more record under `key`, and add its values."""
    known = counts.get(key)
    if known is None:
        counts[key] = [1, *values]
        return
    known[0] += 1
    for i, value in enumerate(values, 1):
        known[i] += value


def _rows(counts: Counts) -> list[Row]:
    return [(*key, *values) for key, values in sorted(counts.items())]
