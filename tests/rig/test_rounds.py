"""Rounds of faults (tests/rig/rounds.py); one that fails reports its seed and leaves its history and logs."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.rig.broker_set import BrokerSet, Kind
from tests.rig.rounds import FAILOVER, PLAIN, Planned, RoundFailed, Rounds, plan, run_rounds
from tests.rig.sabotaged import SABOTAGES
from tests.support.effort import effort

ROUNDS = {
    Kind.PLAIN: effort(1, 3, 60),
    Kind.ASYNCHRONOUS: effort(1, 3, 60),
    Kind.FAILOVER: effort(2, 30, 300),
}
FOUND = {"acknowledge_alone": r"b\d: lost: ", "leave_the_tail": "unlike logs|after the last send|when all is well"}


@pytest.mark.parametrize("kind", ROUNDS, ids=lambda kind: kind.value)
def test_whatever_comes_nothing_acknowledged_is_lost_or_moved(tmp_path: Path, kind: Kind) -> None:
    first = int(os.environ.get("ROCKETBOX_TEST_SEED") or random.randrange(1, 1 << 30))
    print(f"ROCKETBOX_TEST_SEED={first}")
    count = ROUNDS[kind]
    acknowledged = run_rounds(kind, range(first, first + count), tmp_path, at_once=2 if count > 10 else 1)
    assert acknowledged > 100 * count


#: The leader has records that no other has, dies, and comes back while another leads.
ALONE = [Planned(0.2, 4.0, "cut_then_kill")]


@pytest.mark.parametrize("name", [pytest.param(None, marks=pytest.mark.nightly), *SABOTAGES])
def test_a_round_finds_what_is_wrong(tmp_path: Path, name: str | None) -> None:
    settings = {} if name is None else {"SABOTAGE": name}
    module = "appliance.main" if name is None else "tests.rig.sabotaged"
    with BrokerSet(tmp_path / "set", Kind.FAILOVER, settings=settings, module=module) as brokers:
        rounds = Rounds(brokers, patience_s=10.0 if name is None else 2.5)

        def rounds_until_one_fails() -> None:
            """Run rounds until one fails: usually the first or second, as a busy machine may send too little."""
            for seed in range(1, 31):
                rounds.run(seed, ALONE)

        if name is None:
            rounds.run(1, ALONE)
        else:
            with pytest.raises(RoundFailed, match=FOUND[name]):
                rounds_until_one_fails()


def test_a_seed_makes_one_plan_and_seeds_come_to_everything() -> None:
    assert plan(Kind.FAILOVER, 7) == plan(Kind.FAILOVER, 7)
    for kind, faults in ((Kind.PLAIN, PLAIN), (Kind.FAILOVER, FAILOVER)):
        assert {one.name for seed in range(300) for one in plan(kind, seed)} == set(faults)
