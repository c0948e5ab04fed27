"""Rounds of faults (tests/rig/rounds.py); one that fails says its seed and leaves its history and logs."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.rig.broker_set import Kind
from tests.rig.rounds import FAILOVER, PLAIN, plan, run_rounds

TORTURE = bool(os.environ.get("ROCKETBOX_TORTURE"))
ROUNDS = {Kind.PLAIN: 60 if TORTURE else 5, Kind.FAILOVER: 300 if TORTURE else 30}


@pytest.mark.parametrize("kind", ROUNDS, ids=lambda kind: kind.value)
def test_whatever_comes_nothing_acknowledged_is_lost_or_moved(tmp_path: Path, kind: Kind) -> None:
    first = int(os.environ.get("ROCKETBOX_TEST_SEED") or random.randrange(1, 1 << 30))
    print(f"ROCKETBOX_TEST_SEED={first}")
    count = ROUNDS[kind]
    acknowledged = run_rounds(kind, range(first, first + count), tmp_path)
    assert acknowledged > 100 * count


def test_a_seed_makes_one_plan_and_seeds_come_to_everything() -> None:
    assert plan(Kind.FAILOVER, 7) == plan(Kind.FAILOVER, 7)
    for kind, faults in ((Kind.PLAIN, PLAIN), (Kind.FAILOVER, FAILOVER)):
        assert {one.name for seed in range(300) for one in plan(kind, seed)} == set(faults)
