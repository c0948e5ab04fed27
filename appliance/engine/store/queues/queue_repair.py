"""Checks queue files beside the running broker, and rebuilds missing entries from the log.

A start with the queue ledger opens no queue file. So each is checked afterwards, a little at a time. A file that is
missing, cut short or empty where it should not be makes its queue `broken`; so does a reader that finds one. A broken
queue takes sends, since its offsets are known, and serves its tail. Pulls below it are held or answered as from a queue
without news, so that clients ask again. The ledger marks a queue as broken before its files are written, so that after
a crash in between the repair begins again.

One pass over the log rebuilds all queues that are broken when it begins. All steps run on flush-consumequeue between
its rounds, since only that thread writes queue files.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Protocol

from ...clock import Clock
from ...few_lines import OncePerReason
from ...protocol.record import Record
from ..dispatch import Dispatch
from ..log.log_repair import LogRepair
from ..log.log_scan import LogScan
from ..store_files import StoreFiles
from .consume_queue import ENTRY, ENTRY_BYTES, HOLE, HOLE_SIZE, ConsumeQueue
from .consume_queue_table import ConsumeQueueTable
from .queue_files import QueueFiles
from .queue_inspector import QueueInspector

logger = logging.getLogger(__name__)

#: CPU time of one step, its longest duration including the disk, and the pause after it.
STEP_S = 0.002
LONGEST_S = 0.05
PAUSE_S = 0.008
#: Pause after a disk error.
RETRY_S = 5.0
#: Bytes of collected entries at which they are written to files.
_WRITE_BYTES = 16 * 1024 * 1024
#: Limit on queues that findings name one by one; beyond it they give only the number.
_NAMED = 20
#: Queues that are served again in one call, so that it does not hold remoting-io long.
_SLICE = 500


class QueueWriter(Protocol):
    """The part of flush-consumequeue that a repair uses. It alone writes queue files, and repairs run on it."""

    removing: threading.Lock
    failure: str | None

    @property
    def alive(self) -> bool: ...
    def wakeup(self) -> None: ...
    def call(self, callback: Callable[[], None], running: bool = True) -> bool: ...
    def published(self, tail_bytes: int) -> None: ...
    def save_for(self, queues: list[ConsumeQueue]) -> int | None: ...


class _Rebuilt:
    """One queue's entries up to `end`; those from `at` on are not written yet. first: the first with a record."""

    __slots__ = ("at", "data", "first", "last_physical", "queue", "undecided", "until")

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue
        #: Entries from here on are in the tail, or written from there.
        self.until = queue.tail_base
        self.first = self.at = -1
        #: Physical offset of the last record taken.
        self.last_physical = 0
        self.data = bytearray()
        #: (offset, entry) of the last record whose offset was there before; see QueueOrder for its meaning.
        self.undecided: tuple[int, bytes] | None = None

    @property
    def end(self) -> int:
        return self.at + len(self.data) // ENTRY_BYTES


