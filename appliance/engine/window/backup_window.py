"""The part of the window that makes backups of what runs."""

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

        Takes its time: most of what the disk does meanwhile is for others. step: (bytes done, in all), after each MiB;
        what it raises ends the backup, and nothing is left of it. Raises `backup.BackupError`.
        """
        return self._running().backups.make(target, step)
