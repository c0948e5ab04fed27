"""Decides which day's reports are due. It goes by days and not by moments, so that neither daylight saving time nor a
jump of the clock makes a day's reports twice or never."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from spark_reports.facts.hours import day_bounds

#: After RocketBox was stopped for a while, the reports of at most this many days are made up for, the newest.
MOST_CAUGHT_UP = 7
#: The schedule tries to make a day's reports at most TRIES times, with AGAIN_MS between two tries.
TRIES = 3
AGAIN_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Known:
    """is_made: returns True if a day's reports exist and were made when the day was over. tries: returns the times, in
    ms, at which the schedule tried to make them. earliest_ms: store time of the log's first message, None without
    one."""

    is_made: Callable[[str], bool]
    tries: Callable[[str], Sequence[int]]
    earliest_ms: int | None


def newest_day(now_ms: int, at: str, zone: ZoneInfo) -> str:
    """Return the last day whose reports are due: a day's are due at "HH:MM" of the next day. A time that the clocks
    skip counts once they have skipped it; one that they show twice counts the first time."""
    now = datetime.fromtimestamp(now_ms / 1000, zone)
    due = datetime.combine(now.date(), time.fromisoformat(at), zone)
    back = 1 if now_ms >= due.timestamp() * 1000 else 2
    return (now.date() - timedelta(back)).isoformat()


def next_at_ms(now_ms: int, at: str, zone: ZoneInfo) -> int:
    """Return the next time at which the schedule makes reports, in ms."""
    today = datetime.fromtimestamp(now_ms / 1000, zone).date()
    moments = (
        int(datetime.combine(today + timedelta(n), time.fromisoformat(at), zone).timestamp() * 1000) for n in range(3)
    )
    return next(moment for moment in moments if moment > now_ms)


def due_day(now_ms: int, at: str, zone: ZoneInfo, known: Known, keep_days: int = MOST_CAUGHT_UP) -> str | None:
    """Return the day whose reports are to be made now: the oldest one that lacks reports and still has messages in the
    log, since later reports compare themselves with it. None if no day is due. keep_days: reports of older days would
    be removed at once, so they are not made."""
    if known.earliest_ms is None:
        return None
    newest = datetime.fromisoformat(newest_day(now_ms, at, zone)).date()
    for back in range(min(MOST_CAUGHT_UP, keep_days) - 1, -1, -1):
        day = (newest - timedelta(back)).isoformat()
        if day_bounds(day, str(zone))[1] <= known.earliest_ms or known.is_made(day):
            continue
        tries = known.tries(day)
        # A try in the future does not hold the day back: it was made while the clock was wrong.
        if len(tries) < TRIES and not any(0 <= now_ms - at_ms < AGAIN_MS for at_ms in tries):
            return day
    return None
