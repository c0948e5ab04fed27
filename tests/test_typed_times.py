"""Times as people type them: the forms that are read, their zone, and texts that are no time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from appliance.typed_times import EXAMPLES, milliseconds_of

BERLIN = ZoneInfo("Europe/Berlin")
#: A Saturday, 15:30:20.5 in Berlin.
NOW = 1795271420500


def said(text: str, zone: ZoneInfo = BERLIN, now_ms: int = NOW) -> str:
    """Return the moment that the text means, as ISO text in the zone."""
    found = datetime.fromtimestamp(milliseconds_of(text, now_ms, zone) / 1000, zone)
    return found.isoformat(" ", "milliseconds").removesuffix(".000" + found.isoformat()[-6:])


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-21 13:34:32", "2026-11-21 13:34:32"),
        ("2026-11-21T13:34", "2026-11-21 13:34:00"),
        (" 2026-11-21   9:05 ", "2026-11-21 09:05:00"),
        ("2026-11-21", "2026-11-21 00:00:00"),
        ("2026-11-21t13:34:32z", "2026-11-21 14:34:32"),
        ("2026-11-21 13:34:32 UTC", "2026-11-21 14:34:32"),
        ("2026-11-21T13:34:32+08:00", "2026-11-21 06:34:32"),
        ("10:00", "2026-11-21 10:00:00"),
        ("9:05:07", "2026-11-21 09:05:07"),
        ("23:00", "2026-11-21 23:00:00"),
        ("10:00 UTC", "2026-11-21 11:00:00"),
        ("today", "2026-11-21 00:00:00"),
        ("Yesterday 18:00", "2026-11-20 18:00:00"),
        ("yesterday", "2026-11-20 00:00:00"),
        ("tomorrow 9:00", "2026-11-22 09:00:00"),
        ("now", "2026-11-21 15:30:20"),
        ("1 h ago", "2026-11-21 14:30:20"),
        ("1h ago", "2026-11-21 14:30:20"),
        ("an hour ago", "2026-11-21 14:30:20"),
        ("1.5 hours ago", "2026-11-21 14:00:20"),
        ("1 h 30 min ago", "2026-11-21 14:00:20"),
        ("90m ago", "2026-11-21 14:00:20"),
        ("2 days ago 10:00", "2026-11-19 10:00:00"),
        ("2 days ago", "2026-11-19 15:30:20"),
        ("a week ago", "2026-11-14 15:30:20"),
        ("in 10 min", "2026-11-21 15:40:20"),
        ("in 2 days 08:00", "2026-11-23 08:00:00"),
        ("昨天 18:00", "2026-11-20 18:00:00"),
        ("昨天18:00", "2026-11-20 18:00:00"),
        ("今天", "2026-11-21 00:00:00"),
        ("2小时前", "2026-11-21 13:30:20"),
        ("1 小时 30 分钟前", "2026-11-21 14:00:20"),
        ("2 天前 10:00", "2026-11-19 10:00:00"),
        ("10 分钟后", "2026-11-21 15:40:20"),
    ],
)
def test_what_people_type(text, at):
    assert said(text) == at


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_examples_of_hints_are_times(text):
    assert said(text)


@pytest.mark.parametrize(
    "text",
    ["", " ", "soon", "h ago", "1 ago", "1 h", "in 1 h ago", "ago", "1 parsec ago", "1 h ago 10:00", "now 10:00",
     "24:00", "10:60", "2026-13-01", "2026-02-30 10:00", "2026-11-21T13:34:32+25:00", "20261121T133432Z", "2026-W01-1",
     "1969-12-31T23:59:59Z", "999999999 weeks ago", "60 weeks 999999 days ago", "yesterday today", "²026-11-21",
     "1 h ago" * 20, "-5", "<b>", "10:00:00.", "a" * 65],
)  # fmt: skip
def test_what_is_no_time(text):
    with pytest.raises(ValueError):
        milliseconds_of(text, NOW, BERLIN)


def test_a_day_is_the_calendars_and_an_hour_the_clocks():
    monday = int(datetime(2026, 3, 30, 12, tzinfo=BERLIN).timestamp() * 1000)  # the clocks went on in the night before
    assert said("2 days ago", now_ms=monday) == "2026-03-28 12:00:00"
    assert said("48 h ago", now_ms=monday) == "2026-03-28 11:00:00"


def test_today_is_that_of_the_zone():
    evening = int(datetime(2026, 11, 21, 20, tzinfo=UTC).timestamp() * 1000)
    assert said("10:00", ZoneInfo("Asia/Shanghai"), evening) == "2026-11-22 10:00:00"
    assert said("10:00", ZoneInfo("UTC"), evening) == "2026-11-21 10:00:00"


def test_without_a_zone_it_is_the_machines(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert milliseconds_of("2026-11-21 21:34:32", NOW, None) == 1795268072000
        assert milliseconds_of("22:30:20", NOW, None) == NOW - 500
    finally:
        monkeypatch.undo()
        time.tzset()


def test_milliseconds_are_taken_as_they_are():
    assert milliseconds_of("1795268072123", NOW, BERLIN) == 1795268072123
