"""Queue entries for a pull whose queue file is not in the page cache, or may not be (D2), and for a filter that has
many records to read.

The entries read here are passed to `MessageStore.get`. A new look into the page cache could repeat without end where
the file system cannot say what is cached, or memory is so short that they are gone again.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import QueueBroken
from ..filter.message_filter import EVERYTHING, MessageFilter
from .log.commit_log import CommitLog
from .queues.consume_queue import ENTRY, ConsumeQueue
from .queues.consume_queue_table import ConsumeQueueTable
from .queues.queue_extension import QueueExtension, is_address
from .settling import Settling

#: Queue files kept open: pulls of cold entries mostly continue where the last one ended.
_DESCRIPTORS = 64


class ColdReader:
    """Belongs to one thread, which may wait for the disk. scan_count: of the MessageReader that gets the entries."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueTable,
        extension: QueueExtension,
        scan_count: Callable[[int, MessageFilter], int],
    ) -> None:
        self._log = log
        self._queues = queues
        self._scan_count = scan_count
        self._files = queues.new_files(_DESCRIPTORS)
        self._extension = extension
        self.settling = Settling(log.read, log.property_values if log.reads_values else None)

    def entries(self, queue: ConsumeQueue, offset: int, max_count: int, wanted: MessageFilter = EVERYTHING) -> bytes:
        """Return the entries that `get` with the same arguments looks through, from `offset` on; fewer at a file's end.

        Empty if there is nothing to read now: the queue is being rebuilt, or was deleted. Addresses of extension units
        are replaced by the units' tag codes. For a filter that reads records, the tag code is its verdict (`settling`),
        and the entries end after `max_count` matches. Raises OSError when the disk fails.
        """
        count = self._scan_count(max_count, wanted)
        try:
            entries = self._queues.read_entries(queue, offset, count, self._files)
        except QueueBroken:
            return b""
        if wanted.codes is not None:
            entries = self._with_codes(queue, entries)
        if wanted.reads_records:
            return self.settling.settle(entries, wanted, max_count) or b""
        return entries

    def _with_codes(self, queue: ConsumeQueue, entries: bytes) -> bytes:
        changed: bytearray | None = None
        for number, (physical, size, code) in enumerate(ENTRY.iter_unpack(entries)):
            if is_address(code):
                unit = self._extension.read(queue.topic, queue.queue_id, code)
                if unit is not None:
                    changed = changed or bytearray(entries)
                    ENTRY.pack_into(changed, number * ENTRY.size, physical, size, unit.tag_code)
        return entries if changed is None else bytes(changed)

    def close(self) -> None:
        self._files.close()
        self._extension.close()
