"""The morning figures of request 28, over midnight and with a clock that is set."""

from types import SimpleNamespace
from typing import Any

import pytest

from appliance.engine.broker.stats import BrokerStats
from appliance.engine.store.message_store import MessageStore
from tests.support.clock import FakeClock
from tests.support.store import StoreUnderTest

DAY_MS = 86_400_000


class Day:
    """A broker's figures over days. put: messages so far."""

    def __init__(self, store: MessageStore) -> None:
        self.clock = FakeClock(wall_ms=20_000 * DAY_MS + DAY_MS // 2)  # noon
        self._store: Any = SimpleNamespace(
            put_count=0, put_bytes=0, failed_puts=0, disk=store.disk, paths=store.paths, log=store.log,
            published=0, index=store.index, earliest_time_ms=lambda: 0,
        )  # fmt: skip
        pull: Any = SimpleNamespace(message_count=0, found_count=0, miss_count=0)
        idle: Any = SimpleNamespace(number=0, first_ms=0)
        pool: Any = SimpleNamespace(capacity=1, waiting=lambda: idle)
        server: Any = SimpleNamespace(held_producers=lambda: idle)
        index = SimpleNamespace(indexed=SimpleNamespace(queue_offset=0))
        timers: Any = SimpleNamespace(index=index, delivered=0, pending=0)
        delays: Any = SimpleNamespace(offsets=dict)
        pools = {"pull-cold": pool, "key-query": pool}
        self._stats = BrokerStats(self._store, pull, server, pools, delays, timers, self.clock)

    def put(self, count: int) -> None:
        self._store.put_count += count

    def at(self, days: float) -> tuple[int, int]:
        """Return (yesterday's, today's messages) as mqadmin counts them, with the clock set `days` after the start."""
        wall_ms = round((20_000.5 + days) * DAY_MS)
        self.clock.jump(wall_ms - self.clock.wall_ms())
        self._stats.sample()
        found = self._stats.runtime_info()
        yesterday, today, now = (
            int(found[f"msgPutTotal{name}"]) for name in ("YesterdayMorning", "TodayMorning", "TodayNow")
        )
        return today - yesterday, now - today


@pytest.fixture
def day(tmp_path):
    under_test = StoreUnderTest(tmp_path).open()
    yield Day(under_test.store)
    under_test.stop()


def test_days_go_by(day):
    day.put(5)
    assert day.at(0) == (0, 5)
    assert day.at(1) == (5, 0)
    day.put(3)
    assert day.at(1) == (5, 3)
    assert day.at(2) == (3, 0)


def test_a_clock_that_goes_back_over_midnight_takes_nothing_from_yesterday(day):
    day.put(5)
    assert day.at(1) == (5, 0)
    day.put(2)
    day.at(0)
    day.put(1)
    assert day.at(1) == (8, 0)


def test_a_clock_that_was_a_day_ahead(day):
    day.put(5)
    day.at(1)
    day.put(2)
    assert day.at(0) == (0, 7)
    assert day.at(1) == (7, 0)


def test_a_day_that_nobody_saw_has_nothing(day):
    """The machine slept over it: messages put the day before do not count as yesterday's."""
    day.put(5)
    assert day.at(3) == (0, 0)


def test_the_same_day_of_another_year_is_another_day(day):
    day.put(5)
    assert day.at(365) == (0, 0)
