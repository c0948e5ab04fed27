"""Writes queue entries behind the log, and moves the recovery position once they are on disk.

    remoting-io              this thread
    take the dirty queues    wait until the log is durable up to what was published then
    copy their entries       write them, sync the files
    trim their tails         save the ledger, then the recovery position

So an entry in a file says that its record is durable, and below the recovery position (what was published at the
round's start) every entry is in a synced file (D3, D5). The order is the promise: each step only says what the one
before it made durable.

A write or sync that failed is done again from the tails, which let go only of what was synced.
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
#: A round begins early at this many bytes of entries, or of log since the last one (D3).
EARLY_TAIL_BYTES = 100_000 * ENTRY_BYTES
#: Queues written and synced at a time, and those of them that remoting-io copies or trims in one call: it is held for
#: less than half a millisecond.
PART = 1000
SLICE = 200
RETRY_S = 1.0
#: How often a round looks whether the log has become durable.
DURABLE_POLL_S = 0.02
#: How long `record` waits.
RECORD_S = 10.0


class _Part(NamedTuple):
    """Entries of one queue from `offset` on."""

    queue: ConsumeQueue
    offset: int
    entries: bytes


class _Round:
    """What was published when it began. `queues`: dirty ones, off the store's list, not yet worked off."""

    def __init__(self, publication: Publication, queues: list[ConsumeQueue], waiting: list[threading.Event]) -> None:
        self.position = publication.published
        self.record_offset = publication.last_record_offset
        self.queues = queues
        #: Set when the ledger and the position are saved.
        self.waiting = waiting


class TopicDeletion:
    """One topic to delete: records of it below physical offset `offset` will not be dispatched again."""

    def __init__(self, topic: str, offset: int = 0) -> None:
        self.topic = topic
        self.offset = offset
        self.queues: list[ConsumeQueue] = []
        #: Queue id -> the offset that it goes on from when there is such a topic again.
        self.ends: dict[int, Begin] = {}
        #: The topic's other queues, which stay.
        self.stay: list[ConsumeQueue] = []
        self.done = threading.Event()
        self.error: OSError | None = None


