"""Power cuts and kills at every operation of seeded lives, in recovery too: nothing acknowledged is lost or altered."""

import logging

import pytest

from tests.crash.crashes import Crashes
from tests.crash.life import Violation
from tests.crash.sabotage import SABOTAGES

SEEDS = 16
FAULTY_SEEDS = 6
STEPS = 40
#: Distinct disk images over all seeds and both flush modes.
FLOOR = 16_000
FAULTY_FLOOR = 4_000


@pytest.fixture(autouse=True)
def _quiet():
    """Recovery reports each of thousands of cut tails."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run_lives(crashes, name, count, steps, faults=False):
    for seed in range(count):
        for synchronous in (True, False):
            crashes.run(f"{name} {seed}", synchronous, steps, faults)
    print(f"{len(crashes.seen)} distinct images, {crashes.recoveries} recoveries")


def test_every_crash_keeps_what_was_acknowledged():
    crashes = Crashes()
    run_lives(crashes, "life", SEEDS, STEPS)
    assert len(crashes.seen) >= FLOOR


def test_so_it_does_when_the_disk_fails_now_and_then():
    crashes = Crashes()
    run_lives(crashes, "faulty life", FAULTY_SEEDS, STEPS, faults=True)
    assert len(crashes.seen) >= FAULTY_FLOOR


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.__name__)
def test_a_sabotaged_store_is_found_out(sabotage):
    with pytest.raises(Violation):
        run_lives(Crashes(sabotage), "sabotage", 12, 25)
