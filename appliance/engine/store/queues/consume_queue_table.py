"""All consume queues: created on first use, loaded at start, deleted with their topic."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from ...errors import QueueBroken
from ..disk import Disk, DiskUsage
from ..paths import StorePaths, queue_id_of
from ..retention.deleted_topics import Begin, Ends
from .consume_queue import HOLE, ConsumeQueue, has_zeros
from .queue_files import QueueFiles

logger = logging.getLogger(__name__)

_NO_BEGINS: Mapping[int, Begin] = MappingProxyType({})

#: Open descriptors of queue files on the reading and on the writing side; fewer below a low limit of open files.
DESCRIPTORS = 1024


def descriptors_below(limit: int) -> int:
    """How many of them there may be on each side below a limit of open files: with the smaller sets of other threads
    they stay within what the server keeps back from its peers."""
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
        #: topic -> queue id -> where it goes on, though it may be empty: the offsets below were given away, by a topic
        #: of this name that was deleted, or to messages that had gone before this log began.
        self.begins: Ends = {}
        #: Counts deletions of files; written by flush-consumequeue, read by every QueueFiles and whoever keeps entries.
        self.deletions = [0]
        # Owned by remoting-io.
        self.files = QueueFiles(paths, disk, file_bytes, descriptors, self.deletions)
        #: Those of other threads.
        self._others: weakref.WeakSet[QueueFiles] = weakref.WeakSet()
        #: Something of them is not in files yet, or not in the ledger.
        self.dirty: list[ConsumeQueue] = []
        #: Called, from any thread, with a queue whose files lack entries. Set by the store.
        self.on_broken: Callable[[ConsumeQueue], None] = lambda queue: None

    @property
    def directory_name(self) -> str:
        """Of the directory of all queues, in the store's."""
        return self._paths.consume_queues.name

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def get_or_create(self, topic: str, queue_id: int, offset: int = 0) -> ConsumeQueue:
        """The queue; a new one is in memory only until its first entries are flushed (D5)."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            if not offset and self.begins:
                offset = self.begin_of(topic, queue_id)
            queue = self._queues[topic, queue_id] = ConsumeQueue(topic, queue_id, offset)
            self._topics.setdefault(topic, []).append(queue)
        return queue

    def take_begins(self, ends: Mapping[str, Mapping[int, Begin]]) -> None:
        """Offsets below these were given away."""
        for topic, queues in ends.items():
            together = {
                queue_id: begin for queue_id, begin in {**self.begins_of(topic), **queues}.items() if begin.offset
            }
            if together:
                self.begins[topic] = together
            else:
                self.begins.pop(topic, None)

    def begin_of(self, topic: str, queue_id: int) -> int:
        """The offset of a queue's first message, if it had none that were not deleted with their topic."""
        begins = self.begins.get(topic)
        begin = None if begins is None else begins.get(queue_id)
        return 0 if begin is None else begin.offset

    def begins_of(self, topic: str) -> Mapping[int, Begin]:
        """Queue id -> where it begins, of the queues that do not begin at 0; nobody changes it."""
        return self.begins.get(topic, _NO_BEGINS)

    def all(self) -> list[ConsumeQueue]:
        return list(self._queues.values())

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """A topic's queues, a copy."""
        return list(self._topics.get(topic, ()))

    def touch(self, queue: ConsumeQueue) -> None:
        """On remoting-io: the next round notes the queue's minimum offset in the ledger, if something else moves it."""
        if not queue.dirty:
            queue.dirty = True
            self.dirty.append(queue)

    def on_disk(self, topics: Iterable[str] | None = None) -> list[tuple[str, int]]:
        """The (topic, queue id) of every queue directory, or of those of some topics."""
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
        """Into a queue's files, from `offset` on. In front of the first one of a queue that does not begin at 0 stands
        Apache's filler: its recovery would stop at zeros.

        It depends on what the queue serves and on the file, not on where a queue of this name begins now: the topic may
        have been deleted again meanwhile, and what is in the file may be wanted when a deletion is taken back.
        """
        front = offset % files.entries_per_file
        if front and (queue.min_offset < offset or self._has_entry(files, queue, offset - 1)):
            front = 0
        files.write(queue.topic, queue.queue_id, offset - front, HOLE * front + entries)

    def _has_entry(self, files: QueueFiles, queue: ConsumeQueue, offset: int) -> bool:
        """Whether the file has an entry there that is no filler."""
        entry = files.read(queue.topic, queue.queue_id, offset, 1)
        return not has_zeros(entry) and not entry.startswith(HOLE[:12])

    def sync_directories(self, queues: Iterable[ConsumeQueue]) -> None:
        """Make the names of queues' files durable, from their directories up."""
        directories: dict[Path, None] = {}
        for queue in queues:
            directory = self._paths.queue_dir(queue.topic, queue.queue_id)
            directories[directory] = directories[directory.parent] = None
        for directory in (*directories, self._paths.consume_queues) if directories else ():
            self._disk.sync_directory(directory)

    def usage(self) -> DiskUsage | None:
        """Of the queues' disk; None before there is one. Raises OSError."""
        top = self._paths.consume_queues
        return self._disk.usage(top) if self._disk.exists(top) else None

    def new_files(self, capacity: int = DESCRIPTORS) -> QueueFiles:
        """A set of descriptors for one more thread."""
        capacity = min(capacity, self._descriptors)
        files = QueueFiles(self._paths, self._disk, self._file_bytes, capacity, self.deletions)
        self._others.add(files)
        return files

    def files_deleted(self) -> None:
        """Files are gone, or others came in their place: readers let their descriptors go before they look again."""
        self.deletions[0] += 1

    def read_entries(self, queue: ConsumeQueue, offset: int, count: int, files: QueueFiles | None = None) -> bytes:
        """Published entries from `offset`, waiting for the disk if need be; fewer where a file or the queue ends.

        Raises QueueBroken while the queue's files lack entries: none is not the same as none yet. Empty when the queue
        has been deleted. On remoting-io without `files`; another thread brings its own.
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
        """Forget some of a topic's queues, on remoting-io; as `remove_topic`."""
        for queue in queues:
            self.forget(queue)
        self.files.forget_topic(topic)

    def remove_topic(self, topic: str) -> list[ConsumeQueue]:
        """Forget a topic's queues, on remoting-io; the files are the caller's to delete."""
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
        """Close the sets of other threads, too, some time after `close`: nobody may read any more."""
        for files in list(self._others):
            files.close()
        self.clear()
