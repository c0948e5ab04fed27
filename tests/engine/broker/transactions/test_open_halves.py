"""Open half messages and their due times, alone: whatever times and groups are asked for."""

from __future__ import annotations

import random
import sys
import time
import timeit

from appliance.engine.broker.transactions.open_halves import MOST_CHECKS, MOST_PARKED_GROUPS, PAGE, STEP_MS, OpenHalves

DAY_MS = 86_400_000


def test_far_times_cost_no_bucket_each():
    """A producer may ask for any immunity."""
    chance = random.Random(1)
    halves = OpenHalves()
    halves.is_due(0)
    for offset in range(50_000):
        halves.open(offset, chance.choice((10**4, 10**6, 10**8, 10**10, 10**21)) * chance.random())
    assert len(halves._buckets) < 12_000
    assert halves.count == 50_000


def test_nothing_is_due_before_its_time_and_little_late():
    chance = random.Random(2)
    halves = OpenHalves()
    halves.is_due(0)
    due = {offset: chance.random() * 10 ** chance.randrange(3, 9) for offset in range(3000)}
    for offset, due_ms in due.items():
        halves.open(offset, due_ms)
    now_ms, seen = 0.0, set()
    for now_ms in sorted(due.values()):
        now_ms += 60_000 + STEP_MS
        while found := halves.take_due(now_ms, 64):
            assert all(due[offset] <= now_ms for offset in found)
            seen |= set(found)
        assert all(offset in seen for offset, due_ms in due.items() if due_ms <= now_ms - 60_000 - STEP_MS)
    assert len(seen) == 3000


def test_near_times_are_kept_to_a_step():
    halves = OpenHalves()
    for offset, due_ms in enumerate((100.0, 149.0, 5_001.0, 59_000.0)):
        halves.open(offset, due_ms)
        assert not halves.is_due(due_ms - 1)
        assert halves.take_due(due_ms + STEP_MS, 1) == [offset]


def test_one_that_moves_keeps_its_time():
    halves = OpenHalves()
    halves.is_due(0)
    halves.open(7, 5000.0, 1)
    halves.move(7, 20, 2)
    halves.move(20, 30, 3)
    assert (halves.count, halves.checks(7), halves.checks(20), halves.checks(30)) == (1, None, None, 3)
    assert len(halves._moved) == len(halves._entries) == 1, "a half that moves for ever takes no more memory"
    assert halves.due_times({30}) == {30: 5000.0 + STEP_MS}
    assert halves.take_due(4999.0, 9) == []
    assert halves.take_due(5000.0 + STEP_MS, 9) == [30]
    assert halves._moved == halves._entries == {}, "nothing is kept of it"
    halves.wait(30, 9000.0)
    halves.move(30, 40, 3)
    halves.close(40)
    assert halves.take_due(9000.0 + STEP_MS, 9) == []
    assert halves._moved == halves._entries == {}


def test_one_that_moves_goes_on_waiting_for_its_producers():
    halves = OpenHalves()
    halves.open(7, 0.0)
    assert halves.take_due(STEP_MS, 9) == [7]
    halves.park(7, "G")
    halves.move(7, 20, 0)
    assert halves.parked_among("G", {20, 21}) == {20}
    assert halves.open_parked("G") == (1, 20)
    halves.open(8, 0.0)
    assert halves.take_due(STEP_MS, 9) == [8]
    halves.park(8, "G")
    assert halves.open_parked("G") == (2, 8), "it is not forgotten as one that was decided"
    halves.unpark("G", 100.0)
    assert sorted(halves.take_due(200.0, 9)) == [8, 20]


def test_before_anybody_looked_a_steady_clock_says_nothing():
    """A steady clock starts at an arbitrary number."""
    halves = OpenHalves()
    halves.open(7, 10_000_200.0)
    assert halves.take_due(10_000_200.0 + STEP_MS, 1) == [7]


def test_what_is_farther_than_anything_is_looked_at_after_days():
    halves = OpenHalves()
    halves.is_due(0)
    halves.open(7, 1e21)
    assert halves.take_due(3 * DAY_MS, 1) == []
    assert halves.take_due(5 * DAY_MS, 1) == [7]


def test_groups_that_are_waited_for_are_bounded():
    halves = OpenHalves()
    for number in range(MOST_PARKED_GROUPS + 1):
        halves.open(number, 1e9)
    for number in range(MOST_PARKED_GROUPS):
        assert halves.park(number, f"G{number}")
    assert not halves.park(MOST_PARKED_GROUPS, "one more")
    assert halves.park(MOST_PARKED_GROUPS, "G1"), "a group that is known takes any number"
    assert halves.unpark("G1", 0) == 2
    assert halves.park(5, "one more")


def test_a_hundred_thousand_cost_a_megabyte():
    halves = OpenHalves()
    for offset in range(100_000):
        halves.open(offset, offset / 10)
    size = sum(sys.getsizeof(page.states) for page in halves._pages.values())
    size += sum(sys.getsizeof(bucket) for bucket in halves._buckets.values())
    assert size < 1_200_000


def test_open_ones_from_anywhere_on():
    chance = random.Random(3)
    halves = OpenHalves()
    offsets = sorted({chance.choice((chance.randrange(3 * PAGE), chance.randrange(40 * PAGE))) for _ in range(2000)})
    for offset in offsets:
        halves.open(offset, 0, chance.randrange(MOST_CHECKS + 1))
    for begin in (0, 1, PAGE - 1, PAGE, offsets[700], offsets[700] + 1, 39 * PAGE, 41 * PAGE):
        for count in (1, 64, 5000):
            assert halves.all(begin, count) == [one for one in offsets if one >= begin][:count]


def test_few_among_many_pages_are_found_soon():
    """remoting-io does the search: one open half message in each of a thousand pages."""
    halves = OpenHalves()
    for number in range(1000):
        halves.open(number * PAGE + 4000, 0)
    own_time = {"number": 1, "timer": time.thread_time}
    took = min(timeit.repeat(lambda: halves.all(0, 64), repeat=20, **own_time))
    states = bytes(64 * PAGE)
    one_by_one = min(timeit.repeat(lambda: [i for i, state in enumerate(states) if state], repeat=5, **own_time))
    assert took < one_by_one / 4


def test_a_group_that_never_comes_keeps_only_what_is_open():
    halves = OpenHalves()
    for offset in range(20_000):
        halves.open(offset, 0)
        assert halves.park(offset, "G")
        if offset % 100:
            halves.close(offset)
    [(_, parked)] = halves.parked_groups()
    assert parked < 1000
    assert halves.unpark("G", 0) == parked
    halves.is_due(1e9)
    found: set[int] = set()
    while halves.is_due(1e9):
        found |= set(halves.take_due(1e9, 64))
    assert found == set(range(0, 20_000, 100))