class FlushConsumeQueueService(ServiceThread):
    """The thread `flush-consumequeue`. Owns the writing side of queue files, checkpoint and recovery position."""

    #: Mends queues between rounds; set before start().
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
        """tail_written: told, on remoting-io, how many bytes of entries left the tails."""
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
        # Written by remoting-io and this thread; a lost race costs one more wake-up.
        self._dirty = False
        # Appended by remoting-io, worked off by this thread. While there is one, no round begins.
        self._deletions: list[TopicDeletion] = []
        #: Who waits for the next round to be over. Owned by remoting-io.
        self.waiting: list[threading.Event] = []
        #: Held by whoever removes queue files: a queue found in the table under it keeps its files' names until it is
        #: let go, since a new queue of that name gets none before the old one's are gone.
        self.removing = threading.Lock()
        #: Why the last round failed; health shows it. The recovery position is frozen meanwhile.
        self.failure: str | None = None
        #: Why the recovery position may not move until a restart.
        self.frozen: str | None = None

    def published(self, tail_bytes: int) -> None:
        """On remoting-io: a tick was published and the tails hold this much."""
        if not self._dirty:
            self._dirty = True
            self.wakeup()
        elif tail_bytes > EARLY_TAIL_BYTES:
            self.wakeup()

    def delete_later(self, deletion: TopicDeletion) -> None:
        """On remoting-io, in the call that makes the queues disappear."""
        self._deletions.append(deletion)
        self.wakeup()

    def wait_deleted(self, deletion: TopicDeletion) -> None:
        """Until the files are gone; OSError when the disk refused. From any thread but this one and remoting-io."""
        while not deletion.done.wait(1.0):
            if not self.alive and not deletion.done.is_set():
                raise OSError(errno.ECANCELED, "the store has stopped")
        if deletion.error is not None:
            raise deletion.error

    def record(self, queues: list[ConsumeQueue], goes_on: Callable[[], bool] = lambda: True) -> bool:
        """Have the ledger note minimum offsets that were moved, durably: before the files below them go.

        Waits for a round; False when it failed, or `goes_on` says no. From any thread but this one and remoting-io.
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
        """Work off what `delete_later` was given; False when it has to be tried again."""
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
                deletion.error = error
                deletion.done.set()
                return False
            self._queues.files_deleted()
            self._drop(deletion)
            self._deletions.pop(0)
            remembered -= 1
            deletion.done.set()
        return True

    def _remember(self, deletions: list[TopicDeletion]) -> int:
        """Note those that are to be worked off; how many they are. Raises OSError."""
        notes = [Deletion(one.topic, one.offset, one.ends) for one in deletions if one.offset or one.ends]
        if notes:
            self._small_files.deleted_topics.remember(notes, self._log.min_offset)
        return len(deletions)

    def _drop(self, deletion: TopicDeletion) -> None:
        """The ledger forgets topics as a whole: of the queues that stay it is told anew."""
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
        """`wait`, and mend queues meanwhile."""
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
        """Deletions, then a round; False when either has to be tried again. Inline when remoting-io has ended."""
        return self.delete_topics() and self._round(running)

    def flush_now(self) -> bool:
        """A last round when all threads have ended; False when it failed."""
        self.repair.close()
        ok = self.work(running=False) and self.frozen is None
        self.files.close()
        return ok

    # --- one round

    def call(self, callback: Callable[[], None], running: bool = True) -> bool:
        """Run `callback` on remoting-io and wait for it; False when that has ended, and flush_now takes over."""
        if not running:
            callback()
            return True
        return run_on_loop(self._scheduler.call_soon, callback, lambda: self.stopped)

    def _round(self, running: bool = True) -> bool:
        """Write and sync all dirty queues, then save the position; False when it has to be tried again."""
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

            # Without remoting-io nobody else touches the list.
            if not self.call(give_back, running):
                give_back()
            return False
        return True

    def _new_round(self) -> _Round:
        """Take what is dirty, and who waits, on remoting-io."""
        dirty, self._queues.dirty = self._queues.dirty, []
        waiting, self.waiting = self.waiting, []
        return _Round(self._publication, dirty, waiting)

    def _work_off(self, current: _Round, running: bool) -> bool:
        """Entries into files, then the ledger, then the position; False when the round has to be done again."""
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
        """All queues, at a moment when every deletion is on the disk; None if one cannot be worked off.

        A topic that was forgotten since the round began is not among them. With the position behind its records, and
        nothing that says where its queues ended, a start would give its numbers once more.
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
        """Whether it was not deleted meanwhile."""
        return self._queues.find(queue.topic, queue.queue_id) is queue

    def _wait_durable(self, position: int, running: bool) -> bool:
        log = self._log
        while running and log.durable < position and log.broken is None and not self.stopped:
            self.clock.sleep(DURABLE_POLL_S)  # not wait(): every tick wakes this thread
        return log.durable >= position

    def _write_queues(self, current: _Round, running: bool) -> bool:
        """Write and sync the entries of the round's queues; those not done stay in `current.queues`."""
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
            # When remoting-io has ended the tails stay as they are, and are written once more.
            for at in range(0, len(parts), SLICE):
                if not self.call(partial(self._trim, parts[at : at + SLICE]), running):
                    current.queues.extend(part.queue for part in parts[at:])
                    return False
        return True

    def _note(self, parts: list[_Part]) -> None:
        """The parts are in synced files: the ledger may say so, once the position is there, too."""
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
        """Take some queues off the round and copy their entries, on remoting-io. They stay marked as dirty."""
        queues = current.queues
        for queue in queues[-SLICE:]:
            if self._is_known(queue):
                offset, entries = queue.unwritten()
                count = _below(entries, current.position)
                parts.append(_Part(queue, offset, entries[: count * ENTRY_BYTES]))
        del queues[-SLICE:]

    def _trim(self, parts: list[_Part]) -> None:
        """Let the tails go that are in files, on remoting-io."""
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
        """Recovery left everything on disk: say so, or the next start reads it all again."""
        current = self._new_round()
        self._queues.dirty = current.queues
        try:
            self._ledger.save(self._queues.all())
            self._save_position(current)
        except (OSError, CorruptFile, struct.error) as error:
            logger.warning("store: the recovery position cannot be saved yet: %s", error)

    def save_for(self, queues: list[ConsumeQueue]) -> int | None:
        """On this thread: a round that notes `queues`; the position it saved, None when it could not."""
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
    """How many of a queue's entries name records below physical offset `position`; physical offsets ascend."""
    count = len(entries) // ENTRY_BYTES
    if not count or int.from_bytes(entries[-ENTRY_BYTES:][:8], "big") < position:
        return count
    return bisect_left(
        range(count), position, key=lambda i: int.from_bytes(entries[i * ENTRY_BYTES : i * ENTRY_BYTES + 8], "big")
    )
