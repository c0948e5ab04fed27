"""All consume queues: created on first use, loaded at start, deleted with their topic."""

from __future__ import annotations

import logging

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
        # Counts deletions of files; written by flush-consumequeue, read by every QueueFiles.
        self._deletions = [0]
        # Owned by remoting-io.
        self.files = QueueFiles(paths, disk, file_bytes, DESCRIPTORS, self._deletions)
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
        disk = self._disk
        try:
            topics = disk.names(self._paths.consume_queues)
        except FileNotFoundError:
            return []
        for topic in topics:
            directory = self._paths.consume_queues / topic
            if not disk.is_directory(directory):
                continue
            for name in disk.names(directory):
                queue_id = queue_id_of(name)
                if queue_id is None:
                    logger.warning("consume queue: foreign directory left alone path=%s", directory / name)
                else:
                    found.append((topic, queue_id))
        return found

    def new_files(self, capacity: int = DESCRIPTORS) -> QueueFiles:
        """A set of descriptors for one more thread."""
        return QueueFiles(self._paths, self._disk, self._file_bytes, capacity, self._deletions)

    def files_deleted(self) -> None:
        """A topic's files are gone: readers let their descriptors go before they look again."""
        self._deletions[0] += 1

    def read_entries(self, queue: ConsumeQueue, offset: int, count: int, files: QueueFiles | None = None) -> bytes:
        """Published entries from `offset`, waiting for the disk if need be; fewer where a file or the queue ends.

        On remoting-io without `files`; another thread brings its own.
        """
        while True:
            base = queue.tail_base
            if offset < base:
                return (files or self.files).read(queue.topic, queue.queue_id, offset, min(count, base - offset))
            if files is None:
                return queue.tail_entries(offset, count)
            found = queue.tail_entries_shared(offset, count)
            if found is not None:
                return found

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
