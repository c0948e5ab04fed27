"""All consume queues: created on first use, loaded at start, deleted with their topic."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from ...disk import Disk, DiskUsage
from ...errors import QueueBroken
from ..paths import StorePaths, queue_id_of
from ..retention.deleted_topics import Begin, Ends
from .consume_queue import HOLE, ConsumeQueue, has_zeros
from .queue_files import MANY, QueueFiles

logger = logging.getLogger(__name__)

_NO_BEGINS: Mapping[int, Begin] = MappingProxyType({})

#: Limit on open descriptors of queue files, on the reading and on the writing side; see `descriptors_below`.
DESCRIPTORS = 1024


def descriptors_below(limit: int) -> int:
    """Return the limit on each side if the process may open `limit` files. With the smaller sets of other threads, they
    stay within what the server keeps back from its peers."""
    return max(16, min(DESCRIPTORS, limit // 16))


class ConsumeQueueTable:
    """(topic, queue id) -> ConsumeQueue. Changed by remoting-io, read by anyone."""

    def __init__(self, paths: StorePaths, disk: Disk, file_bytes: int, descriptors: int = DESCRIPTORS) -> None:
        self._paths = paths
        self._disk = disk
        self._file_bytes = file_bytes
        self._descriptors = descriptors
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._topics: dict[str, list[ConsumeQueue]] = {}
        #: topic -> queue id -> its first offset if it is not 0, even while empty: the offsets below belonged to a
        #: deleted topic of this name, or to messages that were gone before this log began.
        self.begins: Ends = {}
        #: Number of file deletions; written by flush-consumequeue, read by QueueFiles and parts that keep entries.
        self.deletions = [0]
        # Owned by remoting-io.
        self.files = QueueFiles(paths, disk, file_bytes, descriptors, self.deletions)
        #: Descriptor sets of other threads.
        self._others: weakref.WeakSet[QueueFiles] = weakref.WeakSet()
        #: Queues with something that is not in files, or not in the ledger, yet.
        self.dirty: list[ConsumeQueue] = []
        #: Called, on any thread, with a queue whose files lack entries. Set by the store.
        self.on_broken: Callable[[ConsumeQueue], None] = lambda queue: None

    @property
    def directory_name(self) -> str:
        """Name of the directory of all queues within the store's."""
        return self._paths.consume_queues.name

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def get_or_create(self, topic: str, queue_id: int, offset: int = 0) -> ConsumeQueue:
        """Return the queue; a new one exists only in memory until its first entries are flushed (D5)."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            if not offset and self.begins:
                offset = self.begin_of(topic, queue_id)
            queue = self._queues[topic, queue_id] = ConsumeQueue(topic, queue_id, offset)
            self._topics.setdefault(topic, []).append(queue)
        return queue

    def is_unused(self, topic: str, queue_id: int) -> bool:
        """True if a queue has never had an entry here. It may exist nevertheless: a pull that waits at it creates it,
        the check of transactions creates its own, and others begin where a deleted topic of their name ended. So only
        its first record says where such a queue begins in a log that does not begin at 0."""
        queue = self.find(topic, queue_id)
        return queue is None or queue.tail_base == queue.next_offset == self.begin_of(topic, queue_id)

    def begin_unused(self, topic: str, queue_id: int, offset: int) -> ConsumeQueue:
        """Return an unused queue after letting it begin at `offset`. On remoting-io, or before it runs."""
        queue = self.find(topic, queue_id)
        if queue is None:
            return self.get_or_create(topic, queue_id, offset)
        queue.begin_at(offset)
        return queue

    def take_begins(self, ends: Mapping[str, Mapping[int, Begin]]) -> None:
        """Let the queues begin at these offsets: those below were used before. An offset of 0 removes a beginning."""
        for topic, queues in ends.items():
            together = {
                queue_id: begin for queue_id, begin in {**self.begins_of(topic), **queues}.items() if begin.offset
            }
            if together:
                self.begins[topic] = together
            else:
                self.begins.pop(topic, None)

    def begin_of(self, topic: str, queue_id: int) -> int:
        """Return the offset of a queue's first message, not counting messages that were deleted with their topic."""
        begins = self.begins.get(topic)
        begin = None if begins is None else begins.get(queue_id)
        return 0 if begin is None else begin.offset

    def begins_of(self, topic: str) -> Mapping[int, Begin]:
        """Return queue id -> first offset, for the queues that do not begin at 0. Not to be changed."""
        return self.begins.get(topic, _NO_BEGINS)

    def all(self) -> list[ConsumeQueue]:
        return list(self._queues.values())

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """Return a copy of a topic's list of queues."""
        return list(self._topics.get(topic, ()))

    def touch(self, queue: ConsumeQueue) -> None:
        """Have the next round note in the ledger the minimum offset that the caller moves. On remoting-io."""
        if not queue.dirty:
            queue.dirty = True
            self.dirty.append(queue)

    def on_disk(self, topics: Iterable[str] | None = None) -> list[tuple[str, int]]:
        """Return the (topic, queue id) of every queue directory, or of those of some topics."""
        found = []
        disk = self._disk
        if topics is None:
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

    def write_entries(self, files: QueueFiles, queue: ConsumeQueue, offset: int, entries: bytes) -> None:
        """Write entries into a queue's files from `offset` on. If the queue does not begin at 0, Apache's filler goes
        in front of its first entry: Apache's recovery would stop at zeros.

        That depends on the queue's minimum offset and on the file, not on `begins`: the topic may have been deleted
        again meanwhile, and the file's entries may be needed if a deletion is undone.
        """
        front = offset % files.entries_per_file
        if front and (queue.min_offset < offset or self._has_entry(files, queue, offset - 1)):
            front = 0
        files.write(queue.topic, queue.queue_id, offset - front, HOLE * front + entries)

    def _has_entry(self, files: QueueFiles, queue: ConsumeQueue, offset: int) -> bool:
        """True if the file has an entry there that is no filler."""
        entry = files.read(queue.topic, queue.queue_id, offset, 1)
        return not has_zeros(entry) and not entry.startswith(HOLE[:12])

    def sync_directories(self, queues: Iterable[ConsumeQueue]) -> None:
        """Make the names of the queues' files durable, from their directories up."""
        directories: dict[Path, None] = {}
        for queue in queues:
            directory = self._paths.queue_dir(queue.topic, queue.queue_id)
            directories[directory] = directories[directory.parent] = None
        if len(directories) >= MANY and self._sync_all():
            return
        for directory in (*directories, self._paths.consume_queues) if directories else ():
            self._disk.sync_directory(directory)

    def _sync_all(self) -> bool:
        """Sync the queues' whole file system; False if the kernel has no such call that reports errors."""
        fd = self._disk.open_directory(self._paths.consume_queues)
        try:
            return self._disk.sync_file_system(fd)
        finally:
            self._disk.close(fd)

    def usage(self) -> DiskUsage | None:
        """Return the usage of the queues' disk; None if there are no queues yet. Raises OSError."""
        top = self._paths.consume_queues
        return self._disk.usage(top) if self._disk.exists(top) else None

    def new_files(self, capacity: int = DESCRIPTORS) -> QueueFiles:
        """Return a new set of descriptors for another thread."""
        capacity = min(capacity, self._descriptors)
        files = QueueFiles(self._paths, self._disk, self._file_bytes, capacity, self.deletions)
        self._others.add(files)
        return files

    def files_deleted(self) -> None:
        """Note that files were deleted or replaced: readers close their descriptors before they read again."""
        self.deletions[0] += 1

    def read_entries(self, queue: ConsumeQueue, offset: int, count: int, files: QueueFiles | None = None) -> bytes:
        """Return published entries from `offset` on; may wait for the disk. Fewer where a file or the queue ends.

        Raises QueueBroken while the queue's files lack entries, since an empty answer would mean that none came yet.
        Empty if the queue was deleted. On remoting-io without `files`; other threads pass their own.
        """
        while True:
            base = queue.tail_base
            if offset < base:
                if not queue.broken:
                    data = (files or self.files).read(queue.topic, queue.queue_id, offset, min(count, base - offset))
                    if offset < queue.min_offset or not has_zeros(data):
                        return data
                if self.find(queue.topic, queue.queue_id) is not queue:
                    return b""
                if not queue.broken:
                    self.on_broken(queue)
                raise QueueBroken(f"the files of {queue.topic}-{queue.queue_id} are being rebuilt, try again later")
            if files is None:
                return queue.tail_entries(offset, count)
            found = queue.tail_entries_shared(offset, count)
            if found is not None:
                return found

    def remove_queues(self, topic: str, queues: Iterable[ConsumeQueue]) -> None:
        """Remove some of a topic's queues, like `remove_topic`. On remoting-io."""
        for queue in queues:
            self.forget(queue)
        self.files.forget_topic(topic)

    def remove_topic(self, topic: str) -> list[ConsumeQueue]:
        """Remove a topic's queues from the table and return them; the caller deletes the files. On remoting-io."""
        gone = self._topics.pop(topic, [])
        for queue in gone:
            del self._queues[topic, queue.queue_id]
        self.files.forget_topic(topic)
        return gone

    def forget(self, queue: ConsumeQueue) -> None:
        del self._queues[queue.topic, queue.queue_id]
        left = self._topics[queue.topic]
        left.remove(queue)
        if not left:
            del self._topics[queue.topic]

    def clear(self) -> None:
        self._queues.clear()
        self._topics.clear()

    def close(self) -> None:
        self.files.close()

    def close_others(self) -> None:
        """Close the sets of other threads, too. Called some time after `close`, when no thread reads any longer."""
        for files in list(self._others):
            files.close()
        self.clear()
