"""Hours of the clock, also on days when clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from spark_reports.facts.hours import stretches

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("zone", "day", "hours", "parts"),
    [
        ("UTC", "2026-03-29", 24, 1),
        ("Europe/Berlin", "2026-03-29", 23, 2),
        ("Europe/Berlin", "2026-10-25", 25, 2),
        ("Asia/Kolkata", "2026-03-29", 24, 1),
        ("America/Sao_Paulo", "2018-11-04", 23, 1),  # the day begins at 1
        ("America/Havana", "2026-11-01", 25, 2),
        # A day longer by half an hour: two of its hours begin half an hour apart.
        ("Australia/Lord_Howe", "2026-04-05", 25, 2),
        ("Pacific/Apia", "2011-12-31", 24, 1),  # the day before was left out
    ],
)
def test_a_day_has_as_many_hours_as_its_clock_shows(zone: str, day: str, hours: int, parts: int) -> None:
    there = ZoneInfo(zone)
    begin = datetime.fromisoformat(day).replace(tzinfo=there)
    from_ms, to_ms = (int(one.astimezone(UTC).timestamp() * 1000) for one in (begin, begin + timedelta(days=1)))
    found = stretches(from_ms, to_ms, zone)
    assert len(found) == parts
    seen = set()
    for ms in range(from_ms, to_ms, 60_000):
        hour_ms = [one for one in found if one.from_ms <= ms][-1].hour(ms)
        # The time since the hour's begin is the minutes that the clock shows.
        local = datetime.fromtimestamp(ms / 1000, there)
        assert ms - hour_ms == local.minute * 60_000
        seen.add(hour_ms)
    assert len(seen) == hours
    assert min(seen) == from_ms


def test_a_stretch_begins_with_the_ms_of_the_change() -> None:
    change_ms = int(datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp() * 1000)
    found = stretches(change_ms - 5_000_001, change_ms + 1, "Europe/Berlin")
    assert [(one.from_ms, one.offset_ms) for one in found] == [
        (change_ms - 5_000_001, HOUR_MS),
        (change_ms, 2 * HOUR_MS),
    ]
    assert len(stretches(change_ms - 5_000_001, change_ms, "Europe/Berlin")) == 1
