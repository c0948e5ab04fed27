"""Writes queue entries behind the log, and moves the recovery position once they are on disk.

A round takes the list of dirty queues from remoting-io, waits until the log is durable up to what was published then,
copies their entries below that, writes and syncs them here, and has the tails trimmed there. So an entry in a file says
that its record is durable, and below the recovery position (what was published at the round's start) every entry is in
a synced file (D3, D5).

A write or sync that failed is done again from the tails, which let go only of what was synced.
"""

from __future__ import annotations

import errno
import logging
import struct
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...errors import CorruptFile
from ...loop_calls import run_on_loop
from ...protocol.record import store_time_ms
from ...service_thread import ServiceThread
from ..checkpoint import RecoveryPosition
from ..retention.deleted_topics import remember_deleted_topic, remove_queue_files
from .consume_queue import ENTRY_BYTES, ConsumeQueue
from .queue_repair import PAUSE_S, QueueRepair

if TYPE_CHECKING:
    from ..message_store import MessageStore

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

    def __init__(self, store: MessageStore, service: FlushConsumeQueueService) -> None:
        self.position = store.published
        self.record_offset = store.last_record_offset
        self.queues, store.queues.dirty = store.queues.dirty, []
        #: Set when the ledger and the position are saved.
        self.waiting, service.waiting = service.waiting, []


