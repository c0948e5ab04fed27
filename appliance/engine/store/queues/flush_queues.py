"""Writes queue entries behind the log, and moves the recovery position once they are on disk.

    remoting-io              this thread
    take the dirty queues    wait until the log is durable up to what was published then
    copy their entries       write them, sync the files
    trim their tails         save the ledger, then the recovery position

So a record whose entry is in a file is durable, and every entry below the recovery position (the end of what was
published at the round's start) is in a synced file (D3, D5). The order guarantees this: each step records only what the
one before made durable.

A failed write or sync is repeated from the tails, which drop only what was synced.
"""

from __future__ import annotations

import errno
import logging
import struct
import threading
from bisect import bisect_left
from collections.abc import Callable
from functools import partial

from ...clock import Clock
from ...errors import CorruptFile
from ...loop_calls import run_on_loop
from ...named_tuple import NamedTuple
from ...protocol.record import store_time_ms
from ...service_thread import ServiceThread
from ..checkpoint import RecoveryPosition
from ..log.commit_log import CommitLog
from ..publication import Publication
from ..retention.deleted_topics import Begin, Deletion
from ..settings import Scheduler
from ..store_files import StoreFiles
from .consume_queue import ENTRY_BYTES, ConsumeQueue
from .consume_queue_table import ConsumeQueueTable
from .queue_ledger import QueueLedger
from .queue_repair import PAUSE_S, QueueRepair

logger = logging.getLogger(__name__)

INTERVAL_S = 0.5
#: A round begins early when entries take this many bytes, or the log has grown by as many since the last one (D3).
EARLY_TAIL_BYTES = 100_000 * ENTRY_BYTES
#: PART: queues written and synced at a time. SLICE: those of them that remoting-io copies or trims in one call, which
#: takes it less than half a millisecond.
PART = 1000
SLICE = 200
RETRY_S = 1.0
#: Interval at which a round checks if the log has become durable.
DURABLE_POLL_S = 0.02
#: Longest wait of `record`.
RECORD_S = 10.0


class _Part(NamedTuple):
    """Entries of one queue from `offset` on."""

    queue: ConsumeQueue
    offset: int
    entries: bytes


class _Round:
    """State of the publication when the round began. `queues`: dirty ones off the store's list, still to be written."""

    def __init__(self, publication: Publication, queues: list[ConsumeQueue], waiting: list[threading.Event]) -> None:
        self.position = publication.published
        self.record_offset = publication.last_record_offset
        self.queues = queues
        #: Set when the ledger and the position are saved.
        self.waiting = waiting


class TopicDeletion:
    """One topic to delete: its records below physical offset `offset` will not be dispatched again."""

    def __init__(self, topic: str, offset: int = 0) -> None:
        self.topic = topic
        self.offset = offset
        #: The same for messages that wait for the topic, if the note comes when queues have to stay.
        self.late = 0
        self.queues: list[ConsumeQueue] = []
        #: Queue id -> offset at which the queue continues if the topic is made again.
        self.ends: dict[int, Begin] = {}
        #: The topic's other queues, which stay.
        self.stay: list[ConsumeQueue] = []
        self.done = threading.Event()
        self.error: OSError | None = None


