"""Power cuts and kills at every operation of a cut: the tail never comes back, and nothing below it changes."""

import logging
import os

import pytest

from tests.crash.cut_life import Cuts

TIMES = 15 if os.environ.get("ROCKETBOX_TORTURE") else 1
STEPS = 25


@pytest.fixture(autouse=True)
def _quiet():
    """Each of thousands of cuts is logged."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run_cuts(cuts, name, count, steps=STEPS):
    for seed in range(count):
        cuts.run_cut(f"{name} {seed}", seed % 2 == 0, steps)


def test_every_crash_of_a_cut_leaves_all_or_nothing_of_it(record_testsuite_property):
    cuts = Cuts()
    run_cuts(cuts, "cut", 24 * TIMES)
    print(f"cuts: {len(cuts.seen)} distinct images, {cuts.recoveries} recoveries")
    record_testsuite_property("images of cuts", len(cuts.seen))
    assert len(cuts.seen) >= 1500 * TIMES
