"""The thread `reports`. Until reports are made each night, or a run was started, their code is not loaded: 2 MB."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from django.db import DatabaseError, close_old_connections

from ...engine.service_thread import ServiceThread
from .wanted import any_run, is_on

if TYPE_CHECKING:
    from .runner import ReportRunner

logger = logging.getLogger(__name__)

#: Seconds after the start until the first look: the first sends and pages should not wait for it.
BEGIN_S = 5.0
LOOK_S = 20.0


_thread: ReportThread | None = None


def use(thread: ReportThread | None) -> None:
    """Set the thread that makes reports in this process. Called at the start."""
    global _thread
    _thread = thread


def runner() -> ReportRunner | None:
    """Return what makes reports in this process, None if nothing does."""
    return None if _thread is None else _thread.runner()


class ReportThread(ServiceThread):
    """Waits until reports are wanted, then is the thread of a `ReportRunner`."""

    def __init__(self, begin_s: float = BEGIN_S) -> None:
        super().__init__("reports")
        # Constant after construction.
        self._begin_s = begin_s
        # Guards _runner: this thread and requests make it.
        self._lock = threading.Lock()
        self._runner: ReportRunner | None = None

    def runner(self) -> ReportRunner:
        """Return the runner; this thread begins with it at once. Any thread."""
        from .runner import ReportRunner
        from .telling import tell

        with self._lock:
            if self._runner is None:
                self._runner = ReportRunner(tell=tell)
                if self.stopped:
                    self._runner.request_stop()
                self.wakeup()
            return self._runner

    def run(self) -> None:
        self.wait(self._begin_s)
        while not self.stopped and not self._wanted():
            self.wait(LOOK_S)
        if not self.stopped:
            self.runner().run()

    def _wanted(self) -> bool:
        try:
            return self._runner is not None or any_run() or is_on()
        except DatabaseError as error:
            logger.error("reports: whether they are wanted is looked up later: %s", error)
            return False
        finally:
            close_old_connections()

    def request_stop(self) -> None:
        super().request_stop()
        with self._lock:
            if self._runner is not None:
                self._runner.request_stop()
