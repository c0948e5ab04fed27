"""Limits of guessing a secret: counts for each address and user, in a table that is bounded."""

from __future__ import annotations

import pytest

from appliance.engine.access import gate
from appliance.engine.access.gate import Failures
from tests.support.clock import FakeClock

HERE, THERE = b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def fail(failures: Failures, times: int, address: bytes = HERE, name: str = "ann") -> None:
    for _ in range(times):
        failures.add(address, name)


def test_ten_in_a_minute_are_too_many_for_this_user_at_this_address_for_a_minute(clock):
    failures = Failures(clock)
    fail(failures, 9)
    assert not failures.are_too_many(HERE, "ann")
    clock.advance(59_000)
    fail(failures, 1)
    assert failures.are_too_many(HERE, "ann")
    assert not failures.are_too_many(THERE, "ann"), "nobody locks a user out everywhere"
    assert not failures.are_too_many(HERE, "bob")
    clock.advance(59_000)
    assert failures.are_too_many(HERE, "ann")
    clock.advance(1000)
    assert not failures.are_too_many(HERE, "ann")
    fail(failures, 9)
    assert not failures.are_too_many(HERE, "ann"), "a new minute begins"


def test_ten_in_more_than_a_minute_are_not_too_many(clock):
    failures = Failures(clock)
    fail(failures, 9)
    clock.advance(60_000)
    fail(failures, 9)
    assert not failures.are_too_many(HERE, "ann")


def test_the_table_is_bounded_and_the_oldest_go(clock, monkeypatch):
    monkeypatch.setattr(gate, "_MOST_FAILING", 50)
    failures = Failures(clock)
    for number in range(500):
        fail(failures, 10, number.to_bytes(4, "big"))
    assert len(failures._found) == 50
    assert failures.are_too_many((499).to_bytes(4, "big"), "ann")
    assert not failures.are_too_many((0).to_bytes(4, "big"), "ann")
