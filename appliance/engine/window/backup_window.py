"""The part of the window that backs up a running broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .messages_window import MessagesWindow

if TYPE_CHECKING:
    from ..backup import Made


class BackupWindow(MessagesWindow):
    """Any thread; copies in the caller's."""

    def make_backup(self, target: Path, step: Callable[[int, int], None] = lambda _done, _total: None) -> Made:
        """Copy the whole data directory, at one published end of the log, into a file NAME.tar or a directory.

        Slow on purpose: it leaves most of the disk's time to the broker. step: called with (bytes done, bytes in all)
        after each MiB; an exception that it raises ends the backup, and nothing is left of it. Raises
        `backup.BackupError`.
        """
        return self._running().backups.make(target, step)
