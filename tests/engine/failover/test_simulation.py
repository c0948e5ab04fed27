"""A broker set of two or three members with everything that may happen to it, by the seed.

One seed again, with what was decided: python -m tests.engine.failover.simulation SEED [SABOTAGE] [--async]
"""

from __future__ import annotations

import itertools

import pytest

from appliance.engine.failover import machine
from appliance.engine.failover.decision import Wish
from tests.engine.failover.simulation.faults import one_round
from tests.engine.failover.simulation.oracle import Violation
from tests.engine.failover.simulation.world import SABOTAGES, World

#: Seeds tried for each sabotage; one that none of them finds counts as not found.
MOST_SEEDS = 1000


def command(seed: int, sabotage: str, synchronous: bool) -> str:
    words = ["python -m tests.engine.failover.simulation", str(seed)]
    return " ".join(words + [f"'{sabotage}'"] * bool(sabotage) + ["--async"] * (not synchronous))


@pytest.mark.parametrize(("synchronous", "least"), [(True, 800_000), (False, 300_000)])
def test_nothing_acknowledged_is_lost_and_the_set_comes_back(synchronous, least):
    steps = published = turns = 0
    for seed in itertools.count():
        try:
            world = one_round(seed, "", synchronous)
        except Exception as error:
            raise AssertionError(f"{error!r}; again: {command(seed, '', synchronous)}") from error
        steps, turns, published = steps + world.steps, turns + world.turns, published + len(world.oracle.shown)
        if steps >= least:
            break
    assert published > least / 100, "a set that accepts nothing loses nothing"
    assert turns > least / 20


@pytest.mark.parametrize("sabotage", [name for name in SABOTAGES if name != "beat without the disk"])
def test_a_planted_mistake_is_found_by_what_is_lost(sabotage, monkeypatch):
    monkeypatch.setattr(machine, "check", lambda *_: None)
    for seed in range(MOST_SEEDS):
        try:
            one_round(seed, sabotage, sabotage != "wall clock")
        except Violation as violation:
            if "nobody accepts" not in str(violation):
                return
    raise AssertionError(f"{MOST_SEEDS} rounds did not find it")


def test_a_round_is_its_seed_alone():
    assert one_round(7).happened == one_round(7).happened


def set_with_a_leader(sabotage: str = "", synchronous: bool = True) -> World:
    world = World(3, sabotage, synchronous, members=3)
    world.store.lost = world.store.stale = world.store.late = 0.0
    world.advance(5.0)
    assert leader_of(world).in_sync() == ("m1", "m2", "m3")
    return world


def leader_of(world: World):
    (leader,) = (member for member in world.members if member.role == "leader")
    return leader


@pytest.mark.parametrize("sabotage", ["", "beat without the disk"])
def test_a_leader_whose_disk_hangs_gives_way(sabotage):
    world = set_with_a_leader(sabotage)
    world.members[0].stalled_until = world.now + 60
    if sabotage:
        with pytest.raises(Violation):
            world.expect_a_leader(20)
    else:
        world.expect_a_leader(12)
        assert leader_of(world) is not world.members[0]


@pytest.mark.parametrize("synchronous", [True, False])
def test_a_killed_leader_is_replaced(synchronous):
    world = set_with_a_leader(synchronous=synchronous)
    world.members[0].kill()
    # A closed port shows this to a synchronous set at once; an asynchronous one waits.
    world.advance(1.5 if synchronous else 8.0)
    assert leader_of(world) is not world.members[0]


def test_a_machine_without_power_is_replaced_in_time():
    world = set_with_a_leader()
    world.cuts.update(("m1", other) for other in ("m2", "m3", "store"))
    world.cuts.update((other, "m1") for other in ("m2", "m3", "store"))
    world.advance(3.5)
    assert {member.uuid for member in world.members if member.role == "leader"} - {"m1"}


def test_a_switch_goes_to_whom_it_names():
    world = set_with_a_leader()
    world.members[0].wish = Wish("switch", "m3")
    world.advance(1.5)
    assert leader_of(world).uuid == "m3"
    assert [answer.done for answer in world.members[0].answers] == [True]
    world.expect_a_leader(5)
    assert leader_of(world).in_sync() == ("m3", "m1", "m2")


