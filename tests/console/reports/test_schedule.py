"""Days whose reports are due: each day once, whatever the clocks do."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from appliance.console.reports.schedule import AGAIN_MS, MOST_CAUGHT_UP, TRIES, Known, due_day, newest_day, next_at_ms
from spark_reports.facts.hours import day_bounds, day_of

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_MS = 3_600_000
LONG_AGO = 1


def ms(text: str, zone: ZoneInfo = BERLIN) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


class Book:
    """Reports made and tried. `go` makes those that are due at a moment, as the thread does."""

    def __init__(self, earliest_ms: int | None = LONG_AGO, fails: bool = False) -> None:
        self.made: list[str] = []
        self.tried: dict[str, list[int]] = {}
        self.earliest_ms = earliest_ms
        self.fails = fails

    def go(self, now_ms: int, at: str = "02:30", zone: ZoneInfo = BERLIN) -> list[str]:
        found = []
        while True:
            known = Known(self.made.__contains__, lambda day: self.tried.get(day, []), self.earliest_ms)
            day = due_day(now_ms, at, zone, known)
            if day is None:
                return found
            found.append(day)
            self.tried.setdefault(day, []).append(now_ms)
            if not self.fails:
                self.made.append(day)


def caught_up(until: str) -> Book:
    """One of whom nothing is missing on that day."""
    book = Book()
    last = date.fromisoformat(until)
    book.made = [(last - timedelta(n)).isoformat() for n in range(1, MOST_CAUGHT_UP + 2)]
    return book


@pytest.mark.parametrize("begin", ["2026-03-26", "2026-10-22", "2026-07-01"])
@pytest.mark.parametrize("at", ["00:00", "02:00", "02:30", "03:00", "23:59"])
def test_each_day_once_over_changes_of_clocks(begin, at):
    """29 March has no 02:30 in Berlin, 25 October has it twice."""
    first = date.fromisoformat(begin)
    now, end = ms(f"{begin} 00:00"), ms(f"{first + timedelta(6)} 12:00")
    book = Book(earliest_ms=now)
    found = []
    while now < end:
        found += book.go(now, at)
        now += 600_000
    assert found == [(first + timedelta(n)).isoformat() for n in range(5 if at == "23:59" else 6)]


def test_it_is_made_when_the_time_has_come_and_not_before():
    book = caught_up("2026-06-10")
    assert book.go(ms("2026-06-11 02:29")) == []
    assert book.go(ms("2026-06-11 02:30")) == ["2026-06-10"]
    assert book.go(ms("2026-06-11 02:30")) == []


def test_after_a_time_in_which_nothing_ran_the_newest_days_are_made_up_for_oldest_first():
    found = caught_up("2026-06-01").go(ms("2026-06-30 09:00"))
    assert found == [f"2026-06-{day}" for day in range(23, 30)]
    assert len(found) == MOST_CAUGHT_UP


def test_days_without_messages_are_not_made_up_for():
    book = Book(earliest_ms=ms("2026-06-28 13:00"))
    assert book.go(ms("2026-06-30 09:00")) == ["2026-06-28", "2026-06-29"]
    assert Book(earliest_ms=None).go(ms("2026-06-30 09:00")) == []


def test_a_day_that_fails_is_tried_again_and_then_given_up():
    book = Book(earliest_ms=ms("2026-06-29 00:00"), fails=True)
    now = ms("2026-06-30 03:00")
    for _ in range(100):
        book.go(now)
        now += 300_000
    (tries,) = book.tried.values()
    assert len(tries) == TRIES
    assert all(later - earlier >= AGAIN_MS for earlier, later in pairwise(tries))


def test_a_clock_that_jumps_ahead_and_back():
    book = caught_up("2026-06-10")
    book.go(ms("2027-06-11 09:00"))
    assert book.go(ms("2026-06-11 09:00")) == ["2026-06-10"], "the days of next year do not keep from this one's"
    assert book.go(ms("2026-06-10 09:00")) == [], "set back: the day was made"
    assert book.go(ms("2026-06-11 10:00")) == []
    assert book.go(ms("2026-06-12 10:00")) == ["2026-06-11"]


def test_a_try_in_the_future_does_not_count():
    book = Book(earliest_ms=ms("2026-06-29 00:00"), fails=True)
    book.go(ms("2026-06-30 23:00"))
    assert len(book.tried["2026-06-29"]) == 1
    book.go(ms("2026-06-30 09:00"))
    assert len(book.tried["2026-06-29"]) == 2


def test_the_next_time():
    assert next_at_ms(ms("2026-06-30 01:00"), "02:30", BERLIN) == ms("2026-06-30 02:30")
    assert next_at_ms(ms("2026-06-30 02:30"), "02:30", BERLIN) == ms("2026-07-01 02:30")
    assert newest_day(ms("2026-06-30 02:29"), "02:30", BERLIN) == "2026-06-28"


@pytest.mark.parametrize(
    ("day", "zone", "hours"),
    [
        ("2026-03-29", "Europe/Berlin", 23),
        ("2026-10-25", "Europe/Berlin", 25),
        ("2026-06-30", "Asia/Kolkata", 24),
        # Clocks went forward at midnight: the day began at one.
        ("2018-11-04", "America/Sao_Paulo", 23),
        # The 30th was left out altogether, and the 29th ended where the 31st began.
        ("2011-12-29", "Pacific/Apia", 24),
    ],
)
def test_days_have_as_many_hours_as_clocks_show(day, zone, hours):
    begin, end = day_bounds(day, zone)
    assert end - begin == hours * HOUR_MS
    assert day_of(begin, ZoneInfo(zone)) == day_of(end - 1, ZoneInfo(zone)) == day
    assert day_of(begin - 1, ZoneInfo(zone)) < day < day_of(end, ZoneInfo(zone))


def test_days_of_utc():
    assert day_bounds("2026-06-30", "UTC")[0] == int(datetime(2026, 6, 30, tzinfo=UTC).timestamp() * 1000)
