"""Group commit: one thread makes the written bytes durable.

Sync flush: woken at the end of every tick that wrote; one fdatasync serves all ticks written before it was called.
Async flush: 500 ms after the first unsynced byte, or at 16 MiB, so that the kernel's dirty throttling never stops the
appender (D6).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from ...clock import Clock
from ...errors import StoreBroken
from ...hotpath import SyncRounds
from ...service_thread import ServiceThread
from .commit_log import CommitLog

logger = logging.getLogger(__name__)

ASYNC_INTERVAL_S = 0.5
ASYNC_BYTES = 16 * 1024 * 1024


class FlushCommitLogService(ServiceThread):
    """The thread `flush-commitlog`. Owns `durable`. Woken at the end of a tick; `on_progress` runs on this thread."""

    def __init__(self, log: CommitLog, synchronous: bool, on_progress: Callable[[], None], clock: Clock) -> None:
        super().__init__("flush-commitlog", clock)
        self._log = log
        self._synchronous = synchronous
        self._on_progress = on_progress
        # Written by remoting-io and this thread; losing the race costs one extra wake-up.
        self._dirty = False
        #: The usual rounds without the GIL; None if each takes it.
        self._rounds: SyncRounds = None
        self._wake_fd = -1
        self._since = 0.0
        # (number of syncs with the GIL, seconds they took in all); replaced by this thread.
        self._times = (0, 0.0)

    def wake_by(self, new_wake_fd: Callable[[], int | None]) -> None:
        """After usual syncs wake the loop by a descriptor, instead of `on_progress`, if that can be done. Its ticks
        must look at `durable`. Before start()."""
        if SyncRounds is not None and self._synchronous and self._log.on_real_disk and type(self.clock) is Clock:
            fd = new_wake_fd()
            if fd is not None:
                self._rounds, self._wake_fd = SyncRounds(self._log, fd), fd

    @property
    def syncing_since(self) -> float:
        """Monotonic time at which the current sync began; 0.0 when none is under way."""
        return self._since or (self._rounds.since if self._rounds is not None else 0.0)

    @property
    def sync_times(self) -> tuple[int, float]:
        """(number of syncs, seconds they took in all)."""
        (count, seconds), rounds = self._times, self._rounds
        return (count, seconds) if rounds is None else (count + rounds.count, seconds + rounds.seconds)

    def tick_written(self, usual: bool = True) -> None:
        """Wake the thread if a sync is due. Called by remoting-io after it wrote. usual: false to have `on_progress`
        called after the sync, whatever else wakes the loop."""
        if self._rounds is not None:
            if not usual or self._log.owes_before_sync():
                self._rounds.ask()
            self._rounds.written(self._log.written)
        elif self._synchronous:
            self.wakeup()
        elif not self._dirty:
            self._dirty = True
            self.wakeup()
        elif self._log.written - self._log.durable >= ASYNC_BYTES:
            self.wakeup()

    def wakeup(self) -> None:
        if self._rounds is not None:
            self._rounds.ask()
        else:
            super().wakeup()

    def run(self) -> None:
        log = self._log
        while not self.stopped:
            if self._rounds is not None:
                if not self._usual_rounds():
                    self._on_progress()
                    return
            else:
                self.wait(None)
            if not self._synchronous:
                if not self.stopped:
                    self.wait(ASYNC_INTERVAL_S)
                self._dirty = False
            if log.written > log.durable:
                try:
                    begun = self._since = self.clock.monotonic()
                    log.sync()
                    self._since = 0.0
                    count, seconds = self._times
                    self._times = (count + 1, seconds + self.clock.monotonic() - begun)
                except StoreBroken:
                    self._on_progress()
                    return
                self._on_progress()

    def _usual_rounds(self) -> bool:
        """Sync the file that is being written, until something else has to be done. False if the log broke."""
        log = self._log
        segment = log.segment_at(log.durable)
        if segment is None or not segment.hold():
            self._rounds.run(-1, 0)
            return True
        try:
            number = self._rounds.run(segment.fd, min(segment.end, log.sync_usual_to))
        finally:
            segment.release()
        if number:
            log.sync_failed(segment, os.strerror(number))
        return not number

    def close(self) -> None:
        """Release what `wake_by` opened, if the thread has ended."""
        if not self.alive and self._wake_fd >= 0:
            os.close(self._wake_fd)
            self._wake_fd = -1
