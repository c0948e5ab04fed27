"""Rules for deleting: the hours, and the stages of a disk that fills up; `clock.py` has the time of ages.

Source: RocketMQ `DefaultMessageStore.CleanCommitLogService`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...config import parse_hours
from ...named_tuple import NamedTuple

if TYPE_CHECKING:
    from ...config import StoreConfig

HOUR_MS = 3_600_000


class Watermarks(NamedTuple):
    """Shares of the disk in use above which expired files go at any hour, any file goes, or sends are refused."""

    clean: float
    force: float
    refuse: float


def watermarks(options: StoreConfig) -> Watermarks:
    """Return the stages in force. Lower bounds are Apache's; 100 switches either of the last two off."""
    clean = min(max(options.disk_max_used_space_ratio, 10), 95) / 100
    force = max(options.disk_space_clean_forcibly_ratio, 30) / 100
    refuse = max(options.disk_space_warning_level_ratio, 35) / 100
    return Watermarks(clean, force, refuse)


def full_share(options: StoreConfig) -> float:
    """Return the share of the disk from which messages are deleted before their time, or sends are refused; 1 if that
    never happens."""
    stages = watermarks(options)
    return min(stages.force if options.clean_file_forcibly_enable else 1.0, stages.refuse, 1.0)


def is_cleaning_hour(delete_when: str, now_ms: int) -> bool:
    """True if the local hour is one of `deleteWhen`."""
    return time.localtime(now_ms / 1000).tm_hour in parse_hours(delete_when)
