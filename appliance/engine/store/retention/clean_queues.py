"""Queues follow the log: minimum offsets rise when files or a topic's time are gone, and queue files are deleted.

A minimum offset is written by recovery, then by the cleaner's thread alone, and only grows. A queue's last file always
stays, since its offsets continue from there.
"""

from __future__ import annotations

import errno
import logging
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ...errors import QueueBroken
from ...named_tuple import NamedTuple
from ..clock_steps import Stamped, ahead_of
from ..log.commit_log import CommitLog
from ..queues.consume_queue import ENTRY, ENTRY_BYTES, HOLE_SIZE, ConsumeQueue
from ..queues.consume_queue_table import ConsumeQueueTable
from ..queues.flush_queues import FlushConsumeQueueService
from ..record_reader import RecordReader
from ..time_search import Boundary, TimeSearch

if TYPE_CHECKING:
    from .purged_queues import Places

logger = logging.getLogger(__name__)

#: Queues processed between two pauses of PAUSE_S, so that other threads get their turn.
_SLICE = 500
PAUSE_S = 0.002


def first_kept(read: Callable[[int], bytes], low: int, high: int, log_begin: int) -> int:
    """Return the first offset in [low, high) whose entry names a record that is still in the log; `high` if none does.

    read: returns the entry at an offset, b"" if no file has it. Fillers and lost files occur at a queue's front only.
    """

    def is_gone(offset: int) -> bool:
        entry = read(offset)
        if len(entry) < ENTRY_BYTES:
            return True
        physical, size, _ = ENTRY.unpack(entry)
        return size <= 0 or physical < log_begin or (physical == 0 and size == HOLE_SIZE)

    if low >= high or not is_gone(low):
        return low
    if is_gone(high - 1):  # as in each queue without new messages
        return high
    return bisect_left(range(high), True, low, high, key=lambda offset: not is_gone(offset))


class Raised(NamedTuple):
    """The messages [begin, end) of a queue, by queue offset, were deleted."""

    topic: str
    queue_id: int
    begin: int
    end: int


