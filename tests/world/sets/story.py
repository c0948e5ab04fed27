"""One seed, one life of a set: acts, done one after the other to members that the oracle watches.

As in `tests/world/world.py` an act says all about itself, so that any may be left out.
"""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable

from tests.world.machine import simulated_machines
from tests.world.oracle import Violation
from tests.world.sets import administrators, clients, faults, together, users
from tests.world.sets.etcd import Etcd
from tests.world.sets.kind import Act, Kind
from tests.world.sets.member import Member, simulated_membership
from tests.world.sets.name_server import NameServerMachine
from tests.world.sets.network import SetNetwork
from tests.world.sets.world import SetWorld
from tests.world.threads import Scheduler
from tests.world.world import BEGIN_MS, STORE, Done, Failure, Result, logged_errors, no_garbage

KINDS: dict[str, Kind] = {
    kind.name: kind for module in (clients, administrators, users, faults, together) for kind in module.KINDS
}


def script_of(seed: int, steps: int) -> list[Act]:
    """The acts of a seed; the first one says how many members there are, how many have to be in sync, whether an
    acknowledgement waits for them, and how wrong their clocks are."""
    chance = random.Random(f"set {seed}")
    script: list[Act] = [
        {
            "n": 0, "act": "begin", "members": chance.choice((2, 3, 3)), "min": chance.choice((1, 1, 2)),
            "async": chance.random() < 0.2,
            "users": chance.random() < 0.7,
            "skew": [0, *chance.choice(((0, 0), (0, 0), (3_600_000, -3_600_000), (-3_600_000, 3_600_000)))],
        }
    ]  # fmt: skip
    weights = [kind.weight * chance.choice((0.3, 1.0, 1.0, 3.0)) for kind in KINDS.values()]
    for number in range(1, steps):
        [kind] = chance.choices(list(KINDS.values()), weights)
        script.append({"n": number, "act": kind.name, **kind.make(chance)})
    script.append({"n": steps, "act": "settle", "long": chance.random() < 0.3})
    return script


def _begin(world: SetWorld) -> None:
    """The first member makes the set, the others join."""
    failure = world.name_server.start()
    assert failure is None, failure
    for member in world.members:
        world.start(member)
        if not world.run(lambda: world.leader() is not None, 30.0):
            raise Violation("nobody makes the set", str(world.members[0].service and world.members[0].service.status))
    if not world.run(lambda: world.together() is not None, 30.0):
        raise Violation("a new set does not come together")


def play(seed: int, script: list[Act], told: Callable[[Done], None] | None = None) -> Result:
    """The same as `tests.world.world.play`, for a set."""
    begun = time.process_time()
    scheduler, etcd = Scheduler(BEGIN_MS), Etcd()
    network = SetNetwork(scheduler)
    scheduler.chance = random.Random(f"{seed} begin")
    state = random.getstate()
    random.seed(f"{seed} start")
    said = script[0] if script and script[0]["act"] == "begin" else {"members": 3, "min": 1}
    is_async, skew = said.get("async", False), said.get("skew", (0, 0, 0))
    store = STORE | {
        "flush_disk_type": "SYNC_FLUSH", "broker_role": "ASYNC_MASTER" if is_async else "SYNC_MASTER",
        "disk_max_used_space_ratio": 90,
    }  # fmt: skip
    made: list[Member] = []

    def make() -> Member:
        number = len(made)
        made.append(
            Member(
                scheduler,
                number,
                store,
                network,
                etcd,
                said["min"],
                number == 0,
                BEGIN_MS + skew[number],
                not is_async,
                said.get("users", False),
            )
        )
        return made[-1]

    failure = None
    with (
        no_garbage(), simulated_machines(scheduler, network, make), simulated_membership(scheduler),
        logged_errors() as errors,
    ):  # fmt: skip
        while len(made) < said["members"]:
            make()
        world = SetWorld(seed, scheduler, network, etcd, made, NameServerMachine(scheduler, network), KINDS)
        world.oracle.is_async = is_async
        world.oracle.age_off_s = 2 * max(map(abs, skew)) / 1000
        try:
            _begin(world)
            for act in script:
                if act["act"] == "begin":
                    world.done.append(Done(act, ""))
                    continue
                world.perform(act, errors)
                if told is not None:
                    told(world.done[-1])
        except Violation as violation:
            failure = Failure(violation.rule, str(violation), world.done)
        except Exception as error:
            rule = f"the story breaks off with {type(error).__name__}"
            failure = Failure(rule, f"{rule}: {error}\n{traceback.format_exc()}", world.done)
        oracle = world.oracle
        figures = {
            "sent": len(oracle.sent), "acknowledged": sum(one.fate != "unknown" for one in oracle.sent.values()),
            "leaders": oracle.leads, "virtual s": round(world.now - 1000.0, 1), "requests": world.requests,
        }  # fmt: skip
    random.setstate(state)
    return Result(failure, world.done, figures, time.process_time() - begun)