class TopicDeletion:
    """One topic to delete: records of it below physical offset `offset` will not be dispatched again."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.offset = 0
        self.queues: list[ConsumeQueue] = []
        self.done = threading.Event()
        self.error: OSError | None = None


class FlushConsumeQueueService(ServiceThread):
    """The thread `flush-consumequeue`. Owns the writing side of queue files, checkpoint and recovery position."""

    def __init__(self, store: MessageStore) -> None:
        super().__init__("flush-consumequeue")
        self._store = store
        self._files = store.queues.new_files()
        self.repair = QueueRepair(store, self._files, self)
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
        self._store.scheduler.call_soon(ask)
        end = time.monotonic() + RECORD_S
        while not done.wait(0.1):
            if not goes_on() or time.monotonic() > end:
                return False
        return True

    def delete_topics(self) -> bool:
        """Work off what `delete_later` was given; False when it has to be tried again."""
        while self._deletions:
            deletion = self._deletions[0]
            try:
                remember_deleted_topic(self._store, deletion.topic, deletion.offset)
                self._files.forget_topic(deletion.topic)
                with self.removing:
                    remove_queue_files(self._store, deletion.topic)
            except OSError as error:
                self.failure = f"deleting topic {deletion.topic} failed: {error.strerror or error}"
                logger.error("consume queue: %s", self.failure)
                deletion.error = error
                deletion.done.set()
                return False
            self._store.queues.files_deleted()
            self._store.ledger.drop(deletion.topic, deletion.queues)
            self._deletions.pop(0)
            deletion.done.set()
        return True

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
        end = None if seconds is None else time.monotonic() + seconds
        while not self.stopped:
            left = None if end is None else end - time.monotonic()
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
        self._files.close()
        return ok

    # --- one round

    def call(self, callback: Callable[[], None], running: bool = True) -> bool:
        """Run `callback` on remoting-io and wait for it; False when that has ended, and flush_now takes over."""
        if not running:
            callback()
            return True
        return run_on_loop(self._store.scheduler.call_soon, callback, lambda: self.stopped)

    def _round(self, running: bool = True) -> bool:
        """Write and sync all dirty queues, then save the position; False when it has to be tried again."""
        begun: list[_Round] = []

        def begin() -> None:
            if not self._deletions:
                begun.append(_Round(self._store, self))

        if not self.call(begin, running) or not begun:
            return False
        current = begun[0]
        if not self._work_off(current, running):
            store = self._store

            def give_back() -> None:
                store.queues.dirty.extend(queue for queue in current.queues if self._is_known(queue))
                self.waiting.extend(current.waiting)

            # Without remoting-io nobody else touches the list.
            if not self.call(give_back, running):
                give_back()
            return False
        return True

    def _work_off(self, current: _Round, running: bool) -> bool:
        """Entries into files, then the ledger, then the position; False when the round has to be done again."""
        if not self._wait_durable(current.position, running) or not self._write_queues(current, running):
            return False
        self.failure = self.frozen
        if self.frozen is not None:
            return True
        try:
            self._store.ledger.save(self._store.queues.all())
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

    def _is_known(self, queue: ConsumeQueue) -> bool:
        """Whether it was not deleted meanwhile."""
        return self._store.find_queue(queue.topic, queue.queue_id) is queue

    def _wait_durable(self, position: int, running: bool) -> bool:
        log = self._store.log
        while running and log.durable < position and log.broken is None and not self.stopped:
            time.sleep(DURABLE_POLL_S)  # not wait(): every tick wakes this thread
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
                        self._files.write(queue.topic, queue.queue_id, offset, entries)
                self._files.sync()
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
        for topic, queue_id in self._files.incomplete:
            queue = self._store.find_queue(topic, queue_id)
            if queue is not None and not queue.broken:
                self.repair.ask(queue)
        self._files.incomplete.clear()
        for queue, offset, entries in parts:
            end = offset + len(entries) // ENTRY_BYTES
            if end and self._is_known(queue):
                self._store.ledger.note(queue, end)

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
        store = self._store
        freed = 0
        again = False
        for queue, offset, entries in parts:
            if not self._is_known(queue):
                continue
            freed += queue.trim(offset + len(entries) // ENTRY_BYTES)
            queue.dirty = queue.max_offset > queue.tail_base
            if queue.dirty:
                store.queues.dirty.append(queue)
                again = True
        store.tail_written(freed)
        if again:
            self.published(0)

    def _save_position(self, current: _Round) -> None:
        store = self._store
        files = store.files
        saved = files.recovery_position.position
        position, record_offset = current.position, current.record_offset
        ledger = store.ledger.place
        if record_offset < 0 or (saved and saved.offset == position and saved.ledger == ledger):
            return
        head = store.log.read(record_offset, 88)
        size, crc = int.from_bytes(head[0:4], "big"), int.from_bytes(head[8:12], "big")
        time_ms = store_time_ms(head)
        if record_offset + size > position:
            raise CorruptFile(f"record at {record_offset} does not end below {position}")
        place = RecoveryPosition(position, record_offset, size, crc, time_ms, store.ledger.entries, *ledger)
        files.recovery_position.save(place)
        store.ledger.settled()
        files.checkpoint.save(time_ms, time_ms)

    def save_recovered(self) -> None:
        """Recovery left everything on disk: say so, or the next start reads it all again."""
        current = _Round(self._store, self)
        self._store.queues.dirty = current.queues
        try:
            self._store.ledger.save(self._store.queues.all())
            self._save_position(current)
        except (OSError, CorruptFile, struct.error) as error:
            logger.warning("store: the recovery position cannot be saved yet: %s", error)

    def save_for(self, queues: list[ConsumeQueue]) -> int | None:
        """On this thread: a round that notes `queues`; the position it saved, None when it could not."""
        for at in range(0, len(queues), SLICE):
            self.call(partial(self._touch, queues[at : at + SLICE]), self.alive)
        if not self.work(self.alive) or self.frozen is not None:
            return None
        saved = self._store.files.recovery_position.position
        return saved.offset if saved else None

    def _touch(self, queues: list[ConsumeQueue]) -> None:
        for queue in queues:
            if self._is_known(queue):
                self._store.queues.touch(queue)


def _below(entries: bytes, position: int) -> int:
    """How many of a queue's entries name records below physical offset `position`; physical offsets ascend."""
    count = len(entries) // ENTRY_BYTES
    if not count or int.from_bytes(entries[-ENTRY_BYTES:][:8], "big") < position:
        return count
    return bisect_left(
        range(count), position, key=lambda i: int.from_bytes(entries[i * ENTRY_BYTES : i * ENTRY_BYTES + 8], "big")
    )
