"""One file of the commit log, and the thread that makes the next one ahead of need."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ...clock import Clock
from ...disk import Disk
from ...service_thread import ServiceThread

if TYPE_CHECKING:
    from .commit_log import CommitLog

logger = logging.getLogger(__name__)

#: Time after which a file that could not be prepared is tried again.
RETRY_S = 1.0
#: While the log grows faster than WARM_BYTES_PER_S, the pages WARM_BYTES ahead of its end are read into the page cache.
#: A missing page costs the appender up to ten times the copying into it: 98 us for 40 KB instead of 7 where the kernel
#: has to get the memory from a hypervisor. For slower growth that is not worth another thread's time.
WARM_BYTES_PER_S = 100 * 1024 * 1024
WARM_BYTES = 8 * 1024 * 1024
_WARM_PIECE = 128 * 1024


class Segment:
    """One file: `start` is the physical offset of its first byte, `end` that of the byte behind its last one.

    The log holds it once, and so does each reader on another thread than remoting-io while it reads; the last release
    closes it. remoting-io needs no hold, since files leave the log on that thread.
    """

    __slots__ = ("_disk", "_holds", "_lock", "end", "fd", "path", "start")

    def __init__(self, path: Path, fd: int, start: int, size: int, disk: Disk) -> None:
        self.path = path
        self.fd = fd
        self.start = start
        self.end = start + size
        self._disk = disk
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._holds = 1

    def hold(self) -> bool:
        """Keep the descriptor open until `release`; False when it is closed already."""
        with self._lock:
            if not self._holds:
                return False
            self._holds += 1
            return True

    def touch(self, offset: int, size: int) -> None:
        """Read a range into the page cache. The caller holds the segment. Raises OSError."""
        self._disk.pread(self.fd, size, offset - self.start)

    def release(self) -> None:
        """Release one hold; the last one closes the descriptor."""
        with self._lock:
            self._holds -= 1
            assert self._holds >= 0, self.path
            last = not self._holds
        if last:
            self._disk.close(self.fd)


class SegmentAllocator(ServiceThread):
    """The thread `allocate-commitlog`: makes the next file and warms the next pages ahead of need. Woken by prepare()
    and keep_warm()."""

    def __init__(self, log: CommitLog, clock: Clock) -> None:
        super().__init__("allocate-commitlog", clock)
        self._log = log
        # Written by remoting-io, read by this thread.
        self._wanted = -1
        self._cold = False
        #: Written by this thread, read by remoting-io: physical offset up to which pages were warmed.
        self.warmed = 0
        # Owned by this thread: time of the last look at the log's end, and the end seen then.
        self._looked_at, self._looked_from = 0.0, 0
        # Held while a file is made, so that remoting-io waits for it instead of making the same file a second time.
        self._making = threading.Lock()
        # Guarded by _making. `taken`: the start of the last file handed out.
        self._ready: Segment | None = None
        self._taken = -1
        #: Start of the file whose failure was logged last.
        self._failed = -1

    def prepare(self, start: int) -> None:
        if self._wanted != start:
            self._wanted = start
            self.wakeup()

    def obtain(self, start: int, frees: bool) -> Segment:
        """Return the file that begins at `start`, prepared or made now. Raises OSError when the disk has no room.
        frees: as `create_segment`'s."""
        with self._making:
            ready = self._ready
            if ready is None or ready.start != start:
                ready = self._log.create_segment(start, frees)
            else:
                self._ready = None
            self._taken = start
            return ready

    def take_any(self) -> Segment | None:
        with self._making:
            ready, self._ready = self._ready, None
            return ready

    def make_wanted(self) -> bool:
        """Make the file that prepare() asked for; False if the disk refused."""
        with self._making:
            wanted = self._wanted
            if wanted <= self._taken or self._ready is not None:
                return True
            try:
                self._ready = self._log.create_segment(wanted)
            except OSError as error:
                if self._failed != wanted:  # it is tried again each second
                    self._failed = wanted
                    logger.error("commit log: the next file cannot be prepared: %s", error)
                self._log.on_no_room()
                return False
            return True

    def keep_warm(self) -> None:
        """Wake the thread: less than WARM_BYTES / 2 is left before `warmed`. On remoting-io; once in 4 MiB."""
        if not self._cold:
            self._cold = True
            self.wakeup()

    def warm(self) -> None:
        """Read the zeros behind the log's end: the file is allocated in full, so the page cache gets clean pages
        without any read from the disk."""
        log = self._log
        now, written = self.clock.monotonic(), log.written
        seconds, grown = now - self._looked_at, written - self._looked_from
        self._looked_at, self._looked_from = now, written
        end = written + WARM_BYTES
        position = max(self.warmed, written) if grown > seconds * WARM_BYTES_PER_S else end
        while position < end and not self.stopped:
            segment = log.segment_at(position)
            if segment is None or not segment.hold():
                break
            try:
                size = min(_WARM_PIECE, segment.end - position)
                segment.touch(position, size)
            except OSError:
                break  # nothing is lost; a later write reports the error
            finally:
                segment.release()
            position += size
        self.warmed = end
        self._cold = False

    def run(self) -> None:
        while not self.stopped:
            self.wait(None)
            if self._cold:
                self.warm()
            while not self.stopped and not self.make_wanted():
                self.wait(RETRY_S)
