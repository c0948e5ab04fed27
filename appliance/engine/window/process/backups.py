"""Backs up a running broker: slowly, while the cleaner spares the log files that are not copied yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .... import __version__
from ...store.message_store import MessageStore

if TYPE_CHECKING:
    from ...backup import Made, Spared

#: Share of the time in which a backup of a running broker copies; it rests in the remaining time.
DUTY = 0.3
_LONGEST_REST_S = 0.5


class Backups:
    """Any thread; copies in the caller's."""

    def __init__(self, store: MessageStore) -> None:
        # Constant after construction.
        self._store = store

    def make(self, target: Path, step: Callable[[int, int], None] = lambda _done, _total: None) -> Made:
        """Copy the whole data directory, at one published end of the log, into a file NAME.tar or a directory.

        Slow on purpose: it leaves most of the disk's time to the broker. step: called with (bytes done, bytes in all)
        after each MiB; an exception that it raises ends the backup, and nothing is left of it. Raises
        `backup.BackupError`.
        """
        from ...backup import BackupError, LogEnd, Spared, make_backup  # tar and SQLite are imported for a backup only

        spared = Spared.by(self._store.cleaner.options, self._store.log.room_bytes)
        given_way: list[bool] = []
        paths = self._store.paths
        begun = [time.monotonic()]

        def gently(done: int, total: int) -> None:
            if given_way:
                raise BackupError(
                    "The log's disk is so full that files of it have to go before they are copied; nothing was kept."
                )
            step(done, total)
            worked = time.monotonic() - begun[0]
            time.sleep(min(_LONGEST_REST_S, worked * (1 / DUTY - 1)))
            begun[0] = time.monotonic()

        return make_backup(
            target,
            paths.root,
            paths.own,
            version=__version__,
            log_end=LogEnd(
                lambda: self._store.published,
                lambda needed_from: self._keeping(needed_from, spared, given_way),
                spared,
            ),
            step=gently,
        )

    def _suffers(self, spared: Spared) -> bool:
        usage = self._store.log.usage()
        return usage.share > spared.share or usage.free_bytes < spared.bytes

    @contextmanager
    def _keeping(self, needed_from: Callable[[], int], spared: Spared, given_way: list[bool]) -> Iterator[None]:
        """Make the cleaner spare files that are not copied yet. If the disk gets too full, the backup ends instead."""

        def keep(end: int) -> str | None:
            if end <= needed_from():
                return None
            if self._suffers(spared):
                given_way.append(True)
                return None
            return "a backup is copying it"

        keepers = self._store.cleaner.keepers
        keepers.append(keep)
        try:
            yield
        finally:
            keepers.remove(keep)
