"""Operators, time and bad luck: restarts, kills, steps of the clock, disks that fill up, moments that pass."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.crash.replayer import MODES
from tests.world.actors import producers
from tests.world.actors.kind import Act, Kind
from tests.world.disk import CAPACITY
from tests.world.oracle import LATE_S, Violation

if TYPE_CHECKING:
    from tests.world.world import World

STEPS_MS = (-3_600_000, -600_000, -3000, -300, 300, 3000, 600_000, 3_600_000)
#: NTP slews by 0.0005 at most; the others are clocks of bad machines, and the broker takes them for many steps.
RATES = (1.0, 1.0, 0.9995, 1.0005, 0.998, 1.002, 0.97, 1.03, 0.7, 1.3)
#: A disk with more than this takes no messages, and in so many seconds its first file goes, whatever waits there.
REFUSES, FREED_S = 0.95, 16.0
#: A story goes on so long at its end for what waits; it takes the shorter time where nothing does.
SETTLED_S, SOON_S = 30.0, 6.0


def _wait(world: World, act: Act) -> str:
    world.pass_time(act["seconds"])
    return ""


def _clock(world: World, act: Act) -> str:
    world.scheduler.wall.step(act["ms"])
    world.pass_time(act["then"])
    return ""


def _make_clock_twice(chance: random.Random, before: list[Act]) -> Act:
    first = chance.choice(STEPS_MS)
    return {
        "idle": chance.choice((0.0, 0.5, 4.0)), "ms": [first, chance.choice((-first, chance.choice(STEPS_MS)))],
        "between": chance.choice((0.0, 0.01, 0.05, 0.3, 0.9)),
        "messages": [producers.one(chance), {"topic": "A", "queue": 0, "level": chance.randint(1, 3)}],
    }  # fmt: skip


def _clock_twice(world: World, act: Act) -> str:
    """The clock is set twice between two looks of the broker at it; messages come in between. What was idle before
    stamps them by the first step, since store times do not go back."""
    world.pass_time(act["idle"])
    if world.machine.killed:
        return ""
    world.scheduler.wall.step(act["ms"][0])
    outcome = producers.burst(world, act)
    if not world.machine.killed:
        world.pass_time(act["between"])
    world.scheduler.wall.step(act["ms"][1])
    return outcome


def _rate(world: World, act: Act) -> str:
    """From now on the clock runs faster or slower: slewed by a time service, or that of a bad machine."""
    world.scheduler.wall.run_at(act["rate"])
    return ""


def _kill(world: World, act: Act) -> str:
    """The process ends between two steps of its threads; for another mode than "all" the machine lost its power."""
    world.pass_time(act["after"])
    if not world.machine.killed:
        world.kill(act["mode"], act["away"])
        world.look()
    return ""


def _make_last_second(chance: random.Random, before: list[Act]) -> Act:
    return {
        "ms": chance.choice((0, *STEPS_MS)), "messages": [producers.one(chance) for _ in range(3)],
        "after": chance.choice((0.0, 0.1, 0.5, 0.9)), "mode": chance.choice(("all", *MODES)),
        "away": chance.choice((0.0, 1.0, 20.0)),
    }  # fmt: skip


def _last_second(world: World, act: Act) -> str:
    """The clock is set and messages come, and within a second the broker is dead."""
    world.scheduler.wall.step(act["ms"])
    outcome = producers.burst(world, act)
    if not world.machine.killed:
        _kill(world, act)
    return outcome


def _kill_soon(world: World, act: Act) -> str:
    """It ends in the middle of what comes next, before a certain change of the disk."""
    world.machine.disk.kill_in = act["changes"]
    return ""


def _restart(world: World, act: Act) -> str:
    stopped = world.stop()
    world.scheduler.now += act["away"]
    world.start()
    world.look()
    return "" if stopped else "killed on its way"


def _fill(world: World, act: Act) -> str:
    """The disk is so full for a while that log files go before their time; beyond `REFUSES` it takes no messages, nor
    is anything delivered."""
    world.oracle.disk_was_full = True
    world.oracle.full_until = world.now + act["seconds"] + 3.0
    log, used = world.machine.broker.store.log, act.get("used", 0.87)
    begin, files = log.min_offset, sum(one.end <= log.written for one in log.segments)
    world.machine.disk.used = int(CAPACITY * used)
    world.pass_time(act["seconds"])
    world.machine.disk.used = CAPACITY // 10
    is_well = not (world.machine.killed or world.has_faults or world.machine.log_failed or world.slave is not None)
    if is_well and act["seconds"] >= FREED_S and files and log.min_offset == begin:
        raise Violation("a full disk gets no room", f"{act}: {files} files, the log begins at {begin}")
    world.pass_time(3.0)
    if used > REFUSES:
        world.oracle.flows_since = max(world.oracle.flows_since, world.now)
    if not world.machine.killed:
        world.look()
    return f"the log begins at {world.machine.broker.store.log.min_offset}"


def _make_fill(chance: random.Random, before: list[Act]) -> Act:
    if chance.random() < 0.5:
        return {"seconds": chance.choice((3.0, 8.0))}
    return {"seconds": chance.choice((8.0, FREED_S)), "used": 0.97}


def _look(world: World, act: Act) -> str:
    world.look()
    return ""


def _settle(world: World, act: Act) -> str:
    """At the end: everything that waits has its time, then all is read."""
    world.machine.network.heal()
    world.pass_time(min(SETTLED_S, max(SOON_S, world.oracle.waits_until() + LATE_S + SOON_S - world.now)))
    if not world.machine.killed:
        world.look()
    return ""


def _no(chance: random.Random, before: list[Act]) -> Act:
    return {}


KINDS = [
    Kind(
        "operators",
        "wait",
        6,
        lambda chance, before: {"seconds": chance.choice((0.01, 0.05, 0.05, 0.3, 0.3, 1.0, 1.0, 3.0, 6.0))},
        _wait,
    ),
    Kind("operators", "clock", 1, lambda chance, before: {"ms": chance.choice(STEPS_MS), "then": 0.0}, _clock),
    Kind("operators", "clock twice", 0.5, _make_clock_twice, _clock_twice),
    Kind("operators", "last second", 0.5, _make_last_second, _last_second),
    Kind("operators", "rate", 0.5, lambda chance, before: {"rate": chance.choice(RATES)}, _rate),
    Kind(
        "operators",
        "kill",
        1,
        lambda chance, before: {
            "mode": chance.choice(("all", *MODES)),
            "after": chance.choice((0.0, 0.0, 0.001, 0.3)),
            "away": chance.choice((0.0, 1.0, 20.0)),
        },
        _kill,
    ),
    Kind("operators", "kill soon", 1, lambda chance, before: {"changes": int(chance.expovariate(1 / 20))}, _kill_soon),
    Kind("operators", "restart", 0.5, lambda chance, before: {"away": chance.choice((0.0, 2.0, 20.0))}, _restart),
    Kind("operators", "fill", 0.4, _make_fill, _fill),
    Kind("operators", "look", 1, _no, _look),
    Kind("operators", "settle", 0.0, _no, _settle),
]