class QueueTrimmer:
    """Belongs to the cleaner's thread. `pause`: sleeps for some seconds; returns False when the thread must stop."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueTable,
        records: RecordReader,
        writer: FlushConsumeQueueService,
        pause: Callable[[float], bool],
    ) -> None:
        # Constant after construction.
        self._log = log
        self._queues = queues
        self._writer = writer
        self._pause = pause
        # Owned by the cleaner's thread.
        self._files = queues.new_files(64)
        self._spans: tuple[Stamped, ...] = ()
        self._times = TimeSearch(queues, records, ahead_ms=lambda physical: ahead_of(self._spans, physical))
        #: Minimum offsets raised since the last `take_raised`.
        self._raised: list[Raised] = []
        #: Physical offset of a queue's first entry, where it was looked up.
        self._first_physical: dict[ConsumeQueue, int] = {}
        #: Below this file number a queue has no file to delete: they are gone, or the last one has to stay.
        self._first_file: dict[ConsumeQueue, int] = {}

    def follow_log(self, file_pause_s: float) -> int:
        """Raise each queue's minimum offset to what the log has; return the number of files deleted. Raises OSError."""
        log_begin = self._log.min_offset
        queues = self._queues.all()
        current = set(queues)
        for known in (self._first_physical, self._first_file):
            for queue in known.keys() - current:
                del known[queue]
        for count, queue in enumerate(queues, 1):
            if count % _SLICE == 0 and not self._pause(PAUSE_S):
                return 0
            low, high = queue.min_offset, queue.max_offset
            if queue.broken:  # it is corrected once its files are whole again
                continue
            if low < high and self._first_physical.get(queue, -1) < log_begin:
                try:
                    self._raise(queue, first_kept(partial(self._entry, queue), low, high, log_begin))
                    entry = self._entry(queue, queue.min_offset) if queue.min_offset < high else b""
                except QueueBroken:  # noticed just now
                    continue
                if len(entry) == ENTRY_BYTES:
                    self._first_physical[queue] = ENTRY.unpack(entry)[0]
        return self._delete_files(queues, file_pause_s)

    def follow_times(self, keep_from_ms: Mapping[str, int], spans: tuple[Stamped, ...], file_pause_s: float) -> int:
        """Raise queues of topics to their first message from a time on; return how many files were deleted. OSError.

        keep_from_ms: topic -> store time. spans: those of `ClockSteps` when these times were computed.
        """
        self._spans = spans
        looked_at = []
        for queue in self._queues.all():
            begin_ms = keep_from_ms.get(queue.topic)
            if begin_ms is None or queue.broken or queue.min_offset >= queue.max_offset:
                continue
            if not self._pause(0.0):
                return 0
            try:
                if self._times.time_of(queue.topic, queue.queue_id, queue.min_offset) < begin_ms:
                    found = self._times.offset_at(queue.topic, queue.queue_id, begin_ms, Boundary.LOWER)
                    self._raise(queue, found)
                    self._first_physical.pop(queue, None)
            except QueueBroken:
                continue
            looked_at.append(queue)
        return self._delete_files(looked_at, file_pause_s)

    def follow_places(self, places: Places, end: int) -> bool:
        """Raise queues that administrators purged; False if some could not be read and have to be tried again.

        end: of the published log. An administrator wanted it, so `take_raised` does not return it. Noted in the ledger
        when it returns True. No file is deleted before the log's are. Raises OSError.
        """
        from .purged_queues import behind_place

        whole = True
        raised = []
        for topic, queues in places.items():
            for queue_id, place in queues.items():
                queue = self._queues.find(topic, queue_id)
                if queue is None or queue.min_offset >= queue.max_offset:
                    continue
                try:
                    low, high = queue.min_offset, queue.max_offset
                    first = behind_place(partial(self._entry, queue), low, high, min(place, end))
                except QueueBroken:
                    whole = False
                    continue
                if first > queue.min_offset:
                    logger.info("consume queue: %s-%d was purged and begins at %d now", topic, queue_id, first)
                    queue.min_offset = first
                    self._first_physical.pop(queue, None)
                    raised.append(queue)
        if raised and not self._writer.record(raised, lambda: self._pause(0.0)):
            return False
        return whole

    def _entry(self, queue: ConsumeQueue, offset: int) -> bytes:
        return self._queues.read_entries(queue, offset, 1, self._files)

    def take_raised(self) -> list[Raised]:
        """Return the minimum offsets that were raised since the last call."""
        found, self._raised = self._raised, []
        return found

    def _raise(self, queue: ConsumeQueue, offset: int) -> None:
        offset = min(offset, queue.max_offset)
        if offset > queue.min_offset and not queue.broken:  # a broken queue's entries cannot be read
            logger.debug("consume queue: %s-%d begins at %d now", queue.topic, queue.queue_id, offset)
            self._raised.append(Raised(queue.topic, queue.queue_id, queue.min_offset, offset))
            queue.min_offset = offset

    def _delete_files(self, queues: list[ConsumeQueue], file_pause_s: float) -> int:
        """Delete files below the minimum offsets, after noting these in the ledger, which would else miss the files."""
        per_file = self._files.entries_per_file
        due = [queue for queue in queues if queue.min_offset // per_file > self._first_file.get(queue, 0)]
        if due and not self._writer.record(due, lambda: self._pause(0.0)):
            if not self._pause(0.0):
                return 0
            raise OSError(errno.EAGAIN, "the queue ledger could not be saved")
        deleted = 0
        for queue in due:
            deleted += self._delete_below(queue, queue.min_offset // per_file, file_pause_s)
            if not self._pause(0.0):
                break
        if deleted:  # every thread closes its descriptors of them
            self._queues.files_deleted()
        return deleted

    def _delete_below(self, queue: ConsumeQueue, first: int, file_pause_s: float) -> int:
        """Delete a queue's files with numbers below `first`, except the last file there is."""
        deleted = 0
        while True:
            with self._writer.removing:
                if self._queues.find(queue.topic, queue.queue_id) is not queue:
                    return deleted
                try:
                    numbers = self._files.numbers(queue.topic, queue.queue_id)
                except FileNotFoundError:  # its entries are in memory only
                    return deleted
                if len(numbers) < 2 or numbers[0] >= first:
                    self._first_file[queue] = first
                    break
                self._files.unlink(queue.topic, queue.queue_id, numbers[0])
                deleted += 1
            if not self._pause(file_pause_s):
                break
        if deleted:
            self._files.sync_directory(queue.topic, queue.queue_id)
        return deleted

    def close(self) -> None:
        self._files.close()
        self._times.close()
