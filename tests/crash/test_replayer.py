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


def test_every_crash_keeps_what_was_acknowledged():
    crashes = Crashes()
    for seed in range(SEEDS):
        for synchronous in (True, False):
            crashes.run(f"{seed}", synchronous, STEPS)
    print(f"{len(crashes.seen)} distinct images, {crashes.recoveries} recoveries")
    assert len(crashes.seen) >= FLOOR


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.__name__)
def test_a_sabotaged_store_is_found_out(sabotage):
    crashes = Crashes(sabotage)
    with pytest.raises(Violation):
        for seed in range(12):
            for synchronous in (True, False):
                crashes.run(f"sabotage {seed}", synchronous, 25)
