"""Places the queue entry of a record that is not the next of its queue, in a recovery that reads the whole log.

A queue's offsets ascend along the log without a gap, with three exceptions: damaged records were stepped over; Apache
deleted a topic and it was made again; a flipped bit, which no Apache CRC covers, altered a record's queue id or queue
offset. One such record must not cost the others of its queue their entries:

- A gap becomes holes if the log between the two records has room for as many; else the record is passed over.
- A record with an offset that was there before stays undecided. If the queue's next record has the following offset,
  the queue continues from there and drops its later entries: the topic was made again, or the odd record came before.
  If the next record continues the queue as if there had been none, the undecided one gets its entry if that is a hole
  or came behind a gap, or if the queue's file had it; else it is passed over.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from ...protocol.record import FIXED_BYTES, Record
from ..dispatch import Dispatch
from .consume_queue import ENTRY, ENTRY_BYTES, HOLE, HOLE_SIZE, ConsumeQueue
from .consume_queue_table import ConsumeQueueTable
from .queue_files import QueueFiles

logger = logging.getLogger(__name__)


class QueueOrder:
    """Places the records that are out of order in one recovery. All entries of its queues lie below `next_offset`."""

    def __init__(
        self,
        log_begin: int,
        queues: ConsumeQueueTable,
        files: QueueFiles,
        dispatch: Dispatch,
        append: Callable[[ConsumeQueue, Record], None],
        write_tails: Callable[[], None],
    ) -> None:
        """append: gives a record the next entry of a queue. write_tails: writes entries into files, as far as the disk
        has room."""
        self._log_begin = log_begin
        self._queues = queues
        self._files = files
        self._dispatch = dispatch
        self._append = append
        self._write_tails = write_tails
        #: Queue -> its last record, if that has an offset that was there before.
        self.undecided: dict[ConsumeQueue, Record] = {}
        # Last offset of a queue that came behind a gap. If it comes again, the first record with it was the odd one.
        self._after_gap: dict[ConsumeQueue, int] = {}

    def decide(self, queue: ConsumeQueue) -> None:
        """Decide on the undecided record of a queue that continued as if there had been none."""
        record = self.undecided.pop(queue)
        if queue.min_offset <= record.queue_offset < queue.next_offset:
            size = ENTRY.unpack(self._entry(queue, record.queue_offset))[1]
            came_behind_gap = self._after_gap.get(queue) == record.queue_offset
            if size == HOLE_SIZE or came_behind_gap or self._was_there(queue, record):
                self._put(queue, record)
                return
        self._pass_over(record, f"its queue has another message at offset {record.queue_offset}")

    def place(self, record: Record, queue: ConsumeQueue | None) -> None:
        """Give a record that is not the next of `queue` its entry, or leave it undecided, or pass it over."""
        offset = record.queue_offset
        if queue is None:
            if offset < 0:
                self._pass_over(record, f"offset {offset} of a queue means nothing")
            else:
                self._append(self._new_queue(record), record)
            return
        undecided = self.undecided.get(queue)
        if undecided is not None and offset == undecided.queue_offset + 1:
            del self.undecided[queue]
            queue = self._go_back(queue, undecided)
            self._append(queue, undecided)
            self._append(queue, record)
            return
        if undecided is not None:
            self.decide(queue)
        if offset < queue.next_offset:
            self.undecided[queue] = record
            return
        missing = offset - queue.next_offset
        if missing * FIXED_BYTES > record.physical_offset - self._last_physical(queue):
            self._pass_over(record, f"offset {offset} is too far behind {queue!r}")
            return
        logger.error("recovery: %r misses entries up to %d", queue, offset)
        for _ in range(missing):
            queue.append(record.physical_offset, HOLE_SIZE, 0)
        self._after_gap[queue] = offset
        self._append(queue, record)

    def finish(self) -> None:
        """Decide on the rest at the end of the log: a record with offset 0 counts as the first message of a topic that
        was made again, any other is decided as usual."""
        for queue, record in list(self.undecided.items()):
            if record.queue_offset:
                self.decide(queue)
            else:
                del self.undecided[queue]
                self._append(self._go_back(queue, record), record)

    def _pass_over(self, record: Record, reason: str) -> None:
        logger.error(
            "recovery: no queue entry for the record at %d of %s-%d: %s",
            record.physical_offset,
            record.topic,
            record.queue_id,
            reason,
        )

    # --- entries

    def _was_there(self, queue: ConsumeQueue, record: Record) -> bool:
        """True if the queue's file, as the last run left it, has the record's entry at its offset."""
        if record.queue_offset < queue.tail_base:
            return False  # rewritten already
        try:
            found = self._files.read(queue.topic, queue.queue_id, record.queue_offset, 1)
        except FileNotFoundError:
            return False
        return len(found) == ENTRY_BYTES and ENTRY.unpack(found)[0] == record.physical_offset

    def _entry(self, queue: ConsumeQueue, offset: int) -> bytes:
        if offset >= queue.tail_base:
            at = (offset - queue.tail_base) * ENTRY_BYTES
            return bytes(queue.tail[at : at + ENTRY_BYTES])
        found = self._files.read(queue.topic, queue.queue_id, offset, 1)
        return found if len(found) == ENTRY_BYTES else bytes(ENTRY_BYTES)

    def _put(self, queue: ConsumeQueue, record: Record) -> None:
        """Write the record's entry at its offset."""
        entry = self._dispatch.entry(record)
        if record.queue_offset >= queue.tail_base:
            at = (record.queue_offset - queue.tail_base) * ENTRY_BYTES
            queue.tail[at : at + ENTRY_BYTES] = entry
        else:
            self._files.write(queue.topic, queue.queue_id, record.queue_offset, entry)

    def _last_physical(self, queue: ConsumeQueue) -> int:
        if queue.next_offset <= queue.min_offset:
            return self._log_begin
        return int(ENTRY.unpack(self._entry(queue, queue.next_offset - 1))[0])

    # --- queues

    def _go_back(self, queue: ConsumeQueue, record: Record) -> ConsumeQueue:
        """Return the queue, cut in front of the record's offset."""
        logger.error("recovery: %r goes on from %d", queue, record.queue_offset)
        self._write_tails()
        if self._files.new is not None:  # what was written behind the new end is to be zeroed
            self._files.new.discard((queue.topic, queue.queue_id))
        end = max(record.queue_offset, queue.min_offset)
        del queue.tail[max(0, end - queue.tail_base) * ENTRY_BYTES :]  # entries that a full disk did not take
        queue.next_offset = queue.max_offset = end
        queue.tail_base = min(queue.tail_base, end)
        if record.queue_offset > queue.min_offset:
            return queue
        self._queues.forget(queue)
        return self._new_queue(record)

    def _new_queue(self, record: Record) -> ConsumeQueue:
        """Return a queue that begins with the record."""
        offset, per_file = record.queue_offset, self._files.entries_per_file
        begin = offset - offset % per_file
        if begin < offset:
            # Apache's filler: Apache's recovery would stop at zeros.
            try:
                self._files.write(record.topic, record.queue_id, begin, HOLE * (offset - begin))
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise  # the filler is written with the first entry when there is room
        try:
            numbers = self._files.numbers(record.topic, record.queue_id)
        except FileNotFoundError:
            numbers = []
        for number in numbers:
            if number < begin // per_file:
                self._files.unlink(record.topic, record.queue_id, number)
        return self._queues.get_or_create(record.topic, record.queue_id, offset)
