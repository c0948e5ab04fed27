"""Group commit: one thread makes the written bytes durable.

Sync flush: woken at the end of every tick that wrote; one fdatasync serves all ticks written before it was called.
Async flush: 500 ms after the first unsynced byte, or at 16 MiB, so that the kernel's dirty throttling never stops the
appender (D6).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...clock import Clock
from ...errors import StoreBroken
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
        #: Monotonic time at which the current sync began; 0.0 when none is under way.
        self.syncing_since = 0.0
        #: (number of syncs, seconds they took in all); replaced by this thread.
        self.sync_times = (0, 0.0)

    def tick_written(self) -> None:
        """Wake the thread if a sync is due. Called by remoting-io after it wrote."""
        if self._synchronous:
            self.wakeup()
        elif not self._dirty:
            self._dirty = True
            self.wakeup()
        elif self._log.written - self._log.durable >= ASYNC_BYTES:
            self.wakeup()

    def run(self) -> None:
        log = self._log
        while not self.stopped:
            self.wait(None)
            if not self._synchronous:
                if not self.stopped:
                    self.wait(ASYNC_INTERVAL_S)
                self._dirty = False
            if log.written > log.durable:
                try:
                    begun = self.syncing_since = self.clock.monotonic()
                    log.sync()
                    self.syncing_since = 0.0
                    count, seconds = self.sync_times
                    self.sync_times = (count + 1, seconds + self.clock.monotonic() - begun)
                except StoreBroken:
                    self._on_progress()
                    return
                self._on_progress()
