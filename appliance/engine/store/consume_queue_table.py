"""All consume queues: created on first use, loaded at start, deleted with their topic."""

from __future__ import annotations

import logging
import os

from .consume_queue import ConsumeQueue
from .disk import Disk
from .paths import StorePaths, queue_id_of
from .queue_files import QueueFiles

logger = logging.getLogger(__name__)

#: Open descriptors of queue files on the reading and on the writing side.
DESCRIPTORS = 1024


class ConsumeQueueTable:
    """(topic, queue id) -> ConsumeQueue. Changed by remoting-io, read by anyone."""

    def __init__(self, paths: StorePaths, disk: Disk, file_bytes: int) -> None:
        self._paths = paths
        self._disk = disk
        self._file_bytes = file_bytes
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        # Owned by remoting-io.
        self.files = QueueFiles(paths, disk, file_bytes, DESCRIPTORS)
        self.dirty: list[ConsumeQueue] = []

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def get_or_create(self, topic: str, queue_id: int, offset: int = 0) -> ConsumeQueue:
        """The queue; a new one is in memory only until its first entries are flushed (D5)."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._queues[topic, queue_id] = ConsumeQueue(topic, queue_id, offset)
        return queue

    def all(self) -> list[ConsumeQueue]:
        return list(self._queues.values())

    def on_disk(self) -> list[tuple[str, int]]:
        """The (topic, queue id) of every queue directory."""
        found = []
        try:
            topics = sorted(os.listdir(self._paths.consume_queues))
        except FileNotFoundError:
            return []
        for topic in topics:
            directory = self._paths.consume_queues / topic
            if not directory.is_dir():
                continue
            for name in sorted(os.listdir(directory)):
                queue_id = queue_id_of(name)
                if queue_id is None:
                    logger.warning("consume queue: foreign directory left alone path=%s", directory / name)
                else:
                    found.append((topic, queue_id))
        return found

    def new_files(self, capacity: int = DESCRIPTORS) -> QueueFiles:
        """A set of descriptors for one more thread."""
        return QueueFiles(self._paths, self._disk, self._file_bytes, capacity)

    def read_entries(self, queue: ConsumeQueue, offset: int, count: int, files: QueueFiles | None = None) -> bytes:
        """Published entries from `offset`, waiting for the disk if need be; fewer where a file or the queue ends.

        On remoting-io without `files`; another thread brings its own.
        """
        base = queue.tail_base
        if offset < base:
            found = (files or self.files).read(queue.topic, queue.queue_id, offset, min(count, base - offset))
            if found:
                return found
            base = queue.tail_base  # it may just have been trimmed
            if offset < base:
                return b""
        return queue.tail_entries(offset, count)

    def remove_topic(self, topic: str) -> list[ConsumeQueue]:
        """Forget a topic's queues, on remoting-io; the files are the caller's to delete."""
        gone = [queue for (name, _), queue in self._queues.items() if name == topic]
        for queue in gone:
            del self._queues[topic, queue.queue_id]
        self.files.forget_topic(topic)
        return gone

    def forget(self, queue: ConsumeQueue) -> None:
        del self._queues[queue.topic, queue.queue_id]

    def clear(self) -> None:
        self._queues.clear()

    def close(self) -> None:
        self.files.close()