class QueueRepair:
    """Belongs to flush-consumequeue; any thread may call `ask`."""

    def __init__(
        self,
        log: LogRepair,
        queues: ConsumeQueueTable,
        files: QueueFiles,
        small_files: StoreFiles,
        delay_levels_ms: list[int],
        writer: QueueWriter,
        clock: Clock,
    ) -> None:
        """files: the writer's own."""
        # Constant after construction.
        self._log = log
        self._queues = queues
        self._files = files
        self._small_files = small_files
        self._delay_levels_ms = delay_levels_ms
        self._writer = writer
        self._clock = clock
        #: Called on remoting-io when a broken queue is whole again. Set before start().
        self.on_repaired: Callable[[ConsumeQueue], None] = lambda queue: None
        # Owned by flush-consumequeue; any thread sets `_asked`.
        self._asked = False
        self._unchecked = False
        self._job: Generator[None, None, None] | None = None
        self._not_before = 0.0
        self._told = OncePerReason(logger.error)

    def ask(self, queue: ConsumeQueue) -> None:
        """Mark a queue whose files lack entries as broken: nothing below its tail is served until they are rebuilt."""
        if not self._is_known(queue):  # it was deleted, and its files too
            return
        if not queue.broken:
            queue.broken = True
            logger.error("consume queue: %r lacks entries in its files, rebuilding it", queue)
        self._asked = True
        self._writer.wakeup()

    def check_all(self) -> None:
        """Check the files of every queue, after rebuilding those that are known to be broken."""
        self._unchecked = True
        self._asked = any(queue.broken for queue in self._queues.all())

    @property
    def pending(self) -> bool:
        """True if there is work to do."""
        return self._job is not None or self._asked or self._unchecked

    @property
    def broken(self) -> int:
        """Number of broken queues."""
        return sum(1 for queue in self._queues.all() if queue.broken)

    def step(self, seconds: float = STEP_S) -> bool:
        """Work for `seconds` of CPU time; False if nothing is left to do, or the disk failed less than RETRY_S ago."""
        begin, worked = self._clock.monotonic(), time.thread_time()
        if begin < self._not_before:
            return False
        while True:
            if self._job is None:
                if self._asked:
                    self._asked, self._job = False, self._rebuild()
                elif self._unchecked:
                    self._unchecked, self._job = False, self._check()
                else:
                    return False
            try:
                next(self._job)
            except StopIteration:
                self._job = None
                self._told.went_well()
            except OSError as error:
                self._told.failed("consume queue: rebuilding failed, tried again later: %s", error)
                self._job, self._asked = None, True
                self._not_before = self._clock.monotonic() + RETRY_S
                return False
            if time.thread_time() - worked >= seconds or self._clock.monotonic() - begin >= LONGEST_S:
                return True

    def retry_in(self) -> float:
        """Return the seconds until `step` may work again."""
        return max(0.0, self._not_before - self._clock.monotonic())

    def close(self) -> None:
        """Abort the current work; the ledger still marks broken queues."""
        if self._job is not None:
            self._job.close()
        self._job, self._asked, self._unchecked = None, False, False

    def _is_known(self, queue: ConsumeQueue) -> bool:
        return self._queues.find(queue.topic, queue.queue_id) is queue

    # --- looking

    def _check(self) -> Generator[None, None, None]:
        files = self._queues.new_files(64)
        inspector = QueueInspector(self._log.raw, self._queues, files, self._files)
        begin = self._clock.monotonic()
        try:
            queues = self._queues.all()
            for queue in queues:
                if self._is_known(queue) and not queue.broken:
                    if inspector.is_whole(queue):
                        self._correct_min_offset(inspector, queue)
                    elif self._is_known(queue):
                        self.ask(queue)
                yield
        finally:
            files.close()
        logger.info("consume queue: %d queues checked in %.1f s", len(queues), self._clock.monotonic() - begin)

    def _correct_min_offset(self, inspector: QueueInspector, queue: ConsumeQueue) -> None:
        """Raise a queue's minimum offset if log files were removed since the ledger noted it."""
        first = inspector.first_offset(queue, queue.tail_base)
        if first <= queue.min_offset:
            return

        def correct() -> None:
            if self._is_known(queue) and first > queue.min_offset:
                queue.min_offset = first
                self._queues.touch(queue)

        self._writer.call(correct, self._writer.alive)

    # --- rebuilding

    def _rebuild(self) -> Generator[None, None, None]:
        writer, raw = self._writer, self._log.raw
        broken = [queue for queue in self._queues.all() if queue.broken and queue.tail_base > 0]
        if not broken:
            return
        # The ledger must have it before files are written. The log is read up to the position saved then.
        position = writer.save_for(broken)
        if position is None:
            raise OSError(errno.EAGAIN, writer.failure or "the recovery position cannot be saved")
        found = {(queue.topic, queue.queue_id): _Rebuilt(queue) for queue in broken if self._is_known(queue)}
        self._files.let_go(found)
        self._report(found)
        yield
        dispatch = Dispatch(self._delay_levels_ms, self._small_files.deleted_topics.load(), self._queues.begins)
        held = 0
        begin = self._clock.monotonic()
        for offset, record in LogScan(raw, self._log, position).records(raw.files.min_offset):
            if record is not None:
                rebuilt = found.get((record.topic, record.queue_id))
                if rebuilt is not None and record.queue_offset < rebuilt.until and dispatch.has_entry(record):
                    self._take(rebuilt, record, dispatch.entry(record))
                    held += ENTRY_BYTES
                    if held >= _WRITE_BYTES:
                        held = 0
                        yield from self._write(found)
            if offset >= position:
                break
            yield
        for rebuilt in found.values():
            self._complete(rebuilt)
        yield from self._write(found)
        self._files.sync()
        self._finish(list(found.values()))
        logger.info("consume queue: %d queues rebuilt in %.1f s", len(found), self._clock.monotonic() - begin)

    def _report(self, found: dict[tuple[str, int], _Rebuilt]) -> None:
        name = self._queues.directory_name
        places = [f"{name}/{topic}/{queue_id}" for topic, queue_id in list(found)[:_NAMED]]
        if len(found) > _NAMED:
            places = [f"{name}: {len(found)} queues"]
        for place in places:
            self._small_files.report("queue", place, "files lacked entries; rebuilt from the log")

    def _take(self, rebuilt: _Rebuilt, record: Record, entry: bytes) -> None:
        """Put a record's entry in its place; missing entries before it become holes."""
        offset = record.queue_offset
        if rebuilt.first < 0:
            self._begin(rebuilt, offset)
        elif offset < rebuilt.end:
            undecided = rebuilt.undecided
            if undecided is None or offset != undecided[0] + 1:
                rebuilt.undecided = offset, entry
                return
            self._go_back(rebuilt, undecided)
        elif offset > rebuilt.end:
            rebuilt.data += ENTRY.pack(record.physical_offset, HOLE_SIZE, 0) * (offset - rebuilt.end)
        rebuilt.undecided = None
        rebuilt.data += entry
        rebuilt.last_physical = record.physical_offset

    def _begin(self, rebuilt: _Rebuilt, offset: int) -> None:
        rebuilt.first = offset
        rebuilt.at = offset - offset % self._files.entries_per_file
        rebuilt.data = bytearray(HOLE * (offset - rebuilt.at))

    def _go_back(self, rebuilt: _Rebuilt, undecided: tuple[int, bytes]) -> None:
        """Continue from the undecided record, since another follows it: the topic was made again, or one before was
        the odd one."""
        offset, entry = undecided
        if offset <= rebuilt.first:
            self._begin(rebuilt, offset)
        elif offset < rebuilt.at:
            rebuilt.at, rebuilt.data = offset, bytearray()
        else:
            del rebuilt.data[(offset - rebuilt.at) * ENTRY_BYTES :]
        rebuilt.data += entry

    def _complete(self, rebuilt: _Rebuilt) -> None:
        """Fill the missing entries, for which the log has no record, with holes.

        Holes behind the last record carry its physical offset: they expire with it, not before. Only holes in front of
        the first record carry 0, the mark of a filler.
        """
        undecided = rebuilt.undecided
        if undecided is not None and undecided[0] + 1 == rebuilt.until:
            self._go_back(rebuilt, undecided)  # the queue ends with it, and it is the later one
            rebuilt.last_physical = ENTRY.unpack(undecided[1])[0]
        if rebuilt.first < 0:
            rebuilt.first = rebuilt.until
            rebuilt.at = rebuilt.until - rebuilt.until % self._files.entries_per_file
        filler = ENTRY.pack(max(rebuilt.last_physical, 1), HOLE_SIZE, 0) if rebuilt.first < rebuilt.until else HOLE
        rebuilt.data += filler * (rebuilt.until - rebuilt.end)

    def _write(self, found: dict[tuple[str, int], _Rebuilt]) -> Generator[None, None, None]:
        for (topic, queue_id), rebuilt in found.items():
            if not rebuilt.data:
                continue
            with self._writer.removing:
                if self._is_known(rebuilt.queue):
                    self._files.write(topic, queue_id, rebuilt.at, bytes(rebuilt.data))
            rebuilt.at = rebuilt.end
            rebuilt.data = bytearray()
            yield
        self._files.incomplete.clear()

    def _finish(self, done: list[_Rebuilt]) -> None:
        """Serve the rebuilt queues again, on remoting-io."""
        self._queues.files_deleted()  # a reader may still have a lost file open

        def serve(part: list[_Rebuilt]) -> None:
            for rebuilt in part:
                queue = rebuilt.queue
                if self._is_known(queue):
                    queue.min_offset = max(queue.min_offset, rebuilt.first)
                    queue.broken = False
                    self._queues.touch(queue)
                    self.on_repaired(queue)
            self._writer.published(0)

        for at in range(0, len(done), _SLICE):
            self._writer.call(partial(serve, done[at : at + _SLICE]), self._writer.alive)
