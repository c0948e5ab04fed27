"""Members' clocks are hours apart: waiting messages come when their time has passed, whichever member leads then."""

import pytest

from appliance.engine.broker.processors import slave_tables
from appliance.engine.clock import Clock
from tests.support.engine import pull_fields, records, send_fields
from tests.support.members_of_set import Member, wait_for_same_log
from tests.support.waiting import wait_for

SEND, PULL = 310, 11
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
#: Level 9.
DELAY_MS = 5 * MINUTE_MS
#: Allowance for a request and its answer on a busy machine.
ROUND_TRIP_MS = 30_000


class SkewedClock(Clock):
    """The machine's clock, set wrong; the test can also let time pass."""

    def __init__(self, ahead_ms=0):
        self.ahead_ms = ahead_ms
        self.passed_ms = 0

    def wall_ms(self):
        return super().wall_ms() + self.ahead_ms + self.passed_ms

    def steady(self):
        return super().steady() + self.passed_ms / 1000


@pytest.fixture
def members(tmp_path):
    clocks = [SkewedClock(), SkewedClock()]
    made = [Member(tmp_path / f"m{n}", n + 1, clock=clock) for n, clock in enumerate(clocks)]
    yield *made, *clocks
    for one in reversed(made):
        one.stop()


def send_waiting(member):
    peer = member.peer()
    for body, properties in ((b"delayed", {"DELAY": "9"}), (b"timed", {"TIMER_DELAY_MS": str(DELAY_MS)})):
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        assert peer.ask(SEND, send_fields("Orders", properties=text), body).code == 0


def bodies(member):
    return sorted(one.body for one in records(member.peer().ask(PULL, pull_fields("Orders", 0, 0)).body))


def left_ms(member):
    """Return (delayed, timed): how long each still has to wait, as its new leader sees it."""
    broker = member.engine.broker
    delayed, timers = broker.delays.deliver, broker.timers.deliver
    wait_for(lambda: timers.is_ready and timers.next_due_ms is not None, "the schedule to be read")
    level = delayed._levels[9]
    wait_for(lambda: level.next_ms is not None, "the level to be looked at")
    return level.next_ms - delayed._time.now_ms(), timers.next_due_ms - timers.now_ms()


@pytest.mark.parametrize("hours", [1, -1])
def test_what_waits_comes_after_its_delay_at_a_leader_whose_clock_is_wrong(members, hours):
    one, two, _, second = members
    second.ahead_ms = hours * HOUR_MS
    one.lead(1)
    send_waiting(one)
    two.follow(one, 1)
    one.await_only(two)
    wait_for_same_log(one, two)
    wait_for(lambda: two.store.clock_steps.ahead_ms(0), "the leader's clock")
    assert abs(two.store.clock_steps.ahead_ms(0) - hours * HOUR_MS) < ROUND_TRIP_MS
    one.brokers.fence("a test")
    two.lead(2)
    for left in left_ms(two):
        assert DELAY_MS - ROUND_TRIP_MS < left <= DELAY_MS + ROUND_TRIP_MS
    assert bodies(two) == []
    second.passed_ms = DELAY_MS + ROUND_TRIP_MS
    wait_for(lambda: bodies(two) == [b"delayed", b"timed"], "both to come")
    # The new leader stamps its own records by its own clock.
    assert two.store.clock_steps.ahead_ms(two.store.log.written) == 0


def test_a_leader_that_is_restarted_still_knows_the_other_clock(members):
    one, two, _, second = members
    second.ahead_ms = HOUR_MS
    one.lead(1)
    send_waiting(one)
    two.follow(one, 1)
    one.await_only(two)
    wait_for_same_log(one, two)
    wait_for(lambda: two.store.clock_steps.ahead_ms(0), "the leader's clock")
    one.brokers.fence("a test")
    for epoch in (2, 3):
        two.lead(epoch)
        assert min(left_ms(two)) > DELAY_MS - ROUND_TRIP_MS
        two.brokers.fence("once more")


def test_a_leader_that_does_not_tell_its_clock_is_followed_as_before(members, monkeypatch):
    one, two, _, _ = members
    monkeypatch.setattr(slave_tables, "CLOCK_MS", "unknown")
    one.lead(1)
    send_waiting(one)
    two.follow(one, 1)
    one.await_only(two)
    wait_for_same_log(one, two)
    wait_for(lambda: two.brokers._tables.failure is None and two.engine.broker.topics.get("Orders"), "its tables")
    one.brokers.fence("a test")
    two.lead(2)
    assert max(left_ms(two)) <= DELAY_MS + ROUND_TRIP_MS
    assert two.store.clock_steps.spans == ()


def test_a_step_that_a_follower_noted_is_not_counted_again_when_it_leads(members):
    """Its delivery never ran, so the clock that it read at its start says nothing about the log."""
    one, two, _, second = members
    one.lead(1)
    send_waiting(one)
    two.follow(one, 1)
    one.await_only(two)
    wait_for_same_log(one, two)
    wait_for(lambda: two.brokers._tables.failure is None and two.engine.broker.topics.get("Orders"), "its tables")
    second.ahead_ms = HOUR_MS
    wait_for(lambda: two.store.clock_steps.ahead_ms(0), "the step to be noted")
    one.brokers.fence("a test")
    two.lead(2)
    assert abs(two.store.clock_steps.ahead_ms(0) - HOUR_MS) < ROUND_TRIP_MS
    for left in left_ms(two):
        assert DELAY_MS - ROUND_TRIP_MS < left <= DELAY_MS + ROUND_TRIP_MS
