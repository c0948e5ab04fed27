"""Rules for deleting: the hours, the stages of a disk that fills up, and the time that ages are measured by.

Source: RocketMQ `DefaultMessageStore.CleanCommitLogService`. Differs: a clock that was set forward is not trusted at
once.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from ...clock import Clock
from ...config import parse_hours
from ...named_tuple import NamedTuple

if TYPE_CHECKING:
    from ...config import StoreConfig

logger = logging.getLogger(__name__)

HOUR_MS = 3_600_000
#: A wall clock that gains this much on the steady one between two looks was set, not slewed.
JUMP_MS = 10 * 60_000
#: A clock that was set forward is trusted after this long: time for an operator to notice and correct it.
BELIEVED_AFTER_S = 3600.0


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


class AgeClock:
    """The time that ages are measured by. Belongs to one thread.

    A clock set back is followed at once, since that keeps more. One set forward is followed only after
    BELIEVED_AFTER_S; until then time passes at the steady clock's pace, so that a wrong year deletes nothing. The same
    holds for a clock that was set while no broker ran, which looks like a long stop and is not told of.
    """

    def __init__(self, clock: Clock, seen_ms: int = 0) -> None:
        """seen_ms: newest time that an earlier process left here, by this clock; 0 if there is none."""
        self._clock = clock
        self._wall_ms = clock.wall_ms()
        self._steady = self._jumped_at = clock.steady()
        self._ahead_ms = 0
        self._is_seen = True
        if 0 < seen_ms < self._wall_ms - JUMP_MS:
            self._ahead_ms, self._wall_ms, self._is_seen = self._wall_ms - seen_ms, seen_ms, False

    @property
    def ahead_ms(self) -> int:
        """Distance of the wall clock ahead of the time used, if it was seen to be set; 0 while it is trusted."""
        return self._ahead_ms if self._is_seen else 0

    def now_ms(self) -> int:
        """Return milliseconds since the epoch. To be called regularly, so that drift is not taken for a jump."""
        wall_ms, steady = self._clock.wall_ms(), self._clock.steady()
        expected_ms = self._wall_ms + int((steady - self._steady) * 1000)
        ahead_ms = wall_ms - expected_ms
        if ahead_ms > JUMP_MS:
            if abs(ahead_ms - self._ahead_ms) > JUMP_MS:
                logger.warning(
                    "cleaner: the clock was set %d s forward; ages do not follow before it has stayed so for %d s",
                    ahead_ms // 1000,
                    BELIEVED_AFTER_S,
                )
                self._ahead_ms, self._jumped_at, self._is_seen = ahead_ms, steady, True
            if steady - self._jumped_at < BELIEVED_AFTER_S:
                return expected_ms
            if self._is_seen:
                logger.warning("cleaner: the clock is believed from now on")
        self._wall_ms, self._steady, self._ahead_ms = wall_ms, steady, 0
        return wall_ms
