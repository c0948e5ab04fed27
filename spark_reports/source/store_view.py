"""A store as the driver sees it at one moment: its log files, its queues, and where its log ends."""

from __future__ import annotations

from appliance.engine.protocol.record import Record
from appliance.engine.store.log.log_scan import LogScan
from appliance.engine.store.retention.deleted_topics import DeletedTopics
from appliance.engine.store_tools.small_files_check import position_matches, recovery_position

from .log_files import LogFile, files_of, open_store
from .queue_entries import Queue, Queues


class _Nobody:
    def damage(self, begin: int, end: int, reason: str) -> None:
        """The scan of a tail ends at the first damage."""


class StoreView:
    """For one thread of the driver; `close()` when done."""

    def __init__(self, directory: str) -> None:
        """Raises OptionError when there is no store."""
        self._store = open_store(directory)
        self.files: list[LogFile] = files_of(self._store)
        self.entries = Queues(self._store)
        self.queues: list[Queue] = self.entries.all()
        position, _ = recovery_position(self._store)
        #: Whether RocketBox wrote here last, as far as one sees: the record at its recovery position is still there.
        self.is_ours = position is not None and position_matches(self._store, position)
        self._published = position.offset if position is not None and self.is_ours else 0
        #: Topics that were deleted while there were messages of theirs in the log.
        self.deleted = DeletedTopics(self._store.paths, self._store.disk).load() if self.is_ours else {}
        self.is_open = self._store.lock_holder() is not None
        #: Records behind the last one with a queue entry: their physical offsets.
        self.tail: list[int] = []
        self.settled = self._settled()
        self.end = self.settled if self.is_open else self._walk_tail()

    @property
    def begin(self) -> int:
        return self._store.log.min_offset

    def was_never_deleted(self, topic: str) -> bool:
        """Whether all messages of a topic in the log are in its queues. Deletions by Apache, before RocketBox took its
        store over, are forgotten."""
        return self.is_ours and topic not in self.deleted

    @property
    def files_end(self) -> int:
        """Behind the last file, which is allocated ahead."""
        return self._store.log.end

    def _settled(self) -> int:
        """How far the log is published, as far as files tell.

        A broker publishes its log in order, and gives a message an entry in a queue's file behind that: ours once its
        tick is durable (at most a second later), Apache's once the record is complete. So all that lies before the end
        of any message with an entry is whole, published, and will not be taken back. The recovery position, which only
        ours has, says the same of a log whose newest messages have no entries.
        """
        ends = [queue.ends for queue in self.queues]
        return max(self.begin, min(max(ends, default=0), self._store.log.end), self._published)

    def _walk_tail(self) -> int:
        """Where the log of a store ends that nobody writes: at the first bytes that are no record, as a start of the
        broker would end it."""
        start = self.settled
        later = [one.start for one in self._store.log.segments if one.start > start]
        scan = LogScan(
            self._store.raw, _Nobody(), None if not self._store.was_killed else start, self._vouches, lambda _: None
        )
        # Without entries, as after a loss of the queues, the last file that begins with a record is read.
        start = max([start, *(one for one in later if scan.is_record(one))])
        end = start
        for behind, record in scan.records(start):
            end = behind
            if record is not None:
                self.tail.append(record.physical_offset)
        return end

    def _vouches(self, record: Record) -> bool:
        return not self._store.was_killed

    def close(self) -> None:
        self._store.close()
