"""Leases of queues."""

import pytest

from appliance.engine.broker.queue_locks import LEASE_S, MessageQueue, RebalanceLockManager
from appliance.engine.clock import FakeClock

A, B = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def locks(clock):
    return RebalanceLockManager(clock)


def test_a_queue_is_held_by_one_client_of_a_group(locks):
    assert locks.lock("g", "c1", [A]) == [A]
    assert locks.lock("g", "c2", [A, B]) == [B]
    assert locks.lock("h", "c2", [A]) == [A]
    assert locks.owner("g", A) == "c1"
    assert locks.owner("g", B) == "c2"


def test_a_lease_ends_60_seconds_after_its_last_renewal(locks, clock):
    locks.lock("g", "c1", [A])
    clock.advance(ms=40_000)
    assert locks.lock("g", "c1", [A]) == [A]
    clock.advance(ms=59_999)
    assert locks.lock("g", "c2", [A]) == []
    assert locks.is_locked("g")
    clock.advance(ms=1)
    assert not locks.is_locked("g")
    assert locks.owner("g", A) is None
    assert locks.lock("g", "c2", [A]) == [A]
    assert locks.lock("g", "c1", [A]) == []


def test_only_the_owner_gives_a_queue_back(locks):
    locks.lock("g", "c1", [A])
    locks.unlock("g", "c2", [A])
    locks.unlock("nobody", "c1", [A])
    assert locks.lock("g", "c2", [A]) == []
    locks.unlock("g", "c1", [A, B])
    assert not locks.is_locked("g")
    assert locks.lock("g", "c2", [A]) == [A]


def test_leases_that_ran_out_do_not_pile_up(locks, clock):
    for number in range(5000):
        locks.lock(f"g{number}", "c", [MessageQueue("T", "b", number)])
        clock.advance(ms=100)
    assert len(locks._groups) <= 2 * 1024
    assert locks._count == sum(map(len, locks._groups.values()))
    assert locks.owner("g4999", MessageQueue("T", "b", 4999)) == "c"


def test_the_sweep_keeps_what_is_alive(locks, clock):
    held = [MessageQueue("T", "b", number) for number in range(1500)]
    assert locks.lock("g", "c", held) == held
    assert all(locks.owner("g", queue) == "c" for queue in held)
    clock.advance(ms=int(LEASE_S * 1000))
    locks.lock("h", "c", held * 2)
    assert "g" not in locks._groups
