"""The thread that saves one table's file in the background."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..service_thread import ServiceThread

logger = logging.getLogger(__name__)


class TableSaver(ServiceThread):
    """The thread `save-<table>`: calls `save` every `interval_s` seconds, and at stop.

    Owns nothing: `save` checks whether there is anything to save. If it fails, that is logged, and tried again at the
    next turn: an OSError of the disk, a ValueError for a text that has no UTF-8.
    """

    def __init__(self, table: str, save: Callable[[], None], interval_s: float | Callable[[], float]) -> None:
        """interval_s: a function, called before each turn, if it may change."""
        super().__init__(f"save-{table}")
        self._save = save
        self._interval_s = interval_s if callable(interval_s) else lambda: interval_s
        self.failure: str | None = None

    def run(self) -> None:
        while not self.stopped:
            self.wait(self._interval_s())
            if not self.stopped:
                self.save_now()

    def save_now(self) -> None:
        """Save, or log the error; `failure` holds it until a save succeeds."""
        try:
            self._save()
            self.failure = None
        except (OSError, ValueError) as error:
            self.failure = str(error)
            logger.error("%s: cannot save, will try again: %s", self.name, error)

    def stop(self, deadline: float = 5.0) -> bool:
        ended = super().stop(deadline)
        if ended:
            self.save_now()
        return ended


class SavedTable:
    """A table with a file that `_saver`, which it makes, saves."""

    _saver: TableSaver

    def start(self) -> None:
        self._saver.start()

    def stop(self) -> None:
        """End the thread and save."""
        self._saver.stop()

    @property
    def failure(self) -> str | None:
        """The reason why the file could not be saved the last time; None if it could."""
        return self._saver.failure
