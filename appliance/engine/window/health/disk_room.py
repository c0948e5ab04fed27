"""Use of the store's file system, and a forecast of when it will be full."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ...disk import disk_usage
from ...store.retention.clean_rules import full_share, watermarks
from ..options import Options
from ..sentences import Sentence, say
from . import limits

if TYPE_CHECKING:
    from ...broker.sampler import Sampler


class DiskFigures(NamedTuple):
    """Figures of the store's file system. free_bytes: available to this process. total_bytes: these and the used ones.
    used_percent: share of the used bytes in the total, as Apache computes it. failure: why they cannot be read."""

    total_bytes: int | None
    free_bytes: int | None
    used_percent: float | None
    failure: str | None


def disk_figures(path: str | os.PathLike[str]) -> DiskFigures:
    try:
        usage = disk_usage(path)
    except OSError as error:
        return DiskFigures(None, None, None, error.strerror or str(error))
    total = usage.total_bytes
    return DiskFigures(total, usage.free_bytes, usage.share * 100 if total else None, None)


class DiskRoom:
    """Any thread."""

    def __init__(self, options: Options, sampler: Sampler, log_bytes: Callable[[], int]) -> None:
        """log_bytes: returns the size of the message log's kept range."""
        # Constant after construction.
        self._log_bytes = log_bytes
        self._options = options
        self._sampler = sampler

    def figures(self) -> DiskFigures:
        return disk_figures(self._options.config.store_dir)

    def until_forced(self) -> tuple[float, float] | None:
        """Return (bytes that may still be written before log files are deleted whatever their age, bytes written a
        second); None if that is switched off, or not known. The first is below zero once they are deleted."""
        config = self._options.config.store
        disk, force = self.figures(), watermarks(config).force
        rate = self._sampler.total_rate("log", limits.DISK_SAMPLES)
        if not config.clean_file_forcibly_enable or force >= 1 or rate is None:
            return None
        if disk.total_bytes is None or disk.free_bytes is None:
            return None
        return disk.free_bytes - disk.total_bytes * (1 - force), rate

    def full_at_ms(self, disk: DiskFigures) -> tuple[int | None, Sentence | None]:
        """Return (wall ms when the disk reaches `full_share` at the rate of the last 10 min, reason if that is not
        known)."""
        if disk.total_bytes is None or disk.free_bytes is None:
            return None, say("disk_unreadable", reason=disk.failure or "no broker runs here")
        rate = self._sampler.total_rate("log", limits.DISK_SAMPLES)
        if rate is None:
            return None, say("not_measured_yet")
        room = disk.free_bytes - disk.total_bytes * (1 - full_share(self._options.config.store))
        if rate <= 0 or room / rate > limits.DISK_FORECAST_DAYS * 86_400:
            return None, say("disk_not_filling")
        held = self._log_bytes()
        if room > 0 and rate * self._options.config.store.file_reserved_time_hours * 3600 - held < room:
            return None, say("disk_kept_by_retention")
        return int((time.time() + max(0.0, room) / rate) * 1000), None
