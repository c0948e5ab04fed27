"""Leases of queues."""

import time

import pytest

from appliance.engine.broker.queue_locks import LEASE_S, MOST_LEASES, MessageQueue, RebalanceLockManager
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


@pytest.fixture
def full(locks):
    """A table that one group has filled."""
    for begin in range(0, MOST_LEASES, 4000):
        locks.lock("g", "c", [MessageQueue("T", f"b{number}", 0) for number in range(begin, begin + 4000)])
    assert locks._count == MOST_LEASES
    return locks


def test_a_full_table_of_one_group_makes_no_lock_slow(full, clock):
    worst = 0.0
    for _ in range(50):
        clock.advance(ms=100)
        began = time.thread_time()
        full.lock("g", "c", [MessageQueue("T", "b1", 0)])
        worst = max(worst, time.thread_time() - began)
    assert worst < 0.01  # looking through all of them takes 0.05 s


def test_the_leases_of_a_full_group_come_free_step_by_step(full, clock):
    clock.advance(ms=int(LEASE_S * 1000))
    began = time.thread_time()
    assert not full.is_locked("g")
    worst = time.thread_time() - began
    for _ in range(MOST_LEASES // 2000 + 5):
        clock.advance(ms=100)
        began = time.thread_time()
        full.lock("h", "c", [A])
        worst = max(worst, time.thread_time() - began)
    assert worst < 0.01
    assert full._count < MOST_LEASES // 2
    assert full._count == sum(map(len, full._groups.values()))
    assert full.lock("h", "c", [A, B]) == [A, B]


def test_many_locks_at_once_look_through_the_table_once(full, clock, monkeypatch):
    looks = []
    monkeypatch.setattr(full, "_sweep_locked", looks.append)
    clock.advance(ms=1000)
    for _ in range(100):
        full.lock("g", "c", [MessageQueue("T", "b1", 0)])
    assert len(looks) == 1
