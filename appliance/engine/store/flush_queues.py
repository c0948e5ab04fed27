"""Writes queue entries behind the log, and moves the recovery position once they are on disk.

A round asks remoting-io for what the dirty queues hold, writes and syncs it here, and has the tails trimmed there. The
recovery position is the published position at the round's start: every entry below it is then in a synced file, and the
log below it is durable (D3, D5).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from ..errors import CorruptFile
from ..protocol.record import SYS_BORN_IPV6
from ..service_thread import ServiceThread
from .checkpoint import RecoveryPosition
from .consume_queue import ENTRY_BYTES, ConsumeQueue
from .deleted_topics import remember_deleted_topic, remove_queue_files

if TYPE_CHECKING:
    from .message_store import MessageStore

logger = logging.getLogger(__name__)

INTERVAL_S = 0.5
#: A round begins early at this many bytes of entries, or of log since the last one (D3).
EARLY_TAIL_BYTES = 100_000 * ENTRY_BYTES
#: Queues copied at a time, so that a round never holds remoting-io long.
SLICE = 1000
RETRY_S = 1.0

_Part = tuple[ConsumeQueue, int, bytes]


class FlushConsumeQueueService(ServiceThread):
    """The thread `flush-consumequeue`. Owns the writing side of queue files, checkpoint and recovery position."""

    def __init__(self, store: MessageStore) -> None:
        super().__init__("flush-consumequeue")
        self._store = store
        self._files = store.queues.new_files()
        self._dirty = False
        self._seen = (0, -1)
        # Appended by any thread, worked off by this one.
        self._deletions: list[tuple[str, int, threading.Event]] = []
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

    def delete_topic(self, topic: str, offset: int) -> None:
        """Delete a topic's queue files; records below physical offset `offset` will not be dispatched again.

        Blocks until done; from any thread but this one and remoting-io.
        """
        done = threading.Event()
        self._deletions.append((topic, offset, done))
        self.wakeup()
        while not done.wait(1.0):
            if not self.alive:
                return

    def _delete_topics(self) -> None:
        """Work off what `delete_topic` was asked; on this thread, which owns the writing descriptors."""
        while self._deletions:
            topic, offset, done = self._deletions.pop(0)
            try:
                remember_deleted_topic(self._store, topic, offset)
                self._files.forget_topic(topic)
                remove_queue_files(self._store, topic)
            except OSError as error:
                self.failure = f"deleting topic {topic} failed: {error.strerror or error}"
                logger.error("consume queue: %s", self.failure)
            done.set()

    def run(self) -> None:
        while not self.stopped:
            if not self._dirty and not self._deletions:
                self.wait(None)
            if self._stopping():
                return
            if self._deletions:
                self._delete_topics()
                continue
            self.wait(INTERVAL_S)
            if self._deletions:
                self._delete_topics()
            self._dirty = False
            if not self._stopping() and not self._round():
                self.wait(RETRY_S)
                self._dirty = True

    def _stopping(self) -> bool:
        return self.stopped

    def flush_now(self) -> bool:
        """A last round when all threads have ended; False when it failed."""
        ok = self._round(running=False) and self.frozen is None
        self._files.close()
        return ok

    # --- one round

    def _round(self, running: bool = True) -> bool:
        """Write and sync all dirty queues, then save the position; False when a write was refused (it is retried)."""
        parts = self._take(running, first=True)
        while parts:
            try:
                for queue, offset, entries in parts:
                    if entries:
                        self._files.write(queue.topic, queue.queue_id, offset, entries)
            except OSError as error:
                self.failure = f"writing consume queues failed: {error.strerror or error}"
                logger.error("consume queue: %s", self.failure)
                self._give_back(parts, running, written=False)
                return False
            try:
                self._files.sync()
            except OSError as error:
                # The kernel may have dropped what it could not write: only the log can rebuild it (D6).
                self.frozen = f"syncing consume queues failed: {error.strerror or error}"
                logger.error("consume queue: recovery position frozen until a restart: %s", self.frozen)
            self._give_back(parts, running, written=True)
            parts = self._take(running)
        self.failure = self.frozen
        if self.frozen is None:
            try:
                self._save_position(*self._seen, running)
            except OSError as error:
                self.failure = self.frozen = f"saving the recovery position failed: {error.strerror or error}"
                logger.error("store: %s", self.frozen)
        return True

    def _take(self, running: bool, first: bool = False) -> list[_Part]:
        """Copy what some dirty queues hold, on remoting-io."""
        store = self._store
        result: list[_Part] = []
        done = threading.Event()

        def copy() -> None:
            if first:
                self._seen = (store.published, store.last_record_offset)
            dirty = store.queues.dirty
            for queue in dirty[-SLICE:]:
                queue.dirty = False
                result.append((queue, *queue.unwritten()))
            del dirty[-SLICE:]
            done.set()

        if not running:
            copy()
            return result
        store._scheduler.call_soon(copy)
        while not done.wait(0.5):
            if self.stopped:
                # The loop has ended; nobody else touches the queues now, and flush_now does the rest.
                return []
        return result

    def _give_back(self, parts: list[_Part], running: bool, written: bool) -> None:
        """Trim the tails of what was written, or mark it dirty again; on remoting-io."""
        store = self._store

        def trim() -> None:
            freed = 0
            for queue, offset, entries in parts:
                if not written:
                    if not queue.dirty:
                        queue.dirty = True
                        store.queues.dirty.append(queue)
                    continue
                queue.trim(offset + len(entries) // ENTRY_BYTES)
                freed += len(entries)
            store.tail_written(freed)

        if running:
            store._scheduler.call_soon(trim)
        else:
            trim()

    def _save_position(self, position: int, record_offset: int, running: bool) -> None:
        store = self._store
        files = store.files
        if record_offset < 0 or (
            files.recovery_position.position and files.recovery_position.position.offset == position
        ):
            return
        while running and store.log.durable < position and store.log.broken is None and not self.stopped:
            self.wait(0.1)
        if store.log.durable < position:
            return
        head = store.log.read(record_offset, 88)
        size, crc = int.from_bytes(head[0:4], "big"), int.from_bytes(head[8:12], "big")
        time_at = 68 if int.from_bytes(head[36:40], "big") & SYS_BORN_IPV6 else 56
        time_ms = int.from_bytes(head[time_at : time_at + 8], "big")
        if record_offset + size > position:
            raise CorruptFile(f"record at {record_offset} does not end below {position}")
        files.recovery_position.save(RecoveryPosition(position, record_offset, size, crc, time_ms))
        files.checkpoint.save(time_ms, time_ms)
