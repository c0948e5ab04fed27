"""Starts scheduled backups when they are due."""

from __future__ import annotations

import logging

from django.db import DatabaseError, close_old_connections

from ... import runtime
from ...engine.errors import AdminError
from ...engine.service_thread import ServiceThread
from ..jobs import Job, board, new_id
from ..models import now_ms
from ..serving.said_once import SaidOnce
from .settings import HOUR_MS, KIND, next_at_ms, schedule

logger = logging.getLogger(__name__)

_LOOK_S = 30.0


class BackupClock(ServiceThread):
    """The thread `backup-clock`: starts a backup when one is due. One that failed is tried again after an hour."""

    def __init__(self) -> None:
        super().__init__("backup-clock")
        self._tried_ms = 0
        self._failures = SaidOnce()

    def run(self) -> None:
        while not self.stopped:
            self.wait(_LOOK_S)
            try:
                self.look()
                self._failures.went_well()
            except (AdminError, DatabaseError, OSError, runtime.EngineNotRunning) as error:
                if self._failures.is_new(error):
                    logger.warning("backups: none was started: %s", error)
            except Exception:
                logger.exception("backups: no look at the clock")
            finally:
                close_old_connections()

    def look(self) -> bool:
        """Start a backup if one is due. Return True if it did."""
        due = next_at_ms(schedule())
        if due is None or due > now_ms() or 0 <= now_ms() - self._tried_ms < HOUR_MS:
            return False
        runtime.window()  # raises while nothing runs
        self._tried_ms = now_ms()
        board().add(
            Job(id=new_id(), kind=KIND, who="schedule", who_kind="system", created_at_ms=now_ms(), parameters={})
        )
        return True
