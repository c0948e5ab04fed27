"""Joins messages with answers, many at a time by numpy, and counts delivery times in buckets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from appliance.engine.store.dispatch import tag_code

from .answers_file import Longs, OfGroup, Saved
from .delivered import Wait
from .tables import FIRST_BUCKET, LATENCY_BOUNDS_MS

_BOUNDS = np.array(LATENCY_BOUNDS_MS)
_BUCKETS = len(LATENCY_BOUNDS_MS) + 1
#: Pairs of answer and message that are handled at a time.
_MOST_PAIRS = 1 << 21
_BATCH_ROWS = 1 << 18
_NEVER = np.iinfo(np.int64).max
_COLUMNS = ("group", "topic", "which", "bucket", "messages")


class Histograms:
    """Histograms of a partition's delivery times, and numbers of what was not delivered. For one task."""

    def __init__(self, saved: Saved, to_ms: int) -> None:
        """to_ms: the day's end."""
        self._saved = saved
        self._to_ms = to_ms
        self._counts: dict[tuple[str, str, str], Longs] = {}
        self._undelivered: dict[tuple[str, str, str], int] = {}
        self._codes: dict[str | None, int] = {}

    def take(self, batch: pa.RecordBatch) -> None:
        """Count a batch: messages with the columns `transforms.PLACE`, each once."""
        topics = batch.column("topic").dictionary_encode()
        names = topics.dictionary.to_pylist()
        queue_ids = _numbers(batch, "queue_id")
        queues = _numbers_of(topics.indices) << 32 | queue_ids
        order = np.lexsort((_numbers(batch, "queue_offset"), queues))
        queues = queues[order]
        begins = np.flatnonzero(np.diff(queues, prepend=-1))
        for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(queues)], strict=True):
            topic, queue_id = names[int(queues[begin]) >> 32], int(queues[begin]) & 0xFFFF_FFFF
            groups = self._saved.of(topic, queue_id)
            if groups:
                chosen = batch.take(pa.array(order[begin:end]))
                self._take_queue(topic, groups, chosen)

    def _take_queue(self, topic: str, groups: tuple[OfGroup, ...], messages: pa.RecordBatch) -> None:
        """Count messages of one queue, sorted by offset."""
        offsets = _numbers(messages, "queue_offset")
        physical = _numbers(messages, "physical_offset")
        store_ms = _numbers(messages, "store_ms")
        codes = self._codes_of(messages.column("tags")) if any(one.asks_for_codes for one in groups) else None
        for one in groups:
            first, last = delivered_at(one, offsets, physical, store_ms, codes)
            if one.wait is not None:
                self._take_undelivered(one.group, topic, one.wait, first, offsets, codes)
            for which, at_ms in (("first", first), ("last", last)):
                known = at_ms != _NEVER
                buckets = np.searchsorted(_BOUNDS, at_ms[known] - store_ms[known], side="left")
                key = one.group, topic, which
                self._counts[key] = self._counts.get(key, 0) + np.bincount(buckets, minlength=_BUCKETS)

    def _take_undelivered(
        self, group: str, topic: str, wait: Wait, first: Longs, offsets: Longs, codes: Longs | None
    ) -> None:
        waits = (first == _NEVER) & (offsets >= wait.next_offset)
        if wait.codes is not None:
            assert codes is not None
            waits &= np.isin(codes, wait.codes)
        late = waits | ((first != _NEVER) & (first >= self._to_ms))
        for which, found in (("late", late), ("waiting", waits)):
            key = group, topic, which
            self._undelivered[key] = self._undelivered.get(key, 0) + int(np.count_nonzero(found))

    def _codes_of(self, tags: pa.Array) -> Longs:
        encoded = tags.dictionary_encode(null_encoding="encode")
        codes = [tag_code(tag) for tag in encoded.dictionary.to_pylist()]
        return np.array(codes, np.int64)[_numbers_of(encoded.indices)]

    def rows(self) -> pa.RecordBatch:
        rows: list[tuple[Any, ...]] = [
            (*key, bucket, number)
            for key, counts in sorted(self._counts.items())
            for bucket, number in enumerate(counts.tolist(), FIRST_BUCKET)
            if number
        ]
        rows += [(*key, 0, number) for key, number in sorted(self._undelivered.items()) if number]
        types = (pa.string(), pa.string(), pa.string(), pa.int64(), pa.int64())
        columns = list(zip(*rows, strict=True)) or [()] * len(types)
        arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=_COLUMNS)


def larger(batches: Iterable[pa.RecordBatch], rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of at least `rows`, except the last, so that the work for each queue is done less
    often."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= rows:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def delivered_at(
    one: OfGroup, offsets: Longs, physical: Longs, store_ms: Longs, codes: Longs | None
) -> tuple[Longs, Longs]:
    """Return when each message was delivered to the group for the first and for the last time; _NEVER if it was not.

    offsets: rising. codes: of the messages' tags; may be None if no answer has a filter by codes."""
    first = np.full(len(offsets), _NEVER)
    last = np.full(len(offsets), -1)
    low = int(np.searchsorted(one.highest, offsets[0], side="right"))
    high = int(np.searchsorted(one.first, offsets[-1], side="right"))
    begin = np.searchsorted(offsets, one.first[low:high])
    end = np.searchsorted(offsets, one.behind[low:high])
    tells = np.flatnonzero(end > begin)
    if not len(tells):
        return first, np.full(len(offsets), _NEVER)
    covered = (end - begin)[tells]
    for part in np.split(tells, _cuts(covered)):
        count = (end - begin)[part]
        # The messages of each answer of this part, one after another.
        message = np.repeat(begin[part] - np.cumsum(count) + count, count) + np.arange(count.sum())
        answer = np.repeat(part + low, count)
        at_ms = one.at_ms[answer]
        there = physical[message]
        counts = there < one.below[answer]
        counts &= (there < one.doubtful[answer]) | (at_ms >= store_ms[message])
        if codes is not None:
            _leave_out(counts, one, part + low, answer, codes, message)
        np.minimum.at(first, message[counts], at_ms[counts])
        np.maximum.at(last, message[counts], at_ms[counts])
    return first, np.where(first == _NEVER, _NEVER, last)


def _leave_out(
    counts: npt.NDArray[np.bool_], one: OfGroup, part: Longs, answer: Longs, codes: Longs, message: Longs
) -> None:
    """Exclude pairs of an answer and a message that the answer's filter did not pass."""
    for who in np.unique(one.who[part]).tolist():
        wanted = one.codes[who]
        if wanted is not None:
            pairs = np.flatnonzero(one.who[answer] == who)
            counts[pairs] &= np.isin(codes, wanted)[message[pairs]]


def _cuts(covered: Longs) -> Longs:
    """Return the places to cut, so that no part has many more pairs than _MOST_PAIRS."""
    pairs = np.cumsum(covered) // _MOST_PAIRS
    return np.flatnonzero(np.diff(pairs)) + 1


def _numbers(batch: pa.RecordBatch, name: str) -> Longs:
    return _numbers_of(batch.column(name))


def _numbers_of(array: pa.Array) -> Longs:
    return array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