def test_a_store_that_is_away_stops_no_synchronous_set():
    world = set_with_a_leader()
    world.store.up = False
    world.advance(30.0)
    shown = len(world.oracle.shown)
    world.advance(10.0)
    assert len(world.oracle.shown) > shown + 20
    world.store.up = True
    world.advance(10.0)
    assert leader_of(world).leads == 1, "nobody was elected meanwhile"


def test_a_store_that_is_away_stops_an_asynchronous_set():
    world = set_with_a_leader(synchronous=False)
    world.store.up = False
    world.advance(6.0)
    assert not [member for member in world.members if member.role == "leader"]
    world.store.up = True
    world.expect_a_leader(12)


def test_a_store_that_takes_no_writes_elects_nobody_and_stops_no_synchronous_set():
    world = set_with_a_leader()
    world.store.full = True
    world.advance(30.0)
    shown = len(world.oracle.shown)
    world.advance(10.0)
    assert len(world.oracle.shown) > shown + 20
    world.members[0].kill()
    world.advance(10.0)
    assert not [member for member in world.members if member.role == "leader"]
    world.store.full = False
    world.expect_a_leader(12)
    assert world.store.state is not None
    assert world.store.state.epoch == 2, "one was elected, once"


def test_a_store_that_takes_no_writes_stops_an_asynchronous_set():
    world = set_with_a_leader(synchronous=False)
    world.store.full = True
    world.advance(8.0)
    assert not [member for member in world.members if member.role == "leader"]
    world.store.full = False
    world.expect_a_leader(12)


@pytest.mark.parametrize("gone", [True, False])
def test_a_wiped_or_restored_store_elects_nobody(gone):
    world = set_with_a_leader()
    world.members[0].kill()
    world.advance(4.0)
    first = next(state for state, _ in world.store.history if state is not None and state.epoch == 1)
    world.store.revision += 1
    world.store.state = None if gone else first
    world.store.history.clear()
    world.store.history.append((world.store.state, world.store.revision))
    world.advance(1.0)
    leader = leader_of(world)
    leader.kill()
    world.advance(20.0)
    assert not [member for member in world.members if member.role == "leader"]
    (left,) = (member for member in world.members if member.running)
    assert left.memory.role == "frozen"
    for member in world.members:
        if not member.running:
            member.start()
    world.advance(5.0)
    assert not [member for member in world.members if member.role == "leader"]
    assert leader.memory.role == "frozen"
    leader.wish = Wish("adopt")
    world.expect_a_leader(10)
    assert leader_of(world) is leader
    assert leader.leads == 3


def test_a_set_with_one_in_sync_waits_for_it():
    world = set_with_a_leader()
    for member in world.members[1:]:
        member.kill()
    world.advance(4.0)
    assert leader_of(world).in_sync() == ("m1",)
    world.members[0].kill()
    for member in world.members[1:]:
        member.start()
    world.advance(15.0)
    assert not [member for member in world.members if member.role == "leader"]
    world.members[1].wish = Wish("force")
    world.advance(3.0)
    assert leader_of(world) is world.members[1]
    assert world.store.state is not None
    assert world.store.state.elections[-1].lost_bound > 0


def test_a_slow_disk_holds_a_set_up_for_a_while_only():
    world = set_with_a_leader()
    slow = world.members[2]
    slow.sync_s = 1.0
    world.advance(8.0)
    assert leader_of(world).in_sync() == ("m1", "m2")
    assert slow.link is not None, "it goes on copying"
    world.advance(30.0)
    assert leader_of(world).in_sync() == ("m1", "m2"), "and is not tried while it is slow"
    slow.sync_s = 0.0
    world.advance(16.0)
    assert leader_of(world).in_sync() == ("m1", "m2", "m3")


def test_a_set_that_needs_its_slow_disk_waits_for_it():
    world = set_with_a_leader()
    for uuid, rules in world.rules.items():
        world.rules[uuid] = rules._replace(min_in_sync=3)
    world.members[2].sync_s = 1.0
    world.advance(30.0)
    assert leader_of(world).in_sync() == ("m1", "m2", "m3")
    assert len(world.oracle.shown) > 20