class FlushConsumeQueueService(ServiceThread):
    """The thread `flush-consumequeue`. Owns the writing side of queue files, checkpoint and recovery position."""

    #: Repairs queues between rounds; set before start().
    repair: QueueRepair

    def __init__(
        self,
        log: CommitLog,
        publication: Publication,
        queues: ConsumeQueueTable,
        ledger: QueueLedger,
        files: StoreFiles,
        scheduler: Scheduler,
        tail_written: Callable[[int], None],
        clock: Clock,
    ) -> None:
        """tail_written: called on remoting-io with the number of bytes of entries that left the tails."""
        super().__init__("flush-consumequeue", clock)
        # Constant after construction.
        self._log = log
        self._publication = publication
        self._queues = queues
        self._ledger = ledger
        self._small_files = files
        self._scheduler = scheduler
        self._tail_written = tail_written
        #: The writing side. Owned by this thread.
        self.files = queues.new_files()
        # Written by remoting-io and this thread; losing the race costs one extra wake-up.
        self._dirty = False
        # Appended by remoting-io, processed by this thread. No round begins before the list is empty.
        self._deletions: list[TopicDeletion] = []
        #: Events that are set after the next round. Owned by remoting-io.
        self.waiting: list[threading.Event] = []
        #: Held while queue files are removed. A queue that is found in the table while it is held keeps its files'
        #: names until the release: a new queue of that name gets no files before the old one's are gone.
        self.removing = threading.Lock()
        #: Reason that the last round failed, shown by health. The recovery position stays where it is meanwhile.
        self.failure: str | None = None
        #: Reason that the recovery position may not move until a restart.
        self.frozen: str | None = None

    def published(self, tail_bytes: int) -> None:
        """Wake the thread if a round is due: a tick was published, and the tails hold `tail_bytes`. On remoting-io."""
        if not self._dirty:
            self._dirty = True
            self.wakeup()
        elif tail_bytes > EARLY_TAIL_BYTES:
            self.wakeup()

    def delete_later(self, deletion: TopicDeletion) -> None:
        """Queue a deletion. On remoting-io, in the call that removes the queues from the table."""
        self._deletions.append(deletion)
        self.wakeup()

    def wait_deleted(self, deletion: TopicDeletion) -> None:
        """Wait until the files are gone. Raises OSError. On any thread but this one and remoting-io."""
        while not deletion.done.wait(1.0):
            if not self.alive and not deletion.done.is_set():
                raise OSError(errno.ECANCELED, "the store has stopped")
        if deletion.error is not None:
            raise deletion.error

    def record(self, queues: list[ConsumeQueue], goes_on: Callable[[], bool] = lambda: True) -> bool:
        """Note moved minimum offsets in the ledger, durably, before the files below them are deleted.

        Waits for a round; False if it failed or `goes_on` returned False. Any thread but this one and remoting-io.
        """
        done = threading.Event()

        def ask() -> None:
            self._touch(queues)
            self.waiting.append(done)
            self.published(0)

        if not self.alive:
            ask()
            return self.work(running=False) and done.is_set()
        self._scheduler.call_soon(ask)
        end = self.clock.monotonic() + RECORD_S
        while not done.wait(0.1):
            if not goes_on() or self.clock.monotonic() > end:
                return False
        return True

    def delete_topics(self) -> bool:
        """Process the deletions that `delete_later` queued; False if that has to be repeated."""
        remembered = 0
        while self._deletions:
            deletion = self._deletions[0]
            try:
                if not remembered:
                    remembered = self._remember(self._deletions.copy())
                with self.removing:
                    if deletion.stay:
                        for queue in deletion.queues:
                            self.files.remove_queue(deletion.topic, queue.queue_id)
                    else:
                        self.files.remove_topic(deletion.topic)
            except OSError as error:
                self.failure = f"deleting topic {deletion.topic} failed: {error.strerror or error}"
                logger.error("consume queue: %s", self.failure)
                # Those behind it wait for it, for hours on a full disk: callers that waited as long would hold up all
                # other administrators.
                for waiting in self._deletions.copy():
                    waiting.error = error
                    waiting.done.set()
                return False
            self._queues.files_deleted()
            self._drop(deletion)
            self._deletions.pop(0)
            remembered -= 1
            deletion.done.set()
        return True

    def _remember(self, deletions: list[TopicDeletion]) -> int:
        """Note the given deletions, durably; return their number. Raises OSError."""
        notes = [
            Deletion(one.topic, one.offset, one.ends, one.late)
            for one in deletions
            if one.offset or one.ends or one.late
        ]
        if notes:
            self._small_files.deleted_topics.remember(notes, self._log.min_offset)
        return len(deletions)

    def _drop(self, deletion: TopicDeletion) -> None:
        """Remove a deletion's queues from the ledger. It drops whole topics, so queues that stay are noted again."""
        stay = [(queue, queue.recorded) for queue in deletion.stay if queue.recorded >= 0]
        if deletion.stay and not deletion.queues:
            return
        self._ledger.drop(deletion.topic, [*deletion.queues, *(queue for queue, _ in stay)])
        for queue, recorded in stay:
            queue.recorded = -1
            if self._is_known(queue):
                self._ledger.note(queue, recorded)

    def run(self) -> None:
        while not self.stopped:
            if not self._dirty and not self._deletions:
                self._idle(None)
            if not self._deletions and not self.stopped:
                self._idle(INTERVAL_S)
            self._dirty = False
            if not self.stopped and not self.work():
                self._dirty = True
                self.wait(RETRY_S)

    def _idle(self, seconds: float | None) -> None:
        """Wait, and repair queues meanwhile."""
        clock = self.clock
        end = None if seconds is None else clock.monotonic() + seconds
        while not self.stopped:
            left = None if end is None else end - clock.monotonic()
            if left is not None and left <= 0:
                return
            if not self.repair.pending:
                self.wait(left)
                return
            pause = PAUSE_S if self.repair.step() else self.repair.retry_in()
            if self.wait(pause if left is None else min(pause, left)):
                return

    def work(self, running: bool = True) -> bool:
        """Process deletions, then do a round; False if either has to be repeated. running: remoting-io still runs."""
        return self.delete_topics() and self._round(running)

    def flush_now(self) -> bool:
        """Do a last round after all threads have ended; False if it failed."""
        self.repair.close()
        ok = self.work(running=False) and self.frozen is None
        self.files.close()
        return ok

    # --- one round

    def call(self, callback: Callable[[], None], running: bool = True) -> bool:
        """Run `callback` on remoting-io and wait for it; False if that has ended, so that flush_now takes over."""
        if not running:
            callback()
            return True
        return run_on_loop(self._scheduler.call_soon, callback, lambda: self.stopped)

    def _round(self, running: bool = True) -> bool:
        """Write and sync all dirty queues, then save the position; False if the round has to be repeated."""
        begun: list[_Round] = []

        def begin() -> None:
            if not self._deletions:
                begun.append(self._new_round())

        if not self.call(begin, running) or not begun:
            return False
        current = begun[0]
        if not self._work_off(current, running):

            def give_back() -> None:
                self._queues.dirty.extend(queue for queue in current.queues if self._is_known(queue))
                self.waiting.extend(current.waiting)

            # Once remoting-io has ended, no other thread touches the list.
            if not self.call(give_back, running):
                give_back()
            return False
        return True

    def _new_round(self) -> _Round:
        """Begin a round with the dirty queues and the waiting events. On remoting-io."""
        dirty, self._queues.dirty = self._queues.dirty, []
        waiting, self.waiting = self.waiting, []
        return _Round(self._publication, dirty, waiting)

    def _work_off(self, current: _Round, running: bool) -> bool:
        """Write entries into files, then the ledger, then the position; False if the round has to be repeated."""
        if not self._wait_durable(current.position, running) or not self._write_queues(current, running):
            return False
        self.failure = self.frozen
        if self.frozen is not None:
            return True
        queues = self._queues_to_note(running)
        if queues is None:
            return False
        try:
            self._ledger.save(queues)
        except OSError as error:
            self.failure = f"writing the queue ledger failed: {error.strerror or error}"
            logger.error("consume queue: %s", self.failure)
            return False  # the next round writes a new one
        try:
            self._save_position(current)
        except (OSError, CorruptFile, struct.error) as error:
            self.failure = self.frozen = f"saving the recovery position failed: {error}"
            logger.error("store: frozen until a restart: %s", self.frozen)
            return True
        for waiting in current.waiting:
            waiting.set()
        return True

    def _queues_to_note(self, running: bool) -> list[ConsumeQueue] | None:
        """Return all queues, at a moment when every deletion is on the disk; None if a deletion failed.

        Topics deleted since the round began are not included. Otherwise the position would lie behind their records
        without a note of where their queues ended, and after a start their offsets would be used again.
        """
        found: list[list[ConsumeQueue]] = []

        def take() -> None:
            if not self._deletions:
                found.append(self._queues.all())

        while True:
            if not self.call(take, running):
                return None
            if found:
                return found[0]
            if not self.delete_topics():
                return None

    def _is_known(self, queue: ConsumeQueue) -> bool:
        """True if the queue was not deleted meanwhile."""
        return self._queues.find(queue.topic, queue.queue_id) is queue

    def _wait_durable(self, position: int, running: bool) -> bool:
        log = self._log
        while running and log.durable < position and log.broken is None and not self.stopped:
            self.clock.sleep(DURABLE_POLL_S)  # not wait(): every tick wakes this thread
        return log.durable >= position

    def _write_queues(self, current: _Round, running: bool) -> bool:
        """Write and sync the entries of the round's queues; the rest stays in `current.queues` on failure."""
        while current.queues:
            parts: list[_Part] = []
            while current.queues and len(parts) < PART:
                if not self.call(partial(self._copy, current, parts), running):
                    current.queues.extend(part.queue for part in parts)
                    return False
            try:
                for queue, offset, entries in parts:
                    if entries:
                        self._queues.write_entries(self.files, queue, offset, entries)
                self.files.sync()
                self._note(parts)
            except OSError as error:
                self.failure = f"writing consume queues failed: {error.strerror or error}"
                logger.error("consume queue: %s", self.failure)
                current.queues.extend(part.queue for part in parts)
                return False
            # If remoting-io has ended the tails stay as they are, and are written again.
            for at in range(0, len(parts), SLICE):
                if not self.call(partial(self._trim, parts[at : at + SLICE]), running):
                    current.queues.extend(part.queue for part in parts[at:])
                    return False
        return True

    def _note(self, parts: list[_Part]) -> None:
        """Note the parts, now in synced files, in the ledger. They count once the position names them."""
        for topic, queue_id in self.files.incomplete:
            queue = self._queues.find(topic, queue_id)
            if queue is not None and not queue.broken:
                self.repair.ask(queue)
        self.files.incomplete.clear()
        for queue, offset, entries in parts:
            end = offset + len(entries) // ENTRY_BYTES
            if end and self._is_known(queue):
                self._ledger.note(queue, end)

    def _copy(self, current: _Round, parts: list[_Part]) -> None:
        """Take some queues off the round and copy their entries. They stay marked as dirty. On remoting-io."""
        queues = current.queues
        for queue in queues[-SLICE:]:
            if self._is_known(queue):
                offset, entries = queue.unwritten()
                count = _below(entries, current.position)
                parts.append(_Part(queue, offset, entries[: count * ENTRY_BYTES]))
        del queues[-SLICE:]

    def _trim(self, parts: list[_Part]) -> None:
        """Drop the tails of parts that are in files. On remoting-io."""
        freed = 0
        again = False
        for queue, offset, entries in parts:
            if not self._is_known(queue):
                continue
            freed += queue.trim(offset + len(entries) // ENTRY_BYTES)
            queue.dirty = queue.max_offset > queue.tail_base
            if queue.dirty:
                self._queues.dirty.append(queue)
                again = True
        self._tail_written(freed)
        if again:
            self.published(0)

    def _save_position(self, current: _Round) -> None:
        files = self._small_files
        saved = files.recovery_position.position
        position, record_offset = current.position, current.record_offset
        ledger = self._ledger.place
        if record_offset < 0 or (saved and saved.offset == position and saved.ledger == ledger):
            return
        head = self._log.read(record_offset, 88)
        size, crc = int.from_bytes(head[0:4], "big"), int.from_bytes(head[8:12], "big")
        time_ms = store_time_ms(head)
        if record_offset + size > position:
            raise CorruptFile(f"record at {record_offset} does not end below {position}")
        place = RecoveryPosition(position, record_offset, size, crc, time_ms, self._ledger.entries, *ledger)
        files.recovery_position.save(place)
        self._ledger.settled()
        files.checkpoint.save(time_ms, time_ms)

    def save_recovered(self) -> None:
        """Save the ledger and the position after recovery, so that the next start does not read all of it again."""
        current = self._new_round()
        self._queues.dirty = current.queues
        try:
            self._ledger.save(self._queues.all())
            self._save_position(current)
        except (OSError, CorruptFile, struct.error) as error:
            logger.warning("store: the recovery position cannot be saved yet: %s", error)

    def save_for(self, queues: list[ConsumeQueue]) -> int | None:
        """Do a round that notes `queues`; return the position it saved, None if it failed. On this thread."""
        for at in range(0, len(queues), SLICE):
            self.call(partial(self._touch, queues[at : at + SLICE]), self.alive)
        if not self.work(self.alive) or self.frozen is not None:
            return None
        saved = self._small_files.recovery_position.position
        return saved.offset if saved else None

    def _touch(self, queues: list[ConsumeQueue]) -> None:
        for queue in queues:
            if self._is_known(queue):
                self._queues.touch(queue)


def _below(entries: bytes, position: int) -> int:
    """Return how many of a queue's entries are of records below physical offset `position`; physical offsets ascend."""
    count = len(entries) // ENTRY_BYTES
    if not count or int.from_bytes(entries[-ENTRY_BYTES:][:8], "big") < position:
        return count
    return bisect_left(
        range(count), position, key=lambda i: int.from_bytes(entries[i * ENTRY_BYTES : i * ENTRY_BYTES + 8], "big")
    )
