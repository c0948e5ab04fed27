"""Delay of a member's acknowledgements: by the spans that are timed, whatever the traffic is."""

import sys

import pytest

from appliance.engine.replication.ack_pace import FULL_S, MOST_S, NEAR_BYTES, AckPace

LIMIT_S = 0.5


class Member:
    """A member that has caught up, and a clock."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.pace, self.now, self.end = AckPace(limit_s), 100.0, 0
        self.pace.takes(0, 0, self.now)

    def passes(self, takes: float, idle: float = 0.0) -> None:
        """Send one message that is acknowledged after `takes` seconds; nothing follows for `idle` seconds."""
        self.end += 100
        self.pace.sends(self.end, self.now)
        self.now += takes
        self.pace.takes(self.end, self.end, self.now)
        self.now += idle

    def late_s(self) -> float:
        return self.pace.late_s(self.now)


@pytest.fixture
def member():
    return Member()


def test_a_disk_whose_syncs_take_a_second_is_late_all_the_time(member):
    for _ in range(9):
        member.passes(1.0)
    assert member.late_s() == pytest.approx(9.0)
    assert member.pace.took_s(member.now) == pytest.approx(1.0)


def test_pauses_between_messages_do_not_hide_it(member):
    for _ in range(30):
        member.passes(1.0, idle=0.3)
    assert member.late_s() >= FULL_S - 0.5


def test_a_disk_that_is_slow_now_and_then_is_not_slow(member):
    for _ in range(100):
        member.passes(0.9)
        for _ in range(100):
            member.passes(0.02)
    assert member.late_s() < 1


def test_time_without_late_ones_empties_it(member):
    for _ in range(5):
        member.passes(1.0)
    assert member.late_s() == pytest.approx(5.0)
    member.now += 2
    assert member.late_s() == pytest.approx(3.0)
    for _ in range(200):
        member.passes(0.02)
    assert member.late_s() == 0.0


def test_a_member_that_was_idle_owes_nothing(member):
    member.now += 3600
    member.passes(1.0)
    assert member.late_s() == pytest.approx(1.0)


def test_what_is_on_its_way_counts_when_it_is_late(member):
    member.pace.sends(100, member.now)
    assert member.pace.late_s(member.now + 0.4) == 0.0
    assert member.pace.late_s(member.now + 0.6) == pytest.approx(0.6)
    assert member.pace.took_s(member.now + 0.6) == pytest.approx(0.6)


def test_a_leader_that_stood_still_takes_nobody_for_slow(member):
    member.passes(3600.0)
    assert member.late_s() == MOST_S


def test_it_does_not_grow_for_ever(member):
    for _ in range(1000):
        member.passes(1.0)
    assert member.late_s() == FULL_S


def test_a_stream_of_messages_is_timed_as_well(member):
    """Reports come all the time, each for bytes sent a second ago."""
    for step in range(200):
        member.pace.sends(100 * (step + 10), member.now)
        member.pace.takes(100 * step, 100 * (step + 10), member.now)
        member.now += 0.1
    assert member.late_s() > FULL_S - 1


def test_who_copies_the_whole_log_is_not_late():
    member = Member()
    member.pace, size = AckPace(LIMIT_S), 1 << 30
    for step in range(100):
        member.pace.sends(size, member.now)
        member.now += 1.0
        member.pace.takes(step << 20, size, member.now)
    assert member.late_s() == 0.0
    member.pace.takes(size - NEAR_BYTES, size, member.now)
    member.pace.sends(size, member.now)
    assert member.pace.late_s(member.now + 1) == pytest.approx(1.0)


def test_without_a_limit_nothing_is_late():
    member = Member(limit_s=0.0)
    for _ in range(100):
        member.passes(1.0)
    assert member.late_s() == 0.0


def test_who_looks_while_a_report_is_taken_counts_no_span_twice(member):
    """At whatever line the other thread is."""
    for _ in range(4):
        member.passes(1.0)
    member.end += 100
    member.pace.sends(member.end, member.now)
    member.now += 1.0
    found = []

    def look(frame, event, argument):
        if frame.f_code is AckPace.takes.__code__:
            frame.f_trace_opcodes = True
            found.append(member.late_s())
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        member.pace.takes(member.end, member.end, member.now)
    finally:
        sys.settrace(before)
    assert len(found) > 10
    assert found == pytest.approx([5.0] * len(found))
