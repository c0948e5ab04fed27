"""The broker's replay jobs. `replay/` is loaded only if there are jobs, or at the first request for any.

Few brokers ever send a dead letter again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..disk import Disk

if TYPE_CHECKING:
    from .replay.service import ReplayService


class LateReplays:
    """Any thread."""

    def __init__(self, directory: Path, disk: Disk, make: Callable[[Path], ReplayService]) -> None:
        """directory: of the jobs' journals."""
        # Constant after construction.
        self._directory = directory
        self._disk = disk
        self._make = make
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._service: ReplayService | None = None
        #: True if its thread is to run; None before the broker starts.
        self._works: bool | None = None

    def service(self) -> ReplayService:
        """Return this broker's service, made now if it was not there. It runs once the broker does."""
        with self._lock:
            if self._service is None:
                self._service = self._make(self._directory)
                self._begin(self._service)
            return self._service

    def start(self, works: bool) -> None:
        """Start with the broker. works: True if the broker takes messages; if not, jobs can only be looked at."""
        with self._lock:
            self._works = works
            if self._service is not None:
                self._begin(self._service)
        if works and self._any_jobs():
            self.service()

    def _begin(self, service: ReplayService) -> None:
        if self._works is not None:
            service.start() if self._works else service.rest()

    def _any_jobs(self) -> bool:
        try:
            return bool(self._disk.names(self._directory))
        except FileNotFoundError:
            return False
        except OSError:
            return True  # the service reports the error

    @property
    def failure(self) -> str | None:
        """The reason why a journal could not be written the last time; None if it could."""
        return None if self._service is None else self._service.failure

    def request_stop(self) -> None:
        with self._lock:
            self._works = False  # a service that is made from now on only shows its jobs
            service = self._service
        if service is not None:
            service.request_stop()

    def stop(self, deadline: float) -> None:
        if self._service is not None:
            self._service.stop(deadline)
