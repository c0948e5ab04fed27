"""The small files that say which process uses a store, how it was left, and what damage was found in it.

    lock abort checkpoint                              Apache's
    recovery-position deleted-topics.json purged-queues.json quarantine/findings.jsonl     RocketBox's

The lock is taken first, then the state is read. `abort` is written last, after recovery, and removed only by a stop
that left nothing unsaved.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from ..disk import Disk
from ..errors import StartError
from .checkpoint import Checkpoint, RecoveryPositionFile
from .findings import Finding, Findings
from .paths import StorePaths
from .retention.deleted_topics import DeletedTopics

if TYPE_CHECKING:
    from .retention.purged_queues import PurgedQueues

logger = logging.getLogger(__name__)


class StoreFiles:
    """Opened by lock_and_check(), released by close(). The lock is Apache's own, so each broker excludes the other."""

    checkpoint: Checkpoint
    recovery_position: RecoveryPositionFile

    def __init__(self, paths: StorePaths, disk: Disk, now_ms: Callable[[], int]) -> None:
        """now_ms: wall clock, for findings."""
        self._paths = paths
        self._disk = disk
        self._now_ms = now_ms
        self.deleted_topics = DeletedTopics(paths, disk)
        self._lock_fd = -1
        self.left_clean = True
        self._findings = Findings(paths, disk)
        self.add_finding = self._findings.add

    @cached_property
    def purged_queues(self) -> PurgedQueues:
        """The notes on purged queues, as the file had them when first asked for."""
        from .retention.purged_queues import PurgedQueues  # most stores have none

        found = PurgedQueues(self._paths, self._disk)
        found.load()
        return found

    def has_purged(self) -> bool:
        """True if there may be notes on purged queues."""
        return "purged_queues" in self.__dict__ or self._disk.exists(self._paths.own / "purged-queues.json")

    def lock_and_check(self) -> None:
        """Lock the store for this process. Raises StartError when it is not writable or another process has it."""
        paths = self._paths
        try:
            self._disk.make_directory(paths.root)
            self._disk.make_directory(paths.own)
            self._lock_fd = self._disk.lock(paths.lock)
            self.left_clean = not self._disk.exists(paths.abort)
            self.checkpoint = Checkpoint(paths.checkpoint, self._disk)
            self.recovery_position = RecoveryPositionFile(paths.recovery_position, self._disk)
        except BlockingIOError:
            raise StartError(f"The store directory {paths.root} is in use by another process.") from None
        except OSError as error:
            self.release()
            raise StartError(f"The store directory {paths.root} is not writable: {error.strerror}.") from None

    def mark_running(self) -> None:
        """Write the abort file, so that a crash shows from now on. It holds the process id, as in 5.x."""
        self._disk.write_new(self._paths.abort, (str(os.getpid()).encode(),))
        for directory in (self._paths.root, self._paths.own):
            self._disk.sync_directory(directory)
            try:
                self._disk.sync_directory(directory.parent)
            except PermissionError:
                pass  # another user's directory, made by that user

    def report(self, kind: str, file: str, reason: str, begin: int = -1, end: int = -1, copy: str = "") -> None:
        """Add something that was just found to the findings. Raises OSError."""
        self.add_finding(Finding(self._now_ms(), kind, file, begin, end, copy, reason))

    def findings(self) -> list[Finding]:
        """Return what was cut, quarantined or set aside, oldest first; the store need not be open."""
        return self._findings.all()

    def release(self) -> None:
        if self._lock_fd >= 0:
            self._disk.close(self._lock_fd)
            self._lock_fd = -1

    def close(self, clean: bool) -> None:
        """Release the store; `clean` removes the abort file."""
        self.checkpoint.close()
        self.recovery_position.close()
        if clean:
            try:
                self._disk.unlink(self._paths.abort)
                self._disk.sync_directory(self._paths.root)
            except OSError as error:
                logger.warning("store: abort file stays: %s", error)
        self.release()
