"""Power cuts and kills at every operation of seeded lives, in recovery too: nothing acknowledged is lost or altered."""

import logging

import pytest

from tests.crash.crashes import Crashes
from tests.crash.life import Violation
from tests.crash.sabotage import SABOTAGES

SEEDS = 12
STEPS = 40
#: Distinct disk images over all seeds and both flush modes; what the seeds give is a tenth more.
FLOOR = 10_000


@pytest.fixture(autouse=True)
def _quiet():
    """Recovery reports each of thousands of cut tails."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run_lives(crashes, name, count, steps):
    for seed in range(count):
        for synchronous in (True, False):
            crashes.run(f"{name} {seed}", synchronous, steps)


def test_every_crash_keeps_what_was_acknowledged():
    crashes = Crashes()
    run_lives(crashes, "life", SEEDS, STEPS)
    print(f"{len(crashes.seen)} distinct images, {crashes.recoveries} recoveries")
    assert len(crashes.seen) >= FLOOR


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.__name__)
def test_a_sabotaged_store_is_found_out(sabotage):
    with pytest.raises(Violation):
        run_lives(Crashes(sabotage), "sabotage", 12, 25)
