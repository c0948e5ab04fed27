"""Which day's reports are due. By days and not by moments, so that neither a change of clocks nor a jump of the clock
makes a day's reports twice or never."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from spark_reports.facts.hours import day_bounds

#: Days that are made up for after a time in which nothing ran, the newest.
MOST_CAUGHT_UP = 7
#: A day's reports that fail are tried so often by themselves, and so long apart.
TRIES = 3
AGAIN_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Known:
    """is_made: whether a day's reports are there, made when the day was over. tries: when the schedule tried to make
    them, in ms. earliest_ms: store time of the log's first message, None without one."""

    is_made: Callable[[str], bool]
    tries: Callable[[str], Sequence[int]]
    earliest_ms: int | None


def newest_day(now_ms: int, at: str, zone: ZoneInfo) -> str:
    """The last day whose reports are due at "HH:MM" of the day behind it. A time that clocks step over counts when they
    have, one that they show twice the first time."""
    now = datetime.fromtimestamp(now_ms / 1000, zone)
    due = datetime.combine(now.date(), time.fromisoformat(at), zone)
    back = 1 if now_ms >= due.timestamp() * 1000 else 2
    return (now.date() - timedelta(back)).isoformat()


def next_at_ms(now_ms: int, at: str, zone: ZoneInfo) -> int:
    """When reports are made by themselves the next time."""
    today = datetime.fromtimestamp(now_ms / 1000, zone).date()
    moments = (
        int(datetime.combine(today + timedelta(n), time.fromisoformat(at), zone).timestamp() * 1000) for n in range(3)
    )
    return next(moment for moment in moments if moment > now_ms)


def due_day(now_ms: int, at: str, zone: ZoneInfo, known: Known, keep_days: int = MOST_CAUGHT_UP) -> str | None:
    """The day whose reports are to be made now: of those that are missing, and whose messages are still there, the
    oldest, since later ones compare themselves with it. None for none. keep_days: older ones would go at once."""
    if known.earliest_ms is None:
        return None
    newest = datetime.fromisoformat(newest_day(now_ms, at, zone)).date()
    for back in range(min(MOST_CAUGHT_UP, keep_days) - 1, -1, -1):
        day = (newest - timedelta(back)).isoformat()
        if day_bounds(day, str(zone))[1] <= known.earliest_ms or known.is_made(day):
            continue
        tries = known.tries(day)
        # One of a time to come was made while the clock was wrong.
        if len(tries) < TRIES and not any(0 <= now_ms - at_ms < AGAIN_MS for at_ms in tries):
            return day
    return None
