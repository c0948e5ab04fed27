"""Decides which bytes of the log are read, in which partitions. Runs in the driver.

    file 1           | file 2           | file 3 ....... end |
    [ range )[ range | [ range )[ range | [ range )[ range   )      each begins and ends where a record begins

Ranges begin at messages that queue entries name. (A search for magic numbers could find false records, since a body may
contain bytes that look like one.) If the wanted topics are a small part of a file, its partition is a list of their
messages instead, taken from the same entries. The same store and options give the same partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
from pyspark.sql.datasource import InputPartition

from . import times
from .findings import GAP, WHOLE, Ledger
from .log_files import FileGone, LogFile, LogReader
from .named_offsets import EARLIEST, LATEST, NamedOffsets
from .options import OptionError, Options
from .queue_entries import Queue
from .store_view import StoreView
from .wanted import Wanted

#: Size of a partition: large enough to be worth a task, and small enough that the last one does not delay the job.
LEAST_BYTES, MOST_BYTES = 8 << 20, 128 << 20
#: Number of partitions of a store, as far as these sizes allow.
PARTS = 16
#: Messages are read one by one if that is less than 1 / SMALL_SHARE of reading all; each costs at least a page.
SMALL_SHARE = 4
PAGE_BYTES = 4096
#: Most messages of a partition that is a list of them.
MOST_PLACES = 100_000
#: Number of queues in which a message near a place is looked up: the largest ones that begin before it and end behind
#: it; and at most, where none of these has a message near it.
_ASKED, _MOST_ASKED = 8, 256


@dataclass(frozen=True)
class FilePartition:
    """[begin, end): physical offsets in one file. places: (physical offset, size) of the messages to read, 16 bytes
    each, or None for all there are."""

    file: LogFile
    begin: int
    end: int
    places: bytes | None = None

    @property
    def name(self) -> str:
        return f"{self.begin:020d}-{self.end:020d}{'' if self.places is None else '-places'}"


class WantedPartition(InputPartition):
    """A partition as Spark passes it to a task."""

    def __init__(self, part: FilePartition, wanted: Wanted) -> None:
        self.part = part
        self.wanted = wanted


def wanted_of(options: Options, view: StoreView | None = None) -> Wanted:
    """Return what the options select. view: gives the offsets of `earliest` and `latest`; without it, and for a queue
    that it does not have, they count as 0."""
    return Wanted(
        topics=frozenset(options.topics) or None,
        system=options.include_system,
        pattern=options.topic_pattern,
        from_ms=options.from_ms,
        to_ms=options.to_ms,
        starts=_bounds(options.starting_offsets, view, LATEST),
        ends=_bounds(options.ending_offsets, view, EARLIEST),
        body=options.body,
    )


def _bounds(offsets: NamedOffsets, view: StoreView | None, other: int) -> dict[tuple[str, int], int]:
    """Return the bounds of queues as offsets. other: the one of EARLIEST and LATEST that is not the default here."""
    found: dict[tuple[str, int], int] = {}
    queues = {queue.key: queue for queue in view.queues} if view else {}
    for (_, topic, queue_id), offset in offsets.queues.items():
        queue = queues.get((topic, queue_id))
        if offset >= 0:
            found[topic, queue_id] = offset
        elif offset == other:
            found[topic, queue_id] = 0 if queue is None else queue.end if other == LATEST else queue.first
    return found


def check_offsets(view: StoreView, options: Options) -> None:
    """Raise OptionError if an offset of the options names no topic or queue of the store, or a place within a
    message."""
    starting = options.starting_offsets
    if options.fail_on_missing_topic:
        view.check_topics(sorted(starting.topics | options.ending_offsets.topics))
        view.check_queues("startingOffsets", _keys(starting))
    _check_place(view, "startingOffsets", starting.position)
    check_end(view, options)


def check_end(view: StoreView, options: Options) -> None:
    """Raise OptionError if the options endingOffsets or until name a queue that the store does not have, or a place
    within a message."""
    if options.fail_on_missing_topic:
        view.check_queues("endingOffsets", _keys(options.ending_offsets))
    _check_place(view, "endingOffsets", options.ending_offsets.position)
    _check_place(view, "until", options.until)


def _check_place(view: StoreView, name: str, place: int | None) -> None:
    if place is not None and view.is_within_message(place):
        raise OptionError(f"The option {name}: {place} is within a message of this log.")


def _keys(offsets: NamedOffsets) -> set[tuple[str, int]]:
    return {(topic, queue_id) for _, topic, queue_id in offsets.queues}


class Plan:
    """Partitions over one view of a store."""

    def __init__(self, view: StoreView, options: Options, ledger: Ledger) -> None:
        """ledger: takes missing files; raises DataLoss then, if it is set to."""
        self._view = view
        self._options = options
        self._ledger = ledger
        self._by_size = sorted(view.queues, key=lambda queue: queue.first - queue.end)

    def partitions(self, wanted: Wanted) -> list[FilePartition]:
        """Return the partitions between the offsets of the options. wanted: by options and filters."""
        options, view = self._options, self._view
        begin, end = view.begin, view.end
        if options.starting_offsets.position is not None:
            begin = options.starting_offsets.position
        if (last := options.last_place) is not None:
            end = self._reached(last)
        if options.starting_offsets.everywhere == LATEST:
            begin = end
        if options.ending_offsets.everywhere == EARLIEST:
            end = begin
        self._check_starts(wanted)
        for offsets in (options.starting_offsets, options.ending_offsets):
            if offsets.position is not None:
                self.check_witness(offsets.position, offsets.witness)
        return self.between(begin, end, wanted)

    def check_witness(self, place: int, witness: Sequence[int] | None) -> None:
        """Note a gap before a place if the log was written anew there since its witness was taken."""
        if witness is not None and not self._view.has_witness((witness[0], witness[1])):
            why = (
                f"The message at {witness[0]} of {self._options.store} is not the one that was there when {place} was "
                "noted: the log lost its end, as in a power cut, and was written anew, or the offset is of another "
                "store"
            )
            self._ledger.add(GAP, witness[0], max(place, witness[0] + 1), why)

    def _reached(self, last: int) -> int:
        """Return that physical offset, or the log's end before it, which is a gap. Where something is written behind
        the known end, its queue entries come later, and it is read."""
        end = self._view.end
        if last <= end or self._view.is_written(end):
            return last
        self._ledger.add(GAP, end, last, f"The log ends at {end}, and {last} was asked for")
        return end

    def _check_starts(self, wanted: Wanted) -> None:
        for queue in self._view.queues:
            start = wanted.starts.get(queue.key)
            if start is not None and start < queue.first:
                text = f"{queue.topic}, queue {queue.queue_id}: the messages {start} to {queue.first - 1} were deleted"
                self._ledger.add(GAP, start, queue.first, text, f"{queue.topic}-{queue.queue_id}")

    def between(self, begin: int, end: int, wanted: Wanted) -> list[FilePartition]:
        """Return partitions of the log between two physical offsets at which records begin."""
        pieces = [
            (file, max(file.start, low), min(file.end, high))
            for low, high in self.within_times(begin, end, wanted)
            for file in self._files_of(low, high, end)
        ]
        chosen = self._chosen(wanted)
        total = sum(high - low for _, low, high in pieces)
        step = min(max(total // PARTS, LEAST_BYTES), MOST_BYTES)
        found: list[FilePartition] = []
        for file, low, high in pieces:
            found += self._of_file(file, low, high, wanted, chosen, step)
        return found

    def within_times(self, begin: int, end: int, wanted: Wanted) -> list[times.Range]:
        """Return the ranges of [begin, end) to read for the wanted times; records begin at each bound."""
        if wanted.from_ms is None and wanted.to_ms is None:
            return [(begin, end)]
        view = self._view
        low, high = (begin, end) if self._options.times_ascend else view.ascends
        known = (min(max(low, begin), end), max(min(high, end), begin))
        if known[0] >= known[1]:
            known = begin, begin
        # Behind the recovery position of a running broker there is little, and its order will be known soon.
        for low, high in ((begin, known[0]), (known[1], known[1] if view.is_open and known[0] < known[1] else end)):
            if low < high:
                self._ledger.note(WHOLE, low, high)
        places = [file.start for file in view.files]
        found = times.within(known, places, wanted.from_ms, wanted.to_ms, view.store_ms_at, self._next_start)
        return times.ranges(begin, end, known, found)

    def end_of_queues(self, end: int, wanted: Wanted) -> int:
        """Return an offset, `end` at most, behind which no wanted message lies or will: if every wanted queue has been
        written to its own end, it is behind the last one. A queue or topic that comes later begins behind it, too."""
        queues = self._queues(wanted)
        found = self._view.begin
        for queue in queues:
            behind = wanted.ends.get(queue.key)
            if behind is None or behind > queue.end:
                return end
            if behind > queue.first:
                places, sizes = self._view.entries.places(queue, behind - 1, behind)
                found = max([found, *(places + sizes).tolist()])
        return min(end, found) if queues else end

    def end_of_times(self, begin: int, end: int, wanted: Wanted) -> int:
        """Return an offset in [begin, end] behind which no message of the wanted times lies or will, `end` if that is
        not known."""
        view = self._view
        low, high = (begin, end) if self._options.times_ascend else view.ascends
        if low <= begin < min(high, end) and wanted.to_ms is not None:
            first = view.store_ms_at(begin)
            if first is not None and first >= wanted.to_ms:
                return begin
        found = self.within_times(begin, end, wanted)
        if view.is_open and len(found) > 1:
            found.pop()  # Its order will be known soon; until then it is not read.
        return found[-1][1] if found else begin

    def _files_of(self, begin: int, end: int, log_end: int) -> list[LogFile]:
        """Return the files with something of [begin, end). Missing ranges in between are noted as gaps."""
        found = [file for file in self._view.files if file.start < end and file.end > begin]
        at = begin
        for file in found:
            if at < file.start:
                self._ledger.add(GAP, at, file.start, f"The log has no file for [{at}, {file.start})")
            at = file.end
        if at < end == log_end:
            self._ledger.add(GAP, at, end, f"The log ends at {at}, and {end} was asked for")
        elif at < end:
            self._ledger.add(GAP, at, end, f"The log has no file for [{at}, {end})")
        return found

    # --- by queue entries

    def _chosen(self, wanted: Wanted) -> _Chosen | None:
        """Return the queues whose entries name the wanted messages; None if everything has to be read.

        A topic may have been deleted and made again: then the log has messages that no queue names. RocketBox records
        which topics were deleted. With other brokers only an entry of a message before the log's first byte shows that
        a topic was never made anew; without one everything before its first message is read.
        """
        view = self._view
        is_all = wanted.topics is None and wanted.pattern is None and wanted.queue_ids is None
        if not view.queues or (is_all and wanted.from_offset is None and wanted.to_offset is None):
            return None
        by_topic: dict[str, list[Queue]] = {}
        for queue in self._queues(wanted):
            by_topic.setdefault(queue.topic, []).append(queue)
        if wanted.topics is None:
            if not view.is_ours or view.deleted:
                return None
        elif any(not view.was_never_deleted(topic) for topic in wanted.topics if topic not in by_topic):
            return None
        known_from = 0
        for topic, queues in by_topic.items():
            begins_anew = view.was_never_deleted(topic) and not any(queue.first for queue in queues)
            if not begins_anew and not any(queue.is_known_below for queue in queues):
                known_from = max(known_from, min(queue.begins for queue in queues))
        return _Chosen([queue for queues in by_topic.values() for queue in queues], known_from)

    def _queues(self, wanted: Wanted) -> list[Queue]:
        return [
            queue
            for queue in self._view.queues
            if wanted.has_topic(queue.topic) and (wanted.queue_ids is None or queue.queue_id in wanted.queue_ids)
        ]

    def _of_file(
        self, file: LogFile, begin: int, end: int, wanted: Wanted, chosen: _Chosen | None, step: int
    ) -> list[FilePartition]:
        known = (max(begin, chosen.known_from), min(end, self._view.named_to)) if chosen else (0, 0)
        if chosen is None or known[0] >= known[1]:
            return self._ranges(file, begin, end, wanted, step)
        places = self._places(chosen, wanted, *known)
        if places is None:
            return self._ranges(file, begin, end, wanted, step)
        found = self._ranges(file, begin, known[0], wanted, step)
        most = min(self._options.max_rows_per_partition or MOST_PLACES, MOST_PLACES)
        for at in range(0, len(places), most):
            part = places[at : at + most]
            behind = int(part[-1, 0] + part[-1, 1])
            found.append(FilePartition(file, int(part[0, 0]), behind, part.tobytes()))
        return found + self._ranges(file, known[1], end, wanted, step)

    def _places(self, chosen: _Chosen, wanted: Wanted, begin: int, end: int) -> np.ndarray | None:
        """Return (physical offset, size) of the wanted messages in [begin, end), ascending; None if reading all of it
        is less work."""
        most = (end - begin) // SMALL_SHARE
        spans, count = [], 0
        for queue in chosen.queues:
            first, last = self._span(queue, wanted, begin, end)
            if first < last:
                spans.append((queue, first, last))
                count += last - first
        if count * PAGE_BYTES > most:
            return None
        found = [np.stack(self._view.entries.places(queue, first, last), 1) for queue, first, last in spans]
        places = np.concatenate([np.zeros((0, 2), np.int64), *found])
        places = places[(places[:, 0] >= begin) & (places[:, 0] + places[:, 1] <= end)]
        if np.maximum(places[:, 1], PAGE_BYTES).sum() > most:
            return None
        return places[np.argsort(places[:, 0], kind="stable")]

    def _span(self, queue: Queue, wanted: Wanted, begin: int, end: int) -> tuple[int, int]:
        """Return the bounds, as queue offsets, of the wanted messages of a queue in [begin, end)."""
        entries = self._view.entries
        first, last = entries.offset_at(queue, begin), entries.offset_at(queue, end)
        highest = [one for one in (wanted.to_offset, wanted.ends.get(queue.key)) if one is not None]
        return max(first, wanted.from_offset or 0, wanted.starts.get(queue.key, 0)), min([last, *highest])

    # --- by ranges

    def _ranges(self, file: LogFile, begin: int, end: int, wanted: Wanted, step: int) -> list[FilePartition]:
        if begin >= end:
            return []
        cuts = [begin, *self._cuts(file, begin, end, wanted, step), end]
        return [FilePartition(file, low, high) for low, high in pairwise(cuts)]

    def _cuts(self, file: LogFile, begin: int, end: int, wanted: Wanted, step: int) -> list[int]:
        """Return begins of records, ascending, within (begin, end): about `step` bytes apart, and between
        two of them lie at most as many wanted messages as one partition may have."""
        cuts = {
            self._next_start(target, end, step // 2) or end for target in range(begin + step, end - step // 2, step)
        }
        most = self._options.max_rows_per_partition
        if most is not None:
            cuts |= set(self._cuts_by_rows(begin, end, wanted, most, cuts))
        cuts.discard(end)
        try:
            reader = LogReader(file)
        except FileGone:
            return []  # the task will report it
        try:
            return sorted(cut for cut in cuts if reader.record_at(cut, end) is not None)
        finally:
            reader.close()

    def _next_start(self, low: int, high: int, near: int | None = None) -> int | None:
        """Return the begin of a message in [low, high), the first one that entries of the largest queues there name, or
        None. near: bytes; more queues are asked while the message is farther from `low`, since the large ones may have
        no messages there."""
        entries = self._view.entries
        found = min((queue.begins for queue in self._by_size if low <= queue.begins < high), default=None)
        there = (queue for queue in self._by_size if queue.begins < low < queue.ends)
        for asked, queue in enumerate(islice(there, _MOST_ASKED)):
            if asked >= _ASKED and (near is None or (found is not None and found - low <= near)):
                break
            one = entries.physical_of(queue, entries.offset_at(queue, low))
            if low <= one < high:
                found = one if found is None else min(found, one)
        return found

    def _cuts_by_rows(self, begin: int, end: int, wanted: Wanted, most: int, cuts: Iterable[int]) -> list[int]:
        places = self.message_places(begin, end, wanted)
        found, low = [], begin
        for high in [*sorted(cuts), end]:
            first, last = np.searchsorted(places, [low, high])
            found += places[first:last][most::most].tolist()
            low = high
        return found

    def message_places(self, begin: int, end: int, wanted: Wanted) -> np.ndarray:
        """Return physical offsets of messages in [begin, end) of wanted queues, and of all that have no entry yet,
        ascending. Messages that never get an entry, which no client sends, are not among them."""
        view = self._view
        spans = [(queue, *self._span(queue, wanted, begin, end)) for queue in self._queues(wanted)]
        found = [view.entries.places(queue, first, last)[0] for queue, first, last in spans]
        tail = np.array([one for one in view.tail if begin <= one < end], np.int64)
        return np.sort(np.concatenate([tail, *found]))


@dataclass(frozen=True)
class _Chosen:
    """queues: their entries name all wanted messages from known_from on, up to the settled end."""

    queues: list[Queue]
    known_from: int
