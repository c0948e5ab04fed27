"""Makes backups of what runs: slowly, and with the cleaner held back from the log files that are not copied yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ... import __version__
from ..store.message_store import MessageStore

if TYPE_CHECKING:
    from ..backup import Made

#: Of its time a backup of a running broker copies this part, and rests else.
DUTY = 0.3
_LONGEST_REST_S = 0.5


class Backups:
    """Any thread; copies in the caller's."""

    def __init__(self, store: MessageStore) -> None:
        # Constant after construction.
        self._store = store

    def make(self, target: Path, step: Callable[[int, int], None]) -> Made:
        """See EngineAdmin.make_backup."""
        from ..backup import make_backup  # tar and SQLite are for whoever makes one

        paths = self._store.paths
        begun = [time.monotonic()]

        def gently(done: int, total: int) -> None:
            step(done, total)
            worked = time.monotonic() - begun[0]
            time.sleep(min(_LONGEST_REST_S, worked * (1 / DUTY - 1)))
            begun[0] = time.monotonic()

        return make_backup(
            target,
            paths.root,
            paths.own,
            version=__version__,
            log_end=lambda: self._store.published,
            keeping=self._keeping,
            step=gently,
        )

    @contextmanager
    def _keeping(self, needed_from: Callable[[], int]) -> Iterator[None]:
        def keep(end: int) -> str | None:
            return "a backup is copying it" if end > needed_from() else None

        keepers = self._store.cleaner.keepers
        keepers.append(keep)
        try:
            yield
        finally:
            keepers.remove(keep)
